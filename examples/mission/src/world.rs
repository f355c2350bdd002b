//! The mission itself: which capability does what, and how the plan's acts reach it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use sacp::runner::{Cause, Config, End, Input, Output, Runner, RunnerError, Ticket};
use sacp::{Act, AnyMessage};
use sap::processor::Context;
use sap::{CorrelationId, TaskId};
use serde_json::{Value, json};
use ubos_common::canon::{self, Digest, Domain};
use ubos_common::driver::{Sleep as _, Step, World, drive};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};

use super::findings::{Findings, read};
use super::fleet::{AGENTS, Check, Fleet};
use super::governed::{Errand, Governed, Handlers};
use super::output::{AgentPart, HubPart};
use super::plan::PASSES;
use super::report::Writer;
use super::scan::{Count, PASS_VERSION};
use super::screen::{Screen, Who};
use super::step_id::{self, Cause as TaskCause};
use super::stores::Stores;
use super::toolbox::Toolbox;

/// The capability of the mission's own task.
const ROOT: &str = "audit.folder";

/// Everything that the handlers work with.
#[derive(Debug)]
pub struct Mission {
    parts: Parts,
    governed: OnceLock<Governed>,
    /// Outputs of the passes, in the order of the plan.
    outputs: Mutex<Vec<RawBuf>>,
    /// What comes of it beside its task's result.
    pub made: Made,
}

/// What a mission is made of.
#[derive(Debug)]
pub struct Parts {
    /// The tools.
    pub toolbox: Toolbox,
    /// The checkers.
    pub fleet: Fleet,
    /// The plan.
    pub message: AnyMessage,
    /// What the passes will read.
    pub tree: Digest,
    /// Who writes the report.
    pub writer: Writer,
    /// Where it shows.
    pub screen: Screen,
}

/// What comes of a mission beside its task's result.
#[derive(Debug, Default)]
pub struct Made {
    /// What the passes found.
    pub findings: OnceLock<Findings>,
    /// What the fleet came to.
    pub check: OnceLock<Check>,
    /// The report, and how it was written.
    pub report: OnceLock<(String, AgentPart)>,
    /// Acts that ended well.
    pub steps: OnceLock<u64>,
}

impl Mission {
    /// Puts a mission together; its tasks share a correlation id.
    pub async fn new(
        parts: Parts,
        stores: &Stores,
        ids: IdSource,
        correlation: CorrelationId,
    ) -> Result<Arc<Self>, String> {
        let screen = parts.screen.clone();
        let mission = Arc::new(Self {
            parts,
            governed: OnceLock::new(),
            outputs: Mutex::default(),
            made: Made::default(),
        });
        let governed = handlers(stores, Arc::downgrade(&mission))?
            .build(ids, correlation, &screen)
            .await?;
        mission.governed.get_or_init(|| governed);
        Ok(mission)
    }

    /// Issues the tasks.
    pub fn governed(&self) -> Result<&Governed, String> {
        self.governed
            .get()
            .ok_or_else(|| "the mission has not begun".to_owned())
    }

    /// The tools.
    #[must_use]
    pub const fn toolbox(&self) -> &Toolbox {
        &self.parts.toolbox
    }

    /// Runs the whole audit as one task.
    pub async fn run(&self) -> Result<sap::TaskResult, String> {
        let governed = self.governed()?;
        let payload = object(&json!({ "tree": self.parts.tree }))?;
        let errand = Errand {
            capability: ROOT.to_owned(),
            payload,
            cached: false,
            cause: step_id::mission(governed.correlation),
        };
        governed.run_root(&errand).await
    }

    /// What the hub did.
    #[must_use]
    pub fn hub(&self) -> HubPart {
        let check = self.made.check.get().copied().unwrap_or_default();
        HubPart {
            agents: AGENTS as u64,
            sessions: check.sessions,
            agree: self.agrees(),
        }
    }

    fn agrees(&self) -> bool {
        match (self.made.check.get(), self.made.findings.get()) {
            (Some(check), Some(findings)) => check.count == counted(findings),
            _ => false,
        }
    }

