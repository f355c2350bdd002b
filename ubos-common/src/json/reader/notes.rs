//! Findings while a document is read: noted by offset, told with their places.

use std::borrow::Cow;

use super::super::error::{Fault, FaultKind};
use super::super::kind::Kind;
use super::super::locate::{Walker, push_token};
use super::note::Note;
use super::{Mark, Reader};
use crate::violation::{Level, Report, Violation};

impl Reader<'_> {
    /// Ends the document: nothing may follow. Gives all findings with their places.
    ///
    /// # Errors
    ///
    /// [`FaultKind::TrailingBytes`].
    pub fn finish(mut self) -> Result<Report, Fault> {
        let at = self.offset();
        if at < self.text.len() {
            return Err(Fault::new(FaultKind::TrailingBytes, at));
        }
        Ok(self.into_report())
    }

    /// Forgets what was found, where nothing of it breaks a MUST.
    pub(in crate::json) fn forget_advice(&mut self) {
        if !self.has_refused() {
            self.notes.clear();
            self.unlisted = 0;
        }
    }

    /// The findings so far, with their places.
    #[must_use]
    pub fn into_report(mut self) -> Report {
        /// Bytes of pointers in one report: a long name above many findings stands in each of them.
        const POINTERS: usize = 1_048_576;
        let mut report = Report::default();
        if self.notes.is_empty() && self.unlisted == 0 {
            return report;
        }
        // Findings come in order of discovery: a missing member is known only when its object ends.
        self.notes.sort_by_key(|note| note.at);
        let mut walker = Walker::new(self.text);
        let mut pointers = 0;
        for note in self.notes {
            if pointers > POINTERS {
                self.unlisted += 1;
                self.refused_unlisted |= note.level == Level::Must;
                continue;
            }
            let place = walker.place(note.at);
            let mut pointer = place.pointer;
            if let Some(member) = note.member {
                push_token(&mut pointer, &member);
            }
            pointers += pointer.len();
            report.push(
                Violation::new(pointer, note.code, note.clause, note.level, note.message)
                    .at(place.position),
            );
        }
        report.count_unlisted(self.unlisted, self.refused_unlisted);
        report
    }
}

/// For implementors of [`Read`](crate::json::Read).
impl Reader<'_> {
    /// A fault: a value of the right type that breaks a rule. The value is not shown.
    #[must_use]
    pub fn bad_value(&self, at: usize, wanted: &'static str) -> Fault {
        Fault::new(FaultKind::BadValue { wanted, seen: None }, at)
    }

    /// As [`Reader::bad_value`], with a bounded piece of the value, unless the member is marked secret.
    #[must_use]
    pub fn bad_value_seen(&self, at: usize, wanted: &'static str, seen: &str) -> Fault {
        /// Characters of a value that a message shows.
        const SHOWN: usize = 64;
        let seen = (!self.secret).then(|| seen.chars().take(SHOWN).collect::<String>().into());
        Fault::new(FaultKind::BadValue { wanted, seen }, at)
    }

    /// A fault: the value at `mark` has another type.
    #[must_use]
    pub fn wrong_type(&self, mark: Mark, wanted: &'static str, seen: Kind) -> Fault {
        Fault::new(FaultKind::WrongType { wanted, seen }, mark.at)
    }

    /// A fault: the name at `at` stands twice in its object.
    #[must_use]
    pub fn duplicate(&self, at: usize) -> Fault {
        Fault::new(FaultKind::DuplicateMember, at)
    }

    /// A fault for a value whose findings are noted and that has been taken to its end.
    #[must_use]
    pub fn noted(&self) -> Fault {
        Fault::new(FaultKind::Noted, self.at)
    }

    /// Runs `read` under a clause, which findings inside are filed under, and settles its result.
    ///
    /// # Errors
    ///
    /// What is not recoverable.
    #[inline]
    pub fn under<T>(
        &mut self,
        clause: &'static str,
        secret: bool,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mark = self.mark();
        let outer = (self.clause, self.secret);
        self.clause = clause;
        self.secret |= secret;
        let result = read(self);
        let settled = self.settle(mark, result);
        (self.clause, self.secret) = outer;
        settled
    }

    /// The place before a value, for [`Reader::settle`].
    #[inline]
    pub fn mark(&mut self) -> Mark {
        Mark {
            at: self.offset(),
            depth: self.depth,
        }
    }

    /// Notes a recoverable fault in the value that began at `mark` and goes on behind that value.
    ///
    /// # Errors
    ///
    /// What is not recoverable, or no sound JSON behind the fault.
    #[inline]
    pub fn settle<T>(&mut self, mark: Mark, result: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(fault) => self.settle_fault(mark, fault).map(|()| None),
        }
    }

    #[cold]
    fn settle_fault(&mut self, mark: Mark, fault: Fault) -> Result<(), Fault> {
        if *fault.kind() == FaultKind::Noted {
            return Ok(());
        }
        if !fault.is_recoverable() {
            return Err(fault);
        }
        let (code, message) = (fault.kind().code(), fault.kind().to_string());
        self.note(fault.offset(), None, code, Level::Must, message);
        self.at = mark.at;
        self.depth = mark.depth;
        self.skip()
    }

    /// Whether a MUST finding has been noted so far: rules over several members say nothing where one of
    /// them was refused.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.refused_unlisted || self.notes.iter().any(|note| note.level == Level::Must)
    }

    /// Notes that an object lacks a member.
    pub fn missing(
        &mut self,
        object_at: usize,
        member: &'static str,
        clause: &'static str,
        level: Level,
    ) {
        let outer = core::mem::replace(&mut self.clause, clause);
        self.note(object_at, Some(member.into()), "missing", level, "absent");
        self.clause = outer;
    }

    /// Notes what the lenient profile lets pass, as advice.
    pub fn tolerate(&mut self, at: usize, code: &'static str, message: &'static str) {
        self.note(at, None, code, Level::Advice, message);
    }

    /// Notes a finding at a byte of the text, or at a member of the object that begins there.
    pub fn note(
        &mut self,
        at: usize,
        member: Option<Cow<'static, str>>,
        code: &'static str,
        level: Level,
        message: impl Into<Cow<'static, str>>,
    ) {
        if self.notes.len() >= self.limits.max_findings {
            self.unlisted += 1;
            self.refused_unlisted |= level == Level::Must;
            return;
        }
        self.notes.push(Note {
            at,
            member,
            code,
            clause: self.clause,
            level,
            message: message.into(),
        });
    }
}
