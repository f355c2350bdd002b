//! A model that retries failed requests.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use ubos_common::time::Mono;

use super::{Attempts, RetryStrategy};
use crate::error::UppError;
use crate::model::{
    LlmCapabilities, LlmModel, LlmRequest, ModelEvent, ModelReference, ModelStream,
};
use crate::response::LlmResponse;

/// The clock, the timer and the randomness of retries.
pub trait RetryWorld: Send + Sync {
    /// The clock.
    fn now(&self) -> Mono;

    /// 64 random bits.
    fn random(&self) -> u64;

    /// Ready after a duration.
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()>;
}

/// A model that retries failed requests as a strategy decides.
///
/// A stream is retried only before its first event. Dropping a request or its stream ends the wait.
///
/// Spec: UPP-1.3 retry strategies
#[derive(Clone)]
pub struct RetryModel {
    model: ModelReference,
    strategy: Arc<dyn RetryStrategy>,
    world: Arc<dyn RetryWorld>,
}

impl RetryModel {
    /// A model, a strategy, and a clock with a timer.
    pub fn new(
        model: ModelReference,
        strategy: Arc<dyn RetryStrategy>,
        world: Arc<dyn RetryWorld>,
    ) -> Self {
        Self {
            model,
            strategy,
            world,
        }
    }
}

impl fmt::Debug for RetryModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RetryModel({})", self.model.model_id())
    }
}

impl LlmModel for RetryModel {
    fn provider(&self) -> &str {
        self.model.provider()
    }

    fn model_id(&self) -> &str {
        self.model.model_id()
    }

    fn capabilities(&self) -> LlmCapabilities {
        self.model.capabilities()
    }

    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        let Self {
            model,
            strategy,
            world,
        } = self.clone();
        Box::pin(async move {
            let mut attempts = Attempts::new(strategy);
            loop {
                pause(world.as_ref(), attempts.before(world.now())).await;
                let error = match model.complete(request.clone()).await {
                    Ok(response) => {
                        attempts.succeeded();
                        return Ok(response);
                    }
                    Err(error) => error,
                };
                match attempts.failed(world.now(), &error, world.random()) {
                    Some(wait) => pause(world.as_ref(), wait).await,
                    None => return Err(error),
                }
            }
        })
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        Box::pin(Retrying {
            attempts: Attempts::new(Arc::clone(&self.strategy)),
            retry: self.clone(),
            request,
            phase: Phase::Before,
        })
    }
}

async fn pause(world: &dyn RetryWorld, span: Duration) {
    if !span.is_zero() {
        world.sleep(span).await;
    }
}

/// A stream that is retried until its first event.
struct Retrying {
    retry: RetryModel,
    request: LlmRequest,
    attempts: Attempts,
    phase: Phase,
}

enum Phase {
    /// Before an attempt.
    Before,
    /// Between two attempts.
    Waiting(BoxFuture<'static, ()>),
    /// Waits until the strategy permits the attempt.
    Held(BoxFuture<'static, ()>),
    /// The attempt has given no event.
    Asking(ModelStream),
    /// The attempt has given an event: an error is final.
    Begun(ModelStream),
    Ended,
}

impl Retrying {
    /// Handles the first item of an attempt.
    fn first(
        &mut self,
        stream: ModelStream,
        item: Option<Result<ModelEvent, UppError>>,
    ) -> Option<Option<Result<ModelEvent, UppError>>> {
        let Some(Err(error)) = &item else {
            self.attempts.succeeded();
            self.phase = Phase::Begun(stream);
            return Some(item);
        };
        let world = &self.retry.world;
        let Some(wait) = self.attempts.failed(world.now(), error, world.random()) else {
            self.phase = Phase::Ended;
            return Some(item);
        };
        self.phase = if wait.is_zero() {
            Phase::Before
        } else {
            Phase::Waiting(world.sleep(wait))
        };
        None
    }
}

impl Stream for Retrying {
    type Item = Result<ModelEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            this.phase = match core::mem::replace(&mut this.phase, Phase::Ended) {
                Phase::Ended => return Poll::Ready(None),
                Phase::Before => match this.attempts.before(this.retry.world.now()) {
                    Duration::ZERO => Phase::Asking(this.retry.model.stream(this.request.clone())),
                    wait => Phase::Held(this.retry.world.sleep(wait)),
                },
                Phase::Waiting(mut sleep) => match sleep.as_mut().poll(cx) {
                    Poll::Ready(()) => Phase::Before,
                    Poll::Pending => {
                        this.phase = Phase::Waiting(sleep);
                        return Poll::Pending;
                    }
                },
                Phase::Held(mut sleep) => match sleep.as_mut().poll(cx) {
                    Poll::Ready(()) => Phase::Asking(this.retry.model.stream(this.request.clone())),
                    Poll::Pending => {
                        this.phase = Phase::Held(sleep);
                        return Poll::Pending;
                    }
                },
                Phase::Asking(mut stream) => match stream.as_mut().poll_next(cx) {
                    Poll::Ready(item) => match this.first(stream, item) {
                        Some(item) => return Poll::Ready(item),
                        None => continue,
                    },
                    Poll::Pending => {
                        this.phase = Phase::Asking(stream);
                        return Poll::Pending;
                    }
                },
                Phase::Begun(mut stream) => {
                    let item = stream.as_mut().poll_next(cx);
                    this.phase = Phase::Begun(stream);
                    return item;
                }
            };
        }
    }
}
