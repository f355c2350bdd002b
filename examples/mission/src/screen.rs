//! What a person sees while it happens.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ubos_common::os::Clock;
use ubos_common::time::Mono;

use super::trace::Trace;

/// Prints steps as they happen, one line each: to standard output, or nowhere when that is for JSON. Takes them down, too.
#[derive(Clone, Debug)]
pub struct Screen {
    inner: Arc<Mutex<Inner>>,
    trace: Trace,
}

#[derive(Debug)]
struct Inner {
    quiet: bool,
    colored: bool,
    clock: Clock,
    progress: Option<Mono>,
}

impl Screen {
    /// A screen; `quiet` shows nothing.
    pub fn new(quiet: bool) -> Self {
        let colored = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let inner = Inner {
            quiet,
            colored,
            clock: Clock::start(),
            progress: None,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            trace: Trace::default(),
        }
    }

    /// The steps that were taken down.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Says that somebody did something.
    pub fn say(&self, who: Who, what: impl AsRef<str>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.line(who, what.as_ref());
    }

    /// As [`Screen::say`] for progress: at most one line each 300 ms.
    pub fn progress(&self, who: Who, what: impl AsRef<str>) {
        const PAUSE: Duration = Duration::from_millis(300);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = inner.clock.now().mono;
        if inner
            .progress
            .is_none_or(|last| now.saturating_since(last) >= PAUSE)
        {
            inner.progress = Some(now);
            inner.line(who, what.as_ref());
        }
    }

    /// Prints a text as it is. Whoever closes the pipe wants no more of it; that is no error.
    pub fn text(&self, text: &str) -> io::Result<()> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.quiet {
            return Ok(());
        }
        match writeln!(io::stdout().lock(), "{text}") {
            Err(err) if err.kind() != io::ErrorKind::BrokenPipe => Err(err),
            _ => Ok(()),
        }
    }
}

impl Inner {
    fn line(&mut self, who: Who, what: &str) {
        if self.quiet {
            return;
        }
        let time = self
            .clock
            .now()
            .mono
            .saturating_since(Mono::ZERO)
            .as_secs_f64();
        let (on, off) = if self.colored {
            (who.color(), "\x1b[0m")
        } else {
            ("", "")
        };
        // A closed pipe is no reason to leave the work undone.
        let _ = writeln!(
            io::stdout().lock(),
            "{time:7.3}s  {on}{:<14}{off} {what}",
            who.name()
        );
    }
}

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The mission itself.
    Mission,
    /// Plans.
    Sacp,
    /// Tasks.
    Sap,
    /// The tool process.
    Wire,
    /// The fleet.
    Hub,
    /// The report's writer.
    Agent,
}

impl Who {
    const ALL: [Self; 6] = [
        Self::Mission,
        Self::Sacp,
        Self::Sap,
        Self::Wire,
        Self::Hub,
        Self::Agent,
    ];

    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|who| who.name() == name)
    }

    /// The name that stands before a line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mission => "mission",
            Self::Sacp => "sacp",
            Self::Sap => "sap",
            Self::Wire => "opensentience",
            Self::Hub => "hub",
            Self::Agent => "uap-agent",
        }
    }

    const fn color(self) -> &'static str {
        match self {
            Self::Mission => "\x1b[1m",
            Self::Sacp => "\x1b[36m",
            Self::Sap => "\x1b[33m",
            Self::Wire => "\x1b[32m",
            Self::Hub => "\x1b[35m",
            Self::Agent => "\x1b[34m",
        }
    }
}
