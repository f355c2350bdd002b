//! Plan first, then do one step of the plan after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{Limits, RawObject, read_raw};
use ubos_common::violation::Profile;
use upp::{ErrorCode, LlmResponse, UppError, object};

use super::{
    Command, ExecutionContext, ExecutionStrategy, Inference, Outcome, StrategyRun, check_limit,
};
use crate::event::EventData;
use crate::repair::embedded;
use crate::state::{PlanStep, PlanStepStatus};

/// Options of [`plan`].
///
/// Spec: UAP-1.1 5.4
#[derive(Clone, Debug)]
pub struct PlanOptions {
    max_plan_steps: Option<u64>,
    allow_replan: bool,
    plan_schema: Arc<RawObject>,
}

impl PlanOptions {
    /// Sets how many steps of a plan are done, at least 1; further steps are cut off. No limit by default.
    #[must_use]
    pub const fn with_max_plan_steps(mut self, most: u64) -> Self {
        self.max_plan_steps = Some(most);
        self
    }

    /// Sets whether a step that fails leads to a new plan: true by default.
    #[must_use]
    pub const fn with_allow_replan(mut self, allow: bool) -> Self {
        self.allow_replan = allow;
        self
    }

    /// Sets the JSON Schema that a model with structured output gets for its plan. The default describes `steps` with `id`,
    /// `description`, `tool` and `dependsOn`.
    #[must_use]
    pub fn with_plan_schema(mut self, schema: RawObject) -> Self {
        self.plan_schema = Arc::new(schema);
        self
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            max_plan_steps: None,
            allow_replan: true,
            plan_schema: Arc::new(object(SCHEMA).unwrap_or_default()),
        }
    }
}

const SCHEMA: &str = r#"{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"description":{"type":"string"},"tool":{"type":"string"},"dependsOn":{"type":"array","items":{"type":"string"}}},"required":["id","description","dependsOn"]}}},"required":["steps"]}"#;
const ASK: &str = "Make a plan for the task above before anything is done. Input with one JSON object of the form \
    {\"steps\":[{\"id\":…,\"description\":…,\"tool\":…,\"dependsOn\":[…]}]}: tool is optional, dependsOn names the ids \
    of steps that must be completed first.";

/// A plan, then its steps (`plan()` in the specification).
///
/// # Errors
///
/// A limit of 0.
///
/// Spec: UAP-1.1 5.4
pub fn plan(options: PlanOptions) -> Result<Arc<dyn ExecutionStrategy>, UppError> {
    check_limit(options.max_plan_steps, "maxPlanSteps")?;
    Ok(Arc::new(Plan(options)))
}

struct Plan(PlanOptions);

impl ExecutionStrategy for Plan {
    fn name(&self) -> &str {
        "plan"
    }

    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(PlanRun {
            options: self.0.clone(),
            steps: Vec::new(),
            order: PlanOrder::default(),
            stage: PlanStage::Planning,
            error: None,
            replanned: false,
        })
    }
}

struct PlanRun {
    options: PlanOptions,
    steps: Vec<PlanStep>,
    order: PlanOrder,
    stage: PlanStage,
    /// What the next plan must answer.
    error: Option<UppError>,
    /// A plan was bad and this is its one repair.
    replanned: bool,
}

/// ```text
/// Planning -> Planned -> Chosen(n) -> Doing(n) -> Done(n) -> Chosen(m) … -> finish
///    ^                                   |
///    +------------ Failed(n) <-----------+
/// ```
#[derive(Clone, Copy)]
enum PlanStage {
    /// The planning call is out, or about to be.
    Planning,
    /// A plan is in the state.
    Planned,
    /// A step is marked as being done.
    Chosen(usize),
    /// It is being done.
    Doing(usize),
    /// Its last mark is in the state.
    Done(usize),
}

