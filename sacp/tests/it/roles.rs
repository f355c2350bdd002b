//! Interface, Planner, Executor, Formatter, discipline, inbox.

use core::time::Duration;
use sacp::Graph;
use sacp::Item;
use sacp::role::Answer;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;

use sacp::registry::{MemoryRegistry, Registry};
use sacp::role::{
    AnswerForm, Arrival, Executor, Formatter, Inbox, Interface, LocalExecutor, ModelInterface,
    PlainFormatter, Planner, RegistryPlanner, admit, answer_alone, keeps_constraints,
};
use sacp::runner::{Cause, Config, Recovery, Rule, StepInputs};
use sacp::{Act, AnyMessage, Code, Message, OutFmt, Plan, Reply, Retry, State};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::registry::{agent, tool, verb};

fn now() -> Now {
    Now::new(Mono::ZERO, Timestamp::EPOCH)
}

pub(crate) fn message(text: &str) -> Message {
    Message::decode(text.as_bytes()).unwrap()
}

fn raw(text: &str) -> RawBuf {
    RawBuf::parse(text).unwrap()
}

fn library() -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    registry.add_verb(verb("search", &["find"])).unwrap();
    registry.add_verb(verb("predict", &[])).unwrap();
    registry.add_verb(verb("present", &[])).unwrap();
    for (id, about, of) in [
        ("H_API", "finds hotels", "search"),
        ("F_API", "finds flights", "search"),
        ("PRC_EST", "estimates prices", "predict"),
        ("PRES", "writes for people", "present"),
    ] {
        let mut tool = tool(id, &[of]);
        tool.description = about.into();
        registry.add_tool(tool).unwrap();
        registry
            .add_agent(agent(&format!("{id}_AGENT"), of, id, None))
            .unwrap();
    }
    registry
}

/// A model that gives these answers one after the other, and keeps what it was asked.
struct Scripted {
    answers: RefCell<Vec<&'static str>>,
    asked: RefCell<Vec<String>>,
}

