//! The kit of a toy protocol, and kits that do not keep what they promise.

use ubos_common::json;
use ubos_conformance::{
    Case, ConnectError, Expectations, Judge, Kit, ProofError, Protocol, Reach, Recorder, Verdict,
};

/// A peer is asked with a number and gives an answer; it must echo the number (TOY-1), say something
/// (TOY-2), and never say the same twice (TOY-3).
struct Toy;

trait Peer {
    fn ask(&mut self, number: u32) -> (u32, String);
}

#[derive(Debug)]
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
enum Fake {
    Reference,
    WrongEcho,
    Silent,
    Repeats,
}

impl Peer for Fake {
    fn ask(&mut self, number: u32) -> (u32, String) {
        match self {
            Self::Reference => (number, format!("answer {number}")),
            Self::WrongEcho => (number + 1, format!("answer {number}")),
            Self::Silent => (number, String::new()),
            Self::Repeats => (number, "again".to_owned()),
        }
    }
}

fn ask_three(peer: &mut (dyn Peer + 'static), recorder: &mut Recorder<Line>) {
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

fn rule(broken: fn(&Line, &[String]) -> bool) -> Rule {
    Rule {
        broken,
        before: Vec::new(),
        verdict: None,
    }
}

/// A case with a rule and a mutant; the reference and the scenario are always the same.
fn case(
    clause: &'static str,
    name: &'static str,
    broken: fn(&Line, &[String]) -> bool,
    mutant: Fake,
) -> Case<Toy> {
    Case::<Toy>::new(
        Reach::Drive,
        (clause, name),
        ask_three,
        move || rule(broken),
        || Box::new(Fake::Reference),
        move || Box::new(mutant),
    )
}

fn echoes() -> Case<Toy> {
    let broken = |line: &Line, _: &[String]| line.asked != line.echoed;
    case("TOY-1", "the number is echoed", broken, Fake::WrongEcho)
}

fn speaks() -> Case<Toy> {
    let broken = |line: &Line, _: &[String]| line.said.is_empty();
    case("TOY-2", "something is said", broken, Fake::Silent)
}

fn fresh() -> Case<Toy> {
    let broken = |line: &Line, before: &[String]| before.contains(&line.said);
    case("TOY-3", "nothing is said twice", broken, Fake::Repeats)
}

fn kit() -> Kit<Toy> {
    Kit::new("toy", [echoes(), speaks().also_breaks(&["TOY-3"]), fresh()])
}

fn floor(cases: usize) -> Expectations {
    Expectations::new().with_floor(cases)
}

#[test]
fn an_honest_kit_is_proved() {
    assert_eq!(kit().prove(), Ok(()));
}

#[test]
fn a_judge_that_never_fails_is_found() {
    let blind = case("TOY-1", "blind", |_, _| false, Fake::WrongEcho);
    let errors = Kit::new("toy", [blind]).prove().unwrap_err();
    assert!(
        matches!(errors[..], [ProofError::MutantPasses { .. }]),
        "{errors:?}"
    );
}

#[test]
fn a_judge_that_always_fails_is_found() {
    let harsh = case("TOY-1", "harsh", |_, _| true, Fake::WrongEcho);
    let errors = Kit::new("toy", [harsh]).prove().unwrap_err();
    assert!(
        matches!(errors[..], [ProofError::ReferenceFails { .. }]),
        "{errors:?}"
    );
}

#[test]
fn a_mutant_that_breaks_more_is_found() {
    let kit = Kit::new("toy", [echoes(), speaks(), fresh()]);
    let errors = kit.prove().unwrap_err();
    assert!(
        matches!(
            errors[..],
            [ProofError::MutantBreaksMore {
                clause: "TOY-3",
                ..
            }]
        ),
        "{errors:?}"
    );
    assert!(errors[0].to_string().contains("also breaks TOY-3"));
}

#[test]
fn a_reference_must_be_judged() {
    let idle = Case::<Toy>::new(
        Reach::Drive,
        ("TOY-1", "nothing is asked"),
        |_, _| {},
        || rule(|_, _| false),
        || Box::new(Fake::Reference),
        || Box::new(Fake::WrongEcho),
    );
    let errors = Kit::new("toy", [idle.clone(), idle]).prove().unwrap_err();
    assert!(
        errors
            .iter()
            .any(|e| matches!(e, ProofError::SameName { .. }))
    );
    assert!(errors.iter().any(|e| matches!(
        e,
        ProofError::ReferenceFails {
            verdict: Verdict::NotApplicable { .. },
            ..
        }
    )));
}

#[test]
fn a_stranger_is_judged_by_clause() {
    let report = kit().run(&floor(3), |_| Ok(Box::new(Fake::Silent)));
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
    let good = kit().run(&floor(3), |_| Ok(Box::new(Fake::Reference)));
    assert!(good.is_conformant(), "{good}");
}

#[test]
fn a_failure_shows_its_exchange() {
    let report = kit().run(&floor(3), |_| Ok(Box::new(Fake::WrongEcho)));
    let text = report.to_string();
    assert!(text.contains("    | Line { asked: 3, echoed: 4"), "{text}");
    assert_eq!(text.matches("    | ").count(), 3, "{text}");
    assert!(report.to_junit().contains("asked: 3, echoed: 4"));
}

#[test]
fn too_few_judged_is_no_pass() {
    let expectations = floor(1).with_out_of_reach("TOY-1", "no route");
    let kit = Kit::new("toy", [echoes()]);
    let unreachable = |_: &Case<Toy>| Err(ConnectError::Unreachable("no route".to_owned()));
    let report = kit.run(&expectations, unreachable);
    assert_eq!((report.judged(), report.is_conformant()), (0, false));
    let text = report.to_string();
    assert!(
        text.contains("0 cases judged the peer, 1 are wanted"),
        "{text}"
    );
    assert!(report.to_junit().contains("0 cases judged the peer"));
}

#[test]
fn an_untested_must_fails_the_run_unless_declared() {
    let silent_about = |case: &Case<Toy>| match case.clause() {
        "TOY-2" => Err(ConnectError::Unreachable("no voice".to_owned())),
        _ => Ok(Box::new(Fake::Reference) as Box<dyn Peer>),
    };
    let report = kit().run(&floor(1), silent_about);
    assert_eq!(
        (report.untested(), report.is_conformant()),
        (vec!["TOY-2"], false)
    );
    assert!(report.to_string().contains("not tested: TOY-2"), "{report}");

    let declared = floor(1).with_out_of_reach("TOY-2", "it has no voice");
    let report = kit().run(&declared, silent_about);
    assert!(report.is_conformant(), "{report}");
    assert!(report.to_string().contains("it has no voice"), "{report}");

    let supported = floor(1).with_supported("TOY-1").with_supported("TOY-3");
    let report = kit().run(&supported, silent_about);
    assert_eq!(
        (report.judged(), report.is_conformant()),
        (2, true),
        "{report}"
    );
}

#[test]
fn a_should_may_stay_untested() {
    let advised = speaks().at_level(ubos_common::violation::Level::Should);
    let kit = Kit::new("toy", [echoes(), advised]);
    let report = kit.run(&floor(1), |case| match case.clause() {
        "TOY-2" => Err(ConnectError::Unreachable("no voice".to_owned())),
        _ => Ok(Box::new(Fake::Reference)),
    });
    assert!(report.is_conformant(), "{report}");
}

#[test]
fn a_case_unknown_to_the_peer_does_not_fail() {
    let report = kit().run(&floor(2), |case| match case.clause() {
        "TOY-3" => Err(ConnectError::Unknown("freshness".to_owned())),
        _ => Ok(Box::new(Fake::Reference)),
    });
    assert!(report.is_conformant(), "{report}");
    assert!(
        report.to_string().ends_with("1 unknown to the peer"),
        "{report}"
    );
}

#[test]
fn a_known_failure_runs_and_is_reported_when_it_passes() {
    let known = floor(3).with_known_failure("nothing is said twice", "a bug");
    let report = kit().run(&known, |_| Ok(Box::new(Fake::Repeats)));
    assert_eq!(
        (report.failed(), report.is_conformant()),
        (1, true),
        "{report}"
    );
    assert!(
        report.to_string().contains("known failure   TOY-3"),
        "{report}"
    );

    let report = kit().run(&known, |_| Ok(Box::new(Fake::Reference)));
    assert_eq!(report.unexpected_passes().count(), 1);
    assert!(
        report
            .to_string()
            .contains("remove it from the expectations")
    );
}

#[test]
fn expectations_about_nothing_fail_the_run() {
    let typo = floor(3).with_known_failure("nothing is sed twice", "a bug");
    let report = kit().run(&typo, |_| Ok(Box::new(Fake::Reference)));
    assert!(!report.is_conformant());
    assert!(
        report
            .to_string()
            .contains("not in this kit: nothing is sed twice")
    );
    let typo = Expectations::new()
        .with_supported("TOY")
        .with_supported("TYO-1");
    let report = kit().run(&typo, |_| Ok(Box::new(Fake::Reference)));
    assert!(!report.is_conformant());
    assert!(report.to_string().contains("not in this kit: TYO-1"));
}

#[test]
fn a_prefix_supports_whole_clauses_only() {
    let supported = Expectations::new().with_supported("TOY");
    let report = kit().run(&supported, |_| Ok(Box::new(Fake::Reference)));
    assert_eq!(report.judged(), 3);
    let supported = Expectations::new().with_supported("TO");
    let report = kit().run(&supported, |_| Ok(Box::new(Fake::Reference)));
    assert_eq!(report.judged(), 0);
}

#[test]
fn a_flood_is_cut_off_and_fails() {
    let flood = Case::<Toy>::new(
        Reach::Drive,
        ("TOY-1", "endless"),
        |peer, recorder| {
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
        || rule(|_, _| false),
        || Box::new(Fake::Reference),
        || Box::new(Fake::WrongEcho),
    );
    let report = Kit::new("toy", [flood]).run(&floor(1), |_| Ok(Box::new(Fake::Reference)));
    assert_eq!(report.failed(), 1);
    assert_eq!(report.outcomes()[0].exchange.len(), 41);
}

#[test]
fn the_same_judges_tap_live_traffic() {
    let mut tap = kit().tap(&floor(3));
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
fn reports_agree_in_three_forms() {
    let report = kit().run(&floor(3), |_| Ok(Box::new(Fake::Repeats)));
    assert_eq!(
        report.to_string(),
        "pass            TOY-1  the number is echoed\n\
         pass            TOY-2  something is said\n\
         fail            TOY-3  nothing is said twice (line 1: <again>)\n    \
         | Line { asked: 3, echoed: 3, said: \"again\" }\n    \
         | Line { asked: 5, echoed: 5, said: \"again\" }\n    \
         | Line { asked: 8, echoed: 8, said: \"again\" }\n\
         2 passed, 1 failed, 0 not applicable"
    );
    let value: serde_json::Value = serde_json::from_slice(&json::to_vec(&report)).unwrap();
    assert_eq!(
        (&value["failed"], &value["cases"][2]["seen"]),
        (&1.into(), &"<again>".into())
    );
    let junit = report.to_junit();
    assert!(
        junit.contains("name=\"toy\" tests=\"3\" failures=\"1\" skipped=\"0\""),
        "{junit}"
    );
    assert!(
        junit.contains("<failure message=\"line 1: &lt;again&gt;\">"),
        "{junit}"
    );
}

#[test]
fn a_peer_forges_no_line_and_breaks_no_xml() {
    struct Loud;
    impl Judge<Line> for Loud {
        fn see(&mut self, _: &Line) {}
        fn verdict(&mut self) -> Verdict {
            Verdict::fail("line 0", "x\npass  TOY-9\u{ffff}\u{1b}")
        }
    }
    let loud = Case::<Toy>::new(
        Reach::Drive,
        ("TOY-1", "loud"),
        |_, _| {},
        || Loud,
        || Box::new(Fake::Reference),
        || Box::new(Fake::Reference),
    );
    let report = Kit::new("toy", [loud]).run(&floor(1), |_| Ok(Box::new(Fake::Reference)));
    assert_eq!(report.to_string().lines().count(), 2, "{report}");
    assert!(!report.to_string().contains('\u{1b}'));
    assert!(!report.to_junit().contains('\u{ffff}'));
}
