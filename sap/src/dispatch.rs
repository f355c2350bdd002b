//! The sending side: nothing leaves that does not hold.

use ubos_common::violation::{Level, Report};

use crate::result::TaskResult;
use crate::secrets::{SecretPolicy, scan_whole};
use crate::task::Task;
use crate::validate::{Options, check_result, decode_task, findings};

/// Why a message may not be sent. All findings are listed; none shows a value of the payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// It does not hold under the strict profile.
    #[error("not valid:\n{0}")]
    Invalid(Report),
    /// A value or a name in it is shaped like a secret.
    #[error("holds a secret:\n{0}")]
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
    let advice = findings(&decode_task(&bytes, &Options::default()));
    if !advice.is_valid() {
        return Err(DispatchError::Invalid(advice));
    }
    let mut found = Report::default();
    let secrets = scan_whole(task, &bytes, &advice, secrets);
    for finding in secrets.iter().filter(|f| f.level == Level::Must) {
        found.push(finding.clone());
    }
    if !found.is_empty() {
        return Err(DispatchError::Secret(found));
    }
    Ok((bytes, advice))
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
