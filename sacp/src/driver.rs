//! Runs a plan whose tools are asynchronous, on any runtime.
//!
//! With the feature `tokio` the driver of a plan is one line:
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use sacp::driver::{TokioClock, run};
//! use sacp::runner::{Config, Runner};
//! use sacp::ubos_common::json::RawBuf;
//! use sacp::{Act, Message, Plan};
//!
//! let mut plan = Plan::default();
//! plan.push(Act::new("add", "SUM"));
//! let message = Message::new("ADD", plan);
//! let mut runner = Runner::new(&message, Config::default())?;
//! let outcome = run(&mut runner, &TokioClock::default(), |call| async move { Ok(RawBuf::from(call.act.params)) }).await?;
//! assert_eq!(outcome.result.unwrap().as_str(), "{}");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```

use core::future::Future;

use ubos_common::driver::{DriveError, Sleep, Step, World, drive};
use ubos_common::json::RawBuf;

use crate::plan::Act;
use crate::runner::{Cause, Input, Outcome, Output, Runner, StepInputs, Ticket};

/// One attempt of a step, for the tool that makes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The step and the attempt.
    pub ticket: Ticket,
    /// What is to be done.
    pub act: Act,
    /// The outputs of the steps that it waited for.
    pub inputs: StepInputs,
    /// The rank of the agent to ask: 0 is the best.
    pub rank: usize,
}

/// Starts a run, or goes on with one that was restored, and drives it to its end. `tools` makes each attempt.
///
/// Attempts run at the same time, in the task of the caller; the future of one that is cancelled is dropped. A run of a
/// message in test mode asks for none.
///
/// # Errors
///
/// [`DriveError::Stalled`] where the run is paused, or had ended before.
pub async fn run<F>(
    runner: &mut Runner,
    sleep: &(impl Sleep + ?Sized),
    tools: impl FnMut(Call) -> F,
) -> Result<Outcome, DriveError>
where
    F: Future<Output = Result<RawBuf, Cause>> + Send + 'static,
{
    runner.start(sleep.now());
    let mut world = Tools {
        tools,
        outcome: None,
    };
    drive(runner, &mut world, sleep).await?;
    world.outcome.ok_or(DriveError::Stalled)
}

/// What the outputs of a run mean: attempts, made by a function.
struct Tools<T> {
    tools: T,
    outcome: Option<Outcome>,
}

impl<T, F> World<Runner> for Tools<T>
where
    T: FnMut(Call) -> F,
    F: Future<Output = Result<RawBuf, Cause>> + Send + 'static,
{
    type Answer = (Ticket, Result<RawBuf, Cause>);

    fn perform(&mut self, output: Output) -> Step<Self::Answer> {
        match output {
            Output::Dispatch {
                ticket,
                act,
                inputs,
                rank,
            } => {
                let made = (self.tools)(Call {
                    ticket,
                    act,
                    inputs,
                    rank,
                });
                return Step::start(ticket.id(), async move { (ticket, made.await) });
            }
            Output::Cancel { ticket } => return Step::Cancel(ticket.id()),
            Output::Ended(outcome) => self.outcome = Some(*outcome),
            _ => {}
        }
        Step::Done
    }

    fn input(&mut self, (ticket, made): Self::Answer) -> Input {
        match made {
            Ok(output) => Input::Succeeded { ticket, output },
            Err(cause) => Input::Failed { ticket, cause },
        }
    }
}

/// The system's clocks and tokio's timer.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioClock(ubos_common::os::Clock);

#[cfg(feature = "tokio")]
impl Sleep for TokioClock {
    fn now(&self) -> ubos_common::time::Now {
        self.0.now()
    }

    fn sleep_until(
        &self,
        deadline: ubos_common::time::Mono,
    ) -> core::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let span = deadline.saturating_since(self.0.now().mono);
        Box::pin(tokio::time::sleep(span))
    }
}
