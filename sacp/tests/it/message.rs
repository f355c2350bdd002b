//! The validator: what is taken, what is refused, and with which code.

use proptest::prelude::*;
use sacp::MessageView;
use sacp::{Code, Message, OutFmt, Plan, Reply, State};
use ubos_common::json;
use ubos_common::violation::{Level, Profile, Report};

fn validate(text: &[u8]) -> Result<(Message, Report), json::DecodeError> {
    json::decode(text, &json::Limits::default(), Profile::Strict)
}

fn code(text: &str) -> (Code, String) {
    match validate(text.as_bytes()) {
        Err(refused) => match Reply::from(&refused) {
            Reply::Err(error) => (error.code, error.pointer.unwrap_or_default()),
            other => panic!("{other:?}"),
        },
        Ok(_) => panic!("taken: {text}"),
    }
}

fn plan_code(plan: &str) -> (Code, String) {
    code(&format!("{{\"g\":\"G\",\"plan\":{plan}}}"))
}

const HOTEL: &str = r#"{"msg_id":"abc123","g":"FIND_HOTEL","ctx":{"loc":"Paris","in":"06-01","out":"06-05","bdg":150,
    "am":["wifi","bf"]},"plan":[["s","H_API",{"c":"Paris","p_max":150}],["r","RANK",{"c":["p","rt"]}],
    ["p","PRES",{"n":5}]],"out_fmt":"human","state":"PENDING"}"#;
const FEEDBACK: &str = r#"{"msg_id":"task-9823","g":"SUMMARIZE_FEEDBACK","ctx":{"lang":"en","test_mode":true},
    "plan":[["extract","FEEDBACK_DOC",{"range":"Q2"}],["analyze","SENTIMENT",{}],["generate","SUMMARY",{"length":"short"}]],
    "out_fmt":"human","state":"PENDING"}"#;
const SPAWN: &str = r#"{"g":"SPAWN_AGENT","ctx":{"missing_capability":"visa_requirements_check",
    "input_hints":["citizenship","destination_country","travel_dates"],"output_expectation":"visa_required: true/false"},
    "plan":[["define","VISA_QUERY",{"description":"Checks visa requirements for a citizen traveling to a country",
    "inputs":["nationality","destination"],"outputs":["visa_required"]}],
    ["instantiate","VISA_AGENT",{"tool":"VISA_QUERY","verb":"check"}]],"out_fmt":"raw"}"#;

#[test]
fn the_samples_are_valid_and_write_back_equal() {
    for sample in [HOTEL, FEEDBACK, SPAWN] {
        let (message, report) = validate(sample.as_bytes()).unwrap();
        assert!(report.is_empty(), "{report}");
        let (ours, theirs): (serde_json::Value, serde_json::Value) = (
            serde_json::from_slice(&message.encode()).unwrap(),
            serde_json::from_str(sample).unwrap(),
        );
        assert_eq!(ours, theirs);
    }
    assert!(Message::decode(FEEDBACK.as_bytes()).unwrap().is_test());
    assert_eq!(
        Message::decode(HOTEL.as_bytes()).unwrap().out_fmt(),
        OutFmt::Human
    );
}

// spec: SACP-2-1
#[test]
fn goal_and_plan_are_required() {
    assert_eq!(code("{\"plan\":[]}"), (Code::MissingField, "/g".into()));
    assert_eq!(code("{\"g\":\"G\"}"), (Code::MissingField, "/plan".into()));
    assert_eq!(
        code("{\"g\":\"\",\"plan\":[]}"),
        (Code::MalformedMessage, "/g".into())
    );
    assert_eq!(
        code("{\"g\":7,\"plan\":[]}"),
        (Code::MalformedMessage, "/g".into())
    );
    assert_eq!(plan_code("{}"), (Code::MalformedPlan, "/plan".into()));
}

