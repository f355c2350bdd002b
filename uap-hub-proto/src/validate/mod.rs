//! Validation of messages: all findings at once, each with its place and clause.
//!
//! The machines do not use it: they refuse what they must and tolerate what deployed peers do. It is for
//! those who write a peer, record traffic, or test somebody else's.
//!
//! ```
//! use uap_hub_proto::{validate::Validate as _, wire::{AgentRegistration, Capability}};
//!
//! let registration = AgentRegistration { display_name: "a".into(), capabilities: vec![Capability::default()] };
//! let report = registration.validate();
//! assert!(!report.is_valid());
//! assert!(report.to_string().starts_with("MUST /capabilities/0/format: "));
//! ```

mod control;
mod parts;
mod session;

use std::borrow::Cow;

use ubos_common::violation::{Level, Report, Violation};

/// The most findings of one message; beyond them only the first breach of a MUST is added.
pub const MAX_FINDINGS: usize = 100;

/// A message that can be validated.
pub trait Validate {
    /// Everything that is wrong with it. Pointers go by the names of the .proto files, a oneof by that of the
    /// field that is set (`/capabilities/0/test/type`).
    fn validate(&self) -> Report;
}

/// Implements [`Validate`] by a function that walks the message.
macro_rules! validate {
    ($($message:ident by $walk:path;)*) => {$(
        impl $crate::validate::Validate for $crate::wire::$message {
            fn validate(&self) -> ubos_common::violation::Report {
                let mut walk = $crate::validate::Walk::default();
                $walk(self, &mut walk);
                walk.report
            }
        }
    )*};
}
use validate;

/// The position in a message, and the findings so far.
#[derive(Default)]
struct Walk {
    path: String,
    report: Report,
}

impl Walk {
    fn at(&mut self, name: &str, go: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('/');
        self.path
            .push_str(&name.replace('~', "~0").replace('/', "~1"));
        go(self);
        self.path.truncate(length);
    }

    fn each<T>(&mut self, name: &str, items: &[T], mut go: impl FnMut(&T, &mut Self)) {
        for (n, item) in items.iter().enumerate() {
            self.at(name, |walk| walk.at(&n.to_string(), |walk| go(item, walk)));
        }
    }

    fn find(
        &mut self,
        level: Level,
        code: &'static str,
        clause: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) {
        let is_first = level == Level::Must && self.report.is_valid();
        if self.report.len() < MAX_FINDINGS || is_first {
            let finding = Violation::new(self.path.clone(), code, clause, level, message);
            self.report.push(finding);
        }
    }

    fn must(&mut self, code: &'static str, clause: &'static str, message: &'static str) {
        self.find(Level::Must, code, clause, message);
    }

    fn should(&mut self, code: &'static str, clause: &'static str, message: &'static str) {
        self.find(Level::Should, code, clause, message);
    }

    fn advise(&mut self, code: &'static str, clause: &'static str, message: &'static str) {
        self.find(Level::Advice, code, clause, message);
    }

    /// A text that must not be empty.
    fn filled(&mut self, name: &str, text: &str, clause: &'static str) {
        if text.is_empty() {
            self.at(name, |walk| {
                walk.must("empty", clause, "a text is wanted, and this is empty");
            });
        }
    }

    /// An id that travels as metadata: visible ASCII, no white space.
    fn id(&mut self, name: &str, id: &str, clause: &'static str) {
        self.filled(name, id, clause);
        if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.at(name, |walk| {
                walk.must(
                    "not_metadata",
                    clause,
                    "an id travels as metadata: visible ASCII alone is wanted",
                );
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_past_the_bound_is_reported() {
        let mut walk = Walk::default();
        for _ in 0..=MAX_FINDINGS {
            walk.advise("a", "HUB-0-1", "");
        }
        walk.must("b", "HUB-0-1", "");
        walk.must("c", "HUB-0-1", "");
        assert_eq!(walk.report.len(), MAX_FINDINGS + 1);
        assert!(!walk.report.is_valid());
    }
}
