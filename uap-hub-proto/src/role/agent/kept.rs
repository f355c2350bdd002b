//! Reports that are kept until the hub has them.

use std::collections::VecDeque;

use super::Outbound;

/// The reports of a session that the hub may not have.
#[derive(Debug)]
pub(super) struct Kept {
    /// Whether the session can be resumed.
    can_resume: bool,
    /// The number of the last report.
    last: u64,
    /// The last reports, each with its size.
    reports: VecDeque<(usize, Outbound)>,
    bytes: usize,
}

impl Kept {
    pub(super) const fn new(can_resume: bool) -> Self {
        Self {
            can_resume,
            last: 0,
            reports: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) const fn can_resume(&self) -> bool {
        self.can_resume
    }

    /// The session cannot be resumed any more.
    pub(super) fn give_up(&mut self) {
        *self = Self {
            last: self.last,
            ..Self::new(false)
        };
    }

    /// The reports, in order.
    pub(super) fn reports(&self) -> impl ExactSizeIterator<Item = &Outbound> {
        self.reports.iter().map(|(_, report)| report)
    }

    /// Whether the next report can be kept: at most `most` bytes and one report, so that a large result always can.
    const fn has_room(&self, most: usize) -> bool {
        self.can_resume && self.bytes <= most
    }

    /// The number of the next report; 0 where there are no numbers, or no room: so the hub learns that the session cannot be
    /// resumed any more.
    pub(super) const fn next(&self, most: usize) -> u64 {
        if self.has_room(most) {
            self.last + 1
        } else {
            0
        }
    }

    /// Keeps the next report, if there is room.
    pub(super) fn keep(&mut self, report: &Outbound, most: usize) {
        if !self.has_room(most) {
            return self.give_up();
        }
        let size = report.encoded_len() + size_of::<Outbound>();
        self.last += 1;
        self.bytes += size;
        self.reports.push_back((size, report.clone()));
    }

    /// The hub has all reports up to this number; returns whether one of them was still kept.
    pub(super) fn acknowledged(&mut self, number: u64) -> bool {
        let before = self.reports.len();
        while self.last - (self.reports.len() as u64) < number
            && let Some((size, _)) = self.reports.pop_front()
        {
            self.bytes -= size;
        }
        self.reports.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::TestResponse;

    // spec: HUB-5-4
    #[test]
    fn one_report_is_kept_beyond_the_bound() {
        let report = Outbound::Test(TestResponse::default());
        let most = 2 * (report.encoded_len() + size_of::<Outbound>());
        for (most, kept) in [(most, 3), (most - 1, 0)] {
            let mut reports = Kept::new(true);
            reports.keep(&report, most);
            reports.keep(&report, most);
            assert_eq!(reports.next(most), kept);
            reports.keep(&report, most);
            assert_eq!(reports.reports().len() as u64, kept);
            assert_eq!(reports.can_resume(), kept > 0);
        }
    }
}
