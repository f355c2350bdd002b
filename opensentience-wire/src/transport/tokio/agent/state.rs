//! What an agent holds.

use ubos_common::os::OsError;

use super::control::{AgentControl, Asked};
use super::pool::Pool;
use super::tool::Tool;
use crate::error::{CommandError, ConfigError, ErrorCode};
use crate::message::SemVer;

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The runtime of [`Agent::run`] cannot be made.
    #[error("the runtime cannot be made")]
    Runtime(#[source] std::io::Error),
    /// The environment lacks what the core passes at a launch.
    #[error(
        "{0} is not set: start the agent by a core, which sets it (`Launcher`, or a program that has one)"
    )]
    Environment(&'static str),
    /// The core's socket cannot be reached.
    #[error("the core's socket cannot be reached")]
    Connect(#[source] std::io::Error),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] OsError),
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tools cannot be registered: together they do not fit into a frame.
    #[error("the tools cannot be registered")]
    Tools(#[source] CommandError),
    /// The core refused the agent, or broke the protocol.
    #[error("the connection ended with {0}")]
    Protocol(ErrorCode),
}

/// An agent: tools, ready to be served.
///
/// ```no_run
/// use opensentience_wire::message::ToolSpec;
/// use opensentience_wire::transport::tokio::Agent;
/// use opensentience_wire::ubos_common::json::{RawBuf, RawObject};
///
/// #[derive(serde::Deserialize)]
/// struct Greet { name: String }
/// #[derive(serde::Serialize)]
/// struct Greeting { text: String }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
/// let schema = RawObject::new(RawBuf::parse(schema)?).ok_or("no object")?;
/// Agent::new("1.0.0".parse()?)
///     .typed_tool(ToolSpec::local("greet", "says hello", schema), async |context, Greet { name }| {
///         context.send("somebody is greeted").await?;
///         Ok(Greeting { text: format!("hello, {name}") })
///     })
///     .serve_from_env()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct Agent {
    pub(super) version: SemVer,
    pub(super) tools: Vec<Tool>,
    /// Inputs are the tools' to check.
    pub(super) tools_check_inputs: bool,
    pub(super) pool: Pool,
    pub(super) control: AgentControl,
    pub(super) asked: Asked,
}
