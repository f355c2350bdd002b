//! A model's answer, with a bounded number of second chances.

use super::{AnswerPolicy, read_answer};
use crate::reply::{ErrReply, Reply};

/// What follows an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Turn {
    /// It is one of the protocol.
    Done(Box<Reply>),
    /// It is not: ask the model again, with this prompt.
    Again(String),
    /// It is not, and the rounds are over.
    Failed(Box<ErrReply>),
}

/// Asks a model until its answer is one of the protocol, or the rounds are over.
///
/// It calls nothing itself: the host sends [`prompt`](Self::prompt) to its model, and gives what comes to
/// [`answer`](Self::answer).
///
/// Spec: SACP 13
#[derive(Clone, Debug)]
pub struct Bridge {
    prompt: String,
    policy: AnswerPolicy,
    repairs: u32,
}

impl Bridge {
    /// A bridge that lets the model mend its answer twice.
    #[must_use]
    pub const fn new(prompt: String) -> Self {
        Self {
            prompt,
            policy: AnswerPolicy::OneObject,
            repairs: 2,
        }
    }

    /// Sets how often the model may mend its answer.
    #[must_use]
    pub const fn with_repairs(mut self, repairs: u32) -> Self {
        self.repairs = repairs;
        self
    }

    /// Sets how an answer may look.
    #[must_use]
    pub const fn with_policy(mut self, policy: AnswerPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// What the model is asked first.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Takes what the model wrote.
    pub fn answer(&mut self, text: &str) -> Turn {
        let error = match read_answer(text, self.policy) {
            Ok(reply) => return Turn::Done(Box::new(reply)),
            Err(error) => error,
        };
        if self.repairs == 0 {
            return Turn::Failed(Box::new(error));
        }
        self.repairs -= 1;
        // The answer itself is not repeated: whatever it holds, it must not become part of a prompt.
        let prompt = &self.prompt;
        let wrong = ubos_common::json::to_string(&error);
        Turn::Again(format!(
            "{prompt}\n### Your last answer was refused:\n{wrong}\nMend that, and answer with one JSON object and nothing else.\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SACP-13-1
    #[test]
    fn the_rounds_are_bounded() {
        let mut bridge = Bridge::new("P".into()).with_repairs(1);
        let Turn::Again(prompt) = bridge.answer("no") else {
            panic!()
        };
        assert!(
            prompt.starts_with("P\n") && prompt.contains("OUT_FMT_VIOLATION"),
            "{prompt}"
        );
        assert!(matches!(bridge.answer("no"), Turn::Failed(_)));
        assert!(matches!(
            bridge.answer("{\"status\":\"VALID\"}"),
            Turn::Done(_)
        ));
    }
}
