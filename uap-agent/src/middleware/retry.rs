//! Asking a model again.

use std::sync::Arc;

use upp::{ModelReference, RetryModel, RetryStrategy, RetryWorld};

use super::Middleware;

/// Makes the failed requests of an agent's model again, as a strategy says; a stream only until it has given something.
///
/// The run sees the last failure alone. Tools are not run again: a tool that fails is a result for the model.
///
/// Spec: UAP-1.1 9.1
pub fn retry(strategy: Arc<dyn RetryStrategy>, world: Arc<dyn RetryWorld>) -> Arc<dyn Middleware> {
    Arc::new(Retry { strategy, world })
}

struct Retry {
    strategy: Arc<dyn RetryStrategy>,
    world: Arc<dyn RetryWorld>,
}

impl Middleware for Retry {
    fn name(&self) -> &str {
        "retry"
    }

    fn model(&self, model: ModelReference) -> ModelReference {
        let (strategy, world) = (Arc::clone(&self.strategy), Arc::clone(&self.world));
        Arc::new(RetryModel::new(model, strategy, world))
    }
}
