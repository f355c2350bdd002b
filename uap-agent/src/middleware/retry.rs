//! Retries of requests to the model.

use std::sync::Arc;

use upp::RetryStrategy;

use super::Middleware;

/// Middleware that retries failed requests to the model, as a strategy decides; a stream only before its first event.
///
/// The run sees the last error only. Tools are not retried: the failure of a tool is a result for the model.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::middleware::retry;
/// use uap_agent::{AgentOptions, agent};
/// use upp::{ErrorCode, LinearBackoff, Reply, ScriptedModel};
/// # use core::time::Duration;
///
/// let model = ScriptedModel::new([Reply::error(ErrorCode::RateLimited, "slow down"), Reply::text("hello")]);
/// let strategy = LinearBackoff::default().with_delay(Duration::from_millis(10));
/// let options = AgentOptions::new(Arc::new(model)).with_middleware([retry(Arc::new(strategy))]);
/// let turn = futures::executor::block_on(agent(options)?.query("hi"))?;
/// assert_eq!(turn.response.text(), "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: UAP-1.1 9.1
pub fn retry(strategy: Arc<dyn RetryStrategy>) -> Arc<dyn Middleware> {
    Arc::new(Retry(strategy))
}

struct Retry(Arc<dyn RetryStrategy>);

impl Middleware for Retry {
    fn name(&self) -> &str {
        "retry"
    }

    fn retries(&self) -> Option<Arc<dyn RetryStrategy>> {
        Some(Arc::clone(&self.0))
    }
}
