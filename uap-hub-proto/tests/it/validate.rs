//! What validation finds in every message.

use prost_types::{Struct, Value};
use uap_hub_proto::validate::{MAX_FINDINGS, Validate};
use uap_hub_proto::{
    capability::{Registration, Skill},
    convert::to_struct,
    message::JobResult,
    state::State,
    wire::{
        AgentRegistration, AgentRegistrationResponse, Attachment, Capability, ListenRequest,
        ListenResponse, Payload, PayloadRequirement, SessionAcceptance, SessionProposal,
        SessionReady, Severity, StepReport, StepStatus, Summary, Telemetry, TestCapability,
        TestInit, TestProposalDetails, TestResponse, TestResult, TestStatus, TranslationCapability,
        TranslationInit, TranslationProposalDetails, TranslationResponse, TranslationResult,
        TranslationStatus, capability::Format, listen_request, listen_response,
        session_proposal::Details, test_response, translation_response,
    },
};
use ubos_common::violation::Violation;

/// The findings as `LEVEL pointer code`, in order.
fn found(message: &dyn Validate) -> Vec<String> {
    let report = message.validate();
    let line = |one: &Violation| format!("{} {} {}", one.level, one.pointer, one.code);
    report.iter().map(line).collect()
}

fn offers(event: listen_response::Event) -> ListenResponse {
    ListenResponse { event: Some(event) }
}

fn proposal(session: &str, details: Option<Details>) -> ListenResponse {
    offers(listen_response::Event::SessionProposal(SessionProposal {
        session_id: session.into(),
        details,
    }))
}

fn says(event: test_response::Event) -> TestResponse {
    TestResponse {
        timestamp: Some(prost_types::Timestamp::default()),
        event: Some(event),
        number: 0,
    }
}

fn says_of_translation(event: translation_response::Event) -> TranslationResponse {
    TranslationResponse {
        timestamp: Some(prost_types::Timestamp::default()),
        event: Some(event),
        number: 0,
    }
}

fn full_result() -> TestResult {
    let metadata = to_struct(serde_json::json!({"a": [1, null]}).as_object().unwrap()).unwrap();
    let mut step = StepReport::new("outer", StepStatus::Passed);
    step.steps
        .push(StepReport::new("inner", StepStatus::Skipped));
    TestResult::completed("")
        .with_report(step)
        .with_attachment(Attachment::new("a", "image/png", "x"))
        .with_summary(Summary::of(metadata))
}

// spec: HUB-2-1, HUB-3-1, HUB-4-2, HUB-4-9
#[test]
fn good_messages_have_no_findings() {
    let translation = TranslationCapability {
        r#type: "f".into(),
        source_payloads: vec![PayloadRequirement {
            r#type: "p".into(),
            accepted_mime_types: vec!["Text/Plain; charset=utf-8".into()],
            ..PayloadRequirement::default()
        }],
        target_payloads: vec![],
    };
    let capabilities = vec![
        Skill::test("f").into(),
        Capability {
            format: Some(Format::Translation(translation)),
        },
    ];
    let payloads = vec![Payload::file("p", "n", "", "data")];
    let acceptance = SessionAcceptance {
        session_id: "s".into(),
        accepted: true,
        reason: String::new(),
    };
    let test = |name: &str| TestProposalDetails {
        r#type: name.into(),
    };
    let good: Vec<Box<dyn Validate>> = vec![
        Box::new(AgentRegistration {
            display_name: String::new(),
            capabilities,
        }),
        Box::new(AgentRegistrationResponse {
            client_id: "id".into(),
        }),
        Box::new(ListenRequest {
            event: Some(listen_request::Event::Ready(())),
        }),
        Box::new(ListenRequest {
            event: Some(listen_request::Event::SessionAcceptance(acceptance)),
        }),
        Box::new(proposal("JOB-1", Some(Details::Test(test("t"))))),
        Box::new(offers(listen_response::Event::SessionReady(SessionReady {
            session_id: "s".into(),
        }))),
        Box::new(TestInit {
            test_type: "t".into(),
            payloads: payloads.clone(),
            acknowledged: None,
        }),
        Box::new(TranslationInit {
            target_format: "t".into(),
            payloads,
            acknowledged: None,
        }),
        Box::new(says(test_response::Event::Telemetry(Telemetry::new(
            Severity::Fatal,
            "",
        )))),
        Box::new(says(test_response::Event::Result(full_result()))),
        Box::new(says_of_translation(translation_response::Event::Result(
            TranslationResult::completed(vec![]),
        ))),
    ];
    for (n, message) in good.iter().enumerate() {
        assert_eq!(found(message.as_ref()), Vec::<String>::new(), "{n}");
    }
}

