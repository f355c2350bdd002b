//! Checkers for who builds on this crate: strategies, models and agents are put through what they must do.
//!
//! What every store of checkpoints must do is in [`checkpoint`](crate::checkpoint).

mod bench;
mod breach;
mod script;
mod strategy;
#[cfg(feature = "driver")]
mod stream;
mod watched;

pub use breach::{StrategyBreach, StrategyFault};
pub use strategy::{check_strategy, check_strategy_with};
#[cfg(feature = "driver")]
pub use stream::{StreamFault, check_stream_equals_generate};
