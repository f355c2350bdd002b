//! Failed requests are made again, with time and randomness of the test's own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use ubos_common::time::{Mono, Timestamp};
use upp::{
    ErrorCode, LinearBackoff, List, LlmModel, LlmRequest, Message, ModelEvent, NoRetry, Reply,
    RetryModel, RetryStrategy, RetryWorld, ScriptedModel, Stamp, TokenBucket,
};

/// Time passes when somebody waits, and then at once.
#[derive(Default)]
struct Virtual {
    now: AtomicU64,
    slept: Mutex<Vec<u64>>,
}

impl RetryWorld for Virtual {
    fn now(&self) -> Mono {
        Mono::from_millis(self.now.load(Ordering::SeqCst))
    }
    fn random(&self) -> u64 {
        1 << 63
    }
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        let millis = u64::try_from(span.as_millis()).unwrap();
        self.slept.lock().unwrap().push(millis);
        self.now.fetch_add(millis, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

fn failing(times: usize, code: &ErrorCode) -> Arc<ScriptedModel> {
    let failures = (0..times).map(|_| Reply::error(code.clone(), "no"));
    let replies: Vec<_> = failures.chain([Reply::text("yes")]).collect();
    Arc::new(ScriptedModel::new(replies))
}

fn request() -> LlmRequest {
    let stamp = |id: &str| Stamp::with_id(id, Timestamp::EPOCH);
    LlmRequest::new(
        List::from(vec![Message::user(stamp("u"), "hi")]),
        stamp("a"),
    )
}

/// Asks twice, whole and streamed; gives what came, the requests and the waits of each.
fn ask(
    times: usize,
    code: &ErrorCode,
    strategy: impl Fn() -> Arc<dyn RetryStrategy>,
) -> Vec<(Result<String, ErrorCode>, usize, Vec<u64>)> {
    let mut seen = Vec::new();
    for streams in [false, true] {
        let (model, world) = (failing(times, code), Arc::new(Virtual::default()));
        let retry = RetryModel::new(model.clone(), strategy(), world.clone());
        let answer = block_on(async {
            if !streams {
                return retry.complete(request()).await.map(|r| r.message.text());
            }
            let mut items = retry.stream(request());
            loop {
                match items.next().await.unwrap() {
                    Ok(ModelEvent::Done(response)) => return Ok(response.message.text()),
                    Ok(_) => {}
                    Err(error) => {
                        assert!(items.next().await.is_none());
                        return Err(error);
                    }
                }
            }
        });
        let waits = world.slept.lock().unwrap().clone();
        seen.push((
            answer.map_err(|error| error.code),
            model.requests().len(),
            waits,
        ));
    }
    seen
}

// spec: UPP-9
#[test]
fn a_request_is_retried_until_its_attempts_are_used_up() {
    let linear = || -> Arc<dyn RetryStrategy> { Arc::new(LinearBackoff::default()) };
    let limited = ErrorCode::RateLimited;
    let well = (Ok("yes".to_owned()), 4, vec![1000, 2000, 3000]);
    assert_eq!(ask(3, &limited, linear), [well.clone(), well]);
    let badly = (Err(limited.clone()), 4, vec![1000, 2000, 3000]);
    assert_eq!(ask(4, &limited, linear), [badly.clone(), badly]);
    let at_once = (Err(ErrorCode::InvalidRequest), 1, vec![]);
    assert_eq!(
        ask(1, &ErrorCode::InvalidRequest, linear),
        [at_once.clone(), at_once]
    );
    let never = (Err(limited.clone()), 1, vec![]);
    assert_eq!(
        ask(1, &limited, || Arc::new(NoRetry)),
        [never.clone(), never]
    );
    // Each attempt takes a token: the second waits for what the pause of two token times has not brought back.
    let bucket = || -> Arc<dyn RetryStrategy> {
        Arc::new(TokenBucket::new(
            std::num::NonZeroU32::MIN,
            Duration::from_millis(100),
        ))
    };
    let held = (Ok("yes".to_owned()), 2, vec![200]);
    assert_eq!(ask(1, &limited, bucket), [held.clone(), held]);
}

#[test]
fn a_request_waits_for_its_token_before_it_is_made() {
    let bucket = TokenBucket::new(std::num::NonZeroU32::MIN, Duration::from_millis(100));
    let model = ScriptedModel::with(|_| Some(Reply::text("yes")));
    let world = Arc::new(Virtual::default());
    let retry = RetryModel::new(Arc::new(model), Arc::new(bucket), world.clone());
    block_on(retry.complete(request())).unwrap();
    block_on(retry.complete(request())).unwrap();
    assert_eq!(block_on(retry.stream(request()).count()), 6);
    assert_eq!(*world.slept.lock().unwrap(), [100, 100]);
}

/// Says something, then breaks off.
struct Breaking(AtomicU64);

impl LlmModel for Breaking {
    fn provider(&self) -> &str {
        "breaking"
    }
    fn model_id(&self) -> &str {
        "b"
    }
    fn capabilities(&self) -> upp::LlmCapabilities {
        upp::LlmCapabilities::text()
    }
    fn complete(
        &self,
        _: LlmRequest,
    ) -> BoxFuture<'static, Result<upp::LlmResponse, upp::UppError>> {
        unreachable!()
    }
    fn stream(&self, _: LlmRequest) -> upp::ModelStream {
        self.0.fetch_add(1, Ordering::SeqCst);
        let event = upp::StreamEvent::bare(upp::StreamEventType::MessageStart, 0);
        let error = upp::UppError::new(ErrorCode::NetworkError, "breaking", "gone");
        futures::stream::iter([Ok(ModelEvent::Event(event)), Err(error)]).boxed()
    }
}

// spec: UPP-9
#[test]
fn a_stream_that_has_given_something_is_not_begun_anew() {
    let model = Arc::new(Breaking(AtomicU64::new(0)));
    let world = Arc::new(Virtual::default());
    let retry = RetryModel::new(model.clone(), Arc::new(LinearBackoff::default()), world);
    let items: Vec<_> = block_on(retry.stream(request()).collect());
    assert!(matches!(items.as_slice(), [Ok(_), Err(_)]));
    assert_eq!(model.0.load(Ordering::SeqCst), 1);
}

/// Counts the requests that succeeded.
#[derive(Default)]
struct Counting(AtomicU64);

impl RetryStrategy for Counting {
    fn on_retry(&self, _: upp::Failure<'_>) -> Option<Duration> {
        Some(Duration::ZERO)
    }
    fn reset(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// spec: UPP-9
#[test]
fn a_strategy_is_told_of_each_request_that_succeeded() {
    let (strategy, world) = (Arc::new(Counting::default()), Arc::new(Virtual::default()));
    let replies = [
        Reply::error(ErrorCode::RateLimited, "no"),
        Reply::text("yes"),
        Reply::text("yes"),
    ];
    let model = Arc::new(ScriptedModel::new(replies));
    let retry = RetryModel::new(model.clone(), strategy.clone(), world);
    assert_eq!(
        (retry.provider(), retry.model_id()),
        (model.provider(), model.model_id())
    );
    block_on(retry.complete(request())).unwrap();
    assert_eq!(strategy.0.load(Ordering::SeqCst), 1);
    let items: Vec<_> = block_on(retry.stream(request()).collect());
    assert!(items.iter().all(Result::is_ok));
    assert_eq!(strategy.0.load(Ordering::SeqCst), 2);
}

/// Tries again whatever has happened.
struct Always;

impl RetryStrategy for Always {
    fn on_retry(&self, _: upp::Failure<'_>) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

// spec: UPP-9
#[test]
fn what_cannot_pass_is_not_retried_whatever_the_strategy_says() {
    let always = || -> Arc<dyn RetryStrategy> { Arc::new(Always) };
    for code in [
        ErrorCode::AuthenticationFailed,
        ErrorCode::ContextLengthExceeded,
        ErrorCode::ModelNotFound,
        ErrorCode::QuotaExceeded,
        ErrorCode::Cancelled,
    ] {
        let once = (Err(code.clone()), 1, vec![]);
        assert_eq!(ask(1, &code, always), [once.clone(), once]);
    }
    let again = (Ok("yes".to_owned()), 2, vec![]);
    assert_eq!(
        ask(1, &ErrorCode::InvalidResponse, always),
        [again.clone(), again]
    );
}
