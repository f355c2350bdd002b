//! The jobs, and the lines in which they wait.
//!
//! Jobs that ask the same of an agent (skill, and types and MIME types of their payloads) stand in one line,
//! those for one agent in a line of its own; so an agent that gets free looks at the heads of the lines that
//! it can serve and at nothing else.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    job::{Job, Outcome},
    session::SessionKey,
};
use crate::{
    capability::{Shape, Skill},
    hash::ById,
    id::{ClientId, JobId},
    wire::Payload,
};

/// The order of waiting jobs: by priority, then by turn of the group, then by age.
///
/// The turn is what makes the line fair: the n-th waiting job of each group has the same one, so that a group
/// with a thousand jobs and one with a single job are served alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    priority: Reverse<i8>,
    turn: u64,
    order: u64,
}

/// One line; `None` for no shape is the line of one agent's own jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Any(Skill, Shape),
    One(ClientId),
}

/// The stage of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// It is being stored, and not accepted before it is.
    Storing,
    /// It waits for an agent.
    Waiting,
    /// It is offered or runs.
    Session(SessionKey),
    /// It has ended, and the end is being stored.
    Ending(Box<Outcome>),
}

/// A job whose end was not reported.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) job: Job,
    /// Bytes of payloads that are kept here.
    pub(super) bytes: usize,
    /// Agents that refused, and are passed over until all others have.
    pub(super) refused: BTreeSet<ClientId>,
    /// The last reason that an agent gave.
    pub(super) reason: Option<String>,
    /// How often all agents have refused.
    pub(super) rounds: u32,
    /// Whether it is to be offered again to those that refused, later.
    pub(super) is_retrying: bool,
    /// How often an agent has accepted it.
    pub(super) attempts: u32,
    pub(super) stage: Stage,
    /// Records of it that the store has not answered for.
    pub(super) unstored: u32,
    /// Events that its reader has not read.
    pub(super) unread: Unread,
    /// What its payloads are to the requirements of agents.
    pub(super) shape: Shape,
    place: Place,
    is_in_line: bool,
}

/// Events that were delivered and not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) events: usize,
    pub(super) bytes: usize,
    /// Nobody reads, and nothing is counted.
    pub(super) is_muted: bool,
}

impl Entry {
    pub(super) const fn session(&self) -> Option<SessionKey> {
        match &self.stage {
            Stage::Session(session) => Some(*session),
            _ => None,
        }
    }

    fn line(&self) -> Line {
        match &self.job.agent {
            Some(agent) => Line::One(agent.clone()),
            None => Line::Any(self.job.skill.clone(), self.shape.clone()),
        }
    }
}

/// All jobs. The lines hold exactly the waiting ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: ById<JobId, Box<Entry>>,
    lines: BTreeMap<Skill, BTreeMap<Shape, Waiting>>,
    pinned: BTreeMap<ClientId, Waiting>,
    turns: BTreeMap<i8, Turns>,
    /// Bytes of payloads that are kept here.
    bytes: usize,
    submitted: u64,
    waiting: usize,
}

type Waiting = BTreeMap<Place, JobId>;

/// The turns of the groups of one priority.
#[derive(Debug, Default)]
struct Turns {
    /// The turn of the last job that was taken out.
    now: u64,
    /// Each group's last turn and how many jobs it has.
    groups: BTreeMap<Option<Arc<str>>, (u64, usize)>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn waiting_count(&self) -> usize {
        self.waiting
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Entry> {
        Some(self.jobs.get(&id)?)
    }

    /// For changes that do not affect the lines.
    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Entry> {
        Some(self.jobs.get_mut(&id)?)
    }

    /// All jobs, in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, &Entry)> {
        let mut all: Vec<_> = self.jobs.iter().collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all.into_iter().map(|(id, entry)| (*id, &**entry))
    }

    /// Adds a job. It waits for an agent, though [not in line](Self::line_up) yet, or first for its store.
    pub(super) fn add(&mut self, id: JobId, job: Job, shape: Shape, bytes: usize, is_stored: bool) {
        self.submitted += 1;
        self.bytes += bytes;
        let turns = self.turns.entry(job.priority).or_default();
        let now = turns.now;
        let (turn, jobs) = turns.groups.entry(job.group.clone()).or_insert((now, 0));
        *turn = now.max(*turn) + 1;
        *jobs += 1;
        let entry = Entry {
            place: Place {
                priority: Reverse(job.priority),
                turn: *turn,
                order: self.submitted,
            },
            shape,
            job,
            bytes,
            refused: BTreeSet::new(),
            reason: None,
            rounds: 0,
            is_retrying: false,
            attempts: 0,
            stage: match is_stored {
                true => Stage::Waiting,
                false => Stage::Storing,
            },
            unstored: u32::from(!is_stored),
            unread: Unread::default(),
            is_in_line: false,
        };
        self.jobs.insert(id, Box::new(entry));
    }

