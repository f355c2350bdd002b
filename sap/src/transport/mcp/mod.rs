//! Capabilities as MCP tools, in both directions: serve them, and call those of somebody else's server.
//!
//! A tool has the name of its capability, takes a task as its arguments, and is answered by the last result, as one
//! text and as structured content. Where results go to an endpoint it is the Ack. A Nack is a tool error that holds
//! it, and so is a FAILED result. A PARTIAL result is a progress notification, with the result as its message, for a
//! client that asks for progress; one that does not read for 30 s is told of no more. A client that cancels its call cancels the task. The schemas of a tool are those
//! of messages, with what is known of its handler ([`Shape`](crate::processor::Shape)) in their places.
//!
//! The tools `sap_status`, `sap_cancel` and `sap_follow` take the `issuer` and the `taskId` of a task that was called
//! before, on any connection. They answer with its latest result, or with the Ack where it has none yet; the last
//! waits for the end, with progress as a call has it.
//!
//! A list of tools has those that the `Authorize` of the processor shows the peer
//! ([`Authorize::shows`](crate::processor::Authorize::shows)), and the three above.
//!
//! MCP carries arguments as values, which a number such as `1.50` or one of twenty digits does not survive. A task
//! with such a number goes as `{"task": "…"}`, the JSON text of it; servers take both forms.
//!
//! Over HTTP the tools are a route (`router`) beside the tasks (`http::serve_with`), with the hosts and
//! origins of that server. Who asks is known as for a task.
//!
//! ```no_run
//! # async fn serve(service: sap::transport::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use rmcp::ServiceExt as _;
//! use sap::transport::mcp::{Bounded, Server};
//!
//! let (input, output) = (tokio::io::empty(), tokio::io::sink()); // standard input and output
//! Server::from(service).serve((Bounded::new(input), output)).await?.waiting().await?;
//! # Ok(())
//! # }
//! ```
//!
#![cfg_attr(feature = "http", doc = "```no_run")]
#![cfg_attr(not(feature = "http"), doc = "```ignore")]
//! # async fn serve(service: sap::transport::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use sap::transport::{http, mcp};
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let tools = mcp::router(mcp::Server::from(service.clone())); // at /mcp
//! http::serve_with(listener, service, http::Config::default(), tools, std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```

mod about;
mod arguments;
mod bounded;
mod calls;
#[cfg(feature = "http")]
mod route;
mod tools;

use core::pin::pin;
use core::time::Duration;
use std::sync::{Arc, OnceLock};

#[cfg(feature = "http")]
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, RequestMetaObject, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::{Peer as Connection, RequestContext, RoleClient, RoleServer, ServiceError};
use rmcp::{ServerHandler, model::ContentBlock::Text};
use serde_json::Value;
use ubos_common::driver::Sleep;
use ubos_common::trace_context::TraceContext;

use self::calls::{Calls, MAX_CALLS};
use self::tools::Tools;
use crate::ident::{CorrelationId, TaskId};
use crate::processor::{Peer, guarded};
use crate::receipt::Nack;
use crate::role::producer::Config;
use crate::status::Status;
use crate::task::Task;
use crate::trace;

use crate::transport::beside::{self, Beside, signed};
use crate::transport::exchange::Exchange;
#[cfg(feature = "http")]
use crate::transport::http::{Closing, Running, asking};
use crate::transport::sent::Heard;
use crate::transport::waits::{Waits, waiting};
use crate::transport::{Caller, Message, SendError, Service};
use crate::validate::{Options, ids_of};
use crate::work::{self, For};

pub use bounded::Bounded;
#[cfg(feature = "http")]
pub use route::{PATH, router};

/// Serves the capabilities of a service as tools. A task of more than 1 MiB is a Nack. Clones share their list of tools,
/// which is made when it is first asked for; each serves a connection of its own.
///
/// | limit of a connection | default | at the limit |
/// |---|---|---|
/// | calls under way, those about tasks among them | 1,024, and 64 more that cancel a task | Nack `RATE_LIMIT`, as a tool error |
///
/// How many answers wait for a client that does not read is bounded by its calls alone: the library below keeps them.
#[derive(Clone, Debug)]
pub struct Server {
    service: Service,
    peer: Peer,
    tools: Arc<OnceLock<Tools>>,
    calls: Calls,
}

impl From<Service> for Server {
    fn from(service: Service) -> Self {
        Self {
            service,
            peer: Peer::default(),
            tools: Arc::default(),
            calls: Calls::new(MAX_CALLS),
        }
    }
}

impl Server {
    /// Sets who is at the other end of the connection, which the protocol does not say. Of a request over HTTP it is who the
    /// extensions name, where there is a [`Peer`] among them: a server of this crate puts who its connection shows there.
    #[must_use]
    pub fn with_peer(mut self, peer: Peer) -> Self {
        self.peer = peer;
        self
    }

