//! Journals of another program, and journals that were changed.

use std::sync::{Arc, LazyLock, OnceLock};

use futures::executor::block_on;
use proptest::prelude::*;
use uap_agent::engine::Input;
use uap_agent::journal::Journal as _;
use uap_agent::journal::{Decision, Difference, JournalError, MemoryJournal, Recording, Verdict};
use uap_agent::{AgentOptions, GenerateResult, ReactOptions, Runtime, agent, react};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use upp::{HookFuture, Message, Metadata, Tool, ToolContext, ToolExecution, object};

use crate::support::{Noting, Still, echo, script};

use super::lease::{Hand, Seen};
use super::people::{decide, paused};
use super::{asking, cut, everything, recorded, strategies};

/// A tool that says more of itself than the one that it is.
struct Described(Arc<dyn Tool>);

impl Tool for Described {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn parameters(&self) -> &RawObject {
        self.0.parameters()
    }
    fn metadata(&self) -> Option<&Metadata> {
        static MORE: LazyLock<Metadata> = LazyLock::new(|| {
            let mut more = Metadata::default();
            more.set("version", RawObject::empty());
            more
        });
        Some(&MORE)
    }
    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> HookFuture<'a, RawBuf> {
        self.0.run(arguments, context)
    }
}

// spec: UAP-12-5
#[test]
fn a_changed_program_is_refused_before_anything_is_done() {
    let [looped, reacts, _] = strategies();
    let (_, journal, _) = recorded(asking(&reacts));
    let broken_off = cut(&journal, 6);
    let react_with = |prompt: &str| {
        let options = ReactOptions::default().with_reasoning_prompt(prompt.to_owned());
        react(options).unwrap()
    };
    let described: [Arc<dyn Tool>; 2] = [Arc::new(Described(echo("echo"))), echo("other")];
    let refused: [(AgentOptions, &str); 7] = [
        (asking(&looped), "strategy"),
        (asking(&reacts).with_system("be brief"), "system"),
        (asking(&reacts).with_tools([echo("echo")]), "tools"),
        (asking(&reacts).with_tools(described), "tools"),
        (
            asking(&reacts).with_strategy(Arc::new(Noting::default())),
            "hooks",
        ),
        (
            everything(&reacts).with_strategy(Arc::new(Noting::default())),
            "middleware",
        ),
        (asking(&react_with("Think.")), "effect 1 (infer)"),
    ];
    for (options, told) in refused {
        let model = script([]);
        let mut options = options;
        options = options.map_llm(|llm| llm.with_model(model.clone()));
        let agent = agent(options).unwrap();
        let error = block_on(agent.resume(broken_off.clone())).unwrap_err();
        assert!(error.to_string().contains(told), "{told}: {error}");
        assert!(model.requests().is_empty());
        assert_eq!(block_on(broken_off.read()).unwrap().len(), 6);
    }
}

