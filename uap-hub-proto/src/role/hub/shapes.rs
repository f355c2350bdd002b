//! Sets of shapes of jobs.

/// Shapes of jobs of one skill, by their numbers, which are below [`MAX_SHAPES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shapes([u64; WORDS]);

/// Shapes that are told apart in a skill.
pub(super) const MAX_SHAPES: usize = WORDS * 64;
const WORDS: usize = 8;

impl Shapes {
    pub(super) fn has(&self, shape: usize) -> bool {
        let word = self.0.get(shape / 64);
        word.is_some_and(|word| word & mask(shape) != 0)
    }

    /// Adds a shape, or takes it out.
    pub(super) fn set(&mut self, shape: usize, is_in: bool) {
        if let Some(word) = self.0.get_mut(shape / 64) {
            match is_in {
                true => *word |= mask(shape),
                false => *word &= !mask(shape),
            }
        }
    }

    /// Adds all of another set.
    pub(super) fn join(&mut self, others: &Self) {
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            *word |= other;
        }
    }

    /// The lowest number that is not in it.
    pub(super) fn first_free(&self) -> usize {
        let full = self.0.iter().take_while(|word| **word == u64::MAX).count();
        let next = self.0.get(full).map_or(0, |word| word.trailing_ones());
        full * 64 + next as usize
    }

    /// The shapes that are in both sets.
    pub(super) fn in_both(&self, others: &Self) -> impl Iterator<Item = usize> + use<> {
        let pairs = self.0.iter().zip(&others.0);
        let mut words = [0; WORDS];
        for (word, (one, other)) in words.iter_mut().zip(pairs) {
            *word = one & other;
        }
        words.into_iter().enumerate().flat_map(|(at, mut word)| {
            std::iter::from_fn(move || {
                let next = (word != 0).then(|| at * 64 + word.trailing_zeros() as usize);
                word &= word.wrapping_sub(1);
                next
            })
        })
    }
}

const fn mask(shape: usize) -> u64 {
    1 << (shape % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let (mut one, mut all) = (Shapes::default(), Shapes::default());
        for n in 0..MAX_SHAPES {
            assert_eq!(all.first_free(), n);
            all.set(n, true);
            one.set(n, n % 7 == 0);
        }
        assert_eq!(all.first_free(), MAX_SHAPES);
        let sevenths: Vec<_> = (0..MAX_SHAPES).step_by(7).collect();
        assert_eq!(one.in_both(&all).collect::<Vec<_>>(), sevenths);
        assert!((0..MAX_SHAPES).all(|n| one.has(n) == (n % 7 == 0)));
        let mut other = Shapes::default();
        other.set(3, true);
        other.join(&one);
        assert!(other.has(3) && other.has(7) && !other.has(4));
        all.set(70, false);
        assert_eq!((all.first_free(), all.has(70)), (70, false));
        assert!(!all.has(MAX_SHAPES));
        all.set(MAX_SHAPES, true);
        assert!(!all.has(MAX_SHAPES), "there is no such shape");
    }
}
