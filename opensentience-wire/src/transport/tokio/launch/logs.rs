//! What a launched process writes to standard output and error, kept line by line.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use ubos_common::secret::Redactor;
use ubos_common::time::Mono;

use super::super::rate::{LEAST, Rate};
use crate::ledger::{Charge, Ledger, Share};
use crate::token::SessionToken;

/// How much of what a process writes is kept.
#[derive(Clone, Copy, Debug)]
struct LogLimits {
    /// Bytes of one line, its end not counted.
    line_bytes: usize,
    /// Bytes of all lines that are kept, an end counted for each.
    run_bytes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            line_bytes: 8_192,
            run_bytes: 5_000_000,
        }
    }
}

/// What a process wrote, both its streams in the order in which lines ended, and how it ended.
///
/// | limit | value | at the limit |
/// |---|---|---|
/// | bytes of one line | 8,192 | the line is cut and ends with `…` |
/// | bytes of all lines, their ends counted | 5,000,000, within the agent's [`Ledger`] | the oldest lines go, and are counted |
/// | time for reading what it writes | a tenth of a processor | the process waits when its pipe is full |
/// | bytes that each stream writes, 1 KiB at least for each line and each write | 8 MiB at once, and in a second | the same |
///
/// Its session token and what looks like another secret is replaced before a line is kept; what is no UTF-8 is replaced too.
#[derive(Clone, Debug, Default)]
pub struct Captured(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    limits: LogLimits,
    token: Option<SessionToken>,
    /// The lines, each with its end: a line takes no more than it has bytes.
    lines: VecDeque<u8>,
    /// What the lines hold.
    charge: Charge,
    dropped: u64,
    status: Option<ExitStatus>,
}

impl Captured {
    /// The lines that are kept, each with its end.
    #[must_use]
    pub fn text(&self) -> String {
        let kept = self.lock();
        let (head, tail) = kept.lines.as_slices();
        // Whole lines of text went in, and whole lines came out.
        String::from_utf8([head, tail].concat()).unwrap_or_default()
    }

    /// How the process ended; `None` while it runs.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        self.lock().status
    }

    pub(super) fn set_status(&self, status: Option<ExitStatus>) {
        // A process ends once.
        let mut kept = self.lock();
        kept.status = kept.status.or(status);
    }

    /// Lines that had to go, because so many were written.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.lock().dropped
    }

    #[cfg(test)]
    fn set_limits(&self, limits: LogLimits) {
        self.lock().limits = limits;
    }

    /// Counts the lines in the ledger of the agent; of a launch, so there are none yet.
    pub(super) fn count_in(&self, ledger: &Ledger) {
        self.lock().charge = Charge::on(ledger, Share::Log);
    }

    /// Keeps a token out of the log.
    pub(in crate::transport::tokio) fn guard(&self, token: &SessionToken) {
        self.lock().token = Some(token.clone());
    }

    #[expect(clippy::disallowed_methods, reason = "a pipe is read by a task")]
    pub(super) fn follow(
        &self,
        mut pipe: impl AsyncRead + Send + Unpin + 'static,
    ) -> JoinHandle<()> {
        let captured = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            let mut line = Line::default();
            // The same clock as that of the rests below.
            let zero = Instant::now();
            let mono = || Mono::ZERO.saturating_add(zero.elapsed());
            let mut rate = Rate::default();
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                let begun = mono();
                let bytes = buffer.get(..count).unwrap_or_default();
                line.read(bytes, &captured);
                let now = mono();
                let spent = now.saturating_since(begun);
                // A process that writes more than can be read in its share of the time waits for its reader.
                let rest = rate.charge(now, cost(bytes)).max(rest_after(spent));
                if !rest.is_zero() {
                    tokio::time::sleep(rest).await;
                }
            }
            if line.begun {
                line.end(&captured);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reading a piece of a log that takes longer is followed by a rest, so that a process that writes without end takes at most a
/// tenth of a processor.
const BRIEF: Duration = Duration::from_micros(200);

/// How many times as long the rest takes.
const REST: u32 = 9;

/// The longest rest. A read that took longer than a ninth of it stood still on a busy machine, which is no work of its own: the
/// pipe is not left to fill up because of that.
const MAX_REST: Duration = Duration::from_millis(50);

/// The rest after a read that took so long.
fn rest_after(spent: Duration) -> Duration {
    if spent > BRIEF {
        spent.saturating_mul(REST).min(MAX_REST)
    } else {
        Duration::ZERO
    }
}

/// What a piece of a log counts for: a short line and a short write cost nearly as much as longer ones.
fn cost(bytes: &[u8]) -> usize {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| line.len().max(LEAST)).sum()
}

