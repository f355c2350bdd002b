//! Logging of runs.

use core::fmt::{self, Write as _};
use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::time::Now;

use super::{Middleware, MiddlewareContext};
use crate::hooks::HookFuture;
use crate::result::{AgentError, GenerateResult};

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// The start and the end of runs.
    Info,
    /// Unexpected conditions.
    Warn,
    /// What went wrong.
    Error,
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        })
    }
}

/// Receives a log line without a line break at its end.
type Logger = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// Options of [`logging`].
///
/// | option | default |
/// |---|---|
/// | `level` | [`LogLevel::Info`] |
/// | `logger` | standard output, with feature `os`; given without it |
/// | `include_messages` | no |
/// | `include_timing` | yes |
///
/// Spec: UAP-1.1 9.3
#[derive(Clone)]
pub struct LoggingOptions {
    level: LogLevel,
    logger: Logger,
    include_messages: bool,
    include_timing: bool,
}

impl LoggingOptions {
    /// The defaults, with a function that receives each line, without a line break at its end.
    pub fn new(logger: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        Self {
            level: LogLevel::Info,
            logger: Arc::new(logger),
            include_messages: false,
            include_timing: true,
        }
    }

    /// Sets the lowest level that is written.
    #[must_use]
    pub const fn with_level(mut self, level: LogLevel) -> Self {
        self.level = level;
        self
    }

    /// Sets whether lines contain the number of messages and, at level debug, the start of input and response. Secrets in
    /// them are not redacted.
    #[must_use]
    pub const fn with_include_messages(mut self, include: bool) -> Self {
        self.include_messages = include;
        self
    }

    /// Sets whether lines contain the duration of a run.
    #[must_use]
    pub const fn with_include_timing(mut self, include: bool) -> Self {
        self.include_timing = include;
        self
    }
}

#[cfg(feature = "os")]
impl Default for LoggingOptions {
    fn default() -> Self {
        use std::io::Write as _;
        // An output that is closed is no reason for a run to fail.
        Self::new(|_, line| drop(writeln!(std::io::stdout().lock(), "{line}")))
    }
}

impl fmt::Debug for LoggingOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggingOptions")
            .field("level", &self.level)
            .field("include_messages", &self.include_messages)
            .field("include_timing", &self.include_timing)
            .finish_non_exhaustive()
    }
}

/// Middleware that logs the start and the end of each run.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use uap_agent::middleware::{LoggingOptions, logging};
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel};
///
/// let lines = Arc::new(Mutex::new(Vec::new()));
/// let kept = Arc::clone(&lines);
/// let log = logging(LoggingOptions::new(move |_, line| kept.lock().unwrap().push(line.to_owned())));
/// let model = Arc::new(ScriptedModel::new([Reply::text("hello")]));
/// let agent = agent(AgentOptions::new(model).with_middleware([log]))?;
/// futures::executor::block_on(agent.query("hi"))?;
/// let lines = lines.lock().unwrap();
/// assert_eq!(lines[0], format!("[UAP:INFO] Execution started agent={}", agent.id()));
/// assert!(lines[1].starts_with("[UAP:INFO] Execution completed") && lines[1].contains("tokens="));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: UAP-1.1 9.3
// impl: UAP-9-3
#[must_use]
pub fn logging(options: LoggingOptions) -> Arc<dyn Middleware> {
    Arc::new(Logging(options))
}

struct Logging(LoggingOptions);

/// Milliseconds of the monotonic clock, under this key in the request's metadata.
const START: &str = "_logging_startTime";
/// The maximum number of characters of a message.
const MOST: usize = 200;

impl Logging {
    fn line(&self, level: LogLevel, text: impl FnOnce(&mut String)) {
        if level >= self.0.level {
            let mut line = format!("[UAP:{level}] ");
            text(&mut line);
            (self.0.logger)(level, &line);
        }
    }

    /// The agent, and the number of messages.
    fn about(&self, context: &MiddlewareContext, messages: usize, line: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(line, " agent={}", context.agent_id);
        if self.0.include_messages {
            let _ = write!(line, " messages={messages}");
        }
    }

    fn content(&self, what: &str, text: &str) {
        if self.0.include_messages {
            self.line(LogLevel::Debug, |line| {
                line.push_str(what);
                line.push_str(": ");
                line.extend(text.chars().take(MOST).map(flat));
            });
        }
    }

    /// Milliseconds since the run started.
    fn took(&self, context: &MiddlewareContext) -> Option<u64> {
        let began: u64 = context.metadata.get(START)?.deserialize().ok()?;
        Some(millis(context.now).saturating_sub(began))
    }
}

impl Middleware for Logging {
    fn name(&self) -> &str {
        "logging"
    }

    fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        if self.0.include_timing
            && let Ok(start) = RawBuf::from_serialize(&millis(context.now))
        {
            context.metadata.insert(START.to_owned(), start);
        }
        self.line(LogLevel::Info, |line| {
            line.push_str("Execution started");
            self.about(context, context.state.messages().len(), line);
        });
        self.content("Input", &context.input.text());
        Box::pin(core::future::ready(Ok(())))
    }

    fn after<'a>(
        &'a self,
        context: &'a mut MiddlewareContext,
        result: GenerateResult,
    ) -> HookFuture<'a, GenerateResult> {
        self.line(LogLevel::Info, |line| {
            line.push_str("Execution completed");
            self.about(context, result.state.messages().len(), line);
            if let Some(took) = self.took(context) {
                let _ = write!(line, " duration={took}ms");
            }
            let _ = write!(line, " tokens={}", result.turn.usage.total_tokens);
        });
        self.content("Response", &result.turn.response.text());
        Box::pin(core::future::ready(Ok(result)))
    }

    fn on_error<'a>(
        &'a self,
        context: &'a mut MiddlewareContext,
        error: &'a AgentError,
    ) -> HookFuture<'a, Option<GenerateResult>> {
        self.line(LogLevel::Error, |line| {
            line.push_str("Execution failed");
            self.about(context, error.state.messages().len(), line);
            line.push_str(" error=");
            line.extend(error.error.to_string().chars().map(flat));
            if let Some(took) = self.took(context) {
                let _ = write!(line, " after {took}ms");
            }
        });
        Box::pin(core::future::ready(Ok(None)))
    }
}

/// Escapes line breaks, so that a message cannot look like a log line.
fn flat(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

fn millis(now: Now) -> u64 {
    now.mono.as_nanos() / 1_000_000
}