impl StrategyRun for PlanRun {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        match (self.stage, outcome) {
            (_, Outcome::Started) => Command::StartStep(EventData::phase("planning")),
            (PlanStage::Planning, Outcome::StepStarted) => Command::Infer(self.ask(context)),
            (PlanStage::Planning, Outcome::Inferred { response, .. }) => {
                self.planned(&response, context)
            }
            (PlanStage::Planning, Outcome::Failed(error)) => Command::Fail(error),
            (PlanStage::Planned, Outcome::Applied) => Command::EndStep(EventData::Phase {
                phase: "planning".into(),
                plan: context.state.plan().cloned(),
                plan_step: None,
            }),
            (PlanStage::Planning, Outcome::StepEnded) => {
                Command::StartStep(EventData::phase("planning"))
            }
            (PlanStage::Planned | PlanStage::Done(_), Outcome::StepEnded) => self.choose(),
            (PlanStage::Chosen(n), Outcome::Applied) => Command::StartStep(self.phase(n)),
            (PlanStage::Chosen(n), Outcome::StepStarted) => {
                self.stage = PlanStage::Doing(n);
                Command::Infer(Inference::action().with_prompt(self.order(n)))
            }
            (
                PlanStage::Doing(_),
                Outcome::Inferred {
                    ran_tools: true, ..
                },
            ) => Command::Infer(Inference::action()),
            (PlanStage::Doing(n), Outcome::Inferred { .. }) => {
                self.mark(n, PlanStepStatus::Completed)
            }
            (PlanStage::Doing(n), Outcome::Failed(error)) => {
                self.error = Some(error);
                self.mark(n, PlanStepStatus::Failed)
            }
            (PlanStage::Done(n), Outcome::Applied) => Command::EndStep(self.phase(n)),
            // No engine says anything else.
            (_, _) => Command::Fail(UppError::new(
                ErrorCode::InvalidRequest,
                "uap",
                "a move out of turn",
            )),
        }
    }
}

impl PlanRun {
    fn ask(&self, context: &ExecutionContext<'_>) -> Inference {
        let prompt = match &self.error {
            None => ASK.to_owned(),
            Some(error) => format!(
                "{ASK}\nThe plan failed: {error}. Completed steps stay as they are and keep \
                 their ids: {}. Plan the remaining steps.",
                self.ids_of(PlanStepStatus::Completed).join(", ")
            ),
        };
        let mut inference = Inference::aside("planning", prompt);
        if context
            .llm
            .options()
            .model()
            .capabilities()
            .structured_output
        {
            inference.structure = Some(Arc::clone(&self.options.plan_schema));
        }
        inference
    }

    fn ids_of(&self, status: PlanStepStatus) -> Vec<&str> {
        self.steps
            .iter()
            .filter(|step| step.status == status)
            .map(|step| &*step.id)
            .collect()
    }

    // impl: UAP-5-4
    fn planned(&mut self, response: &LlmResponse, context: &mut ExecutionContext<'_>) -> Command {
        let kept = |step: &PlanStep| {
            matches!(
                step.status,
                PlanStepStatus::Completed | PlanStepStatus::Failed
            )
        };
        let old: Vec<PlanStep> = self
            .steps
            .iter()
            .filter(|step| kept(step))
            .cloned()
            .collect();
        match read(response, &self.options, &old, context.ids) {
            Ok(new) => {
                self.steps = old.into_iter().chain(new).collect();
                (self.stage, self.error, self.replanned) = (PlanStage::Planned, None, false);
                self.order = PlanOrder::of(&self.steps);
                Command::Plan(self.steps.iter().cloned().collect())
            }
            Err(fault) => {
                let error = UppError::new(ErrorCode::InvalidResponse, "uap", fault);
                if self.replanned || !self.options.allow_replan {
                    return Command::Fail(error);
                }
                (self.error, self.replanned) = (Some(error), true);
                Command::EndStep(EventData::phase("planning"))
            }
        }
    }

