//! The breaches of the mutants, one for each case.

use serde_json::{Map, Value, json};

/// One breach of one rule: in what the executor hears, or in what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// All acts of a plan start together.
    AllAtOnce,
    /// The members of a group run one after another.
    OneByOne,
    /// Inputs stand in the reverse order.
    InputsReversed,
    /// A failed act counts as done.
    FailuresPass,
    /// The failed act is not named.
    NamesNoAct,
    /// Answers do not say what they answer.
    NoReplyTo,
    /// Tools are called in test mode.
    TestModeIgnored,
    /// What is malformed is left out of the plan.
    RunsTheRest,
    /// An empty plan is done.
    EmptyIsDone,
    /// Summaries are prose.
    Prose,
    /// A message in parameters is a parameter.
    SubtaskIsAParameter,
    /// A message behind the plan is not run.
    NoSubtask,
    /// A message that comes again runs again.
    Forgetful,
    /// A message that has ended runs again.
    EndedRuns,
    /// Answers have no results.
    NoResults,
    /// A run cannot be called off.
    NoCancel,
    /// A run that is called off is done.
    CancelledIsDone,
    /// A failure stops nothing.
    GoesOn,
    /// A failure ends the run, whatever its step says.
    AlwaysEnds,
    /// Steps that are named as fallbacks run from the beginning.
    FallbacksStart,
    /// One attempt more than allowed.
    OneMore,
    /// One attempt alone.
    NoRetry,
    /// Waits are all twice as long as the one before.
    AlwaysDoubles,
    /// Waits are all the same.
    NeverDoubles,
    /// Attempts last as long as they like.
    NoTimeout,
    /// Outputs stand under the names of tools.
    OutputsByTool,
    /// The results of steps are a list.
    ResultsAsList,
    /// The error does not name its step.
    NoStepId,
    /// A failed message has a result.
    ResultOfFailure,
    /// An answer has the id of what it answers.
    SameId,
    /// A trace has a member that nobody knows.
    OpenTrace,
    /// A trace is that of the request.
    CopiedTrace,
    /// Steps wait for nothing.
    NothingWaits,
    /// A join stands anywhere.
    LoneJoins,
    /// An empty group is nothing.
    EmptyGroups,
    /// A second step of one id gets another one.
    IdsMadeUp,
    /// Codes are words of its own.
    OwnCodes,
    /// Every version is read.
    AnyVersion,
    /// Every state follows every other.
    AnyState,
    /// A message is done only after every state in between was heard.
    EveryState,
}

impl Flaw {
    /// Changes a line before it is heard.
    pub(super) fn hears(self, line: &mut Value) {
        if matches!(self, Self::NoCancel) && line.get("cancel").is_some() {
            *line = json!({ "time": 0 });
        }
        let Some(message) = line.get_mut("start").and_then(Value::as_object_mut) else {
            return;
        };
        if message.contains_key("sender") {
            match self {
                Self::AnyVersion => drop(message.insert("proto_ver".into(), json!("1.0.0"))),
                Self::TestModeIgnored => drop(message.remove("test_mode")),
                Self::IdsMadeUp => {
                    let mut seen = std::collections::BTreeSet::new();
                    each_step(message, |step| {
                        let id = step.get("id").map(Value::to_string);
                        if !seen.insert(id) {
                            step.insert("id".into(), json!("other"));
                        }
                    });
                }
                _ => each_step(message, |step| self.changes(step)),
            }
        } else {
            self.changes_plan(message);
        }
    }

    /// Changes a message of 0.1 before it is heard.
    fn changes_plan(self, message: &mut Map<String, Value>) {
        let plan = message.get_mut("plan").and_then(Value::as_array_mut);
        let Some(plan) = plan else { return };
        match self {
            Self::AllAtOnce if plan.iter().all(|item| item.is_array()) && !plan.is_empty() => {
                *plan = vec![json!({ "parallel": plan })];
            }
            Self::OneByOne => {
                let items = core::mem::take(plan).into_iter();
                let items = items.flat_map(|item| match item.get("parallel") {
                    Some(members) => members.as_array().cloned().unwrap_or_default(),
                    None => vec![item],
                });
                let is_join = |item: &Value| item.get(0).is_some_and(|verb| verb == "join");
                plan.extend(items.filter(|item| !is_join(item)));
            }
            Self::RunsTheRest => plan.retain(|act| {
                act.get(2).is_none_or(Value::is_object)
                    && act.get(1).is_none_or(|_| act.get(2).is_some())
            }),
            Self::LoneJoins => {
                for item in plan.iter_mut().filter_map(Value::as_array_mut) {
                    if let Some(verb) = item.first_mut().filter(|verb| **verb == "join") {
                        *verb = json!("do");
                    }
                }
            }
            Self::EmptyGroups => plan.retain(|item| item.get("parallel") != Some(&json!([]))),
            Self::SubtaskIsAParameter => {
                for params in plan
                    .iter_mut()
                    .filter_map(|act| act.get_mut(2)?.as_object_mut())
                {
                    params.remove("subtask");
                }
            }
            Self::TestModeIgnored => drop(message.remove("test_mode")),
            Self::NoSubtask => drop(message.remove("subtask")),
            Self::EndedRuns => drop(message.remove("state")),
            _ => {}
        }
    }

