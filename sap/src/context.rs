//! What a task says of principles, pressure and limits: its constitutional context.

use core::fmt;
use std::collections::BTreeMap;

use ubos_common::json::{Fault, MemberWriter, Members, Read, Reader, Write, escape_into};
use ubos_common::violation::Level;

use crate::number::{Psi, Whole};

/// How much deliberation a decision gets. Spec: SAP 4.1
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureLevel {
    /// Decide at once.
    Instant,
    /// Ask for advice first.
    Consulted,
    /// Weigh at length.
    Deliberated,
}

/// The word on the wire.
impl fmt::Display for PressureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PressureLevel {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Consulted => "consulted",
            Self::Deliberated => "deliberated",
        }
    }
}

// impl: SAP-4-3
impl Read<'_> for PressureLevel {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let word = reader.str()?;
        [Self::Instant, Self::Consulted, Self::Deliberated]
            .into_iter()
            .find(|level| level.as_str() == word)
            .ok_or_else(|| reader.bad_value_seen(at, "one of instant consulted deliberated", &word))
    }
}

impl Write for PressureLevel {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self.as_str());
    }
}

ubos_common::words! {
    /// How much may go wrong. Spec: SAP 4.1
    // impl: SAP-4-3
    closed pub enum RiskTolerance {
        /// Little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
    }
}

ubos_common::words! {
    /// How the cache is used. Spec: SAP 6
    // impl: SAP-4-3
    closed pub enum CacheMode {
        /// A good record answers, otherwise the task is computed.
        Prefer = "prefer",
        /// A good record answers, otherwise the task fails.
        Only = "only",
        /// The cache is neither read nor written.
        Bypass = "bypass",
    }
}

ubos_common::wire! {
    /// What a task allows the cache to do. Spec: SAP 6
    // impl: SAP-4.1-8
    pub struct CachePolicy {
        /// How the cache is used; absent means prefer.
        optional mode: CacheMode = "mode", "SAP-4.1-8";
        /// Only records younger than this many seconds answer; absent means any age.
        optional max_age_sec: Whole = "maxAgeSec", "SAP-4.1-8";
        /// Whether a record is checked against the task's context before it answers; absent means no.
        optional must_align: bool = "mustAlign", "SAP-4.1-8";
    }
}

/// The alignment inputs of a task. Spec: SAP 4.1
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConstitutionalContext {
    /// How much deliberation the decision gets.
    pub pressure_level: PressureLevel,
    /// Keys of the principles that apply; absent and empty are told apart.
    pub principles: Option<Vec<String>>,
    /// Pressure by principle.
    pub pressure: Option<BTreeMap<String, Psi>>,
    /// What is wanted.
    pub objectives: Option<Vec<String>>,
    /// What must not be broken.
    pub constraints: Option<Vec<String>>,
    /// How much may go wrong.
    pub risk_tolerance: Option<RiskTolerance>,
    /// The domain, such as `EUFM`.
    pub territory: Option<String>,
    /// What grounds the task.
    pub references: Option<Vec<String>>,
    /// What the cache may do; absent means that it is not used.
    pub cache_policy: Option<CachePolicy>,
    /// Members that this type does not know, kept and written back.
    pub extra: Members<'static>,
}

impl ConstitutionalContext {
    /// A context of a level, all else absent.
    #[must_use]
    pub const fn new(pressure_level: PressureLevel) -> Self {
        Self {
            pressure_level,
            principles: None,
            pressure: None,
            objectives: None,
            constraints: None,
            risk_tolerance: None,
            territory: None,
            references: None,
            cache_policy: None,
            extra: Members::new(),
        }
    }
}

impl Read<'_> for ConstitutionalContext {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let parts = Parts::read(reader)?;
        let pressure_level = match parts.level {
            Some(LevelSeen(Some(level))) => level,
            Some(LevelSeen(None)) => return Err(reader.noted()),
            // impl: SAP-4.1-14
            None if reader.is_lenient() => {
                reader.missing(at, LEVEL, LEVEL_CLAUSE, Level::Advice);
                LENIENT_LEVEL
            }
            None => {
                reader.missing(at, LEVEL, LEVEL_CLAUSE, Level::Must);
                return Err(reader.noted());
            }
        };
        Ok(Self {
            pressure_level,
            principles: parts.principles,
            pressure: parts.pressure,
            objectives: parts.objectives,
            constraints: parts.constraints,
            risk_tolerance: parts.risk_tolerance,
            territory: parts.territory,
            references: parts.references,
            cache_policy: parts.cache_policy,
            extra: parts.extra,
        })
    }
}

impl Write for ConstitutionalContext {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member(LEVEL, &self.pressure_level);
        object.optional("principles", self.principles.as_ref());
        object.optional("pressure", self.pressure.as_ref());
        object.optional("objectives", self.objectives.as_ref());
        object.optional("constraints", self.constraints.as_ref());
        object.optional("riskTolerance", self.risk_tolerance.as_ref());
        object.optional("territory", self.territory.as_ref());
        object.optional("references", self.references.as_ref());
        object.optional("cachePolicy", self.cache_policy.as_ref());
        self.extra.write_into(&mut object);
        object.end();
    }

    fn is_strict(&self) -> bool {
        self.pressure.is_strict()
            && self.risk_tolerance.is_strict()
            && self.cache_policy.is_strict()
    }
}

/// What the lenient profile reads where no level is given. Spec: SAP 4.1, example
// choice: SAP-4.1-14
const LENIENT_LEVEL: PressureLevel = PressureLevel::Consulted;
const LEVEL: &str = "pressureLevel";
const LEVEL_CLAUSE: &str = "SAP-4.1-5";

/// The level as it stands there: a bad one is noted at once, so that it is not reported as absent too.
#[derive(Clone, Debug, PartialEq)]
struct LevelSeen(Option<PressureLevel>);

// impl: SAP-4.1-5
impl Read<'_> for LevelSeen {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mark = reader.mark();
        let level = PressureLevel::read(reader);
        reader.settle(mark, level).map(Self)
    }
}

impl Write for LevelSeen {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

// The context as it is read: the lenient profile supplies an absent level, which no other member has.
ubos_common::wire! {
    // impl: SAP-4.1-6
    struct Parts {
        nullable level: LevelSeen = "pressureLevel", "SAP-4.1-5";
        advised principles: Vec<String> = "principles", "SAP-4.1-6", "SAP-4-2";
        advised pressure: BTreeMap<String, Psi> = "pressure", "SAP-4.1-6", "SAP-4-2";
        advised objectives: Vec<String> = "objectives", "SAP-4.1-6", "SAP-4-2";
        advised constraints: Vec<String> = "constraints", "SAP-4.1-6", "SAP-4-2";
        advised risk_tolerance: RiskTolerance = "riskTolerance", "SAP-4.1-6", "SAP-4-2";
        advised territory: String = "territory", "SAP-4.1-6", "SAP-4-2";
        optional references: Vec<String> = "references", "SAP-4.1-6";
        advised cache_policy: CachePolicy = "cachePolicy", "SAP-4.1-8", "SAP-4-2";
    }
}
