//! The talk: a line is a question or a command.

use std::io::{self, Write as _};
use std::sync::Arc;

use futures::StreamExt as _;
use tokio::io::AsyncBufRead;
use tokio::signal::unix::Signal;
use uap_agent::journal::{JournalError, Paused};
use uap_agent::{Agent, AgentError, AgentStreamResult, CheckpointMetadata, CheckpointStore};
use ubos_common::os::Clock;

use super::approval::Approvals;
use super::lines::Lines;
use super::screen::{self, Teller, To};
use super::session::Session;
use super::trace::TraceFile;

const COMMANDS: &str = "\
/branch [NAME]       makes a branch that begins here; you stay where you are
/checkout NAME|ID    goes to a branch
/history             what was said on this branch
/tree                all branches
/state               the state of this branch, as JSON
/wait                goes on with an answer that waits for a person
/drop                gives it up
/help                this list
/quit                the end
";

/// A talk with an agent.
pub(super) struct Chat {
    pub(super) agent: Agent,
    pub(super) session: Session,
    pub(super) store: Option<Arc<dyn CheckpointStore>>,
    /// Where answers are recorded that may wait for a person.
    pub(super) approvals: Option<Approvals>,
    /// Whether new answers may.
    pub(super) asks_first: bool,
    pub(super) trace: Option<TraceFile>,
    pub(super) interrupted: Signal,
    /// Whether a person types.
    pub(super) is_terminal: bool,
    pub(super) clock: Clock,
    /// Whether a question came to no answer.
    pub(super) has_failed: bool,
}

impl Chat {
    /// Talks until the input ends; gives the exit code.
    ///
    /// # Errors
    ///
    /// Input or output fails.
    pub(super) async fn talk<R: AsyncBufRead + Unpin>(
        &mut self,
        mut lines: Lines<R>,
    ) -> Result<u8, Stop> {
        if self.is_begun().await.map_err(Stop::Input)? {
            note!("  an answer was begun, and goes on");
            self.wait().await?;
        }
        loop {
            self.prompt()?;
            let line = tokio::select! {
                line = lines.next() => line.map_err(|err| Stop::Input(err.to_string()))?,
                _ = self.interrupted.recv() => {
                    if self.is_terminal {
                        note!();
                    }
                    return Ok(130);
                }
            };
            let Some(line) = line else {
                if self.is_terminal {
                    note!();
                }
                break;
            };
            match line.trim() {
                "" => {}
                "/quit" => break,
                "/wait" | "/drop" => self.begun(line.trim() == "/drop").await?,
                command if command.starts_with('/') => self.command(command)?,
                question => self.answer(question).await?,
            }
        }
        // A person has seen it; a script has not.
        Ok(u8::from(self.has_failed && !self.is_terminal))
    }

    fn prompt(&self) -> io::Result<()> {
        if !self.is_terminal {
            return Ok(());
        }
        let node = self.session.current();
        let mut talk = io::stderr().lock();
        match &node.name {
            Some(name) if node.parent_id.is_some() => {
                write!(talk, "{}> ", screen::clean_line(name))?;
            }
            None => write!(talk, "{}> ", screen::title(node))?,
            Some(_) => write!(talk, "> ")?,
        }
        talk.flush()
    }

