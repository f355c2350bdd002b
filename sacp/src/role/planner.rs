//! Planners.

use std::collections::{BTreeMap, BTreeSet};

use super::Planner;
use crate::any::{AnyMessage, MessageRef};
use crate::check::{Gap, gaps};
use crate::error::Code;
use crate::message::Message;
use crate::plan::{Item, Plan};
use crate::registry::Registry;
use crate::reply::{Clarify, ErrReply, Reply};
use crate::v1;
use ubos_common::json::RawObject;

/// The result of a planner.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: a planner makes it
pub struct Planned {
    /// The message, in the edition of the one that was planned.
    pub message: AnyMessage,
    /// Acts that need a spawn.
    pub missing: Vec<Gap>,
}

/// The default planner: replaces acts by the plans of its recipes, and checks the plan against the registry.
///
/// ```
/// use sacp::registry::MemoryRegistry;
/// use sacp::role::{Planner, RegistryPlanner};
/// use sacp::{Act, Graph, Item, Message, Plan};
///
/// let mut steps = Plan::default();
/// steps.push(Item::group([Act::new("fetch", "WEATHER"), Act::new("fetch", "TRAINS")]));
/// steps.push(Act::join("MERGE"));
/// let planner = RegistryPlanner::default().with_recipe("plan", "TRIP", steps);
///
/// let abstract_goal = Message::decode(br#"{"g":"TRIP","plan":[["plan","TRIP",{}]]}"#)?;
/// let planned = planner.plan((&abstract_goal).into(), &MemoryRegistry::default()).unwrap();
/// assert_eq!(Graph::from(&planned.message).steps().len(), 3);
/// assert_eq!(planned.missing.len(), 2, "nobody fetches, and a merge needs nobody");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 9
#[derive(Clone, Debug, Default)]
pub struct RegistryPlanner {
    recipes: BTreeMap<(String, String), Plan>,
}

impl RegistryPlanner {
    /// Replaces acts of a verb with a tool by a plan. The acts of that plan are not replaced again.
    #[must_use]
    pub fn with_recipe(mut self, verb: &str, tool: &str, plan: Plan) -> Self {
        self.recipes
            .insert((verb.to_owned(), tool.to_owned()), plan);
        self
    }

    fn recipe(&self, item: &Item) -> Option<&Plan> {
        match item {
            Item::Act(act) => self.recipes.get(&(act.verb.clone(), act.tool.clone())),
            Item::Group(_) => None,
        }
    }

    /// A recipe of one entry replaces a member of a group; a longer one cannot stand in a group, so the member stays.
    fn member(&self, item: &Item) -> Item {
        match (item, self.recipe(item).map(|plan| plan.items.as_slice())) {
            (_, Some([one])) => one.clone(),
            (Item::Group(members), _) => {
                Item::group(members.iter().map(|member| self.member(member)))
            }
            _ => item.clone(),
        }
    }
}

impl RegistryPlanner {
    fn expand_v01(&self, message: &Message) -> Message {
        let mut expanded = message.clone();
        expanded.plan = Plan::default();
        for item in &message.plan.items {
            match self.recipe(item) {
                Some(recipe) => expanded.plan.items.extend(recipe.items.iter().cloned()),
                None => expanded.plan.push(self.member(item)),
            }
        }
        expanded
    }

    fn expand_v10(&self, message: &v1::Message) -> v1::Message {
        let mut expanded = message.clone();
        let ids: BTreeSet<v1::Name> = message.plan.iter().map(|step| step.id.clone()).collect();
        let steps = message.plan.iter().flat_map(|step| {
            let pair = (step.verb.to_string(), step.tool.to_string());
            let recipe = self.recipes.get(&pair);
            let own = recipe.and_then(|recipe| in_place_of(step, recipe, &ids));
            own.unwrap_or_else(|| vec![step.clone()])
        });
        if let Some(plan) = v1::Steps::new(steps.collect()) {
            expanded.plan = plan;
        }
        expanded
    }
}

impl Planner for RegistryPlanner {
    // impl: SACP-9-1
    fn plan(
        &self,
        message: MessageRef<'_>,
        registry: &dyn Registry,
    ) -> Result<Planned, Box<Reply>> {
        let expanded = match message {
            MessageRef::V01(message) => self.expand_v01(message).into(),
            MessageRef::V10(message) => self.expand_v10(message).into(),
        };
        checked(expanded, registry)
    }
}

