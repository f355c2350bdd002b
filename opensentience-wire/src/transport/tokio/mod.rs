//! Both roles on tokio: launching agents, calling their tools, and being such an agent.

mod agent;
mod audit;
mod call;
mod context;
mod core;
mod handle;
mod io;
#[cfg(unix)]
mod launch;
mod manifest;
#[cfg(unix)]
mod router;
mod tcp;
mod trace;

pub use agent::{Agent, AgentBuilder, AgentControl, ServeError, Tool};
pub use audit::{AuditSink, AuditStream, Observer, audit_channel};
pub use call::Call;
pub use context::{BlockingContext, ToolContext, ToolError};
pub use handle::{AttachError, CoreHandle, attach};
#[cfg(unix)]
pub use launch::{AgentProcess, Captured, Exit, LaunchError, Launcher, LogLimits};
pub use manifest::{manifest_hash, permissions_hash, read_manifest};
#[cfg(unix)]
pub use router::{RouteError, RoutedCall, ToolRouter, ToolRouterBuilder, View};
pub use tcp::{Loopback, TcpError};
