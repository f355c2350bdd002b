//! The alignment proof that every result carries.

use std::collections::BTreeMap;

use crate::number::{Number, Whole};

ubos_common::words! {
    /// The verdict on alignment. Spec: SAP 4.2
    // impl: SAP-4-3
    closed pub enum Alignment {
        /// The principles are kept.
        Valid = "VALID",
        /// A principle is broken.
        NonConstitutional = "NON_CONSTITUTIONAL",
        /// Somebody else has to decide.
        Escalate = "ESCALATE",
    }
}

ubos_common::wire! {
    /// What was found about one principle. Spec: SAP 4.2
    pub struct PolicyCheck {
        /// The principle.
        optional principle: String = "principle", "SAP-4.2-4";
        /// An open word such as `PASS`.
        optional status: String = "status", "SAP-4.2-4";
        /// Why.
        optional notes: String = "notes", "SAP-4.2-4";
    }
}

impl PolicyCheck {
    /// A finding with all its parts.
    pub(crate) fn with(principle: &str, status: &str, notes: impl Into<String>) -> Self {
        let mut check = Self::new();
        check.principle = Some(principle.into());
        check.status = Some(status.into());
        check.notes = Some(notes.into());
        check
    }
}

ubos_common::wire! {
    /// An issue with a principle. Spec: SAP 4.2
    pub struct PolicyViolation {
        /// The principle.
        optional principle: String = "principle", "SAP-4.2-4";
        /// An open word such as `high`.
        optional severity: String = "severity", "SAP-4.2-4";
        /// What shows it.
        optional evidence: String = "evidence", "SAP-4.2-4";
    }
}

impl PolicyViolation {
    /// An issue with all its parts.
    pub(crate) fn with(principle: &str, severity: &str, evidence: impl Into<String>) -> Self {
        let mut violation = Self::new();
        violation.principle = Some(principle.into());
        violation.severity = Some(severity.into());
        violation.evidence = Some(evidence.into());
        violation
    }

    /// How the evidence begins where a threshold found it, and nobody else.
    pub(crate) const BY_THRESHOLD: &str = "above the bound: ";

    /// How the name begins of what is an issue with a constraint of the task, and with no principle.
    pub(crate) const OF_CONSTRAINT: &str = "constraint: ";

    pub(crate) fn is_of_constraint(&self) -> bool {
        let principle = self.principle.as_deref();
        principle.is_some_and(|principle| principle.starts_with(Self::OF_CONSTRAINT))
    }

    pub(crate) fn is_by_threshold(&self) -> bool {
        let evidence = self.evidence.as_deref();
        evidence.is_some_and(|evidence| evidence.starts_with(Self::BY_THRESHOLD))
    }
}

ubos_common::wire! {
    /// What the cache had to do with a result. Spec: SAP 4.2, 6
    pub struct CacheEvidence {
        /// Whether a record answered.
        optional hit: bool = "hit", "SAP-4.2-4";
        /// The key.
        optional cache_key: String = "cacheKey", "SAP-4.2-4";
        /// Age of the record in seconds.
        optional age_sec: Whole = "ageSec", "SAP-4.2-4";
    }
}

ubos_common::wire! {
    /// The alignment proof. Spec: SAP 4.2
    // impl: SAP-4.2-4
    pub struct ConstitutionalEvidence {
        /// The verdict.
        // impl: SAP-4.2-3
        required alignment: Alignment = "alignment", "SAP-4.2-3";
        /// Pressure by principle, as it was when the decision was made.
        advised pressure_readings: BTreeMap<String, Number> = "pressureReadings", "SAP-4.2-4", "SAP-4-2";
        /// What was found, principle by principle.
        advised policy_checks: Vec<PolicyCheck> = "policyChecks", "SAP-4.2-4", "SAP-4-2";
        /// Issues.
        optional violations: Vec<PolicyViolation> = "violations", "SAP-4.2-4";
        /// What grounds the output.
        optional citations: Vec<String> = "citations", "SAP-4.2-4";
        /// What the cache had to do with it; absent where it was not used.
        optional cache: CacheEvidence = "cache", "SAP-4.2-4";
    }
}

/// A digest on the wire: 64 lower-case hexadecimal digits.
macro_rules! digest_text {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) ubos_common::canon::Digest);

        impl From<$name> for ubos_common::canon::Digest {
            fn from(named: $name) -> Self {
                named.0
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&self.0, f)
            }
        }

        impl core::str::FromStr for $name {
            type Err = ubos_common::canon::DigestError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl ubos_common::json::Read<'_> for $name {
            fn read(reader: &mut ubos_common::json::Reader<'_>) -> Result<Self, ubos_common::json::Fault> {
                let at = reader.offset();
                let text = reader.str()?;
                text.parse().map_err(|_| {
                    reader.bad_value_seen(at, "64 lower-case hexadecimal digits", &text)
                })
            }
        }

        impl ubos_common::json::Write for $name {
            fn write(&self, out: &mut Vec<u8>) {
                ubos_common::json::escape_into(out, &self.0.to_string());
            }
        }
    };
}
pub(crate) use digest_text;

digest_text! {
    /// Names what the cache keeps for a task. Spec: SAP 6
    CacheKey
}

digest_text! {
    /// Names the essence of a payload. Spec: SAP 6
    Fingerprint
}

digest_text! {
    /// Digest of a message that is not kept itself.
    BodyDigest
}
