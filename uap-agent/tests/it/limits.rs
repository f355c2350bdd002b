//! Time ends a run, a request and a tool; what cannot pass is not tried again; nothing that hangs or panics holds a run.

use std::future::pending;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, future};
use uap_agent::middleware::{Budget, retry};
use uap_agent::strategy::StrategyRun;
use uap_agent::{
    AgentError, AgentOptions, AgentState, AgentStrategy, ExecutionStrategy, GenerateResult,
    HookFuture, LoopOptions, Middleware, PlanOptions, Runtime, agent, plan, tool_loop,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    ErrorCode, Failure, FnTool, LinearBackoff, Metadata, Reply, RetryStrategy, ScriptedModel,
    TokenBucket, Tool, ToolContext, ToolError, object,
};

use crate::support::{Noting, calling, script};

/// A clock that stands where its last sleeper wanted it.
#[derive(Clone, Default)]
struct Jumping(Arc<AtomicU64>);

impl Sleep for Jumping {
    fn now(&self) -> Now {
        let nanos = Duration::from_nanos(self.0.load(Ordering::Relaxed));
        Now::new(Mono::ZERO.saturating_add(nanos), Timestamp::EPOCH)
    }
    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let nanos = deadline.saturating_since(Mono::ZERO).as_nanos();
            clock
                .0
                .fetch_max(u64::try_from(nanos).unwrap(), Ordering::Relaxed);
        })
    }
}

fn options(model: &Arc<ScriptedModel>) -> AgentOptions {
    crate::support::options(model).with_runtime(Runtime::new(
        Arc::new(Jumping::default()),
        IdSource::seeded(7),
    ))
}

fn hanging() -> Reply {
    Reply::text("never").after(pending)
}

const HOUR: Duration = Duration::from_secs(3_600);

