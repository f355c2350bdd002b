//! The tasks beside the router: launches, agents that live, calls that run.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};

use super::super::audit::Observer;
use super::super::handle::{Caller, CoreHandle};
use super::super::launch::{Exit, LaunchError, Launcher};
use crate::error::{CommandError, ErrorCode, ErrorObject};
use crate::message::{Health, ToolSpec, ToolStream};
use crate::role::CloseReason;
use crate::role::core::{CallRequest, Event, Outcome};
use crate::role::router::{Ended, RouteId};

/// What a task has to tell the router.
pub(super) enum Happened {
    Launched(Arc<str>, Result<Box<Living>, LaunchError>),
    Tools(Arc<str>, Vec<ToolSpec>),
    Health(Arc<str>, Health),
    Down(Arc<str>, Ended),
    Called(RouteId, Result<Box<Outcome>, CommandError>),
}

/// An agent that was launched.
pub(super) struct Living {
    pub(super) handle: CoreHandle,
    exit: Exit,
    health: watch::Receiver<Health>,
}

pub(super) async fn launch(agent: Arc<str>, launcher: Launcher) -> Happened {
    let (said, health) = watch::channel(Health::Ok);
    let observer = Observer::new(move |event| {
        if let Event::Health(health) = event {
            said.send_replace(health.clone());
        }
    });
    let exit = launcher.exit();
    let launched = launcher.with_observer(observer).launch().await;
    let living = launched.map(|handle| {
        Box::new(Living {
            handle,
            exit,
            health,
        })
    });
    Happened::Launched(agent, living)
}

/// Follows an agent to its end, or ends it.
pub(super) async fn keep(
    agent: Arc<str>,
    living: Living,
    stop: Arc<Notify>,
    tell: mpsc::Sender<Happened>,
) -> Happened {
    let Living {
        mut handle,
        exit,
        mut health,
    } = living;
    loop {
        let told = tokio::select! {
            Ok(()) = handle.tools.changed() => {
                let tools = handle.tools.borrow_and_update().to_vec();
                Happened::Tools(Arc::clone(&agent), tools)
            }
            Ok(()) = health.changed() => {
                let health = health.borrow_and_update().clone();
                Happened::Health(Arc::clone(&agent), health)
            }
            () = stop.notified() => {
                handle.shutdown().await;
                return Happened::Down(agent, Ended::Asked);
            }
            reason = &mut handle.task => {
                let clean = exit.status().is_some_and(|status| status.success());
                let goodbye = matches!(reason, Ok(CloseReason::Goodbye));
                let ended = if clean || goodbye { Ended::Well } else { Ended::Failed };
                return Happened::Down(agent, ended);
            }
        };
        // A router that is gone drops this task.
        let _ = tell.send(told).await;
    }
}

/// Makes one call, to its end.
pub(super) async fn call(
    route: RouteId,
    caller: Caller,
    request: CallRequest,
    chunks: mpsc::Sender<ToolStream>,
    cancel: Arc<Notify>,
) -> Happened {
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
        Ok(outcome) => return Happened::Called(route, Ok(Box::new(outcome))),
        Err(Ok(call)) => call,
        Err(Err(error)) => return Happened::Called(route, Err(error)),
    };
    loop {
        tokio::select! {
            chunk = call.next_chunk() => {
                let Some(chunk) = chunk else { break };
                tokio::select! {
                    // Who does not listen waits for the result alone.
                    _ = chunks.send(chunk) => {}
                    () = cancel.notified() => call.cancel(),
                }
            }
            () = cancel.notified() => call.cancel(),
        }
    }
    // No more pieces come after the end, which may still be on its way.
    Happened::Called(route, Ok(Box::new(call.result().await)))
}
