//! Bounds that do not belong to one module.

use ubos_common::json::Limits;

/// For a value that was read within the caller's limits, whatever those were: nothing may cut a second walk short. Findings beyond
/// the bound are not listed, and count.
pub(crate) fn unbounded() -> Limits {
    Limits::default()
        .with_max_bytes(usize::MAX)
        .with_max_depth(Limits::DEEPEST)
        .with_max_members(usize::MAX)
        .with_max_array_len(usize::MAX)
        .with_max_string_bytes(usize::MAX)
}
