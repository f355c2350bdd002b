//! Everything that is told about messages and runs, held against a record of it.
//!
//! The record says no clause; it shows in a commit what a change does to prompts, pictures, findings, conversions and runs. Written
//! anew with `UBOS_GOLDEN=write`; `golden/vectors.txt` is to be read, `golden/drawn.txt` has digests of what is drawn.

use core::fmt::Write as _;
use std::fs;
use std::path::Path;

use sacp::check::{self, check_plan, mend};
use sacp::draw::{StepState, StepView, dot, mermaid};
use sacp::prompt::{AgentRole, act_prompt, agent_prompt, interface_prompt, planner_prompt};
use sacp::registry::MemoryRegistry;
use sacp::runner::{Cause, Config, Input, Outcome, Output, Runner, Ticket};
use sacp::v1::{Down, Id, Ts, Up, down, up};
use sacp::{AnyMessage, Graph, MessageRef, line};
#[cfg(feature = "arbitrary")]
use serde_json::{Value, json};
#[cfg(feature = "arbitrary")]
use ubos_common::canon::Digest;
use ubos_common::id::IdSource;
use ubos_common::json::{self, RawBuf};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::{Profile, Report};

use crate::converge::library;

fn config() -> Up {
    let name = |text: &str| Id::new(text).unwrap();
    Up::new(name("adapter"), Ts::from(Timestamp::EPOCH), name("made-1"))
}