// spec: UAP-11-1
#[test]
fn a_run_ends_with_its_time() {
    let slow = || calling("x", "c", r#"{"hang":1}"#);
    for replies in [vec![hanging()], vec![slow()]] {
        let hooks = Arc::new(Noting::default());
        let options = options(&script(replies))
            .with_strategy(hooks.clone())
            .with_max_time(HOUR);
        let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
        assert_eq!(error.error.code, ErrorCode::Timeout);
        assert!(hooks.take().iter().any(|seen| seen.starts_with("error")));
    }
    // A hook that hangs is dropped, the error hook after a moment.
    for hangs_at in ["start", "error"] {
        let options = options(&script([Reply::error(ErrorCode::ProviderError, "no")]))
            .with_strategy(Arc::new(Hanging(hangs_at)))
            .with_max_time(HOUR);
        let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
        assert!(matches!(
            error.error.code,
            ErrorCode::Timeout | ErrorCode::ProviderError
        ));
    }
    let options = crate::support::options(&script([Reply::text("in time")])).with_max_time(HOUR);
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!(turn.response.text(), "in time");
}

struct Hanging(&'static str);

impl AgentStrategy for Hanging {
    fn on_step_start<'a>(&'a self, _: u64, _: &'a AgentState) -> HookFuture<'a, ()> {
        match self.0 {
            "start" => Box::pin(pending()),
            _ => Box::pin(future::ready(Ok(()))),
        }
    }
    fn on_error<'a>(&'a self, _: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        match self.0 {
            "error" => Box::pin(pending()),
            _ => Box::pin(future::ready(Ok(None))),
        }
    }
}

// spec: UAP-11-1
#[test]
fn an_abort_ends_a_hook_that_hangs() {
    for hangs_at in ["start", "error"] {
        let options = options(&script([Reply::error(ErrorCode::ProviderError, "no")]))
            .with_strategy(Arc::new(Hanging(hangs_at)));
        let agent = agent(options).unwrap();
        let mut run = agent.stream("go", &agent.initial_state());
        while run.next().now_or_never().is_some() {}
        run.abort();
        let error = block_on(run.result()).unwrap_err();
        let wanted = match hangs_at {
            "start" => ErrorCode::Cancelled,
            _ => ErrorCode::ProviderError,
        };
        assert_eq!(error.error.code, wanted);
    }
}

/// An error hook that is not done when it is asked for the first time.
struct Unhurried(Arc<AtomicBool>);

impl AgentStrategy for Unhurried {
    fn on_error<'a>(&'a self, _: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        let mut is_asked = false;
        Box::pin(future::poll_fn(move |cx| {
            if core::mem::replace(&mut is_asked, true) {
                self.0.store(true, Ordering::SeqCst);
                return Poll::Ready(Ok(None));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

// spec: UAP-11-1
#[test]
fn an_error_hook_has_a_moment_after_an_abort() {
    let is_done = Arc::new(AtomicBool::new(false));
    let options = crate::support::options(&script([hanging()]))
        .with_strategy(Arc::new(Unhurried(Arc::clone(&is_done))));
    let agent = agent(options).unwrap();
    let mut run = agent.stream("go", &agent.initial_state());
    while run.next().now_or_never().is_some() {}
    run.abort();
    let error = block_on(run.result()).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Cancelled);
    assert!(is_done.load(Ordering::SeqCst));
}

// spec: UAP-11-1
#[test]
fn an_error_hook_takes_its_time_where_nobody_aborts() {
    let is_done = Arc::new(AtomicBool::new(false));
    let options = options(&script([Reply::error(ErrorCode::ProviderError, "no")]))
        .with_strategy(Arc::new(Unhurried(Arc::clone(&is_done))));
    let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::ProviderError);
    assert!(is_done.load(Ordering::SeqCst));
}

/// Tries everything again.
struct Stubborn;

impl RetryStrategy for Stubborn {
    fn on_retry(&self, _: Failure<'_>) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

// spec: UAP-16-1
#[test]
fn a_request_ends_with_its_time_and_may_be_tried_again() {
    let model = script([hanging(), Reply::text("second")]);
    let options = options(&model)
        .with_max_model_time(HOUR)
        .with_middleware([retry(Arc::new(Stubborn))]);
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!(
        (turn.response.text().as_str(), model.requests().len()),
        ("second", 2)
    );

    let options = self::options(&script([hanging()])).with_max_model_time(HOUR);
    let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Timeout);
}

/// A model whose first response ends after so many events.
struct Breaking {
    model: Arc<ScriptedModel>,
    ends_after: Mutex<Option<usize>>,
}

impl upp::LlmModel for Breaking {
    fn provider(&self) -> &str {
        self.model.provider()
    }
    fn model_id(&self) -> &str {
        self.model.model_id()
    }
    fn capabilities(&self) -> upp::LlmCapabilities {
        self.model.capabilities()
    }
    fn complete(
        &self,
        request: upp::LlmRequest,
    ) -> BoxFuture<'static, Result<upp::LlmResponse, upp::UppError>> {
        self.model.complete(request)
    }
    fn stream(&self, request: upp::LlmRequest) -> upp::ModelStream {
        let ends_after = self.ends_after.lock().unwrap().take();
        let whole = self.model.stream(request);
        Box::pin(whole.take(ends_after.unwrap_or(usize::MAX)))
    }
}

// spec: UAP-16-1
#[test]
fn a_response_that_ends_without_an_answer_is_an_error() {
    let asked = |events: usize, retries: bool| {
        let model = script([Reply::text("first"), Reply::text("second")]);
        let breaking = Breaking {
            model: Arc::clone(&model),
            ends_after: Mutex::new(Some(events)),
        };
        let mut options = options(&model).map_llm(|llm| llm.with_model(Arc::new(breaking)));
        if retries {
            options = options.with_middleware([retry(Arc::new(Stubborn))]);
        }
        agent(options).unwrap()
    };
    // Only what nothing was heard of is asked again.
    for (events, retries, is_answered) in [(0, false, false), (0, true, true), (1, true, false)] {
        let agent = asked(events, retries);
        let state = agent.initial_state();
        let judge = |result: Result<GenerateResult, Box<AgentError>>| match result {
            Ok(result) => assert_eq!(
                (result.turn.response.text().as_str(), is_answered),
                ("second", true)
            ),
            Err(error) => assert_eq!(
                (&error.error.code, &*error.error.message, is_answered),
                (
                    &ErrorCode::InvalidResponse,
                    "the model's stream ended without an answer",
                    false
                )
            ),
        };
        let ended = agent.generate("go", &state).now_or_never();
        judge(ended.expect("nothing is waited for"));
        #[cfg(feature = "canon")]
        {
            use uap_agent::journal::{MemoryJournal, Recording};
            let agent = asked(events, retries);
            let journal = Arc::new(MemoryJournal::default());
            judge(block_on(
                agent.record(journal.clone(), "go", &state).result(),
            ));
            let recording = block_on(Recording::load(journal.as_ref())).unwrap();
            judge(agent.replay(&recording).unwrap().result.unwrap());
        }
    }
}

// spec: UAP-16-1
#[test]
fn a_tool_ends_with_its_time_and_hears_of_it() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tokens = Arc::clone(&told);
    let run = move |_, context: ToolContext| {
        tokens.lock().unwrap().push(context.cancel);
        pending()
    };
    let slow = FnTool::new("slow", "d", object("{}").unwrap(), run);
    let model = script([
        Reply::text("x").calling("c", "slow", object("{}").unwrap()),
        Reply::text("done"),
    ]);
    let options = options(&model).with_tool(slow).with_max_tool_time(HOUR);
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    let execution = turn.tool_executions.get(0).unwrap();
    assert!(execution.is_error && execution.result.as_str().contains("too long"));
    assert_eq!(turn.response.text(), "done");
    assert!(
        told.lock()
            .unwrap()
            .iter()
            .all(upp::CancelToken::is_cancelled)
    );
}

// spec: UAP-16-1
#[test]
fn a_budget_of_time_ends_a_model_that_hangs() {
    let budget = || [Arc::new(Budget::default().with_max_time(HOUR)) as Arc<dyn Middleware>];
    let options = options(&script([hanging()])).with_middleware(budget());
    let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::QuotaExceeded);
    // What the model has said before is the result.
    let replies = [calling("first", "c", "{}"), hanging()];
    let options = self::options(&script(replies)).with_middleware(budget());
    let turn = block_on(agent(options).unwrap().query("go")).unwrap();
    assert_eq!(turn.response.text(), "first");
}

// spec: UAP-5-4, UAP-16-1
#[test]
fn what_cannot_pass_is_not_tried_again() {
    for code in [
        ErrorCode::AuthenticationFailed,
        ErrorCode::ContextLengthExceeded,
        ErrorCode::ModelNotFound,
    ] {
        let refuse = |code: &ErrorCode| {
            let code = code.clone();
            Arc::new(ScriptedModel::with(move |_| {
                Some(Reply::error(code.clone(), "no"))
            }))
        };
        let model = refuse(&code);
        let options = options(&model).with_middleware([retry(Arc::new(Stubborn))]);
        let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
        assert_eq!((&error.error.code, model.requests().len()), (&code, 1));

        // The plan is made; its first step fails.
        let planned = Mutex::new(Some(Reply::text(
            r#"{"steps":[{"id":"a","description":"do","dependsOn":[]}]}"#,
        )));
        let failing = code.clone();
        let model = Arc::new(ScriptedModel::with(move |_| {
            let error = || Reply::error(failing.clone(), "no");
            Some(planned.lock().unwrap().take().unwrap_or_else(error))
        }));
        let options = self::options(&model).with_execution(plan(PlanOptions::default()).unwrap());
        let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
        assert_eq!((&error.error.code, model.requests().len()), (&code, 2));
    }
}

struct Panicking;

impl ExecutionStrategy for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        panic!("no run")
    }
}

