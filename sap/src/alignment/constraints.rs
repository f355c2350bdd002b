//! The constraints of a task, held against an output.

use std::sync::OnceLock;

use super::Subject;
use super::output::Output;
use super::predicate::{Predicate, PredicateError};
use super::severity::Severity;
use crate::context::{ConstitutionalContext, PressureLevel};
use crate::evidence::PolicyCheck;

/// What came of one constraint.
pub(super) struct Checked {
    /// The constraint, cut where it is long.
    pub(super) name: String,
    pub(super) check: PolicyCheck,
    pub(super) issue: Option<(Severity, String)>,
}

/// Constraints of one task that are checked; further ones are listed as unchecked, once.
const MAX_CHECKED: usize = 64;

/// Bytes of the texts of a task whose predicates are kept between its verdicts.
const MAX_PREPARED_BYTES: usize = 8 << 10;

/// The predicates among the constraints of one task, read once, for the verdicts of its whole way. What is read of a text may
/// take some 25 times as much as the text, for a place has a string a token. So the first 8 KiB of texts are kept, and further
/// ones are read for each verdict.
#[derive(Debug, Default)]
pub(crate) struct Prepared(OnceLock<Vec<Own>>);

/// A constraint that is a predicate itself, or was meant to be one.
#[derive(Debug)]
struct Own {
    text: Box<str>,
    read: Result<Predicate, PredicateError>,
}

impl Prepared {
    /// The constraints of a context, in order. Whoever judges may have changed them meanwhile, so each is looked for by its
    /// text.
    fn of(&self, context: &ConstitutionalContext) -> &[Own] {
        self.0.get_or_init(|| {
            let texts = context.constraints.iter().flatten().take(MAX_CHECKED);
            let own = texts.filter_map(|text| own(text));
            // To refuse a longer one takes no time.
            let short = own.filter(|text| text.len() <= Predicate::MAX_BYTES);
            let mut bytes = 0;
            let kept = short.take_while(|text| {
                bytes += text.len();
                bytes <= MAX_PREPARED_BYTES
            });
            let read = kept.map(|text| Own {
                text: text.into(),
                read: text.parse(),
            });
            read.collect()
        })
    }
}

/// How often at most the constraints of a task look at all of an output: once a term.
pub(super) fn looks(context: &ConstitutionalContext, known: &[(String, Predicate)]) -> usize {
    /// Bytes of the shortest term, with what joins it to the one before.
    const TERM: usize = 10;
    let looks = context.constraints.iter().flatten().take(MAX_CHECKED);
    let looks = looks.map(|text| match (given(text, known), own(text)) {
        (Some(predicate), _) => predicate.terms(),
        (None, Some(own)) => (1 + own.len() / TERM).min(Predicate::MAX_TERMS),
        (None, None) => 0,
    });
    looks.sum()
}

/// What a constraint in words is checked by.
fn given<'k>(text: &str, known: &'k [(String, Predicate)]) -> Option<&'k Predicate> {
    let mut known = known.iter();
    known.find_map(|(words, predicate)| (words == text).then_some(predicate))
}

/// The predicate that a constraint is itself, as text.
fn own(text: &str) -> Option<&str> {
    text.strip_prefix("output ")
}

/// Characters of a constraint, or of a principle, that a check shows.
const MAX_SHOWN: usize = 120;

/// The beginning of what a task says, as much of it as a check shows.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// The constraints of a task as unchecked, for a reason.
pub(crate) fn all_unchecked(context: &ConstitutionalContext, why: &str) -> Vec<PolicyCheck> {
    let constraints = context.constraints.as_deref().unwrap_or_default();
    let named = constraints.iter().take(MAX_CHECKED).map(|text| shown(text));
    let more = unlisted(constraints);
    let check = |name: String| PolicyCheck::with(&name, "UNCHECKED", why);
    named.chain(more).map(check).collect()
}

/// The name of what stands for the constraints beyond those that are checked.
fn unlisted(constraints: &[String]) -> Option<String> {
    let more = constraints.len().saturating_sub(MAX_CHECKED);
    (more > 0).then(|| format!("{more} more constraints"))
}

/// Holds an output against the task's constraints; nothing at admission, or where the level is instant.
pub(super) fn check(
    subject: &Subject<'_>,
    known: &[(String, Predicate)],
    output: Option<&mut Output<'_>>,
) -> Vec<Checked> {
    let level = subject.context.pressure_level;
    let Some(output) = output.filter(|_| level != PressureLevel::Instant) else {
        return Vec::new();
    };
    let constraints = subject.context.constraints.as_deref().unwrap_or_default();
    let is_thorough = level == PressureLevel::Deliberated;
    let prepared = subject
        .prepared
        .map(|prepared| prepared.of(subject.context));
    let mut prepared = prepared.unwrap_or_default().iter().peekable();
    let mut checked = Vec::new();
    for text in constraints.iter().take(MAX_CHECKED) {
        let name = shown(text);
        let mut hold = |predicate: &Predicate| {
            let held = predicate.holds_within(output);
            held.map_err(|spent| spent.to_string())
        };
        let own = own(text);
        // In the order of the texts.
        let read = prepared.next_if(|prepared| own == Some(&*prepared.text));
        let outcome = match (given(text, known), read.map(|own| &own.read), own) {
            (Some(predicate), ..) => hold(predicate),
            (None, Some(Ok(predicate)), _) => hold(predicate),
            (None, Some(Err(error)), _) => Err(error.to_string()),
            (None, None, Some(own)) => match own.parse() {
                Ok(predicate) => hold(&predicate),
                Err(error) => Err(error.to_string()),
            },
            (None, None, None) => Err("nobody here can check it".to_owned()),
        };
        checked.push(match outcome {
            Ok(true) => passed(name),
            Ok(false) => failed(name),
            Err(why) => unchecked(name, why, is_thorough),
        });
    }
    if let Some(more) = unlisted(constraints) {
        checked.push(unchecked(more, "too many to check".to_owned(), is_thorough));
    }
    checked
}

