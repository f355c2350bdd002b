//! How a hub on a port works.

use std::{sync::Arc, time::Duration};

use super::{
    authorize::{Authorize, Caller, Denied},
    prepare::Prepare,
};
#[cfg(feature = "tls")]
use crate::transport::Tls;
use crate::{
    config::ConfigError,
    id::{Identity, JobId, SessionId},
    role::hub,
    store::JobStore,
    transport::{KEEP_ALIVE_TIMEOUT, MIN_KEEP_ALIVE},
};

ubos_common::config! {
    /// How a hub on a port works.
    ///
    /// [`serve`](super::serve) checks the values.
    ServerConfig {
        /// Sets how the hub itself works. Its `prepare` and `durable` follow from [`with_prepare`](Self::with_prepare)
        /// and [`with_store`](Self::with_store).
        ///
        /// Of messages of more than 4 KiB that agents were sent and have not read, one address may have as many bytes as the
        /// payloads of all jobs ([`hub::Config::with_max_queued_bytes`]; one message at least), 256 MiB by default, and all
        /// connections four times that, of which half are shares as with
        /// [`with_max_control_message_bytes`](Self::with_max_control_message_bytes). A call that would have more ends with
        /// `RESOURCE_EXHAUSTED`, and so does its session.
        with_hub: hub: hub::Config = hub::Config::default(),
        /// Sets how often an idle connection is pinged: 20 s by default, and at least [`MIN_KEEP_ALIVE`].
        with_keep_alive: keep_alive: Duration = Duration::from_secs(20),
        /// Sets how long an agent may take to answer a ping before its connection counts as dead: 20 s by default. A connection
        /// whose peer reads nothing, so that not even that can be said, is closed after both times.
        with_keep_alive_timeout: keep_alive_timeout: Duration = KEEP_ALIVE_TIMEOUT,
        /// Sets how many messages may wait on a control stream: 1,024 by default. An agent that reads more slowly is
        /// disconnected.
        with_max_control_messages: max_control_messages: usize = 1024,
        /// Sets the bytes of a registration or of a message on a control stream: 1 MiB by default, because anybody can
        /// register. Larger ones are `RESOURCE_EXHAUSTED`. The limit of the hub's own messages
        /// ([`hub::Config::with_max_message_bytes`]) applies as well.
        ///
        /// Of messages that have begun and are not complete, a connection may keep four times this size in control calls
        /// and four times that of a message in sessions, and all connections together 64 times and 16 times. Beyond it a
        /// call is `RESOURCE_EXHAUSTED`. Half of what all may keep is shared out among the connections that there may be, at most
        /// 64 KiB to each (with the defaults 2 KiB in control calls and 32 KiB in sessions): one that keeps no more than its
        /// share is not refused for what others keep. Of the other half the connections of one address have half at most, but no
        /// less than one connection may keep.
        with_max_control_message_bytes: max_control_message_bytes: usize = 1 << 20,
        /// Sets how long a `Register` call may take, the authorization of any call, and a message on a control stream from its
        /// first byte to its last: 10 s by default. Beyond it the call ends with `DEADLINE_EXCEEDED`.
        with_register_timeout: register_timeout: Duration = Duration::from_secs(10),
        /// Sets how many connections the port may have: 16,384 by default. One more is closed at once.
        with_max_connections: max_connections: usize = 16_384,
        /// Sets how many of them may come from one address, of which an IPv6 one stands for its network of 64 bits: 1,024 by
        /// default. One more is closed at once. Raise it where many agents are behind one address.
        with_max_connections_per_address: max_connections_per_address: usize = 1_024,
        /// Sets how long a connection may take until it makes its first call, TLS and the beginning of HTTP/2 included: 30 s by
        /// default. Then it is closed.
        with_first_call_timeout: first_call_timeout: Duration = Duration::from_secs(30),
        /// Sets how long a connection may have no call open after it had one: 5 minutes by default. Then it is closed, after
        /// twice that at the latest. Calls of the health service, and calls that the hook of [`with_authorize`](Self::with_authorize) refuses, do not count, here
        /// and for the first call. A connection is closed as well whose agent, in one such time, leaves messages of more than 4 KiB
        /// unread throughout and takes less than 256 KiB: they would wait for ever.
        with_idle_timeout: idle_timeout: Duration = Duration::from_secs(300),
        /// Sets how long 256 KiB of a message of a session, or what is left of it, may take from its first byte on: 5 minutes by
        /// default. Beyond it the call ends with `DEADLINE_EXCEEDED`. The message as a whole has no time, because links are slow.
        with_session_message_timeout: session_message_timeout: Duration = Duration::from_secs(300),
        /// Sets how many streams one connection may have: 256 by default, which keeps their windows within the
        /// connection's.
        with_max_streams: max_streams: u32 = 256,
        /// Sets whether gRPC's health service (`grpc.health.v1`) reports the state of the hub. On by default. Anybody may ask it,
        /// also where [`with_authorize`](Self::with_authorize) sets a hook: balancers have no token.
        with_health: health: bool = true,
    }
    also {
        #[cfg(feature = "reflection")]
        reflection: bool = true,
        store: Option<Arc<dyn JobStore>> = None,
        prepare: Option<Prepare> = None,
        authorize: Option<Authorize> = None,
        #[cfg(feature = "tls")]
        tls: Option<Tls> = None,
    }
}

