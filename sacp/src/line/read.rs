//! From the line form to a message.

use std::collections::BTreeSet;

use ubos_common::json::{self, DecodeError, Limits, RawBuf};

use super::{CTX, FIRST_STATE, is_scalar};
use crate::any::{AnyMessage, Edition};
use crate::limits::MAX_GROUP_DEPTH;
use crate::message::{OutFmt, State};
use crate::tree::Node;
use crate::v1;

/// Why a text is not a message in the line form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The syntax is wrong.
    #[error("line {line} column {column}: {wanted} wanted")]
    Form {
        /// The line, from 1.
        line: usize,
        /// The character in it, from 1.
        column: usize,
        /// What is allowed there.
        wanted: &'static str,
    },
    /// More bytes than a message may have.
    #[error("{seen} bytes where {limit} are allowed")]
    TooLarge {
        /// Bytes of the text.
        seen: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The syntax is right, but the content is not a valid message.
    #[error(transparent)]
    Refused(#[from] DecodeError),
}

/// Reads a message in the form of [`GRAMMAR`](super::GRAMMAR). Empty lines and white space around lines are skipped.
///
/// # Errors
///
/// The place of a syntax error, or the findings of [`AnyMessage::decode`].
pub fn read(text: &str) -> Result<AnyMessage, LineError> {
    let limit = Limits::default().max_bytes;
    if text.len() > limit {
        return Err(LineError::TooLarge {
            seen: text.len(),
            limit,
        });
    }
    let mut lines = (1..)
        .zip(text.split('\n'))
        .filter(|(_, line)| !line.trim().is_empty());
    let Some((number, first)) = lines.next() else {
        return Err(form(1, 1, "a goal"));
    };
    let mut building = Building::header(&mut Words::new(number, first))?;
    for (number, line) in lines {
        building.line(&mut Words::new(number, line))?;
    }
    let message = building.finish();
    let (message, _) = AnyMessage::decode(&json::to_vec(&message))?;
    Ok(message)
}

const fn form(line: usize, column: usize, wanted: &'static str) -> LineError {
    LineError::Form {
        line,
        column,
        wanted,
    }
}

/// The message read so far.
struct Building {
    members: Vec<(String, Node)>,
    edition: Edition,
    /// The plan, and the groups that are open in it.
    open: Vec<Vec<Node>>,
}

impl Building {
    fn header(words: &mut Words<'_>) -> Result<Self, LineError> {
        let goal = words.name("a goal")?;
        let mut building = Self {
            members: Vec::new(),
            edition: Edition::V01,
            open: vec![Vec::new()],
        };
        let mut seen = BTreeSet::new();
        while !words.is_empty() {
            let at = words.at;
            let (name, value) = words.flag()?;
            if !seen.insert(name) {
                words.at = at;
                return Err(words.wanted("each of them once"));
            }
            if let ("proto_ver", Node::Text(version)) = (name, &value)
                && v1::Version::fits(version)
            {
                building.edition = Edition::V10;
            }
            building.members.push((name.to_owned(), value));
        }
        building.members.push(("g".to_owned(), Node::Text(goal)));
        if building.edition == Edition::V10 && !seen.contains("state") {
            let state = ("state".to_owned(), Node::text(FIRST_STATE));
            building.members.push(state);
        }
        Ok(building)
    }

    fn line(&mut self, words: &mut Words<'_>) -> Result<(), LineError> {
        if words.take('@') {
            let name = words.name("a member's name")?;
            let value = words.value(0)?;
            words.end()?;
            self.members.push((name, value));
            return Ok(());
        }
        if words.take_word(CTX) {
            let ctx = words.pairs(0, None)?;
            self.members.push((CTX.to_owned(), Node::Object(ctx)));
            return Ok(());
        }
        match self.edition {
            Edition::V01 => self.act(words),
            Edition::V10 => self.step(words),
        }
    }

    fn act(&mut self, words: &mut Words<'_>) -> Result<(), LineError> {
        let bars = words.bars();
        if bars > MAX_GROUP_DEPTH {
            return Err(words.wanted("at most 8 groups inside one another"));
        }
        if words.is_empty() {
            if self.open.len() <= bars {
                return Err(words.wanted("an act, since no such group is open"));
            }
            self.close_to(bars.saturating_sub(1));
            return Ok(());
        }
        self.close_to(bars);
        while self.open.len() <= bars {
            self.open.push(Vec::new());
        }
        let verb = words.name("a verb")?;
        let tool = words.name("a tool")?;
        let params = words.pairs(0, None)?;
        let act = [Node::Text(verb), Node::Text(tool), Node::Object(params)];
        self.push(Node::List(act.into()));
        Ok(())
    }

    fn step(&mut self, words: &mut Words<'_>) -> Result<(), LineError> {
        let id = words.name("the name of a step and a colon")?;
        let Some(id) = id.strip_suffix(':') else {
            return Err(words.wanted("a colon behind the name of the step"));
        };
        let member = |name: &str, value| (name.to_owned(), value);
        let verb = words.name("a verb")?;
        let tool = words.name("a tool")?;
        let params = words.pairs(0, Some(';'))?;
        let mut members = vec![
            member("id", Node::text(id)),
            member("verb", Node::Text(verb)),
            member("tool", Node::Text(tool)),
            member("params", Node::Object(params)),
        ];
        if words.take(';') {
            members.extend(words.pairs(0, None)?);
        }
        self.push(Node::Object(members));
        Ok(())
    }

    fn push(&mut self, node: Node) {
        if let Some(items) = self.open.last_mut() {
            items.push(node);
        }
    }

    /// Closes groups until so many are open.
    fn close_to(&mut self, groups: usize) {
        while self.open.len() > groups + 1 {
            let members = self.open.pop().unwrap_or_default();
            let group = ("parallel".to_owned(), Node::List(members));
            self.push(Node::Object(vec![group]));
        }
    }

    fn finish(mut self) -> Node {
        self.close_to(0);
        let plan = self.open.pop().unwrap_or_default();
        self.members.push(("plan".to_owned(), Node::List(plan)));
        Node::Object(self.members)
    }
}

/// The words of one line.
struct Words<'a> {
    line: usize,
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn new(line: usize, text: &'a str) -> Self {
        let mut words = Self { line, text, at: 0 };
        words.skip_space();
        words
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    fn wanted(&self, wanted: &'static str) -> LineError {
        let before = self.text.get(..self.at).unwrap_or_default();
        form(self.line, before.chars().count() + 1, wanted)
    }

    fn end(&self) -> Result<(), LineError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.wanted("the end of the line"))
        }
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len_utf8();
            self.skip_space();
        }
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.bare() == word;
        if found {
            self.at += word.len();
            self.skip_space();
        }
        found
    }

    fn bars(&mut self) -> usize {
        let bars = self.rest().bytes().take_while(|b| *b == b'|').count();
        self.at += bars;
        self.skip_space();
        bars
    }

    /// The unquoted word that begins here; may be empty.
    fn bare(&self) -> &'a str {
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || "[]{}\";".contains(c);
        rest.get(..rest.find(ends).unwrap_or(rest.len()))
            .unwrap_or_default()
    }

    /// A word or quoted text.
    fn name(&mut self, wanted: &'static str) -> Result<String, LineError> {
        if self.rest().starts_with('"') {
            return self.quoted();
        }
        let word = self.bare();
        if word.is_empty() {
            return Err(self.wanted(wanted));
        }
        self.at += word.len();
        self.skip_space();
        Ok(word.to_owned())
    }

    fn quoted(&mut self) -> Result<String, LineError> {
        let rest = self.rest();
        let mut escaped = true;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let quoted = end.and_then(|end| rest.get(..=end));
        let text = quoted.and_then(|quoted| RawBuf::parse(quoted).ok()?.deserialize().ok());
        let (Some(quoted), Some(text)) = (quoted, text) else {
            return Err(self.wanted("a JSON string that ends on its line"));
        };
        self.at += quoted.len();
        self.skip_space();
        Ok(text)
    }

    /// One of the short members of the first line.
    fn flag(&mut self) -> Result<(&'static str, Node), LineError> {
        for (mark, name) in [('#', "msg_id"), ('>', "reply_to")] {
            if self.take(mark) {
                return Ok((name, Node::Text(self.name("a name")?)));
            }
        }
        let word = self.bare();
        let version = word
            .strip_prefix('v')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let flag = if let Some(version) = version {
            ("proto_ver", Node::text(version))
        } else if word == "test" {
            ("test_mode", Node::Plain("true".into()))
        } else if OutFmt::WORDS.contains(&word) {
            ("out_fmt", Node::text(word))
        } else if State::WORDS.contains(&word) || v1::State::WORDS.contains(&word) {
            ("state", Node::text(word))
        } else {
            return Err(self.wanted("#msg_id, >reply_to, a format, a state, a version or test"));
        };
        self.at += word.len();
        self.skip_space();
        Ok(flag)
    }

    /// Keys and values up to the end of the line, or to what closes them.
    fn pairs(
        &mut self,
        depth: usize,
        close: Option<char>,
    ) -> Result<Vec<(String, Node)>, LineError> {
        let mut pairs = Vec::new();
        while !self.is_empty() && !close.is_some_and(|close| self.rest().starts_with(close)) {
            let name = self.name("a key")?;
            pairs.push((name, self.value(depth)?));
        }
        Ok(pairs)
    }

    fn value(&mut self, depth: usize) -> Result<Node, LineError> {
        if depth >= Limits::default().max_depth {
            return Err(self.wanted("fewer values inside one another"));
        }
        if self.take('[') {
            let mut items = Vec::new();
            while !self.take(']') {
                items.push(self.value(depth + 1)?);
            }
            return Ok(Node::List(items));
        }
        if self.take('{') {
            let pairs = self.pairs(depth + 1, Some('}'))?;
            if !self.take('}') {
                return Err(self.wanted("}"));
            }
            return Ok(Node::Object(pairs));
        }
        let is_quoted = self.rest().starts_with('"');
        let text = self.name("a value")?;
        Ok(if !is_quoted && is_scalar(&text) {
            Node::Plain(text.into())
        } else {
            Node::Text(text)
        })
    }
}
