//! The SAP side: every act is a governed task, answered by a processor with cache and transcript.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sap::SecretPolicy;
use sap::alignment::Rules;
use sap::cache::{Caching, WholePayload};
use sap::dispatch;
use sap::processor::{
    Answer, Config, Context, Delivery, HandlerError, Interrupted, Outcome, Processor, Table,
};
use sap::{
    AgentKind, CacheMode, CachePolicy, ConstitutionalContext, CorrelationId, ErrorCode, Issuer,
    PressureLevel, Producer, ProducerKind, RiskTolerance, Status, Target, Task, TaskId, TaskResult,
};
use serde_json::json;
use ubos_common::driver::Sleep as _;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};

use super::clock::RuntimeClock;
use super::screen::{Screen, Who};
use super::step_id;
use super::step_words;
use super::stores::Stores;
use super::words::with_causes;

/// Who issues the tasks, and who answers them.
const ISSUER: &str = "mission";
const PRODUCER: &str = "mission-processor";

/// What became of the tasks so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Tasks that were issued.
    pub tasks: u64,
    /// Answered from the cache.
    pub hits: u64,
    /// Looked for in the cache and computed.
    pub misses: u64,
}

/// Issues tasks to a processor of its own.
#[derive(Debug)]
pub struct Governed {
    processor: Processor,
    clock: RuntimeClock,
    ids: Mutex<IdSource>,
    /// The mission's own task, which all others belong to.
    pub root: TaskId,
    /// What all tasks share.
    pub correlation: CorrelationId,
    tally: Mutex<Tally>,
    screen: Screen,
}

/// Adds handlers to a processor.
pub struct Handlers<W> {
    processor: Processor,
    table: Table,
    world: Weak<W>,
    error: Option<String>,
}

impl<W> std::fmt::Debug for Handlers<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handlers")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<W: Send + Sync + 'static> Handlers<W> {
    /// Handlers that work on a world, which lives longer than any task.
    pub fn new(stores: &Stores, world: Weak<W>) -> Result<Self, String> {
        let producer = Producer::new(PRODUCER.parse().map_err(in_words)?, ProducerKind::System);
        let processor = Processor::new(
            producer,
            Arc::new(Table::default()),
            stores.transcript.clone(),
            Config::default(),
        )
        .map_err(in_words)?
        .cache(stores.cache.clone())
        .policy(Arc::new(
            Rules::default().forbid("secrecy", "PRIVATE KEY-----"),
        ));
        Ok(Self {
            processor,
            table: Table::default(),
            world,
            error: None,
        })
    }

    /// Adds the handler of a capability, and allows the mission to have it done.
    #[must_use]
    pub fn handle<F, Work>(mut self, capability: &str, run: F) -> Self
    where
        F: Fn(Arc<W>, Context) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<RawBuf, String>> + Send + 'static,
    {
        let (Ok(capability), Ok(issuer)) = (capability.parse(), ISSUER.parse()) else {
            self.error
                .get_or_insert_with(|| format!("{capability:?} is no capability"));
            return self;
        };
        let world = self.world.clone();
        let handler = move |context: Context| {
            let work = world.upgrade().map(|world| run(world, context));
            async move {
                let work = work.ok_or_else(|| failed("the mission has ended"))?;
                work.await.map(Outcome::new).map_err(failed)
            }
        };
        self.table = self
            .table
            .allow(issuer, sap::Capability::clone(&capability));
        self.processor = self.processor.handle(capability, handler);
        self
    }

    /// Lets outcomes of a capability answer equal tasks: what they say depends on the payload alone.
    pub fn cached(mut self, capability: &str) -> Self {
        if let Ok(capability) = capability.parse() {
            let caching = Caching::by_issuer(WholePayload);
            self.processor = self.processor.cached(capability, caching);
        }
        self
    }

    /// The issuer with its processor.
    ///
    /// Tasks that an earlier mission left without an end end as FAILED first.
    pub async fn build(
        self,
        mut ids: IdSource,
        correlation: CorrelationId,
        screen: &Screen,
    ) -> Result<Governed, String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let clock = RuntimeClock::default();
        let mut processor = self.processor.authorize(Arc::new(self.table));
        let resumed = processor.resume(&clock, Interrupted::Fail).await;
        let ended = resumed.map_err(|err| with_causes(&err))?.failed.len();
        if ended > 0 {
            let what = format!("{ended} tasks of an earlier mission had no end, and failed");
            screen.say(Who::Sap, what);
        }
        Ok(Governed {
            processor,
            clock,
            root: ids.next_id(),
            correlation,
            ids: Mutex::new(ids),
            tally: Mutex::default(),
            screen: screen.clone(),
        })
    }
}

fn failed(why: impl Into<String>) -> HandlerError {
    HandlerError::failed(ErrorCode::Internal, why)
}

fn in_words(err: impl std::fmt::Display) -> String {
    err.to_string()
}

