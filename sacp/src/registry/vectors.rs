//! Vectors of one length in one block of memory, and an exact search for the nearest.

use core::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::RegistryError;

/// Rows of one length, each of norm 1, so that a cosine is a product.
#[derive(Clone, Debug, Default)]
pub(super) struct Vectors {
    dimension: usize,
    rows: Vec<f32>,
    names: Vec<Arc<str>>,
    places: HashMap<Arc<str>, usize>,
}

impl Vectors {
    /// The vector scaled to norm 1, if it fits the others.
    ///
    /// # Errors
    ///
    /// The vector has another length than the rows, a number that is not finite, or only zeros.
    pub(super) fn sound(&self, vector: &[f32]) -> Result<Vec<f32>, RegistryError> {
        if !self.names.is_empty() && vector.len() != self.dimension {
            return Err(RegistryError::Dimension {
                seen: vector.len(),
                wanted: self.dimension,
            });
        }
        unit(vector)
    }

    /// Sets a row to a vector that [`Vectors::sound`] gave.
    pub(super) fn set(&mut self, name: &str, vector: &[f32]) {
        if self.names.is_empty() {
            self.dimension = vector.len();
        }
        if let Some(&place) = self.places.get(name) {
            let row = self.rows.chunks_exact_mut(self.dimension).nth(place);
            row.into_iter().for_each(|row| row.copy_from_slice(vector));
            return;
        }
        let name: Arc<str> = name.into();
        self.places.insert(Arc::clone(&name), self.names.len());
        self.names.push(name);
        self.rows.extend_from_slice(vector);
    }

    /// The bytes of a row; 0 where there is none.
    pub(super) fn bytes_of(&self, name: &str) -> usize {
        let has_row = self.places.contains_key(name);
        if has_row {
            row_bytes(self.dimension)
        } else {
            0
        }
    }

    /// Removes a row; the last one takes its place.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else {
            return;
        };
        let last = self.names.len() - 1;
        let from = last * self.dimension;
        self.rows.copy_within(from.., place * self.dimension);
        self.rows.truncate(from);
        self.names.swap_remove(place);
        if let Some(moved) = self.names.get(place) {
            self.places.insert(Arc::clone(moved), place);
        }
    }

    /// A row's product with a vector of norm 1: their cosine.
    pub(super) fn cosine(&self, name: &str, unit: &[f32]) -> Option<f32> {
        let place = *self.places.get(name)?;
        let row = self.rows.chunks_exact(self.dimension).nth(place)?;
        (row.len() == unit.len()).then(|| product(row, unit))
    }

    /// The nearest rows, nearest first, equals by name; none below the threshold.
    ///
    /// It reads every row: the answer is exact.
    // impl: SACP-11-3
    pub(super) fn nearest(
        &self,
        unit: &[f32],
        top: usize,
        threshold: f32,
    ) -> Vec<(&Arc<str>, f32)> {
        if self.names.is_empty() {
            return Vec::new();
        }
        let mut best: BinaryHeap<Near<'_>> =
            BinaryHeap::with_capacity(top.min(self.names.len()) + 1);
        let mut floor = threshold;
        for (row, name) in self.rows.chunks_exact(self.dimension).zip(&self.names) {
            let cosine = product(row, unit);
            // A NaN threshold matches nothing.
            if cosine < floor || floor.is_nan() {
                continue;
            }
            best.push(Near { cosine, name });
            if best.len() > top {
                best.pop();
                floor = best.peek().map_or(threshold, |worst| worst.cosine);
            }
        }
        let sorted = best.into_sorted_vec();
        sorted
            .into_iter()
            .map(|near| (near.name, near.cosine))
            .collect()
    }
}

/// A candidate row. The greatest is the farthest, so that the heap pops it first.
struct Near<'a> {
    cosine: f32,
    name: &'a Arc<str>,
}

impl Ord for Near<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .cosine
            .total_cmp(&self.cosine)
            .then_with(|| self.name.cmp(other.name))
    }
}

impl PartialOrd for Near<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Near<'_> {}

