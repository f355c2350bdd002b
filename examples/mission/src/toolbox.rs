//! The core's side of the tool process: launched, called, launched again when it dies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opensentience_wire::ErrorCode;
use opensentience_wire::message::Status;
use opensentience_wire::role::core::{CallRequest, Config, Outcome};
use opensentience_wire::transport::tokio::{CoreHandle, Launcher};
use tokio::sync::Mutex;
use ubos_common::json::RawObject;

use super::output::WirePart;
use super::scan::Folder;
use super::screen::{Screen, Who};
use super::step_id;
use super::step_words;
use super::stores::Audit;
use super::tools::{AGENT_ID, WAIT, environment};
use super::trace::{OpenSpan, Span};
use super::words::with_causes;

/// How long one pass may take.
const PASS: Duration = Duration::from_secs(600);
/// How long its process may take to start on a slow machine.
const START: Duration = Duration::from_secs(60);
/// Launches for one call: a process that dies twice in it is given up.
const LAUNCHES: usize = 2;

/// The tools, in a process of their own.
#[derive(Debug)]
pub struct Toolbox {
    folder: Folder,
    screen: Screen,
    correlation_id: String,
    audit: Audit,
    process: Mutex<Option<Arc<CoreHandle>>>,
    calls: AtomicU64,
    chunks: AtomicU64,
    canceled: AtomicU64,
}

impl Toolbox {
    /// Launches the process.
    pub async fn launch(
        folder: &Folder,
        correlation_id: &str,
        audit: &Audit,
        screen: &Screen,
    ) -> Result<Self, String> {
        let toolbox = Self {
            folder: folder.clone(),
            screen: screen.clone(),
            correlation_id: correlation_id.to_owned(),
            audit: audit.clone(),
            process: Mutex::default(),
            calls: AtomicU64::default(),
            chunks: AtomicU64::default(),
            canceled: AtomicU64::default(),
        };
        toolbox.process().await?;
        Ok(toolbox)
    }

    /// The running process, launched if there is none.
    async fn process(&self) -> Result<Arc<CoreHandle>, String> {
        let mut slot = self.process.lock().await;
        if let Some(process) = &*slot {
            return Ok(Arc::clone(process));
        }
        let program = program().map_err(|err| format!("this program's own path: {err}"))?;
        let audit = self.audit.clone();
        let mut launcher = Launcher::new(AGENT_ID, program)
            .with_config(
                Config::default()
                    .with_server(env!("CARGO_PKG_VERSION"), &self.correlation_id)
                    .with_handshake_timeout(START),
            )
            .with_audit(move |event| audit.take(&event));
        for (name, value) in environment(&self.folder) {
            launcher = launcher.env(name, value);
        }
        let last_words = launcher.output();
        let process = match launcher.launch().await {
            Ok(process) => Arc::new(process),
            Err(err) => {
                let said = last_words.text();
                let said = said
                    .lines()
                    .next_back()
                    .map(|line| format!(" ({line})"))
                    .unwrap_or_default();
                return Err(format!("the tool process: {}{said}", with_causes(&err)));
            }
        };
        let tools: Vec<String> = process
            .tools()
            .iter()
            .map(|tool| tool.name.clone())
            .collect();
        self.screen.say(
            Who::Wire,
            format!("tool process launched, offers {}", tools.join(", ")),
        );
        *slot = Some(Arc::clone(&process));
        Ok(process)
    }

    /// Calls a tool; a process that dies under the call is launched again, once.
    pub async fn call(&self, tool: &str, request_id: &str) -> Result<RawObject, String> {
        for _ in 0..LAUNCHES {
            let process = self.process().await?;
            match self.once(&process, tool, request_id).await {
                Ok(output) => return Ok(output),
                Err(Failure::Gone) => self.forget(&process).await,
                Err(Failure::Other(why)) => return Err(format!("{tool}: {why}")),
            }
        }
        Err(format!("{tool}: the tool process died {LAUNCHES} times"))
    }