/// What is asked for with one task.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The capability.
    pub capability: String,
    /// What it reads, by digest.
    pub payload: RawObject,
    /// Whether a stored outcome may answer.
    pub cached: bool,
    /// The step that asks, as the trace knows it.
    pub cause: String,
}

impl Governed {
    /// Issues the mission's own task.
    pub async fn run_root(&self, errand: &Errand) -> Result<TaskResult, String> {
        let mut task = self.draft(errand)?;
        task.task_id = self.root;
        self.issue(task, &errand.cause).await
    }

    /// Issues a task of the mission, and gives what came of it.
    pub async fn run(&self, errand: &Errand) -> Result<RawBuf, String> {
        let mut task = self.draft(errand)?;
        task.parent_task_id = Some(self.root);
        let result = self.issue(task, &errand.cause).await?;
        match (result.status, result.output, result.error) {
            (Status::Succeeded, Some(output), _) => Ok(output),
            (_, _, Some(error)) => Err(error
                .message
                .unwrap_or_else(|| "failed without a word".to_owned())),
            (status, ..) => Err(format!("ended {status}")),
        }
    }

    fn draft(&self, errand: &Errand) -> Result<Task, String> {
        let issuer = Issuer::new(ISSUER.parse().map_err(in_words)?, AgentKind::System);
        let target = Target::new(errand.capability.parse().map_err(in_words)?);
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().wall;
        let mut task = Task::draft(
            &mut ids,
            now,
            issuer,
            target,
            context(errand.cached),
            errand.payload.clone(),
        );
        task.correlation_id = self.correlation;
        // Of the causes, the protocol has a place for tasks alone; of times, it has whole seconds.
        let meta = json!({ "cause": errand.cause, "issuedAt": now.to_string() });
        task.meta = RawObject::from_serialize(&meta).map_err(in_words)?;
        Ok(task)
    }

    async fn issue(&self, task: Task, cause: &str) -> Result<TaskResult, String> {
        let capability = task.target.capability.to_string();
        let trace = self.screen.trace();
        let id = step_id::task(task.task_id);
        let step = trace.begin(Who::Sap, id, Some(cause), &*capability);
        let issued = self.answered(&task, &capability).await;
        match &issued {
            Ok(result) => step.end(step_words::task_end(&result.status, cache_hit(result))),
            Err(why) => step.end(step_words::failed(why)),
        }
        issued
    }

    async fn answered(&self, task: &Task, capability: &str) -> Result<TaskResult, String> {
        let (bytes, _) = dispatch(task, SecretPolicy::Refuse).map_err(in_words)?;
        self.count(|tally| tally.tasks += 1);
        let screen = &self.screen;
        let mut show = |delivery: Delivery<'_>| match delivery {
            Delivery::Ack(_) => screen.say(Who::Sap, format!("{capability}: accepted")),
            Delivery::Warning(warning) => screen.say(Who::Sap, format!("{capability}: {warning}")),
            _ => {}
        };
        let answer = self
            .processor
            .process(&self.clock, &bytes, &mut show)
            .await
            .map_err(in_words)?;
        let result = match answer {
            Answer::Result(result) => *result,
            Answer::Nack(nack) => {
                return Err(format!(
                    "{capability}: turned away, {}: {}",
                    nack.code,
                    nack.reason.as_str()
                ));
            }
            _ => return Err(format!("{capability}: no answer")),
        };
        let evidence = &result.constitutional_evidence;
        let hit = cache_hit(&result);
        self.count(|tally| match hit {
            Some(true) => tally.hits += 1,
            Some(false) => tally.misses += 1,
            None => {}
        });
        let from_cache = if hit == Some(true) {
            ", from the cache"
        } else {
            ""
        };
        screen.say(
            Who::Sap,
            format!(
                "{capability}: {}, {}{from_cache}",
                result.status, evidence.alignment
            ),
        );
        Ok(result)
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What became of the tasks so far.
    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels every task that runs; their results still come.
    pub fn cancel_all(&self) {
        self.processor.cancel_all();
    }

    /// The time, for the machines of the mission.
    #[must_use]
    pub const fn clock(&self) -> &RuntimeClock {
        &self.clock
    }
}

/// Whether the cache answered; `None` where it was not asked.
fn cache_hit(result: &TaskResult) -> Option<bool> {
    let cache = result.constitutional_evidence.cache.as_ref();
    cache.and_then(|cache| cache.hit)
}

fn context(cached: bool) -> ConstitutionalContext {
    let texts = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
    let mut policy = CachePolicy::new();
    policy.mode = Some(if cached {
        CacheMode::Prefer
    } else {
        CacheMode::Bypass
    });
    policy.must_align = Some(true);
    let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
    context.principles = texts(&["secrecy", "accuracy"]);
    context.pressure = Some(std::collections::BTreeMap::new());
    context.objectives = texts(&["say what the folder holds"]);
    context.constraints = texts(&["never show the text of a secret", "read only"]);
    context.risk_tolerance = Some(RiskTolerance::Low);
    context.territory = Some("source".to_owned());
    context.cache_policy = Some(policy);
    context
}