fn test(name: &str, payloads: Vec<PayloadRequirement>) -> Capability {
    Capability {
        format: Some(Format::Test(TestCapability {
            r#type: name.into(),
            payloads,
        })),
    }
}

#[test]
fn the_bounds_of_a_registration_are_each_named() {
    let registration = |capabilities| AgentRegistration {
        display_name: "x".repeat(1_024),
        capabilities,
    };
    let one = PayloadRequirement {
        r#type: "p".into(),
        ..PayloadRequirement::default()
    };
    let requirement = PayloadRequirement {
        accepted_mime_types: vec![format!("a/{}", "x".repeat(1_022))],
        ..one.clone()
    };
    let many_mimes = PayloadRequirement {
        accepted_mime_types: vec!["a/b".into(); 257],
        ..requirement.clone()
    };
    let translation = TranslationCapability {
        r#type: "x".repeat(1_025),
        source_payloads: [vec![many_mimes], vec![requirement.clone(); 255]].concat(),
        target_payloads: vec![requirement; 257],
    };
    let format = Some(Format::Translation(translation));
    assert_eq!(
        found(&registration(vec![Capability { format }])),
        [
            "MUST /capabilities/0/translation/type too_long",
            "MUST /capabilities/0/translation/source_payloads/0/accepted_mime_types too_many",
            "MUST /capabilities/0/translation/target_payloads too_many",
        ]
    );
    let many = |count: u32, requirements| {
        let tests = (0..count).map(|n| test(&n.to_string(), vec![one.clone(); requirements]));
        found(&registration(tests.collect()))
    };
    let too_many = ["MUST /capabilities too_many"];
    assert_eq!(many(1_024, 16), [""; 0]);
    assert_eq!(many(1_025, 0), too_many);
    assert_eq!(many(1_024, 17), too_many, "all have too many requirements");
}

#[test]
fn a_requirement_beyond_its_bounds_is_found_and_refused() {
    let named = |bytes| PayloadRequirement::new("x".repeat(bytes));
    let long = format!("a/{}", "x".repeat(1_023));
    let mut many = named(1);
    many.accepted_mime_types = vec!["a/b".into(); 257];
    for (requirement, place, why) in [
        (named(1_025), "type too_long", "1025 bytes, at most 1024"),
        (
            named(1).with_mime_type(long),
            "accepted_mime_types/0 too_long",
            "1025 bytes, at most 1024",
        ),
        (
            many,
            "accepted_mime_types too_many",
            "257 entries, at most 256",
        ),
    ] {
        let registration = AgentRegistration {
            display_name: String::new(),
            capabilities: vec![test("t", vec![requirement])],
        };
        let wanted = format!("MUST /capabilities/0/test/payloads/0/{place}");
        assert_eq!(found(&registration), [wanted]);
        let refused = Registration::try_from(registration).unwrap_err();
        let why = format!("capabilities[0].test has {why} are allowed");
        assert_eq!(refused.to_string(), why);
    }
}

#[test]
fn a_mime_type_has_two_parts_of_visible_signs() {
    let mimes = [
        "/plain",
        "text/",
        "te xt/plain",
        "text/pl ain",
        "text/plain/x",
        "a/b;c d",
    ];
    let files = mimes.map(|mime| Attachment::new("", mime, ""));
    let mut line = Telemetry::new(Severity::Info, "");
    line.attachments = files.into();
    let wanted =
        [0, 1, 2, 3, 4].map(|n| format!("ADVICE /telemetry/attachments/{n}/mime_type mime"));
    assert_eq!(found(&says(test_response::Event::Telemetry(line))), wanted);
}

