//! The results of effects, as they are recorded in a journal.

mod json;
mod result;

use ubos_common::json::to_string;
use upp::ModelEvent;

pub(super) use json::{AnswerJson, ErrorJson, Findings, object};
use json::{HookJson, ResponseJson};
pub(super) use result::EffectResult;

use crate::checkpoint::CheckpointError;
use crate::engine::{EffectId, Input};
use crate::hooks::HookAnswer;

impl EffectResult {
    /// The result of an input and its effect; `None` for a part of a response. `is_partial`: a part was received before.
    pub(super) fn of(answer: &Input, was_heard: bool) -> Option<(Option<EffectId>, Self)> {
        let (id, result) = match answer {
            Input::Model(_, Some(Ok(ModelEvent::Event(_)))) => return None,
            Input::Model(id, Some(Ok(ModelEvent::Done(response)))) => {
                (*id, Self::Response(response.clone()))
            }
            Input::Model(id, Some(Err(error))) => (*id, Self::Failed(error.clone(), was_heard)),
            Input::Model(id, None) => (*id, Self::NoResponse(was_heard)),
            Input::Model(_, Some(Ok(_))) => return None,
            Input::Stop(id) => (*id, Self::Stopped),
            Input::Slept(id) => (*id, Self::Slept),
            Input::Tool(id, execution, traces) => {
                (*id, Self::Tool(execution.clone(), traces.clone()))
            }
            Input::Hook(id, Ok(answer)) => (*id, Self::Hook(answer.clone())),
            Input::Hook(id, Err(error)) => (*id, Self::HookFailed(error.clone())),
            Input::Saved(id, Ok(())) => (*id, Self::Saved),
            Input::Saved(id, Err(error)) => (*id, Self::SaveFailed(error.to_string().into())),
            Input::Abort => return Some((None, Self::Abort)),
            Input::Expire => return Some((None, Self::Expired)),
        };
        Some((Some(id), result))
    }

    /// The input that hands the result to the engine.
    pub(super) fn into_answer(self, id: EffectId) -> Input {
        match self {
            Self::Response(response) => Input::Model(id, Some(Ok(ModelEvent::Done(response)))),
            Self::Failed(error, _) => Input::Model(id, Some(Err(error))),
            Self::NoResponse(_) => Input::Model(id, None),
            Self::Stopped => Input::Stop(id),
            Self::Slept => Input::Slept(id),
            Self::Tool(execution, traces) => Input::Tool(id, execution, traces),
            Self::Hook(answer) => Input::Hook(id, Ok(answer)),
            Self::HookFailed(error) => Input::Hook(id, Err(error)),
            Self::Saved => Input::Saved(id, Ok(())),
            Self::SaveFailed(why) => Input::Saved(id, Err(CheckpointError::Recorded(why))),
            Self::Abort => Input::Abort,
            Self::Expired => Input::Expire,
        }
    }

    /// The kind of the effect; `None` for an abort, by the caller or by the time.
    pub(super) const fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Response(_) | Self::Failed(..) | Self::NoResponse(_) | Self::Stopped => {
                Some("infer")
            }
            Self::Tool(..) => Some("tool"),
            Self::Slept => Some("sleep"),
            Self::Hook(_) | Self::HookFailed(_) => Some("hook"),
            Self::Saved | Self::SaveFailed(_) => Some("save"),
            Self::Abort | Self::Expired => None,
        }
    }

    /// The content without ids and times. It is equal where two runs received the same result.
    pub(super) fn content(&self) -> String {
        match self {
            Self::Response(response) => {
                let message = &response.message;
                let said = (&message.content, &message.tool_calls, &response.data);
                let (content, calls) = (to_string(said.0), to_string(said.1));
                format!("{content}{calls}{}", to_string(said.2))
            }
            Self::Tool(execution, _) => {
                let ran = (
                    &execution.tool_name,
                    &execution.arguments,
                    &execution.result,
                );
                format!(
                    "{}{}{}{}",
                    ran.0,
                    ran.1.as_str(),
                    ran.2.as_str(),
                    execution.is_error
                )
            }
            Self::Hook(HookAnswer::Layer(context, came_to)) => match came_to {
                Ok(_) => format!("{}{}", context.input.text(), context.state.messages().len()),
                Err(error) => to_string(&ErrorJson::of(error)),
            },
            Self::Hook(HookAnswer::Recovered(result)) => result.turn.response.text(),
            _ => to_string(&self.json(None)),
        }
    }

    /// The JSON of the result.
    pub(super) fn json(&self, id: Option<EffectId>) -> AnswerJson {
        let mut json = AnswerJson::new();
        json.id = id;
        match self {
            Self::Response(response) => json.model = Some(ResponseJson::of(response)),
            Self::Failed(error, was_heard) => {
                json.failed = Some(ErrorJson::of(error));
                json.heard = was_heard.then_some(true);
            }
            Self::NoResponse(was_heard) => {
                json.silent = Some(true);
                json.heard = was_heard.then_some(true);
            }
            Self::Slept => json.slept = Some(true),
            Self::Stopped => json.stopped = Some(true),
            Self::Tool(execution, traces) => {
                json.tool = Some(execution.clone());
                json.traces = Some(traces.clone()).filter(|traces| !traces.is_empty());
            }
            Self::Hook(answer) => json.hook = Some(HookJson::of(answer)),
            Self::HookFailed(error) => {
                let mut hook = HookJson::new();
                hook.error = Some(ErrorJson::of(error));
                json.hook = Some(hook);
            }
            Self::Saved => json.saved = Some(true),
            Self::SaveFailed(why) => json.unsaved = Some(why.clone()),
            Self::Abort => json.abort = Some(true),
            Self::Expired => json.expired = Some(true),
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::json::RawObject;
    use upp::{ToolExecution, json_text};

    use super::*;

    // spec: UAP-12-5
    #[test]
    fn the_content_of_a_tools_result_has_no_ids_and_times() {
        let content = |name: &str, id: &str, text: &str, is_error, millis| {
            let (arguments, result) = (RawObject::empty(), json_text(text));
            let (name, id) = (name.into(), id.into());
            let ran = ToolExecution::new(name, id, arguments, result, is_error, millis);
            EffectResult::Tool(ran, Vec::new()).content()
        };
        let one = content("look", "c1", "found", false, 1);
        assert_eq!(content("look", "c2", "found", false, 9), one);
        assert_ne!(content("peek", "c1", "found", false, 1), one);
        assert_ne!(content("look", "c1", "lost", false, 1), one);
        assert_ne!(content("look", "c1", "found", true, 1), one);
    }
}
