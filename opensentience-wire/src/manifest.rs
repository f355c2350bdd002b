//! The manifest `opensentience.agent.json`: what an agent is, how it is started, which permissions it needs.
//!
//! ```
//! use std::time::Duration;
//!
//! use opensentience_wire::Manifest;
//! use opensentience_wire::role::router::Quota;
//!
//! let text = br#"{"id":"com.example.a","entrypoint":{"type":"command","value":"bin/a"},
//!     "permissions":["filesystem:read:~/notes/*"],"execution_limits":{"max_concurrent_calls":5}}"#;
//! let manifest = Manifest::decode(text)?;
//! assert_eq!(manifest.agent_id(), "com.example.a");
//! assert_eq!(manifest.quota(), Quota::default().with_concurrent(5).with_rate(60, Duration::from_secs(60)));
//! assert_eq!(manifest.call_timeout().as_secs(), 15);
//! # Ok::<(), opensentience_wire::ManifestError>(())
//! ```
//!
//! | limit | value |
//! |---|---|
//! | file | 1 to 256,000 bytes |
//! | `id`, `name`, `version`, `description` | 200, 200, 100, 2,000 bytes |
//! | `permissions` | 500 of 300 bytes |
//! | `entrypoint.value` | 4,096 bytes |
//!
//! Files and hashes: `transport::tokio::read_manifest` and `manifest_hash`.
//!
//! Spec: OpenSentience 4.1, 5

use core::time::Duration;

use ubos_common::json::{self, RawBuf};
use ubos_common::violation::{Level, Profile, Report, Violation};

use crate::role::router::Quota;

/// What the file is called, at the root of an agent's repository.
pub(crate) const FILE_NAME: &str = "opensentience.agent.json";

/// The longest file.
pub(crate) const MAX_BYTES: usize = 256_000;

/// Defaults of a manifest: the time of a call, the calls at once and the calls a minute.
const SILENT: (Duration, usize, (u32, Duration)) =
    (Duration::from_secs(15), 3, (60, Duration::from_secs(60)));

/// The clause that speaks of manifests.
const CLAUSE: &str = "OSW-4.1-9";

ubos_common::wire! {
    /// The description of an agent, read before it is started.
    pub struct Manifest {
        /// The agent's id, in reverse DNS.
        nullable id: String = "id", "OSW-4.1-9";
        /// The id's former name.
        nullable legacy_id: String = "agent_id", "OSW-4.1-9";
        /// For people.
        nullable name: String = "name", "OSW-4.1-9";
        /// The agent's version.
        nullable version: String = "version", "OSW-4.1-9";
        /// For people.
        nullable description: String = "description", "OSW-4.1-9";
        /// How it is started.
        required entrypoint: Entrypoint = "entrypoint", "OSW-4.1-9";
        /// What it asks for, such as `tool:invoke:com.example.b/*`.
        required permissions: Vec<String> = "permissions", "OSW-4.1-9";
        /// What it can do.
        nullable capabilities: Vec<String> = "capabilities", "OSW-4.1-9";
        /// How much of it may be used.
        nullable execution_limits: ExecutionLimits = "execution_limits", "OSW-4.1-9";
    }
}

ubos_common::wire! {
    /// How an agent is started.
    pub struct Entrypoint {
        /// `command`, `mix_task`, `release`, or another word.
        required kind: String = "type", "OSW-4.1-9";
        /// The command, task or release; one text, never split into arguments.
        nullable value: String = "value", "OSW-4.1-9";
    }
}

ubos_common::wire! {
    /// How much of an agent may be used.
    pub struct ExecutionLimits {
        /// The time of one call, such as `30s`, or seconds as a number.
        nullable max_tool_call_duration: RawBuf = "max_tool_call_duration", "OSW-4.1-9";
        /// Calls at once.
        nullable max_concurrent_calls: u64 = "max_concurrent_calls", "OSW-4.1-9";
        /// Calls in a span of time, such as `100/minute`.
        nullable rate_limit: String = "rate_limit", "OSW-4.1-9";
    }
}

