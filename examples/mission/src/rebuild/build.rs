//! Steps and what they name, gathered from the stores.

use std::collections::{BTreeSet, HashMap};

use ubos_common::time::Timestamp;

use super::settle::settle;
use super::{MOST_ID, MOST_STEPS, Missing};
use crate::screen::Who;
use crate::step_words::DONE;
use crate::trace::{Span, Spans};

/// Characters of a name or an outcome that are kept.
const MOST_TEXT: usize = 200;

/// A step as its store has it.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) span: Span,
    /// The run that it says it belongs to.
    pub(super) run: Option<String>,
    /// When it began, as exactly as the store knows.
    pub(super) start: When,
    /// When it ended; `None` where it did not.
    pub(super) end: Option<When>,
}

/// How exactly a store knows a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// To the millisecond.
    At(Timestamp),
    /// To the second, in which it may be later.
    InSecond(Timestamp),
    /// Not at all.
    Unknown,
}

/// A step that begins, as a store tells of it.
#[derive(Debug)]
pub(super) struct Begins<'a> {
    pub(super) who: Who,
    pub(super) id: String,
    pub(super) name: &'a str,
    pub(super) start: When,
    /// The run that it belongs to, where it says so.
    pub(super) run: Option<&'a str>,
    /// The ids that it names; below the first of them it stands.
    pub(super) causes: Vec<String>,
}

/// Gathers the steps of the chosen runs.
#[derive(Debug)]
pub(super) struct Builder {
    begun: BTreeSet<String>,
    chosen: BTreeSet<String>,
    drafts: Vec<Draft>,
    places: HashMap<String, usize>,
    more: u64,
    links: Vec<Missing>,
}

impl Builder {
    /// For some of the runs that were begun in a folder.
    pub(super) fn new(begun: BTreeSet<String>, chosen: &[String]) -> Self {
        Self {
            begun,
            chosen: chosen.iter().cloned().collect(),
            drafts: Vec::new(),
            places: HashMap::new(),
            more: 0,
            links: Vec::new(),
        }
    }

    /// Whether a message of a run counts: of one that is chosen, or was never begun here.
    pub(super) fn takes(&self, run: Option<&str>) -> bool {
        run.is_none_or(|run| self.chosen.contains(run) || !self.begun.contains(run))
    }

    /// The chosen runs in which a step of this name ended well.
    pub(super) fn runs_with(&self, name: &str) -> BTreeSet<String> {
        let fits = |draft: &&Draft| draft.span.name == name && draft.span.outcome == DONE;
        let runs = self.drafts.iter().filter(fits);
        let runs = runs.filter_map(|draft| draft.run.clone());
        runs.filter(|run| self.chosen.contains(run)).collect()
    }

    /// A step begins. Says whether it counts.
    pub(super) fn begin(&mut self, begins: Begins<'_>) -> bool {
        if !self.takes(begins.run) {
            return false;
        }
        if self.drafts.len() == MOST_STEPS {
            self.more += 1;
            return true;
        }
        // What a store holds twice is one step.
        if self.places.contains_key(&begins.id) {
            return true;
        }
        let span = Span {
            id: begins.id,
            parent: begins.causes.first().cloned(),
            who: begins.who,
            name: shortened(begins.name),
            in_tools: false,
            started: begins.start.or_epoch(),
            ended: None,
            outcome: String::new(),
        };
        for names in begins.causes {
            self.links.push(Missing {
                who: span.who,
                message: about(&span),
                names,
            });
        }
        self.places.insert(span.id.clone(), self.drafts.len());
        self.drafts.push(Draft {
            span,
            run: begins.run.map(str::to_owned),
            start: begins.start,
            end: None,
        });
        true
    }

    /// The step of an id, where it is there.
    pub(super) fn step(&mut self, id: &str) -> Option<&mut Draft> {
        let place = self.places.get(id)?;
        self.drafts.get_mut(*place)
    }

    /// A message that ends a step: the step's first end counts.
    pub(super) fn end(
        &mut self,
        (who, what, run): (Who, &str, Option<&str>),
        id: &str,
        end: When,
        outcome: &str,
    ) {
        if let Some(draft) = self.step(id) {
            if draft.end.is_none() {
                draft.end = Some(end);
                draft.span.outcome = shortened(outcome);
            }
        } else if self.takes(run) && self.links.len() < 8 * MOST_STEPS {
            self.links.push(Missing {
                who,
                message: format!("{what} of {id}"),
                names: id.to_owned(),
            });
        }
    }

    /// The steps with their times, and the messages whose cause is not among them.
    pub(super) fn finish(self) -> (Spans, Vec<Missing>) {
        let Self {
            drafts,
            places,
            more,
            links,
            ..
        } = self;
        let mut missing: Vec<Missing> = links
            .into_iter()
            .filter(|link| !places.contains_key(&link.names))
            .collect();
        missing.dedup();
        missing.truncate(MOST_STEPS);
        let (spans, circles) = settle(drafts, more);
        missing.extend(circles);
        (spans, missing)
    }
}

impl When {
    const fn or_epoch(self) -> Timestamp {
        match self {
            Self::At(at) | Self::InSecond(at) => at,
            Self::Unknown => Timestamp::EPOCH,
        }
    }

    /// A time that a text tells; one that is none is not known.
    pub(super) fn told(text: &str) -> Self {
        text.parse().map_or(Self::Unknown, Self::At)
    }
}

/// How a message is spoken of.
pub(super) fn about(span: &Span) -> String {
    format!("{} ({})", span.id, span.name)
}

/// An id, unless it is too long to be one.
pub(super) fn is_id(text: &str) -> bool {
    text.len() <= MOST_ID
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}
