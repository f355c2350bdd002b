//! Orders of members that are noted while text is written, and carried out in one copy.

use core::ops::Range;

use super::text;

/// Objects whose members stand in another order than they should, innermost first.
#[derive(Default)]
pub(super) struct Moves {
    moves: Vec<Move>,
    /// The members of all moves, each move's in the order in which they should stand.
    order: Vec<Range<usize>>,
    /// Moves that are still to be carried out, the next one last.
    open: Vec<usize>,
    scratch: Vec<u8>,
}

/// One object.
struct Move {
    /// Its members in the buffer, with the commas between them.
    whole: Range<usize>,
    /// Its part of `Moves::order`.
    order: Range<usize>,
    /// The first of the moves inside of it; they stand just before it.
    first: usize,
}

impl Moves {
    pub(super) fn len(&self) -> usize {
        self.moves.len()
    }

    /// Notes the order of the members of an object. `first`: how many moves there were before it was opened.
    pub(super) fn note(
        &mut self,
        first: usize,
        whole: Range<usize>,
        order: impl Iterator<Item = Range<usize>>,
    ) {
        let start = self.order.len();
        self.order.extend(order);
        self.moves.push(Move {
            whole,
            order: start..self.order.len(),
            first,
        });
    }

    /// Moves what stands in the buffer from `start` on.
    pub(super) fn carry_out(&mut self, buffer: &mut Vec<u8>, start: usize) {
        if self.moves.is_empty() {
            return;
        }
        let mut out = core::mem::take(&mut self.scratch);
        out.clear();
        // A little more, for the bracket that closes.
        out.reserve(buffer.len() - start + 1);
        self.copy(buffer, start..buffer.len(), 0..self.moves.len(), &mut out);
        if start == 0 {
            core::mem::swap(buffer, &mut out);
        } else {
            buffer.truncate(start);
            buffer.extend_from_slice(&out);
        }
        self.scratch = out;
        self.moves.clear();
        self.order.clear();
    }

    /// Copies a part of the buffer, and carries out the moves in it on the way.
    fn copy(&mut self, buffer: &[u8], part: Range<usize>, moves: Range<usize>, out: &mut Vec<u8>) {
        let outer = self.open.len();
        // From the last one back, each stands behind what is inside of it.
        let mut behind = moves.end;
        while behind > moves.start {
            self.open.push(behind - 1);
            behind = self.moves.get(behind - 1).map_or(0, |inner| inner.first);
        }
        let mut at = part.start;
        while self.open.len() > outer
            && let Some(index) = self.open.pop()
            && let Some(Move {
                whole,
                order,
                first,
            }) = self.moves.get(index)
        {
            let (whole, order, inside) = (whole.clone(), order.clone(), *first..index);
            text::append(out, buffer.get(at..whole.start).unwrap_or_default());
            for (place, member) in order.enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                let member = self.order.get(member).cloned().unwrap_or_default();
                if inside.is_empty() {
                    text::append(out, buffer.get(member).unwrap_or_default());
                } else {
                    let moves = self.within(&member, inside.clone());
                    self.copy(buffer, member, moves, out);
                }
            }
            at = whole.end;
        }
        text::append(out, buffer.get(at..part.end).unwrap_or_default());
    }

    /// The moves of `among` that lie in a part of the buffer.
    fn within(&self, part: &Range<usize>, among: Range<usize>) -> Range<usize> {
        let moves = self.moves.get(among.clone()).unwrap_or_default();
        let until = |end: usize| moves.partition_point(|it| it.whole.end <= end);
        among.start + until(part.start)..among.start + until(part.end)
    }
}
