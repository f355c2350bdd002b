//! The timeline: a row for each thing that happened, its numbers, and a bar where it lies.

use core::fmt::Write as _;

use super::Page;
use crate::trace::row::{Kind, Mark, Part, Row, Run, Step};
use crate::trace::text::grouped;

/// The time span that a timeline covers.
struct Scale {
    from: u64,
    /// Milliseconds from one end to the other, at least one.
    width: u64,
}

impl Page {
    pub(super) fn flow(&mut self, n: usize, run: &Run) {
        if run.steps.is_empty() {
            return;
        }
        let scale = Scale {
            from: run.from,
            width: run.to.saturating_sub(run.from).max(1),
        };
        let tick = tick(scale.width);
        let part = scale.percent(tick);
        let _ = write!(
            self.0,
            "<h2>Timeline</h2><div class=\"flow\" id=\"flow-{n}\" style=\"--tick:{part}%\"><div class=\"cols\" \
             aria-hidden=\"true\"><span>Event</span><span class=\"n\">Start</span><span class=\"n\">Duration</span>\
             <span class=\"n\">Tokens in</span><span class=\"n\">Tokens out</span><span class=\"lane\">"
        );
        for at in (0..)
            .map(|n: u64| n.saturating_mul(tick))
            // The last label must not leave the lane.
            .take_while(|at| u128::from(*at) * 100 <= u128::from(scale.width) * 94)
            .take(12)
        {
            let label = if scale.width < 1000 {
                format!("{at}\u{202f}ms")
            } else {
                format!("{}\u{202f}s", decimal(at))
            };
            let _ = write!(
                self.0,
                "<span class=\"tick\" style=\"left:{}%\">{label}</span>",
                scale.percent(at)
            );
        }
        self.raw("</span></div>");
        self.steps(run, &scale, 0);
        self.raw("</div>");
    }

    fn steps(&mut self, run: &Run, scale: &Scale, depth: usize) {
        for step in &run.steps {
            self.step(step, run.to, scale, depth);
        }
    }

    fn step(&mut self, step: &Step, end: u64, scale: &Scale, depth: usize) {
        let name = match step.number {
            0 => "Before the first step".to_owned(),
            n if step.title.is_empty() => format!("Step {n}"),
            n => format!("Step {n} · {}", step.title),
        };
        self.raw("<details class=\"step\" open>");
        self.summary("", step.mark, depth);
        self.span("name", &name);
        let most = step.most_at_once();
        if most > 1 {
            self.span("flag calm", &format!("{most} tools at once"));
        }
        self.mark(step.mark);
        self.raw("</span>");
        self.times(step.from, step.to, end, None, scale);
        for row in &step.rows {
            self.row(row, end, scale, depth + 1);
        }
        self.raw("</details>");
    }

    fn row(&mut self, row: &Row, end: u64, scale: &Scale, depth: usize) {
        let (class, kind) = match row.kind {
            Kind::Model => ("k-model", "Model"),
            Kind::Tool => ("k-tool", "Tool"),
            Kind::Subagent => ("k-sub", "Sub-agent"),
            Kind::Reasoning => ("k-think", "Reasoning"),
            Kind::Plan => ("k-think", "Plan"),
            Kind::Note => ("k-note", "Event"),
        };
        // Nested rows are shown; texts are folded.
        let nested = row.run.is_some() || !row.children.is_empty();
        self.raw(if nested {
            "<details open>"
        } else {
            "<details>"
        });
        self.summary(class, row.mark, depth);
        self.span("kind", kind);
        if !row.name.is_empty() {
            self.span("name", &row.name);
        }
        self.mark(row.mark);
        let gist = if row.kind == Kind::Tool {
            "gist code"
        } else {
            "gist"
        };
        self.span(gist, &row.gist);
        self.raw("</span>");
        let is_moment = matches!(row.kind, Kind::Reasoning | Kind::Plan | Kind::Note);
        let to = if is_moment { Some(row.from) } else { row.to };
        self.times(row.from, to, end, row.tokens, scale);
        self.parts(&row.parts, depth, nested);
        for child in &row.children {
            self.row(child, end, scale, depth + 1);
        }
        if let Some(run) = &row.run {
            self.steps(run, scale, depth + 1);
        }
        self.raw("</details>");
    }

