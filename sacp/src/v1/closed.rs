//! Objects that take no further members.

use ubos_common::json::{Members, Reader};
use ubos_common::violation::Level;

/// Reports every unknown member of a closed object; returns whether there is one.
pub(super) fn refuse_unknown(
    reader: &mut Reader<'_>,
    at: usize,
    extra: &Members<'_>,
    what: &'static str,
) -> bool {
    for (name, _) in extra.iter() {
        let name = Some(name.to_owned().into());
        reader.note(at, name, "unknown_member", Level::Must, what);
    }
    !extra.is_empty()
}