fn passed(name: String) -> Checked {
    let check = PolicyCheck::with(&name, "PASS", "the output keeps this constraint");
    Checked {
        name,
        check,
        issue: None,
    }
}

fn failed(name: String) -> Checked {
    let why = "the output breaks this constraint";
    let check = PolicyCheck::with(&name, "FAIL", why);
    Checked {
        name,
        check,
        issue: Some((Severity::High, why.to_owned())),
    }
}

fn unchecked(name: String, why: String, is_thorough: bool) -> Checked {
    let check = PolicyCheck::with(&name, "UNCHECKED", why.clone());
    Checked {
        name,
        check,
        issue: is_thorough.then_some((Severity::Low, why)),
    }
}

#[cfg(all(test, feature = "driver"))]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;
    use ubos_common::json::{RawBuf, RawObject};

    use super::super::{Policy as _, Rules};
    use super::*;
    use crate::ident::Capability;
    use crate::processor::fixture::{Still, TASK, processor};
    use crate::processor::{Answer, Config, Context, HandlerError, Outcome, Progress};
    use crate::status::Status;
    use crate::store::MemoryTranscript;

    fn parsed() -> usize {
        super::super::predicate::PARSED.get()
    }

    // spec: SAP-4.2-9
    #[test]
    fn the_constraints_of_a_task_are_read_once_for_all_its_verdicts() {
        let reports = |mut cx: Context| async move {
            for _ in 0..3 {
                let one = RawBuf::parse("1").map_err(HandlerError::from)?;
                cx.report(Progress::partial(one.clone(), vec![RawObject::empty()]))
                    .await;
                cx.report(Progress::running(Some(one))).await;
            }
            Ok::<_, HandlerError>(Outcome::new(RawBuf::parse("1")?))
        };
        let processor = processor(Arc::new(MemoryTranscript::default()), Config::default())
            .policy(Arc::new(Rules::default()))
            .handle("text.echo".parse().unwrap(), reports);
        let texts = r#""principles":["care"],"riskTolerance":"high","constraints":["output . is number","output . = {\"a\":1} and","output . < 2"]"#;
        // As long as a predicate may be.
        let texts = texts.replace(". < 2", &format!("{:1024}", ". < 2"));
        let task = TASK.replace(r#""principles":["care"]"#, &texts);
        let mut sink = |_: crate::processor::Delivery<'_>| {};
        let before = parsed();
        let run = processor.process(&Still, task.as_bytes(), &mut sink);
        let Answer::Result(result) = block_on(run).unwrap() else {
            panic!("it is turned away");
        };
        assert_eq!(result.status, Status::Succeeded);
        let checks = result.constitutional_evidence.policy_checks.unwrap();
        let found: Vec<&str> = checks
            .iter()
            .filter_map(|it| it.status.as_deref())
            .collect();
        assert_eq!(found, ["PASS", "PASS", "UNCHECKED", "PASS"]);
        assert_eq!(parsed() - before, 3);
    }

    // spec: SAP-4.2-9
    #[test]
    fn long_constraints_are_checked_each_and_kept_up_to_a_bound() {
        let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
        let long = |last: &str| format!("output . = \"{}\"", last.repeat(1_000));
        let texts = (0..MAX_CHECKED).map(|number| match number {
            63 => "output . < 2".to_owned(),
            _ => long("x"),
        });
        context.constraints = Some(texts.collect());
        let (prepared, one) = (Arc::<Prepared>::default(), RawBuf::parse("1").unwrap());
        let capability: Capability = "a.b".parse().unwrap();
        let mut subject = Subject::admission(&capability, &context).prepared_by(&prepared);
        subject.output = Some(one.as_raw());
        let checks = Rules::default().assess(&subject).checks;
        let kept = checks.iter().map(|check| check.status.as_deref());
        let kept = kept.filter(|status| *status == Some("PASS"));
        assert_eq!((checks.len(), kept.count()), (MAX_CHECKED, 1));
        let held: usize = prepared.of(&context).iter().map(|own| own.text.len()).sum();
        assert!(
            (MAX_PREPARED_BYTES - 1_024..=MAX_PREPARED_BYTES).contains(&held),
            "{held}"
        );
        let longest = format!("output {:1024}", ". < 2");
        context.constraints = Some(vec![longest; MAX_CHECKED]);
        assert_eq!(Prepared::default().of(&context).len(), 8);
    }

    // spec: SAP-4.2-9
    #[test]
    fn constraints_that_were_changed_after_they_were_read_are_those_that_count() {
        let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
        context.constraints = Some(vec!["output . < 2".into(), "output . < 3".into()]);
        let (prepared, one) = (Arc::<Prepared>::default(), RawBuf::parse("1").unwrap());
        let capability: Capability = "a.b".parse().unwrap();
        let rules = Rules::default();
        let verdicts = |context: &ConstitutionalContext| {
            let mut subject = Subject::admission(&capability, context).prepared_by(&prepared);
            subject.output = Some(one.as_raw());
            let checks = rules.assess(&subject).checks;
            let found = checks.into_iter().filter_map(|check| check.status);
            found.collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&context), ["PASS", "PASS"]);
        context.constraints = Some(vec!["output . < 1".into(), "output . < 3".into()]);
        assert_eq!(verdicts(&context), ["FAIL", "PASS"]);
        context.constraints = Some(vec!["output . < 3".into(), "output . > 1".into()]);
        assert_eq!(verdicts(&context), ["PASS", "FAIL"]);
    }
}
