//! The session with a server: what goes wrong with it, what it says without being asked.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, ProgressToken, RequestId};
use rmcp::service::{ClientInitializeError, NotificationContext, RoleClient, ServiceError};
use tokio::sync::{Mutex, Notify, mpsc};
use ubos_common::json::RawBuf;
use ubos_common::trace_context::TraceContext;

use crate::error::CommandError;
use crate::role::agent::IncomingCall;

/// Why a server is not bridged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The server's program cannot be started.
    #[error("the MCP server cannot be started")]
    Spawn(#[source] std::io::Error),
    /// The server did not answer in time.
    #[error("the MCP server did not answer within {0:?}")]
    Silent(Duration),
    /// The server did not begin a session.
    #[error("the MCP server does not begin a session")]
    Initialize(#[source] Box<ClientInitializeError>),
    /// The server does not say what tools it has.
    #[error("the MCP server does not list its tools")]
    Tools(#[source] Box<ServiceError>),
    /// The list of the tools is not what the protocol says.
    #[error("the MCP server's list of tools cannot be read")]
    Unreadable(#[source] Option<serde_json::Error>),
    /// The server has more tools than a session takes.
    #[error("the MCP server has more than {0} tools")]
    TooMany(usize),
    /// The list of the server's tools has more bytes than are read of it.
    #[error("the MCP server's list of tools has more than {0} bytes")]
    TooLong(usize),
    /// The tools that the server has now cannot be offered.
    #[error("the MCP server's tools cannot be offered")]
    Offer(#[source] CommandError),
}

/// Something of a server that an agent cannot pass on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotCarried {
    /// A feature of the server has no counterpart.
    Feature(&'static str),
    /// A tool has another name here.
    Renamed {
        /// What the server calls it.
        from: String,
        /// What the agent calls it.
        to: String,
    },
    /// A tool is left out.
    LeftOut {
        /// What the server calls it.
        tool: String,
        /// Why.
        why: &'static str,
    },
}

impl fmt::Display for NotCarried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(name) => write!(f, "{name} of the MCP server are not carried"),
            Self::Renamed { from, to } => write!(f, "the MCP tool {from:?} is offered as {to}"),
            Self::LeftOut { tool, why } => write!(f, "the MCP tool {tool:?} is left out: {why}"),
        }
    }
}

/// The requests whose answers are awaited, and what comes for them beside the answers.
pub(super) type Calls = Arc<Mutex<AwaitedCalls>>;

#[derive(Default)]
pub(super) struct AwaitedCalls {
    /// Their texts.
    pub(super) reports: HashMap<ProgressToken, mpsc::Sender<String>>,
    /// The results that came.
    pub(super) results: HashMap<RequestId, Answered>,
    /// The last request for a list of tools.
    pub(super) listing: Option<RequestId>,
}

/// What came of a request.
#[derive(Default)]
pub(super) enum Answered {
    /// Nothing that is sound JSON.
    #[default]
    No,
    /// The text of its result.
    Text(RawBuf),
    /// A result that no frame takes.
    TooLong,
}

/// Who is told what became of a change of the server's tools.
pub(super) type OnChange = Box<dyn FnMut(Result<Vec<NotCarried>, BridgeError>) + Send>;

/// How the place in a trace of a call is found. A clone is the same.
#[derive(Clone, Default)]
pub(super) struct TraceOf(Arc<std::sync::Mutex<Option<Arc<FindTrace>>>>);

type FindTrace = dyn Fn(&IncomingCall) -> Option<TraceContext> + Send + Sync;

impl TraceOf {
    pub(super) fn set(
        &self,
        find: impl Fn(&IncomingCall) -> Option<TraceContext> + Send + Sync + 'static,
    ) {
        *self.lock() = Some(Arc::new(find));
    }

    pub(super) fn of(&self, call: &IncomingCall) -> Option<TraceContext> {
        // Called outside of the lock: it is foreign code.
        let find = self.lock().clone();
        match find {
            Some(find) => find(call),
            None => call.trace(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<FindTrace>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server says without being asked, and what its calls share.
#[derive(Clone, Default)]
pub(super) struct Listener {
    pub(super) calls: Calls,
    pub(super) changed: Arc<Notify>,
    pub(super) trace_of: TraceOf,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let name = env!("CARGO_PKG_NAME");
        let own = Implementation::new(name, env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), own)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
