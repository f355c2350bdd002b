//! What the writers of canonical JSON share: the bound of nesting, and what becomes of numbers.

/// The deepest nesting of arrays and objects that is written.
pub const MAX_DEPTH: usize = 128;

/// What happens to numbers that no double holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// As RFC 8785 has it: they are rounded, so that 9007199254740993 and 9007199254740992
    /// have one canonical form.
    #[default]
    Jcs,
    /// They are refused, and so is each number whose canonical form is another decimal value
    /// than the one given: values that differ never share a digest. Use this for digests.
    ///
    /// A typed `f64` or `f32` is the double that it is, hence always exact.
    Exact,
}
