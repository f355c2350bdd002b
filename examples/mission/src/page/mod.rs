//! The report as one HTML page without scripts, and the tree of a mission's steps.

mod tree;

use std::fmt::Write as _;

use super::output::Document;
use super::scan::Note;
use super::trace::Spans;

/// Nothing is fetched or run, whatever a file's name may say.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Entries of a list that show without unfolding it.
const SHOWN: usize = 10;

/// The page of a mission that ended: what the folder holds, and how that was found.
#[must_use]
pub fn report(document: &Document, folder: &str, spans: &Spans) -> String {
    let mut page = Page::begin("Audit");
    page.raw("<h1>Audit</h1><p class=\"sub\"><code>");
    page.text(folder);
    page.raw("</code></p>");
    page.figures(document);
    page.languages(document);
    page.list("Largest files", "No files.", &document.largest, 0, |file| {
        (vec![&file.path], format!("{} bytes", grouped(file.bytes)))
    });
    let truncated = &document.truncated;
    page.list(
        "Duplicates",
        "No two files of equal content.",
        &document.duplicates,
        truncated.duplicates,
        |group| {
            let names = group.iter().map(String::as_str).collect();
            (names, format!("{} files", group.len()))
        },
    );
    let place = |note: &'_ Note| format!("line {}: {}", note.line, note.kind);
    page.list(
        "Secrets",
        "Nothing that looks like a secret.",
        &document.secrets,
        truncated.secrets,
        |note| (vec![&note.path], place(note)),
    );
    page.list(
        "Notes",
        "No TODO or FIXME.",
        &document.notes,
        truncated.notes,
        |note| (vec![&note.path], place(note)),
    );
    page.list(
        "Not readable",
        "Every file was read.",
        &document.unreadable,
        truncated.unreadable,
        |entry| (vec![&entry.path], entry.why.clone()),
    );
    page.raw("<h2>How it was found</h2>");
    page.tree(spans);
    page.transcript(document);
    page.end()
}

/// The page of the steps alone: of a mission that failed, too. Complaints stand below them.
#[must_use]
pub fn trace(of: &str, folder: &str, spans: &Spans, complaints: &[String]) -> String {
    let mut page = Page::begin("Trace");
    page.raw("<h1>Trace</h1><p class=\"sub\">");
    page.text(of);
    page.raw(" <code>");
    page.text(folder);
    page.raw("</code></p><h2>Steps</h2>");
    page.tree(spans);
    for complaint in complaints {
        page.paragraph("bad", complaint);
    }
    page.end()
}

struct Page(String);

impl Page {
    fn begin(title: &str) -> Self {
        let mut page = Self(String::with_capacity(32 << 10));
        page.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        page.raw("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
        page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"");
        page.raw(POLICY);
        page.raw("\"><title>");
        page.text(title);
        page.raw("</title><style>");
        page.raw(include_str!("style.css"));
        page.raw("</style></head><body><main>");
        page
    }