    fn summary(&mut self, class: &str, mark: Mark, depth: usize) {
        let failed = if mark == Mark::Failed { " failed" } else { "" };
        let depth = depth.min(12);
        let _ = write!(
            self.0,
            "<summary class=\"{class}{failed}\" style=\"--d:{depth}\"><span class=\"what\">"
        );
    }

    fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Good => {}
            Mark::Failed => self.span("flag", "✕ failed"),
            Mark::Open => self.span("flag open", "no end seen"),
        }
    }

    /// The numbers and the bar, and the end of the summary.
    fn times(
        &mut self,
        from: u64,
        to: Option<u64>,
        end: u64,
        tokens: Option<(u64, u64)>,
        scale: &Scale,
    ) {
        let until = to.unwrap_or(end).max(from);
        self.number("start", Some(grouped(from.saturating_sub(scale.from))));
        self.number("took", (until > from).then(|| grouped(until - from)));
        self.number("in", tokens.map(|(input, _)| grouped(input)));
        self.number("out", tokens.map(|(_, output)| grouped(output)));
        let (left, width) = (
            scale.percent(from.saturating_sub(scale.from)),
            scale.percent(until - from),
        );
        let _ = write!(
            self.0,
            "<span class=\"lane\" aria-hidden=\"true\"><span class=\"bar\" style=\"left:min({left}%,100% - 3px);\
             width:{width}%\"></span></span></summary>"
        );
    }

    /// A piece of a line, with room behind it for who reads the line without its looks.
    fn span(&mut self, class: &str, text: &str) {
        self.element("span", class, text);
        self.raw(" ");
    }

    fn number(&mut self, name: &str, value: Option<String>) {
        let Some(value) = value else {
            return self.raw("<span class=\"n none\"></span>");
        };
        let _ = write!(
            self.0,
            "<span class=\"n\"><span class=\"vh\"> {name} </span>{value}</span>"
        );
    }

    fn parts(&mut self, parts: &[Part], depth: usize, nested: bool) {
        if parts.is_empty() && !nested {
            let _ = write!(
                self.0,
                "<div class=\"body\" style=\"--d:{}\"><p class=\"cut\">Nothing was said.</p></div>",
                depth.min(12)
            );
            return;
        }
        if nested && !parts.is_empty() {
            self.fold(parts, depth);
            return;
        }
        let _ = write!(
            self.0,
            "<div class=\"body\" style=\"--d:{}\">",
            depth.min(12)
        );
        self.texts(parts);
        self.raw("</div>");
    }

    /// The texts of a row that shows what is nested: they are folded on their own.
    fn fold(&mut self, parts: &[Part], depth: usize) {
        let titles: Vec<&str> = parts.iter().map(|part| part.title).collect();
        let depth = (depth + 1).min(12);
        let _ = write!(
            self.0,
            "<details><summary style=\"--d:{depth}\"><span class=\"what\">"
        );
        self.span("gist", &titles.join(", "));
        let _ = write!(
            self.0,
            "</span></summary><div class=\"body\" style=\"--d:{depth}\">"
        );
        self.texts(parts);
        self.raw("</div></details>");
    }

    fn texts(&mut self, parts: &[Part]) {
        for part in parts {
            self.element("h3", "", part.title);
            self.long(&part.text, if part.is_code { "" } else { "said" });
        }
    }
}

impl Scale {
    /// A span as a part of the whole, in percent.
    fn percent(&self, millis: u64) -> String {
        let thousandths = u128::from(millis.min(self.width)) * 100_000 / u128::from(self.width);
        format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
    }
}

/// A round number of milliseconds, of which two to five make the whole.
fn tick(width: u64) -> u64 {
    let mut step = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let tick = step.saturating_mul(factor);
            if width / tick < 5 || tick == u64::MAX {
                return tick;
            }
        }
        step = step.saturating_mul(10);
    }
}

/// Milliseconds as seconds, without what is not needed.
fn decimal(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
