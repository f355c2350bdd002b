//! Policies for invalid tool calls and structured output. Without a policy they are left unchanged.

#[cfg(feature = "schema")]
mod schemas;

use core::fmt;
use std::sync::Arc;

use ubos_common::json::{Kind, RawBuf, RawObject};
use upp::{LlmResponse, ToolCall, ToolSet};

/// Decides what happens with tool calls and structured output before they are used. It must be deterministic, because the
/// state machine of a run calls it.
// impl: UAP-16-2
pub trait RepairPolicy: Send + Sync {
    /// Judges a call of the model.
    fn call(&self, call: &ToolCall, tools: &ToolSet) -> CallVerdict {
        let _ = (call, tools);
        CallVerdict::Run
    }

    /// Judges a response that should be structured output. `attempts` counts the repeated requests, from 0.
    fn output(&self, response: &LlmResponse, schema: &RawObject, attempts: u32) -> OutputVerdict {
        let _ = (response, schema, attempts);
        OutputVerdict::Accept
    }
}

/// The verdict about a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CallVerdict {
    /// The call runs unchanged. A call of an unknown tool gives an error result.
    Run,
    /// Another call runs in its place. The conversation keeps the model's call, and the execution shows the one that ran.
    RunAs {
        /// The tool.
        name: Arc<str>,
        /// Its arguments.
        arguments: RawObject,
    },
    /// The call does not run: the model gets this text as an error result.
    Answer(Box<str>),
}

/// The verdict about structured output.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OutputVerdict {
    /// The output is used unchanged; it may be absent.
    Accept,
    /// This output is used in its place.
    Use(RawBuf),
    /// The model gets this text and is asked again. Both messages stay in the conversation.
    AskAgain(Box<str>),
    /// The run fails with `INVALID_RESPONSE`.
    Fail(Box<str>),
}

/// Options of [`repair`].
///
/// | option | default |
/// |---|---|
/// | `tool_names` | yes |
/// | `output_attempts` | 2 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    tool_names: bool,
    output_attempts: u32,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self {
            tool_names: true,
            output_attempts: 2,
        }
    }
}

impl RepairOptions {
    /// Sets whether the name of an unknown tool is corrected if exactly one tool differs from it only in case, `-`, `_` and
    /// white space: true by default.
    #[must_use]
    pub const fn with_tool_names(mut self, mends: bool) -> Self {
        self.tool_names = mends;
        self
    }

    /// Sets how often the model is asked again for valid output before the run fails: 2 by default.
    #[must_use]
    pub const fn with_output_attempts(mut self, attempts: u32) -> Self {
        self.output_attempts = attempts;
        self
    }
}

/// The built-in policy: it corrects names of tools, extracts a JSON object from the text around it, and requests a
/// response again where there is no object. With the feature `schema` it validates arguments and outputs: a call with
/// invalid arguments is not run, and the model receives the pointer of the fault.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::{RepairOptions, repair};
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel, object};
///
/// let model = ScriptedModel::new([Reply::text("I'd say Paris."), Reply::text(r#"Well: {"city":"Paris"}"#)]);
/// let schema = object(r#"{"type":"object","required":["city"]}"#)?;
/// let options = AgentOptions::new(Arc::new(model))
///     .map_llm(|llm| llm.with_structure(schema))
///     .with_repair(repair(RepairOptions::default()));
/// let agent = agent(options)?;
/// let turn = futures::executor::block_on(agent.query("Which city?"))?;
/// assert_eq!(turn.data.expect("structured output").as_str(), r#"{"city":"Paris"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn repair(options: RepairOptions) -> Arc<dyn RepairPolicy> {
    Arc::new(Repair {
        options,
        #[cfg(feature = "schema")]
        schemas: schemas::Schemas::default(),
    })
}

struct Repair {
    options: RepairOptions,
    #[cfg(feature = "schema")]
    schemas: schemas::Schemas,
}

impl Repair {
    /// The violations of the schema, as a text for the model.
    #[cfg(feature = "schema")]
    fn fault(&self, schema: &RawObject, value: ubos_common::json::Raw<'_>) -> Option<String> {
        self.schemas.fault(schema, value)
    }

    #[cfg(not(feature = "schema"))]
    #[expect(clippy::unused_self, reason = "with feature schema it has a use")]
    const fn fault(&self, _: &RawObject, _: ubos_common::json::Raw<'_>) -> Option<String> {
        None
    }
}

impl RepairPolicy for Repair {
    fn call(&self, call: &ToolCall, tools: &ToolSet) -> CallVerdict {
        // A call that runs under another name has no malformed arguments any more, and would run with none.
        if call.malformed_arguments().is_some() {
            let text = "the call was not run: its arguments are not a JSON object";
            return CallVerdict::Answer(text.into());
        }
        let known = tools.find(&call.tool_name);
        let meant = match known {
            None if self.options.tool_names => meant(&call.tool_name, tools),
            _ => None,
        };
        let name = meant.as_ref().unwrap_or(&call.tool_name);
        if let Some(tool) = tools.find(name)
            && let Some(fault) = self.fault(tool.parameters(), call.arguments.as_raw())
        {
            let text = format!("the call was not run: its arguments break the schema: {fault}");
            return CallVerdict::Answer(text.into());
        }
        match meant {
            None => CallVerdict::Run,
            Some(name) => CallVerdict::RunAs {
                name,
                arguments: call.arguments.clone(),
            },
        }
    }

    fn output(&self, response: &LlmResponse, schema: &RawObject, attempts: u32) -> OutputVerdict {
        let found = match &response.data {
            Some(data) => Some(data.clone()),
            None => embedded(&response.message.text()),
        };
        let is_object = |data: &RawBuf| data.kind() == Kind::Object;
        let fault = match found.as_ref().filter(|data| is_object(data)) {
            None => Some("there is no JSON object in it".to_owned()),
            Some(data) => self.fault(schema, data.as_raw()),
        };
        match (fault, found) {
            (None, Some(data)) if response.data.is_none() => OutputVerdict::Use(data),
            (None, _) => OutputVerdict::Accept,
            (Some(fault), _) if attempts < self.options.output_attempts => {
                let text = format!(
                    "Your answer cannot be used: {fault}. Answer again, with one JSON object that fits the schema and \
                     nothing else."
                );
                OutputVerdict::AskAgain(text.into())
            }
            (Some(fault), _) => {
                OutputVerdict::Fail(format!("the output cannot be used: {fault}").into())
            }
        }
    }
}

impl fmt::Debug for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Repair").field(&self.options).finish()
    }
}

/// The text from the first brace to the last, if it is valid JSON.
pub(crate) fn embedded(text: &str) -> Option<RawBuf> {
    let (from, to) = (text.find('{')?, text.rfind('}')?);
    RawBuf::parse(text.get(from..=to)?).ok()
}

/// The one tool whose name differs only in its spelling.
fn meant(name: &str, tools: &ToolSet) -> Option<Arc<str>> {
    let spelled = |name: &str| {
        let bare = name
            .chars()
            .filter(|c| !matches!(c, '-' | '_') && !c.is_whitespace());
        bare.flat_map(char::to_lowercase).collect::<String>()
    };
    let wanted = spelled(name);
    let mut alike = tools
        .tools
        .iter()
        .filter(|tool| spelled(tool.name()) == wanted);
    match (alike.next(), alike.next()) {
        (Some(tool), None) => Some(tool.name().into()),
        _ => None,
    }
}
