//! What the model says in the runs of the strategy checker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_core::future::BoxFuture;
use ubos_common::json::RawObject;
use upp::{
    ErrorCode, LlmCapabilities, LlmModel, LlmRequest, LlmResponse, ModelReference, ModelStream,
    Reply, ScriptedModel, UppError,
};

/// A model, made anew for each run.
pub(super) struct Script<'a> {
    pub(super) name: &'static str,
    pub(super) make: Box<dyn Fn() -> ModelReference + 'a>,
    /// Whether the agent has tools to offer.
    pub(super) tools: bool,
    /// The step at whose end the stop condition says stop.
    pub(super) stop_at: Option<u64>,
}

impl<'a> Script<'a> {
    pub(super) fn new(
        name: &'static str,
        reply: impl Fn(&LlmRequest, usize) -> Reply + Clone + Send + 'static,
    ) -> Self {
        let make = move || {
            let (reply, mut actions) = (reply.clone(), 0);
            let model = ScriptedModel::with(move |request| {
                actions += usize::from(request.offers_tools());
                Some(reply(request, actions))
            });
            Arc::new(model) as ModelReference
        };
        Self {
            name,
            make: Box::new(make),
            tools: true,
            stop_at: None,
        }
    }

    pub(super) fn of_author<R: IntoIterator<Item = Reply>>(replies: impl Fn() -> R + 'a) -> Self {
        Self {
            name: "the given script",
            make: Box::new(move || Arc::new(ScriptedModel::new(replies()))),
            tools: true,
            stop_at: None,
        }
    }

    const fn without_tools(mut self) -> Self {
        self.tools = false;
        self
    }

    const fn stopped_at(mut self, step: u64) -> Self {
        self.stop_at = Some(step);
        self
    }
}

/// An answer that is a plan, for who wants one, and a text for who does not.
const PLAN: &str = r#"{"steps":[{"id":"one","description":"begin","dependsOn":[]},{"id":"two","description":"end","dependsOn":["one"]}]}"#;

/// The scripts that every strategy is put through. `actions` counts the questions that tools were offered in.
pub(super) fn all() -> [Script<'static>; 6] {
    let offers = |request: &LlmRequest| request.offers_tools();
    [
        Script::new("answers alone", |_, _| Reply::text(PLAN)),
        Script::new("three calls, then answers", move |request, actions| {
            if offers(request) && actions <= 3 {
                call(Reply::text("call").in_pieces_of(2), "echo", actions)
            } else {
                Reply::text(PLAN)
            }
        }),
        Script::new("calls side by side", move |request, actions| {
            if offers(request) && actions == 1 {
                call(call(Reply::default(), "echo", 1), "fail", 2)
            } else {
                Reply::text(PLAN)
            }
        }),
        Script::new("nothing said", |_, _| Reply::default()),
        Script::new("calls without tools", |_, actions| {
            call(Reply::text(PLAN), "echo", actions)
        })
        .without_tools(),
        // A strategy may stay in its step until no tool is called: the calls come to an end.
        Script::new("twelve calls and a stop", move |request, actions| {
            if offers(request) && actions <= 12 {
                call(Reply::default(), "echo", actions)
            } else {
                Reply::text(PLAN)
            }
        })
        .stopped_at(3),
    ]
}

fn call(reply: Reply, tool: &str, n: usize) -> Reply {
    reply.calling(format!("call-{n}"), tool, RawObject::empty())
}

/// A model that fails at one question, counted from 0, or at all.
pub(super) struct FailingModel {
    model: ModelReference,
    at: Option<usize>,
    asked: AtomicUsize,
}

impl FailingModel {
    pub(super) fn new(model: ModelReference, at: Option<usize>) -> Self {
        Self {
            model,
            at,
            asked: AtomicUsize::new(0),
        }
    }

    fn fails_now(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        self.at.is_none_or(|at| at == asked)
    }
}

impl LlmModel for FailingModel {
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
        if self.fails_now() {
            return UnavailableModel.complete(request);
        }
        self.model.complete(request)
    }

    fn stream(&self, request: LlmRequest) -> ModelStream {
        if self.fails_now() {
            return UnavailableModel.stream(request);
        }
        self.model.stream(request)
    }
}

/// Answers nothing.
struct UnavailableModel;

impl LlmModel for UnavailableModel {
    fn provider(&self) -> &str {
        "broken"
    }

    fn model_id(&self) -> &str {
        "broken"
    }

    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities::text()
    }

    fn complete(&self, _: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        let error = UppError::new(ErrorCode::ProviderError, self.provider(), "out of order");
        Box::pin(core::future::ready(Err(error)))
    }
}
