//! Asking a model, with a limited number of corrections.

use super::extract::read_answer;
use crate::reply::{ErrReply, Reply};

/// The next step after a model's answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Turn {
    /// The answer is a reply of the protocol.
    Done(Box<Reply>),
    /// The answer is not a reply: ask the model again, with this prompt.
    Again(String),
    /// The answer is not a reply, and no round is left.
    Failed(Box<ErrReply>),
}

/// Asks a model until its answer is a reply of the protocol, or no round is left.
///
/// It calls no model itself: the host sends [`prompt`](Self::prompt) to its model, and passes the text to
/// [`answer`](Self::answer).
///
/// Spec: SACP 13
#[derive(Clone, Debug)]
pub struct Bridge {
    prompt: String,
    repairs: u32,
}

impl Bridge {
    /// A bridge that lets the model correct its answer twice.
    #[must_use]
    pub const fn new(prompt: String) -> Self {
        Self { prompt, repairs: 2 }
    }

    /// Sets how often the model may correct its answer.
    #[must_use]
    pub const fn with_repairs(mut self, repairs: u32) -> Self {
        self.repairs = repairs;
        self
    }

    /// The first prompt.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Takes the model's text.
    pub fn answer(&mut self, text: &str) -> Turn {
        let error = match read_answer(text) {
            Ok(reply) => return Turn::Done(Box::new(reply)),
            Err(error) => error,
        };
        match self.again(error) {
            Ok(prompt) => Turn::Again(prompt),
            Err(error) => Turn::Failed(error),
        }
    }

    /// The prompt that tells the model what is wrong with its answer; the error, if no round is left.
    pub(crate) fn again(&mut self, error: ErrReply) -> Result<String, Box<ErrReply>> {
        if self.repairs == 0 {
            return Err(Box::new(error));
        }
        self.repairs -= 1;
        // The answer itself is not repeated, so that its text never becomes part of a prompt.
        let prompt = &self.prompt;
        let wrong = ubos_common::json::to_string(&error);
        Ok(format!(
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