/// A line that has not ended yet.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    begun: bool,
    redactor: Redactor,
}

impl Line {
    fn read(&mut self, bytes: &[u8], captured: &Captured) {
        // Beyond the limit as much again, so that a secret on the border is still known for one.
        let limit = captured.lock().limits.line_bytes.saturating_mul(2);
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = rest.split_at(end);
            self.take(head, limit);
            self.end(captured);
            rest = tail.get(1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.take(rest, limit);
        }
    }

    fn take(&mut self, bytes: &[u8], limit: usize) {
        self.begun = true;
        let room = limit.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes
            .extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    fn end(&mut self, captured: &Captured) {
        captured.lock().keep(&self.bytes, &mut self.redactor);
        self.bytes.clear();
        self.begun = false;
    }
}

impl Kept {
    // impl: OSW-7-2
    fn keep(&mut self, bytes: &[u8], redactor: &mut Redactor) {
        let text = String::from_utf8_lossy(bytes);
        let text = match &self.token {
            Some(token) if !token.expose().is_empty() => text.replace(token.expose(), "[REDACTED]"),
            _ => text.into_owned(),
        };
        // A secret may go on over lines: nothing is left of a line that only continues one.
        let was_empty = text.is_empty();
        let mut line = redactor.push(&(text + "\n"));
        line.truncate(line.trim_end_matches('\n').len());
        if line.is_empty() && !was_empty {
            return;
        }
        if line.len() > self.limits.line_bytes {
            let ends = |at: &usize| line.is_char_boundary(*at);
            let end = (0..=self.limits.line_bytes).rev().find(ends);
            line.truncate(end.unwrap_or_default());
            line.push('…');
        }
        line.push('\n');
        if self.make_room(line.len()) {
            self.lines.extend(line.as_bytes());
        } else {
            self.dropped += 1;
        }
    }

