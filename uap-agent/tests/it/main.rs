//! What the crate promises, seen from outside.

mod runs;
mod state;
mod stream;
mod support;