    /// After a step: the next one, a new plan, the end, or the failure.
    // impl: UAP-5-6
    fn choose(&mut self) -> Command {
        if let Some(error) = &self.error {
            // impl: UAP-5-7
            if !self.options.allow_replan || error.code.is_lasting() {
                return Command::Fail(error.clone());
            }
            self.stage = PlanStage::Planning;
            return Command::StartStep(EventData::phase("planning"));
        }
        match self.order.ready.pop_first() {
            Some(n) => {
                self.stage = PlanStage::Chosen(n);
                self.set(n, PlanStepStatus::InProgress)
            }
            None if self.order.waiting > 0 => Command::Fail(UppError::new(
                ErrorCode::InvalidResponse,
                "uap",
                "no step of the plan can be done",
            )),
            None => Command::Finish,
        }
    }

    fn mark(&mut self, n: usize, status: PlanStepStatus) -> Command {
        self.stage = PlanStage::Done(n);
        if let Some(step) = self.steps.get(n)
            && status == PlanStepStatus::Completed
        {
            self.order.completed(&step.id);
        }
        self.set(n, status)
    }

    fn set(&mut self, n: usize, status: PlanStepStatus) -> Command {
        match self.steps.get_mut(n) {
            Some(step) => {
                step.status = status;
                Command::PlanStep(n, step.clone())
            }
            // Every place comes from the plan itself.
            None => Command::Finish,
        }
    }

    fn phase(&self, n: usize) -> EventData {
        EventData::Phase {
            phase: "execution".into(),
            plan: None,
            plan_step: self.steps.get(n).cloned(),
        }
    }

    fn order(&self, n: usize) -> String {
        let Some(step) = self.steps.get(n) else {
            return String::new();
        };
        let tool = step
            .tool
            .as_ref()
            .map(|tool| format!(" Use the tool {tool}."))
            .unwrap_or_default();
        format!(
            "Do step {} of the plan now: {}.{tool}",
            step.id, step.description
        )
    }
}

/// Which steps can be done, without looking at all of them after each.
#[derive(Default)]
struct PlanOrder {
    /// Pending steps all of whose dependencies are completed.
    ready: BTreeSet<usize>,
    /// The number of the other pending steps.
    waiting: usize,
    /// How many steps each of them waits for.
    open: BTreeMap<usize, usize>,
    /// Those that wait for a step.
    dependents: BTreeMap<Arc<str>, Vec<usize>>,
}

impl PlanOrder {
    fn of(steps: &[PlanStep]) -> Self {
        let completed = |step: &&PlanStep| step.status == PlanStepStatus::Completed;
        let done: BTreeSet<&str> = steps
            .iter()
            .filter(completed)
            .map(|step| &*step.id)
            .collect();
        let mut order = Self::default();
        for (n, step) in steps.iter().enumerate() {
            if step.status != PlanStepStatus::Pending {
                continue;
            }
            let ids = step.depends_on.iter().filter(|id| !done.contains(&***id));
            let ids: BTreeSet<_> = ids.cloned().collect();
            if ids.is_empty() {
                order.ready.insert(n);
                continue;
            }
            order.waiting += 1;
            order.open.insert(n, ids.len());
            for id in ids {
                order.dependents.entry(id).or_default().push(n);
            }
        }
        order
    }

    // impl: UAP-5-6
    fn completed(&mut self, id: &str) {
        for n in self.dependents.remove(id).unwrap_or_default() {
            if let Some(open) = self.open.get_mut(&n) {
                *open = open.saturating_sub(1);
                if *open == 0 {
                    self.waiting = self.waiting.saturating_sub(1);
                    self.ready.insert(n);
                }
            }
        }
    }
}

ubos_common::wire! {
    /// A plan as a model writes it.
    struct Draft {
        /// In any order that dependencies allow.
        required steps: Vec<DraftStep> = "steps", "UAP-5-4";
    }
}

