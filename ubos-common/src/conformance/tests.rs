//! The kit of a toy protocol, and kits that lie.

use super::*;
use crate::json;

/// A peer is asked with a number and gives an answer; it must echo the number (TOY-1), say something
/// (TOY-2), and never say the same twice (TOY-3).
struct Toy;

trait Peer {
    fn ask(&mut self, number: u32) -> (u32, String);
}

struct Line {
    asked: u32,
    echoed: u32,
    said: String,
}

impl Protocol for Toy {
    type Line = Line;
    type Peer = dyn Peer;
}

#[derive(Clone, Copy)]
enum Twin {
    Good,
    WrongEcho,
    Silent,
    Parrot,
    Flood,
}

impl Peer for Twin {
    fn ask(&mut self, number: u32) -> (u32, String) {
        match self {
            Self::Good | Self::Flood => (number, format!("answer {number}")),
            Self::WrongEcho => (number + 1, format!("answer {number}")),
            Self::Silent => (number, String::new()),
            Self::Parrot => (number, "again".to_owned()),
        }
    }
}

fn play(peer: &mut (dyn Peer + 'static), recorder: &mut Recorder<Line>) {
    for asked in [3, 5, 8] {
        let (echoed, said) = peer.ask(asked);
        recorder.record(Line {
            asked,
            echoed,
            said,
        });
    }
}

/// Looks at each line with what was said before.
struct Rule {
    broken: fn(&Line, &[String]) -> bool,
    before: Vec<String>,
    verdict: Option<Verdict>,
}

impl Judge<Line> for Rule {
    fn see(&mut self, line: &Line) {
        if (self.broken)(line, &self.before) && self.verdict.is_none() {
            self.verdict = Some(Verdict::fail(
                format!("line {}", self.before.len()),
                format!("<{}>", line.said),
            ));
        }
        self.before.push(line.said.clone());
    }

    fn verdict(&mut self) -> Verdict {
        let unseen = self
            .before
            .is_empty()
            .then(|| Verdict::not_applicable("nothing was asked"));
        self.verdict.take().or(unseen).unwrap_or(Verdict::Pass)
    }
}

fn rule(broken: fn(&Line, &[String]) -> bool) -> Box<dyn Judge<Line>> {
    Box::new(Rule {
        broken,
        before: Vec::new(),
        verdict: None,
    })
}

const ECHO: Case<Toy> = Case {
    clause: "TOY-1",
    name: "the number is echoed",
    reach: Reach::Drive,
    drags: &[],
    play,
    judge: || rule(|line, _| line.asked != line.echoed),
    good: || Box::new(Twin::Good),
    bad: || Box::new(Twin::WrongEcho),
};

const SPEAKS: Case<Toy> = Case {
    clause: "TOY-2",
    name: "something is said",
    drags: &["TOY-3"],
    judge: || rule(|line, _| line.said.is_empty()),
    bad: || Box::new(Twin::Silent),
    ..ECHO
};

const FRESH: Case<Toy> = Case {
    clause: "TOY-3",
    name: "nothing is said twice",
    judge: || rule(|line, before| before.contains(&line.said)),
    bad: || Box::new(Twin::Parrot),
    ..ECHO
};

const KIT: [Case<Toy>; 3] = [ECHO, SPEAKS, FRESH];

#[test]
fn an_honest_kit_is_proved() {
    assert_eq!(prove(&KIT), Ok(()));
}

#[test]
fn a_judge_that_never_fails_is_found() {
    let blind = Case {
        judge: || rule(|_, _| false),
        ..ECHO
    };
    let errors = prove(&[blind]).unwrap_err();
    assert!(
        matches!(errors[..], [ProofError::BadTwinPasses { .. }]),
        "{errors:?}"
    );
}

#[test]
fn a_judge_that_always_fails_is_found() {
    let harsh = Case {
        judge: || rule(|_, _| true),
        ..ECHO
    };
    let errors = prove(&[harsh]).unwrap_err();
    assert!(
        matches!(errors[..], [ProofError::GoodTwin { .. }]),
        "{errors:?}"
    );
}

#[test]
fn a_breach_that_drags_more_than_it_says_is_found() {
    let alone = Case {
        drags: &[],
        ..SPEAKS
    };
    let errors = prove(&[ECHO, alone, FRESH]).unwrap_err();
    assert!(
        matches!(
            errors[..],
            [ProofError::BadTwinDrags {
                clause: "TOY-3",
                ..
            }]
        ),
        "{errors:?}"
    );
    assert!(errors[0].to_string().contains("also breaks TOY-3"));
}

#[test]
fn a_good_twin_must_be_judged_and_names_be_unique() {
    let idle = Case {
        play: |_, _| {},
        name: "nothing is asked",
        ..ECHO
    };
    let errors = prove(&[idle, idle]).unwrap_err();
    assert!(
        errors
            .iter()
            .any(|e| matches!(e, ProofError::SameName { .. }))
    );
    assert!(errors.iter().any(|e| matches!(
        e,
        ProofError::GoodTwin {
            verdict: Verdict::NotApplicable { .. },
            ..
        }
    )));
}

#[test]
fn a_stranger_is_judged_clause_by_clause() {
    let report = run(&KIT, 3, |_| Ok(Box::new(Twin::Silent)));
    let failed: Vec<_> = report
        .outcomes()
        .iter()
        .filter(|o| o.verdict.is_fail())
        .map(|o| o.clause)
        .collect();
    assert_eq!(
        (failed, report.is_conformant()),
        (vec!["TOY-2", "TOY-3"], false)
    );
    assert!(run(&KIT, 3, |_| Ok(Box::new(Twin::Good))).is_conformant());
}

#[test]
fn too_few_judged_is_no_pass() {
    let report = run(&KIT, 1, |_| Err("no route".to_owned()));
    assert_eq!((report.judged(), report.is_conformant()), (0, false));
    assert!(
        report
            .to_string()
            .ends_with("only 0 judged where 1 are wanted"),
        "{report}"
    );
    assert!(report.to_junit("toy").contains("0 judged, 1 wanted"));
}

#[test]
fn a_flood_is_cut_off_and_fails() {
    let flood = Case::<Toy> {
        play: |peer, recorder| {
            let mut asked = 0;
            while !recorder.is_full() {
                let (echoed, said) = peer.ask(asked);
                recorder.record(Line {
                    asked,
                    echoed,
                    said,
                });
                asked += 1;
            }
        },
        ..ECHO
    };
    assert_eq!(run(&[flood], 1, |_| Ok(Box::new(Twin::Flood))).failed(), 1);
}

#[test]
fn the_same_judges_tap_live_traffic() {
    let mut tap = Tap::new(&KIT, 3);
    for said in ["a", "b", "a"] {
        tap.see(&Line {
            asked: 1,
            echoed: 1,
            said: said.to_owned(),
        });
    }
    let report = tap.finish();
    assert_eq!((report.passed(), report.failed()), (2, 1));
}

#[test]
fn reports_say_the_same_in_three_forms() {
    let report = run(&KIT, 3, |_| Ok(Box::new(Twin::Parrot)));
    assert_eq!(
        report.to_string(),
        "pass            TOY-1  the number is echoed\n\
         pass            TOY-2  something is said\n\
         fail            TOY-3  nothing is said twice (line 1: <again>)\n\
         2 passed, 1 failed, 0 not applicable"
    );
    let value: serde_json::Value = serde_json::from_slice(&json::to_vec(&report)).unwrap();
    assert_eq!(
        (&value["failed"], &value["cases"][2]["seen"]),
        (&1.into(), &"<again>".into())
    );
    let junit = report.to_junit("a \"toy\"");
    assert!(
        junit.contains("name=\"a &quot;toy&quot;\" tests=\"3\" failures=\"1\" skipped=\"0\""),
        "{junit}"
    );
    assert!(
        junit.contains("<failure message=\"line 1: &lt;again&gt;\"/>"),
        "{junit}"
    );
}

#[test]
fn what_a_peer_says_forges_no_line_and_breaks_no_xml() {
    struct Loud;
    impl Judge<Line> for Loud {
        fn see(&mut self, _: &Line) {}
        fn verdict(&mut self) -> Verdict {
            Verdict::fail("line 0", "x\npass  TOY-9\u{ffff}\u{1b}")
        }
    }
    let loud = Case::<Toy> {
        judge: || Box::new(Loud),
        ..ECHO
    };
    let report = run(&[loud], 1, |_| Ok(Box::new(Twin::Good)));
    assert_eq!(report.to_string().lines().count(), 2, "{report}");
    assert!(!report.to_string().contains('\u{1b}'));
    assert!(!report.to_junit("toy").contains('\u{ffff}'));
}
