//! Secrets in payloads: refused before dispatch, advised on when reading.

use ubos_common::json::{Fault, Kind, Raw, Reader};
use ubos_common::secret::{SecretKind, is_secret_free, is_secret_name, secret_shapes};
use ubos_common::violation::{Level, Profile, Report, Violation};

use crate::task::Task;

/// What happens to a payload value shaped like a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretPolicy {
    /// The task is not sent.
    #[default]
    Refuse,
    /// It is sent, with advice.
    Advise,
}

/// Looks for secrets in the payload and in attachments of the scheme `data:`.
///
/// Private-key blocks, bearer and JSON web tokens, what signs a URL, and keys of clouds and APIs are MUST findings under
/// [`SecretPolicy::Refuse`]; names such as `password`, and other literals assigned to one inside a text, are advice.
/// A finding has the pointer and the kind, never the value. A heuristic: it does not decode base64.
///
/// Spec: SAP 11
// impl: SAP-11-1
pub(crate) fn scan(task: &Task, policy: SecretPolicy) -> Report {
    let mut report = Report::default();
    report.extend_under("/payload", scan_value(task.payload.as_raw(), policy));
    let attachments = task.attachments.as_deref().unwrap_or_default();
    for (index, attachment) in attachments.iter().enumerate() {
        let uri = attachment.uri.as_deref().unwrap_or_default();
        let is_data = uri
            .get(..5)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
        if is_data && let Some((level, message)) = judge(uri, policy) {
            let pointer = format!("/attachments/{index}/uri");
            report.push(Violation::new(pointer, CODE, CLAUSE, level, message));
        }
    }
    report
}

/// Looks for secrets in a whole task before it leaves, names of members included. `advice` is what reading found in
/// its payload, which is looked at again only where there is some.
// impl: SAP-11-1
pub(crate) fn scan_whole(
    task: &Task,
    bytes: &[u8],
    advice: &Report,
    policy: SecretPolicy,
) -> Report {
    let mut report = Report::default();
    if core::str::from_utf8(bytes).is_ok_and(is_secret_free) {
        return report;
    }
    if advice.iter().any(|finding| finding.clause == CLAUSE) {
        report.extend_under("/payload", scan_value(task.payload.as_raw(), policy));
    }
    let limits = crate::limits::unbounded();
    // A task that was encoded is sound JSON, so the walk meets no fault.
    if let Ok(mut reader) = Reader::new(bytes, &limits, Profile::Strict) {
        let _ = reader.under(CLAUSE, true, |reader| {
            object(reader, policy, Some("payload"))
        });
        report.extend_under("", reader.into_report());
    }
    report
}

fn scan_value(value: Raw<'_>, policy: SecretPolicy) -> Report {
    if is_secret_free(value.as_str()) {
        return Report::default();
    }
    let limits = crate::limits::unbounded();
    let mut reader = Reader::of_raw(value, &limits, Profile::Strict);
    // The value is known to be sound JSON, so the walk meets no fault.
    let _ = reader.under(CLAUSE, true, |reader| walk(reader, policy, None));
    reader.into_report()
}

/// `name` is that of the member, where it is a secret's.
fn walk(reader: &mut Reader<'_>, policy: SecretPolicy, name: Option<&str>) -> Result<(), Fault> {
    let at = reader.offset();
    match reader.peek()? {
        Kind::String => {
            let text = reader.str()?;
            if let Some((level, message)) = judge_member(name, &text, policy) {
                reader.note(at, None, CODE, level, message);
            }
            Ok(())
        }
        Kind::Array => reader.array(|reader, _| walk(reader, policy, None)),
        // That no name stands twice is known.
        Kind::Object => object(reader, policy, None),
        Kind::Null | Kind::Bool | Kind::Number => reader.skip(),
    }
}

fn object(
    reader: &mut Reader<'_>,
    policy: SecretPolicy,
    left_out: Option<&str>,
) -> Result<(), Fault> {
    let object_at = reader.offset();
    let mut in_name = None;
    // That no name stands twice is known.
    reader.fields(|reader, name, _| {
        if left_out == Some(&*name) {
            return reader.skip();
        }
        // A pointer below it would show it, so it is told of the object.
        if let Some((Level::Must, message)) = judge(&name, SecretPolicy::Refuse) {
            in_name = Some(message);
            return reader.skip();
        }
        let at = reader.offset();
        let is_named = is_secret_name(&name);
        if is_named && reader.peek()? != Kind::Null {
            let why = "a member named like a secret";
            reader.note(at, None, "secret_name", Level::Advice, why);
        }
        walk(reader, policy, is_named.then_some(&*name))
    })?;
    if let Some(message) = in_name {
        reader.note(object_at, None, CODE, policy.level(), message);
    }
    Ok(())
}

/// The weightiest finding about the text of a member. Some keys are known only by the name before them.
fn judge_member(
    name: Option<&str>,
    text: &str,
    policy: SecretPolicy,
) -> Option<(Level, &'static str)> {
    let found = judge(text, policy);
    let is_weighty = matches!(found, Some((Level::Must, _)));
    let Some(name) = name.filter(|_| !is_weighty && text.len() <= LONGEST_KEY) else {
        return found;
    };
    let assigned = format!("{name}={text}");
    let is_key = secret_shapes(&assigned).any(|shape| shape.kind == SecretKind::ApiKey);
    is_key.then(|| (policy.level(), API_KEY)).or(found)
}

/// The weightiest finding about one text.
fn judge(text: &str, policy: SecretPolicy) -> Option<(Level, &'static str)> {
    let found = secret_shapes(text).map(|shape| match shape.kind {
        SecretKind::PrivateKey => (policy.level(), "a value shaped like a private key"),
        SecretKind::Authorization => (policy.level(), "a value shaped like credentials"),
        SecretKind::Jwt => (policy.level(), "a value shaped like a JSON web token"),
        SecretKind::ApiKey => (policy.level(), API_KEY),
        _ => (Level::Advice, "a literal assigned to the name of a secret"),
    });
    found.min_by_key(|(level, _)| *level)
}

impl SecretPolicy {
    const fn level(self) -> Level {
        match self {
            Self::Refuse => Level::Must,
            Self::Advise => Level::Advice,
        }
    }
}

const API_KEY: &str = "a value shaped like an API key";
/// Bytes of the longest key that is known by its name alone.
const LONGEST_KEY: usize = 128;
const CODE: &str = "secret";
const CLAUSE: &str = "SAP-11-1";
