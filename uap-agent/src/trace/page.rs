//! The page: one document without scripts, that folds and unfolds by what HTML itself can do.

use core::fmt::Write as _;

use ubos_common::time::Timestamp;

use super::LeftOut;
use super::text::{cut, escape, grouped, seconds, span};
use super::view::{Kind, Mark, Part, Row, Run, Step};

/// Nothing is fetched or run, whatever a text may say.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(super) fn page(runs: &[Run], left_out: &LeftOut) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.raw("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"");
    page.text(POLICY);
    page.raw("\"><title>Agent run</title><style>");
    page.raw(include_str!("style.css"));
    page.raw(
        "</style></head><body><a class=\"skip\" href=\"#flow-0\">Skip to the timeline</a><main>",
    );
    if runs.is_empty() {
        page.raw("<h1>Agent run</h1><p class=\"sub\">No event was recorded.</p>");
    }
    for (n, run) in runs.iter().enumerate() {
        page.run(n, run, runs.len() > 1);
    }
    if left_out.events > 0 {
        page.raw("<p class=\"alert\">");
        let (events, bytes) = (grouped(left_out.events), grouped(left_out.bytes));
        page.text(&format!("Not the whole run: {events} events of {bytes} bytes came after the trace was full and were left out."));
        page.raw("</p>");
    }
    page.raw("<footer>Times are in seconds from the beginning of the run. Tokens are those of each answer, in and out.");
    page.raw(
        " A model’s bar begins where the event before it ended.</footer></main></body></html>\n",
    );
    page.0
}

struct Page(String);

