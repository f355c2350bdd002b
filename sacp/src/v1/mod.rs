//! The 1.0 profile: named steps with dependencies, deadlines, retries and fallbacks.
//!
//! ```
//! use sacp::Graph;
//! use sacp::v1::Message;
//!
//! let text = br#"{"proto_ver":"1.0.0","msg_id":"m1","ts":"2025-10-01T12:00:00Z","sender":"planner","g":"TRIP",
//!     "plan":[{"id":"w","verb":"fetch","tool":"WEATHER","params":{}},
//!             {"id":"m","verb":"merge","tool":"MERGE","params":{},"depends_on":["w"]}],"state":"PENDING"}"#;
//! let message = Message::decode(text)?;
//! assert_eq!(Graph::from(&message).step(2).unwrap().after[..], [1]);
//! # Ok::<(), ubos_common::json::DecodeError>(())
//! ```

mod adapter;
mod closed;
mod code;
mod graph;
mod message;
mod names;
mod outcome;
mod state;
mod step;
mod steps;
mod trace;

pub(crate) use adapter::steps_of;
pub use adapter::{ConvertError, Down, Up, answer_up, down, up};
pub use code::Code;
pub use message::{Message, Version};
pub use names::{Goal, Id, Name, Ts, Word};
pub use outcome::{Failure, Outcome, Text, WrittenCode};
pub use state::{State, TransitionError};
pub use step::{Bounded, OnError, Retry, RetryStrategy, Step};
pub use steps::Steps;
pub use trace::{Ext, Metrics, Trace};