    /// Puts a job that waits in line, if it is not. Until then no agent that gets free is offered it: most jobs are given to
    /// an agent at once, and never stand there.
    // impl: HUB-3-6
    pub(super) fn line_up(&mut self, id: JobId) {
        if let Some(entry) = self.jobs.get_mut(&id)
            && entry.stage == Stage::Waiting
            && !std::mem::replace(&mut entry.is_in_line, true)
        {
            let (line, place) = (entry.line(), entry.place);
            self.list(line, place, Some(id));
        }
    }

    /// Changes the stage of a job, and its place in the lines.
    pub(super) fn set_stage(&mut self, id: JobId, stage: Stage) {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return;
        };
        if let Stage::Session(_) = &stage {
            let turns = self.turns.entry(entry.job.priority).or_default();
            turns.now = turns.now.max(entry.place.turn);
        }
        let waits = stage == Stage::Waiting;
        entry.stage = stage;
        if waits {
            self.line_up(id);
        } else if std::mem::take(&mut entry.is_in_line) {
            let (line, place) = (entry.line(), entry.place);
            self.list(line, place, None);
        }
    }

    fn list(&mut self, line: Line, place: Place, job: Option<JobId>) {
        let change = |waiting: &mut Waiting| match job {
            Some(id) => drop(waiting.insert(place, id)),
            None => drop(waiting.remove(&place)),
        };
        if job.is_some() {
            self.waiting += 1;
        } else {
            self.waiting -= 1;
        }
        match line {
            Line::One(agent) => {
                let waiting = self.pinned.entry(agent.clone()).or_default();
                change(waiting);
                if waiting.is_empty() {
                    self.pinned.remove(&agent);
                }
            }
            Line::Any(skill, shape) => {
                let lines = self.lines.entry(skill.clone()).or_default();
                let waiting = lines.entry(shape.clone()).or_default();
                change(waiting);
                if waiting.is_empty() {
                    lines.remove(&shape);
                }
                if lines.is_empty() {
                    self.lines.remove(&skill);
                }
            }
        }
    }

    /// The payloads, to be sent; kept here too where the job may be sent again. They count until the job ends: an agent that does
    /// not read has them wait elsewhere.
    pub(super) fn payloads(&mut self, id: JobId, keep: bool) -> Vec<Payload> {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return Vec::new();
        };
        match keep {
            true => entry.job.payloads.clone(),
            false => std::mem::take(&mut entry.job.payloads),
        }
    }

    /// Drops the payloads of a job that has ended, though its end may still be stored.
    pub(super) fn drop_payloads(&mut self, id: JobId) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.job.payloads = Vec::new();
            self.bytes = self.bytes.saturating_sub(std::mem::take(&mut entry.bytes));
        }
    }

    pub(super) fn remove(&mut self, id: JobId) -> Option<Box<Entry>> {
        self.set_stage(id, Stage::Storing);
        self.drop_payloads(id);
        let entry = self.jobs.remove(&id)?;
        if let Some(turns) = self.turns.get_mut(&entry.job.priority) {
            let left = turns.groups.get_mut(&entry.job.group).map(|(_, jobs)| {
                *jobs -= 1;
                *jobs
            });
            if left == Some(0) {
                turns.groups.remove(&entry.job.group);
            }
            if turns.groups.is_empty() {
                self.turns.remove(&entry.job.priority);
            }
        }
        Some(entry)
    }

    /// The first job of each shape that waits for a skill.
    pub(super) fn heads(&self, skill: &Skill) -> impl Iterator<Item = (&Shape, Place, JobId)> {
        let lines = self.lines.get(skill).into_iter().flatten();
        lines.filter_map(|(shape, waiting)| {
            let (place, job) = waiting.first_key_value()?;
            Some((shape, *place, *job))
        })
    }

    /// The first job of a line that comes after a place.
    pub(super) fn next_in(&self, line: &Line, after: Option<Place>) -> Option<(Place, JobId)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let waiting = match line {
            Line::One(agent) => self.pinned.get(agent)?,
            Line::Any(skill, shape) => self.lines.get(skill)?.get(shape)?,
        };
        let from = after.map_or(Unbounded, Excluded);
        let (place, id) = waiting.range((from, Unbounded)).next()?;
        Some((*place, *id))
    }

    /// The jobs that wait for one agent alone.
    pub(super) fn pinned_to(&self, agent: &ClientId) -> Vec<JobId> {
        let waiting = self.pinned.get(agent).into_iter();
        waiting.flat_map(|jobs| jobs.values().copied()).collect()
    }

    /// All jobs that wait, first come first.
    pub(super) fn waiting(&self) -> Vec<JobId> {
        let lines = self.lines.values().flat_map(BTreeMap::values);
        let mut all: Vec<_> = lines.chain(self.pinned.values()).flatten().collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;

    use super::*;

    fn order(jobs: &[(i8, Option<&str>)]) -> Vec<usize> {
        let (mut queue, mut ids) = (Queue::default(), IdSource::seeded(1));
        let mut names = Vec::new();
        for (priority, group) in jobs {
            let mut job = Job::test("t", Vec::new()).with_priority(*priority);
            job.group = group.map(Into::into);
            let id = ids.next_id();
            queue.add(id, job, Shape::of(&[]), 0, true);
            queue.line_up(id);
            names.push(id);
        }
        assert_eq!(queue.waiting_count(), jobs.len());
        let waiting = queue.waiting();
        for id in &names {
            queue.remove(*id);
        }
        assert!(queue.lines.is_empty() && queue.turns.is_empty() && queue.waiting_count() == 0);
        let number = |id| names.iter().position(|name| *name == id).unwrap();
        waiting.into_iter().map(number).collect()
    }

    // spec: HUB-3-6
    #[test]
    fn priority_then_turns_of_groups_then_age() {
        assert_eq!(order(&[(0, None), (0, None), (0, None)]), [0, 1, 2]);
        assert_eq!(
            order(&[(0, None), (5, None), (-1, None), (5, None)]),
            [1, 3, 0, 2]
        );
        let (a, b) = (Some("a"), Some("b"));
        assert_eq!(
            order(&[(0, a), (0, a), (0, a), (0, b), (0, b)]),
            [0, 3, 1, 4, 2]
        );
        assert_eq!(order(&[(0, a), (0, a), (1, b), (1, a)]), [2, 3, 0, 1]);
    }

    // spec: HUB-3-6
    #[test]
    fn a_group_that_comes_late_does_not_make_up_for_it() {
        let (mut queue, mut ids) = (Queue::default(), IdSource::seeded(1));
        let mut add = |queue: &mut Queue, group: &str| {
            let id: JobId = ids.next_id();
            let job = Job::test("t", Vec::new()).with_group(group);
            queue.add(id, job, Shape::of(&[]), 0, true);
            queue.line_up(id);
            id
        };
        let first: Vec<_> = (0..5).map(|_| add(&mut queue, "a")).collect();
        for id in &first[..3] {
            queue.set_stage(*id, Stage::Session(SessionKey::numbered(1)));
        }
        let late: Vec<_> = (0..2).map(|_| add(&mut queue, "b")).collect();
        assert_eq!(queue.waiting(), [first[3], late[0], first[4], late[1]]);
        queue.set_stage(first[0], Stage::Waiting);
        assert_eq!(queue.waiting()[0], first[0], "it keeps its place");
    }

    // spec: HUB-3-6
    #[test]
    fn jobs_of_several_lines_wait_in_one_order() {
        let (mut queue, mut ids) = (Queue::default(), IdSource::seeded(1));
        let jobs = ["u", "t"].map(|name| {
            let id: JobId = ids.next_id();
            queue.add(id, Job::test(name, Vec::new()), Shape::of(&[]), 0, true);
            queue.line_up(id);
            id
        });
        assert_eq!(queue.waiting(), jobs);
    }

    #[test]
    fn nothing_is_kept_of_lines_without_jobs() {
        let (mut queue, mut ids) = (Queue::default(), IdSource::seeded(1));
        let any = Job::test("t", Vec::new());
        for job in [any.clone(), any.with_agent("a".into())] {
            let id: JobId = ids.next_id();
            queue.add(id, job, Shape::of(&[]), 0, true);
            queue.line_up(id);
            queue.remove(id);
            assert!(queue.pinned.is_empty() && queue.lines.is_empty());
        }
    }

    // spec: HUB-3-6
    #[test]
    fn a_group_keeps_its_turn_while_it_has_jobs() {
        let (mut queue, mut ids) = (Queue::default(), IdSource::seeded(1));
        let mut add = |queue: &mut Queue, group: &str| {
            let id: JobId = ids.next_id();
            let job = Job::test("t", Vec::new()).with_group(group);
            queue.add(id, job, Shape::of(&[]), 0, true);
            queue.line_up(id);
            id
        };
        let many: Vec<_> = (0..3).map(|_| add(&mut queue, "a")).collect();
        queue.set_stage(many[0], Stage::Session(SessionKey::numbered(1)));
        queue.remove(many[0]);
        let one = add(&mut queue, "b");
        let more = add(&mut queue, "a");
        assert_eq!(queue.waiting(), [many[1], one, many[2], more]);
        for id in [many[1], many[2], more, one] {
            queue.remove(id);
        }
        assert!(
            queue.turns.is_empty(),
            "nothing is kept of groups without jobs"
        );
    }
}