    /// Ends the processes and servers.
    pub async fn stop(self: Arc<Self>) {
        self.parts.toolbox.stop().await;
        if let Some(mission) = Arc::into_inner(self) {
            mission.parts.fleet.stop().await;
        }
    }

    /// The plan, act by act, each a task of its own.
    async fn execute(self: Arc<Self>) -> Result<RawBuf, String> {
        let clock = *self.governed()?.clock();
        let mut runner = Runner::new(&self.parts.message, Config::default()).map_err(in_words)?;
        runner.start(clock.now());
        let mut acts = Acts {
            mission: Arc::clone(&self),
            run: self.governed()?.correlation.to_string(),
            cause: step_id::task(self.governed()?.root),
            ended: None,
        };
        drive(&mut runner, &mut acts, &clock)
            .await
            .map_err(in_words)?;
        acts.ended
            .unwrap_or_else(|| Err("the plan ended without a word".to_owned()))?;
        let steps = runner.graph().steps().len() as u64;
        self.made.steps.get_or_init(|| steps);
        raw(&json!({ "steps": steps }))
    }

    /// One act of the plan, as a task.
    async fn act(
        self: Arc<Self>,
        step: String,
        act: Act,
        inputs: Vec<RawBuf>,
    ) -> Result<RawBuf, String> {
        let inputs_digest = digest(&inputs)?;
        let payload = match act.tool.as_str() {
            "MERGE" => json!({ "inputs": inputs_digest }),
            "FLEET" | "REPORT" => json!({ "tree": self.parts.tree, "inputs": inputs_digest }),
            _ => json!({ "tree": self.parts.tree, "pass": PASS_VERSION }),
        };
        if act.is_join() {
            let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
            *outputs = inputs;
        }
        // A check from the cache would be no check, and a report is written by whoever is asked this time.
        let cached = !matches!(act.tool.as_str(), "FLEET" | "REPORT");
        let errand = Errand {
            capability: capability(&act.tool),
            payload: object(&payload)?,
            cached,
            cause: step,
        };
        let output = self.governed()?.run(&errand).await?;
        if act.is_join() {
            let findings: Findings = read(&act.tool, &output)?;
            self.made.findings.get_or_init(|| findings);
        }
        Ok(output)
    }

    /// A task of this mission, as what its handler does names it.
    fn cause(&self, task: TaskId) -> Result<TaskCause, String> {
        Ok(TaskCause::new(self.governed()?.correlation, task))
    }

    async fn merge(self: Arc<Self>) -> Result<RawBuf, String> {
        let outputs = self
            .outputs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        raw(&Findings::merge(&outputs)?)
    }

    async fn check(self: Arc<Self>, task: TaskId) -> Result<RawBuf, String> {
        let check = self.parts.fleet.recount(&self.cause(task)?).await?;
        self.made.check.get_or_init(|| check);
        let agrees = self.agrees();
        let said = if agrees {
            "the fleet came to the same figures"
        } else {
            "the fleet came to OTHER figures"
        };
        self.parts.screen.say(Who::Hub, said);
        let Count {
            files,
            lines,
            bytes,
        } = check.count;
        raw(
            &json!({ "sessions": check.sessions, "files": files, "lines": lines, "bytes": bytes, "agrees": agrees }),
        )
    }

    async fn report(self: Arc<Self>, task: TaskId) -> Result<RawBuf, String> {
        let findings = self
            .made
            .findings
            .get()
            .ok_or("a report before the findings")?;
        let check = self.made.check.get().ok_or("a report before the check")?;
        let (text, part) = self
            .parts
            .writer
            .write(findings, check, &self.parts.screen, &self.cause(task)?)
            .await?;
        let output =
            raw(&json!({ "markdown": text, "steps": part.steps, "toolCalls": part.tool_calls }))?;
        self.made.report.get_or_init(|| (text, part));
        Ok(output)
    }
}