impl Scripted {
    fn new(answers: &[&'static str]) -> Self {
        let answers = RefCell::new(answers.iter().rev().copied().collect());
        let asked = RefCell::default();
        Self { answers, asked }
    }

    fn say(&self, prompt: &str) -> String {
        self.asked.borrow_mut().push(prompt.to_owned());
        let answer = self.answers.borrow_mut().pop();
        answer.expect("no further question").to_owned()
    }
}

// spec: SACP-9-2
#[test]
fn words_become_a_message_whose_pairs_are_registered_and_that_ends_in_a_formatter() {
    let registry = library();
    let words = "Find hotels in New York for at most $1,200.00, and do not search for flights";
    let model = Scripted::new(&[
        // Prose, a verb that is not registered, a limit that is dropped, and at last the message.
        r#"{"g":"STAY","ctx":{"budget":1200},"plan":[["stay","H_API",{}]]}"#,
        r#"{"g":"STAY","ctx":{},"plan":[["search","H_API",{"city":"New York"}]]}"#,
        r#"{"g":"STAY","ctx":{"budget":1200,"forbidden_tools":["F_API"]},"plan":[["search","H_API",{"city":"New York"}]]}"#,
    ]);
    let interface = ModelInterface::new(&registry, ["H_API_AGENT"], |prompt| model.say(prompt))
        .with_formatter("present", "PRES");
    let made = interface.interpret(words).unwrap();
    assert_eq!(Message::decode(&made.encode()).unwrap(), made);
    let graph = Graph::from(&made.plan);
    let tools: Vec<_> = graph
        .steps()
        .iter()
        .map(|step| step.act.tool.as_str())
        .collect();
    assert_eq!(tools, ["H_API", "PRES"]);
    assert!(sacp::check::gaps(&made, &registry).is_empty());
    assert_eq!(
        (made.out_fmt(), made.state(), made.msg_id.is_some()),
        (OutFmt::Human, State::Pending, true)
    );
    let asked = model.asked.borrow();
    assert!(asked[0].contains("forbidden_tools") && asked[0].contains("H_API_AGENT"));
    assert!(asked[1].contains("stay with H_API"), "{}", asked[1]);
    assert!(asked[2].contains("the words say 1200"), "{}", asked[2]);
}

// spec: SACP-9-2
#[test]
fn what_words_do_not_tell_is_asked_back() {
    let mut registry = library();
    let mut hire = verb("hire", &[]);
    hire.inputs = vec![raw(r#"{"name":"days","type":"integer"}"#)];
    registry.add_verb(hire).unwrap();
    registry.add_tool(tool("CARS", &["hire"])).unwrap();
    registry
        .add_agent(agent("CARS_AGENT", "hire", "CARS", None))
        .unwrap();
    let ask = |words: &str, answers: &[&'static str]| {
        let model = Scripted::new(answers);
        let interface = ModelInterface::new(&registry, [], |prompt| model.say(prompt));
        interface.interpret(words).unwrap_err()
    };
    assert_eq!(ask("  ", &[]).missing, ["g"]);
    // What the model asks, and what its plan lacks, is asked at once.
    let question = r#"{"status":"REQ_CLARIFY","missing":["city"],"details":"where?"}"#;
    assert_eq!(ask("hotels", &[question]).missing, ["city"]);
    let hire = r#"{"g":"CAR","plan":[["hire","CARS",{}]]}"#;
    assert_eq!(ask("a car", &[hire]).missing, ["days"]);
    // A limit that the model drops to the end is not dropped in silence.
    let car = r#"{"g":"CAR","plan":[["hire","CARS",{"days":3}]]}"#;
    let unclear = ask("a car for 3 days below 99.50", &[car, car, car]);
    assert!(unclear.details.contains("99.5"), "{unclear:?}");
    let prose = ask("a car", &["Sure!", "Sure!", "Sure!"]);
    assert_eq!(prose.missing, ["g"]);
    // Advice is no reason to ask.
    let red = r#"{"g":"CAR","plan":[["hire","CARS",{"days":3,"colour":"red"}]]}"#;
    let model = Scripted::new(&[red]);
    let interface = ModelInterface::new(&registry, [], |prompt| model.say(prompt));
    assert!(interface.interpret("a red car for 3 days").is_ok());
    let years = r#"{"g":"CAR","plan":[["hire","CARS",{"days":1200}]]}"#;
    let model = Scripted::new(&[years]);
    let interface = ModelInterface::new(&registry, [], |prompt| model.say(prompt));
    assert!(interface.interpret("1,200 days with a car").is_ok());
}

// spec: SACP-12-1
#[test]
fn a_goal_finds_the_agent_whose_description_is_nearest() {
    use sacp::registry::{Embedder, EmbeddingRecord, NGrams, RegistryError};
    let mut registry = library();
    let grams = NGrams::default();
    let described = |text: &str| {
        grams
            .embed(text)
            .unwrap()
            .into_iter()
            .map(f64::from)
            .collect::<Vec<_>>()
    };
    let record =
        |agent: &str, text: &str| EmbeddingRecord::new(agent.into(), described(text), text.into());
    registry
        .set_embedding(&record(
            "PRC_EST_AGENT",
            "forecasting pricing data by regression",
        ))
        .unwrap();
    registry
        .set_embedding(&record("H_API_AGENT", "hotels and rooms"))
        .unwrap();
    let nearest = |registry: &MemoryRegistry| {
        let goal = grams.embed("a forecast of pricing").unwrap();
        let found = registry.similar(&goal, 1, 0.3).unwrap();
        found.first().map(|near| near.agent.agent_name.clone())
    };
    assert_eq!(nearest(&registry).as_deref(), Some("PRC_EST_AGENT"));
    let unknown = registry.set_embedding(&record("NOBODY", "x")).unwrap_err();
    assert_eq!(
        unknown,
        RegistryError::UnknownAgent {
            agent: "NOBODY".into()
        }
    );
    // It replaces what was there.
    registry
        .set_embedding(&record("PRC_EST_AGENT", "knitting"))
        .unwrap();
    assert_eq!(nearest(&registry), None);
}

// spec: SACP-9-1
#[test]
fn a_planner_expands_keeps_what_is_the_senders_and_names_what_cannot_be_done() {
    let mut steps = Plan::default();
    steps.push(Item::group([
        Act::new("search", "H_API"),
        Act::new("fetch", "WEATHER"),
    ]));
    steps.push(Act::join("MERGE"));
    let planner = RegistryPlanner::default().with_recipe("plan", "TRIP", steps);
    let request = message(
        r#"{"msg_id":"m","g":"TRIP","ctx":{"a":1},"plan":[["plan","TRIP",{}],["predict","PRC_EST",{}]]}"#,
    );
    let planned = planner.plan((&request).into(), &library()).unwrap();
    assert_eq!(Graph::from(&planned.message).steps().len(), 4);
    keeps_constraints(&request, &planned.message).unwrap();
    let missing: Vec<_> = planned
        .missing
        .iter()
        .map(|gap| (gap.number, gap.code))
        .collect();
    assert_eq!(missing, [(2, Code::UnknownVerb)]);
    let AnyMessage::V01(planned) = planned.message else {
        panic!("another edition");
    };
    let mut changed = planned.clone();
    changed.set_context("a", raw("2"));
    assert_eq!(
        keeps_constraints(&request, &*changed)
            .unwrap_err()
            .pointer
            .as_deref(),
        Some("/ctx/a")
    );
    let mut changed = planned;
    changed.out_fmt = Some(OutFmt::Human);
    assert_eq!(
        keeps_constraints(&request, &*changed)
            .unwrap_err()
            .pointer
            .as_deref(),
        Some("/out_fmt")
    );
}

// spec: SACP-9-1
#[test]
fn a_recipe_of_one_entry_stands_in_a_group_and_a_longer_one_does_not() {
    let recipe = |tools: &[&str]| {
        let mut steps = Plan::default();
        tools
            .iter()
            .for_each(|tool| steps.push(Act::new("search", tool)));
        steps
    };
    let planner = RegistryPlanner::default()
        .with_recipe("plan", "ONE", recipe(&["H_API"]))
        .with_recipe("plan", "TWO", recipe(&["H_API", "F_API"]));
    let request = message(
        r#"{"g":"G","plan":[{"parallel":[["plan","ONE",{}],{"parallel":[["plan","ONE",{}],["plan","TWO",{}]]}]}]}"#,
    );
    let planned = planner.plan((&request).into(), &library()).unwrap();
    let graph = Graph::from(&planned.message);
    let tools: Vec<_> = graph.steps().iter().map(|step| &*step.act.tool).collect();
    assert_eq!(tools, ["H_API", "H_API", "TWO"]);
}

// spec: SACP-9-1
#[test]
fn a_step_of_1_0_is_expanded_in_its_place() {
    let mut steps = Plan::default();
    steps.push(Act::new("search", "F_API"));
    steps.push(Item::group([
        Act::new("search", "H_API"),
        Act::new("predict", "PRC_EST"),
    ]));
    let planner = RegistryPlanner::default().with_recipe("plan", "TRIP", steps);
    let plan = |policy: &str| {
        let text = format!(
            r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING","plan":[
            {{"id":"a","verb":"search","tool":"H_API","params":{{}}}},
            {{"id":"b","verb":"plan","tool":"TRIP","params":{{}},"depends_on":["a"],{policy}}},
            {{"id":"c","verb":"present","tool":"PRES","params":{{}},"depends_on":["b"]}}]}}"#
        );
        let (request, _) = AnyMessage::decode(text.as_bytes()).unwrap();
        let planned = planner.plan((&request).into(), &library()).unwrap();
        keeps_constraints(&request, &planned.message).unwrap();
        // What was planned is valid.
        AnyMessage::decode(&planned.message.encode()).unwrap();
        let steps: Vec<(String, String, Vec<usize>, Option<String>)> =
            Graph::from(&planned.message)
                .steps()
                .iter()
                .map(|s| {
                    (
                        s.id.clone(),
                        s.act.tool.clone(),
                        s.after.to_vec(),
                        s.policy.output_key.clone(),
                    )
                })
                .collect();
        (steps, planned.missing.len())
    };
    let step = |id: &str, tool: &str, after: &[usize], output: Option<&str>| {
        (
            id.to_owned(),
            tool.to_owned(),
            after.to_vec(),
            output.map(str::to_owned),
        )
    };
    let (steps, missing) = plan(r#""output_key":"trip""#);
    assert_eq!(
        steps,
        [
            step("a", "H_API", &[], None),
            step("b.1", "F_API", &[1], None),
            step("b.2", "H_API", &[2], None),
            step("b.3", "PRC_EST", &[2], None),
            step("b", "MERGE", &[3, 4], Some("trip")),
            step("c", "PRES", &[5], None),
        ]
    );
    assert_eq!(missing, 0);
    // Several steps have no one fallback: the step stays, and is named as missing.
    let falls = r#""on_error":"fallback","fallback_step":"c""#;
    let (steps, missing) = plan(falls);
    assert_eq!((steps.len(), missing), (3, 1));
    // One step has.
    let mut alone = Plan::default();
    alone.push(Act::new("search", "F_API"));
    let planner = RegistryPlanner::default().with_recipe("plan", "TRIP", alone);
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING","plan":[
        {{"id":"b","verb":"plan","tool":"TRIP","params":{{}},{falls}}},{{"id":"c","verb":"present","tool":"PRES","params":{{}}}}]}}"#
    );
    let (request, _) = AnyMessage::decode(text.as_bytes()).unwrap();
    let planned = planner.plan((&request).into(), &library()).unwrap();
    let graph = Graph::from(&planned.message);
    assert_eq!(
        (planned.missing.len(), &*graph.steps()[0].act.tool),
        (0, "F_API")
    );
}

