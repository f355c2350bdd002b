//! Messages, registry and spawning from outside.

mod message;
mod registry;
