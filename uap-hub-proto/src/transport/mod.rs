//! The machines on gRPC, by feature: drivers and nothing more.
//!
//! Their ids come from a generator that is seeded once a hub or agent: a process that forks must execute another program at once,
//! as `std::process::Command` does. A fork that went on here would make the same ids as its parent.

mod carry;
#[cfg(feature = "client")]
pub mod client;
mod clock;
mod codec;
#[cfg(feature = "server")]
mod inbox;
mod mail;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "server")]
pub mod server;
mod sync;
#[cfg(feature = "tls")]
mod tls;
mod trace;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::status::{Code, Status};
pub(crate) use codec::BoundedCodec;
#[cfg(feature = "tls")]
pub use tls::Tls;

/// The shortest keep-alive interval: peers close connections that ping more often.
///
/// Spec: UAP hub 5
pub const MIN_KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How long a peer may take to answer a keep-alive ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The flow-control window of a stream.
const STREAM_WINDOW: u32 = 256 << 10;

/// The flow-control window of a connection: large enough that unread streams do not stop the others.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Starts a task.
#[expect(clippy::disallowed_methods, reason = "transports start tasks")]
fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}

/// Locks, also after a panic in another thread: a machine refuses or applies a command as a whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Our status as a gRPC library's.
impl From<Status> for tonic::Status {
    fn from(status: Status) -> Self {
        Self::new(tonic::Code::from_i32(status.code as i32), status.message)
    }
}

/// A gRPC library's status as ours; codes that the protocol does not use are [`Code::Unknown`].
impl From<tonic::Status> for Status {
    fn from(status: tonic::Status) -> Self {
        let code = match status.code() {
            tonic::Code::Ok => Code::Ok,
            tonic::Code::Cancelled => Code::Cancelled,
            tonic::Code::InvalidArgument => Code::InvalidArgument,
            tonic::Code::DeadlineExceeded => Code::DeadlineExceeded,
            tonic::Code::NotFound => Code::NotFound,
            // The library's code for a message beyond the limit.
            tonic::Code::ResourceExhausted | tonic::Code::OutOfRange => Code::ResourceExhausted,
            tonic::Code::FailedPrecondition => Code::FailedPrecondition,
            tonic::Code::Aborted => Code::Aborted,
            tonic::Code::Internal => Code::Internal,
            tonic::Code::Unavailable => Code::Unavailable,
            _ => Code::Unknown,
        };
        Self::new(code, status.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_stays_itself_or_is_unknown() {
        for number in 0..=16 {
            let theirs = tonic::Code::from_i32(number);
            let ours = Status::from(tonic::Status::new(theirs, "why"));
            let back = tonic::Status::from(ours).code();
            let wanted = match theirs {
                tonic::Code::OutOfRange => tonic::Code::ResourceExhausted,
                tonic::Code::AlreadyExists
                | tonic::Code::PermissionDenied
                | tonic::Code::Unimplemented
                | tonic::Code::DataLoss
                | tonic::Code::Unauthenticated => tonic::Code::Unknown,
                same => same,
            };
            assert_eq!(back, wanted, "{theirs:?}");
        }
    }
}
