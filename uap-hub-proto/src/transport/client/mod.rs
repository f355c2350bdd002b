//! A fleet agent on gRPC that runs handlers.

mod call;
mod handler;
mod route;
mod shared;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::broadcast, task::JoinHandle};
use tonic::{metadata::AsciiMetadataValue, transport::Endpoint};
use ubos_common::{id::IdSource, secret::Secret};

pub use self::handler::{Context, HandlerError};
use self::{
    handler::{Failures, Handler},
    route::Route,
    shared::Shared,
};
#[cfg(feature = "tls")]
use super::Tls;
use super::{CONNECTION_WINDOW, KEEP_ALIVE_TIMEOUT, MIN_KEEP_ALIVE, STREAM_WINDOW, lock, spawn};
use crate::{
    ConfigError,
    capability::Skill,
    id::{ClientId, SessionId},
    role::agent::{Config, Event},
    wire::{
        Capability, Payload, TestCapability, TestResult, TranslationCapability, TranslationResult,
        capability::Format,
    },
};

ubos_common::config! {
    /// Builds an agent out of handlers.
    ///
    /// ```no_run
    /// use uap_hub_proto::{transport::client::AgentBuilder, wire::TestResult};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// AgentBuilder::new("sums")
    ///     .on_test("sum", |payloads, context| async move {
    ///         context.progress(0, payloads.len(), "reading").await?;
    ///         Ok(TestResult::completed("all sums are right"))
    ///     })
    ///     .run("http://127.0.0.1:9000")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    AgentBuilder {
        /// Sets how often an idle connection is pinged: 20 s by default, and at least [`MIN_KEEP_ALIVE`].
        with_keep_alive: keep_alive: Duration = Duration::from_secs(20),
        /// Sets how long the hub may take to answer a ping before its connection counts as dead: 20 s by default.
        with_keep_alive_timeout: keep_alive_timeout: Duration = KEEP_ALIVE_TIMEOUT,
    }
    also {
        config: Config = Config::default(),
        handlers: HashMap<Skill, Handler> = HashMap::new(),
        max_waiting: usize = 64,
        failures: Failures = Failures::default(),
        token: Option<Secret<String>> = None,
        #[cfg(feature = "tls")]
        tls: Option<Tls> = None,
    }
}

impl AgentBuilder {
    /// An agent with a display name and no handler. The name is for people: it need not be unique, and may be empty.
    ///
    /// Spec: UAP hub 2.1
    pub fn new(name: impl Into<String>) -> Self {
        Self::default().configure(|config| config.with_name(name))
    }