// spec: SACP-2-2
#[test]
fn an_act_is_verb_tool_and_params() {
    for (plan, pointer) in [
        (r#"[["a","T"]]"#, "/plan/0"),
        (r#"[["a","T",{},1]]"#, "/plan/0"),
        (r#"[["a","T",{}],["","T",{}]]"#, "/plan/1/0"),
        (r#"[["a",7,{}]]"#, "/plan/0/1"),
        (r#"[["a","T",[]]]"#, "/plan/0/2"),
        (r#"["a"]"#, "/plan/0"),
        (
            r#"[{"parallel":[["a","T",{}],["b","T"]]}]"#,
            "/plan/0/parallel/1",
        ),
    ] {
        assert_eq!(
            plan_code(plan),
            (Code::MalformedPlan, pointer.into()),
            "{plan}"
        );
    }
    let Err(refused) = validate(br#"{"g":"G","plan":[["a","T",{}],["b","T"]]}"#) else {
        panic!("taken")
    };
    assert!(json::to_string(&Reply::from(&refused)).contains("act 2"));
}

// spec: SACP-2-3
#[test]
fn groups_and_joins_stand_where_they_may() {
    for good in [
        r#"[{"parallel":[["a","T",{}]]}]"#,
        r#"[{"parallel":[["a","T",{}],{"parallel":[["b","T",{}]]}]},["join","J",{}]]"#,
        r#"[{"parallel":[["a","T",{}]]},["b","T",{}]]"#,
    ] {
        assert!(
            validate(format!("{{\"g\":\"G\",\"plan\":{good}}}").as_bytes()).is_ok(),
            "{good}"
        );
    }
    for bad in [
        r#"[["join","J",{}]]"#,
        r#"[["a","T",{}],["join","J",{}]]"#,
        r#"[{"parallel":[["a","T",{}]]},["join","J",{}],["join","J",{}]]"#,
        r#"[{"parallel":[["a","T",{}],["join","J",{}]]}]"#,
        r#"[{"parallel":[]}]"#,
        r#"[{}]"#,
        r#"[{"parallel":[["a","T",{}]],"name":1}]"#,
    ] {
        assert_eq!(plan_code(bad).0, Code::MalformedPlan, "{bad}");
    }
    for (group, what) in [("[]", "without acts"), ("", "without `parallel`")] {
        let member = format!("\"parallel\":{group}").repeat(group.len() / 2);
        let text = format!("{{\"g\":\"G\",\"plan\":[{{{member}}}]}}");
        let refused = validate(text.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
    let deep = format!(
        "[{}[\"a\",\"T\",{{}}]{}]",
        "{\"parallel\":[".repeat(9),
        "]}".repeat(9)
    );
    assert_eq!(plan_code(&deep).0, Code::MalformedPlan);
}

// spec: SACP-2-3
#[test]
fn a_plan_with_a_join_alone_is_refused_whatever_stands_beside_it() {
    let is_read = |plan: &str, profile| {
        let mut reader =
            json::Reader::new(plan.as_bytes(), &json::Limits::default(), profile).unwrap();
        <Plan as json::Read>::read(&mut reader).is_ok()
    };
    let alone = r#"[["join","J",{}]]"#;
    assert!(is_read(alone, Profile::Lenient) && !is_read(alone, Profile::Strict));
    let first = r#"[["join","J",{}],["a","T",{}]]"#;
    assert!(!is_read(first, Profile::Strict));
    let behind_refused = r#"[["a","T"],["join","J",{}]]"#;
    assert!(!is_read(behind_refused, Profile::Lenient));
}

// spec: SACP-2-4, SACP-2-5
#[test]
fn optional_members_have_one_type_each() {
    for member in [
        r#""msg_id":7"#,
        r#""msg_id":"""#,
        r#""reply_to":null"#,
        r#""ctx":[]"#,
        r#""out_fmt":"prose""#,
        r#""out_fmt":null"#,
        r#""subtask":[]"#,
        r#""test_mode":"yes""#,
        r#""proto_ver":1"#,
    ] {
        let name = member.split('"').nth(1).unwrap();
        assert_eq!(
            code(&format!("{{\"g\":\"G\",\"plan\":[],{member}}}")),
            (Code::MalformedMessage, format!("/{name}")),
            "{member}"
        );
    }
    let plain = Message::decode(br#"{"g":"G","plan":[]}"#).unwrap();
    assert_eq!(
        (plain.out_fmt(), plain.state()),
        (OutFmt::Raw, State::Pending)
    );
    assert_eq!(plain.encode(), br#"{"g":"G","plan":[]}"#);
}

/// Words beside a listed one: in another case, with a blank or a letter more, a letter short.
pub(crate) fn neighbours(word: &str) -> Vec<String> {
    let other_case = if word == word.to_lowercase() {
        word.to_uppercase()
    } else {
        word.to_lowercase()
    };
    let (first, rest) = word.split_at(1);
    vec![
        other_case,
        format!("{}{}", first.to_uppercase(), rest.to_lowercase()),
        format!(" {word}"),
        format!("{word} "),
        format!("{word}s"),
        word[..word.len() - 1].to_owned(),
        String::new(),
    ]
}

// spec: SACP-2-5, SACP-2-6
#[test]
fn every_word_of_a_closed_list_is_taken_and_no_neighbour() {
    for (member, words) in [("out_fmt", OutFmt::WORDS), ("state", State::WORDS)] {
        for word in words {
            let said = |word: &str| format!(r#"{{"g":"G","plan":[],"{member}":"{word}"}}"#);
            let read = Message::decode(said(word).as_bytes()).unwrap();
            assert_eq!(read.encode(), said(word).as_bytes());
            for bad in neighbours(word) {
                assert_eq!(code(&said(&bad)).1, format!("/{member}"), "{bad:?}");
            }
        }
    }
}

// spec: SACP-2-6
#[test]
fn states_are_four_words_with_three_moves_to_an_end() {
    assert_eq!(
        code(r#"{"g":"G","plan":[],"state":"pending"}"#),
        (Code::InvalidState, "/state".into())
    );
    let states = [
        State::Pending,
        State::InProgress,
        State::Done,
        State::Failed,
    ];
    let mut moves = Vec::new();
    for (n, from) in states.iter().enumerate() {
        for (m, to) in states.iter().enumerate() {
            if from.may_become(to) {
                moves.push((n, m));
            }
        }
    }
    assert_eq!(moves, [(0, 1), (0, 3), (1, 2), (1, 3)]);
}

// spec: SACP-8-3
#[test]
fn what_is_no_message_is_malformed() {
    for text in [
        "Dear agent,",
        "7",
        "[]",
        "\"x\"",
        "",
        "{\"g\":\"G\",\"plan\":[]} and more",
        r#"{"g":"G","plan":[],"x":1,"x":2}"#,
        r#"{"g":"G","plan":[],"subtask":{"g":"G","plan":[]},"subtask":{"g":"G","plan":[]}}"#,
    ] {
        assert_eq!(code(text).0, Code::MalformedMessage, "{text:?}");
    }
    assert_eq!(
        code(r#"{"g":"G","plan":[],"proto_ver":"0.2"}"#).0,
        Code::UnsupportedVersion
    );
}

#[test]
fn a_view_refuses_what_a_message_refuses_in_the_same_words() {
    for (text, words) in [
        (r#"{"g":"G","plan":[["a","T",{}]]}"#, ""),
        (
            r#"{"g":"G","plan":[["a"]]}"#,
            "act 1 has 1 part where 3 are wanted",
        ),
        (
            r#"{"g":"G","plan":[["a","T"]]}"#,
            "act 1 has 2 parts where 3 are wanted",
        ),
        (r#"{"g":7,"plan":[]}"#, "a string wanted, a number seen"),
        (r#"{"g":"G","plan":[}"#, "a value wanted (line 1 column 18)"),
    ] {
        let message = Message::decode(text.as_bytes());
        let view = MessageView::decode(text.as_bytes());
        let goal = view.as_ref().map(|(view, _)| &*view.g);
        assert_eq!(goal, message.as_ref().map(|message| &*message.g));
        let told = message.err().map(|refused| match Reply::from(&refused) {
            Reply::Err(error) => (error.details, error.pointer),
            other => panic!("{other:?}"),
        });
        assert_eq!(told.unwrap_or_default().0, words);
    }
}

// spec: SACP-2-10
#[test]
fn unknown_members_are_advice_and_survive() {
    let text = r#"{"g":"G","plan":[["a","T",{}]],"x/y":{"n":1e3}}"#;
    let (message, report) = validate(text.as_bytes()).unwrap();
    assert_eq!(
        (report.len(), report.iter().next().unwrap().pointer.as_str()),
        (1, "/x~1y")
    );
    assert_eq!(message.encode(), text.as_bytes());
}

// spec: SACP-2-9
#[test]
fn subtasks_are_whole_messages_to_a_depth() {
    let nested = |depth: usize, open: &str, close: &str| {
        let (open, close) = (open.repeat(depth), close.repeat(depth));
        format!("{open}{{\"g\":\"G\",\"plan\":[]}}{close}")
    };
    let top = (r#"{"g":"G","plan":[],"subtask":"#, "}");
    let in_params = (r#"{"g":"G","plan":[["do","T",{"x":1,"subtask":"#, "}]]}");
    for (open, close) in [top, in_params] {
        assert!(validate(nested(7, open, close).as_bytes()).is_ok());
        assert_eq!(code(&nested(8, open, close)).0, Code::MalformedMessage);
    }
    let bad = r#"{"g":"G","plan":[["a"]]}"#;
    assert_eq!(
        code(&format!(r#"{{"g":"G","plan":[],"subtask":{bad}}}"#)),
        (Code::MalformedPlan, "/subtask/plan/0".into())
    );
    assert_eq!(
        plan_code(&format!(r#"[["a","T",{{"subtask":{bad}}}]]"#)),
        (Code::MalformedPlan, "/plan/0/2/subtask/plan/0".into())
    );
    assert_eq!(
        plan_code(r#"[["a","T",{"subtask":{"plan":[]}}]]"#),
        (Code::MissingField, "/plan/0/2/subtask/g".into())
    );
    assert_eq!(
        plan_code(r#"[["a","T",{"subtask":{"g":"G","plan":[],"state":"done"}}]]"#),
        (Code::InvalidState, "/plan/0/2/subtask/state".into())
    );
    for ordinary in ["7", "[]", "\"later\"", "null"] {
        let text = format!(r#"{{"g":"G","plan":[["a","T",{{"subtask":{ordinary}}}]]}}"#);
        assert!(validate(text.as_bytes()).is_ok(), "{text}");
    }
}

// spec: SACP-2-2
#[test]
fn every_finding_about_an_act_names_its_number_and_place() {
    let text = "{\"g\":\"G\",\"plan\":[\n {\"parallel\":[[\"a\",\"T\",{}],7]},\n [\"b\",\"\",[]],[\"c\",\"T\",{}]\n]}";
    let Err(json::DecodeError::Invalid(report)) = validate(text.as_bytes()) else {
        panic!("taken")
    };
    let seen: Vec<_> = report
        .iter()
        .map(|f| {
            let at = f.position.unwrap();
            (f.pointer.as_str(), f.message.as_ref(), at.line, at.column)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (
                "/plan/0/parallel/1",
                "act 2: an act or a group wanted, a number seen",
                2,
                28
            ),
            ("/plan/1/1", "act 3: its tool is empty", 3, 7),
            (
                "/plan/1/2",
                "act 3: an object wanted as its params, an array seen",
                3,
                10
            ),
        ]
    );
}

// spec: SACP-2-3
#[test]
fn a_lone_join_is_an_ordinary_act_to_the_lenient() {
    let text = br#"{"g":"G","plan":[["a","T",{}],["join","J",{}]]}"#;
    let (view, report): (MessageView<'_>, _) =
        json::decode(text, &json::Limits::default(), Profile::Lenient).unwrap();
    assert_eq!(view.plan.len(), 2);
    let finding = report.iter().next().unwrap();
    assert_eq!(
        (finding.code.as_ref(), finding.level),
        ("lone_join", Level::Advice)
    );
}

// spec: SACP-2-4
#[test]
fn test_mode_in_ctx_is_a_boolean() {
    assert_eq!(
        code(r#"{"g":"G","plan":[],"ctx":{"test_mode":"yes"}}"#),
        (Code::MalformedMessage, "/ctx/test_mode".into())
    );
    let both =
        Message::decode(br#"{"g":"G","plan":[],"test_mode":false,"ctx":{"test_mode":true}}"#);
    assert!(both.unwrap().is_test());
}

proptest! {
    #[test]
    fn any_text_is_taken_or_answered(text in "\\PC{0,60}") {
        if let Err(refused) = validate(text.as_bytes()) {
            let reply: serde_json::Value = serde_json::from_slice(&json::to_vec(&Reply::from(&refused))).unwrap();
            prop_assert_eq!(&reply["status"], "ERR");
        }
    }
}

#[test]
fn whatever_serializes_to_an_object_is_parameters() {
    use sacp::{Act, ParamsError};
    let act = Act::new("v", "T")
        .with_params(&serde_json::json!({"n": 1}))
        .unwrap();
    assert_eq!(act.params.as_str(), r#"{"n":1}"#);
    let refused = Act::new("v", "T").with_params(&[1]);
    let seen = json::Kind::Array;
    assert_eq!(refused, Err(ParamsError::NoObject { seen }));
    let none = std::collections::BTreeMap::from([(vec![1], 1)]);
    let refused = Act::new("v", "T").with_params(&none);
    assert!(matches!(refused, Err(ParamsError::Unwritable(_))));
    let text = br#"{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING",
        "plan":[{"id":"a","verb":"v","tool":"T","params":{}}]}"#;
    let step = sacp::v1::Message::decode(text).unwrap().plan[0].clone();
    let step = step.with_params(&serde_json::json!({"n": 1})).unwrap();
    assert_eq!(step.params.as_str(), r#"{"n":1}"#);
    assert!(step.with_params("n").is_err());
}