fn view(number: usize) -> StepView {
    let states = [
        StepState::Waiting,
        StepState::Running,
        StepState::Done,
        StepState::Failed,
        StepState::Skipped,
    ];
    let took = number
        .is_multiple_of(3)
        .then(|| core::time::Duration::from_millis(number as u64 * 700));
    StepView::new(states[number % states.len()], took)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn listed(report: &Report) -> String {
    report.iter().fold(String::new(), |said, finding| {
        said + &finding.to_string() + "\n"
    })
}

/// What is told about a message, part by part.
fn told(message: &AnyMessage, library: &MemoryRegistry) -> Vec<(&'static str, String)> {
    let graph = Graph::from(message);
    let role = AgentRole::new("FINDER", ["search"], ["H_API"]);
    let config = check::Config::default().with_max_fan_out(2);
    let checked = |registry| {
        let findings = check_plan(message, registry, &config);
        findings.iter().fold(String::new(), |mut said, finding| {
            writeln!(said, "{finding} {:?}", finding.question).unwrap();
            finding
                .repairs
                .iter()
                .for_each(|repair| writeln!(said, "  {repair}").unwrap());
            said
        })
    };
    let mended = mend(message.clone(), Some(library), &config);
    let converted = match message.into() {
        MessageRef::V01(old) => match up(old, &self::config()) {
            Ok((new, report)) => text(&new.encode()) + "\n" + &listed(&report) + &lowered(&new),
            Err(why) => why.to_string(),
        },
        MessageRef::V10(new) => lowered(new),
        _ => unreachable!(),
    };
    vec![
        ("line", line::write(message)),
        (
            "check",
            checked(None) + "with a library:\n" + &checked(Some(library as _)),
        ),
        ("mended", text(&mended.message.encode())),
        ("mermaid", mermaid(&graph, view)),
        ("dot", dot(&graph, view)),
        ("converted", converted),
        ("agent", agent_prompt(&role, message)),
        ("planner", planner_prompt(message, library, &["HOTELS"])),
        ("run", ran(message, 1)),
        ("troubled run", ran(message, 2)),
    ]
}

fn lowered(new: &sacp::v1::Message) -> String {
    [Profile::Strict, Profile::Lenient]
        .map(|profile| match down(new, profile) {
            Ok(Down {
                message,
                error,
                losses,
                ..
            }) => format!("{} {error:?}\n{}", text(&message.encode()), listed(&losses)),
            Err(why) => format!("{why}\n"),
        })
        .concat()
}

/// A run in which the tools do what a die says: with seed 1 all goes well, with others much does not.
fn ran(message: &AnyMessage, seed: u64) -> String {
    let mut said = String::new();
    let config = Config::default().with_step_events(true).with_max_running(2);
    let mut run = match Runner::new(message, config.clone()) {
        Ok(run) => run,
        Err(why) => return why.to_string(),
    };
    let role = AgentRole::new("FINDER", ["search"], ["H_API"]);
    let (mut millis, mut running, mut die) = (0, Vec::<Ticket>::new(), IdSource::seeded(seed));
    let at = |millis| Now::new(Mono::from_millis(millis), Timestamp::EPOCH);
    run.start(at(0));
    for turn in 0..400 {
        while let Some(output) = run.poll_output() {
            match output {
                Output::Dispatch {
                    ticket,
                    act,
                    inputs,
                    rank,
                } => {
                    running.push(ticket);
                    writeln!(
                        said,
                        "{millis} {ticket:?} {rank} {}",
                        act_prompt(&role, message, &act, &inputs).len()
                    )
                    .unwrap();
                }
                Output::Cancel { ticket } => {
                    running.retain(|other| *other != ticket);
                    writeln!(said, "{millis} stop {ticket:?}").unwrap();
                }
                Output::Ended(outcome) => return said + &ended(message, &outcome),
                other => writeln!(said, "{millis} {other:?}").unwrap(),
            }
        }
        if turn % 3 == 2
            && let Some(saved) = run.save(at(millis))
        {
            writeln!(said, "{}", text(&saved)).unwrap();
            let mut other = Runner::new(message, config.clone()).unwrap();
            other.restore(at(millis), &saved).unwrap();
            (run, running) = (other, Vec::new());
            continue;
        }
        let draw = die.uuid().into_bytes();
        if running.is_empty() || (seed > 1 && draw[1] < 60) {
            let Some(due) = run.poll_timeout() else {
                return said + "nothing is due";
            };
            let due = due.saturating_since(Mono::ZERO).as_millis();
            millis = millis.max(u64::try_from(due).unwrap());
            run.handle_timeout(at(millis));
            continue;
        }
        millis += u64::from(draw[2]);
        let ticket = running.remove(usize::from(draw[0]) % running.len());
        let input = match draw[3] {
            _ if seed == 1 => Input::Succeeded {
                ticket,
                output: RawBuf::parse(&format!("[{}]", ticket.step)).unwrap(),
            },
            0..150 => Input::Succeeded {
                ticket,
                output: RawBuf::parse(&ticket.step.to_string()).unwrap(),
            },
            150..220 => Input::Failed {
                ticket,
                cause: Cause::tool("no route"),
            },
            _ => Input::Failed {
                ticket,
                cause: Cause::permanent("no such place"),
            },
        };
        run.handle_input(at(millis), input).unwrap();
    }
    said + "it goes on"
}

fn ended(message: &AnyMessage, outcome: &Outcome) -> String {
    let answer = outcome.answer(Timestamp::EPOCH, message, &mut IdSource::seeded(7));
    let human = outcome
        .steps
        .iter()
        .fold(String::new(), |said, step| said + &format!("{step:?}\n"));
    format!("{:?}\n{human}{}", outcome.end, json::to_string(&answer))
}

fn held(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/golden")
        .join(name);
    if std::env::var_os("UBOS_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, now).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = kept
        .lines()
        .zip(now.lines())
        .enumerate()
        .find(|(_, (kept, now))| kept != now);
    assert!(
        differs.is_none() && kept.len() == now.len(),
        "{name}: {differs:?}\nUBOS_GOLDEN=write writes it anew"
    );
}

#[test]
fn what_is_told_of_the_vectors_is_what_was_told_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/valid");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let library = library();
    let mut now = interface_prompt("Two nights in Paris", &library, &["HOTELS"]);
    for file in files {
        let Ok((message, _)) = AnyMessage::decode(&fs::read(&file).unwrap()) else {
            continue;
        };
        writeln!(
            now,
            "\n==== {}",
            file.file_name().unwrap().to_string_lossy()
        )
        .unwrap();
        for (part, said) in told(&message, &library) {
            writeln!(now, "-- {part}\n{said}").unwrap();
        }
    }
    held("vectors.txt", &now);
}

/// Gives acts verbs, tools and parameters that the library has, or nearly.
#[cfg(feature = "arbitrary")]
fn served(tree: &mut Value, ids: &mut IdSource) {
    let die = ids.uuid().into_bytes();
    let any = |words: &[&str], die: u8| Value::from(words[usize::from(die) % words.len()]);
    let verb = any(&["search", "search", "rank", "s", "serch", "merge"], die[0]);
    let tool = any(&["H_API", "H_API", "RANK", "MERGE", "H_AP"], die[1]);
    let params = match die[2] % 6 {
        0 => json!({"city": "P"}),
        1 => json!({"cty": "P", "budget": die[3]}),
        2 => json!({"hotels": [1], "bdg": "150"}),
        3 => json!({"city": 7, "out_fmt": "human"}),
        _ => json!({}),
    };
    match tree {
        Value::Array(act)
            if matches!(
                &act[..],
                [Value::String(_), Value::String(_), Value::Object(_)]
            ) && act[0] != "join" =>
        {
            (act[0], act[1]) = (verb, tool);
            act[2]
                .as_object_mut()
                .unwrap()
                .extend(params.as_object().unwrap().clone());
            served(&mut act[2], ids);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| served(item, ids)),
        Value::Object(members) => {
            if members.contains_key("verb") && members.contains_key("tool") {
                members.extend([("verb".to_owned(), verb), ("tool".to_owned(), tool)]);
                members.insert("params".to_owned(), params);
            }
            if members.contains_key("g") && die[4] < 128 {
                let limits =
                    json!({"budget": "100", "forbidden_tools": any(&["RANK", "MERGE"], die[5])});
                members.insert("ctx".to_owned(), limits);
            }
            members.values_mut().for_each(|value| served(value, ids));
        }
        _ => {}
    }
}

#[cfg(feature = "arbitrary")]
#[test]
fn what_is_told_of_drawn_messages_is_what_was_told_before() {
    use arbitrary::{Arbitrary as _, Unstructured};
    use std::collections::BTreeMap;

    let (library, mut ids) = (library(), IdSource::seeded(1));
    let mut parts: BTreeMap<&str, String> = BTreeMap::new();
    for _ in 0..150 {
        let bytes: Vec<u8> = (0..40).flat_map(|_| ids.uuid().into_bytes()).collect();
        let message = AnyMessage::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        let mut known = serde_json::from_slice(&message.encode()).unwrap();
        served(&mut known, &mut ids);
        let known = AnyMessage::decode(known.to_string().as_bytes());
        for message in [message].into_iter().chain(known.map(|(known, _)| known)) {
            for (part, said) in told(&message, &library) {
                *parts.entry(part).or_default() += &said;
            }
        }
    }
    let now = parts.iter().map(|(part, said)| {
        format!(
            "{part}: {} bytes, {}\n",
            said.len(),
            Digest::of_bytes(said.as_bytes())
        )
    });
    held("drawn.txt", &now.collect::<String>());
}