    fn command(&mut self, line: &str) -> io::Result<()> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let mut out = io::stdout().lock();
        let refused = match (command, rest) {
            ("/help", "") => {
                out.write_all(COMMANDS.as_bytes())?;
                None
            }
            ("/history", "") => {
                screen::history(self.session.state(), &mut out)?;
                None
            }
            ("/tree", "") => {
                screen::tree(self.session.tree(), &mut out)?;
                None
            }
            ("/state", "") => {
                writeln!(out, "{}", self.session.state().to_json())?;
                None
            }
            ("/branch", name) => match self.session.branch((!name.is_empty()).then_some(name)) {
                Ok(made) => {
                    let node = self.session.tree().node(made);
                    let title = node.map(screen::title).unwrap_or_default();
                    note!("  branch {title} begins here; /checkout goes there");
                    None
                }
                Err(why) => Some(why),
            },
            ("/checkout", "") => Some("/checkout needs a branch's name or id".to_owned()),
            ("/checkout", word) => match self.session.checkout(word) {
                Ok(()) => {
                    let node = self.session.current();
                    let (title, count) = (screen::title(node), node.state.messages().len());
                    note!("  on {title}, {count} messages");
                    None
                }
                Err(why) => Some(why),
            },
            ("/help" | "/history" | "/tree" | "/state" | "/wait" | "/drop", _) => {
                Some(format!("{command} takes nothing behind it"))
            }
            _ => Some(format!("no command {command}; /help lists them")),
        };
        out.flush()?;
        if let Some(why) = refused {
            note!("  {}", screen::clean_line(&why));
            self.has_failed = true;
        }
        Ok(())
    }

    async fn answer(&mut self, question: &str) -> Result<(), Stop> {
        match self.is_begun().await {
            Ok(false) => {}
            Ok(true) => {
                self.refuse("an answer waits: /wait goes on with it, /drop gives it up");
                return Ok(());
            }
            // What cannot be read is not removed either.
            Err(why) => {
                self.refuse(&format!("{why}; /drop gives it up"));
                return Ok(());
            }
        }
        let before = self.session.state().clone();
        let run = match &self.approvals {
            Some(approvals) if self.asks_first => {
                let journal = approvals.begin().map_err(Stop::Fault)?;
                self.agent.record(journal, question, &before)
            }
            _ => self.agent.stream(question, &before),
        };
        self.follow(run).await
    }

    async fn is_begun(&self) -> Result<bool, String> {
        match &self.approvals {
            Some(approvals) => approvals.is_begun().await,
            None => Ok(false),
        }
    }

    /// Goes on with an answer that waits, or gives it up.
    async fn begun(&mut self, drops: bool) -> Result<(), Stop> {
        match (self.is_begun().await, &self.approvals) {
            (Ok(true) | Err(_), Some(approvals)) if drops => {
                approvals.end().map_err(Stop::Fault)?;
                note!("  the answer is given up; the question is not kept");
            }
            (Ok(true), _) => return self.wait().await,
            (Ok(false), _) => self.refuse("no answer waits"),
            (Err(why), _) => self.refuse(&why),
        }
        Ok(())
    }

    fn refuse(&mut self, why: &str) {
        note!("  {}", screen::clean_line(why));
        self.has_failed = true;
    }

    /// Waits until a person has decided, and goes on. An interruption leaves the answer waiting.
    async fn wait(&mut self) -> Result<(), Stop> {
        let Some(approvals) = &self.approvals else {
            return Ok(());
        };
        let resumed = tokio::select! {
            resumed = approvals.resumed(&self.agent) => resumed,
            _ = self.interrupted.recv() => {
                note!("  it stays waiting: /wait goes on with it, and so does the next start of this session");
                return Ok(());
            }
        };
        match resumed {
            // A run within a run within a run: each pause is one.
            Ok(run) => Box::pin(self.follow(run)).await,
            Err(why) => {
                self.refuse(&format!(
                    "{why}; /wait tries again, /drop gives the answer up"
                ));
                Ok(())
            }
        }
    }

    async fn follow(&mut self, mut run: AgentStreamResult) -> Result<(), Stop> {
        let abort = run.abort_handle();
        let mut teller = Teller::new();
        loop {
            tokio::select! {
                event = run.next() => {
                    let Some(event) = event else { break };
                    if let Some(trace) = &mut self.trace {
                        trace.push(self.clock.now(), &event);
                    }
                    let (mut out, mut talk) = (io::stdout().lock(), io::stderr().lock());
                    teller.tell(&event, &mut To { out: &mut out, talk: &mut talk })?;
                }
                _ = self.interrupted.recv() => abort.cancel(),
            }
        }
        let (mut out, mut talk) = (io::stdout().lock(), io::stderr().lock());
        teller.end(&mut To {
            out: &mut out,
            talk: &mut talk,
        })?;
        drop((out, talk));
        let result = run.result().await;
        if let Some(trace) = &mut self.trace {
            trace.end(self.clock.now(), &result)?;
        }
        if let Err(error) = &result
            && Paused::of(&error.error).is_some()
        {
            return self.wait().await;
        }
        if let Err(error) = &result
            && error
                .error
                .cause
                .as_ref()
                .is_some_and(|cause| cause.is::<JournalError>())
        {
            // What stands in the journal is not over.
            self.refuse(&format!(
                "{}; /wait tries again, /drop gives the answer up",
                error.error
            ));
            return Ok(());
        }
        if let Some(approvals) = &self.approvals {
            approvals.end().map_err(Stop::Fault)?;
        }
        match result {
            Ok(result) => Ok(self.session.answered(result.state)?),
            Err(error) => self.failed(*error).await,
        }
    }

    /// Goes on from before the question, unless tools have run: what they did is done.
    async fn failed(&mut self, error: AgentError) -> Result<(), Stop> {
        self.has_failed = true;
        let ran = error
            .turn
            .as_ref()
            .map_or(0, |turn| turn.tool_executions.len());
        let what = match error.error.code {
            upp::ErrorCode::Cancelled => "stopped".to_owned(),
            _ => screen::clean_line(&error.error.to_string()),
        };
        if ran > 0 {
            note!("  {what}; what the tools did is kept");
            self.session.answered(error.state)?;
        } else {
            note!("  {what}; the question is not kept");
        }
        // The store's last state is the conversation's again.
        if let (Some(store), Some(name)) = (&self.store, self.agent.session_id()) {
            let state = self.session.state().clone();
            let (name, agent) = (name.to_owned(), self.agent.id().to_owned());
            let (id, at) = (self.session.ids().uuid(), self.clock.now().wall);
            let metadata = CheckpointMetadata::new(name, id, at, state.step(), agent);
            let saved = store.save(metadata, state).await;
            saved.map_err(|err| Stop::Fault(err.to_string()))?;
        }
        Ok(())
    }
}

/// Why the talk ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The input cannot be read.
    Input(String),
    /// Something of ours failed.
    Fault(String),
}

impl From<io::Error> for Stop {
    fn from(err: io::Error) -> Self {
        Self::Fault(err.to_string())
    }
}
