//! The SACP side: words become a message, a plan is made and held against the registry, what is missing is
//! spawned.

use sacp::check::{Config, Finding, check_plan};
use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use sacp::role::{Interface, Planned, Planner, RegistryPlanner, keeps_constraints};
use sacp::spawn::{Spawner, spawn_missing};
use sacp::{
    Act, AnyMessage, Clarify, ErrReply, Graph, Item, Message, MessageRef, OutFmt, Plan, Reply,
};
use serde_json::json;
use ubos_common::json::RawBuf;
use ubos_common::time::Timestamp;
use ubos_common::violation::Level;

/// The passes that run side by side: verb, tool, what it does. Capabilities are called `audit.` and the tool
/// in lower case.
pub const PASSES: [(&str, &str, &str); 5] = [
    (
        "count",
        "LINES",
        "counts files, lines and bytes by language",
    ),
    ("rank", "SIZES", "finds the largest files"),
    ("find", "NOTES", "finds TODO and FIXME"),
    ("find", "COPIES", "finds files of equal content"),
    ("find", "SECRETS", "finds what looks like a secret"),
];

/// What follows them.
const AFTERWARDS: [(&str, &str, &str); 3] = [
    ("join", "MERGE", "puts the passes' findings together"),
    ("verify", "FLEET", "has the counts checked by a fleet"),
    ("write", "REPORT", "writes the report"),
];

/// The pass that nobody offers when the mission begins.
const MISSING: &str = "SECRETS";

/// The goal of the mission's message.
const GOAL: &str = "AUDIT_FOLDER";

/// A message that is ready to run, and who was made for it.
#[derive(Debug)]
pub struct Ready {
    /// The message.
    pub message: AnyMessage,
    /// Agents that were missing and made.
    pub spawned: Vec<String>,
}

/// From words to a plan that the registry can serve. `tell` hears what happens.
pub fn prepare(words: &str, id: &str, tell: &mut dyn FnMut(String)) -> Result<Ready, ErrReply> {
    let request = Words { id }
        .interpret(words)
        .map_err(|clarify| ErrReply::new(sacp::Code::MalformedMessage, clarify.details))?;
    tell(format!(
        "interface: {words:?} is {} {}",
        request.g,
        acts((&request).into())
    ));
    let mut registry = registry();
    let planned =
        AuditPlanner
            .plan((&request).into(), &registry)
            .map_err(|reply| match *reply {
                Reply::Err(error) => error,
                other => ErrReply::new(sacp::Code::MalformedPlan, format!("{other:?}")),
            })?;
    keeps_constraints(&request, &planned.message)?;
    tell(format!("planner: {}", acts((&planned.message).into())));
    for gap in &planned.missing {
        tell(format!(
            "nobody can {} with {}: {}; spawning",
            gap.verb, gap.tool, gap.code
        ));
    }
    let spawned = spawn_missing(
        Timestamp::EPOCH,
        &planned.message,
        &mut registry,
        &mut Maker,
    )?;
    for name in &spawned {
        tell(format!("spawned {name}"));
    }
    let findings = check_plan(&planned.message, Some(&registry), &Config::default());
    let must = |finding: &&Finding| finding.violation.level == Level::Must;
    if let Some(first) = findings.iter().find(must) {
        let what = first.violation.to_string();
        return Err(ErrReply::new(sacp::Code::MalformedPlan, what));
    }
    Ok(Ready {
        message: planned.message,
        spawned,
    })
}

/// The acts of a message, on one line.
fn acts(message: MessageRef<'_>) -> String {
    let graph = Graph::from(message);
    let steps = graph.steps();
    let named: Vec<String> = steps
        .iter()
        .map(|step| format!("{}/{}", step.act.verb, step.act.tool))
        .collect();
    named.join(", ")
}

/// The interface agent: it knows one sentence.
struct Words<'a> {
    id: &'a str,
}

impl Interface for Words<'_> {
    fn interpret(&self, words: &str) -> Result<Message, Clarify> {
        let folder = words
            .strip_prefix("audit ")
            .filter(|folder| !folder.is_empty());
        let folder =
            folder.ok_or_else(|| Clarify::new(["folder"], "which folder is to be audited?"))?;
        let mut plan = Plan::default();
        plan.push(Act::new("audit", "FOLDER"));
        let mut message = Message::new(GOAL, plan);
        message.msg_id = sacp::NonEmpty::new(self.id);
        message.out_fmt = Some(OutFmt::Raw);
        if let Ok(folder) = RawBuf::from_serialize(folder) {
            message.set_context("folder", folder);
        }
        Ok(message)
    }
}