    /// Sets how many calls of one connection are under way at the same time.
    #[must_use]
    pub fn with_max_calls(mut self, calls: usize) -> Self {
        self.calls = Calls::new(calls);
        self
    }

    /// The tools that a peer is shown.
    // impl: SAP-11-2
    fn shown(&self, peer: &Peer) -> Vec<Tool> {
        let processor = self.service.processor();
        let of = || Tools::of(processor, about::tools().collect());
        let tools = self.tools.get_or_init(of);
        tools.shown(processor, peer)
    }

    fn peer_of(&self, context: &RequestContext<RoleServer>) -> Peer {
        let mut peer = self.asking(context);
        peer.trace = trace_of(context).or(peer.trace);
        peer
    }

    /// Who is at the other end: by its request, where that came over HTTP.
    // impl: SAP-11-2
    #[cfg(feature = "http")]
    fn asking(&self, context: &RequestContext<RoleServer>) -> Peer {
        let head = context.extensions.get::<axum::http::request::Parts>();
        head.map_or_else(|| self.peer.clone(), |head| asking(head, &self.peer))
    }

    #[cfg(not(feature = "http"))]
    fn asking(&self, _: &RequestContext<RoleServer>) -> Peer {
        self.peer.clone()
    }

    async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        signature: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<Message>, ErrorData> {
        let bytes = arguments::read(arguments).await;
        if bytes.len() > MAX_TASK_BYTES {
            let ids = move || (ids_of(&bytes, &Options::default().limits), bytes);
            let (ids, bytes) = work::apart(For::Stranger, ids).await;
            let nack = malformed("the task is longer than 1 MiB", ids);
            return Ok(Some(self.service.turn_away(nack, &bytes).await));
        }
        let read = self.service.read(&bytes).await;
        if let Ok(task) = &read
            && task.target.capability.as_str() != tool
        {
            let ids = (Some(task.task_id), Some(task.correlation_id));
            let nack = malformed("the tool is not the capability of the task", ids);
            return Ok(Some(self.service.turn_away(nack, &bytes).await));
        }
        let lost = |_| ErrorData::internal_error("the answer could not be written down", None);
        let peer = signed(self.peer_of(context), signature);
        let mut last = Last::new(&self.service, peer, context);
        let correlation_id = match &read {
            Ok(task) => Some(task.correlation_id),
            Err(nack) => nack.correlation_id,
        };
        let span = trace::carry("mcp", correlation_id.as_ref());
        let served = self.service.serve_read(read, &bytes, &mut last);
        let served = trace::within(span, served);
        served.await.map_err(lost)?;
        Ok(last.message)
    }

    /// What is said last to a call, of a capability or about a task.
    async fn said(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<Message>, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        // The library takes `_meta` out of the parameters and puts it here.
        let members = &context.meta.0.0;
        let signature = members.get(beside::SIGNATURE).and_then(Value::as_str);
        let Some(asks) = about::Asks::of(&request.name) else {
            return self
                .call(&request.name, arguments, signature, context)
                .await;
        };
        let peer = signed(self.peer_of(context), signature);
        let mut last = Last::new(&self.service, peer, context);
        Ok(Some(
            asks.answer(&self.service, &arguments, &mut last).await,
        ))
    }

    /// Answers a call, where there is a place for it.
    async fn answer(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let place = self.calls.enter(&request.name);
        let message = match &place {
            Some(_) => self.said(request, context).await?,
            None => {
                let nack = self.calls.refusal(request.arguments.as_ref());
                Some(Message::Nack(self.service.note(nack).await))
            }
        };
        let text = message.as_ref().map(Message::encode);
        let bytes = text.as_ref().map_or(0, Vec::len);
        let mut result = work::done(For::Task, bytes, move || content(text)).await;
        let is_error = match &message {
            Some(Message::Nack(_)) => true,
            Some(Message::Result(said)) => said.status == Status::Failed,
            Some(Message::Ack(_)) | None => false,
        };
        result.is_error = Some(is_error);
        let signature = match &message {
            Some(said) => self.service.signature(said).await,
            None => None,
        };
        if let Some(signature) = signature {
            let mut meta = MetaObject::new();
            meta.0
                .insert(beside::SIGNATURE.to_owned(), signature.into());
            result.meta = Some(meta);
        }
        Ok(result)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let agent = self.service.processor().producer().agent_id.to_string();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(agent, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let peer = self.peer_of(&context);
        // The hook is the application's.
        let shown = guarded(async { self.shown(&peer) }).await;
        let lost = |_| ErrorData::internal_error("a fault of the server ended the call", None);
        Ok(ListToolsResult::with_all_items(shown.map_err(lost)?))
    }

    // impl: SAP-10-3
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Whoever calls would wait for good where a panic ends the call.
        let answered = guarded(self.answer(request, &context)).await;
        let lost = |_| ErrorData::internal_error("a fault of the server ended the call", None);
        answered.map_err(lost)?.map(Into::into)
    }
}

