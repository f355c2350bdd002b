//! The tasks beside the router: launches, agents that live, calls that run.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};

use super::super::audit::Observer;
use super::super::call::CallDriver;
use super::super::handle::{Caller, CoreHandle};
use super::super::launch::{Captured, LaunchError, Launcher};
use crate::error::{CommandError, ErrorCode, ErrorObject};
use crate::message::{Health, SharedTools};
use crate::role::CloseReason;
use crate::role::core::{CallRequest, Event, Outcome};
use crate::role::router::{Ended, RouteId};

/// What a task reports to the router.
pub(super) enum AgentEvent {
    Launched(Arc<str>, Result<Box<RunningAgent>, LaunchError>),
    Tools(Arc<str>, SharedTools),
    Health(Arc<str>, Health),
    /// Its connection has ended, and its process is being waited for.
    Disconnected(Arc<str>),
    Down(Arc<str>, Ended),
    Called(RouteId, Result<Box<Outcome>, CommandError>),
}

/// An agent that was launched.
pub(super) struct RunningAgent {
    pub(super) handle: CoreHandle,
    exit: Captured,
    health: watch::Receiver<Health>,
}

pub(super) async fn launch(agent: Arc<str>, launcher: Launcher) -> AgentEvent {
    let (health_tx, health) = watch::channel(Health::Ok);
    let observer = Observer::from(move |event: &Event| {
        if let Event::Health(health) = event {
            health_tx.send_replace(health.clone());
        }
    });
    let exit = launcher.output();
    let launched = launcher.with_observer(observer).launch().await;
    let running = launched.map(|handle| {
        Box::new(RunningAgent {
            handle,
            exit,
            health,
        })
    });
    AgentEvent::Launched(agent, running)
}

/// Follows an agent to its end, or ends it.
pub(super) async fn keep(
    agent: Arc<str>,
    running: RunningAgent,
    stop: Arc<Notify>,
    events: mpsc::Sender<AgentEvent>,
) -> AgentEvent {
    let RunningAgent {
        mut handle,
        exit,
        mut health,
    } = running;
    let mut is_connected = true;
    loop {
        let event = tokio::select! {
            changed = handle.tools.changed(), if is_connected => match changed {
                Ok(()) => {
                    let tools = handle.tools.borrow_and_update().clone();
                    AgentEvent::Tools(Arc::clone(&agent), tools)
                }
                Err(_) => {
                    is_connected = false;
                    AgentEvent::Disconnected(Arc::clone(&agent))
                }
            },
            Ok(()) = health.changed() => {
                let health = health.borrow_and_update().clone();
                AgentEvent::Health(Arc::clone(&agent), health)
            }
            () = stop.notified() => {
                handle.shutdown().await;
                return AgentEvent::Down(agent, Ended::Asked);
            }
            reason = &mut handle.task => {
                let clean = exit.status().is_some_and(|status| status.success());
                let goodbye = matches!(reason, Ok(CloseReason::Goodbye));
                let ended = if clean || goodbye { Ended::Well } else { Ended::Failed };
                return AgentEvent::Down(agent, ended);
            }
        };
        // A router that is gone drops this task.
        let _ = events.send(event).await;
    }
}

/// Makes one call, to its end.
pub(super) async fn call(
    route: RouteId,
    caller: Caller,
    request: CallRequest,
    slot: Option<Arc<CallDriver>>,
    cancel: Arc<Notify>,
) -> AgentEvent {
    let patience = request.timeout;
    let late = async {
        match patience {
            Some(span) => tokio::time::sleep(span).await,
            None => core::future::pending().await,
        }
    };
    // An agent that reads nothing more takes no calls either.
    let unsent = tokio::select! {
        biased;
        taken = caller.call(request) => Err(taken),
        () = cancel.notified() => Ok(Outcome::canceled("canceled before it was sent")),
        () = late => {
            let error = ErrorObject::of(ErrorCode::ToolTimeout, "no result in time");
            Ok(Outcome::failed(error.noticed_by("core.router")))
        }
    };
    let mut call = match unsent {
        Ok(outcome) => return AgentEvent::Called(route, Ok(Box::new(outcome))),
        Err(Ok(call)) => call,
        Err(Err(error)) => return AgentEvent::Called(route, Err(error)),
    };
    loop {
        tokio::select! {
            chunk = call.next_chunk() => {
                let Some(chunk) = chunk else { break };
                // The result comes, even where nobody takes the output.
                let Some(slot) = &slot else { continue };
                if let (_, Some(reader)) = slot.push(Box::new(chunk)) {
                    reader.wake();
                }
                tokio::select! {
                    () = slot.room() => {}
                    () = cancel.notified() => call.cancel(),
                }
            }
            () = cancel.notified() => call.cancel(),
        }
    }
    // No more pieces come after the end, which may still be on its way.
    AgentEvent::Called(route, Ok(Box::new(call.result().await)))
}
