//! Being written.
pub fn check(_bytes: &[u8]) {}
