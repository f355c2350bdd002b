//! The one error of the protocol.

use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, Write};

use crate::turn::Turn;

ubos_common::words! {
    /// What kind of failure it was.
    ///
    /// Spec: UPP-1.3 errors
    open pub enum ErrorCode {
        /// No key, or one that the vendor refuses.
        AuthenticationFailed = "AUTHENTICATION_FAILED",
        /// Too many requests.
        RateLimited = "RATE_LIMITED",
        /// More tokens than the model takes.
        ContextLengthExceeded = "CONTEXT_LENGTH_EXCEEDED",
        /// No such model.
        ModelNotFound = "MODEL_NOT_FOUND",
        /// The request is wrong, or asks for what the model cannot do.
        InvalidRequest = "INVALID_REQUEST",
        /// The answer cannot be read.
        InvalidResponse = "INVALID_RESPONSE",
        /// The vendor withheld the answer.
        ContentFiltered = "CONTENT_FILTERED",
        /// The account is used up.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// The vendor failed, or anything that no other code says.
        ProviderError = "PROVIDER_ERROR",
        /// The vendor was not reached.
        NetworkError = "NETWORK_ERROR",
        /// No answer in time.
        Timeout = "TIMEOUT",
        /// The caller ended it.
        Cancelled = "CANCELLED",
    }
}

impl ErrorCode {
    /// The code that an HTTP status stands for.
    ///
    /// ```
    /// assert_eq!(upp::ErrorCode::of_status(429), upp::ErrorCode::RateLimited);
    /// ```
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::AuthenticationFailed,
            402 => Self::QuotaExceeded,
            404 => Self::ModelNotFound,
            408 => Self::Timeout,
            413 => Self::ContextLengthExceeded,
            429 => Self::RateLimited,
            400 | 409 | 422 => Self::InvalidRequest,
            451 => Self::ContentFiltered,
            _ => Self::ProviderError,
        }
    }
}

/// Why a call failed. It never holds a key, nor what was sent.
#[derive(Clone)]
#[non_exhaustive]
pub struct UppError {
    /// What kind of failure.
    pub code: ErrorCode,
    /// Whose model it was.
    pub provider: Arc<str>,
    /// What happened, for a person.
    pub message: Box<str>,
    /// The HTTP status, where there was one.
    pub status_code: Option<u16>,
    /// How long the vendor asks to wait, where it does.
    pub retry_after: Option<Duration>,
    /// What lies behind it.
    pub cause: Option<Arc<dyn Error + Send + Sync>>,
    /// What a call with tools had come to before it failed, where there was an answer already. Not written.
    pub partial_turn: Option<Arc<Turn>>,
}

impl UppError {
    /// The modality of every error of this crate.
    pub const MODALITY: &'static str = "llm";

    /// An error without status and cause.
    pub fn new(
        code: ErrorCode,
        provider: impl Into<Arc<str>>,
        message: impl Into<Box<str>>,
    ) -> Self {
        Self {
            code,
            provider: provider.into(),
            message: message.into(),
            status_code: None,
            retry_after: None,
            cause: None,
            partial_turn: None,
        }
    }

    /// The caller ended the call.
    pub fn cancelled(provider: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorCode::Cancelled, provider, "cancelled")
    }

    /// A foreign error, as `PROVIDER_ERROR` with its cause.
    pub fn wrap(provider: impl Into<Arc<str>>, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorCode::ProviderError, provider, cause.to_string()).with_cause(cause)
    }

    /// Sets what lies behind it.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Sets the HTTP status.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.status_code = Some(status);
        self
    }
}

impl fmt::Debug for UppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UppError")
            .field("code", &self.code)
            .field("provider", &self.provider)
            .field("message", &self.message)
            .field("status_code", &self.status_code)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for UppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.provider, self.message)
    }
}

impl Error for UppError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl Write for UppError {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("name", "UPPError");
        object.member("message", &*self.message);
        object.member("code", &self.code);
        object.member("provider", &*self.provider);
        object.member("modality", Self::MODALITY);
        object.optional("statusCode", self.status_code.as_ref());
        object.optional(
            "cause",
            self.cause.as_ref().map(ToString::to_string).as_ref(),
        );
        object.end();
    }
}
