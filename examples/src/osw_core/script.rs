//! The calls to be made, a JSON object a line.

use std::time::Duration;

use opensentience_wire::role::core::CallRequest;
use serde::Deserialize;
use serde_json::value::RawValue;
use ubos_common::json::{RawBuf, RawObject};

/// One call.
#[derive(Debug)]
pub(super) struct Line {
    /// A tool's name or full id.
    tool: String,
    input: RawObject,
    timeout: Option<Duration>,
    idempotency_key: Option<String>,
    /// When it is to be cancelled, if it still runs then.
    pub(super) cancel_after: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    call: String,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    timeout_ms: Option<u64>,
    cancel_after_ms: Option<u64>,
    idempotency_key: Option<String>,
}

impl Line {
    /// Reads a line; `None` for a blank one.
    pub(super) fn read(text: &str) -> Result<Option<Self>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let line: Written<'_> = serde_json::from_str(text).map_err(|err| err.to_string())?;
        let input = match line.input {
            None => RawObject::empty(),
            Some(input) => RawBuf::parse(input.get())
                .map_err(|err| format!("input: {err}"))
                .and_then(|input| {
                    RawObject::new(input).ok_or_else(|| "input is no object".to_owned())
                })?,
        };
        Ok(Some(Self {
            tool: line.call,
            input,
            timeout: line.timeout_ms.map(Duration::from_millis),
            idempotency_key: line.idempotency_key,
            cancel_after: line.cancel_after_ms.map(Duration::from_millis),
        }))
    }

    /// The request, for an agent of that id.
    pub(super) fn request(&self, agent_id: &str) -> CallRequest {
        let tool = if self.tool.contains('/') {
            self.tool.clone()
        } else {
            format!("{agent_id}/{}", self.tool)
        };
        let mut request = CallRequest::new(tool, self.input.clone());
        request.timeout = self.timeout;
        request.idempotency_key.clone_from(&self.idempotency_key);
        request
    }
}