#[test]
fn the_hook_of_a_failure_covers_what_the_run_has_spent() {
    let [looped, ..] = strategies();
    let hooks = Noting {
        fails_at: Some("observe"),
        ..Noting::default()
    };
    let agent = agent(asking(&looped).with_strategy(Arc::new(hooks))).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let run = agent.record(journal.clone(), "go", &agent.initial_state());
    block_on(run.result()).unwrap_err();
    let entries = block_on(journal.read()).unwrap();
    let other = entries.iter().map(|entry| {
        let text = entry.as_str();
        object(&text.replace(r#""inputTokens":100"#, r#""inputTokens":99"#)).unwrap()
    });
    let other = Recording::from_entries(&other.collect::<Vec<_>>()).unwrap();
    let refused = agent.replay(&other).unwrap_err();
    assert!(
        matches!(refused, JournalError::Differs { kind: "hook", .. }),
        "{refused}"
    );
}

// spec: UAP-12-5
#[test]
fn another_answer_leads_elsewhere_and_the_difference_is_found() {
    let [looped, ..] = strategies();
    let (agent, journal, result) = recorded(asking(&looped));
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    assert_eq!(recording.diff(&recording).first, None);

    // The first tool's answer is the third effect's: a hook before would be an effect as well.
    let instead = ToolExecution::new(
        "echo".into(),
        "c0-1".into(),
        object("{}").unwrap(),
        upp::json_text("something else"),
        false,
        1,
    );
    let forked = recording
        .fork(&Input::Tool(2, instead, Vec::new()))
        .unwrap();
    assert!(!forked.has_ended() && forked.outstanding().len() == 2);
    let other = Arc::new(MemoryJournal::default());
    block_on(other.append(0, forked.to_entries())).unwrap();
    let turned = block_on(async { agent.resume(other.clone()).await.unwrap().result().await });
    let turned = turned.unwrap();
    assert_ne!(turned, result);
    let texts = |result: &GenerateResult| -> Vec<String> {
        result.state.messages().iter().map(Message::text).collect()
    };
    assert!(
        texts(&turned)
            .iter()
            .any(|text| text.contains("something else"))
    );
    let diff = recording.diff(&block_on(Recording::load(other.as_ref())).unwrap());
    assert_eq!(
        diff.first,
        Some(Difference::Answer {
            effect: Some(2),
            kind: "tool"
        })
    );
    assert!(diff.same > 5 && diff.left > diff.same && diff.right > diff.same);

    // Two runs of other seeds are alike but for ids.
    let seeded = asking(&looped).with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(8)));
    let (_, alike, second) = recorded(seeded);
    assert_ne!(second.state.id(), result.state.id());
    let alike = block_on(Recording::load(alike.as_ref())).unwrap();
    assert_eq!(recording.diff(&alike).first, None);
    let wrong = Input::Saved(2, Ok(()));
    let Err(JournalError::Order { entry, .. }) = recording.fork(&wrong) else {
        panic!("another kind of answer");
    };
    let answered = recording.to_entries()[usize::try_from(entry).unwrap()].clone();
    let answered = answered.as_str();
    assert!(
        answered.contains(r#""answer":{"#) && answered.contains(r#""id":2"#),
        "{answered}"
    );
    assert!(recording.fork(&Input::Saved(99, Ok(()))).is_err());
}

// spec: UAP-12-5
#[test]
fn entries_of_another_kind_are_refused_where_they_are_wrong() {
    let [_, _, plans] = strategies();
    let (_, journal, _) = recorded(everything(&plans));
    let entries = block_on(journal.read()).unwrap();
    let recording = Recording::from_entries(&entries).unwrap();
    assert_eq!(recording.to_entries(), entries);
    let answer = entries
        .iter()
        .position(|e| e.as_str().contains(r#""model":{"#))
        .unwrap();
    let layer = entries
        .iter()
        .rposition(|e| e.as_str().contains(r#""layer":{"#))
        .unwrap();
    let refused = |n: usize, from: &str, to: &str| {
        let mut changed = entries.clone();
        let text = changed[n].as_str().replacen(from, to, 1);
        assert_ne!(text, changed[n].as_str(), "{from} in {text}");
        changed[n] = object(&text).unwrap();
        Recording::from_entries(&changed).unwrap_err().to_string()
    };
    for (n, from, to, told) in [
        (0, r#""version":3"#, r#""version":4"#, "/begin/version"),
        (0, r#""seed":""#, r#""seed":"x"#, "/begin/seed"),
        (0, r#""seed":""#, r#""seed":"0"#, "/begin/seed"),
        (
            0,
            r#""state":{"version":"1.1.0""#,
            r#""state":{"version":"9""#,
            "/begin/state/version",
        ),
        (0, r#""step":0"#, r#""step":-1"#, "/begin/state/step"),
        (1, r#""kind":"hook""#, r#""kind":"dance""#, "/effect/kind"),
        (1, r#""print":""#, r#""print":"zz"#, "/effect/print"),
        (1, r#""effect":{"#, r#""future":{"#, "exactly one of"),
        (1, r#""n":1"#, r#""n":2"#, "/n"),
        (2, r#""at":{"#, r#""when":{"#, "/at"),
        (answer, r#""model":{"#, r#""oracle":{"#, "/answer"),
        (
            answer,
            r#""type":"assistant""#,
            r#""type":"user""#,
            "/answer/model/message",
        ),
        (answer, r#""usage":{"#, r#""cost":{"#, "/answer/model/usage"),
        (answer, r#""id":"#, r#""jd":"#, "/answer/id"),
        (
            layer,
            r#""layer":{"#,
            r#""layer":{"error":{"message":"m","code":"TIMEOUT","provider":"p"},"#,
            "/hook/layer: a result or an error",
        ),
    ] {
        let error = refused(n, from, to);
        assert!(
            error.contains(told) && error.contains(&format!("entry {n}")),
            "{told}: {error}"
        );
    }
    let mut swapped = entries.clone();
    swapped.remove(1);
    assert!(Recording::from_entries(&swapped).is_err());
    assert!(Recording::from_entries(&entries[1..]).is_err());
}

/// Entries of a run, changed somewhere.
fn changed(entries: &[RawObject], at: usize, change: u8, byte: u8) -> Vec<RawObject> {
    let mut entries = entries.to_vec();
    let n = at % entries.len();
    match change {
        0 => drop(entries.remove(n)),
        1 => entries.insert(n, entries[(n * 7 + 1) % entries.len()].clone()),
        2 => {
            let (one, other) = (n, (n + usize::from(byte)) % entries.len());
            entries.swap(one, other);
        }
        3 => entries.truncate(n),
        _ => {
            let mut text = entries[n].as_str().as_bytes().to_vec();
            let place = at % text.len();
            text[place] = byte;
            if let Some(entry) = String::from_utf8(text).ok().and_then(|t| object(&t).ok()) {
                entries[n] = entry;
            }
        }
    }
    // Places are counted anew, so that more than the first check is met.
    let numbered = entries.iter().enumerate().map(|(n, entry)| {
        let (_, rest) = entry.as_str().split_once(',').unwrap_or_default();
        object(&format!("{{\"n\":{n},{rest}")).unwrap_or_else(|_| entry.clone())
    });
    numbered.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // spec: UAP-12-5
    #[test]
    fn nothing_that_a_journal_holds_makes_anything_panic(
        at in 0_usize..100_000, change in 0_u8..12, byte in 0x20_u8..0x7f,
    ) {
        static RUN: OnceLock<(uap_agent::Agent, Vec<RawObject>)> = OnceLock::new();
        let (agent, entries) = RUN.get_or_init(|| {
            let [_, _, plans] = strategies();
            let (agent, journal, _) = recorded(everything(&plans));
            (agent, block_on(journal.read()).unwrap())
        });
        let entries = changed(entries, at, change, byte);
        if let Ok(recording) = Recording::from_entries(&entries) {
            prop_assert_eq!(Recording::from_entries(&recording.to_entries()).unwrap().to_entries(), recording.to_entries());
            let _ = (agent.replay(&recording), recording.outstanding(), recording.diff(&recording));
        }
    }
}

// spec: UAP-12-5
#[test]
fn runs_whose_hook_recovered_alike_do_not_differ() {
    let [looped, ..] = strategies();
    let (_, _, result) = recorded(asking(&looped));
    let failed = |seed, result: &GenerateResult| {
        let hooks = Noting {
            fails_at: Some("start 1"),
            recovers_with: Some(result.clone()),
            ..Noting::default()
        };
        let options = asking(&looped)
            .with_strategy(Arc::new(hooks))
            .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(seed)));
        let (_, journal, _) = recorded(options);
        block_on(Recording::load(journal.as_ref())).unwrap()
    };
    let seeded = asking(&looped).with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(8)));
    let (_, _, alike) = recorded(seeded);
    assert_eq!(failed(1, &result).diff(&failed(2, &alike)).first, None);
}

// spec: UAP-12-5
#[test]
fn runs_whose_middleware_did_alike_do_not_differ() {
    let [looped, ..] = strategies();
    let ran = |seed| {
        let runtime = Runtime::new(Arc::new(Still), IdSource::seeded(seed));
        let (_, journal, _) = recorded(everything(&looped).with_runtime(runtime));
        block_on(Recording::load(journal.as_ref())).unwrap()
    };
    assert_eq!(ran(1).diff(&ran(2)).first, None);
}

// spec: UAP-12-5
#[test]
fn a_run_that_was_forked_writes_behind_what_it_has() {
    let [looped, ..] = strategies();
    let (_, journal, _) = recorded(asking(&looped));
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    let answer = recording.answer(2).unwrap();
    let forked = recording.fork(&answer).unwrap();
    let kept = forked.to_entries().len() as u64;
    let llm = agent(asking(&looped)).unwrap().llm().clone();
    let config = uap_agent::engine::EngineConfig::new(llm, looped);
    let now = ubos_common::driver::Sleep::now(&Still);
    let owner = uap_agent::journal::Ownership::default();
    let mut recorder = forked.resume(now, &config, &owner).unwrap();
    let mut firsts =
        std::iter::from_fn(|| recorder.poll_output()).filter_map(|output| match output {
            uap_agent::journal::recorder::Output::Write(first, _) => Some(first),
            _ => None,
        });
    assert_eq!(firsts.next(), Some(kept));
}

// spec: UAP-12-5
#[test]
fn data_of_a_response_are_in_the_journal() {
    let data = upp::Reply::text("{}").with_data(RawBuf::parse(r#"{"x":1}"#).unwrap());
    let agent = agent(crate::support::options(&script([data]))).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let state = agent.initial_state();
    let result = block_on(agent.record(journal.clone(), "go", &state).result()).unwrap();
    assert_eq!(result.turn.data.as_ref().unwrap().as_str(), r#"{"x":1}"#);
    let again = block_on(async { agent.resume(journal).await.unwrap().result().await });
    assert_eq!(again.unwrap(), result);
}

// spec: UAP-12-5
#[test]
fn a_decision_with_two_verdicts_or_none_is_refused() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (journal, question) = paused(&clock, &seen);
    let approve = Decision::new(&question, "ann", Verdict::Approve);
    decide(&journal, &clock, &approve).unwrap();
    let entries = block_on(journal.read()).unwrap();
    let (decision, before) = entries.split_last().unwrap();
    let approved = r#""approved":true"#;
    for verdict in [
        r#""approved":false"#,
        r#""approved":true,"rejected":"no""#,
        r#""approved":true,"result":1"#,
        r#""rejected":"no","result":1"#,
    ] {
        let text = decision.as_str().replace(approved, verdict);
        assert_ne!(text, decision.as_str());
        let changed = [before, &[object(&text).unwrap()]].concat();
        let refused = Recording::from_entries(&changed).unwrap_err().to_string();
        assert!(refused.contains("/decision"), "{refused}");
    }
}

// spec: UAP-12-5
#[test]
fn runs_that_began_otherwise_differ_there() {
    let [looped, other, ..] = strategies();
    let [one, another] = [looped, other].map(|strategy| {
        let (_, journal, _) = recorded(asking(&strategy));
        block_on(Recording::load(journal.as_ref())).unwrap()
    });
    let diff = one.diff(&another);
    let what = "strategy".to_owned();
    assert_eq!(diff.first, Some(Difference::Beginning { what }));
    assert_eq!(diff.same, 0);
}

// spec: UAP-12-5
#[test]
fn runs_that_asked_or_ended_otherwise_differ_there() {
    let [looped, ..] = strategies();
    let (_, journal, _) = recorded(everything(&looped));
    let entries = block_on(journal.read()).unwrap();
    let recording = Recording::from_entries(&entries).unwrap();
    let differs = |kind: &str| {
        let is_it = |entry: &RawObject| entry.as_str().contains(kind);
        let place = entries.iter().rposition(is_it).unwrap();
        let text = entries[place].as_str();
        let at = text.find(r#""content":""#).unwrap() + r#""content":""#.len();
        let digit = if text[at..].starts_with('0') {
            "1"
        } else {
            "0"
        };
        let mut changed = entries.clone();
        changed[place] = object(&[&text[..at], digit, &text[at + 1..]].concat()).unwrap();
        let changed = Recording::from_entries(&changed).unwrap();
        recording.diff(&changed).first
    };
    assert!(matches!(
        differs(r#""effect":{"#),
        Some(Difference::Effect { .. })
    ));
    assert_eq!(differs(r#""end":{"#), Some(Difference::End));
}
