//! The page: one document without scripts, that folds and unfolds by what HTML itself can do.

mod flow;

use core::fmt::Write as _;

use ubos_common::time::Timestamp;

use super::row::{Kind, Mark, Row, Run};
use super::text::{cut, escape, grouped, span};
use super::wire::LeftOut;

/// Nothing is fetched or run, whatever a text may say.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(super) fn page(runs: &[Run], hidden: u64, left_out: &LeftOut) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.raw("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"");
    page.text(POLICY);
    page.raw("\"><title>Agent run</title><style>");
    page.raw(include_str!("../style.css"));
    page.raw(
        "</style></head><body><a class=\"skip\" href=\"#flow-0\">Skip to the timeline</a><main>",
    );
    if runs.is_empty() {
        page.raw("<h1>Agent run</h1><p class=\"sub\">No event was recorded.</p>");
    }
    for (n, run) in runs.iter().enumerate() {
        page.run(n, run, runs.len() > 1);
    }
    if hidden > 0 {
        let text = format!(
            "{} more events are in the lines of the trace.",
            grouped(hidden)
        );
        page.element("p", "alert", &text);
    }
    if left_out.events > 0 {
        page.raw("<p class=\"alert\">");
        let (events, bytes) = (grouped(left_out.events), grouped(left_out.bytes));
        page.text(&format!("Not the whole run: {events} events of {bytes} bytes came after the trace was full and were left out."));
        page.raw("</p>");
    }
    page.raw("<footer>Times are in milliseconds from the start of the run. Tokens are those of each response, in and out.");
    page.raw(
        " The bar of a response starts at the end of the event before it.</footer></main></body></html>\n",
    );
    page.0
}

struct Page(String);

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
        let began = i64::try_from(run.from)
            .ok()
            .and_then(Timestamp::from_unix_millis);
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
        self.raw("<h2>Plan</h2><table class=\"plan\"><thead><tr><th>Step</th><th>Description</th><th>Depends on</th>");
        self.raw("<th>Status</th></tr></thead><tbody>");
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

/// The totals of a run, its sub-agents included.
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
