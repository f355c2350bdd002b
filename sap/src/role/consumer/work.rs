//! What hooks and handlers say of a task.

use core::fmt;

use ubos_common::json::{RawBuf, RawObject};

use crate::error::ErrorCode;
use crate::status::Status;

/// What is decided about an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It may.
    Allowed,
    /// It is known and may not: `FORBIDDEN`.
    Forbidden,
    /// It is not known: `UNAUTHORIZED`.
    Unknown,
    /// That cannot be found out now: `RATE_LIMIT`.
    Busy,
}

/// How far a handler is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// RUNNING or PARTIAL.
    pub(crate) status: Status,
    /// What there is so far.
    pub output: Option<RawBuf>,
    /// What is proposed to be done next.
    pub next_actions: Option<Vec<RawObject>>,
    /// What was used up so far.
    pub metrics: Option<RawObject>,
    /// What grounds what there is so far; a policy may demand it of a part, too.
    pub citations: Vec<String>,
}

impl Progress {
    /// The handler is at work.
    #[must_use]
    pub const fn running(output: Option<RawBuf>) -> Self {
        Self {
            status: Status::Running,
            output,
            next_actions: None,
            metrics: None,
            citations: Vec::new(),
        }
    }

    /// A part is done; the actions say what is left.
    #[must_use]
    pub const fn partial(output: RawBuf, next_actions: Vec<RawObject>) -> Self {
        Self {
            status: Status::Partial,
            output: Some(output),
            next_actions: Some(next_actions),
            metrics: None,
            citations: Vec::new(),
        }
    }
}

#[cfg(feature = "driver")]
impl Progress {
    /// Bytes of all that it says.
    pub(crate) fn bytes(&self) -> usize {
        let Self {
            status: _,
            output,
            next_actions,
            metrics,
            citations,
        } = self;
        let output = output.as_ref().map_or(0, |output| output.as_str().len());
        output + of_objects(metrics) + of_lists([next_actions]) + of_texts(citations)
    }
}

/// What a handler made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The data; an outcome without it is never cached.
    pub output: Option<RawBuf>,
    /// What grounds it.
    pub citations: Vec<String>,
    /// Outputs kept elsewhere.
    pub artifacts: Option<Vec<RawObject>>,
    /// What was used up.
    pub metrics: Option<RawObject>,
    /// What is proposed to be done next.
    pub next_actions: Option<Vec<RawObject>>,
    /// Whatever else goes along.
    pub meta: Option<RawObject>,
}

impl Outcome {
    /// An outcome that is its data.
    #[must_use]
    pub fn new(output: RawBuf) -> Self {
        Self {
            output: Some(output),
            ..Self::default()
        }
    }

    /// Sets what grounds the data.
    #[must_use]
    pub fn citing(mut self, citations: Vec<String>) -> Self {
        self.citations = citations;
        self
    }
}

/// Why a handler made nothing. Any error becomes one with `?`, in a box or not, and so does a text: the task fails as
/// `INTERNAL`, and its issuer is told the text.
///
/// ```
/// use core::error::Error;
/// use sap::role::consumer::HandlerError;
///
/// fn number(text: &str) -> Result<u8, Box<dyn Error + Send + Sync>> {
///     let number = text.strip_prefix('#').ok_or("a number begins with #")?;
///     Ok(number.parse()?)
/// }
///
/// fn work(text: &str) -> Result<u8, HandlerError> {
///     if text.is_empty() {
///         return Err(HandlerError::unprocessable("there is no text"));
///     }
///     let number = number(text)?; // a box
///     Ok(number.checked_add(1).ok_or("too large")?) // a text
/// }
///
/// assert_eq!(work("#7"), Ok(8));
/// assert_eq!(work("7"), Err("a number begins with #".into()));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HandlerError {
    /// The task fails.
    Failed {
        /// The code of the result's error.
        code: ErrorCode,
        /// What happened, for a person.
        message: String,
        /// Whatever else is known.
        details: Option<RawObject>,
    },
    /// Somebody else has to decide.
    Escalated {
        /// Why, for a person.
        message: String,
        /// The path of escalation.
        next_actions: Vec<RawObject>,
    },
}

