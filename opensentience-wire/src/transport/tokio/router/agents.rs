//! The tasks beside the router: launches, agents that live, calls that run.

use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// Does the work of a task, or reports that it panicked: whoever waits for its end would wait for ever.
pub(super) fn unless_panicked(
    work: impl Future<Output = Report> + Send,
    panicked: impl FnOnce() -> Report + Send,
) -> impl Future<Output = Report> + Send {
    // A future that stands in another one takes its room twice.
    let mut work = Box::pin(work);
    async move {
        let ended = poll_fn(|context| {
            // One that has panicked is not polled again.
            match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
                Ok(poll) => poll.map(Some),
                Err(_) => Poll::Ready(None),
            }
        });
        ended.await.unwrap_or_else(panicked)
    }
}

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
                    Wanted::Drain(span) => drained = Instant::now().checked_add(span),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SharedTools;
    use crate::transport::tokio::launch::Captured;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a connection is a task")]
    async fn the_calls_of_an_agent_may_have_all_the_time_there_is() {
        let (_tools_tx, tools) = watch::channel(SharedTools::from(Vec::new()));
        let (_health_tx, health) = watch::channel(Health::Ok);
        let (end, ended) = oneshot::channel();
        let handle = CoreHandle {
            caller: Caller::idle(),
            tools,
            task: tokio::spawn(async { ended.await.unwrap() }),
        };
        let exit = Captured::default();
        let running = RunningAgent {
            handle,
            exit,
            health,
        };
        let (wanted_tx, wanted) = watch::channel(Wanted::Run);
        let (reports, _reports_rx) = mpsc::channel(1);
        let keeping = tokio::spawn(keep(("a".into(), 1), running, wanted, reports));
        wanted_tx.send_replace(Wanted::Drain(Duration::MAX));
        tokio::task::yield_now().await;
        let _ = end.send(CloseReason::Goodbye);
        let Report::Agent(_, _, event) = keeping.await.unwrap() else {
            panic!("of the agent")
        };
        assert!(matches!(event, AgentEvent::Down(Ended::Well)));
    }

    #[tokio::test]
    async fn a_task_that_panics_reports_an_end() {
        let launch: LaunchId = 7;
        let down = || Report::Agent("a".into(), launch, AgentEvent::Down(Ended::Failed));
        let work = async {
            tokio::task::yield_now().await;
            panic!("of a test")
        };
        let report = unless_panicked(work, down).await;
        let Report::Agent(_, 7, AgentEvent::Down(Ended::Failed)) = report else {
            panic!("of another")
        };
        let well = async { Report::Agent("a".into(), launch, AgentEvent::Disconnected) };
        let report = unless_panicked(well, down).await;
        assert!(matches!(
            report,
            Report::Agent(_, 7, AgentEvent::Disconnected)
        ));
    }
}
