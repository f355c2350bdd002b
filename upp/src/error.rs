//! The error type of the protocol.

use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, Write};

use crate::tool::ToolError;
use crate::turn::Turn;

ubos_common::words! {
    /// The code of an error.
    ///
    /// Spec: UPP-1.3 errors
    open pub enum ErrorCode {
        /// There is no key, or the vendor refuses it.
        AuthenticationFailed = "AUTHENTICATION_FAILED",
        /// Too many requests.
        RateLimited = "RATE_LIMITED",
        /// The request exceeds the context length of the model.
        ContextLengthExceeded = "CONTEXT_LENGTH_EXCEEDED",
        /// The model does not exist.
        ModelNotFound = "MODEL_NOT_FOUND",
        /// The request is invalid, or the model does not support it.
        InvalidRequest = "INVALID_REQUEST",
        /// The response cannot be read.
        InvalidResponse = "INVALID_RESPONSE",
        /// The vendor's content filter withheld the response.
        ContentFiltered = "CONTENT_FILTERED",
        /// The account's quota is exhausted.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// The vendor failed, or no other code applies.
        ProviderError = "PROVIDER_ERROR",
        /// The vendor could not be reached.
        NetworkError = "NETWORK_ERROR",
        /// The request timed out.
        Timeout = "TIMEOUT",
        /// The caller cancelled the request.
        Cancelled = "CANCELLED",
    }
}

impl ErrorCode {
    /// Whether the same request, or a longer one, fails again whatever is done: there is no key, model or quota for it, the
    /// conversation is too long, or nobody wants the response.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::AuthenticationFailed
                | Self::ContextLengthExceeded
                | Self::ModelNotFound
                | Self::QuotaExceeded
                | Self::Cancelled
        )
    }

    /// The code for an HTTP status.
    ///
    /// ```
    /// assert_eq!(upp::ErrorCode::of_status(429), upp::ErrorCode::RateLimited);
    /// ```
    // impl: UPP-3
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

/// The error of a request. It contains neither keys nor request bodies.
#[derive(Clone)]
#[non_exhaustive]
pub struct UppError {
    /// The code.
    pub code: ErrorCode,
    /// The provider of the model.
    pub provider: Arc<str>,
    /// The message.
    pub message: Box<str>,
    /// The HTTP status, where there was one.
    pub status_code: Option<u16>,
    /// The wait that the vendor requests.
    pub retry_after: Option<Duration>,
    /// The cause.
    pub cause: Option<Arc<dyn Error + Send + Sync>>,
    /// The turn so far, where the model had responded before the error. It is not serialized.
    pub partial_turn: Option<Arc<Turn>>,
}

impl UppError {
    /// The modality of all errors of this crate.
    const MODALITY: &'static str = "llm";

    /// An error without a status and a cause.
    // impl: UPP-3
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

    /// The error of a call that was cancelled.
    pub(crate) fn cancelled(provider: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorCode::Cancelled, provider, "cancelled")
    }

    /// Wraps another error as `PROVIDER_ERROR`.
    pub(crate) fn wrap(
        provider: impl Into<Arc<str>>,
        cause: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::new(ErrorCode::ProviderError, provider, cause.to_string()).with_cause(cause)
    }

    /// Sets the cause.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Sets the HTTP status.
    #[cfg(any(feature = "openai", feature = "anthropic", feature = "google"))]
    pub(crate) const fn with_status(mut self, status: u16) -> Self {
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
/// A tool that asks a model returns its errors with `?`.
impl From<UppError> for ToolError {
    fn from(error: UppError) -> Self {
        error.to_string().into()
    }
}
