//! The report for programs.

use ubos_common::json::{MemberWriter, Write};

use super::{CaseOutcome, Report};
use crate::case::Verdict;

impl Write for Report {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("conformant", &self.is_conformant());
        object.member("judged", &self.judged());
        object.member("passed", &self.passed());
        object.member("failed", &self.failed());
        object.member("floor", &self.floor);
        object.member("untested", &self.untested());
        object.member("out_of_reach", &self.out_of_reach);
        object.member("strays", &self.strays);
        object.member("cases", &self.outcomes);
        object.end();
    }
}

impl Write for CaseOutcome {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("clause", self.clause);
        object.member("name", self.name);
        object.member("level", self.level.as_str());
        object.member("reach", self.reach.as_str());
        object.member("verdict", self.verdict.as_str());
        match &self.verdict {
            Verdict::Pass => {}
            Verdict::Fail { place, seen } => {
                object.member("place", place);
                object.member("seen", seen);
                object.member("exchange", &self.exchange);
            }
            Verdict::NotApplicable { why } => object.member("why", why),
            Verdict::Unknown { what } => object.member("why", what),
        }
        if let Some(why) = &self.known_failure {
            object.member("known_failure", why);
        }
        object.end();
    }
}