    /// Changes a step of 1.0 before it is heard.
    fn changes(self, step: &mut Map<String, Value>) {
        let mut retry = |name: &str, value: Value| {
            if let Some(retry) = step.get_mut("retry") {
                retry[name] = value;
            }
        };
        match self {
            Self::GoesOn => drop(step.insert("on_error".into(), json!("continue"))),
            Self::AlwaysEnds => drop(step.remove("on_error")),
            Self::FallbacksStart => {
                step.remove("on_error");
                step.remove("fallback_step");
                step.remove("depends_on");
            }
            Self::OneMore => retry("max_attempts", json!(3)),
            Self::NoRetry => drop(step.remove("retry")),
            Self::AlwaysDoubles => retry("strategy", json!("exponential")),
            Self::NeverDoubles => retry("strategy", json!("fixed")),
            Self::NoTimeout => drop(step.remove("timeout_ms")),
            Self::OutputsByTool if step.contains_key("output_key") => {
                let tool = step.get("tool").cloned();
                step.insert("output_key".into(), tool.into());
            }
            Self::NothingWaits => drop(step.remove("depends_on")),
            _ => {}
        }
    }

    /// Changes what is said of a line that was heard.
    pub(super) fn says(self, told: &Value, said: &mut [Value]) {
        for line in said {
            if let Some(inputs) = line.get_mut("inputs").and_then(Value::as_array_mut)
                && self == Self::InputsReversed
            {
                inputs.reverse();
            }
            if self == Self::AnyState && line.get("refused").is_some() {
                *line = json!({ "state": told.pointer("/heard/state") });
            }
            if self == Self::EveryState && line.get("state").is_some_and(|state| state == "DONE") {
                *line = json!({ "refused": "INVALID_STATE" });
            }
            if let Some(answer) = line.get_mut("answer") {
                self.answers(told, answer);
            }
        }
    }

    fn answers(self, told: &Value, answer: &mut Value) {
        let (was_done, was_failed) = (answer["state"] == "DONE", answer["state"] == "FAILED");
        let is_error = answer["code"] == "STEP_FAILED";
        let Some(members) = answer.as_object_mut() else {
            return;
        };
        match self {
            Self::FailuresPass if is_error => {
                *answer =
                    json!({"g": "G", "plan": [], "state": "DONE", "reply_to": "m", "ctx": {}});
            }
            Self::NamesNoAct => {
                members.remove("pointer");
                if is_error {
                    members.insert("details".into(), json!("it failed"));
                }
            }
            Self::NoReplyTo => drop(members.remove("reply_to")),
            Self::EmptyIsDone if members.get("missing").is_some() => {
                *answer = json!({"g": "G", "plan": [], "state": "DONE", "reply_to": "m"});
            }
            Self::Prose if members.get("out_fmt").is_some_and(|form| form == "summary") => {
                *answer = json!("It is done.")
            }
            Self::NoResults if !members.contains_key("sender") => drop(members.remove("ctx")),
            Self::CancelledIsDone if answer["state"] == "CANCELLED" => {
                answer["state"] = json!("DONE");
                answer["result"] = json!({"outputs": {}});
            }
            Self::ResultsAsList if was_done => put(answer, "result", "step_results", json!([])),
            Self::NoStepId if was_failed => {
                let error = answer["error"].as_object_mut();
                error
                    .into_iter()
                    .for_each(|error| drop(error.remove("step_id")));
            }
            Self::OwnCodes if was_failed => put(answer, "error", "code", json!("went wrong")),
            Self::ResultOfFailure if was_failed => answer["result"] = json!({"outputs": {}}),
            Self::SameId => answer["msg_id"] = json!("m"),
            Self::OpenTrace => put(answer, "trace", "host", json!("h")),
            Self::CopiedTrace => {
                let asked =
                    json!({"trace_id": "t", "span_id": "s-1", "metrics": {"tool_calls": 99}});
                if told.get("cancel").is_none() {
                    answer["trace"] = asked;
                }
            }
            _ => {}
        }
    }
}

/// Sets a member of a member.
fn put(value: &mut Value, member: &str, name: &str, new: Value) {
    let member = value.get_mut(member).and_then(Value::as_object_mut);
    member.and_then(|member| member.insert(name.to_owned(), new));
}

fn each_step(message: &mut Map<String, Value>, mut change: impl FnMut(&mut Map<String, Value>)) {
    let steps = message.get_mut("plan").and_then(Value::as_array_mut);
    for step in steps.into_iter().flatten() {
        step.as_object_mut().into_iter().for_each(&mut change);
    }
}
