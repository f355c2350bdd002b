//! Going through all segments of a log: what `verify` and `fsck` share.

use super::catalog::{Segment, listed};
use super::error::{Damage, ReadError};
use super::file::LogDir;
use super::judge::{Tail, find_header, judge};
use super::open::TornTail;
use super::scan::{Next, Scanner};
use crate::log::Head;
use crate::log::format::{Chain, Fault, Limits, LogKeys, SEGMENT_HEADER_BYTES, Summary};
use std::io;

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
    pub(crate) findings: Vec<Finding>,
}

/// Walks the log in `dir`; stops at the first damage when `first_only`.
pub(crate) fn walk(dir: &dyn LogDir, asked: &Scope, first_only: bool) -> Result<Walk, ReadError> {
    let found = listed(dir)?;
    let Some((first, keys, previous)) = start(dir, &found, asked)? else {
        return Err(ReadError::Missing);
    };
    let mut walker = Walker {
        dir,
        asked,
        first_only,
        chain: Chain::new(
            keys.clone(),
            asked.limits,
            previous.digest,
            previous.next_sequence,
        ),
        gap: false,
        walk: Walk {
            first_sequence: previous.next_sequence,
            records: 0,
            blocks: 0,
            bytes: 0,
            segments: 0,
            head: previous,
            torn: None,
            findings: Vec::new(),
        },
    };
    walker.check_logs();
    walker.check_heads(None);
    let mut expected = first;
    let mut rest = found.iter().filter(|index| **index >= first).peekable();
    while let Some(index) = rest.next() {
        if walker.is_done() {
            break;
        }
        if *index != expected {
            walker.damage(Damage::new(
                expected,
                0,
                Fault::MissingSegment { index: expected },
            ));
        }
        expected = index.saturating_add(1);
        walker.segment(*index, rest.peek().is_none())?;
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
    walk: Walk,
}

impl Walker<'_> {
    fn is_done(&self) -> bool {
        self.first_only && !self.walk.findings.is_empty()
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

    fn segment(&mut self, index: u64, is_last: bool) -> Result<(), ReadError> {
        let segment = match Segment::open(self.dir, index, Some(self.chain.keys()), false) {
            Ok(segment) => segment,
            Err(ReadError::Damaged(damage)) => {
                self.damage(damage);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.walk.segments += 1;
        if let Err(damage) = segment.follows(&self.chain) {
            self.damage(damage);
            if self.is_done() {
                return Ok(());
            }
        }
        self.resume(segment.chain(self.chain.keys(), self.asked.limits));
        let mut scanner = Scanner::new(
            segment.file,
            self.chain.clone(),
            SEGMENT_HEADER_BYTES as u64,
        )
        .read_ahead()?;
        while !self.is_done() && self.block(index, is_last, &mut scanner)? {}
        Ok(())
    }

    /// Takes one block; `false` at the end of the segment.
    fn block(&mut self, index: u64, is_last: bool, scanner: &mut Scanner) -> io::Result<bool> {
        let fault = match scanner.next()? {
            Next::Block(_, block) => {
                self.chain = scanner.chain().clone();
                self.walk.blocks += 1;
                self.walk.records += block.next_sequence - block.first_sequence;
                self.walk.bytes += block.bytes as u64;
                self.check_heads(Some((index, scanner.offset(), block)));
                return Ok(true);
            }
            Next::End => None,
            Next::Fault(fault) => Some(fault),
        };
        let offset = scanner.offset();
        let sequence = self.chain.next_sequence();
        match judge(scanner.file().as_ref(), &self.chain, offset, fault)? {
            Tail::Clean => return Ok(false),
            Tail::Torn(bytes) if is_last => {
                self.walk.torn = Some(TornTail {
                    segment: index,
                    offset,
                    bytes,
                    sequence,
                });
                return Ok(false);
            }
            Tail::Torn(_) => self.damage(Damage::new(
                index,
                offset,
                fault.unwrap_or(Fault::CutShort { sequence }),
            )),
            Tail::Damaged(fault) => self.damage(Damage::new(index, offset, fault)),
        }
        if self.is_done() {
            Ok(false)
        } else {
            self.skip_damage(scanner)
        }
    }

    /// Looks for the next sound block behind damage.
    fn skip_damage(&mut self, scanner: &mut Scanner) -> io::Result<bool> {
        let file = scanner.file().clone();
        let end = file.len()?;
        // A block that is sound and only does not follow begins at this very place.
        let mut from = scanner.offset();
        while let Some(stray) = find_header(file.as_ref(), &self.chain, from, end)? {
            let block = self.sound_block(scanner, stray.offset, stray.bytes)?;
            if let Some(chain) = block {
                scanner.jump(stray.offset, chain.clone());
                self.resume(chain);
                return Ok(true);
            }
            from = stray.offset + 1;
        }
        Ok(false)
    }

    /// The chain in front of the block at `offset`, if that block holds by itself.
    fn sound_block(&self, scanner: &Scanner, offset: u64, bytes: u64) -> io::Result<Option<Chain>> {
        let Ok(length) = usize::try_from(bytes) else {
            return Ok(None);
        };
        if length
            > self
                .asked
                .limits
                .max_block_bytes
                .saturating_add(BLOCK_OVERHEAD_BYTES)
        {
            return Ok(None);
        }
        let mut block = vec![0; length];
        super::file::read_full(scanner.file().as_ref(), &mut block, offset)?;
        Ok(self.chain.before_stray(&block))
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

/// More than a block has beside its records.
const BLOCK_OVERHEAD_BYTES: usize = 256;