/// The planner: `audit FOLDER` is five passes side by side, a join, a check and a report.
struct AuditPlanner;

impl Planner for AuditPlanner {
    fn plan(
        &self,
        message: MessageRef<'_>,
        registry: &dyn Registry,
    ) -> Result<Planned, Box<Reply>> {
        let MessageRef::V01(message) = message else {
            return RegistryPlanner::default().plan(message, registry);
        };
        let mut expanded = message.clone();
        expanded.plan = Plan::default();
        expanded.plan.push(Item::group(
            PASSES.map(|(verb, tool, _)| Act::new(verb, tool)),
        ));
        for (verb, tool, _) in AFTERWARDS {
            expanded.plan.push(Act::new(verb, tool));
        }
        RegistryPlanner::default().plan((&expanded).into(), registry)
    }
}

fn registry() -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    for (verb, tool, what) in PASSES.into_iter().chain(AFTERWARDS) {
        if tool != MISSING {
            // The registry's bound is a million; eight fit.
            let _ = register(&mut registry, verb, tool, what);
        }
    }
    registry
}

fn register(
    registry: &mut dyn Registry,
    verb: &str,
    tool: &str,
    what: &str,
) -> Result<String, String> {
    let outputs = RawBuf::from_serialize(&json!("object")).map_err(|err| err.to_string())?;
    let name = format!("{tool}_AGENT");
    let verb_def = VerbDef::new(verb.into(), what.into(), vec![], outputs);
    let tool_def = ToolDef::new(tool.into(), what.into(), vec![verb.into()]);
    let agent = AgentRecord::new(
        name.clone(),
        vec![verb.into()],
        vec![tool.into()],
        vec!["ctx.folder".into()],
        vec!["object".into()],
        what.into(),
    );
    let added = registry
        .add_verb(verb_def)
        .and_then(|()| registry.add_tool(tool_def));
    added
        .and_then(|()| registry.add_agent(agent))
        .map_err(|err| err.to_string())?;
    Ok(name)
}

/// The spawner: it can make the agents whose passes this program knows, and no other.
struct Maker;

impl Spawner for Maker {
    fn spawn(
        &mut self,
        request: MessageRef<'_>,
        registry: &mut dyn Registry,
    ) -> Result<String, String> {
        let graph = Graph::from(request);
        let steps = graph.steps();
        let define = steps
            .first()
            .filter(|step| step.act.verb == "define")
            .ok_or("a request without define")?;
        let known = PASSES
            .into_iter()
            .find(|(_, tool, _)| *tool == define.act.tool);
        let (verb, tool, what) =
            known.ok_or_else(|| format!("nothing here implements {}", define.act.tool))?;
        register(registry, verb, tool, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_plan_with_a_group_a_join_and_one_spawn() {
        let mut told = Vec::new();
        let ready = prepare("audit /a b", "m-1", &mut |line| told.push(line)).unwrap();
        assert_eq!(ready.spawned, ["SECRETS_AGENT"]);
        let graph = Graph::from(&ready.message);
        let steps = graph.steps();
        assert_eq!(
            (steps.len(), steps[5].act.is_join(), &steps[5].after[..]),
            (8, true, &[1, 2, 3, 4, 5][..])
        );
        assert_eq!(
            MessageRef::from(&ready.message).context().unwrap()["folder"].as_str(),
            "\"/a b\""
        );
        assert!(Message::decode(&ready.message.encode()).is_ok());
        assert!(
            told.iter().any(|line| line.contains("UNKNOWN_TOOL")),
            "{told:?}"
        );
    }

    #[test]
    fn other_words_are_asked_back() {
        assert!(
            prepare("make tea", "m", &mut |_| {})
                .unwrap_err()
                .details
                .contains("which folder")
        );
    }

    #[test]
    fn an_agent_for_something_else_cannot_be_made() {
        let mut plan = Plan::default();
        plan.push(Act::new("brew", "TEA"));
        let error = spawn_missing(
            Timestamp::EPOCH,
            &Message::new("TEA", plan),
            &mut registry(),
            &mut Maker,
        )
        .unwrap_err();
        assert_eq!(error.code, sacp::Code::SpawnFailed);
    }
}
