//! Budgets of tokens, time and money.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use ubos_common::time::{Mono, Now};
use upp::{
    CycleUsage, LlmCapabilities, LlmModel, LlmRequest, LlmResponse, ModelEvent, ModelReference,
    ModelStream, UppError,
};

use super::{Middleware, RecordedSpending};

/// The price of a million tokens, in millionths of a currency unit: 3 dollars are 3,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// exhaustive: a table row of four prices
pub struct Price {
    /// Input tokens, without those read from the cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

impl Price {
    /// Millionths of a millionth of a unit.
    fn of(self, usage: &CycleUsage) -> u128 {
        let cached = usage
            .cache_read_tokens
            .saturating_add(usage.cache_write_tokens);
        let fresh = usage.input_tokens.saturating_sub(cached);
        let parts = [
            (fresh, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
        ];
        let cost = |(tokens, price): (u64, u64)| u128::from(tokens) * u128::from(price);
        parts.into_iter().map(cost).sum()
    }
}

/// Middleware that ends runs once tokens, time or money are spent. There is no limit by default.
///
/// Costs are known after a response, so the last response may exceed the limit. The run ends with a result. Clones share
/// their counts: give a sub-agent a clone of its parent's budget, or a budget of its own.
///
/// A recorded run that is resumed or replayed counts what is recorded: tokens and money of each response, and the time for
/// which the run was under way. The time between two lives of a run does not count, in whichever process it goes on. A
/// budget counts a response once, although its run is resumed in the process that recorded it. A response that was not
/// recorded is counted by the process that received it alone. What a sub-agent has used counts again where it has a clone of
/// this budget; what its own sub-agents have used does not.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::middleware::Budget;
/// use uap_agent::{AgentOptions, Middleware, agent};
/// use upp::{Reply, ScriptedModel, object};
///
/// let budget = Budget::default().with_max_tokens(1);
/// let model = ScriptedModel::new([Reply::text("one").calling("c1", "none", object("{}")?), Reply::text("two")]);
/// let options = AgentOptions::new(Arc::new(model)).with_middleware([Arc::new(budget.clone()) as Arc<dyn Middleware>]);
/// let agent = agent(options)?;
/// let turn = futures::executor::block_on(agent.query("count"))?;
/// assert_eq!(turn.response.text(), "one");
/// assert!(budget.tokens() >= 1);
/// assert!(futures::executor::block_on(agent.query("count")).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// impl: UAP-16-1
#[derive(Clone, Default)]
pub struct Budget {
    limits: Limits,
    spent: Arc<Mutex<Spent>>,
}

#[derive(Clone, Copy, Default)]
struct Limits {
    tokens: Option<u64>,
    time: Option<Duration>,
    cost: Option<u64>,
    price: Price,
}

#[derive(Default)]
struct Spent {
    tokens: u64,
    pico_cost: u128,
    /// The time of recorded runs that has passed elsewhere.
    carried: Duration,
    /// When time has begun to count here, moved on by the time that runs have waited for their resumption.
    began: Option<Mono>,
    /// When a run has last asked whether it may go on.
    asked: Option<Mono>,
    /// Types of the sub-agents that have a clone.
    subagents: BTreeSet<Box<str>>,
    /// Recorded runs, the last that was heard of at the end.
    runs: VecDeque<RunCount>,
}

/// What is counted of a recorded run.
#[derive(Default)]
struct RunCount {
    run: u64,
    /// The last effect.
    effect: u64,
    /// How long it had been under way when this budget last heard of it, and when that was.
    time: Option<(Duration, Mono)>,
}

/// Recorded runs that a budget remembers. One that is forgotten and resumed in the same process is counted twice.
const MAX_RUNS: usize = 1024;

impl Spent {
    /// Changes what is counted of a run.
    fn with_run<T>(&mut self, run: u64, change: impl FnOnce(&mut RunCount) -> T) -> T {
        let place = self.runs.iter().position(|known| known.run == run);
        let known = place.and_then(|place| self.runs.remove(place));
        let mut count = known.unwrap_or_default();
        count.run = run;
        let done = change(&mut count);
        if self.runs.len() >= MAX_RUNS {
            self.runs.pop_front();
        }
        self.runs.push_back(count);
        done
    }

    /// Notes that a run is counted up to an effect; returns up to which it was before.
    fn note(&mut self, run: u64, effect: u64) -> u64 {
        self.with_run(run, |count| {
            let before = count.effect;
            count.effect = before.max(effect);
            before
        })
    }

    /// How much time is spent.
    fn time(&self, now: Now) -> Duration {
        let here = self.began.map(|began| now.mono.saturating_since(began));
        self.carried.saturating_add(here.unwrap_or_default())
    }

    /// A run may go on: time counts from the first of these questions.
    fn asked(&mut self, now: Now) -> Mono {
        self.asked = Some(now.mono);
        *self.began.get_or_insert(now.mono)
    }

    /// Counts the time of a recorded run.
    fn resumed(&mut self, now: Now, spent: &RecordedSpending) {
        let (elsewhere, idle) = self.with_run(spent.run, |count| count.resumed(now, spent));
        self.carried = self.carried.saturating_add(elsewhere);
        if spent.goes_on {
            // Other runs of this budget may have been under way meanwhile.
            let asked = self.asked.or(self.began).unwrap_or(now.mono);
            let idle = idle.min(now.mono.saturating_since(asked));
            let began = self.asked(now);
            self.began = Some(began.saturating_add(idle));
        }
    }
}

impl RunCount {
    /// How long the run was under way elsewhere, and how long it has waited here, since this budget last heard of it.
    fn resumed(&mut self, now: Now, spent: &RecordedSpending) -> (Duration, Duration) {
        let (elsewhere, idle) = match self.time {
            None => (spent.time, Duration::ZERO),
            Some((time, since)) => {
                let here = now.mono.saturating_since(since);
                let active = spent.time.saturating_sub(time);
                (active.saturating_sub(here), here.saturating_sub(active))
            }
        };
        if spent.goes_on || !elsewhere.is_zero() {
            self.time = Some((spent.time, now.mono));
        }
        (elsewhere, idle)
    }
}

impl Budget {
    /// Sets the maximum of input and output tokens.
    #[must_use]
    pub const fn with_max_tokens(mut self, tokens: u64) -> Self {
        self.limits.tokens = Some(tokens);
        self
    }

