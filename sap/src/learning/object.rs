//! Objects that are written here, for what is filed and for digests.

use ubos_common::json::{self, MemberWriter, RawObject};
use ubos_common::violation::Profile;

use crate::limits::unbounded;

#[expect(clippy::expect_used, reason = "what our own writer wrote")]
pub(super) fn object(write: impl FnOnce(&mut MemberWriter<'_>)) -> RawObject {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    write(&mut object);
    object.end();
    let (object, _) = json::decode(&text, &unbounded(), Profile::Strict).expect("a sound object");
    object
}
