//! A live endpoint of SAP over HTTP, driven from outside.

mod cases;
mod http;
mod judges;
mod reference;

pub use cases::endpoint_kit;
pub use http::HttpEndpoint;

use crate::Protocol;

/// The protocol of driving an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Posts;

impl Protocol for Posts {
    type Line = Posted;
    type Peer = dyn Endpoint;

    fn describe(line: &Posted) -> String {
        let sent = String::from_utf8_lossy(&line.body);
        match &line.response {
            Ok(response) => {
                let said = String::from_utf8_lossy(&response.body);
                format!("{sent} -> {}: {said}", response.status)
            }
            Err(why) => format!("{sent} -> nothing: {why}"),
        }
    }
}

/// Somebody who takes tasks.
pub trait Endpoint {
    /// Posts a body that is said to be JSON. The answer is wanted as lines as they come, or as one message.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words.
    fn post(&mut self, body: &[u8], wants_lines: bool) -> Result<HttpResponse, String>;

    /// Posts a task with this correlation id in the header. `None` where nobody can send another than the task's; so it is
    /// by default.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words.
    fn post_correlated(
        &mut self,
        body: &[u8],
        correlation: &str,
    ) -> Result<Option<HttpResponse>, String> {
        let _ = (body, correlation);
        Ok(None)
    }

    /// Posts a task, whose answer is wanted as lines, and has it cancelled when its first message has come. `None` where
    /// nobody can have a task cancelled; so it is by default.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words.
    fn post_and_cancel(&mut self, body: &[u8]) -> Result<Option<HttpResponse>, String> {
        let _ = body;
        Ok(None)
    }

    /// What can be asked of it.
    fn work(&self) -> &Work;
}

/// Work that succeeds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Work {
    /// The capability.
    pub capability: String,
    /// A payload that the capability takes.
    pub payload: serde_json::Value,
    /// The issuer, who may have it done.
    pub issuer: String,
    /// What no earlier run had: the ids of all tasks come of it.
    pub seed: u64,
    /// A capability and a payload of it, whose work goes on for five seconds or more where nobody ends it.
    pub slow: Option<(String, serde_json::Value)>,
}

impl Work {
    /// Work that this issuer may have done.
    #[must_use]
    pub fn new(
        capability: impl Into<String>,
        payload: serde_json::Value,
        issuer: impl Into<String>,
        seed: u64,
    ) -> Self {
        Self {
            capability: capability.into(),
            payload,
            issuer: issuer.into(),
            seed,
            slow: None,
        }
    }

    /// Names work that goes on for five seconds or more where nobody ends it. Without it no task is cancelled, and no
    /// deadline passes while a task runs.
    #[must_use]
    pub fn with_slow(mut self, capability: impl Into<String>, payload: serde_json::Value) -> Self {
        self.slow = Some((capability.into(), payload));
        self
    }
}

/// What an endpoint answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The header `X-Correlation-Id`.
    pub correlation: Option<String>,
    /// The body, whole.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A response without the header.
    #[must_use]
    pub const fn new(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            correlation: None,
            body,
        }
    }
}

/// A task, or something like one, that was posted, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Posted {
    /// What was posted.
    pub body: Vec<u8>,
    /// What was answered.
    pub response: Result<HttpResponse, String>,
}