// spec: SACP-9-1
#[test]
fn a_planner_of_1_0_keeps_what_is_the_senders() {
    let of = |sender: &str, rest: &str| {
        let text = format!(
            r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"{sender}","g":"G","plan":[{{"id":"s","verb":"v","tool":"T","params":{{}}}}],"state":"PENDING"{rest}}}"#
        );
        AnyMessage::decode(text.as_bytes()).unwrap().0
    };
    let before = of("s", r#","ctx":{"budget":1},"test_mode":true"#);
    let changed = |after: &AnyMessage| {
        let changed = keeps_constraints(&before, after).unwrap_err();
        assert_eq!(changed.reply_to.as_deref(), Some("m"));
        changed.pointer.unwrap()
    };
    keeps_constraints(&before, &before).unwrap();
    let more = of("s", r#","ctx":{"budget":2},"test_mode":true"#);
    assert_eq!(changed(&more), "/ctx/budget");
    assert_eq!(changed(&of("s", r#","ctx":{"budget":1}"#)), "/test_mode");
    assert_eq!(changed(&of("t", "")), "/sender");
    let old = AnyMessage::from(message(r#"{"msg_id":"m","g":"G","plan":[]}"#));
    assert_eq!(changed(&old), "/proto_ver");
}

fn executor() -> LocalExecutor {
    LocalExecutor::default()
        .with("get", "ONE", |_, _, _| Ok(raw("1")))
        .with("join", "SUM", |_, _, inputs: &StepInputs| {
            Ok(raw(&inputs.len().to_string()))
        })
        .with("break", "IT", |_, _, _| Err(Cause::tool("broken")))
}

// spec: SACP-9-1
#[test]
fn an_executor_runs_every_act_and_answers_structured() {
    let request = message(
        r#"{"msg_id":"m","g":"G","plan":[{"parallel":[["get","ONE",{}],["get","ONE",{}]]},["join","SUM",{}]],"out_fmt":"human"}"#,
    );
    let reply = answer_alone(
        now(),
        &request,
        &executor(),
        Config::default(),
        &mut IdSource::seeded(1),
    );
    let Reply::Message(answer) = reply else {
        panic!("{reply:?}")
    };
    let ctx = answer.context.unwrap();
    assert_eq!(
        (ctx["result"].as_str(), ctx["results"].as_str()),
        ("2", r#"{"1":1,"2":1,"3":2}"#)
    );
    assert_eq!(
        (answer.out_fmt, answer.state),
        (Some(OutFmt::Raw), Some(State::Done))
    );
    let failing = message(r#"{"g":"G","plan":[["break","IT",{}]]}"#);
    let reply = answer_alone(
        now(),
        &failing,
        &executor(),
        Config::default(),
        &mut IdSource::seeded(1),
    );
    assert!(matches!(reply, Reply::Err(error) if error.code == Code::StepFailed));
}

#[test]
fn a_single_agent_tries_again_without_a_wait() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let executor = LocalExecutor::default().with("get", "ONE", move |_, _, _| {
        match tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(Cause::tool("busy")),
            _ => Ok(raw("1")),
        }
    });
    let rule = Rule {
        recoveries: vec![Recovery::Retry(Retry::fixed(2, Duration::from_secs(60)))],
        ..Rule::default()
    };
    let config = Config::default().with_rule(rule);
    let request = message(r#"{"g":"G","plan":[["get","ONE",{}]]}"#);
    let reply = answer_alone(now(), &request, &executor, config, &mut IdSource::seeded(1));
    assert!(matches!(reply, Reply::Message(_)), "{reply:?}");
}

// spec: SACP-3-3
#[test]
fn no_later_act_runs_once_one_has_failed() {
    let executor = executor().with("see", "IT", |_, _, _| {
        panic!("a failed message runs no further act")
    });
    let request = message(
        r#"{"g":"G","plan":[{"parallel":[["break","IT",{}],["see","IT",{}]]},["see","IT",{}]]}"#,
    );
    let reply = answer_alone(
        now(),
        &request,
        &executor,
        Config::default(),
        &mut IdSource::seeded(1),
    );
    assert!(matches!(reply, Reply::Err(error) if error.details == "act 1: broken"));
}

// spec: SACP-13-2
#[test]
fn an_agent_runs_nothing_of_a_plan_of_which_one_act_is_not_its_own() {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let executor = LocalExecutor::default().with("get", "ONE", move |_, _, _| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(raw("1"))
    });
    assert!(executor.owns(&Act::new("get", "ONE")) && !executor.owns(&Act::new("get", "TWO")));
    for plan in [
        r#"[["get","ONE",{}],["get","TWO",{}]]"#,
        r#"[["get","ONE",{}],["get","ONE",{"subtask":{"g":"H","plan":[["put","ONE",{}]]}}]]"#,
    ] {
        let request = message(&format!(r#"{{"msg_id":"m","g":"G","plan":{plan}}}"#));
        let reply = answer_alone(
            now(),
            &request,
            &executor,
            Config::default(),
            &mut IdSource::seeded(1),
        );
        let Reply::Err(error) = reply else {
            panic!("{reply:?}")
        };
        assert_eq!(
            (error.code, error.reply_to.as_deref()),
            (Code::UnknownVerb, Some("m"))
        );
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

// spec: SACP-9-1
#[test]
fn a_formatter_sorts_localizes_and_writes_prose() {
    let formatter = PlainFormatter;
    let of = |ctx: &str| {
        let message = message(&format!(r#"{{"g":"G","plan":[],"ctx":{ctx}}}"#));
        formatter.format((&message).into())
    };
    let list = r#""result":[{"n":"b","p":2.5},{"n":"a","p":10},{"n":"c"}]"#;
    assert_eq!(
        of(&format!(r#"{{{list},"sort":"p"}}"#)),
        "G \u{2013} Result:\n- n: b, p: 2.5\n- n: a, p: 10\n- n: c\n"
    );
    assert_eq!(
        of(&format!(r#"{{{list},"sort":"-n","lang":"de-AT"}}"#)),
        "G \u{2013} Ergebnis:\n- n: c\n- n: b, p: 2,5\n- n: a, p: 10\n"
    );
    assert_eq!(of(r#"{"lang":"fr"}"#), "G \u{2013} aucun résultat.\n");
    assert_eq!(
        of(r#"{"result":{"ok":true,"at":"x\ny"},"lang":"xx"}"#),
        "G \u{2013} Result:\nat: x y\nok: yes\n"
    );
    assert_eq!(of(r#"{"result":3}"#), "G \u{2013} Result: 3\n");
}

// spec: SACP-9-1
#[test]
fn a_formatter_writes_the_answers_of_1_0_too() {
    let of = |rest: &str| {
        let text = format!(
            r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","plan":[{{"id":"s","verb":"v","tool":"T","params":{{}}}}],"ctx":{{"lang":"de","sort":"p"}},{rest}}}"#
        );
        let (message, _) = AnyMessage::decode(text.as_bytes()).unwrap();
        PlainFormatter.format((&message).into())
    };
    let done = |outputs: &str| {
        of(&format!(
            r#""state":"DONE","result":{{"outputs":{outputs}}}"#
        ))
    };
    assert_eq!(
        done(r#"{"result":[{"p":2.5},{"p":1}]}"#),
        "G \u{2013} Ergebnis:\n- p: 1\n- p: 2,5\n"
    );
    assert_eq!(
        done(r#"{"b":true,"result":1}"#),
        "G \u{2013} Ergebnis:\nb: ja\nresult: 1\n"
    );
    assert_eq!(done("{}"), "G \u{2013} kein Ergebnis.\n");
    assert_eq!(
        of(r#""state":"FAILED","error":{"code":"TIMEOUT","message":"too\nlate"}"#),
        "G \u{2013} kein Ergebnis: too late.\n"
    );
}

// spec: SACP-4-1
#[test]
fn only_those_who_may_speak_answer_in_prose() {
    let refused = |answer: &[u8], voice| admit(answer, voice).unwrap_err().code;
    assert_eq!(
        refused(b"It rains.", AnswerForm::Structured),
        Code::OutFmtViolation
    );
    assert_eq!(
        refused(b"\"It rains.\"", AnswerForm::Structured),
        Code::OutFmtViolation
    );
    assert_eq!(
        refused(b"[1]", AnswerForm::Structured),
        Code::OutFmtViolation
    );
    assert_eq!(
        refused(
            b"```json\n{\"status\":\"VALID\"}\n```",
            AnswerForm::Structured
        ),
        Code::OutFmtViolation
    );
    assert_eq!(refused(b"\xff", AnswerForm::Prose), Code::OutFmtViolation);
    assert_eq!(
        refused(b"{\"answer\":1}", AnswerForm::Prose),
        Code::MissingField
    );
    assert_eq!(
        admit(b"It rains.", AnswerForm::Prose),
        Ok(Answer::Prose("It rains.".into()))
    );
    for answer in [
        r#"{"g":"G","plan":[]}"#,
        r#"{"status":"VALID"}"#,
        r#"{"status":"ERR","code":"STEP_FAILED","details":"x"}"#,
        r#"{"status":"REQ_CLARIFY","missing":["a"],"details":"x"}"#,
    ] {
        assert!(
            matches!(
                admit(answer.as_bytes(), AnswerForm::Structured),
                Ok(Answer::Reply(_))
            ),
            "{answer}"
        );
    }
}

// spec: SACP-1-3
#[test]
fn a_message_that_comes_again_gets_the_same_answer_and_runs_nothing() {
    let mut inbox = Inbox::new(NonZeroUsize::new(2).unwrap());
    let named = |id: &str, g: &str| message(&format!(r#"{{"msg_id":"{id}","g":"{g}","plan":[]}}"#));
    assert_eq!(inbox.receive(&named("a", "G")), Ok(Arrival::New));
    assert_eq!(inbox.receive(&named("a", "G")), Ok(Arrival::Underway));
    let answer = Arc::new(Reply::Valid { reply_to: None });
    inbox.answered("a", Arc::clone(&answer));
    assert_eq!(
        inbox.receive(&named("a", "G")),
        Ok(Arrival::Answered(answer))
    );
    let other = inbox.receive(&named("a", "H")).unwrap_err();
    assert_eq!(
        (other.code, other.pointer.as_deref()),
        (Code::MalformedMessage, Some("/msg_id"))
    );
    let nameless = message(r#"{"g":"G","plan":[]}"#);
    assert_eq!(
        (inbox.receive(&nameless), inbox.receive(&nameless)),
        (Ok(Arrival::New), Ok(Arrival::New))
    );
    // At the bound the oldest that was answered goes; while none was, a new one is refused.
    inbox.receive(&named("b", "G")).unwrap();
    inbox.receive(&named("c", "G")).unwrap();
    assert_eq!(
        inbox.receive(&named("d", "G")).unwrap_err().code,
        Code::InternalError
    );
    inbox.answered("c", Arc::new(Reply::Valid { reply_to: None }));
    assert_eq!(inbox.receive(&named("d", "G")), Ok(Arrival::New));
    assert_eq!(inbox.receive(&named("b", "G")), Ok(Arrival::Underway));
}

pub(crate) fn new_message(more: &str) -> sacp::v1::Message {
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G",
        "plan":[{{"id":"a","verb":"get","tool":"ONE","params":{{}},"output_key":"one"}}],{more}}}"#
    );
    sacp::v1::Message::decode(text.as_bytes()).unwrap()
}

// spec: SACP-9-1
#[test]
fn a_single_agent_answers_messages_of_both_editions() {
    let executor = LocalExecutor::default().with("get", "ONE", |_, _, _| Ok(raw("1")));
    let alone = |message: &sacp::v1::Message| {
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        let mut ids = IdSource::seeded(1);
        let reply = answer_alone(now, message, &executor, Config::default(), &mut ids);
        let Reply::V10(answer) = reply else {
            panic!("{reply:?}")
        };
        // What is sent can be read.
        sacp::v1::Message::decode(&answer.encode()).unwrap()
    };
    let done = alone(&new_message(r#""state":"PENDING""#));
    assert_eq!(done.result.unwrap().outputs["one"].as_str(), "1");
    assert_eq!(
        (done.reply_to.as_deref(), done.recipient.as_deref()),
        (Some("m"), Some("s"))
    );
    let over = alone(&new_message(r#""state":"CANCELLED""#));
    assert_eq!(
        *over.error.unwrap().code,
        sacp::v1::Code::InvalidStateTransition
    );
    let mut rehearsal = new_message(r#""state":"PENDING""#);
    rehearsal.test_mode = Some(true);
    let simulated = alone(&rehearsal).result.unwrap();
    assert_ne!(simulated.outputs["one"].as_str(), "1");
}

#[test]
fn an_inbox_takes_messages_of_both_editions() {
    let mut inbox = Inbox::new(NonZeroUsize::new(2).unwrap());
    let new = new_message(r#""state":"PENDING""#);
    assert_eq!(inbox.receive(&new).unwrap(), Arrival::New);
    assert_eq!(inbox.receive(&new).unwrap(), Arrival::Underway);
    let old = message(r#"{"msg_id":"m","g":"G","plan":[]}"#);
    assert_eq!(
        inbox.receive(&old).unwrap_err().code,
        Code::MalformedMessage
    );
}

#[test]
fn prose_is_in_the_language_that_is_asked_for() {
    let said = ["es", "fr", "de", "en", "es-MX"].map(|lang| {
        let text = format!(r#"{{"g":"G","plan":[],"ctx":{{"lang":"{lang}","result":[1.5]}}}}"#);
        PlainFormatter.format((&Message::decode(text.as_bytes()).unwrap()).into())
    });
    let different: std::collections::BTreeSet<_> = said[..4].iter().collect();
    assert_eq!((different.len(), &said[4]), (4, &said[0]), "{said:?}");
}
