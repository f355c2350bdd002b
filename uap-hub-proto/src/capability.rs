//! Capabilities: kinds, skills, and whether a job meets the requirements of a skill.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use prost::Message as _;

use crate::wire::{AgentRegistration, Payload, PayloadRequirement, capability::Format};

/// The two domains of the protocol.
///
/// Spec: UAP hub 1
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Tests, run over `Execute`.
    Test,
    /// Translations, run over `Translate`.
    Translation,
}

/// A kind and a type: what a job requires and an agent offers. Types match exactly.
///
/// Spec: UAP hub 2
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Skill {
    kind: Kind,
    name: Arc<str>,
}

impl Skill {
    /// The skill of running tests of a type.
    pub fn test(name: impl Into<Arc<str>>) -> Self {
        Self {
            kind: Kind::Test,
            name: name.into(),
        }
    }

    /// The skill of translating to a format.
    pub fn translation(name: impl Into<Arc<str>>) -> Self {
        Self {
            kind: Kind::Translation,
            name: name.into(),
        }
    }

    /// The domain.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The type within the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Skill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Test => "test",
            Kind::Translation => "translation",
        };
        write!(f, "{kind} type {:?}", self.name)
    }
}

impl fmt::Debug for Skill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Skills with what each requires of a job's payloads.
pub(crate) type Skills = BTreeMap<Skill, Arc<Requirements>>;

/// Bytes of a display name, a type or a MIME type.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// Capabilities of a registration.
pub(crate) const MAX_CAPABILITIES: usize = 1024;
/// Requirements of a capability, and MIME types of a requirement.
pub(crate) const MAX_REQUIREMENTS: usize = 256;

/// Requirements and their MIME types in a whole registration.
pub(crate) const MAX_ENTRIES: usize = 16_384;

/// A registration that was checked and read, so that a hub takes it at once.
///
/// ```
/// use uap_hub_proto::{capability::{Registration, Skill}, wire::AgentRegistration};
///
/// let capabilities = vec![Skill::test("").into()];
/// let wire = AgentRegistration { display_name: "a".into(), capabilities };
/// let refused = Registration::try_from(wire).unwrap_err();
/// assert_eq!(refused.to_string(), "capabilities[0].test.type is empty");
/// ```
///
/// Spec: UAP hub 2
#[derive(Debug)]
pub struct Registration {
    pub(crate) name: String,
    pub(crate) skills: Skills,
    /// The approximate bytes that it takes: those on the wire, and those of its lists in memory.
    pub(crate) bytes: usize,
}

impl TryFrom<AgentRegistration> for Registration {
    type Error = RegistrationError;

    fn try_from(wire: AgentRegistration) -> Result<Self, RegistrationError> {
        let (bytes, name) = (wire.encoded_len(), wire.display_name.clone());
        let skills = skills(wire)?;
        let lists = skills.values().map(|requirements| requirements.weight());
        Ok(Self {
            bytes: bytes + lists.sum::<usize>(),
            name,
            skills,
        })
    }
}

/// The requirements and their MIME types in all capabilities.
pub(crate) fn entries(registration: &AgentRegistration) -> usize {
    let payloads = registration.capabilities.iter().flat_map(|one| {
        let (taken, made) = match &one.format {
            Some(Format::Test(test)) => (&test.payloads[..], &[][..]),
            Some(Format::Translation(to)) => (&to.source_payloads[..], &to.target_payloads[..]),
            None => (&[][..], &[][..]),
        };
        taken.iter().chain(made)
    });
    payloads
        .map(|payload| 1 + payload.accepted_mime_types.len())
        .sum()
}