/// Why a manifest is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file has another name.
    #[error("the manifest's file is not named {FILE_NAME}")]
    FileName,
    /// It is a folder, a socket or the like.
    #[error("the manifest is not a regular file")]
    NotAFile,
    /// It cannot be read.
    #[error("the manifest cannot be read")]
    Read(#[source] std::io::Error),
    /// It is empty.
    #[error("the manifest is empty")]
    Empty,
    /// It is too long.
    #[error("the manifest has {bytes} bytes, at most {MAX_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// It is no JSON, or breaks rules.
    #[error(transparent)]
    Invalid(#[from] json::DecodeError),
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// It is empty, too long, no JSON, or breaks rules: every one is in the report.
    // impl: OSW-4.1-9
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.is_empty() {
            return Err(ManifestError::Empty);
        }
        if bytes.len() > MAX_BYTES {
            let bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            return Err(ManifestError::TooLarge { bytes });
        }
        let (manifest, mut report) =
            json::decode::<Self>(bytes, &json::Limits::default(), Profile::Strict)?;
        manifest.check(&mut report);
        if report.is_valid() {
            Ok(manifest)
        } else {
            Err(json::DecodeError::Invalid(report).into())
        }
    }

    /// The agent's id, under whichever name it stands.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        let id = self.id.as_deref().or(self.legacy_id.as_deref());
        id.unwrap_or_default()
    }

    /// What of the agent may be used at once and in a span of time: 3 calls at once and 60 a minute where the manifest says
    /// nothing else. A core may allow less.
    #[must_use]
    pub fn quota(&self) -> Quota {
        let (_, concurrent, rate) = SILENT;
        let limits = self.execution_limits.as_ref();
        let at_once = limits.and_then(|limits| limits.max_concurrent_calls);
        let at_once = at_once.map_or(concurrent, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let own = limits.and_then(|limits| rate_of(limits.rate_limit.as_deref()?));
        let (calls, span) = own.unwrap_or(rate);
        Quota::default()
            .with_concurrent(at_once)
            .with_rate(calls, span)
    }

    /// The time of one call: 15 s where the manifest says nothing else.
    #[must_use]
    pub fn call_timeout(&self) -> Duration {
        let limits = self.execution_limits.as_ref();
        let own = limits.and_then(|limits| limits.max_tool_call_duration.as_ref());
        own.and_then(duration_of).unwrap_or(SILENT.0)
    }

    /// The permissions without blanks around them, sorted, each once: what their hash is taken over.
    #[cfg(feature = "manifest")]
    pub(crate) fn sorted_permissions(&self) -> Vec<&str> {
        let mut sorted: Vec<&str> = self.permissions.iter().map(|text| text.trim()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        sorted
    }

    fn check(&self, report: &mut Report) {
        let mut must = |pointer: &str, code: &'static str, why: &str| {
            let (pointer, why) = (pointer.to_owned(), why.to_owned());
            report.push(Violation::new(pointer, code, CLAUSE, Level::Must, why));
        };
        if self.agent_id().is_empty() {
            must("/id", "missing", "an agent has an id");
        } else if !is_agent_id(self.agent_id()) {
            let why = "letters, digits, dots, underscores and hyphens, a letter or digit first, 200 at most";
            must("/id", "id", why);
        }
        for (pointer, text, most) in [
            ("/name", &self.name, 200),
            ("/version", &self.version, 100),
            ("/description", &self.description, 2_000),
        ] {
            if text.as_ref().is_some_and(|text| text.len() > most) {
                must(pointer, "too_long", &format!("{most} bytes at most"));
            }
        }
        if self.permissions.len() > 500 {
            must("/permissions", "too_many", "500 permissions at most");
        }
        for (n, permission) in self.permissions.iter().enumerate() {
            if !is_permission(permission) {
                let why = "domain:action or domain:action:pattern, 300 bytes at most";
                must(&format!("/permissions/{n}"), "permission", why);
            }
        }
        if self.entrypoint.kind.is_empty() {
            must("/entrypoint/type", "empty", "a word such as command");
        }
        let value = self.entrypoint.value.as_deref().unwrap_or_default();
        if value.len() > 4_096 || value.contains(['\0', '\n', '\r']) {
            must(
                "/entrypoint/value",
                "value",
                "one line of 4,096 bytes at most",
            );
        }
        let limits = self.execution_limits.as_ref();
        let span = limits.and_then(|limits| limits.max_tool_call_duration.as_ref());
        let is_none = |span: &RawBuf| duration_of(span).is_none_or(|span| span.is_zero());
        if span.is_some_and(is_none) {
            let why = "a number from 1 on with ms, s, m or h, or a number of seconds";
            must("/execution_limits/max_tool_call_duration", "duration", why);
        }
        let at_once = limits.and_then(|limits| limits.max_concurrent_calls);
        if at_once == Some(0) {
            let pointer = "/execution_limits/max_concurrent_calls";
            must(pointer, "too_small", "at least 1 call at once");
        }
        let rate = limits.and_then(|limits| limits.rate_limit.as_deref());
        if rate.is_some_and(|rate| rate_of(rate).is_none()) {
            let why = "a number of calls, a slash, and second, minute or hour";
            must("/execution_limits/rate_limit", "rate", why);
        }
    }
}

fn is_agent_id(id: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    id.len() <= 200
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(allowed)
}

fn is_permission(text: &str) -> bool {
    !text.is_empty() && text.len() <= 300 && text.contains(':') && !text.contains(char::is_control)
}