    /// Sets the maximum time, measured from the first request, or from a wait before it. A response that is not there by then is
    /// dropped, and a wait between two attempts ends.
    #[must_use]
    pub const fn with_max_time(mut self, time: Duration) -> Self {
        self.limits.time = Some(time);
        self
    }

    /// Sets the maximum cost, in millionths of a currency unit, and the prices of tokens.
    #[must_use]
    pub const fn with_max_cost(mut self, micros: u64, price: Price) -> Self {
        self.limits.cost = Some(micros);
        self.limits.price = price;
        self
    }

    /// The tokens spent so far.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.spent().tokens
    }

    /// The money spent so far, in millionths of a currency unit, rounded down.
    #[must_use]
    pub fn cost(&self) -> u64 {
        u64::try_from(self.spent().pico_cost / MICRO).unwrap_or(u64::MAX)
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, usage: &CycleUsage) {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        let cost = self.limits.price.of(usage);
        let mut spent = self.spent();
        spent.tokens = spent.tokens.saturating_add(tokens);
        spent.pico_cost = spent.pico_cost.saturating_add(cost);
    }
}

const MICRO: u128 = 1_000_000;

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("tokens", &self.tokens())
            .field("max_tokens", &self.limits.tokens)
            .field("cost", &self.cost())
            .field("max_cost", &self.limits.cost)
            .field("max_time", &self.limits.time)
            .finish()
    }
}

impl Middleware for Budget {
    fn name(&self) -> &str {
        "budget"
    }

    fn model(&self, model: ModelReference) -> ModelReference {
        let budget = self.clone();
        Arc::new(Metered { model, budget })
    }

    fn goes_on(&self, now: Now) -> bool {
        let limits = self.limits;
        let mut spent = self.spent();
        spent.asked(now);
        let cost = |max: u64| spent.pico_cost < u128::from(max) * MICRO;
        limits.tokens.is_none_or(|max| spent.tokens < max)
            && limits.time.is_none_or(|max| spent.time(now) < max)
            && limits.cost.is_none_or(cost)
    }

    fn ends_at(&self, now: Now) -> Option<Mono> {
        let max = self.limits.time?;
        let mut spent = self.spent();
        let began = spent.asked(now);
        Some(began.saturating_add(max.saturating_sub(spent.carried)))
    }

    fn recorded(&self, now: Now, run: u64) {
        let mut spent = self.spent();
        spent.with_run(run, |count| {
            count.time.get_or_insert((Duration::ZERO, now.mono));
        });
    }

    fn serves(&self, subagent_type: &str) {
        self.spent().subagents.insert(subagent_type.into());
    }

    fn responded(&self, run: u64, effect: u64) {
        // The model that this layer wraps has charged it.
        self.spent().note(run, effect);
    }

    fn resumed(&self, now: Now, spent: &RecordedSpending) {
        let effects = spent.responses.iter().map(|(effect, _)| *effect);
        let effects = effects.chain(spent.subagents.iter().map(|(effect, ..)| *effect));
        let before = self.spent().note(spent.run, effects.max().unwrap_or(0));
        for (_, usage) in spent
            .responses
            .iter()
            .filter(|(effect, _)| *effect > before)
        {
            self.charge(usage);
        }
        for (effect, name, usage) in &spent.subagents {
            if *effect > before && self.spent().subagents.contains(&**name) {
                self.charge(&CycleUsage::new(
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.cache_read_tokens,
                    usage.cache_write_tokens,
                ));
            }
        }
        self.spent().resumed(now, spent);
    }
}

/// A model whose responses are charged to a budget.
struct Metered {
    model: ModelReference,
    budget: Budget,
}

impl LlmModel for Metered {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn model_id(&self) -> &str {
        self.model.model_id()
    }

    fn capabilities(&self) -> LlmCapabilities {
        self.model.capabilities()
    }

    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        let (budget, answer) = (self.budget.clone(), self.model.complete(request));
        Box::pin(async move {
            let response = answer.await?;
            budget.charge(&response.usage);
            Ok(response)
        })
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        let (budget, inner) = (self.budget.clone(), self.model.stream(request));
        Box::pin(MeteredStream { budget, inner })
    }
}

struct MeteredStream {
    budget: Budget,
    inner: ModelStream,
}

impl Stream for MeteredStream {
    type Item = Result<ModelEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.inner.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Ok(ModelEvent::Done(response)))) = &item {
            self.budget.charge(&response.usage);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UAP-16-1
    #[test]
    fn cached_tokens_have_prices_of_their_own() {
        let price = Price {
            input: 1_000,
            output: 100,
            cache_read: 10,
            cache_write: 1,
        };
        // Ten went in: two of them from the cache, three into it.
        assert_eq!(
            price.of(&CycleUsage::new(10, 4, 2, 3)),
            5_000 + 400 + 20 + 3
        );
        // A vendor that counts them apart costs nothing below nothing.
        assert_eq!(price.of(&CycleUsage::new(1, 0, 2, 0)), 20);
    }
}