// spec: HUB-2-1
#[test]
fn a_registration_is_judged_to_its_last_mime_type() {
    let long = "x".repeat(1_025);
    let requirement = PayloadRequirement {
        r#type: String::new(),
        accepted_mime_types: vec!["text/plain".into(), "text".into(), long.clone()],
        ..PayloadRequirement::default()
    };
    let translation = TranslationCapability {
        r#type: "f".into(),
        source_payloads: vec![],
        target_payloads: vec![PayloadRequirement::default(); 257],
    };
    let registration = AgentRegistration {
        display_name: long,
        capabilities: vec![
            Capability::default(),
            test("", vec![]),
            test("t", vec![requirement]),
            test("t", vec![]),
        ],
    };
    assert_eq!(
        found(&registration),
        [
            "MUST /display_name too_long",
            "MUST /capabilities/0/format missing",
            "MUST /capabilities/1/test/type empty",
            "SHOULD /capabilities/2/test/payloads/0/type empty",
            "ADVICE /capabilities/2/test/payloads/0/accepted_mime_types/1 mime",
            "ADVICE /capabilities/2/test/payloads/0/accepted_mime_types/2 mime",
            "MUST /capabilities/2/test/payloads/0/accepted_mime_types/2 too_long",
            "ADVICE /capabilities/3 repeated",
        ]
    );
    let many = AgentRegistration {
        display_name: String::new(),
        capabilities: vec![
            Capability {
                format: Some(Format::Translation(translation)),
            };
            1_025
        ],
    };
    let report = many.validate();
    assert_eq!(report.len(), MAX_FINDINGS, "findings are bounded");
    assert_eq!(found(&many)[0], "MUST /capabilities too_many");
}

#[test]
fn past_the_bound_a_first_breach_is_still_found() {
    let step = StepReport::default();
    let result = TestResult {
        status: None,
        reports: vec![step; MAX_FINDINGS],
        ..TestResult::default()
    };
    assert!(!result.validate().is_valid());
}

// spec: HUB-4-9
#[test]
fn what_a_job_brings_is_judged_in_either_kind() {
    let payloads = vec![Payload::file("p", "n", "png", ""), Payload::default()];
    let test = TestInit {
        test_type: String::new(),
        payloads: payloads.clone(),
        acknowledged: None,
    };
    let translation = TranslationInit {
        target_format: String::new(),
        payloads,
        acknowledged: None,
    };
    for (message, empty) in [
        (&test as &dyn Validate, "MUST /test_type empty"),
        (&translation, "MUST /target_format empty"),
    ] {
        let mime = "ADVICE /payloads/0/attachment/mime_type mime";
        let of_payloads = [mime, "SHOULD /payloads/1/type empty"];
        assert_eq!(found(message), [&[empty], &of_payloads[..]].concat());
    }
}

// spec: HUB-3-1, HUB-3-3
#[test]
fn control_messages_name_what_they_lack() {
    let answer = |session: &str, reason: &str| ListenRequest {
        event: Some(listen_request::Event::SessionAcceptance(
            SessionAcceptance {
                session_id: session.into(),
                accepted: false,
                reason: reason.into(),
            },
        )),
    };
    let translation = Details::Translation(TranslationProposalDetails {
        r#type: String::new(),
    });
    let ready = offers(listen_response::Event::SessionReady(SessionReady::default()));
    let id = AgentRegistrationResponse {
        client_id: "a b".into(),
    };
    for (message, wanted) in [
        (&id as &dyn Validate, vec!["MUST /client_id not_metadata"]),
        (&ListenRequest::default(), vec!["ADVICE  no_event"]),
        (
            &answer("s", ""),
            vec!["ADVICE /session_acceptance/reason empty"],
        ),
        (
            &answer("", "why"),
            vec!["MUST /session_acceptance/session_id empty"],
        ),
        (&ListenResponse::default(), vec!["ADVICE  no_event"]),
        (&ready, vec!["MUST /session_ready/session_id empty"]),
        (
            &proposal("JOB-1", None),
            vec!["MUST /session_proposal/details missing"],
        ),
        (
            &proposal("JOB-ä", Some(translation)),
            vec![
                "MUST /session_proposal/session_id not_metadata",
                "MUST /session_proposal/translation/type empty",
                "ADVICE /session_proposal/session_id prefix",
            ],
        ),
    ] {
        assert_eq!(found(message), wanted);
    }
}