/// `30s`, `500ms`, `2m`, `1h`, or seconds as a number.
fn duration_of(raw: &RawBuf) -> Option<Duration> {
    if let Ok(seconds) = raw.deserialize::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let text: String = raw.deserialize().ok()?;
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let seconds = match unit.trim_start() {
        "ms" => return Some(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

/// `100/minute`
fn rate_of(text: &str) -> Option<(u32, Duration)> {
    let (number, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "second" | "s" => 1,
        "minute" | "m" => 60,
        "hour" | "h" => 3_600,
        _ => return None,
    };
    let calls = number.trim().parse().ok().filter(|calls| *calls > 0)?;
    Some((calls, Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        match Manifest::decode(text.as_bytes()) {
            Ok(_) => Vec::new(),
            Err(ManifestError::Invalid(json::DecodeError::Invalid(report))) => report
                .iter()
                .map(|finding| finding.pointer.to_string())
                .collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[test]
    fn every_rule_is_told_at_its_place() {
        let good = r#"{"agent_id":"a.b","entrypoint":{"type":"command"},"permissions":[],"more":{"x":1.50}}"#;
        let manifest = Manifest::decode(good.as_bytes()).unwrap();
        assert_eq!(manifest.agent_id(), "a.b");
        assert!(json::to_vec(&manifest).ends_with(br#""more":{"x":1.50}}"#));
        let long = "x".repeat(301);
        let bad = format!(
            r#"{{"id":".a","name":"{long}","entrypoint":{{"type":"","value":"a\nb"}},"permissions":["a:b","ab","a:{long}"],
            "execution_limits":{{"max_tool_call_duration":"30 days","rate_limit":"fast"}}}}"#
        );
        assert_eq!(
            found(&bad),
            [
                "/id",
                "/name",
                "/permissions/1",
                "/permissions/2",
                "/entrypoint/type",
                "/entrypoint/value",
                "/execution_limits/max_tool_call_duration",
                "/execution_limits/rate_limit"
            ]
        );
        let none = |limits: &str| {
            let manifest =
                r#"{"id":"a","entrypoint":{"type":"c"},"permissions":[],"execution_limits":{"#;
            found(&format!("{manifest}{limits}}}}}"))
        };
        for (limit, values) in [
            ("max_tool_call_duration", ["0", r#""0ms""#, r#""0 h""#]),
            ("max_concurrent_calls", ["0", "-1", "0.5"]),
            ("rate_limit", [r#""0/minute""#, r#""/minute""#, r#""1/0""#]),
        ] {
            for value in values {
                let pointer = format!("/execution_limits/{limit}");
                assert_eq!(none(&format!(r#""{limit}":{value}"#)), [pointer], "{value}");
            }
        }
        let nameless = r#"{"entrypoint":{"type":"command"},"permissions":[]}"#;
        assert_eq!(found(nameless), ["/id"]);
        let greedy = |count| nameless.replace("[]", &format!("{:?}", vec!["a:b"; count]));
        assert_eq!(found(&greedy(500)), ["/id"]);
        assert_eq!(found(&greedy(501)), ["/id", "/permissions"]);
        assert_eq!(found("{}").len(), 2);
        assert_eq!(found(""), ["the manifest is empty"]);
        let fat = " ".repeat(MAX_BYTES + 1);
        assert_eq!(
            found(&fat),
            ["the manifest has 256001 bytes, at most 256000 are allowed"]
        );
    }

    #[test]
    fn limits_are_those_of_the_manifest_or_the_silent_ones() {
        let with = |limits: &str| {
            let text = format!(
                r#"{{"id":"a","entrypoint":{{"type":"c"}},"permissions":[],"execution_limits":{limits}}}"#
            );
            Manifest::decode(text.as_bytes()).unwrap()
        };
        let silent = with("{}");
        assert_eq!(silent.call_timeout(), Duration::from_secs(15));
        let quota = Quota::default().with_concurrent(3);
        assert_eq!(silent.quota(), quota.with_rate(60, Duration::from_secs(60)));
        let own = with(
            r#"{"max_tool_call_duration":"2m","max_concurrent_calls":5,"rate_limit":"100/hour"}"#,
        );
        assert_eq!(own.call_timeout(), Duration::from_secs(120));
        let quota = Quota::default().with_concurrent(5);
        assert_eq!(
            own.quota(),
            quota.with_rate(100, Duration::from_secs(3_600))
        );
        for (span, seconds) in [("7", 7), (r#""1h""#, 3_600)] {
            let own = with(&format!(r#"{{"max_tool_call_duration":{span}}}"#));
            assert_eq!(own.call_timeout().as_secs(), seconds);
        }
    }
}