/// What a timeline is drawn in.
struct Scale {
    from: u64,
    /// Milliseconds from one end to the other, at least one.
    width: u64,
}

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    fn text(&mut self, text: &str) {
        escape(&mut self.0, text);
    }

    /// An element around a text; the class is ours.
    fn element(&mut self, name: &str, class: &str, text: &str) {
        let class = if class.is_empty() {
            String::new()
        } else {
            format!(" class=\"{class}\"")
        };
        // Writing to a string does not fail.
        let _ = write!(self.0, "<{name}{class}>");
        self.text(text);
        let _ = write!(self.0, "</{name}>");
    }

    fn run(&mut self, n: usize, run: &Run, one_of_many: bool) {
        let heading = if one_of_many {
            format!("Run {}", n + 1)
        } else {
            "Agent run".to_owned()
        };
        self.raw("<section class=\"run\"><header>");
        self.element(if n == 0 { "h1" } else { "h2" }, "", &heading);
        self.verdict(run);
        self.raw("</header>");
        self.figures(run);
        self.talk(run);
        self.plan(run);
        self.flow(n, run);
        self.raw("</section>");
    }

    fn verdict(&mut self, run: &Run) {
        let error = run.end.as_ref().and_then(|end| end.error.as_ref());
        let (class, verdict) = match (error, &run.end) {
            (Some(error), _) if error.code == upp::ErrorCode::Cancelled => {
                ("verdict failed", "Cancelled")
            }
            (Some(_), _) => ("verdict failed", "Failed"),
            (None, Some(_)) => ("verdict", "Completed"),
            (None, None) => ("verdict", "No end was recorded"),
        };
        self.raw("<p class=\"sub\">");
        self.element("span", class, verdict);
        let began = i64::try_from(run.from / 1000)
            .ok()
            .and_then(Timestamp::from_unix);
        if let Some(began) = began.filter(|began| began.unix() > 0) {
            let began = began.to_string().replace('T', " ").replace('Z', " UTC");
            self.text(&format!(" · began {began}"));
        }
        if let Some(agent) = &run.agent {
            self.raw(" · agent ");
            self.element("code", "", agent);
        }
        self.raw("</p>");
    }

    fn figures(&mut self, run: &Run) {
        let sums = Sums::of(run);
        self.raw("<dl class=\"figures\">");
        self.figure("Time", &span(run.to.saturating_sub(run.from)), "");
        self.figure(
            "Steps",
            &grouped(run.steps.iter().filter(|step| step.number > 0).count() as u64),
            "",
        );
        self.figure("Model calls", &grouped(sums.inferences), "");
        let failed = if sums.failed > 0 {
            format!("{} failed", sums.failed)
        } else {
            String::new()
        };
        self.figure("Tool calls", &grouped(sums.tools), &failed);
        if sums.subagents > 0 {
            self.figure("Sub-agents", &grouped(sums.subagents), "");
        }
        if let Some(usage) = run.end.as_ref().and_then(|end| end.usage.as_ref()) {
            let cached = match usage.cache_read_tokens {
                0 => String::new(),
                some => format!("{} cached", grouped(some)),
            };
            self.figure("Tokens in", &grouped(usage.input_tokens), &cached);
            self.figure("Tokens out", &grouped(usage.output_tokens), "");
        }
        self.raw("</dl>");
    }

    fn figure(&mut self, name: &str, value: &str, aside: &str) {
        self.raw("<div>");
        self.element("dt", "", name);
        self.raw("<dd>");
        self.text(value);
        if !aside.is_empty() {
            self.raw(" ");
            self.element("small", "", aside);
        }
        self.raw("</dd></div>");
    }

    fn talk(&mut self, run: &Run) {
        let Some(end) = &run.end else { return };
        let said = [("Asked", &end.input), ("Answered", &end.answer)];
        if said.iter().any(|(_, text)| text.is_some()) {
            self.raw("<div class=\"talk\">");
            for (title, text) in said {
                if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
                    self.raw("<div>");
                    self.element("h2", "", title);
                    self.long(text, "said");
                    self.raw("</div>");
                }
            }
            self.raw("</div>");
        }
        if let Some(error) = &end.error {
            let text = format!("{} ({}): {}", error.code, error.provider, error.message);
            self.element("p", "alert", &text);
        }
    }

    fn plan(&mut self, run: &Run) {
        if run.plan.is_empty() {
            return;
        }
        self.raw("<h2>Plan</h2><table class=\"plan\"><thead><tr><th>Step</th><th>What</th><th>After</th>");
        self.raw("<th>Came to</th></tr></thead><tbody>");
        for step in &run.plan {
            let status = run.came_to.get(&step.id).unwrap_or(&step.status).as_str();
            self.raw("<tr>");
            self.element("td", "", &step.id);
            self.element("td", "", &step.description);
            self.element("td", "", &step.depends_on.join(", "));
            let class = if status == "failed" { "failed" } else { "" };
            self.element("td", class, &status.replace('_', " "));
            self.raw("</tr>");
        }
        self.raw("</tbody></table>");
    }

    fn flow(&mut self, n: usize, run: &Run) {
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
             aria-hidden=\"true\"><span>What</span><span class=\"n\">Start</span><span class=\"n\">Took</span>\
             <span class=\"n\">In</span><span class=\"n\">Out</span><span class=\"lane\">"
        );
        for at in (0..)
            .map(|n| n * tick)
            .take_while(|at| *at < scale.width)
            .take(12)
        {
            // The last label must not leave the lane.
            if at * 100 <= scale.width * 94 {
                let label = format!("{}\u{202f}s", decimal(at));
                let _ = write!(
                    self.0,
                    "<span class=\"tick\" style=\"left:{}%\">{label}</span>",
                    scale.percent(at)
                );
            }
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
        self.element("span", "name", &name);
        let most = step.most_at_once();
        if most > 1 {
            self.element("span", "flag calm", &format!("{most} tools at once"));
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
        // What is nested is shown; texts are folded.
        let nested = row.run.is_some() || !row.children.is_empty();
        self.raw(if nested {
            "<details open>"
        } else {
            "<details>"
        });
        self.summary(class, row.mark, depth);
        self.element("span", "kind", kind);
        if !row.name.is_empty() {
            self.element("span", "name", &row.name);
        }
        self.mark(row.mark);
        let gist = if row.kind == Kind::Tool {
            "gist code"
        } else {
            "gist"
        };
        self.element("span", gist, &row.gist);
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
            Mark::Failed => self.element("span", "flag", "✕ failed"),
            Mark::Open => self.element("span", "flag open", "no end seen"),
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
        self.number("start", Some(seconds(from.saturating_sub(scale.from))));
        self.number("took", (until > from).then(|| seconds(until - from)));
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

    fn number(&mut self, name: &str, value: Option<String>) {
        let Some(value) = value else {
            return self.raw("<span class=\"n none\"></span>");
        };
        let _ = write!(
            self.0,
            "<span class=\"n\"><span class=\"vh\">{name} </span>{value}</span>"
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
        self.element("span", "gist", &titles.join(", "));
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

    fn long(&mut self, text: &str, class: &str) {
        let (shown, hidden) = cut(text);
        let _ = write!(self.0, "<pre class=\"{class}\" tabindex=\"0\">");
        self.text(shown);
        self.raw("</pre>");
        if hidden > 0 {
            let text = format!(
                "{} more bytes are in the lines of the trace.",
                grouped(hidden as u64)
            );
            self.element("p", "cut", &text);
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

/// What a run counts up to, that of its sub-agents included.
#[derive(Default)]
struct Sums {
    inferences: u64,
    tools: u64,
    failed: u64,
    subagents: u64,
}

impl Sums {
    fn of(run: &Run) -> Self {
        let mut sums = Self::default();
        sums.add(run);
        sums
    }

    fn add(&mut self, run: &Run) {
        for row in run.steps.iter().flat_map(|step| &step.rows) {
            self.row(row);
        }
    }

    fn row(&mut self, row: &Row) {
        match row.kind {
            Kind::Model => self.inferences += 1,
            Kind::Tool => {
                self.tools += 1;
                self.failed += u64::from(row.mark == Mark::Failed);
            }
            Kind::Subagent => self.subagents += 1,
            _ => {}
        }
        row.children.iter().for_each(|child| self.row(child));
        if let Some(run) = &row.run {
            self.add(run);
        }
    }
}

/// A round number of milliseconds, of which four to eight make the whole.
fn tick(width: u64) -> u64 {
    let mut step = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let tick = step.saturating_mul(factor);
            if width / tick < 8 || tick == u64::MAX {
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
