//! Closed lists of words, and a mutant for each of their words.

use std::sync::Arc;

use serde_json::Value;

use crate::{Kit, TestVector, Validator, Vectors};

/// A closed list: a member of a message takes its word from it, and a validator takes each of them.
#[derive(Clone, Copy)]
pub(crate) struct WordList {
    clauses: &'static [&'static str],
    pointer: &'static str,
    words: &'static [&'static str],
}

impl WordList {
    /// A list for the member at `pointer`, where `*` is each element of an array. The cases of `clauses` show each word in a valid
    /// message.
    pub(crate) const fn new(
        clauses: &'static [&'static str],
        pointer: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        Self {
            clauses,
            pointer,
            words,
        }
    }
}

impl<V: TestVector> Kit<Vectors<V>> {
    /// Adds a mutant for each word of each list: it refuses the valid messages with this word there, and is right about the rest.
    ///
    /// `valid` is the JSON of a message that is valid.
    pub(crate) fn with_word_lists(
        mut self,
        lists: &[WordList],
        valid: fn(&V) -> Option<&[u8]>,
    ) -> Self {
        for &WordList {
            clauses,
            pointer,
            words,
        } in lists
        {
            let mut judging = 0;
            let cases = self.cases.iter_mut();
            for case in cases.filter(|case| clauses.contains(&case.clause)) {
                judging += 1;
                for &word in words {
                    let reference = Arc::clone(&case.reference);
                    let refuses = move || -> Box<dyn Validator<V>> {
                        let mut honest = reference();
                        Box::new(move |vector: &V| {
                            if valid(vector).is_some_and(|text| has_word(text, pointer, word)) {
                                Some(vector.wrong())
                            } else {
                                honest.answer(vector)
                            }
                        })
                    };
                    let breach = format!("refuses {word:?} at {pointer}");
                    case.finer_mutants.push((breach, Arc::new(refuses)));
                }
            }
            debug_assert_eq!(judging, clauses.len(), "{clauses:?}");
        }
        self
    }
}

/// Whether a word stands at a place of a JSON text.
fn has_word(text: &[u8], pointer: &str, word: &str) -> bool {
    let names: Vec<&str> = pointer.split('/').skip(1).collect();
    serde_json::from_slice(text).is_ok_and(|message: Value| is_inside(&message, &names, word))
}

fn is_inside(place: &Value, names: &[&str], word: &str) -> bool {
    match (names, place) {
        ([], place) => place == word,
        (["*", names @ ..], Value::Array(elements)) => elements
            .iter()
            .any(|element| is_inside(element, names, word)),
        ([name, names @ ..], place) => place
            .get(name)
            .is_some_and(|place| is_inside(place, names, word)),
    }
}

#[cfg(test)]
mod tests {
    use super::WordList;
    use crate::{ProofError, TestVector, Validity, vector_kit};

    struct Text(&'static str, bool);

    impl TestVector for Text {
        type Answer = Validity;

        fn clause(&self) -> &str {
            "TOY-1"
        }

        fn name(&self) -> &str {
            self.0
        }

        fn expected(&self) -> Validity {
            Validity::of(self.1)
        }

        fn wrong(&self) -> Validity {
            self.expected().opposite()
        }
    }

    static TEXTS: [Text; 4] = [
        Text(r#"{"speed":"low"}"#, true),
        Text(r#"{"steps":[{},{"speed":"low"},{"speed":"high"}]}"#, true),
        Text(r#"{"speed":"high","steps":7}"#, false),
        Text("no JSON", false),
    ];

    #[test]
    fn a_word_that_no_valid_vector_has_is_told() {
        let lists = [
            WordList::new(&["TOY-1"], "/speed", &["low", "high"]),
            WordList::new(&["TOY-1"], "/steps/*/speed", &["low", "high"]),
        ];
        let kit = vector_kit("toy", &TEXTS, &[("TOY-1", "speeds")], |text| {
            Validity::of(text.1)
        });
        kit.prove().unwrap();
        let kit = kit.with_word_lists(&lists, |text| text.1.then_some(text.0.as_bytes()));
        let errors = kit.prove().unwrap_err();
        let [ProofError::FinerMutantPasses { of, breach, .. }] = &errors[..] else {
            panic!("{errors:?}")
        };
        assert_eq!((*of, &**breach), ("speeds", r#"refuses "high" at /speed"#));
    }
}
