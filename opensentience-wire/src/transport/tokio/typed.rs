//! Calls with types of the application's own.

use serde::Serialize;
use serde::de::DeserializeOwned;
use ubos_common::json::RawObject;

use super::handle::CoreHandle;
#[cfg(unix)]
use super::router::ToolRouter;
use crate::error::{CommandError, ErrorObject};
use crate::role::core::{CallRequest, Outcome};
#[cfg(unix)]
use crate::role::router::Refused;

/// Why a call of types has no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The input is not written as an object; nothing was sent.
    #[error("the input cannot be written as an object")]
    Input(#[source] Option<serde_json::Error>),
    /// The connection refused the call; nothing was sent.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The router refused the call; nothing was sent.
    #[cfg(unix)]
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The call failed or was canceled.
    #[error(transparent)]
    Failed(#[from] Box<ErrorObject>),
    /// The output is not what the type reads.
    #[error("the output does not fit the caller's type")]
    Output(#[source] serde_json::Error),
}

impl CallRequest {
    /// A call whose input is a type of the application's own, without anything optional.
    ///
    /// # Errors
    ///
    /// [`CallError::Input`]: the type is not written as an object.
    ///
    /// ```
    /// use opensentience_wire::role::core::CallRequest;
    ///
    /// #[derive(serde::Serialize)]
    /// struct Greet<'a> { name: &'a str }
    ///
    /// let request = CallRequest::typed("com.example.a/greet", &Greet { name: "Ada" })?;
    /// assert_eq!(request.input.as_str(), r#"{"name":"Ada"}"#);
    /// assert!(CallRequest::typed("com.example.a/greet", &7).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn typed<I: Serialize + ?Sized>(
        tool_id: impl Into<String>,
        input: &I,
    ) -> Result<Self, CallError> {
        let input = RawObject::from_serialize(input).map_err(|error| CallError::Input(Some(error)));
        Ok(Self::new(tool_id, input?.ok_or(CallError::Input(None))?))
    }
}

impl Outcome {
    /// The output, read into a type of the application's own.
    ///
    /// # Errors
    ///
    /// The call failed or was canceled, or the output is not what the type reads.
    pub fn read<O: DeserializeOwned>(self) -> Result<O, CallError> {
        let output = self.into_result()?;
        output.deserialize().map_err(CallError::Output)
    }
}

impl CoreHandle {
    /// Calls a tool and waits for its output: [`call`](Self::call) in one step, for a caller that wants no pieces of it.
    /// Dropping this cancels the call.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    ///
    /// ```no_run
    /// # use opensentience_wire::transport::tokio::{CallError, CoreHandle};
    /// # use opensentience_wire::role::core::CallRequest;
    /// #[derive(serde::Serialize)]
    /// struct Greet { name: String }
    /// #[derive(serde::Deserialize)]
    /// struct Greeting { text: String }
    ///
    /// # async fn example(agent: CoreHandle) -> Result<(), CallError> {
    /// let input = Greet { name: "Ada".into() };
    /// let greeting: Greeting = agent.ask(CallRequest::typed("com.example.a/greet", &input)?).await?;
    /// println!("{}", greeting.text);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ask<O: DeserializeOwned>(&self, request: CallRequest) -> Result<O, CallError> {
        self.call(request).await?.result().await.read()
    }
}

#[cfg(unix)]
impl ToolRouter {
    /// Calls a tool, whichever agent has it, and waits for its output: as [`CoreHandle::ask`].
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn ask<O: DeserializeOwned>(&self, request: CallRequest) -> Result<O, CallError> {
        self.call(request).await?.result().await.read()
    }
}
