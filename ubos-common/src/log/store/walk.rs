//! Going through all segments of a log: what `verify` and `fsck` share.

use super::catalog::{Segment, has_segment, with_segments};
use super::error::{Damage, ReadError};
use super::file::LogDir;
use super::judge::{Judge, Tail};
use super::open::TornTail;
use super::repair::Cut;
use super::scan::{Look, Next, Scanner};
use super::search::Search;
use crate::log::format::{
    BLOCK_HEADER_BYTES, Chain, Fault, Limits, LogKeys, SEGMENT_HEADER_BYTES, Summary, read_frame,
};
use crate::log::{Head, Kind};
use std::sync::Arc;

/// Where a walk begins, which heads it must meet, and which lengths are damage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) from: Option<u64>,
    pub(crate) heads: Vec<Head>,
    pub(crate) limits: Limits,
}

/// One piece of damage and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What is wrong, and where.
    pub damage: Damage,
    /// First record that is lost or unproven.
    pub lost_from: u64,
    /// One past the last such record; absent when nothing behind tells where it ends.
    pub lost_to: Option<u64>,
}

/// What a walk has seen.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) first_sequence: u64,
    pub(crate) records: u64,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    pub(crate) head: Head,
    pub(crate) torn: Option<TornTail>,
    pub(crate) kind: Kind,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) findings: Vec<Finding>,
}

impl Walk {
    fn from(head: Head) -> Self {
        Self {
            first_sequence: head.next_sequence,
            records: 0,
            blocks: 0,
            bytes: 0,
            segments: 0,
            head,
            torn: None,
            kind: Kind::default(),
            cuts: Vec::new(),
            findings: Vec::new(),
        }
    }
}

/// Walks the log in `dir`; stops at the first damage when `first_only`.
pub(crate) fn walk(dir: &dyn LogDir, asked: &Scope, first_only: bool) -> Result<Walk, ReadError> {
    // Where a segment is archived under the walk, it begins again with what is left.
    with_segments(dir, |found| walk_segments(dir, found, asked, first_only))
}

fn walk_segments(
    dir: &dyn LogDir,
    mut found: Vec<u64>,
    asked: &Scope,
    first_only: bool,
) -> Result<Walk, ReadError> {
    let Some((first, keys, previous)) = start(dir, &found, asked)? else {
        return Err(ReadError::Missing);
    };
    let chain = Chain::new(
        keys.clone(),
        asked.limits,
        previous.digest,
        previous.next_sequence,
    );
    let mut walker = Walker {
        dir,
        asked,
        first_only,
        chain,
        gap: false,
        followed: 0,
        walk: Walk::from(previous),
    };
    walker.check_logs();
    walker.check_heads(None);
    found.retain(|index| *index >= first);
    let mut expected = first;
    let mut at = 0;
    while let Some(index) = found.get(at).copied().filter(|_| !walker.is_done()) {
        if index != expected {
            walker.damage(Damage::new(
                expected,
                0,
                Fault::MissingSegment { index: expected },
            ));
        }
        expected = index.saturating_add(1);
        at += 1;
        let is_last = at == found.len();
        // The writer may have begun another segment since they were listed.
        if walker.segment(index, is_last)? && is_last && walker.follow() {
            found.push(expected);
        }
    }
    if !walker.is_done() {
        walker.check_end(expected.saturating_sub(1));
    }
    walker.walk.head = Head::new(
        keys.id(),
        walker.chain.next_sequence(),
        walker.chain.previous(),
    );
    Ok(walker.walk)
}

/// The segment to begin with, and the head before it.
fn start(
    dir: &dyn LogDir,
    found: &[u64],
    asked: &Scope,
) -> Result<Option<(u64, LogKeys, Head)>, ReadError> {
    let mut chosen: Option<(u64, LogKeys, Head)> = None;
    let mut oldest = None;
    // A damaged header in front of the first sound one: there the walk begins, to find just that.
    let mut unreadable: Option<(u64, Damage)> = None;
    for index in found {
        let header =
            match Segment::open(dir, *index, chosen.as_ref().map(|(_, keys, _)| keys), false) {
                Ok(segment) => segment.header,
                Err(ReadError::Damaged(damage)) => {
                    unreadable =
                        unreadable.or_else(|| oldest.is_none().then_some((*index, damage)));
                    continue;
                }
                Err(error) => return Err(error),
            };
        oldest = oldest.or(Some(header.first_sequence));
        if chosen.is_some() && asked.from.is_none_or(|from| header.first_sequence > from) {
            break;
        }
        let head = Head::new(header.log, header.first_sequence, header.previous);
        chosen = Some((*index, LogKeys::new(header.log), head));
    }
    let Some((mut index, keys, mut head)) = chosen else {
        return unreadable.map_or(Ok(None), |(_, damage)| Err(damage.into()));
    };
    let first = oldest.unwrap_or(0);
    let asked_first = asked
        .heads
        .iter()
        .map(|head| head.next_sequence)
        .chain(asked.from)
        .min();
    match (unreadable, asked_first) {
        (Some((damaged, _)), _) if asked.from.is_none_or(|from| from < first) => index = damaged,
        (None, Some(wanted)) if wanted < first => {
            return Err(ReadError::Archived { wanted, first });
        }
        _ => {}
    }
    if index == 0 {
        head = Head::new(keys.id(), 0, keys.genesis());
    }
    Ok(Some((index, keys, head)))
}