    /// Drops the oldest lines, until so many bytes fit; gives whether they do.
    fn make_room(&mut self, bytes: usize) -> bool {
        loop {
            let is_over = self.lines.len() + bytes > self.limits.run_bytes;
            if self.lines.is_empty() || !is_over {
                if self.charge.grow(bytes) {
                    return true;
                }
                if self.lines.is_empty() {
                    return false;
                }
            }
            let end = self.lines.iter().position(|byte| *byte == b'\n');
            let end = end.map_or(self.lines.len(), |end| end + 1);
            self.lines.drain(..end);
            self.charge.shrink(end);
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(text: &str, limits: LogLimits, token: &SessionToken) -> Captured {
        let captured = Captured::default();
        captured.set_limits(limits);
        captured.guard(token);
        let pipe = std::io::Cursor::new(text.as_bytes().to_vec());
        captured.follow(pipe).await.unwrap();
        captured
    }

    fn token() -> SessionToken {
        SessionToken::from_random([7; 32])
    }

    #[tokio::test]
    async fn lines_and_runs_are_cut_at_their_bounds() {
        let limits = LogLimits {
            line_bytes: 4,
            run_bytes: 10,
        };
        let log = written("ab\n\nécoutez\n1\n22\nlast", limits, &token()).await;
        assert_eq!(log.text(), "1\n22\nlast\n");
        assert_eq!(log.dropped_lines(), 3);
        let log = written("écoutez\n", limits, &token()).await;
        assert_eq!(log.text(), "éco…\n");
    }

    // A line without an end takes no more memory than two at the bound.
    #[tokio::test]
    async fn a_line_that_never_ends_is_cut() {
        let text = "x".repeat(100_000);
        let log = written(&text, LogLimits::default(), &token()).await;
        assert_eq!(log.text().len(), 8_192 + "…\n".len());
    }

    // spec: OSW-7-2
    #[tokio::test]
    async fn neither_token_nor_password_is_kept_not_even_across_a_bound() {
        let token = token();
        for before in 8_140..8_200 {
            let text = format!(
                "{}{}\npassword=hunter2hunter2\n",
                "-".repeat(before),
                token.expose()
            );
            let log = written(&text, LogLimits::default(), &token).await;
            assert!(!log.text().contains(&token.expose()[..8]), "{before}");
            assert!(!log.text().contains("hunter2"));
        }
    }

    // spec: OSW-7-2
    #[tokio::test]
    async fn a_private_key_over_lines_is_not_kept() {
        let title = format!("{} KEY-----", "PRIVATE");
        let text =
            format!("a\n-----BEGIN {title}\nMIIEvQIBADANBgkq\nhkiG9w0BAQ\n-----END {title}\nb\n");
        let log = written(&text, LogLimits::default(), &token()).await;
        assert_eq!(log.text(), "a\n[REDACTED]\nb\n");
    }

    // It costs next to nothing to look at, and a system call each few bytes.
    #[tokio::test(start_paused = true)]
    async fn a_stream_without_lines_has_a_rate() {
        // Whoever waits lets this clock go on, and nothing else does.
        let began = Instant::now();
        let text = "x".repeat(12 << 20);
        let log = written(&text, LogLimits::default(), &token()).await;
        assert!(!log.text().is_empty());
        let waited = began.elapsed();
        assert!(waited >= Duration::from_millis(450), "{waited:?}");
    }

    // The time of a read is that of the clock, in which others may have run.
    #[test]
    fn a_read_that_stood_still_is_followed_by_no_longer_rest_than_one_that_worked() {
        for (micros, rest) in [(0, 0), (200, 0), (1_000, 9_000), (5_000, 45_000)] {
            let rest = Duration::from_micros(rest);
            assert_eq!(rest_after(Duration::from_micros(micros)), rest);
        }
        for secs in [1, 60, u64::MAX] {
            assert_eq!(rest_after(Duration::from_secs(secs)), MAX_REST);
        }
    }

    #[test]
    fn a_short_line_and_a_short_write_count_for_a_longer_one() {
        let long = "x".repeat(3_000);
        for (text, counts) in [
            ("", 0),
            ("a", LEAST),
            ("a\n", LEAST),
            ("\n\n\n", 3 * LEAST),
            ("a\nb", 2 * LEAST),
            (&*long, 3_000),
        ] {
            assert_eq!(cost(text.as_bytes()), counts, "{text}");
        }
    }

    #[tokio::test]
    async fn lines_count_in_the_ledger_of_their_agent_until_the_log_is_dropped() {
        // 2/16 of it are for logs.
        let ledger = Ledger::new(16 * 50);
        let log = |text: &str| {
            let captured = Captured::default();
            captured.count_in(&ledger);
            let pipe = std::io::Cursor::new(text.as_bytes().to_vec());
            let read = captured.follow(pipe);
            async { (read.await.unwrap(), captured).1 }
        };
        let first = log(&"four\n".repeat(50)).await;
        assert_eq!((first.text().len(), first.dropped_lines()), (100, 30));
        assert_eq!(ledger.held_bytes_of(Share::Log), 100);
        // What an application keeps of a run takes the place of the next.
        let second = log("more\nlines\n").await;
        assert_eq!((second.text().len(), second.dropped_lines()), (0, 2));
        drop(first);
        assert_eq!(ledger.held_bytes(), 0);
        let third = log("more\nlines\n").await;
        assert_eq!(third.text(), "more\nlines\n");
        assert_eq!(ledger.held_bytes(), third.text().len());
    }

    // They hold no bytes, and take memory all the same.
    #[tokio::test]
    async fn empty_lines_are_bounded_too() {
        let limits = LogLimits {
            run_bytes: 100,
            ..LogLimits::default()
        };
        let log = written(&"\n".repeat(1_000), limits, &token()).await;
        assert!(log.text().len() <= 100);
        assert!(log.dropped_lines() >= 900);
    }
}
