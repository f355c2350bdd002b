//! What asynchronous hooks and stores return.

use core::future::Future;
use core::pin::Pin;

/// A future on the heap, of the same type as `futures::future::BoxFuture`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer that is there at once.
pub(crate) fn ready<'a, T: Send + 'a>(answer: T) -> BoxFuture<'a, T> {
    Box::pin(core::future::ready(answer))
}