    async fn once(
        &self,
        process: &CoreHandle,
        tool: &str,
        request_id: &str,
    ) -> Result<RawObject, Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.screen.say(Who::Wire, format!("{tool}: called"));
        let started = process.call(self.request(tool, request_id)).await;
        let mut call =
            started.map_err(|err| Failure::of(&ErrorCode::from(&err), err.to_string()))?;
        let id = call.id().to_string();
        let step = self.step(tool, &id, request_id);
        while let Some(chunk) = call.next_chunk().await {
            self.chunks.fetch_add(1, Ordering::Relaxed);
            if let Some(text) = &chunk.data.text {
                self.screen.progress(Who::Wire, format!("{tool}: {text}"));
            }
        }
        let outcome = call.result().await;
        self.told(tool, &id, step, &outcome);
        self.screen.say(
            Who::Wire,
            format!("{tool}: {} in {:.0?}", outcome.status, outcome.duration),
        );
        outcome
            .into_result()
            .map_err(|error| Failure::of(&error.code, error.message))
    }

    /// A call begins, because of the task that is its request id.
    fn step(&self, tool: &str, call: &str, request_id: &str) -> OpenSpan {
        let cause = step_id::task(request_id);
        let trace = self.screen.trace();
        trace.begin(Who::Wire, step_id::call(call), Some(&cause), tool)
    }

    /// A call has ended: what the tool process did in it is known by that process's clock.
    fn told(&self, tool: &str, call: &str, step: OpenSpan, outcome: &Outcome) {
        if let (Some(started), Some(finished)) = (&outcome.started_at, &outcome.finished_at) {
            let (started, ended) = (started.timestamp(), finished.timestamp());
            self.screen.trace().add(Span {
                id: step_id::pass(call),
                parent: Some(step_id::call(call)),
                who: Who::Wire,
                name: format!("{tool}, in the tool process"),
                in_tools: true,
                started,
                ended: Some(ended),
                outcome: how_it_ended(outcome),
            });
        }
        step.end(how_it_ended(outcome));
    }

    fn request(&self, tool: &str, request_id: &str) -> CallRequest {
        let tool = format!("{AGENT_ID}/{tool}");
        let mut request = CallRequest::new(tool, RawObject::empty()).with_timeout(PASS);
        request.request_id = Some(request_id.into());
        request.correlation_id = Some(self.correlation_id.clone());
        request
    }

    /// Lets go of a process that died; the next call launches another one.
    async fn forget(&self, process: &Arc<CoreHandle>) {
        let mut slot = self.process.lock().await;
        if slot
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, process))
        {
            *slot = None;
            self.screen
                .say(Who::Wire, "the tool process died; launching it again");
        }
    }

    /// Makes a call that would take a minute, and cancels it once it runs.
    pub async fn exercise_cancel(&self, request_id: &str) -> Result<(), String> {
        for _ in 0..LAUNCHES {
            let process = self.process().await?;
            match self.canceled_once(&process, request_id).await {
                Err(Failure::Gone) => self.forget(&process).await,
                Err(Failure::Other(why)) => return Err(format!("{WAIT}: {why}")),
                Ok(()) => return Ok(()),
            }
        }
        Err(format!("{WAIT}: the tool process died {LAUNCHES} times"))
    }

    async fn canceled_once(&self, process: &CoreHandle, request_id: &str) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let started = process.call(self.request(WAIT, request_id)).await;
        let mut call =
            started.map_err(|err| Failure::of(&ErrorCode::from(&err), err.to_string()))?;
        let id = call.id().to_string();
        let step = self.step(WAIT, &id, request_id);
        if call.next_chunk().await.is_some() {
            self.chunks.fetch_add(1, Ordering::Relaxed);
        }
        call.cancel();
        let outcome = call.result().await;
        self.told(WAIT, &id, step, &outcome);
        if outcome.status != Status::Canceled {
            return Err(match outcome.into_result() {
                Ok(_) => Failure::Other("ended well before it could be canceled".to_owned()),
                Err(error) => Failure::of(&error.code, error.message),
            });
        }
        self.canceled.fetch_add(1, Ordering::Relaxed);
        self.screen.say(
            Who::Wire,
            format!("{WAIT}: canceled in {:.0?}", outcome.duration),
        );
        Ok(())
    }

    /// What was done so far.
    pub fn part(&self) -> WirePart {
        WirePart {
            calls: self.calls.load(Ordering::Relaxed),
            stream_chunks: self.chunks.load(Ordering::Relaxed),
            canceled: self.canceled.load(Ordering::Relaxed),
        }
    }

    /// Ends the process; calls that run are cancelled.
    pub async fn stop(&self) {
        let process = self.process.lock().await.take();
        if let Some(process) = process.and_then(Arc::into_inner) {
            process.shutdown().await;
        }
    }
}

fn how_it_ended(outcome: &Outcome) -> String {
    let why = outcome.error.as_ref().map_or("", |error| &error.message);
    step_words::call_end(&outcome.status, why)
}

/// Why a call gave nothing.
enum Failure {
    /// The process is gone: another one may do better.
    Gone,
    Other(String),
}

impl Failure {
    fn of(code: &ErrorCode, why: String) -> Self {
        match code {
            ErrorCode::AgentDisconnected => Self::Gone,
            _ => Self::Other(why),
        }
    }
}

/// This program: the tests set the path, for they are another one.
fn program() -> std::io::Result<std::path::PathBuf> {
    match option_env!("CARGO_BIN_EXE_mission") {
        Some(path) if Path::new(path).exists() => Ok(path.into()),
        _ => std::env::current_exe(),
    }
}