struct Nameless {
    panics_at: &'static str,
    schema: ubos_common::json::RawObject,
}

impl Tool for Nameless {
    fn name(&self) -> &str {
        assert_ne!(self.panics_at, "name");
        "nameless"
    }
    fn description(&self) -> &str {
        "d"
    }
    fn parameters(&self) -> &ubos_common::json::RawObject {
        &self.schema
    }
    fn metadata(&self) -> Option<&Metadata> {
        assert_ne!(self.panics_at, "metadata");
        None
    }
    fn run<'a>(
        &'a self,
        _: &'a ubos_common::json::RawObject,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ubos_common::json::RawBuf, ToolError>> {
        Box::pin(future::ready(Ok(upp::json_text("x"))))
    }
}

// spec: UAP-11-1
#[test]
fn a_panic_is_an_error_of_the_run() {
    let options = options(&script([Reply::text("x")])).with_execution(Arc::new(Panicking));
    let error = block_on(agent(options).unwrap().query("go")).unwrap_err();
    assert_eq!(&*error.error.message, "the strategy panicked");
    for panics_at in ["name", "metadata"] {
        let agent = || {
            let nameless = Nameless {
                panics_at,
                schema: object("{}").unwrap(),
            };
            let call = Reply::text("x").calling("c", "nameless", object("{}").unwrap());
            let options = self::options(&script([call, Reply::text("done")]))
                .with_tools([Arc::new(nameless) as Arc<dyn Tool>])
                .with_execution(tool_loop(LoopOptions::default()).unwrap());
            agent(options).unwrap()
        };
        let judge = |result: Result<GenerateResult, Box<AgentError>>| match result {
            Ok(result) => assert!(result.turn.tool_executions.get(0).unwrap().is_error),
            Err(error) => assert!(error.error.message.contains("panicked"), "{error}"),
        };
        let queried = agent();
        judge(block_on(queried.generate("go", &queried.initial_state())));
        #[cfg(feature = "canon")]
        {
            let journal = Arc::new(uap_agent::journal::MemoryJournal::default());
            let agent = agent();
            let run = agent.record(journal, "go", &agent.initial_state());
            judge(block_on(run.result()));
        }
    }
}

