//! Both roles on tokio: launching agents, calling their tools, and being such an agent.

mod agent;
mod audit;
mod call;
mod connection;
mod context;
mod core;
mod handle;
mod io;
#[cfg(unix)]
mod launch;
#[cfg(feature = "manifest")]
mod manifest;
mod rate;
#[cfg(unix)]
mod router;
mod schemas;
mod sync;
mod tcp;
mod trace;
mod typed;

pub use agent::{Agent, AgentControl, ServeError, Tool};
pub use audit::{AuditSink, Observer};
pub use call::RunningCall;
pub use context::{ToolContext, ToolError};
pub use handle::{AttachError, CoreHandle, attach};
#[cfg(unix)]
pub use launch::{AgentProcess, Captured, LaunchError, Launcher};
#[cfg(feature = "manifest")]
pub use manifest::{manifest_hash, permissions_hash, read_manifest};
#[cfg(unix)]
pub use router::{AddError, AgentSource, AgentView, ToolRouter, ToolRouterBuilder, View};
pub use tcp::Loopback;
pub use typed::CallError;
