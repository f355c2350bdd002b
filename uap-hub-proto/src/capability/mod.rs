//! Capabilities: kinds, skills, and whether a job meets the requirements of a skill.

mod requirements;
mod shape;

use std::{collections::BTreeMap, fmt, sync::Arc};

use prost::Message as _;

pub(crate) use self::{
    requirements::{Requirements, steps},
    shape::Shape,
};
use crate::wire::{AgentRegistration, PayloadRequirement, capability::Format};

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
        assert_eq!((found.len(), found[&Skill::test("a")].len()), (1, 1));
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
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
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
}
