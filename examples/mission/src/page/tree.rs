//! The steps of a mission, drawn: one row a step, with its time on a common scale.

use std::fmt::Write as _;
use std::time::Duration;

use ubos_common::time::Timestamp;

use super::{Page, grouped};
use crate::step_words::DONE;
use crate::trace::{Span, Spans};

/// The times that the scale spans.
struct Scale {
    from: Timestamp,
    whole: Duration,
}

impl Scale {
    fn of(spans: &Spans) -> Self {
        let from = spans.list.iter().map(|span| span.started).min();
        let from = from.unwrap_or(Timestamp::EPOCH);
        let times = spans.list.iter();
        let to = times.map(|span| span.ended.unwrap_or(span.started)).max();
        let whole = to.unwrap_or(from).saturating_since(from);
        Self {
            from,
            whole: whole.max(Duration::from_micros(1)),
        }
    }

    /// A place on the scale, in thousandths.
    fn at(&self, time: Timestamp) -> u128 {
        let since = time.saturating_since(self.from).as_nanos();
        (since * 1000 / self.whole.as_nanos()).min(1000)
    }
}

impl Page {
    pub(super) fn tree(&mut self, spans: &Spans) {
        let scale = Scale::of(spans);
        self.raw("<div class=\"tree\"><div class=\"row\"><span class=\"what\" style=\"--d:0\">step</span>");
        self.raw("<span class=\"n ms\">time</span><span class=\"ticks\"><span>0</span><span>");
        self.text(&millis(scale.whole));
        self.raw("</span></span></div>");
        for (depth, span) in spans.tree() {
            self.row(depth, span, &scale);
        }
        self.raw("</div>");
        if spans.more > 0 {
            let more = format!("… and {} steps that are not drawn", grouped(spans.more));
            self.paragraph("none", &more);
        }
        self.paragraph(
            "none",
            "A hatched bar is time in the tool process, by its own clock to the millisecond.",
        );
    }

    fn row(&mut self, depth: usize, span: &Span, scale: &Scale) {
        let failed = span.ended.is_none() || span.outcome.starts_with("failed");
        let tools = if span.in_tools { " tools" } else { "" };
        let failed = if failed { " failed" } else { "" };
        let who = span.who.name();
        let _ = write!(
            self.0,
            "<div class=\"row{tools}{failed}\" style=\"--k:var(--{who})\"><span class=\"what\" style=\"--d:{depth}\">"
        );
        let _ = write!(
            self.0,
            "<span class=\"who\">{who}</span><span class=\"name\" title=\""
        );
        self.text(&span.id);
        self.raw("\">");
        self.text(&span.name);
        self.raw("</span><span class=\"end\">");
        let outcome = match (span.ended, &*span.outcome) {
            (None, _) => "did not end",
            (_, DONE) => "",
            (_, outcome) => outcome,
        };
        self.text(outcome);
        let ended = span.ended.unwrap_or(span.started);
        let took = ended.saturating_since(span.started);
        self.raw("</span></span><span class=\"n\">");
        self.text(&millis(took));
        let (left, right) = (scale.at(span.started), scale.at(ended));
        let width = right.saturating_sub(left);
        let _ = write!(
            self.0,
            "</span><span class=\"lane\"><i style=\"left:{}.{}%;width:{}.{}%\"></i></span></div>",
            left / 10,
            left % 10,
            width / 10,
            width % 10
        );
    }
}

/// A time in milliseconds, to a tenth below a hundred.
fn millis(time: Duration) -> String {
    let tenths = time.as_micros() / 100;
    match tenths {
        0..1000 => format!("{}.{} ms", tenths / 10, tenths % 10),
        _ => {
            let whole = u64::try_from(tenths / 10).unwrap_or(u64::MAX);
            format!("{} ms", grouped(whole))
        }
    }
}