// It is no `Error` itself, so that it can be made of each one.
impl<E: Into<Box<dyn core::error::Error + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::failed(ErrorCode::Internal, error.into().to_string())
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { code, message, .. } => write!(f, "{code}: {message}"),
            Self::Escalated { message, .. } => write!(f, "escalated: {message}"),
        }
    }
}

impl HandlerError {
    /// The task fails with a code.
    #[must_use]
    pub fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
            details: None,
        }
    }

    /// The payload is not what the capability takes.
    #[must_use]
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::failed(ErrorCode::Unprocessable, message)
    }

    /// The budget of this name is used up.
    pub(crate) fn over_budget(budget: &str) -> Self {
        Self::failed(
            ErrorCode::RateLimit,
            format!("budget {budget:?} is used up"),
        )
    }
}

/// How the work of a handler ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Ended {
    /// It made something.
    Outcome(Box<Outcome>),
    /// It made nothing.
    Error(HandlerError),
    /// It panicked.
    Panicked,
    /// It used more than the budget of this name.
    OverBudget(String),
}

#[cfg(feature = "driver")]
impl Ended {
    /// Bytes of all that it says.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Outcome(outcome) => outcome.bytes(),
            Self::Error(HandlerError::Failed {
                code: _,
                message,
                details,
            }) => message.len() + of_objects(details),
            Self::Error(HandlerError::Escalated {
                message,
                next_actions,
            }) => message.len() + of_objects(next_actions),
            Self::Panicked => 0,
            Self::OverBudget(name) => name.len(),
        }
    }
}

#[cfg(feature = "driver")]
impl Outcome {
    fn bytes(&self) -> usize {
        let Self {
            output,
            citations,
            artifacts,
            metrics,
            next_actions,
            meta,
        } = self;
        let output = output.as_ref().map_or(0, |output| output.as_str().len());
        let objects = of_objects(metrics) + of_objects(meta);
        output + objects + of_lists([artifacts, next_actions]) + of_texts(citations)
    }
}

#[cfg(feature = "driver")]
fn of_objects<'a>(objects: impl IntoIterator<Item = &'a RawObject>) -> usize {
    let bytes = objects.into_iter().map(|object| object.as_str().len());
    bytes.sum()
}

#[cfg(feature = "driver")]
fn of_lists<const N: usize>(lists: [&Option<Vec<RawObject>>; N]) -> usize {
    of_objects(lists.into_iter().flatten().flatten())
}

#[cfg(feature = "driver")]
fn of_texts(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

/// What was found about an output and its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContractFinding {
    /// The contract is kept, or asks for nothing.
    Kept,
    /// It is broken at these pointers into the output: `UNPROCESSABLE`.
    Broken(Vec<String>),
    /// It cannot be judged, and is not enforced.
    NotEnforced(NotEnforced),
}

/// Why a contract is not enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotEnforced {
    /// Its schema is a descriptor: it does not compile as JSON Schema.
    #[error("the schema of the contract is no JSON Schema that can be compiled")]
    NoSchema,
    /// The schema is longer, or refers more often, than may be.
    #[error("the schema of the contract is over its bounds")]
    TooLarge,
    /// The schema refers to something that is not in it, which is not fetched.
    #[error("the schema of the contract refers to something outside of it")]
    Remote,
    /// The output has a number that the check cannot hold.
    #[error("the output has a number that no double holds")]
    Number,
    /// The schema or the output has a member whose name the check cannot hold.
    #[error("the schema of the contract or the output has a member name that is reserved")]
    ReservedName,
    /// To hold this output against the schema takes more steps than the budget.
    #[error("holding the output against its contract takes more steps than the budget")]
    TooExpensive,
}

/// Why a task is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// On request.
    Cancelled,
    /// Its time is over.
    TimedOut,
}
