//! The middleware around a run: inwards before the run, outwards with its result or its error.

use ubos_common::id::IdSource;
use ubos_common::time::Now;
use upp::{ErrorCode, UppError};

use super::effects::Output;
use super::state::{AgendaItem, Engine, LayerCall, Phase, RunStage};
use crate::hooks::{HookAnswer, HookCall};
use crate::middleware::MiddlewareContext;
use crate::result::{AgentError, GenerateResult};
use crate::strategy::Outcome;

impl Engine {
    /// Calls the next inner layer, or starts the run.
    // impl: UAP-9-1
    pub(super) fn enter(&mut self, now: Now, layer: usize) {
        if layer == self.config.layers.len() {
            self.stage = RunStage::Running;
            self.state = self.context.state.clone();
            if self.holds_input() {
                let what = "the history holds a message with the input's id";
                let error = self.refuse(ErrorCode::InvalidRequest, what);
                return self.fail(now, error);
            }
            self.plan_ops([AgendaItem::Next(Box::new(Outcome::Started))]);
            return;
        }
        self.entered = layer + 1;
        let context = self.context_at(now);
        self.ask_layer(HookCall::Before(layer, context), LayerCall::Before(layer));
    }

    /// Passes a result to the next layer within `outer`, or to the caller.
    pub(super) fn leave(&mut self, now: Now, outer: usize, result: Box<GenerateResult>) {
        self.stage = RunStage::After;
        let Some(layer) = outer.checked_sub(1) else {
            return self.close(Ok(*result));
        };
        let call = HookCall::After(layer, self.context_at(now), result.clone());
        self.ask_layer(call, LayerCall::After(layer, result));
    }

    /// Passes an error to the next layer within `outer`, or to the caller.
    // impl: UAP-9-2
    pub(super) fn catch(&mut self, now: Now, outer: usize, failure: Box<AgentError>) {
        let Some(layer) = outer.checked_sub(1) else {
            return self.close(Err(failure));
        };
        let call = HookCall::Caught(layer, self.context_at(now), failure.clone());
        self.ask_layer(call, LayerCall::Caught(layer, failure));
    }

    pub(super) fn on_layer(&mut self, now: Now, answer: Result<HookAnswer, UppError>) {
        let Phase::Layer(_, layer) = core::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let came_to = match answer {
            Ok(HookAnswer::Layer(context, came_to)) => {
                self.context = *context;
                came_to
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        match (layer, came_to) {
            (LayerCall::Before(layer), Ok(_)) => self.enter(now, layer + 1),
            (LayerCall::Before(_), Err(error)) => {
                let failure = AgentError::new(error, self.context.state.clone(), None);
                self.catch(now, self.entered, failure);
            }
            (LayerCall::After(layer, kept), Ok(given)) => {
                self.leave(now, layer, given.unwrap_or(kept));
            }
            (LayerCall::After(_, kept), Err(error)) => {
                let GenerateResult { turn, state } = *kept;
                self.catch(now, self.entered, AgentError::new(error, state, Some(turn)));
            }
            (LayerCall::Caught(..), Ok(Some(result))) => self.close(Ok(*result)),
            // What a layer itself fails with does not hide what it was told of.
            (LayerCall::Caught(layer, failure), _) => self.catch(now, layer, failure),
        }
    }

    /// Whether the state holds a message with the input's id already. A state with two such messages cannot be read back.
    // choice: UAP-4-2: a message that is asked again needs an id of its own.
    fn holds_input(&self) -> bool {
        let id = self.context.input.id();
        self.state.messages().iter().any(|held| held.id() == id)
    }

    fn ask_layer(&mut self, call: HookCall, layer: LayerCall) {
        let id = self.next_effect();
        self.out.push(Output::Hook(id, call));
        self.phase = Phase::Layer(id, layer);
    }

    fn context_at(&mut self, now: Now) -> Box<MiddlewareContext> {
        self.context.now = now;
        self.context.ids = IdSource::seeded(self.ids.bits());
        Box::new(self.context.clone())
    }
}
