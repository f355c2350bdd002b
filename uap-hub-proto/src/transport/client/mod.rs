//! A fleet agent on gRPC that runs handlers.

mod call;
mod handler;
mod route;
mod shared;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::broadcast, task::JoinHandle};
use tonic::{metadata::AsciiMetadataValue, transport::Endpoint};
use ubos_common::{id::IdSource, secret::Secret};

pub use self::handler::{Context, HandlerError};
use self::{handler::Handler, route::Route, shared::Shared};
#[cfg(feature = "tls")]
use super::tls::ClientTls;
use super::{CONNECTION_WINDOW, KEEP_ALIVE_TIMEOUT, MIN_KEEP_ALIVE, STREAM_WINDOW, spawn};
use crate::{
    ConfigError,
    capability::Skill,
    role::agent::{Config, Event},
    wire::{
        Capability, Payload, PayloadRequirement, TestCapability, TestResult, TranslationCapability,
        TranslationResult, capability::Format,
    },
};

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
#[derive(Debug)]
pub struct AgentBuilder {
    config: Config,
    handlers: HashMap<Skill, Handler>,
    keep_alive: Duration,
    keep_alive_timeout: Duration,
    max_waiting: usize,
    token: Option<Secret<String>>,
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
}

impl AgentBuilder {
    /// An agent with a display name and no handler.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            config: Config::default().with_name(name),
            handlers: HashMap::new(),
            keep_alive: Duration::from_secs(20),
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
            max_waiting: 64,
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Runs tests of a type. The handler gets the job's payloads; its error, or its panic, fails the job.
    #[must_use]
    pub fn on_test<F, Fut>(self, name: &str, handler: F) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TestResult, HandlerError>> + Send + 'static,
    {
        self.on_test_requiring(name, Vec::new(), handler)
    }

    /// As [`on_test`](Self::on_test), for jobs with the required payloads.
    #[must_use]
    pub fn on_test_requiring<F, Fut>(
        mut self,
        name: &str,
        payloads: Vec<PayloadRequirement>,
        handler: F,
    ) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TestResult, HandlerError>> + Send + 'static,
    {
        let format = Format::Test(TestCapability {
            r#type: name.to_owned(),
            payloads,
        });
        self.config.capabilities.push(Capability {
            format: Some(format),
        });
        self.handlers
            .insert(Skill::test(name), Handler::new(handler));
        self
    }

    /// Runs translations to a format.
    #[must_use]
    pub fn on_translation<F, Fut>(self, name: &str, handler: F) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TranslationResult, HandlerError>> + Send + 'static,
    {
        let capability = TranslationCapability {
            r#type: name.to_owned(),
            ..TranslationCapability::default()
        };
        self.on_translation_as(capability, handler)
    }

    /// As [`on_translation`](Self::on_translation), with the payloads that the translation takes and makes.
    #[must_use]
    pub fn on_translation_as<F, Fut>(
        mut self,
        capability: TranslationCapability,
        handler: F,
    ) -> Self
    where
        F: Fn(Vec<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TranslationResult, HandlerError>> + Send + 'static,
    {
        let skill = Skill::translation(capability.r#type.as_str());
        self.config.capabilities.push(Capability {
            format: Some(Format::Translation(capability)),
        });
        self.handlers.insert(skill, Handler::new(handler));
        self
    }

    /// Sets how many sessions the agent runs at the same time: 16 by default. Beyond it proposals are refused; with 0
    /// all are.
    #[must_use]
    pub fn with_max_sessions(mut self, most: usize) -> Self {
        self.config.max_sessions = most;
        self
    }

    /// Changes the other settings of the agent.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(Config) -> Config) -> Self {
        self.config = change(self.config);
        self
    }

    /// Sets how often an idle connection is pinged: 20 s by default, and at least [`MIN_KEEP_ALIVE`].
    #[must_use]
    pub const fn with_keep_alive(mut self, every: Duration) -> Self {
        self.keep_alive = every;
        self
    }

    /// Sets how long the hub may take to answer a ping before its connection counts as dead: 20 s by default.
    #[must_use]
    pub const fn with_keep_alive_timeout(mut self, most: Duration) -> Self {
        self.keep_alive_timeout = most;
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
    pub fn with_tls(mut self, tls: ClientTls) -> Self {
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
        ConfigError::no_shorter("keep_alive", self.keep_alive, MIN_KEEP_ALIVE)?;
        ConfigError::not_zero("keep_alive_timeout", self.keep_alive_timeout)?;
        let ids = IdSource::from_os().map_err(|_| StartError::Randomness)?;
        let route = Route { endpoint, token };
        let shared = Shared::new(self.config, route, self.handlers, self.max_waiting, ids)?;
        let timer = spawn(shared.clone().tick());
        Ok(AgentHandle { shared, timer })
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
                .tls_config(tls.to_tonic())
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
    #[error("the hub's address is no URL")]
    Url,
    /// The scheme of the URL: `http` without TLS settings, `https` with them.
    #[error("the hub's address begins with http:// without TLS settings and https:// with them")]
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
}

impl AgentHandle {
    /// Events from now on. A reader that lags behind by more than 1,024 loses the oldest and is told so.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.news.subscribe()
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