    fn end(mut self) -> String {
        self.raw("</main></body></html>\n");
        self.0
    }

    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// A text of somebody else's: names of files may hold anything.
    fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '<' => self.raw("&lt;"),
                '>' => self.raw("&gt;"),
                '&' => self.raw("&amp;"),
                '"' => self.raw("&quot;"),
                c if c.is_control() => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
    }

    fn figures(&mut self, document: &Document) {
        let folder = &document.folder;
        let secrets = document.secrets.len() as u64 + document.truncated.secrets;
        let duplicates = document.duplicates.len() as u64 + document.truncated.duplicates;
        let notes = document.notes.len() as u64 + document.truncated.notes;
        self.raw("<dl class=\"figures\">");
        for (name, value, bad) in [
            ("files", folder.files, false),
            ("lines", folder.lines, false),
            ("bytes", folder.bytes, false),
            ("duplicates", duplicates, false),
            ("TODO, FIXME", notes, false),
            ("looks like a secret", secrets, secrets > 0),
        ] {
            let class = if bad { " class=\"bad\"" } else { "" };
            // Writing to a string does not fail.
            let _ = write!(
                self.0,
                "<div><dt>{name}</dt><dd{class}>{}</dd></div>",
                grouped(value)
            );
        }
        self.raw("</dl>");
        let agents = document.hub.agents;
        if document.hub.agree {
            let counted = format!("A second count by {agents} agents came to the same.");
            self.paragraph("sub", &counted);
        } else {
            let counted = format!("A second count by {agents} agents came to OTHER figures.");
            self.paragraph("bad", &counted);
        }
    }

    fn languages(&mut self, document: &Document) {
        self.raw("<h2>Languages</h2>");
        let mut languages: Vec<_> = document.folder.languages.iter().collect();
        languages.sort_by(|(a, x), (b, y)| y.bytes.cmp(&x.bytes).then_with(|| a.cmp(b)));
        let most = languages.first().map_or(1, |(_, most)| most.bytes.max(1));
        if languages.is_empty() {
            self.paragraph("none", "No files.");
            return;
        }
        self.raw("<div class=\"bars\">");
        for (name, counts) in languages {
            self.raw("<b>");
            self.text(name);
            // Exact to a thousandth of the widest bar.
            let share = counts.bytes.saturating_mul(1000) / most;
            let _ = write!(
                self.0,
                "</b><span><i style=\"width:{}.{}%\"></i></span><span class=\"n\">{} bytes</span><span class=\"n\">{} files, {} lines</span>",
                share / 10,
                share % 10,
                grouped(counts.bytes),
                grouped(counts.files),
                grouped(counts.lines)
            );
        }
        self.raw("</div>");
    }

    /// A list: the names that stand in an entry, and what is said of them.
    fn list<'a, T>(
        &mut self,
        title: &str,
        none: &str,
        entries: &'a [T],
        more: u64,
        about: impl Fn(&'a T) -> (Vec<&'a str>, String),
    ) {
        let all = entries.len() as u64 + more;
        let _ = write!(self.0, "<h2>{title}</h2>");
        if all == 0 {
            self.paragraph("none", none);
            return;
        }
        let (first, rest) = entries.split_at(entries.len().min(SHOWN));
        self.entries(first, &about);
        if !rest.is_empty() {
            let _ = write!(
                self.0,
                "<details><summary>{} more</summary>",
                grouped(rest.len() as u64)
            );
            self.entries(rest, &about);
            self.raw("</details>");
        }
        if more > 0 {
            self.paragraph(
                "none",
                &format!("… and {} that are not listed", grouped(more)),
            );
        }
    }

    fn entries<'a, T>(
        &mut self,
        entries: &'a [T],
        about: &impl Fn(&'a T) -> (Vec<&'a str>, String),
    ) {
        self.raw("<ul>");
        for entry in entries {
            let (names, said) = about(entry);
            self.raw("<li>");
            for name in names {
                self.raw("<code>");
                self.text(name);
                self.raw("</code>");
            }
            self.raw("<span class=\"n\">");
            self.text(&said);
            self.raw("</span></li>");
        }
        self.raw("</ul>");
    }

    fn transcript(&mut self, document: &Document) {
        let transcript = &document.transcript;
        let records = grouped(transcript.records);
        self.raw("<h2>Transcript</h2>");
        if transcript.verified {
            let said = format!("{records} records, chain verified. Its head, to keep elsewhere:");
            self.paragraph("", &said);
            self.raw("<p><code>");
            self.text(&transcript.head);
            self.raw("</code></p>");
        } else {
            self.paragraph("bad", &format!("{records} records, NOT verified."));
        }
    }

    fn paragraph(&mut self, class: &str, text: &str) {
        let _ = write!(self.0, "<p class=\"{class}\">");
        self.text(text);
        self.raw("</p>");
    }
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
