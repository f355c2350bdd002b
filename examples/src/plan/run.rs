//! A plan that is run: each tool is a command, which gets parameters as JSON and gives its output as JSON.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use mission::signals::Signals;
use rustix::process::{Pid, Signal, kill_process_group};

use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use sacp::role::Answer;
use sacp::role::orchestrator::{Delegation, Input, Orchestrator, OrchestratorConfig, Output};
use sacp::runner::{Cause, Ticket};
use sacp::{AnyMessage, Graph, Message, NonEmpty, Plan, State, v1};
use ubos_common::id::IdSource;
use ubos_common::json::{self, RawBuf};
use ubos_common::os::Clock;

/// The commands of the tools, by name.
pub type Tools = BTreeMap<String, String>;

/// How a run ended.
#[derive(Debug)]
pub enum Ran {
    /// With the answer.
    Answered(Box<Answer>),
    /// By a signal, with this exit code; no command goes on.
    Stopped(u8),
}

/// Runs a plan to its answer; says on `talk` which steps are run.
///
/// # Errors
///
/// Nothing can be written, or no ids can be made.
pub fn run(
    message: &AnyMessage,
    registry: Option<MemoryRegistry>,
    tools: &Tools,
    overrule: bool,
    talk: &mut dyn Write,
) -> io::Result<Ran> {
    let clock = Clock::start();
    let ids = IdSource::from_os().map_err(io::Error::other)?;
    let registry = offered(message, registry, tools).map_err(io::Error::other)?;
    let config = OrchestratorConfig::default().with_overruling(overrule);
    let orchestrator = Orchestrator::new(clock.now(), message.clone(), registry, config, ids);
    let mut orchestrator = orchestrator.map_err(io::Error::other)?;
    let (tell, told) = channel();
    let _hears = signals(tell.clone())?;
    let mut running = Running {
        tools,
        children: BTreeMap::new(),
        tell,
    };
    loop {
        while let Some(output) = orchestrator.poll_output() {
            match output {
                Output::Delegate(delegation) => {
                    let ticket = delegation.ticket;
                    writeln!(
                        talk,
                        "step {}: {}",
                        ticket.step, delegation.agent.agent_name
                    )?;
                    if let Err(error) = running.start(&delegation) {
                        let cause = Cause::permanent(error.to_string());
                        let input = Input::Failed { ticket, cause };
                        // The delegation is open, so that its failure is taken.
                        let _ = orchestrator.handle_input(clock.now(), input);
                    }
                }
                Output::Cancel { ticket } => running.stop(ticket),
                Output::Answer(answer) => return Ok(Ran::Answered(answer)),
                _ => {}
            }
        }
        let due = orchestrator.poll_timeout();
        let wait = due.map(|due| due.saturating_since(clock.now().mono));
        match next(&told, wait) {
            Some(Told::Signal(code)) => return Ok(Ran::Stopped(code)),
            Some(Told::Report(report)) => {
                let input = running.finish(report, talk)?;
                // An attempt that is over is refused, and its output with it.
                let _ = orchestrator.handle_input(clock.now(), input);
            }
            None => orchestrator.handle_timeout(clock.now()),
        }
    }
}

/// What the run waits for.
enum Told {
    Report(Report),
    /// Somebody wants it to end, with this exit code.
    Signal(u8),
}

/// Tells of signals until it is dropped: commands in groups of their own hear none.
fn signals(tell: Sender<Told>) -> io::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut signals = runtime.block_on(async { Signals::listen() })?;
    runtime.spawn(async move {
        // Nobody listens when the run is over.
        let _ = tell.send(Told::Signal(signals.came().await));
    });
    Ok(runtime)
}

/// What a command gave, and how it ended.
struct Report {
    delegation: Box<Delegation>,
    output: io::Result<(Vec<u8>, ExitStatus)>,
}

fn next(told: &Receiver<Told>, wait: Option<Duration>) -> Option<Told> {
    match wait {
        None => told.recv().ok(),
        Some(wait) => told.recv_timeout(wait).ok(),
    }
}

/// A command that runs, until who waits for it has taken it away.
type Runs = Arc<Mutex<Option<Child>>>;

/// The commands that run.
struct Running<'a> {
    tools: &'a Tools,
    children: BTreeMap<Ticket, Runs>,
    tell: Sender<Told>,
}

