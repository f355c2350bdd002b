//! The graph of a message of 1.0.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::Message;
use super::step::{OnError, RetryStrategy, Step};
use crate::graph::{self, Graph};
use crate::plan::Act;

impl From<&Message> for Graph {
    /// The plan as a graph: its steps in document order, with their own ids.
    fn from(message: &Message) -> Self {
        let mut graph = Self::default();
        let scope = graph.open(Some(&message.msg_id), &message.g, None);
        let numbers: BTreeMap<&str, usize> = (1..)
            .zip(message.plan.iter())
            .map(|(number, step)| (step.id.as_str(), number))
            .collect();
        for (n, step) in message.plan.iter().enumerate() {
            let mut after: Vec<usize> = step
                .depends_on
                .iter()
                .flatten()
                .filter_map(|name| numbers.get(name.as_str()).copied())
                .collect();
            after.sort_unstable();
            after.dedup();
            let act = Act::new(&step.verb, &step.tool).with_object(step.params.clone());
            let number = graph.add(scope, format!("/plan/{n}"), act, after);
            if let Some(node) = graph.step_mut(number) {
                step.id.as_str().clone_into(&mut node.id);
                node.policy = policy(step, &numbers);
            }
        }
        let fallbacks: Vec<(usize, usize)> = graph
            .steps()
            .iter()
            .filter_map(|step| match step.policy.on_error {
                Some(graph::OnError::Fallback(other)) => Some((other, step.number)),
                _ => None,
            })
            .collect();
        for (fallback, replaced) in fallbacks {
            if let Some(step) = graph.step_mut(fallback) {
                step.policy.replaces = Some(replaced);
            }
        }
        graph
    }
}

fn policy(step: &Step, numbers: &BTreeMap<&str, usize>) -> graph::Policy {
    let fallback = step.fallback_step.as_ref();
    let fallback = fallback.and_then(|name| numbers.get(name.as_str()).copied());
    let on_error = match (&step.on_error, fallback) {
        (Some(OnError::Continue), _) => graph::OnError::Continue,
        (Some(OnError::Fallback), Some(number)) => graph::OnError::Fallback(number),
        _ => graph::OnError::FailFast,
    };
    let retry = step.retry.as_ref().map(|retry| {
        // At most 10, so that it fits.
        let attempts = u64::from(retry.max_attempts).try_into().unwrap_or(u32::MAX);
        let backoff = retry.backoff_ms.map(|ms| Duration::from_millis(ms.into()));
        let backoff = backoff.unwrap_or_default();
        match retry.strategy {
            Some(RetryStrategy::Exponential) => graph::Retry::exponential(attempts, backoff),
            _ => graph::Retry::fixed(attempts, backoff),
        }
    });
    graph::Policy {
        timeout: step.timeout_ms.map(|ms| Duration::from_millis(ms.into())),
        // The defaults of 1.0: one attempt, and a failed step fails the message.
        retry: Some(retry.unwrap_or_else(|| graph::Retry::fixed(1, Duration::ZERO))),
        on_error: Some(on_error),
        output_key: step.output_key.as_ref().map(|key| key.as_str().to_owned()),
        replaces: None,
    }
}
