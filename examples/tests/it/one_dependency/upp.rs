//! Asks a scripted model, on no runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use upp::ubos_common::id::IdSource;
use upp::ubos_common::time::{Mono, Now, Timestamp};
use upp::{List, LlmCall, LlmOptions, Reply, ScriptedModel, llm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = ScriptedModel::new([Reply::text("Paris.")]);
    let call = LlmCall::new(IdSource::seeded(1), || Now::new(Mono::ZERO, Timestamp::EPOCH));
    let instance = llm(LlmOptions::new(Arc::new(model)))?;
    let history = List::default();
    let mut turn = pin!(instance.generate(&history, ["The capital of France?"], call));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(turn) = turn.as_mut().poll(&mut context) {
            assert_eq!(turn?.response.text(), "Paris.");
            return Ok(());
        }
    }
}