impl Running<'_> {
    fn start(&mut self, delegation: &Delegation) -> io::Result<()> {
        /// Bytes of an output that are read.
        const LONGEST: u64 = 4 << 20;
        let (tool, params) = asked(&delegation.message);
        let command = self.tools.get(&tool).ok_or_else(|| {
            io::Error::other(format!(
                "no command is given for the tool {tool}: --tool {tool}=COMMAND"
            ))
        })?;
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, delegation) = (self.tell.clone(), Box::new(delegation.clone()));
        let runs: Runs = Arc::new(Mutex::new(Some(child)));
        self.children.insert(delegation.ticket, Arc::clone(&runs));
        // A thread of its own, since a command may write more than a pipe holds before it has read all parameters.
        let write = move || {
            // A command that does not read its parameters is not at fault.
            let _ = stdin.map(|mut stdin| stdin.write_all(params.as_bytes()));
        };
        let talk = move || {
            let mut output = Vec::new();
            let read = stdout.map_or(Ok(0), |stdout| {
                stdout.take(LONGEST).read_to_end(&mut output)
            });
            // It may go on after it has said all.
            let output = read.and_then(|_| Ok((output, ended(&runs)?)));
            // Nobody listens when the run is over.
            let _ = tell.send(Told::Report(Report { delegation, output }));
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a program feeds and reads each command in threads"
        )]
        {
            std::thread::spawn(write);
            std::thread::spawn(talk);
        }
        Ok(())
    }

    fn stop(&mut self, ticket: Ticket) {
        let child = self.children.remove(&ticket).and_then(|runs| {
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.take()
        });
        if let Some(mut child) = child {
            // With all that it has started. One that has ended by itself cannot be killed.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }

    /// The input for what a command gave.
    fn finish(&mut self, report: Report, talk: &mut dyn Write) -> io::Result<Input> {
        let ticket = report.delegation.ticket;
        self.children.remove(&ticket);
        let output = match report.output {
            Ok((output, status)) if status.success() => {
                let text =
                    String::from_utf8(output).map_err(|_| "its output is no text".to_owned());
                text.and_then(|text| {
                    RawBuf::parse(text.trim()).map_err(|error| format!("its output: {error}"))
                })
            }
            Ok((_, status)) => Err(status.to_string()),
            Err(error) => Err(error.to_string()),
        };
        Ok(match output {
            Ok(output) => Input::Answered {
                ticket,
                bytes: answer_of(&report.delegation.message, output),
            },
            Err(why) => {
                writeln!(talk, "step {}: {why}", ticket.step)?;
                let cause = Cause::tool(why);
                Input::Failed { ticket, cause }
            }
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let tickets: Vec<Ticket> = self.children.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.stop(ticket));
    }
}

/// Waits until a command has ended or was stopped.
fn ended(runs: &Runs) -> io::Result<ExitStatus> {
    /// How often it is looked at: it may be stopped at any time.
    const LOOKS: Duration = Duration::from_millis(5);
    loop {
        {
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            let child = runs.as_mut();
            let child = child.ok_or_else(|| io::Error::other("it was stopped"))?;
            if let Some(status) = child.try_wait()? {
                *runs = None;
                return Ok(status);
            }
        }
        sleep(LOOKS);
    }
}

/// The tool of a delegated act and its parameters, with the outputs that the act waited for as `inputs`.
fn asked(message: &AnyMessage) -> (String, String) {
    let graph = Graph::from(message);
    let Some(step) = graph.steps().first() else {
        return Default::default();
    };
    let mut params: BTreeMap<String, RawBuf> = step.act.params.deserialize().unwrap_or_default();
    let context = sacp::MessageRef::from(message).context();
    if let Some(inputs) = context.and_then(|context| context.get("inputs")) {
        let inputs = inputs.clone();
        params.entry("inputs".to_owned()).or_insert(inputs);
    }
    (step.act.tool.clone(), json::to_string(&params))
}

/// The answer of a tool, in the edition of its message.
fn answer_of(request: &AnyMessage, output: RawBuf) -> Vec<u8> {
    match request {
        AnyMessage::V01(request) => {
            let mut answer = Message::new(&request.g, Plan::default());
            answer.reply_to = request.msg_id.as_deref().and_then(NonEmpty::new);
            answer.state = Some(State::Done);
            answer.set_context("result", output);
            answer.encode()
        }
        AnyMessage::V10(request) => {
            let mut answer = v1::Message::clone(request);
            answer.reply_to = Some(request.msg_id.clone());
            answer.state = v1::State::Done;
            let key = request
                .plan
                .first()
                .and_then(|step| step.output_key.as_deref());
            let key = key.unwrap_or("result").to_owned();
            answer.result = Some(v1::Outcome::new([(key, output)].into()));
            answer.encode()
        }
        // An edition that this program does not know: nothing can be said, and the step fails.
        _ => Vec::new(),
    }
}

/// The registry with an agent for each tool that has a command. Without a library, the acts of the plan with such a tool are
/// what is known.
fn offered(
    message: &AnyMessage,
    library: Option<MemoryRegistry>,
    tools: &Tools,
) -> Result<MemoryRegistry, sacp::registry::RegistryError> {
    let known = library.is_some();
    let mut registry = library.unwrap_or_default();
    let graph = Graph::from(message);
    for name in tools.keys() {
        let acts = graph.steps().iter().filter(|step| step.act.tool == *name);
        let mut verbs: Vec<String> = acts.map(|step| step.act.verb.clone()).collect();
        verbs.sort_unstable();
        verbs.dedup();
        if !known {
            for verb in &verbs {
                let output = json::Raw::NULL.to_owned();
                registry.add_verb(VerbDef::new(verb.clone(), String::new(), vec![], output))?;
            }
            registry.add_tool(ToolDef::new(name.clone(), String::new(), verbs.clone()))?;
        }
        let (agent, tool) = (name.clone(), vec![name.clone()]);
        let about = "a command".to_owned();
        registry.add_agent(AgentRecord::new(agent, verbs, tool, vec![], vec![], about))?;
    }
    Ok(registry)
}