/// What each capability does.
fn handlers(stores: &Stores, mission: Weak<Mission>) -> Result<Handlers<Mission>, String> {
    let mut handlers = Handlers::new(stores, mission)?
        .handle(ROOT, |mission: Arc<Mission>, _| mission.execute())
        .handle(&capability("MERGE"), |mission: Arc<Mission>, _| {
            mission.merge()
        })
        .cached(&capability("MERGE"))
        .handle(&capability("FLEET"), |mission: Arc<Mission>, context| {
            mission.check(context.task.task_id)
        })
        .handle(&capability("REPORT"), |mission: Arc<Mission>, context| {
            mission.report(context.task.task_id)
        });
    for (_, tool, _) in PASSES {
        handlers = handlers.cached(&capability(tool)).handle(
            &capability(tool),
            move |mission: Arc<Mission>, context: Context| async move {
                let task = context.task.task_id.to_string();
                let output = mission
                    .parts
                    .toolbox
                    .call(&tool.to_lowercase(), &task)
                    .await?;
                Ok(output.into())
            },
        );
    }
    Ok(handlers)
}

/// The runner's world: an act is dispatched by becoming a task.
struct Acts {
    mission: Arc<Mission>,
    /// The mission's correlation id, which is the message's id.
    run: String,
    /// The task that runs the plan.
    cause: String,
    ended: Option<Result<(), String>>,
}

impl World<Runner> for Acts {
    type Answer = (Ticket, Result<RawBuf, String>);

    fn perform(&mut self, output: Output) -> Step<Self::Answer> {
        let screen = &self.mission.parts.screen;
        match output {
            Output::Dispatch {
                ticket,
                act,
                inputs,
                ..
            } => {
                let what = format!("act {}: {} {}", ticket.step, act.verb, act.tool);
                screen.say(Who::Sacp, what);
                let inputs = inputs.iter().map(|(_, output)| RawBuf::clone(output));
                let step = step_id::act(&self.run, ticket.step);
                let name = format!("{} {}", act.verb, act.tool);
                let open = screen
                    .trace()
                    .begin_logged(Who::Sacp, &*step, Some(&self.cause), name);
                let work = Arc::clone(&self.mission).act(step, act, inputs.collect());
                return Step::start(ticket.id(), async move {
                    let output = work.await;
                    open.end_with(&output);
                    (ticket, output)
                });
            }
            Output::Cancel { ticket } => return Step::Cancel(ticket.id()),
            Output::Ended(outcome) => {
                let why = outcome.failure.as_ref().map(ToString::to_string);
                self.ended = Some(match (outcome.end, why) {
                    (End::Done, _) => {
                        screen.say(Who::Sacp, "every act is done");
                        Ok(())
                    }
                    (_, why) => {
                        let why = why.unwrap_or_default();
                        screen.say(Who::Sacp, format!("the plan failed: {why}"));
                        Err(why)
                    }
                });
            }
            _ => {}
        }
        Step::Done
    }

    fn input(&mut self, (ticket, result): Self::Answer) -> Input {
        match result {
            Ok(output) => Input::Succeeded { ticket, output },
            Err(why) => Input::Failed {
                ticket,
                cause: Cause::tool(why),
            },
        }
    }

    fn refused(&mut self, error: RunnerError) {
        self.mission.parts.screen.say(Who::Sacp, error.to_string());
    }
}

/// The capability behind a tool of the plan.
fn capability(tool: &str) -> String {
    format!("audit.{}", tool.to_lowercase())
}

const fn counted(findings: &Findings) -> Count {
    let figures = &findings.figures;
    Count {
        files: figures.files,
        lines: figures.lines,
        bytes: figures.bytes,
    }
}

/// One digest of several outputs.
fn digest(outputs: &[RawBuf]) -> Result<Digest, String> {
    canon::digest(&Domain::new("ubos mission inputs 1"), outputs).map_err(in_words)
}

fn object(value: &Value) -> Result<RawObject, String> {
    RawObject::from_serialize(value)
        .map_err(in_words)?
        .ok_or_else(|| "no object".to_owned())
}

fn raw(value: &impl serde::Serialize) -> Result<RawBuf, String> {
    RawBuf::from_serialize(value).map_err(in_words)
}

fn in_words(err: impl std::fmt::Display) -> String {
    err.to_string()
}