/// The steps of 1.0 that take the place of a step, with its policies: the last has its id and output, so that whoever waits
/// for it waits for all of them; the first wait for what it waited for.
///
/// `None` if the recipe has no such form: without acts, with names that 1.0 does not take, with ids that are taken, or with
/// several acts where there is a fallback.
// choice: SACP1-6-1 a recipe that cannot stand in the place of a step leaves the step as it is.
fn in_place_of(step: &v1::Step, recipe: &Plan, ids: &BTreeSet<v1::Name>) -> Option<Vec<v1::Step>> {
    let mut steps = v1::steps_of(recipe).ok()?;
    let waited: BTreeSet<&v1::Name> = steps
        .iter()
        .flat_map(|s| s.depends_on.iter().flatten())
        .collect();
    let ends = steps.iter().filter(|it| !waited.contains(&it.id));
    let ends: Vec<v1::Name> = ends.map(|it| it.id.clone()).collect();
    if ends.len() > 1 {
        let (verb, tool) = (v1::Word::new("join")?, v1::Word::new("MERGE")?);
        let join = v1::Step::new(v1::Name::new("join")?, verb, tool, RawObject::empty());
        steps.push(join.after(ends));
    }
    let count = steps.len();
    let mut names = BTreeMap::new();
    for (n, it) in (1..).zip(&steps) {
        let name = if n == count {
            step.id.clone()
        } else {
            v1::Name::new(format!("{}.{n}", step.id)).filter(|name| !ids.contains(name))?
        };
        names.insert(it.id.clone(), name);
    }
    // A fallback takes the place of one step alone.
    if count > 1 && step.on_error == Some(v1::OnError::Fallback) {
        return None;
    }
    let placed = |it: v1::Step| {
        let mut placed = step.clone();
        placed.id = names.get(&it.id)?.clone();
        if placed.id != step.id {
            placed.output_key = None;
        }
        if let Some(after) = it.depends_on {
            placed.depends_on = Some(
                after
                    .iter()
                    .filter_map(|id| names.get(id).cloned())
                    .collect(),
            );
        }
        (placed.verb, placed.tool, placed.params) = (it.verb, it.tool, it.params);
        Some(placed)
    };
    let placed: Vec<v1::Step> = steps.into_iter().map(placed).collect::<Option<_>>()?;
    (!placed.is_empty()).then_some(placed)
}

/// The message with the acts that need a spawn; refused if an act can never be served.
// impl: SACP-2-7
fn checked(message: AnyMessage, registry: &dyn Registry) -> Result<Planned, Box<Reply>> {
    if message.is_empty() {
        let mut clarify = Clarify::new(["plan"], "nothing to do");
        clarify.reply_to = message.msg_id().map(str::to_owned);
        return Err(Box::new(Reply::Clarify(clarify)));
    }
    let missing = gaps(&message, registry);
    if let Some(gap) = missing.iter().find(|gap| !gap.can_be_spawned()) {
        let why = format!(
            "act {}: {} does not go with {}",
            gap.number, gap.verb, gap.tool
        );
        let error = ErrReply::new(gap.code, why).at(&gap.pointer).to(&message);
        return Err(Box::new(Reply::Err(error)));
    }
    Ok(Planned { message, missing })
}

/// Checks that a planner changed the plan alone, in a message of either edition.
///
/// # Errors
///
/// [`Code::MalformedMessage`]: the planner changed something else.
///
/// Spec: SACP 9
// impl: SACP-9-1
pub fn keeps_constraints<'a, 'b>(
    before: impl Into<MessageRef<'a>>,
    after: impl Into<MessageRef<'b>>,
) -> Result<(), ErrReply> {
    let (before, after) = (before.into(), after.into());
    let changed = |what: &str, pointer: &str| {
        let why = format!("the planner changed {what}");
        Err(ErrReply::new(Code::MalformedMessage, why)
            .at(pointer)
            .to(before))
    };
    match (before, after) {
        (MessageRef::V01(_), MessageRef::V01(_)) => {}
        (MessageRef::V10(before), MessageRef::V10(after)) if before.sender == after.sender => {}
        (MessageRef::V10(_), MessageRef::V10(_)) => return changed("the sender", "/sender"),
        _ => return changed("the edition", "/proto_ver"),
    }
    for (name, value) in before.context().into_iter().flatten() {
        if after.context().and_then(|ctx| ctx.get(name)) != Some(value) {
            let name = name.replace('~', "~0").replace('/', "~1");
            return changed("the context", &format!("/ctx/{name}"));
        }
    }
    let out_fmt = before.out_fmt() == after.out_fmt();
    let test_mode = !before.is_test() || after.is_test();
    let kept = [
        (before.goal() == after.goal(), "the goal", "/g"),
        (out_fmt, "the output format", "/out_fmt"),
        (test_mode, "the test mode", "/test_mode"),
        (before.msg_id() == after.msg_id(), "the name", "/msg_id"),
    ];
    let lost = kept.iter().find(|(is_kept, ..)| !is_kept);
    lost.map_or(Ok(()), |(_, what, pointer)| changed(what, pointer))
}