/// Checks a registration and returns its skills; of a repeated one the first counts.
///
/// # Errors
///
/// The first field that is wrong.
///
/// Spec: UAP hub 2
pub(crate) fn skills(registration: AgentRegistration) -> Result<Skills, RegistrationError> {
    short("display_name", &registration.display_name)?;
    few(
        "capabilities",
        registration.capabilities.len(),
        MAX_CAPABILITIES,
    )?;
    few(
        "requirements of all capabilities",
        entries(&registration),
        MAX_ENTRIES,
    )?;
    let mut skills = Skills::new();
    for (at, capability) in registration.capabilities.into_iter().enumerate() {
        let field = |tail: &str| format!("capabilities[{at}].{tail}");
        let (skill, requirements, targets, path) = match capability.format {
            None => {
                return Err(RegistrationError::NoFormat {
                    field: field("format"),
                });
            }
            Some(Format::Test(test)) => {
                (Skill::test(test.r#type), test.payloads, Vec::new(), "test")
            }
            Some(Format::Translation(to)) => (
                Skill::translation(to.r#type),
                to.source_payloads,
                to.target_payloads,
                "translation",
            ),
        };
        if skill.name().is_empty() {
            return Err(RegistrationError::EmptyType {
                field: field(&format!("{path}.type")),
            });
        }
        short(&field(&format!("{path}.type")), skill.name())?;
        for payloads in [&requirements, &targets] {
            bounded(&field(path), payloads)?;
        }
        skills
            .entry(skill)
            .or_insert_with(|| Arc::new(Requirements::new(requirements, targets)));
    }
    Ok(skills)
}

// impl: HUB-2-1
fn bounded(field: &str, payloads: &[PayloadRequirement]) -> Result<(), RegistrationError> {
    few(field, payloads.len(), MAX_REQUIREMENTS)?;
    for payload in payloads {
        short(field, &payload.r#type)?;
        few(field, payload.accepted_mime_types.len(), MAX_REQUIREMENTS)?;
        let mut mime_types = payload.accepted_mime_types.iter();
        mime_types.try_for_each(|mime| short(field, mime))?;
    }
    Ok(())
}

fn short(field: &str, text: &str) -> Result<(), RegistrationError> {
    if text.len() > MAX_NAME_BYTES {
        return Err(RegistrationError::TooLong {
            field: field.into(),
            seen: text.len(),
            most: MAX_NAME_BYTES,
        });
    }
    Ok(())
}

fn few(field: &str, seen: usize, most: usize) -> Result<(), RegistrationError> {
    if seen > most {
        return Err(RegistrationError::TooMany {
            field: field.into(),
            seen,
            most,
        });
    }
    Ok(())
}

/// Why a registration is refused; all are `INVALID_ARGUMENT` on the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// A capability is neither test nor translation.
    #[error("{field} is missing: a capability is a test or a translation")]
    NoFormat {
        /// Path of the field.
        field: String,
    },
    /// A capability's type is empty.
    #[error("{field} is empty")]
    EmptyType {
        /// Path of the field.
        field: String,
    },
    /// A text is too long.
    #[error("{field} has {seen} bytes, at most {most} are allowed")]
    TooLong {
        /// Path of the field.
        field: String,
        /// Bytes of the text.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// A list is longer than it may be.
    #[error("{field} has {seen} entries, at most {most} are allowed")]
    TooMany {
        /// Path of the field.
        field: String,
        /// Entries of the list.
        seen: usize,
        /// The bound.
        most: usize,
    },
}

/// What a skill requires of a job's payloads, with MIME types as they are compared, and what it makes.
///
/// Spec: UAP hub 3
#[derive(Debug, PartialEq)]
pub(crate) struct Requirements {
    required: Box<[Requirement]>,
    /// The payloads of its results, as they were declared.
    pub(crate) targets: Box<[PayloadRequirement]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Requirement {
    kind: Box<str>,
    is_required: bool,
    is_repeatable: bool,
    /// In order, each once; every type where it is empty.
    mime_types: Box<[Box<str>]>,
}

/// What a text in a list, or a skill in the maps that it is a key of, takes beside its bytes: its allocations.
const TEXT_OVERHEAD: usize = 32;
const SKILL_OVERHEAD: usize = 256;

impl Requirements {
    fn new(wire: Vec<PayloadRequirement>, targets: Vec<PayloadRequirement>) -> Self {
        let requirement = |wire: PayloadRequirement| Requirement {
            kind: wire.r#type.into(),
            is_required: wire.is_required,
            is_repeatable: wire.is_repeatable,
            mime_types: essences(&wire.accepted_mime_types),
        };
        Self {
            required: wire.into_iter().map(requirement).collect(),
            targets: targets.into(),
        }
    }

    /// The approximate bytes that this takes beside its texts.
    fn weight(&self) -> usize {
        let (required, targets) = (&self.required, &self.targets);
        let taken = required
            .iter()
            .map(|one| size_of_val(&*one.mime_types) + TEXT_OVERHEAD * (1 + one.mime_types.len()));
        let made = targets.iter().map(|one| {
            let mime_types = &one.accepted_mime_types;
            let list = mime_types.capacity() * size_of::<String>();
            list + TEXT_OVERHEAD * (usize::from(!one.r#type.is_empty()) + mime_types.len())
        });
        let lists = size_of_val(&**required) + size_of_val(&**targets);
        SKILL_OVERHEAD + lists + taken.sum::<usize>() + made.sum::<usize>()
    }

    /// Whether a job's payloads meet all requirements; other payload types are ignored.
    pub(crate) fn are_met_by(&self, shape: &Shape) -> bool {
        self.unmet_by(shape).is_none()
    }

    /// The first requirement that a job's payloads do not meet.
    // impl: HUB-3-2
    pub(crate) fn unmet_by<'a>(&'a self, shape: &'a Shape) -> Option<Unmet<'a>> {
        #[cfg(test)]
        checks::CHECKS.set(checks::CHECKS.get() + 1);
        let unmet = |requirement: &'a Requirement| {
            let fault = requirement.fault_of(shape.of_type(&requirement.kind))?;
            let kind = &requirement.kind;
            Some(Unmet { kind, fault })
        };
        self.required.iter().find_map(unmet)
    }
}

impl Requirement {
    // choice: HUB-3-2 a payload without an attachment has no MIME type, so no list accepts it
    fn fault_of<'a>(&self, payloads: Option<&'a SameType>) -> Option<Fault<'a>> {
        let Some(payloads) = payloads else {
            return self.is_required.then_some(Fault::Missing);
        };
        if payloads.repeat && !self.is_repeatable {
            return Some(Fault::Repeated);
        }
        let is_listed = |mime: &str| {
            let found = self.mime_types.binary_search_by(|one| (**one).cmp(mime));
            found.is_ok()
        };
        let accepts = |mime: &str| self.mime_types.is_empty() || is_listed(mime);
        payloads.mime_types.iter().find_map(|mime| match mime {
            Some(mime) => (!accepts(mime)).then_some(Fault::MimeType(mime)),
            None => (!self.mime_types.is_empty()).then_some(Fault::NoMimeType),
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

/// What the payloads of a job are to requirements: jobs of one shape can be done by the same agents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape(Arc<[SameType]>);

/// The payloads of one type. They are in the order of their types in a shape.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SameType {
    kind: Box<str>,
    repeat: bool,
    /// In order, each once; `None` for a payload without an attachment.
    mime_types: Vec<Option<Box<str>>>,
}

impl Shape {
    pub(crate) fn of(payloads: &[Payload]) -> Self {
        let mime_of = |payload: &Payload| {
            let attachment = payload.attachment.as_ref();
            attachment.map(|attachment| essence(&attachment.mime_type))
        };
        let mut all: Vec<&Payload> = payloads.iter().collect();
        all.sort_by_key(|payload| &payload.r#type);
        let same = all.chunk_by(|one, next| one.r#type == next.r#type);
        let types = same.filter_map(|same| {
            let mut mime_types: Vec<_> = same.iter().map(|payload| mime_of(payload)).collect();
            mime_types.sort_unstable();
            mime_types.dedup();
            Some(SameType {
                kind: same.first()?.r#type.as_str().into(),
                repeat: same.len() > 1,
                mime_types,
            })
        });
        Self(types.collect())
    }

    fn of_type(&self, kind: &str) -> Option<&SameType> {
        let at = self.0.binary_search_by(|same| (*same.kind).cmp(kind));
        self.0.get(at.ok()?)
    }
}

/// How often requirements were held against a job.
#[cfg(test)]
pub(crate) mod checks {
    thread_local! {
        pub(crate) static CHECKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
}

/// MIME types as they are compared, in order, each once.
fn essences(mime_types: &[String]) -> Box<[Box<str>]> {
    let mime_types: BTreeSet<_> = mime_types.iter().map(|mime| essence(mime)).collect();
    mime_types.into_iter().collect()
}

/// A MIME type without its parameters, in lower case.
fn essence(mime: &str) -> Box<str> {
    let essence = mime.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Capability, TestCapability};

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

    // spec: HUB-2-1
    #[test]
    fn a_bad_capability_is_refused_with_its_field() {
        let capability = |format| Capability { format };
        let test = |name: &str, payloads| {
            Some(Format::Test(TestCapability {
                r#type: name.into(),
                payloads,
            }))
        };
        let register = |capabilities| {
            skills(AgentRegistration {
                display_name: String::new(),
                capabilities,
            })
        };
        assert_eq!(register(vec![]), Ok(Skills::new()));
        let twice = vec![
            capability(test("a", vec![requirement(true, true, &[])])),
            capability(test("a", vec![])),
        ];
        let found = register(twice).unwrap();
        assert_eq!(
            (found.len(), found[&Skill::test("a")].required.len()),
            (1, 1)
        );
        let refused = |capabilities| register(capabilities).unwrap_err().to_string();
        assert!(refused(vec![capability(None)]).contains("capabilities[0].format"));
        assert!(
            refused(vec![
                capability(test("a", vec![])),
                capability(test("", vec![]))
            ])
            .contains("[1].test.type")
        );
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert!(refused(vec![capability(test(&long, vec![]))]).contains("[0].test.type"));
        assert!(
            refused(vec![capability(test("a", vec![])); MAX_CAPABILITIES + 1])
                .contains("capabilities")
        );
        assert!(
            refused(vec![capability(test(
                "a",
                vec![requirement(true, true, &[]); 257]
            ))])
            .contains("[0].test")
        );
    }

    // spec: HUB-2-1
    #[test]
    fn all_requirements_together_are_bounded() {
        let test = |name: usize, mime_types: &[&str], payloads| Capability {
            format: Some(Format::Test(TestCapability {
                r#type: name.to_string(),
                payloads: vec![requirement(true, true, mime_types); payloads],
            })),
        };
        let register = |capabilities| {
            skills(AgentRegistration {
                display_name: String::new(),
                capabilities,
            })
        };
        let mut all: Vec<_> = (0..8).map(|name| test(name, &["a/b"; 255], 8)).collect();
        assert_eq!(register(all.clone()).unwrap().len(), 8);
        all.push(test(8, &[], 1));
        let refused = register(all).unwrap_err().to_string();
        assert!(
            refused.starts_with("requirements of all capabilities has 16385"),
            "{refused}"
        );
    }

    // spec: HUB-2-4
    #[test]
    fn a_registration_counts_with_what_its_lists_take() {
        let registered = |payloads: Vec<PayloadRequirement>, targets: Vec<PayloadRequirement>| {
            let capability = |n: usize| Capability {
                format: Some(Format::Translation(crate::wire::TranslationCapability {
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
        let empty = vec![PayloadRequirement::default(); 256];
        let entries = 64 * 256;
        assert!(registered(vec![], empty.clone()) > entries * size_of::<PayloadRequirement>());
        assert!(registered(empty, vec![]) > entries * size_of::<Requirement>());
        let types: Vec<_> = (0..255).map(|n: usize| n.to_string()).collect();
        let types: Vec<_> = types.iter().map(String::as_str).collect();
        let one = vec![requirement(true, true, &types)];
        let text = size_of::<Box<str>>() + TEXT_OVERHEAD;
        assert!(registered(one.clone(), vec![]) > 64 * 255 * text);
        assert!(registered(vec![], one) > 64 * 255 * (text + size_of::<usize>()));
        assert!(registered(vec![], vec![]) > 64 * size_of::<Requirements>());
    }

    // spec: HUB-3-2
    #[test]
    fn jobs_that_ask_the_same_have_one_shape() {
        let file = |kind, mime| Payload::file(kind, "n", mime, "x");
        let same = [file("a", "Text/Plain; x=y"), file("b", "")];
        let too = [file("b", ""), file("a", "text/plain")];
        assert_eq!(Shape::of(&same), Shape::of(&too));
        for other in [
            vec![file("a", "text/plain")],
            vec![file("a", "text/plain"), file("b", ""), file("b", "")],
            vec![file("a", "text/html"), file("b", "")],
            vec![file("a", "text/plain"), Payload::new("b")],
        ] {
            assert_ne!(Shape::of(&same), Shape::of(&other));
        }
    }
}
