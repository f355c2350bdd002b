//! Embeddings of texts.

/// Maps texts to vectors, so that texts of similar meaning are near.
///
/// Deterministic: the same text has the same vector. Every vector has [`dimension`](Self::dimension) numbers.
///
/// Spec: SACP 12
pub trait Embedder {
    /// The length of its vectors.
    fn dimension(&self) -> usize;

    /// The vector of a text; `None` if the text has no word.
    fn embed(&self, text: &str) -> Option<Vec<f32>>;
}

/// An embedding by words and letter trigrams, without a model.
///
/// It finds similar words (`price`, `prices`, `pricing`), not similar meanings: enough for small registries and
/// tests, and identical on every machine.
///
/// ```
/// use sacp::registry::{Embedder, NGrams};
///
/// let grams = NGrams::default();
/// let near = |a: &str, b: &str| -> f32 {
///     let (a, b) = (grams.embed(a).unwrap(), grams.embed(b).unwrap());
///     a.iter().zip(&b).map(|(a, b)| a * b).sum()
/// };
/// assert!(near("predict prices", "price prediction") > near("predict prices", "translate a text"));
/// ```
///
/// Spec: SACP 12
#[derive(Clone, Copy, Debug)]
pub struct NGrams {
    dimension: usize,
}

impl Default for NGrams {
    fn default() -> Self {
        Self::standard()
    }
}

impl NGrams {
    /// Vectors of 384 numbers.
    pub(crate) const fn standard() -> Self {
        Self { dimension: 384 }
    }

    fn count(&self, vector: &mut [f32], gram: &[char], weight: f32) {
        let hash = gram.iter().fold(FNV_OFFSET, |hash, letter| {
            (hash ^ u64::from(u32::from(*letter))).wrapping_mul(FNV_PRIME)
        });
        // The low bits choose the place, a high bit the sign, so that collisions cancel out on average.
        let place = usize::try_from(hash % self.dimension as u64).unwrap_or(0);
        let sign = if hash >> 63 == 0 { weight } else { -weight };
        if let Some(slot) = vector.get_mut(place) {
            *slot += sign;
        }
    }
}

impl Embedder for NGrams {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn embed(&self, text: &str) -> Option<Vec<f32>> {
        let mut vector = vec![0.0; self.dimension];
        for word in text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
        {
            let mut letters = vec!['<'];
            letters.extend(word.chars().flat_map(char::to_lowercase));
            letters.push('>');
            self.count(&mut vector, &letters, 2.0);
            for gram in letters.windows(3) {
                self.count(&mut vector, gram, 1.0);
            }
        }
        super::vectors::unit(&vector).ok()
    }
}

/// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    // Vectors are kept in records, so a newer version must make the same ones.
    #[test]
    fn the_vectors_of_texts_stay_what_they_are() {
        let grams = NGrams::standard();
        let vector = grams.embed("Ab c").unwrap();
        assert_eq!(vector.len(), grams.dimension());
        let places = vector.iter().enumerate().filter(|(_, n)| **n != 0.0);
        let signs: Vec<(usize, bool)> = places.map(|(place, n)| (place, *n > 0.0)).collect();
        assert_eq!(signs, [(60, false), (164, true), (174, false), (258, true)]);
    }
}
