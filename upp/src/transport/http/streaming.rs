//! A streamed response while it is read.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
#[cfg(feature = "tracing")]
use tracing::Span;
#[cfg(feature = "tracing")]
use ubos_common::time::Mono;

use super::client::transport;
use super::secrets::Secrets;
#[cfg(feature = "tracing")]
use super::world::TokioWorld;
use crate::error::{ErrorCode, UppError};
use crate::model::{ModelEvent, ModelStream};
#[cfg(feature = "tracing")]
use crate::retry::RetryWorld;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::builder::ResponseReader;
use crate::transport::sse::{SseError, SseReader};

pub(super) struct Streaming {
    answer: reqwest::Response,
    sse: SseReader,
    reading: Box<dyn ResponseReader>,
    ready: VecDeque<ModelEvent>,
    provider: Arc<str>,
    secrets: Secrets,
    /// When the request began, until the first part of the response has come.
    #[cfg(feature = "tracing")]
    began: Option<(Arc<TokioWorld>, Mono, Span)>,
}

impl Streaming {
    pub(super) fn new(
        answer: reqwest::Response,
        reading: Box<dyn ResponseReader>,
        provider: Arc<str>,
        secrets: Secrets,
    ) -> Self {
        Self {
            answer,
            sse: SseReader::default(),
            reading,
            ready: VecDeque::new(),
            provider,
            secrets,
            #[cfg(feature = "tracing")]
            began: None,
        }
    }

    /// Times the first part of the response.
    #[cfg(feature = "tracing")]
    pub(super) fn timed(mut self, world: Arc<TokioWorld>, began: Mono, span: Span) -> Self {
        self.began = Some((world, began, span));
        self
    }

    /// The stream: events, and then the response or an error.
    pub(super) fn into_stream(self) -> ModelStream {
        stream::unfold(Some(self), |state| async {
            let mut state = state?;
            let item = state
                .next()
                .await
                .map_err(|error| state.secrets.hide(error));
            let goes_on = matches!(item, Ok(ModelEvent::Event(_)));
            Some((item, goes_on.then_some(state)))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<ModelEvent, UppError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                #[cfg(feature = "tracing")]
                if let Some((world, began, span)) = self.began.take() {
                    crate::otel::record_first_chunk(&span, world.now().saturating_since(began));
                }
                return Ok(event);
            }
            self.take()?;
            if !self.ready.is_empty() {
                continue;
            }
            if self.reading.builder().ended {
                // Some vendors keep the connection open after their last word.
                self.end()?;
                continue;
            }
            let bytes = self.answer.chunk().await;
            match bytes.map_err(|error| transport(&error, &self.provider))? {
                Some(bytes) => {
                    let fed = self.sse.feed(&bytes);
                    fed.map_err(|error| unreadable(error, &self.provider))?;
                }
                None => {
                    let ended = self.sse.finish();
                    ended.map_err(|error| unreadable(error, &self.provider))?;
                    self.take()?;
                    self.end()?;
                }
            }
        }
    }

    /// Takes the events that were read, up to the end marker.
    fn take(&mut self) -> Result<(), UppError> {
        while !self.reading.builder().ended {
            let Some(event) = self.sse.next_event() else {
                break;
            };
            // Some vendors keep the connection alive with empty data.
            if !event.data.trim().is_empty() {
                self.reading.read_event(&event)?;
            }
            let events = self.reading.builder().take_events();
            self.ready.extend(events.into_iter().map(ModelEvent::Event));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), UppError> {
        self.reading.check_end()?;
        let answer = self.reading.builder();
        let response = answer.finish()?;
        let events = answer.take_events();
        self.ready.extend(events.into_iter().map(ModelEvent::Event));
        let stop = StreamEvent::bare(StreamEventType::MessageStop, 0);
        self.ready.push_back(ModelEvent::Event(stop));
        self.ready.push_back(ModelEvent::Done(Box::new(response)));
        Ok(())
    }
}

fn unreadable(error: SseError, provider: &Arc<str>) -> UppError {
    let code = ErrorCode::InvalidResponse;
    UppError::new(code, Arc::clone(provider), error.to_string()).with_cause(error)
}