ubos_common::wire! {
    /// A step as a model writes it; a status is not its business.
    struct DraftStep {
        /// Made where it is missing.
        nullable id: Arc<str> = "id", "UAP-5-4";
        /// What is to be done.
        required description: Arc<str> = "description", "UAP-5-4";
        /// With which tool.
        nullable tool: Arc<str> = "tool", "UAP-5-4";
        /// None where it is missing.
        nullable depends_on: Vec<Arc<str>> = "dependsOn", "UAP-5-4";
    }
}

/// The new steps of an answer; old ones may be depended on, and their ids are taken.
fn read(
    response: &LlmResponse,
    options: &PlanOptions,
    old: &[PlanStep],
    ids: &mut IdSource,
) -> Result<Vec<PlanStep>, &'static str> {
    let raw = match &response.data {
        Some(data) => data.clone(),
        None => embedded(&response.message.text()).ok_or("no JSON object in the answer")?,
    };
    let read = read_raw::<Draft>(raw.as_raw(), &Limits::default(), Profile::Lenient);
    let (draft, _) = read.map_err(|_| "no list of steps in the answer")?;
    let most = options
        .max_plan_steps
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or(usize::MAX);
    let mut steps: Vec<PlanStep> = draft
        .steps
        .into_iter()
        .map(|step| {
            let id = step.id.unwrap_or_else(|| ids.uuid().to_string().into());
            let mut new = PlanStep::new(
                id,
                step.description,
                step.depends_on.unwrap_or_default(),
                PlanStepStatus::Pending,
            );
            new.tool = step.tool;
            new
        })
        .collect();
    let mut cut: BTreeSet<Arc<str>> = steps
        .drain(most.min(steps.len())..)
        .map(|step| step.id)
        .collect();
    // A step that stays is not gone, though one of its name is cut.
    for step in steps.iter().chain(old) {
        cut.remove(&step.id);
    }
    for step in &mut steps {
        step.depends_on.retain(|id| !cut.contains(id));
    }
    check(&steps, old)?;
    Ok(steps)
}

// impl: UAP-5-4
fn check(steps: &[PlanStep], old: &[PlanStep]) -> Result<(), &'static str> {
    if steps.is_empty() {
        return Err("a plan without steps");
    }
    let mut known: BTreeSet<&str> = old.iter().map(|step| &*step.id).collect();
    if !steps.iter().all(|step| known.insert(&step.id)) {
        return Err("two steps with one id");
    }
    if !steps
        .iter()
        .flat_map(|step| &step.depends_on)
        .all(|id| known.contains(&**id))
    {
        return Err("a step that depends on none that is there");
    }
    if can_all_be_done(steps, old) {
        Ok(())
    } else {
        Err("steps that wait for each other")
    }
}

/// Whether no step waits for one that never comes: each is taken once, when the last that it waits for has been.
fn can_all_be_done(steps: &[PlanStep], old: &[PlanStep]) -> bool {
    let completed = |step: &&PlanStep| step.status == PlanStepStatus::Completed;
    let done: BTreeSet<&str> = old.iter().filter(completed).map(|step| &*step.id).collect();
    let open = |step: &PlanStep| -> BTreeSet<Arc<str>> {
        let ids = step.depends_on.iter().filter(|id| !done.contains(&***id));
        ids.cloned().collect()
    };
    let mut waits: Vec<BTreeSet<Arc<str>>> = steps.iter().map(open).collect();
    let mut dependents: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
    for (n, ids) in waits.iter().enumerate() {
        for id in ids {
            dependents.entry(Arc::clone(id)).or_default().push(n);
        }
    }
    let is_free = |(n, ids): (usize, &BTreeSet<_>)| ids.is_empty().then_some(n);
    let mut free: Vec<usize> = waits.iter().enumerate().filter_map(is_free).collect();
    let mut taken = 0;
    while let Some(step) = free.pop().and_then(|n| steps.get(n)) {
        taken += 1;
        for n in dependents.remove(&step.id).unwrap_or_default() {
            if let Some(ids) = waits.get_mut(n)
                && ids.remove(&step.id)
                && ids.is_empty()
            {
                free.push(n);
            }
        }
    }
    taken == steps.len()
}