// spec: HUB-4-2, HUB-4-7
#[test]
fn reports_name_what_is_wrong_with_them() {
    use test_response::Event;
    let status = |state| TestStatus {
        state,
        message: String::new(),
    };
    let result = |status| {
        says(Event::Result(TestResult {
            status,
            ..TestResult::default()
        }))
    };
    let mut line = Telemetry::new(Severity::Unspecified, "");
    line.attachments.push(Attachment::new("", "png", ""));
    line.timestamp = Some(prost_types::Timestamp {
        seconds: 0,
        nanos: -1,
    });
    let mut unknown = Telemetry::new(Severity::Info, "");
    unknown.severity = 99;
    let translated = says_of_translation(translation_response::Event::Status(TranslationStatus {
        state: 0,
        message: String::new(),
    }));
    for (message, wanted) in [
        (
            &TestResponse::default() as &dyn Validate,
            vec!["ADVICE /timestamp missing", "ADVICE  no_event"],
        ),
        (
            &TranslationResponse::default(),
            vec!["ADVICE /timestamp missing", "ADVICE  no_event"],
        ),
        (
            &says(Event::Status(status(0))),
            vec!["MUST /status/state state"],
        ),
        (
            &says(Event::Status(status(99))),
            vec!["MUST /status/state state"],
        ),
        (&translated, vec!["MUST /status/state state"]),
        (&result(None), vec!["MUST /result/status missing"]),
        (
            &result(Some(status(3))),
            vec!["MUST /result/status/state not_terminal"],
        ),
        (
            &result(Some(status(9))),
            vec!["MUST /result/status/state state"],
        ),
        (
            &says(Event::Telemetry(line)),
            vec![
                "ADVICE /telemetry/severity unspecified",
                "SHOULD /telemetry/timestamp range",
                "ADVICE /telemetry/attachments/0/mime_type mime",
            ],
        ),
        (
            &says(Event::Telemetry(unknown)),
            vec!["SHOULD /telemetry/severity unknown"],
        ),
    ] {
        assert_eq!(found(message), wanted);
    }
    let JobResult::Translation(bare) = JobResult::bare(
        uap_hub_proto::capability::Kind::Translation,
        State::Running,
        "",
    ) else {
        panic!("a translation")
    };
    assert_eq!(found(&bare), ["MUST /status/state not_terminal"]);
}

// spec: HUB-4-9
#[test]
fn parts_are_judged_wherever_they_stand() {
    let nan = Value {
        kind: Some(prost_types::value::Kind::NumberValue(f64::NAN)),
    };
    let bad = |value| Struct {
        fields: [("a/b".to_owned(), value)].into(),
    };
    let init = TestInit {
        test_type: String::new(),
        payloads: vec![Payload::new("p").with_metadata(bad(nan)), Payload::new("")],
        acknowledged: None,
    };
    assert_eq!(
        found(&init),
        [
            "MUST /test_type empty",
            "SHOULD /payloads/0/metadata/a~1b not_finite",
            "SHOULD /payloads/1/type empty",
        ]
    );
    let summary = Summary {
        total_duration: Some(prost_types::Duration {
            seconds: -1,
            nanos: 0,
        }),
        start_time: Some(prost_types::Timestamp {
            seconds: i64::MAX,
            nanos: 0,
        }),
        metadata: Some(bad(Value { kind: None })),
    };
    let mut step = StepReport::new("", StepStatus::Unspecified);
    step.summary = Some(summary.clone());
    let result = TestResult::completed("")
        .with_report(step)
        .with_attachment(Attachment::new("", "png", ""));
    assert_eq!(
        found(&result),
        [
            "ADVICE /reports/0/name empty",
            "SHOULD /reports/0/status status",
            "SHOULD /reports/0/summary/total_duration range",
            "SHOULD /reports/0/summary/start_time range",
            "SHOULD /reports/0/summary/metadata/a~1b no_kind",
            "ADVICE /attachments/0/mime_type mime",
        ]
    );
    let mut translated = TranslationResult::completed(vec![Payload::new("")]);
    translated.summary = Some(summary);
    assert_eq!(
        found(&translated),
        [
            "SHOULD /payloads/0/type empty",
            "SHOULD /summary/total_duration range",
            "SHOULD /summary/start_time range",
            "SHOULD /summary/metadata/a~1b no_kind",
        ]
    );
    let deep = (0..100).fold(StepReport::new("s", StepStatus::Passed), |inner, _| {
        let mut outer = StepReport::new("s", StepStatus::Passed);
        outer.steps.push(inner);
        outer
    });
    let findings = found(&TestResult::completed("").with_report(deep));
    assert_eq!(findings.len(), 1);
    let wanted = format!("/reports/0{}/steps too_deep", "/steps/0".repeat(63));
    assert!(findings[0].ends_with(&wanted), "{findings:?}");
}
