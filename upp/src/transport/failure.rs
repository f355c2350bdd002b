//! Maps a vendor's error responses to [`UppError`].

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::vendor_json::{Json, parse};
use crate::error::{ErrorCode, UppError};
use crate::retry::seconds;

type Object = BTreeMap<String, Json>;

/// The error of a response with this status and body. The message is the vendor's: it may hold secrets.
// impl: UPP-3
pub(super) fn http_error(status: u16, body: &[u8], provider: &Arc<str>) -> UppError {
    // Some vendors send a list of one error.
    let list = || parse::<Vec<Object>>(body).ok()?.into_iter().next();
    let body_object = parse::<Object>(body).ok().or_else(list).unwrap_or_default();
    let error = body_object.get("error").and_then(object);
    let message = error
        .as_ref()
        .and_then(|error| text(error, "message"))
        .or_else(|| text(&body_object, "message"))
        .or_else(|| text(&body_object, "error"))
        .or_else(|| text(&body_object, "detail"));
    let message = message.unwrap_or_else(|| format!("HTTP status {status}"));
    let error_object = error.as_ref().unwrap_or(&body_object);
    let code = code(status, error_object, body);
    let mut error = UppError::new(code, Arc::clone(provider), message).with_status(status);
    error.retry_after = retry_delay(error_object);
    error
}

/// The wait in Google's `RetryInfo`: `{"retryDelay":"3.5s"}` among the details.
fn retry_delay(error: &Object) -> Option<Duration> {
    let details: Vec<Json> = error.get("details")?.read()?;
    let delays = details.iter().filter_map(object);
    let delay = delays
        .filter_map(|detail| text(&detail, "retryDelay"))
        .next()?;
    seconds(delay.strip_suffix('s')?)
}

/// The vendor's own error code is more precise than the status; the status is used where there is none.
fn code(status: u16, error: &Object, body: &[u8]) -> ErrorCode {
    let word = |name: &str| text(error, name).unwrap_or_default();
    if word("code") == "insufficient_quota" || word("type") == "insufficient_quota" {
        return ErrorCode::QuotaExceeded;
    }
    if matches!(status, 200 | 400) && is_about_length(body) {
        return ErrorCode::ContextLengthExceeded;
    }
    if status == 400 && contains(body, "API_KEY_INVALID") {
        return ErrorCode::AuthenticationFailed;
    }
    if status != 200 {
        return ErrorCode::of_status(status);
    }
    match word("type").as_str() {
        "authentication_error" | "permission_error" => ErrorCode::AuthenticationFailed,
        "billing_error" => ErrorCode::QuotaExceeded,
        "rate_limit_error" => ErrorCode::RateLimited,
        "not_found_error" => ErrorCode::ModelNotFound,
        "request_too_large" => ErrorCode::ContextLengthExceeded,
        "invalid_request_error" => ErrorCode::InvalidRequest,
        "timeout_error" => ErrorCode::Timeout,
        _ if word("code") == "rate_limit_exceeded" => ErrorCode::RateLimited,
        _ if matches!(word("code").as_str(), "invalid_prompt" | "invalid_image") => {
            ErrorCode::InvalidRequest
        }
        // Google repeats the status as a number.
        _ => error
            .get("code")
            .and_then(Json::read)
            .map_or(ErrorCode::ProviderError, ErrorCode::of_status),
    }
}

fn is_about_length(body: &[u8]) -> bool {
    let body = String::from_utf8_lossy(body).to_ascii_lowercase();
    [
        "context_length_exceeded",
        "maximum context length",
        "context window",
        "prompt is too long",
        "exceeds the maximum number of tokens",
    ]
    .iter()
    .any(|sign| body.contains(sign))
}

fn contains(body: &[u8], word: &str) -> bool {
    body.windows(word.len()).any(|part| part == word.as_bytes())
}

fn object(value: &Json) -> Option<Object> {
    value.read()
}

fn text(object: &Object, name: &str) -> Option<String> {
    object.get(name)?.read()
}
