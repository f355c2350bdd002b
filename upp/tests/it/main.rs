//! What the crate promises, seen from outside.

mod json;
#[cfg(feature = "openai")]
mod openai;
mod tools;
