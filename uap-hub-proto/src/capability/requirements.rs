//! What a skill requires of a job's payloads.

use std::{collections::BTreeMap, fmt};

use super::shape::{SameType, Shape, essence};
use crate::wire::PayloadRequirement;

/// What a skill requires of a job's payloads, with MIME types as they are compared, and what it makes.
///
/// A job is held against it in steps of the shorter of both lists, and so are their MIME types: what an agent requires beside
/// what a job has costs the job nothing.
///
/// Spec: UAP hub 3
#[derive(Debug, PartialEq)]
pub(crate) struct Requirements {
    /// By their types, one of each.
    required: Box<[Requirement]>,
    /// The types that a job must have.
    needed: usize,
    /// The payloads of its results, as they were declared.
    pub(crate) targets: Box<[PayloadRequirement]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Requirement {
    kind: Box<str>,
    is_required: bool,
    is_repeatable: bool,
    /// In order, each once; `None` for every type.
    mime_types: Option<Box<[Box<str>]>>,
}

/// What a text in a list, or a skill in the maps that it is a key of, takes beside its bytes: its allocations.
const TEXT_OVERHEAD: usize = 32;
const SKILL_OVERHEAD: usize = 512;

impl Requirements {
    // choice: HUB-3-2 all requirements for one payload type must be met: they are one with what each asks for
    pub(super) fn new(wire: Vec<PayloadRequirement>, targets: Vec<PayloadRequirement>) -> Self {
        let mut by_kind = BTreeMap::<Box<str>, Requirement>::new();
        for wire in wire {
            let next = Requirement::from(wire);
            match by_kind.get_mut(&next.kind) {
                Some(kept) => kept.narrow(next),
                None => drop(by_kind.insert(next.kind.clone(), next)),
            }
        }
        let required: Box<[_]> = by_kind.into_values().collect();
        Self {
            needed: required.iter().filter(|one| one.is_required).count(),
            required,
            targets: targets.into(),
        }
    }

    /// The approximate bytes that this takes beside its texts.
    pub(super) fn weight(&self) -> usize {
        let (required, targets) = (&self.required, &self.targets);
        let taken = required.iter().map(|one| {
            let mime_types = one.mime_types.as_deref().unwrap_or_default();
            size_of_val(mime_types) + TEXT_OVERHEAD * (1 + mime_types.len())
        });
        let made = targets.iter().map(|one| {
            let mime_types = &one.accepted_mime_types;
            let list = mime_types.capacity() * size_of::<String>();
            list + TEXT_OVERHEAD * (usize::from(!one.r#type.is_empty()) + mime_types.len())
        });
        let lists = size_of_val(&**required) + size_of_val(&**targets);
        SKILL_OVERHEAD + lists + taken.sum::<usize>() + made.sum::<usize>()
    }

    /// Whether a job's payloads meet all requirements; other payload types are ignored.
    // impl: HUB-3-2
    pub(crate) fn are_met_by(&self, shape: &Shape) -> bool {
        #[cfg(test)]
        steps::CHECKS.set(steps::CHECKS.get() + 1);
        let types = shape.types();
        if self.needed > types.len() {
            return false;
        }
        if self.required.len() <= types.len() {
            return self.unmet_by(shape).is_none();
        }
        let mut present = 0;
        let are_accepted = types.iter().all(|same| {
            steps::count(1);
            let Some(requirement) = self.of_kind(&same.kind) else {
                return true;
            };
            present += usize::from(requirement.is_required);
            requirement.fault_of(Some(same)).is_none()
        });
        are_accepted && present == self.needed
    }

    /// The first requirement that a job's payloads do not meet.
    pub(crate) fn unmet_by<'a>(&'a self, shape: &'a Shape) -> Option<Unmet<'a>> {
        self.required.iter().find_map(|requirement| {
            steps::count(1);
            let fault = requirement.fault_of(shape.of_type(&requirement.kind))?;
            let kind = &requirement.kind;
            Some(Unmet { kind, fault })
        })
    }

    fn of_kind(&self, kind: &str) -> Option<&Requirement> {
        let at = self.required.binary_search_by(|one| (*one.kind).cmp(kind));
        self.required.get(at.ok()?)
    }

    /// How many payload types it asks about.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.required.len()
    }
}

impl From<PayloadRequirement> for Requirement {
    fn from(wire: PayloadRequirement) -> Self {
        let listed = &wire.accepted_mime_types;
        Self {
            mime_types: (!listed.is_empty()).then(|| essences(listed)),
            kind: wire.r#type.into(),
            is_required: wire.is_required,
            is_repeatable: wire.is_repeatable,
        }
    }
}

impl Requirement {
    /// Asks for what another of the same type asks for, too.
    fn narrow(&mut self, other: Self) {
        self.is_required |= other.is_required;
        self.is_repeatable &= other.is_repeatable;
        self.mime_types = match (self.mime_types.take(), other.mime_types) {
            (Some(mine), Some(others)) => {
                let common = mine
                    .into_iter()
                    .filter(|mime| others.binary_search(mime).is_ok());
                Some(common.collect())
            }
            (mine, others) => mine.or(others),
        };
    }