    /// Runs tests of a type, or of a capability with the payloads that it requires. The handler gets the job's payloads; its
    /// error, or its panic, fails the job.
    #[must_use]
    pub fn on_test<F, Fut>(self, capability: impl Into<TestCapability>, handler: F) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TestResult, HandlerError>> + Send + 'static,
    {
        let capability = capability.into();
        let skill = Skill::test(capability.r#type.as_str());
        self.on(skill, Format::Test(capability), Handler::new(handler))
    }

    /// Runs translations to a format, or of a capability with the payloads that it takes and makes.
    #[must_use]
    pub fn on_translation<F, Fut>(
        self,
        capability: impl Into<TranslationCapability>,
        handler: F,
    ) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TranslationResult, HandlerError>> + Send + 'static,
    {
        let capability = capability.into();
        let skill = Skill::translation(capability.r#type.as_str());
        let format = Format::Translation(capability);
        self.on(skill, format, Handler::new(handler))
    }

    /// Tells of each failure of a handler, with the error that it was made of, before the hub is told its words. It runs on the
    /// handler's task: it must not block. A panic in it changes nothing.
    #[must_use]
    pub fn on_failure(
        mut self,
        told: impl Fn(&SessionId, &HandlerError) + Send + Sync + 'static,
    ) -> Self {
        self.failures = Failures::new(told);
        self
    }

    fn on(mut self, skill: Skill, format: Format, handler: Handler) -> Self {
        let format = Some(format);
        self.config.capabilities.push(Capability { format });
        self.handlers.insert(skill, handler);
        self
    }

    /// Changes the settings of the agent itself, such as how many sessions it runs at the same time.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(Config) -> Config) -> Self {
        self.config = change(self.config);
        self
    }

    /// Sends a token with every call, as `authorization: Bearer ...`. Without TLS everybody on the path can read it.
    #[must_use]
    pub fn with_bearer_token(mut self, token: impl Into<Secret<String>>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Uses TLS; the hub's URL then begins with `https://`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts the agent on the current tokio runtime. It retries forever until it finds the hub.
    ///
    /// # Errors
    ///
    /// The URL, the configuration, a capability, the token or the TLS settings are wrong, or the operating system gave
    /// no randomness.
    pub fn start(self, url: &str) -> Result<AgentHandle, StartError> {
        let endpoint = self.endpoint(url)?;
        let token = self.token.as_ref().map(bearer).transpose()?;
        // impl: HUB-4-6
        ConfigError::at_least("keep_alive", self.keep_alive, MIN_KEEP_ALIVE)?;
        ConfigError::not_zero("keep_alive_timeout", self.keep_alive_timeout)?;
        let ids = IdSource::from_os_without_forks().map_err(|_| StartError::Randomness)?;
        let route = Route { endpoint, token };
        let (shared, first) = Shared::new(
            self.config,
            route,
            (self.handlers, self.failures),
            self.max_waiting,
            ids,
        )?;
        let timer = spawn(shared.clone().tick());
        let first = Mutex::new(Some(first));
        Ok(AgentHandle {
            shared,
            timer,
            first,
        })
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint, StartError> {
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| StartError::Url)?;
        let endpoint = self.secured(endpoint)?;
        Ok(endpoint
            .connect_timeout(self.config.register_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.keep_alive)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW))
    }

    #[cfg(feature = "tls")]
    fn secured(&self, endpoint: Endpoint) -> Result<Endpoint, StartError> {
        match (&self.tls, endpoint.uri().scheme_str()) {
            (Some(tls), Some("https")) => endpoint
                .tls_config(tls.of_agent()?)
                .map_err(|_| StartError::Tls),
            (None, Some("http")) => Ok(endpoint),
            (Some(_) | None, _) => Err(StartError::Scheme),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secured(&self, endpoint: Endpoint) -> Result<Endpoint, StartError> {
        match endpoint.uri().scheme_str() {
            Some("http") => Ok(endpoint),
            _ => Err(StartError::Scheme),
        }
    }

    /// Starts the agent and waits until it is closed, which it never does by itself.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn run(self, url: &str) -> Result<(), StartError> {
        let agent = self.start(url)?;
        agent.closed().await;
        Ok(())
    }
}

/// A token as metadata that no log shows.
fn bearer(token: &Secret<String>) -> Result<AsciiMetadataValue, StartError> {
    let text = Secret::new(format!("Bearer {}", token.expose()));
    let mut value =
        AsciiMetadataValue::try_from(text.expose().as_str()).map_err(|_| StartError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Why an agent cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The hub's address.
    #[error("the hub's address is not a URL")]
    Url,
    /// The scheme of the URL: `http` without TLS settings, `https` with them.
    #[error(
        "the hub's address must begin with http:// without TLS settings, and with https:// with them"
    )]
    Scheme,
    /// The token.
    #[error("the token has characters that metadata cannot carry")]
    Token,
    /// The TLS settings.
    #[error("a certificate or key cannot be read")]
    Tls,
    /// The configuration cannot work, or a hub would refuse the capabilities.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness")]
    Randomness,
}

/// A running agent. Dropping the handle stops it at once, with its handlers.
#[derive(Debug)]
pub struct AgentHandle {
    shared: Arc<Shared>,
    timer: JoinHandle<()>,
    /// The events since the start, for the first who asks.
    first: Mutex<Option<broadcast::Receiver<Event>>>,
}

impl AgentHandle {
    /// The first time, events from the start on; then from now on. A reader that lags behind by more than 1,024 loses the
    /// oldest and is told so.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        let first = lock(&self.first).take();
        first.unwrap_or_else(|| self.shared.news.subscribe())
    }

    /// Waits until the hub may offer it jobs, and returns its client id; `None` if the agent has left. It is registered then, and
    /// its control stream is opened. That the hub takes it is not waited for, because hubs say nothing on it before their first
    /// offer: one that refuses it is told as [`Event::Retrying`].
    pub async fn connected(&self) -> Option<ClientId> {
        let (mut listening, mut closed) = (
            self.shared.listening.subscribe(),
            self.shared.closed.subscribe(),
        );
        // The senders live as long as this handle.
        tokio::select! {
            // An agent that has left is not connected, whatever its id was.
            biased;
            _ = closed.wait_for(|closed| *closed) => None,
            id = listening.wait_for(Option::is_some) => id.ok().and_then(|id| id.clone()),
        }
    }

    /// Leaves: takes no more sessions, gives the running ones `drain`, then closes the control stream.
    pub async fn shutdown(&self, drain: Duration) {
        self.shared.act(|agent, now| agent.shutdown(now, drain));
        self.closed().await;
    }

    /// Waits until the agent has left.
    pub async fn closed(&self) {
        // The sender lives as long as this handle.
        let _ = self
            .shared
            .closed
            .subscribe()
            .wait_for(|closed| *closed)
            .await;
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.timer.abort();
        self.shared.stop();
    }
}
