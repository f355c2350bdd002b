//! The sending side: nothing leaves that does not hold.

#[cfg(feature = "driver")]
use ubos_common::json::Write as _;
#[cfg(feature = "driver")]
use ubos_common::secret::is_secret_free;
use ubos_common::violation::{Level, Report};

use crate::result::TaskResult;
use crate::secrets::{SecretPolicy, scan_whole};
use crate::task::Task;
#[cfg(feature = "driver")]
use crate::validate::is_sound;
use crate::validate::{Options, check_result, decode_task, findings};
#[cfg(feature = "driver")]
use crate::work::{self, For};

/// Why a message may not be sent. All findings are listed; none shows a value of the payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// It does not hold under the strict profile.
    #[error("the message is not valid:\n{0}")]
    Invalid(Report),
    /// A value or a name in it is shaped like a secret.
    #[error("the message holds a secret:\n{0}")]
    Secret(Report),
}

/// Checks a task; gives its bytes, and advice that does not keep it from being sent.
///
/// # Errors
///
/// [`DispatchError`]. Spec: SAP 5, 11
// impl: SAP-5-1, SAP-11-1
pub fn dispatch(task: &Task, secrets: SecretPolicy) -> Result<(Vec<u8>, Report), DispatchError> {
    let bytes = task.encode();
    let (_, advice) = checked(&bytes, secrets)?;
    Ok((bytes, advice))
}

/// Checks a task; gives its bytes. At once where it is short, on another thread where it is not. A secret keeps it from
/// being sent.
#[cfg(feature = "driver")]
pub(crate) async fn dispatch_apart(task: &Task) -> Result<Vec<u8>, DispatchError> {
    let (bytes, is_strict) = (task.encode(), task.is_strict());
    work::done(For::Task, bytes.len(), move || {
        // Of most tasks nothing is to be found, and advice is not wanted here.
        let is_plain = core::str::from_utf8(&bytes).is_ok_and(is_secret_free);
        if !is_strict || !is_plain || !is_sound(&bytes, &Options::default()) {
            checked(&bytes, SecretPolicy::Refuse)?;
        }
        Ok(bytes)
    })
    .await
}

fn checked(bytes: &[u8], secrets: SecretPolicy) -> Result<(Task, Report), DispatchError> {
    let decoded = decode_task(bytes, &Options::default());
    let (task, advice) = match decoded {
        Ok((task, advice)) if advice.is_valid() => (task, advice),
        refused => return Err(DispatchError::Invalid(findings(&refused))),
    };
    let secrets = scan_whole(&task, bytes, &advice, secrets);
    if secrets.is_valid() {
        return Ok((task, advice));
    }
    let mut found = Report::default();
    for finding in secrets.iter().filter(|f| f.level == Level::Must) {
        found.push(finding.clone());
    }
    // Else it stands behind more advice than is listed.
    let is_listed = !found.is_empty();
    Err(DispatchError::Secret(if is_listed {
        found
    } else {
        secrets
    }))
}

/// Checks a result; gives its bytes, and advice that does not keep it from being sent.
///
/// # Errors
///
/// [`DispatchError::Invalid`]. Spec: SAP 5
pub fn report(result: &TaskResult) -> Result<(Vec<u8>, Report), DispatchError> {
    let advice = check_result(result);
    if !advice.is_valid() {
        return Err(DispatchError::Invalid(advice));
    }
    Ok((result.encode(), advice))
}

#[cfg(feature = "driver")]
#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use ubos_common::json::RawObject;

    use super::*;
    use crate::samples;
    use crate::work::HEAVY;

    fn task(payload: &str) -> Task {
        let mut task = samples::task();
        task.payload = RawObject::parse(payload).unwrap();
        task
    }

    // spec: SAP-5-1, SAP-11-1
    #[test]
    fn a_long_task_is_checked_on_another_thread_as_a_short_one_is_here() {
        let long = "long ".repeat(HEAVY / 5);
        let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        for (text, threads) in [("short", 0), (&*long, 1)] {
            let sound = task(&format!(r#"{{"text":"{text}"}}"#));
            let (sent, handed_over) = work::handed_over(|| block_on(dispatch_apart(&sound)));
            assert_eq!(sent, Ok(sound.encode()));
            assert_eq!(handed_over, threads);
            let leaking = task(&format!(r#"{{"text":"{text}","note":"{secret}"}}"#));
            let refused = block_on(dispatch_apart(&leaking)).unwrap_err();
            assert!(matches!(refused, DispatchError::Secret(_)), "{refused}");
        }
    }
}