// spec: UAP-11-1
#[test]
fn a_model_that_is_always_ready_leaves_others_their_turn() {
    let model = ScriptedModel::with(|request| {
        let n = request.messages.len();
        Some(calling("again", &format!("c{n}"), "{}"))
    });
    let agent = agent(options(&Arc::new(model))).unwrap();
    let run = agent.stream("go", &agent.initial_state());
    let abort = run.abort_handle();
    // It ends only if the other future is polled.
    let other = async move {
        for _ in 0..3 {
            let mut waited = false;
            future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                match std::mem::replace(&mut waited, true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        abort.cancel();
    };
    let (result, ()) = block_on(future::join(run.result(), other));
    assert_eq!(result.unwrap_err().error.code, ErrorCode::Cancelled);
}

/// A clock whose sleepers are never woken: what looks at the time is the run.
#[derive(Clone, Default)]
struct Deaf(Arc<AtomicU64>);
impl Sleep for Deaf {
    fn now(&self) -> Now {
        let nanos = self.0.load(Ordering::Relaxed);
        Now::new(Mono::from_nanos(nanos), Timestamp::EPOCH)
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}

// spec: UAP-11-1
#[test]
fn nothing_is_begun_once_the_time_is_over() {
    let clock = Deaf::default();
    let late = clock.clone();
    let tool = FnTool::new("slow", "", object("{}").unwrap(), move |input, _| {
        late.0
            .store(u64::try_from(HOUR.as_nanos()).unwrap(), Ordering::Relaxed);
        async { Ok(input.into()) }
    });
    let model = Arc::new(ScriptedModel::new([
        Reply::default().calling("c", "slow", object("{}").unwrap()),
        Reply::text("done"),
    ]));
    let agent = agent(
        AgentOptions::new(model.clone())
            .with_tool(tool)
            .with_max_time(HOUR)
            .with_runtime(Runtime::new(Arc::new(clock), IdSource::seeded(7))),
    )
    .unwrap();
    let error = block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Timeout);
    assert_eq!(model.requests().len(), 1);
}

// spec: UAP-11-1
#[test]
fn a_response_that_is_always_ready_ends_with_the_time_of_its_request() {
    let clock = Deaf::default();
    let late = clock.clone();
    let reply = Reply::text("too late").after(move || {
        late.0
            .store(u64::try_from(HOUR.as_nanos()).unwrap(), Ordering::Relaxed);
        std::future::ready(())
    });
    let agent = agent(
        AgentOptions::new(Arc::new(ScriptedModel::new([reply])))
            .with_max_model_time(HOUR)
            .with_runtime(Runtime::new(Arc::new(clock), IdSource::seeded(7))),
    )
    .unwrap();
    let error = block_on(agent.generate("go", &agent.initial_state())).unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Timeout);
}

/// A clock that stands still, and whose sleepers are woken too early.
struct Early;
impl Sleep for Early {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(future::ready(()))
    }
}