    // choice: HUB-3-2 a payload without an attachment has no MIME type, so no list accepts it
    fn fault_of<'a>(&self, payloads: Option<&'a SameType>) -> Option<Fault<'a>> {
        let Some(payloads) = payloads else {
            return self.is_required.then_some(Fault::Missing);
        };
        if payloads.repeat && !self.is_repeatable {
            return Some(Fault::Repeated);
        }
        let listed = self.mime_types.as_deref()?;
        // Of different types no more are found than are listed: the search ends one after them.
        payloads.mime_types.iter().find_map(|mime| {
            steps::count(1);
            let Some(mime) = mime else {
                return Some(Fault::NoMimeType);
            };
            let found = listed.binary_search_by(|one| (**one).cmp(mime));
            found.is_err().then_some(Fault::MimeType(mime))
        })
    }
}

/// A requirement that a job's payloads do not meet, in words for people.
pub(crate) struct Unmet<'a> {
    kind: &'a str,
    fault: Fault<'a>,
}

enum Fault<'a> {
    Missing,
    Repeated,
    NoMimeType,
    MimeType(&'a str),
}

impl fmt::Display for Unmet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        match self.fault {
            Fault::Missing => write!(f, "a payload of type {kind:?} is missing"),
            Fault::Repeated => write!(f, "more than one payload has the type {kind:?}"),
            Fault::NoMimeType => write!(f, "a payload of type {kind:?} has no MIME type"),
            Fault::MimeType(mime) => write!(f, "payload type {kind:?} does not take {mime:?}"),
        }
    }
}

