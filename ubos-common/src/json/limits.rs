//! How much of a document is taken before it is refused.

/// Bounds on one JSON document, checked before anything is allocated for what lies behind them.
///
/// | limit | unit | default |
/// |---|---|---|
/// | `max_bytes` | bytes of the document | 4,194,304 |
/// | `max_depth` | arrays and objects inside one another, at most 256 | 64 |
/// | `max_members` | members of one object | 10,000 |
/// | `max_array_len` | elements of one array | 100,000 |
/// | `max_string_bytes` | bytes of one string or number as written | 4,194,304 |
/// | `max_findings` | findings listed for one document; further ones are counted | 1,000 |
///
/// `serde_json` nests 127 levels. What is deeper is read, checked, kept and written here, but
/// [`Raw::deserialize`](super::Raw::deserialize) into a type of the caller's refuses it ("recursion limit exceeded"), and
/// so does any other reader built on `serde_json`: set [`Limits::SERDE_JSON_DEPTH`] where values are handed to one.
///
/// Pointers of one report take about a mebibyte together; findings past that are counted, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the whole document.
    pub max_bytes: usize,
    /// Arrays and objects inside one another.
    pub max_depth: usize,
    /// Members of one object.
    pub max_members: usize,
    /// Elements of one array.
    pub max_array_len: usize,
    /// Bytes of one string, member name or number, as written.
    pub max_string_bytes: usize,
    /// Findings listed for one document.
    pub max_findings: usize,
}

impl Limits {
    /// The greatest depth that can be set: readers recurse, and a thread's stack is finite.
    pub const DEEPEST: usize = 256;

    /// The greatest depth that `serde_json` reads.
    pub const SERDE_JSON_DEPTH: usize = 127;

    /// Sets the bytes of the whole document.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the depth, cut to [`Limits::DEEPEST`]. Above [`Limits::SERDE_JSON_DEPTH`], `serde_json` cannot follow.
    #[must_use]
    pub const fn with_max_depth(mut self, depth: usize) -> Self {
        self.max_depth = if depth < Self::DEEPEST {
            depth
        } else {
            Self::DEEPEST
        };
        self
    }

    /// Sets the members of one object.
    #[must_use]
    pub const fn with_max_members(mut self, members: usize) -> Self {
        self.max_members = members;
        self
    }

    /// Sets the elements of one array.
    #[must_use]
    pub const fn with_max_array_len(mut self, elements: usize) -> Self {
        self.max_array_len = elements;
        self
    }

    /// Sets the bytes of one string, member name or number.
    #[must_use]
    pub const fn with_max_string_bytes(mut self, bytes: usize) -> Self {
        self.max_string_bytes = bytes;
        self
    }

    /// Sets the findings listed for one document.
    #[must_use]
    pub const fn with_max_findings(mut self, findings: usize) -> Self {
        self.max_findings = findings;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 4_194_304,
            max_depth: 64,
            max_members: 10_000,
            max_array_len: 100_000,
            max_string_bytes: 4_194_304,
            max_findings: 1_000,
        }
    }
}