/// The bytes of a row of so many numbers.
pub(super) const fn row_bytes(numbers: usize) -> usize {
    numbers.saturating_mul(size_of::<f32>())
}

/// The vector with norm 1.
///
/// # Errors
///
/// A number is not finite, or all are zero.
// impl: SACP-11-3
pub(super) fn unit(vector: &[f32]) -> Result<Vec<f32>, RegistryError> {
    if vector.iter().any(|x| !x.is_finite()) {
        return Err(RegistryError::NotFinite);
    }
    // In twice the width, no square of a number underflows or overflows.
    let square: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if square == 0.0 {
        return Err(RegistryError::ZeroVector);
    }
    let norm = square.sqrt();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded to the width that is kept"
    )]
    let scaled = vector
        .iter()
        .map(|x| (f64::from(*x) / norm) as f32)
        .collect();
    Ok(scaled)
}

/// The sum of products, in lanes that the compiler turns into vector instructions: with one running sum, each
/// addition would wait for the one before.
pub(super) fn product(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (a_lanes, a_rest) = a.as_chunks::<LANES>();
    let (b_lanes, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(rows: &[(&str, [f32; 3])]) -> Vectors {
        let mut vectors = Vectors::default();
        for (name, row) in rows {
            let unit = vectors.sound(row).unwrap();
            vectors.set(name, &unit);
        }
        vectors
    }

    // spec: SACP-11-3
    #[test]
    fn vectors_that_point_nowhere_are_refused() {
        let vectors = held(&[("A", [1.0, 0.0, 0.0])]);
        assert_eq!(vectors.sound(&[0.0; 3]), Err(RegistryError::ZeroVector));
        assert_eq!(
            vectors.sound(&[f32::NAN, 0.0, 1.0]),
            Err(RegistryError::NotFinite)
        );
        assert_eq!(
            vectors.sound(&[f32::INFINITY, 0.0, 1.0]),
            Err(RegistryError::NotFinite)
        );
        let short = RegistryError::Dimension { seen: 2, wanted: 3 };
        assert_eq!(vectors.sound(&[1.0, 0.0]), Err(short));
        assert!(vectors.sound(&[f32::MIN_POSITIVE, 0.0, 0.0]).is_ok());
        assert!(vectors.sound(&[f32::MAX, f32::MAX, 0.0]).is_ok());
    }

    #[test]
    fn a_removed_row_gives_its_place_to_the_last() {
        let mut vectors = held(&[
            ("A", [1.0, 0.0, 0.0]),
            ("B", [0.0, 1.0, 0.0]),
            ("C", [0.0, 0.0, 1.0]),
        ]);
        vectors.remove("A");
        vectors.remove("A");
        assert_eq!(vectors.cosine("C", &[0.0, 0.0, 1.0]), Some(1.0));
        assert_eq!(vectors.cosine("B", &[0.0, 1.0, 0.0]), Some(1.0));
        assert_eq!(vectors.cosine("A", &[1.0, 0.0, 0.0]), None);
        vectors.remove("C");
        vectors.remove("B");
        // An empty table takes another length.
        assert!(vectors.sound(&[1.0]).is_ok());
    }

    #[test]
    fn equals_come_by_name_and_the_threshold_holds() {
        let vectors = held(&[
            ("B", [1.0, 0.0, 0.0]),
            ("A", [2.0, 0.0, 0.0]),
            ("C", [0.0, 1.0, 0.0]),
        ]);
        let names = |top, threshold| {
            let near = vectors.nearest(&[1.0, 0.0, 0.0], top, threshold);
            near.into_iter()
                .map(|(name, _)| name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(2, -1.0), ["A", "B"]);
        assert_eq!(names(1, -1.0), ["A"]);
        assert_eq!(names(9, 0.5), ["A", "B"]);
        assert_eq!(names(9, -1.0), ["A", "B", "C"]);
        assert_eq!(names(0, -1.0), [""; 0]);
        assert_eq!(names(9, f32::NAN), [""; 0]);
        assert_eq!(Vectors::default().nearest(&[1.0], 9, -1.0), []);
    }
}