impl ServerConfig {
    /// Sets whether gRPC's reflection service (`grpc.reflection.v1`) describes the calls and messages. On by default. A hook is
    /// asked about its callers as well.
    #[cfg(feature = "reflection")]
    #[must_use]
    pub const fn with_reflection(mut self, reflection: bool) -> Self {
        self.reflection = reflection;
        self
    }

    /// Sets where jobs and their ends are kept, so that they survive this process. Nowhere by default.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn JobStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets what is done between an agent's acceptance and its session being ready; it may fail with a reason. Nothing by
    /// default.
    ///
    /// Spec: UAP hub 3
    #[must_use]
    pub fn with_prepare<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(JobId, SessionId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.prepare = Some(Prepare::new(hook));
        self
    }

    /// Sets a hook that decides about each call of an agent by its headers, before anything of its body is read, and names
    /// the caller. A denied agent learns the reason. What a caller registers is of use to the same [`Identity`] only: a
    /// client id or session id that leaked is unknown to all others.
    ///
    /// By default anybody may call; agents that show a certificate (mutual TLS) are told apart by it.
    ///
    /// ```
    /// use uap_hub_proto::transport::server::{Denied, ServerConfig};
    ///
    /// let config = ServerConfig::default().with_authorize(|caller| async move {
    ///     match caller.bearer_token() {
    ///         Some("sesame") => Ok("team one".into()),
    ///         Some(_) => Err(Denied::Forbidden("nobody has this token".into())),
    ///         None => Err(Denied::Unauthenticated("send a bearer token".into())),
    ///     }
    /// });
    /// ```
    ///
    /// Spec: UAP hub 2
    #[must_use]
    pub fn with_authorize<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Caller) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Identity, Denied>> + Send + 'static,
    {
        self.authorize = Some(Authorize::new(hook));
        self
    }

    /// Serves over TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        // impl: HUB-4-6
        ConfigError::at_least("keep_alive", self.keep_alive, MIN_KEEP_ALIVE)?;
        ConfigError::not_zero("keep_alive_timeout", self.keep_alive_timeout)?;
        ConfigError::at_least("max_control_messages", self.max_control_messages, 1)?;
        let bytes = self.max_control_message_bytes;
        ConfigError::at_least("max_control_message_bytes", bytes, 1)?;
        ConfigError::at_least("max_connections", self.max_connections, 1)?;
        let places = self.max_connections_per_address;
        ConfigError::at_least("max_connections_per_address", places, 1)?;
        ConfigError::not_zero("first_call_timeout", self.first_call_timeout)?;
        ConfigError::not_zero("idle_timeout", self.idle_timeout)?;
        let message = self.session_message_timeout;
        ConfigError::not_zero("session_message_timeout", message)?;
        ConfigError::not_zero("register_timeout", self.register_timeout)?;
        ConfigError::at_least("max_streams", self.max_streams, 1)
    }
}