struct Walker<'d> {
    dir: &'d dyn LogDir,
    asked: &'d Scope,
    first_only: bool,
    chain: Chain,
    /// Whether the last finding waits to learn which record comes after it.
    gap: bool,
    /// How often the writer was found to have gone on.
    followed: u32,
    walk: Walk,
}

impl Walker<'_> {
    fn is_done(&self) -> bool {
        self.first_only && !self.walk.findings.is_empty()
    }

    /// Whether to go on where the writer did.
    fn follow(&mut self) -> bool {
        self.followed += 1;
        self.followed <= MOST_FOLLOWED
    }

    fn damage(&mut self, damage: Damage) {
        if self.gap {
            // Still the same hole: one cause, one finding.
            return;
        }
        self.gap = true;
        self.walk.findings.push(Finding {
            damage,
            lost_from: damage
                .fault
                .sequence()
                .unwrap_or_else(|| self.chain.next_sequence()),
            lost_to: None,
        });
    }

    /// Something sound was found that begins with `next`: the hole ends there.
    fn resume(&mut self, chain: Chain) {
        if std::mem::take(&mut self.gap)
            && let Some(finding) = self.walk.findings.last_mut()
        {
            finding.lost_to = Some(chain.next_sequence().max(finding.lost_from));
        }
        self.chain = chain;
    }

    /// Walks segment `index`; whether another one follows that was seen before the end of this one was.
    fn segment(&mut self, index: u64, is_last: bool) -> Result<bool, ReadError> {
        let segment = match Segment::open(self.dir, index, Some(self.chain.keys()), false) {
            Ok(segment) => segment,
            Err(ReadError::Damaged(damage)) => {
                self.damage(damage);
                return Ok(!is_last);
            }
            Err(error) => return Err(error),
        };
        let found = segment.header.kind;
        let wanted = if self.walk.segments == 0 {
            found
        } else {
            self.walk.kind
        };
        self.walk.segments += 1;
        self.walk.kind = wanted;
        if wanted != found {
            self.damage(Damage::new(index, 0, Fault::WrongKind { wanted, found }));
            if self.is_done() {
                return Ok(false);
            }
        }
        if let Err(damage) = segment.follows(&self.chain) {
            self.damage(damage);
            if self.is_done() {
                return Ok(false);
            }
        }
        self.resume(segment.chain(self.chain.keys(), self.asked.limits));
        let scanner = Scanner::new(
            Arc::clone(&segment.file),
            self.chain.clone(),
            SEGMENT_HEADER_BYTES as u64,
        );
        let mut place = InSegment {
            index,
            scanner: scanner.read_ahead()?,
            judge: Judge::new(segment.file),
            search: None,
            is_sealed: !is_last,
        };
        while !self.is_done() && self.block(&mut place)? {}
        Ok(place.is_sealed)
    }

    /// Takes one block; `false` at the end of the segment.
    fn block(&mut self, place: &mut InSegment) -> Result<bool, ReadError> {
        let fault = match place.scanner.next()? {
            Next::Block(at, block) => {
                // A note is a block of its own; what else such a block may hold is of a later version.
                if block.is_note && block.next_sequence - block.first_sequence == 1 {
                    self.note(place, at);
                }
                self.chain = place.scanner.chain().clone();
                self.walk.blocks += 1;
                self.walk.records += block.next_sequence - block.first_sequence;
                self.walk.bytes += block.bytes as u64;
                self.check_heads(Some((place.index, place.scanner.offset(), block)));
                return Ok(true);
            }
            Next::End => None,
            Next::Fault(fault) => Some(fault),
        };
        let offset = place.scanner.offset();
        let verdict = if place.is_sealed {
            place.judge.judge(&self.chain, offset, fault)?
        } else {
            match self.look_again(place)? {
                Some(verdict) => verdict,
                None if self.follow() => return Ok(true),
                None => {
                    place.is_sealed = false;
                    return Ok(false);
                }
            }
        };
        let sequence = self.chain.next_sequence();
        match verdict {
            Tail::Clean => return Ok(false),
            Tail::Torn(bytes) if !place.is_sealed => {
                self.walk.torn = Some(TornTail {
                    segment: place.index,
                    offset,
                    bytes,
                    sequence,
                });
                return Ok(false);
            }
            Tail::Torn(_) => {
                let fault = fault.unwrap_or(Fault::CutShort { sequence });
                self.damage(Damage::new(place.index, offset, fault));
            }
            Tail::Damaged(fault) => self.damage(Damage::new(place.index, offset, fault)),
        }
        if self.is_done() {
            Ok(false)
        } else {
            self.skip_damage(place)
        }
    }

    /// Reads what the log itself recorded in the block at `offset`.
    fn note(&mut self, place: &InSegment, offset: u64) {
        let body = place.scanner.bytes_from(offset + BLOCK_HEADER_BYTES as u64);
        let note = read_frame(body).and_then(|(_, bytes, _)| Cut::decode(bytes));
        self.walk.cuts.extend(note);
    }

    /// Judges the end of a segment that may be written right now: the bytes at hand may be older than those of the
    /// file, and those change while they are read. `None` where a block is there now.
    ///
    /// Blocks are written one after another, and the next segment after the last of them. So what is seen of a later
    /// block or segment says that the block in question can be read whole, by a look after that.
    fn look_again(&self, place: &mut InSegment) -> Result<Option<Tail>, ReadError> {
        let mut verdict = None;
        for looks in 1.. {
            place.is_sealed = has_segment(self.dir, place.index.saturating_add(1))?;
            let look = place.scanner.look()?;
            if look == Look::Block {
                place.judge = Judge::new(Arc::clone(place.scanner.file()));
                return Ok(None);
            }
            let offset = place.scanner.offset();
            let tail = place.judge.judge(&self.chain, offset, look.fault())?;
            let was_damaged = matches!(verdict, Some(Tail::Damaged(_)));
            verdict = Some(tail);
            // Between a look and its judgement a write may have been completed: only a look after that tells.
            let is_confirmed = was_damaged || !matches!(tail, Tail::Damaged(_));
            // One that found damage before has seen all of the file.
            let is_final = place.is_sealed || tail == Tail::Clean || place.search.is_some();
            if is_final || looks >= CONFIRMING_LOOKS && is_confirmed || looks >= MOST_LOOKS {
                break;
            }
            place.judge = Judge::new(Arc::clone(place.scanner.file()));
        }
        Ok(verdict)
    }

    /// Looks for the next sound block behind damage.
    fn skip_damage(&mut self, place: &mut InSegment) -> Result<bool, ReadError> {
        // A block that is sound and only does not follow begins at this very place.
        let from = place.scanner.offset();
        let file = place.scanner.file();
        let mut search = match place.search.take() {
            Some(search) if search.at() <= from => search,
            _ => Search::new(Arc::clone(file), from, file.len()?),
        };
        search.pass(from);
        while let Some(stray) = search.next(&self.chain)? {
            if let Some(chain) = stray.before {
                place.scanner.jump(stray.offset, chain.clone());
                place.search = Some(search);
                self.resume(chain);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn check_logs(&mut self) {
        let found = self.walk.head.log;
        let foreign = self
            .asked
            .heads
            .iter()
            .map(|head| head.log)
            .find(|log| *log != found);
        if let Some(wanted) = foreign {
            self.damage(Damage::new(0, 0, Fault::WrongLog { wanted, found }));
        }
    }

    /// Compares the heads kept elsewhere with the chain as it stands, after the block given or at the start.
    fn check_heads(&mut self, after: Option<(u64, u64, Summary)>) {
        let (segment, offset) = after.map_or((0, 0), |(segment, offset, _)| (segment, offset));
        let first = match after {
            Some((.., block)) => block.first_sequence + 1,
            None => self.chain.next_sequence(),
        };
        for head in &self.asked.heads {
            let sequence = head.next_sequence;
            let inside = (first..self.chain.next_sequence()).contains(&sequence);
            let differs =
                sequence == self.chain.next_sequence() && head.digest != self.chain.previous();
            if inside || differs {
                self.walk.findings.push(Finding {
                    damage: Damage::new(segment, offset, Fault::Head { sequence }),
                    lost_from: sequence,
                    lost_to: Some(sequence),
                });
            }
        }
    }

    fn check_end(&mut self, segment: u64) {
        let found = self.chain.next_sequence();
        let kept = self.asked.heads.iter().map(|head| head.next_sequence).max();
        if let Some(wanted) = kept.filter(|wanted| *wanted > found) {
            self.gap = false;
            self.walk.findings.push(Finding {
                damage: Damage::new(segment, 0, Fault::TailRemoved { wanted, found }),
                lost_from: found,
                lost_to: Some(wanted),
            });
        }
    }
}

/// Where a walk stands in one segment.
struct InSegment {
    index: u64,
    scanner: Scanner,
    judge: Judge,
    /// The search behind damage, once there was some.
    search: Option<Search>,
    /// Whether a later segment was seen: then nothing is written to this one any more.
    is_sealed: bool,
}

/// How often a fault must show where a writer may be at work.
const CONFIRMING_LOOKS: u32 = 3;
/// Looks at a place whose judgement changes each time.
const MOST_LOOKS: u32 = 12;
/// How often a walk goes on because a writer did: a fast writer must not hold it for ever. All that was there when the
/// walk began is proven before the first time.
const MOST_FOLLOWED: u32 = 2;