/// Ready when it has been polled some times.
async fn after_some_polls() {
    let mut left = 9;
    future::poll_fn(|cx| {
        left -= 1;
        cx.waker().wake_by_ref();
        match left {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
}

// spec: UAP-11-1
#[test]
fn a_timer_that_is_ready_early_ends_nothing() {
    let run = |limit: &str| {
        let model = Arc::new(ScriptedModel::new([
            calling("x", "c", "{}").after(after_some_polls),
            Reply::text("done").after(after_some_polls),
        ]));
        let tool = FnTool::new("echo", "", object("{}").unwrap(), |_, _| async {
            after_some_polls().await;
            Ok(upp::json_text("patient"))
        });
        let budget = Arc::new(Budget::default().with_max_time(HOUR));
        let options = AgentOptions::new(model)
            .with_tool(tool)
            .with_runtime(Runtime::new(Arc::new(Early), IdSource::seeded(7)));
        let options = match limit {
            "run" => options.with_max_time(HOUR),
            "model" => options.with_max_model_time(HOUR),
            "tool" => options.with_max_tool_time(HOUR),
            _ => options.with_middleware([budget as Arc<dyn Middleware>]),
        };
        block_on(agent(options).unwrap().query("go"))
    };
    for limit in ["run", "model", "tool", "budget"] {
        let turn = run(limit).unwrap();
        assert_eq!(turn.response.text(), "done", "{limit}");
        assert!(
            turn.tool_executions.iter().all(|it| !it.is_error),
            "{limit}"
        );
    }
}

// spec: UAP-16-1
#[test]
fn a_wait_between_attempts_ends_with_the_budget_of_time() {
    const SECOND: Duration = Duration::from_secs(1);
    let clock = Jumping::default();
    let run_with = |slow: Arc<dyn RetryStrategy>, replies: Vec<Reply>, time: Duration| {
        let model = script(replies);
        let budget = Budget::default().with_max_time(time);
        let clock = clock.clone();
        let before = clock.now().mono;
        let layers = [Arc::new(budget) as Arc<dyn Middleware>, retry(slow)];
        let options = crate::support::options(&model)
            .with_middleware(layers)
            .with_runtime(Runtime::new(Arc::new(clock.clone()), IdSource::seeded(7)));
        let result = block_on(agent(options).unwrap().query("go"));
        let took = clock.now().mono.saturating_since(before);
        (result, took, model.requests().len())
    };
    let run = |replies: Vec<Reply>, time: Duration| {
        let slow = LinearBackoff::default().with_delay(HOUR);
        run_with(Arc::new(slow), replies, time)
    };
    let limited = || Reply::error(ErrorCode::RateLimited, "slow");
    let (result, took, requests) = run(vec![limited(), Reply::text("late")], SECOND);
    assert_eq!(result.unwrap_err().error.code, ErrorCode::QuotaExceeded);
    assert_eq!((took, requests), (SECOND, 1));
    // A run that has said something ends with that.
    let replies = vec![calling("one", "c", "{}"), limited(), Reply::text("late")];
    let (result, took, requests) = run(replies, SECOND);
    assert_eq!(result.unwrap().response.text(), "one");
    assert_eq!((took, requests), (SECOND, 2));
    // A wait that ends in time is waited for.
    let (result, took, _) = run(vec![limited(), Reply::text("in time")], 2 * HOUR);
    assert_eq!(result.unwrap().response.text(), "in time");
    assert_eq!(took, HOUR);
    // A wait before the first attempt is one, too.
    let bucket = TokenBucket::new(NonZeroU32::MIN, HOUR);
    bucket.before_request(clock.now().mono);
    let (result, took, requests) = run_with(Arc::new(bucket), vec![Reply::text("late")], SECOND);
    assert_eq!(result.unwrap_err().error.code, ErrorCode::QuotaExceeded);
    assert_eq!((took, requests), (SECOND, 0));
}