/// The place in a trace that `_meta` names.
fn trace_of(context: &RequestContext<RoleServer>) -> Option<TraceContext> {
    TraceContext::carried(|name| context.meta.0.0.get(name).and_then(Value::as_str))
}

/// Keeps the last message, and tells of those on the way.
struct Last {
    message: Option<Message>,
    peer: Peer,
    /// Where a client asks for progress.
    progress: Option<(Connection<RoleServer>, ProgressToken)>,
    clock: Arc<dyn Sleep + Send + Sync>,
    /// The client gives its call up, or the server that it came by ends.
    cancelled: Option<BoxFuture<'static, ()>>,
    /// The server of HTTP that it came by waits for it.
    #[cfg(feature = "http")]
    _running: Option<Running>,
    partials: u32,
}

impl Last {
    fn new(service: &Service, peer: Peer, context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        let given_up = Box::pin(context.ct.clone().cancelled_owned());
        #[cfg(feature = "http")]
        let running = running(context);
        #[cfg(feature = "http")]
        let given_up: BoxFuture<'static, ()> = match &running {
            Some(running) => Box::pin(select(given_up, running.cancelled()).map(drop)),
            None => given_up,
        };
        Self {
            message: None,
            peer,
            progress: token.map(|token| (context.peer.clone(), token)),
            clock: Arc::clone(service.clock()),
            cancelled: Some(given_up),
            #[cfg(feature = "http")]
            _running: running,
            partials: 0,
        }
    }
}

/// A call that came by a server of HTTP of this crate, as a task of it.
#[cfg(feature = "http")]
fn running(context: &RequestContext<RoleServer>) -> Option<Running> {
    let head = context.extensions.get::<axum::http::request::Parts>()?;
    head.extensions.get().map(Closing::enter)
}

impl Caller for Last {
    fn cancelled(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.cancelled.take()
    }

    fn peer(&self) -> Peer {
        self.peer.clone()
    }

    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        let partial = match (&message, &self.progress) {
            (Message::Result(said), Some(progress)) if said.status == Status::Partial => {
                self.partials += 1;
                let text = String::from_utf8(message.encode()).unwrap_or_default();
                Some((progress.clone(), text))
            }
            _ => None,
        };
        self.message = Some(message);
        let number = f64::from(self.partials);
        Box::pin(async move {
            if let Some(((connection, token), text)) = partial {
                let progress = ProgressNotificationParam::new(token, number).with_message(text);
                let telling = pin!(connection.notify_progress(progress));
                let late = self.clock.now().mono.saturating_add(MAX_TELLING);
                // A client that is gone, or does not read, misses it and all that follow.
                let told = select(telling, self.clock.sleep_until(late)).await;
                if !matches!(told, Either::Left((Ok(()), _))) {
                    self.progress = None;
                }
            }
        })
    }
}

/// An answer with a message as its text and as structured content.
fn content(message: Option<Vec<u8>>) -> CallToolResult {
    let text = message.map(|bytes| String::from_utf8(bytes).unwrap_or_default());
    // The text is what was said: a number such as 1.50 is another one in the structure.
    let structured = text
        .as_ref()
        .and_then(|text| serde_json::from_str(text).ok());
    let mut result = CallToolResult::success(text.into_iter().map(ContentBlock::text).collect());
    result.structured_content = structured;
    result
}

fn malformed(why: &'static str, ids: (Option<TaskId>, Option<CorrelationId>)) -> Nack {
    let mut nack = Nack::malformed(why);
    (nack.message_id, nack.correlation_id) = ids;
    nack
}

/// Sends tasks to the tools of a server, over a connection that is there.
///
/// A call says nothing before its end, so that one of a task, or one that follows a task, is waited for until the time of the
/// task is over.
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | how long after a task's deadline its end may come, and how long an answer about it, or to its cancel, may take | 300 s | [`SendError::NoAnswer`]; the call is given up, and a task that it began is cancelled |
/// | the time of a task that names no deadline | 1 hour | as a deadline |
#[derive(Clone, Debug)]
pub struct McpClient {
    peer: Connection<RoleClient>,
    beside: Beside,
    waits: Waits,
}

waiting! {
    McpClient:
    /// Sets how long after a task's deadline its end may come, and how long an answer about it, or to its cancel, may take.
    with_patience(patience: Duration) by set_patience;

    /// Sets the time of a task that names no deadline. The server may have a time of its own for it.
    with_default_time(time: Duration) by set_default_time;
}

