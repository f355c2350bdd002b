//! Agents on scripted models, with seeded ids and a clock that stands still.

#[cfg(feature = "log")]
use std::io::Write as _;
#[cfg(feature = "log")]
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use uap_agent::HookFuture;
use uap_agent::{AgentError, AgentOptions, AgentState, AgentStrategy, GenerateResult, Runtime};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::os::Clock;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{FnTool, Reply, ScriptedModel, Tool, ToolCall, ToolExecution, object};

pub(crate) struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Gives back its arguments; panics, fails or never ends where the arguments say so.
pub(crate) fn echo(name: &str) -> Arc<dyn Tool> {
    let run = |arguments: RawObject, context: upp::ToolContext| async move {
        match arguments.as_str() {
            r#"{"panic":1}"# => panic!("oh"),
            r#"{"fail":1}"# => Err("it failed".into()),
            r#"{"hang":1}"# => {
                context.cancel.cancelled().await;
                std::future::pending().await
            }
            _ => Ok(arguments.into()),
        }
    };
    Arc::new(FnTool::new(
        name,
        "Echoes",
        object(r#"{"type":"object"}"#).unwrap(),
        run,
    ))
}

pub(crate) fn options(model: &Arc<ScriptedModel>) -> AgentOptions {
    let model: upp::ModelReference = Arc::clone(model) as _;
    AgentOptions::new(model)
        .with_tools([echo("echo")])
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(7)))
}

pub(crate) fn script(replies: impl IntoIterator<Item = Reply>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new(replies))
}

/// A reply that calls `echo` once.
pub(crate) fn calling(text: &str, id: &str, arguments: &str) -> Reply {
    Reply::text(text).calling(id, "echo", object(arguments).unwrap())
}

/// Notes every hook, and stops or fails where told to.
#[derive(Default)]
pub(crate) struct Noting {
    pub(crate) stop_at: Option<u64>,
    pub(crate) fails_at: Option<&'static str>,
    pub(crate) recovers_with: Option<GenerateResult>,
    pub(crate) seen: Mutex<Vec<String>>,
}

impl Noting {
    fn note(&self, text: String) -> HookFuture<'_, ()> {
        let fails = self.fails_at.is_some_and(|at| text.starts_with(at));
        self.seen.lock().unwrap().push(text);
        let error = upp::UppError::new(upp::ErrorCode::ProviderError, "hook", "the hook failed");
        Box::pin(std::future::ready(if fails { Err(error) } else { Ok(()) }))
    }
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl AgentStrategy for Noting {
    fn stop_condition<'a>(&'a self, state: &'a AgentState) -> HookFuture<'a, bool> {
        self.seen
            .lock()
            .unwrap()
            .push(format!("stop? {}", state.step()));
        Box::pin(std::future::ready(Ok(self.stop_at == Some(state.step()))))
    }
    fn on_step_start<'a>(&'a self, step: u64, state: &'a AgentState) -> HookFuture<'a, ()> {
        self.note(format!("start {step} messages {}", state.messages().len()))
    }
    fn on_reason<'a>(&'a self, step: u64, reasoning: &'a str) -> HookFuture<'a, ()> {
        self.note(format!("reason {step} {reasoning}"))
    }
    fn on_act<'a>(&'a self, step: u64, calls: &'a [ToolCall]) -> HookFuture<'a, ()> {
        self.note(format!("act {step} {}", calls.len()))
    }
    fn on_observe<'a>(
        &'a self,
        step: u64,
        observations: &'a [ToolExecution],
    ) -> HookFuture<'a, ()> {
        self.note(format!("observe {step} {}", observations.len()))
    }
    fn on_step_end<'a>(&'a self, step: u64, result: &'a GenerateResult) -> HookFuture<'a, ()> {
        self.note(format!(
            "end {step} messages {}",
            result.state.messages().len()
        ))
    }
    fn on_complete<'a>(&'a self, _: &'a GenerateResult) -> HookFuture<'a, ()> {
        self.note("complete".into())
    }
    fn on_error<'a>(&'a self, error: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        self.seen
            .lock()
            .unwrap()
            .push(format!("error {}", error.error.code));
        Box::pin(std::future::ready(Ok(self.recovers_with.clone())))
    }
}

/// How long a test waits for what is to happen: far longer than it takes, so that a test whose event does not come fails.
pub(crate) const BOUND: Duration = Duration::from_secs(300);

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !is_so() {
        let waited = clock.mono().saturating_since(Mono::ZERO);
        assert!(waited < BOUND, "waited {BOUND:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends this process when nothing is sent for long: whoever reads its output finds that it has ended, and waits no longer.
#[cfg(feature = "log")]
pub(crate) fn watched() -> Sender<()> {
    let (alive, seen) = channel();
    let watch = move || {
        loop {
            match seen.recv_timeout(BOUND) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let text = format!("this process has done nothing for {BOUND:?}\n");
                    let _ = std::io::stderr().write_all(text.as_bytes());
                    std::process::exit(101);
                }
            }
        }
    };
    std::thread::Builder::new().spawn(watch).unwrap();
    alive
}

/// Lets others go on.
pub(crate) async fn yield_now() {
    let mut is_late = false;
    futures::future::poll_fn(move |cx| {
        if core::mem::replace(&mut is_late, true) {
            return core::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        core::task::Poll::Pending
    })
    .await;
}
