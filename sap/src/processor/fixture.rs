//! What the tests of this crate's own modules share.

use core::future::pending;
use std::sync::Arc;

use futures::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::time::{Mono, Now, Timestamp};

use super::{AllowAll, Config, Processor};
use crate::result::{Producer, ProducerKind};
use crate::transcript::Transcript;

/// A clock that stands.
#[derive(Clone)]
pub(crate) struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }

    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}

/// A task for `text.echo`, without a deadline.
pub(crate) const TASK: &str = r#"{"protocolVersion":"2.0","taskId":"00000000-0000-0000-0000-000000000001","correlationId":"00000000-0000-0000-0000-000000000002","issuedAt":"1970-01-01T00:00:00Z","issuer":{"agentId":"A-prime","agentKind":"agent"},"target":{"capability":"text.echo"},"constitutionalContext":{"pressureLevel":"deliberated","principles":["care"]},"payload":{}}"#;

/// A processor that lets everybody in, and has no handler yet.
pub(crate) fn processor(transcript: Arc<dyn Transcript>, config: Config) -> Processor {
    let producer = Producer::new("A-1".parse().unwrap(), ProducerKind::Agent);
    Processor::new(producer, Arc::new(AllowAll), transcript, config).unwrap()
}