/// MIME types as they are compared, in order, each once.
fn essences(mime_types: &[String]) -> Box<[Box<str>]> {
    let mut all: Vec<_> = mime_types.iter().map(|mime| essence(mime)).collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// What placing jobs costs, for tests that bound it without a clock.
pub(crate) mod steps {
    #[cfg(test)]
    thread_local! {
        /// How often requirements were held against a job.
        pub(crate) static CHECKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
        /// Requirements, MIME types, agents and ranks that were looked at.
        pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// Counts steps in tests, and does nothing else.
    pub(crate) fn count(steps: usize) {
        #[cfg(test)]
        STEPS.set(STEPS.get() + steps);
        let _ = steps;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{MAX_ENTRIES, Registration},
        *,
    };
    use crate::wire::{
        AgentRegistration, Capability, Payload, TranslationCapability, capability::Format,
    };

    fn requirement(required: bool, repeatable: bool, mimes: &[&str]) -> PayloadRequirement {
        PayloadRequirement {
            r#type: "script".into(),
            is_required: required,
            is_repeatable: repeatable,
            accepted_mime_types: mimes.iter().map(|mime| (*mime).to_owned()).collect(),
        }
    }

    fn payload(kind: &str, mime: &str) -> Payload {
        Payload::file(kind, "name", mime, "data")
    }

    // spec: HUB-3-2
    #[test]
    fn requirements_ask_for_presence_number_and_mime_type() {
        let (one, other) = (
            payload("script", "Text/Plain; charset=utf-8"),
            payload("other", "image/png"),
        );
        let bare = Payload::new("script");
        for (wanted, requirement, payloads) in [
            (true, requirement(false, false, &[]), vec![]),
            (false, requirement(true, false, &[]), vec![]),
            (false, requirement(true, false, &[]), vec![other.clone()]),
            (
                true,
                requirement(true, false, &[]),
                vec![one.clone(), other.clone(), other.clone()],
            ),
            (
                false,
                requirement(true, false, &[]),
                vec![one.clone(), one.clone()],
            ),
            (
                true,
                requirement(true, true, &[]),
                vec![one.clone(), one.clone()],
            ),
            (
                true,
                requirement(true, true, &["image/png", "text/plain ;q=1"]),
                vec![one.clone()],
            ),
            (
                false,
                requirement(false, true, &["text/html"]),
                vec![one.clone()],
            ),
            (
                false,
                requirement(true, true, &["text/plain"]),
                vec![one.clone(), payload("script", "")],
            ),
            (
                false,
                requirement(true, true, &["text/plain"]),
                vec![bare.clone()],
            ),
            (true, requirement(true, true, &[]), vec![bare]),
        ] {
            assert_eq!(
                Requirements::new(vec![requirement.clone()], vec![])
                    .are_met_by(&Shape::of(&payloads)),
                wanted,
                "{requirement:?} {payloads:?}"
            );
        }
    }

    // spec: HUB-3-2
    #[test]
    fn requirements_for_one_payload_type_must_all_be_met() {
        let met = |requirements: &[PayloadRequirement], payloads: &[Payload]| {
            let requirements = Requirements::new(requirements.to_vec(), vec![]);
            assert_eq!(requirements.len(), 1);
            requirements.are_met_by(&Shape::of(payloads))
        };
        let both = [
            requirement(false, true, &["a/a", "a/b"]),
            requirement(true, true, &["a/b", "a/c"]),
        ];
        let file = |mime| payload("script", mime);
        assert!(met(&both, &[file("a/b"), file("a/b")]));
        assert!(!met(&both, &[file("a/a")]));
        assert!(!met(&both, &[]), "one of them requires it");
        let once = requirement(false, false, &[]);
        let and_once = [both[0].clone(), once];
        assert!(met(&and_once, &[file("a/a")]));
        assert!(!met(&and_once, &[file("a/a"), file("a/a")]));
        let none = [
            requirement(false, true, &["a/a"]),
            requirement(false, true, &["a/b"]),
        ];
        assert!(met(&none, &[]));
        assert!(!met(&none, &[file("a/a")]), "nothing is in both lists");
        assert!(!met(&none, &[Payload::new("script")]));
    }

    // spec: HUB-3-2
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_job_is_held_against_requirements_in_steps_of_the_shorter_list() {
        let named = |n: usize, must: bool, mimes: &[&str]| PayloadRequirement {
            r#type: n.to_string(),
            ..requirement(must, true, mimes)
        };
        let mimes: Vec<_> = (0..256).map(|n: usize| format!("a/{n}")).collect();
        let mimes: Vec<_> = mimes.iter().map(String::as_str).collect();
        let many = |must| (0..256).map(|n| named(n, must, &mimes)).collect::<Vec<_>>();
        let steps = |requirements: Vec<_>, payloads: &[Payload], wanted: bool| {
            let requirements = Requirements::new(requirements, vec![]);
            let (shape, before) = (Shape::of(payloads), steps::STEPS.get());
            assert_eq!(requirements.are_met_by(&shape), wanted);
            steps::STEPS.get() - before
        };
        let one = [payload("7", "a/9")];
        assert_eq!(steps(many(false), &one, true), 2);
        assert_eq!(steps(many(true), &one, false), 0, "255 are missing");
        let must = [&[named(300, true, &[])], &many(false)[..]].concat();
        assert_eq!(steps(must, &one, false), 2);
        let jobs: Vec<_> = (0..5000)
            .map(|n: usize| payload("7", &format!("a/{n}")))
            .collect();
        assert!(steps(vec![named(7, true, &["a/0", "a/1"])], &jobs, false) <= 4);
        let jobs: Vec<_> = (0..5000)
            .map(|n: usize| payload(&n.to_string(), "a/0"))
            .collect();
        assert_eq!(steps(vec![named(7, true, &["a/0"])], &jobs, true), 2);
    }

    // spec: HUB-2-4
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_registration_counts_with_what_its_lists_take() {
        let registered = |payloads: Vec<PayloadRequirement>, targets: Vec<PayloadRequirement>| {
            let capability = |n: usize| Capability {
                format: Some(Format::Translation(TranslationCapability {
                    r#type: n.to_string(),
                    source_payloads: payloads.clone(),
                    target_payloads: targets.clone(),
                })),
            };
            let wire = AgentRegistration {
                display_name: "n".into(),
                capabilities: (0..64).map(capability).collect(),
            };
            Registration::try_from(wire).unwrap().bytes
        };
        let named = |n: usize| PayloadRequirement {
            r#type: n.to_string(),
            ..PayloadRequirement::default()
        };
        let empty: Vec<_> = (0..256).map(named).collect();
        let entries = MAX_ENTRIES;
        assert!(registered(vec![], empty.clone()) > entries * size_of::<PayloadRequirement>());
        assert!(registered(empty, vec![]) > entries * size_of::<Requirement>());
        let types: Vec<_> = (0..255).map(|n: usize| n.to_string()).collect();
        let types: Vec<_> = types.iter().map(String::as_str).collect();
        let one = vec![requirement(true, true, &types)];
        let text = size_of::<Box<str>>() + TEXT_OVERHEAD;
        assert!(registered(one.clone(), vec![]) > 64 * 255 * text);
        assert!(registered(vec![], one) > 64 * 255 * (text + size_of::<usize>()));
        assert!(registered(vec![], vec![]) > 64 * size_of::<Requirements>());
        let same = vec![requirement(true, true, &["a/b"; 255])];
        assert!(registered(same, vec![]) < 64 * 255 * text, "kept once");
    }
}