impl McpClient {
    /// A client on a connection, such as `().serve(transport).await?.peer().clone()` gives.
    #[must_use]
    pub fn new(peer: Connection<RoleClient>) -> Self {
        Self {
            peer,
            beside: Beside::default(),
            waits: Waits::new(Config::default().with_patience(PATIENCE, PATIENCE)),
        }
    }

    /// Sets the key that signs tasks.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn with_signing_key(mut self, key: Arc<crate::sign::SigningKey>) -> Self {
        self.beside.key = Some(key);
        self
    }

    /// Takes only results that their producer has signed with one of these keys.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn with_trusted_keys(mut self, keys: Arc<crate::sign::Keys>) -> Self {
        self.beside.keys = Some(keys);
        self
    }

    /// Sets the place in a trace that tasks are sent from: in `_meta`. A clone may have a place of its own.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.beside.trace = Some(trace);
        self
    }

    /// Sends a task and gives what its tool says: a result, a Nack, or the Ack where results go to an endpoint.
    ///
    /// # Errors
    ///
    /// [`SendError`]. Spec: SAP 10
    pub async fn send(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let (bytes, exchange) = self.waits.for_the_end().begin(task).await?;
        let text = String::from_utf8(bytes).map_err(SendError::carrier)?;
        let tool = task.target.capability.to_string();
        let call = (tool, arguments::of(text).await);
        self.call(task, call, exchange, on_message).await?.end()
    }

    /// How far a task is that was sent before: its latest result, or the Ack where it has none yet. A Nack
    /// `NOT_FOUND` where the server does not know it, or where this client may not send it.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn status(&self, task: &Task) -> Result<Message, SendError> {
        let exchange = self.waits.about(task)?;
        self.ask(task, about::STATUS, exchange, &mut |_| {}).await
    }

    /// Has a task stopped that was sent before, and gives how far it is. Its end is CANCELLED where it had not
    /// ended by itself, and comes to those who wait for it.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn cancel(&self, task: &Task) -> Result<Message, SendError> {
        let exchange = self.waits.about(task)?;
        self.ask(task, about::CANCEL, exchange, &mut |_| {}).await
    }

    /// Waits for the end of a task that was sent before, and gives it. It waits as [`send`](Self::send) does, of a task whose
    /// deadline is over for as long as its end may come then.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn follow(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let exchange = self.waits.for_the_end().about(task)?;
        let followed = self.ask(task, about::FOLLOW, exchange, on_message);
        followed.await.map(Some)
    }

    async fn ask(
        &self,
        task: &Task,
        tool: &str,
        exchange: Exchange,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Message, SendError> {
        let call = (tool.to_owned(), about::arguments(task));
        self.call(task, call, exchange, on_message).await?.latest()
    }

    async fn call(
        &self,
        task: &Task,
        (tool, arguments): (String, JsonObject),
        mut exchange: Exchange,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Exchange, SendError> {
        let mut call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let beside = self.beside.of(task).await?;
        if !beside.is_empty() {
            let mut meta = RequestMetaObject::default();
            let members = beside.into_iter();
            meta.0
                .0
                .extend(members.map(|(name, value)| (name.to_owned(), value.into())));
            call.meta = Some(meta);
        }
        let clock = self.waits.clock();
        let calling = self.peer.call_tool_once(call);
        let called = exchange.sent.hear(clock, calling).await?;
        let Heard::Said(called) = called else {
            return Err(none("nothing in time"));
        };
        let answer = match called {
            Ok(CallToolResponse::Complete(answer)) => answer,
            Ok(_) => return Err(none("a tool that asks back")),
            Err(ServiceError::McpError(error)) => {
                return Err(none(&format!("error {} of the server", error.code.0)));
            }
            Err(error) => return Err(SendError::carrier(error)),
        };
        let meta = answer.meta.as_ref();
        let signature = meta.and_then(|meta| meta.0.get(beside::SIGNATURE)?.as_str());
        for block in &answer.content {
            let Text(text) = block else {
                return Err(none("a tool whose answer is no text"));
            };
            let read = self.beside.read(text.text.clone(), signature).await?;
            exchange.take(clock.now(), read, on_message)?;
        }
        Ok(exchange)
    }
}

fn none(what: &str) -> SendError {
    SendError::NoAnswer { what: what.into() }
}

/// Bytes of one task.
const MAX_TASK_BYTES: usize = 1 << 20;
/// How long one progress notification waits for a client that is slow to read.
const MAX_TELLING: Duration = Duration::from_secs(30);
/// How long a server may take where nothing else is set.
const PATIENCE: Duration = Duration::from_secs(300);
