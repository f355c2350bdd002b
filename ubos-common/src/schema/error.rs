//! Why a schema is refused.

/// Why a schema cannot be used, or not on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is longer than the bound, its references multiply it, or its patterns are too large.
    #[error("the schema is too large: shorten it, its references or its patterns")]
    TooLarge,
    /// It refers to another document; nothing is fetched.
    #[error("the schema refers to another document, which is not fetched: put it into `$defs`")]
    Remote,
    /// It refers to itself for the same value, so that a check would never end.
    #[error("the schema refers to itself without a step into the value")]
    Endless,
    /// It is not a valid JSON Schema.
    #[error("the schema is not a valid JSON Schema")]
    NoSchema,
    /// A member of the schema or the value has a name that `serde_json` keeps for itself: it would read something else.
    #[error("a member has a name that begins with `$serde_json::private::`, which is not read")]
    ReservedName,
    /// The value has a number that cannot be held as one, such as `1e400`.
    #[error("the value has a number beyond the range of a double")]
    Number,
    /// To check this value takes more steps than the budget.
    #[error("the check takes more steps than its budget: simplify the schema or shorten the value")]
    TooExpensive,
}
