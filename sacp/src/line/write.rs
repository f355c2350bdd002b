//! From a message to its line form.

use ubos_common::json;

use super::{CTX, FIRST_STATE, is_scalar, is_word};
use crate::any::{AnyMessage, Edition};
use crate::tree::Node;

/// The line form of a message.
///
/// Reading it back gives the same message.
// impl: SACP-1-2
#[must_use]
pub fn write(message: &AnyMessage) -> String {
    let mut lines = Lines::default();
    // A message is an object within all limits: nothing here is refused.
    if let Ok(Node::Object(members)) = Node::of(message) {
        lines.message(&members, message.edition());
    }
    lines.text
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn message(&mut self, members: &[(String, Node)], edition: Edition) {
        let member = |name: &str| members.iter().find(|(n, _)| n == name).map(|(_, v)| v);
        let text = |name: &str| member(name).and_then(Node::as_text);
        self.key(text("g").unwrap_or_default());
        for (mark, name) in [("#", "msg_id"), (">", "reply_to")] {
            if let Some(id) = text(name) {
                self.text.push(' ');
                self.text.push_str(mark);
                self.key(id);
            }
        }
        // A message of 1.0 has a state in any case.
        let is_said = |word: &&str| edition == Edition::V01 || *word != FIRST_STATE;
        for word in [text("out_fmt"), text("state").filter(is_said)] {
            self.text
                .extend(word.into_iter().flat_map(|word| [" ", word]));
        }
        if let Some(version) = text("proto_ver") {
            self.text.push_str(" v");
            self.text.push_str(version);
        }
        let is_test = |value: &&Node| matches!(value, Node::Plain(word) if &**word == "true");
        let test = member("test_mode").filter(is_test).is_some();
        if test {
            self.text.push_str(" test");
        }
        for (name, value) in members {
            match (name.as_str(), value) {
                ("g" | "msg_id" | "reply_to" | "out_fmt" | "state" | "proto_ver" | "plan", _) => {}
                ("test_mode", _) if test => {}
                ("ctx", Node::Object(pairs)) => {
                    self.text.push('\n');
                    self.text.push_str(CTX);
                    self.pairs(pairs);
                }
                (name, value) => {
                    self.text.push_str("\n@");
                    self.key(name);
                    self.text.push(' ');
                    self.value(value);
                }
            }
        }
        if let Some(Node::List(items)) = member("plan") {
            match edition {
                Edition::V01 => self.items(items, 0),
                Edition::V10 => items.iter().for_each(|step| self.step(step)),
            }
        }
    }

    fn items(&mut self, items: &[Node], depth: usize) {
        let mut behind_group = false;
        for item in items {
            let group = item.member("parallel");
            if let Some(Node::List(members)) = group {
                if behind_group {
                    self.begin(depth + 1);
                }
                self.items(members, depth + 1);
            } else if let Node::List(parts) = item {
                self.begin(depth);
                if depth > 0 {
                    self.text.push(' ');
                }
                self.act(parts);
            }
            behind_group = group.is_some();
        }
    }

    fn begin(&mut self, depth: usize) {
        self.text.push('\n');
        self.text.extend(core::iter::repeat_n('|', depth));
    }

    fn act(&mut self, parts: &[Node]) {
        if let [Node::Text(verb), Node::Text(tool), Node::Object(params)] = parts {
            // A verb that begins a line as something else would is quoted.
            if verb == CTX {
                self.quoted(verb);
            } else {
                self.key(verb);
            }
            self.text.push(' ');
            self.key(tool);
            self.pairs(params);
        }
    }

    fn step(&mut self, step: &Node) {
        let text = |name: &str| {
            step.member(name)
                .and_then(Node::as_text)
                .unwrap_or_default()
        };
        self.text.push('\n');
        self.text.push_str(text("id"));
        self.text.push_str(": ");
        self.key(text("verb"));
        self.text.push(' ');
        self.key(text("tool"));
        if let Some(Node::Object(params)) = step.member("params") {
            self.pairs(params);
        }
        let is_rest = |(name, _): &&(String, Node)| {
            !matches!(name.as_str(), "id" | "verb" | "tool" | "params")
        };
        let mut rest = step
            .as_object()
            .into_iter()
            .flatten()
            .filter(is_rest)
            .peekable();
        if rest.peek().is_some() {
            self.text.push_str(" ;");
        }
        rest.for_each(|pair| self.pairs(core::slice::from_ref(pair)));
    }

    fn pairs(&mut self, pairs: &[(String, Node)]) {
        for (name, value) in pairs {
            self.text.push(' ');
            self.key(name);
            self.text.push(' ');
            self.value(value);
        }
    }

    fn value(&mut self, value: &Node) {
        match value {
            Node::Plain(word) => self.text.push_str(word),
            Node::Text(text) if is_scalar(text) => self.quoted(text),
            Node::Text(text) => self.key(text),
            Node::List(items) => {
                self.text.push('[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        self.text.push(' ');
                    }
                    self.value(item);
                }
                self.text.push(']');
            }
            Node::Object(pairs) => {
                self.text.push('{');
                for (n, (name, value)) in pairs.iter().enumerate() {
                    if n > 0 {
                        self.text.push(' ');
                    }
                    self.key(name);
                    self.text.push(' ');
                    self.value(value);
                }
                self.text.push('}');
            }
        }
    }

    fn key(&mut self, text: &str) {
        if is_word(text) {
            self.text.push_str(text);
        } else {
            self.quoted(text);
        }
    }

    fn quoted(&mut self, text: &str) {
        self.text.push_str(&json::to_string(text));
    }
}
