//! The outcome of a run, and the answers of its subtasks.

use ubos_common::json::RawBuf;

use super::Failure;
use super::outcome::{End, Outcome, StepReport, answer_to, by_name};
use super::state::Runner;
use super::steps::StepRun;
use crate::message::NonEmpty;
use crate::reply;

impl Runner {
    pub(super) fn outcome(&self, failure: Option<Failure>) -> Outcome {
        let report = |(node, run): (&crate::graph::Step, &StepRun)| StepReport {
            number: node.number,
            place: node.place,
            id: node.id.clone(),
            scope: node.scope,
            pointer: node.pointer.clone(),
            output_key: node.policy.output_key.clone(),
            state: run.state(),
            output: self.done(node.number).cloned(),
            attempts: run.attempt,
            failure: run.cause.clone().map(|cause| Failure {
                step: Some(node.number),
                cause,
            }),
            took: run
                .began
                .zip(run.ended)
                .map(|(began, ended)| ended.saturating_since(began)),
        };
        Outcome {
            end: self.end.unwrap_or(End::Failed),
            failure,
            steps: self
                .graph
                .steps()
                .iter()
                .zip(&self.steps)
                .map(report)
                .collect(),
            result: self.last_output(0),
            took: self.began.map(|began| {
                let ended = self.steps.iter().filter_map(|run| run.ended).max();
                let took = ended.unwrap_or(began).saturating_since(began);
                self.took_before.saturating_add(took)
            }),
            overruled: Vec::new(),
        }
    }

    /// The answer of a subtask: the output of the step that holds it.
    pub(super) fn subtask_answer(&self, scope: usize) -> RawBuf {
        let Some(request) = self
            .graph
            .scopes()
            .get(scope)
            .and_then(|scope| scope.message.as_deref())
        else {
            return self
                .last_output(scope)
                .unwrap_or_else(|| ubos_common::json::Raw::NULL.to_owned());
        };
        let mut message = answer_to(request);
        let parent = self
            .graph
            .scopes()
            .get(scope)
            .and_then(|scope| scope.parent);
        if message.reply_to.is_none() {
            // A subtask without an id answers the message around it.
            let outer = parent
                .and_then(|step| self.graph.step(step))
                .and_then(|step| self.graph.scopes().get(step.scope));
            message.reply_to = outer
                .and_then(|outer| outer.msg_id.clone())
                .and_then(NonEmpty::new);
        }
        if let Some(result) = self.last_output(scope) {
            message.set_context("result", result);
        }
        let steps = self
            .graph
            .scopes()
            .get(scope)
            .map(|scope| scope.steps.as_slice())
            .unwrap_or_default();
        let results = steps.iter().filter_map(|step| {
            Some((
                self.graph.step(*step)?.place.to_string(),
                self.output(*step)?.clone(),
            ))
        });
        message.set_context("results", by_name(results));
        reply::raw(message.encode())
    }

    /// The output of the last step; the list of all outputs if several steps are last.
    fn last_output(&self, scope: usize) -> Option<RawBuf> {
        let steps = &self.graph.scopes().get(scope)?.steps;
        let is_last = |step: &&usize| {
            let run = self.step_run(**step);
            run.is_some_and(|run| !run.gates.iter().any(|gate| self.is_gate_of(*gate, scope)))
        };
        let outputs: Vec<&RawBuf> = steps
            .iter()
            .filter(is_last)
            .filter_map(|step| self.output(*step))
            .collect();
        match outputs.as_slice() {
            [] => None,
            [one] => Some((*one).clone()),
            many => Some(reply::list(many)),
        }
    }

    /// Whether a step of this scope waits behind a gate. Deferred steps do not count.
    fn is_gate_of(&self, gate: usize, scope: usize) -> bool {
        let waits = |step: &usize| {
            self.graph
                .step(*step)
                .is_some_and(|node| node.scope == scope)
                && !self.graph.is_deferred(*step)
        };
        self.gates
            .get(gate)
            .is_some_and(|gate| gate.waiters.iter().any(waits))
    }
}
