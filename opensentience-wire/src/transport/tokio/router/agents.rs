//! The tasks beside the router: launches, agents that live, calls that run.

use core::time::Duration;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::super::call::CallDriver;
use super::super::handle::{Caller, CoreHandle};
use super::super::launch::Launcher;
use super::report::{AgentEvent, LaunchId, Report, RunningAgent, Wanted};
use super::source::AddError;
use crate::message::Health;
use crate::role::CloseReason;
use crate::role::core::{CallRequest, Outcome};
use crate::role::router::{Ended, RouteId};

/// Launches an agent, which has to register where it `must`. Once `unwanted` is told, or where it does not register, what was
/// launched of it is ended before this ends.
pub(super) async fn launch(
    (agent, launch): (Arc<str>, LaunchId),
    launcher: Launcher,
    must_register: bool,
    unwanted: oneshot::Receiver<()>,
) -> Report {
    let (health_tx, health) = watch::channel(Health::Ok);
    let (exit, span) = (launcher.output(), launcher.tools_timeout());
    let connecting = launcher.telling_health(health_tx).connect();
    tokio::pin!(unwanted);
    let launched = tokio::select! {
        connected = connecting => connected.map_err(AddError::from),
        // A process that is not connected yet is killed with its launch.
        _ = &mut unwanted => Err(AddError::Closing),
    };
    let running = match launched {
        Ok(mut handle) => {
            let registered = tokio::select! {
                registered = registered(&mut handle, span) => registered,
                _ = &mut unwanted => Err(AddError::Closing),
            };
            match registered {
                Err(error) if must_register || matches!(error, AddError::Closing) => {
                    handle.shutdown().await;
                    Err(error)
                }
                _ => Ok(Box::new(RunningAgent {
                    handle,
                    exit,
                    health,
                })),
            }
        }
        Err(error) => Err(error),
    };
    Report::Agent(agent, launch, AgentEvent::Launched(running))
}

/// Waits until an agent has registered, if only that it has no tools.
async fn registered(handle: &mut CoreHandle, span: Duration) -> Result<(), AddError> {
    match tokio::time::timeout(span, handle.tools_changed()).await {
        Ok(true) if handle.tools().is_empty() && handle.caller.has_rejected_tools() => {
            Err(AddError::ToolsRejected)
        }
        Ok(true) => Ok(()),
        Ok(false) => Err(AddError::Disconnected),
        Err(_) => Err(AddError::Unregistered { within: span }),
    }
}

/// Ends an agent that is not taken.
pub(super) async fn end((agent, launch): (Arc<str>, LaunchId), running: RunningAgent) -> Report {
    running.handle.shutdown().await;
    Report::Agent(agent, launch, AgentEvent::Down(Ended::Asked))
}

/// Follows an agent to its end, or ends it.
pub(super) async fn keep(
    (agent, launch): (Arc<str>, LaunchId),
    running: RunningAgent,
    mut wanted: watch::Receiver<Wanted>,
    reports: mpsc::Sender<Report>,
) -> Report {
    let down = |ended| Report::Agent(Arc::clone(&agent), launch, AgentEvent::Down(ended));
    let RunningAgent {
        mut handle,
        exit,
        mut health,
    } = running;
    let mut is_connected = true;
    let mut drained = None;
    loop {
        let event = tokio::select! {
            changed = handle.tools.changed(), if is_connected => match changed {
                Ok(()) => {
                    AgentEvent::Tools(handle.tools.borrow_and_update().clone())
                }
                Err(_) => {
                    is_connected = false;
                    AgentEvent::Disconnected
                }
            },
            Ok(()) = health.changed() => {
                AgentEvent::Health(health.borrow_and_update().clone())
            }
            Ok(()) = wanted.changed() => {
                let wanted = *wanted.borrow_and_update();
                match wanted {
                    Wanted::Run => {}
                    Wanted::Drain(span) => drained = Some(Instant::now() + span),
                    Wanted::Stop => {
                        handle.shutdown().await;
                        return down(Ended::Asked);
                    }
                }
                continue;
            }
            () = at(drained) => {
                handle.shutdown().await;
                return down(Ended::Asked);
            }
            reason = &mut handle.task => {
                let clean = exit.status().is_some_and(|status| status.success());
                let goodbye = matches!(reason, Ok(CloseReason::Goodbye));
                return down(if clean || goodbye { Ended::Well } else { Ended::Failed });
            }
        };
        // A router that is gone drops this task.
        let _ = reports
            .send(Report::Agent(Arc::clone(&agent), launch, event))
            .await;
    }
}

/// Waits until a time, if there is one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => core::future::pending().await,
    }
}

/// Makes one call, to its end.
pub(super) async fn call(
    route: RouteId,
    caller: Caller,
    request: CallRequest,
    slot: Option<Arc<CallDriver>>,
    cancel: Arc<Notify>,
) -> Report {
    // An agent that reads nothing more takes no calls either: the call ends in its time.
    let unsent = tokio::select! {
        biased;
        taken = caller.call(request) => Err(taken),
        () = cancel.notified() => Ok(Outcome::canceled("canceled before it was sent")),
    };
    let mut call = match unsent {
        Ok(outcome) => return Report::Called(route, Ok(Box::new(outcome))),
        Err(Ok(call)) => call,
        Err(Err(error)) => return Report::Called(route, Err(error)),
    };
    loop {
        tokio::select! {
            piece = call.next_piece() => {
                let Some(piece) = piece else { break };
                // The result comes, even where nobody takes the output.
                let Some(slot) = &slot else { continue };
                if let (_, Some(reader)) = slot.push(piece) {
                    reader.wake();
                }
                tokio::select! {
                    () = slot.room() => {}
                    // What is left of its output is no more than a connection keeps of a call.
                    () = call.ended() => {}
                    () = cancel.notified() => call.cancel(),
                }
            }
            () = cancel.notified() => call.cancel(),
        }
    }
    // No more pieces come after the end, which may still be on its way.
    Report::Called(route, Ok(call.end().await))
}
