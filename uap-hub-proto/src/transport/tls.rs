//! TLS and mutual TLS: certificates and keys as PEM text.

use tonic::transport::{Certificate, Identity};
use ubos_common::secret::Secret;

/// A certificate chain with its private key, both as PEM text. Nothing shows the key.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    chain: String,
    key: Secret<String>,
}

impl TlsIdentity {
    /// The chain, this side's certificate first, and the key.
    pub fn new(chain: impl Into<String>, key: impl Into<Secret<String>>) -> Self {
        Self {
            chain: chain.into(),
            key: key.into(),
        }
    }

    fn to_tonic(&self) -> Identity {
        Identity::from_pem(&self.chain, self.key.expose())
    }
}

/// The TLS settings of a hub.
#[cfg(feature = "server")]
#[derive(Clone, Debug)]
pub struct ServerTls {
    identity: TlsIdentity,
    client_authority: Option<String>,
}

#[cfg(feature = "server")]
impl ServerTls {
    /// A hub with this certificate; agents need none.
    #[must_use]
    pub const fn new(identity: TlsIdentity) -> Self {
        Self {
            identity,
            client_authority: None,
        }
    }

    /// Mutual TLS: only agents with a certificate of this authority (PEM) get a connection.
    #[must_use]
    pub fn require_clients_of(mut self, authority: impl Into<String>) -> Self {
        self.client_authority = Some(authority.into());
        self
    }

    pub(super) fn to_tonic(&self) -> tonic::transport::ServerTlsConfig {
        let config = tonic::transport::ServerTlsConfig::new().identity(self.identity.to_tonic());
        match &self.client_authority {
            Some(authority) => config.client_ca_root(Certificate::from_pem(authority)),
            None => config,
        }
    }
}

/// The TLS settings of an agent.
#[cfg(feature = "client")]
#[derive(Clone, Debug)]
pub struct ClientTls {
    authority: String,
    domain: Option<String>,
    identity: Option<TlsIdentity>,
}

#[cfg(feature = "client")]
impl ClientTls {
    /// Trusts hubs with a certificate of this authority (PEM).
    pub fn new(authority: impl Into<String>) -> Self {
        Self {
            authority: authority.into(),
            domain: None,
            identity: None,
        }
    }

    /// The name that the hub's certificate must carry; that of its address by default.
    #[must_use]
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    /// Mutual TLS: the certificate of the agent.
    #[must_use]
    pub fn identity(mut self, identity: TlsIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    pub(super) fn to_tonic(&self) -> tonic::transport::ClientTlsConfig {
        let authority = Certificate::from_pem(&self.authority);
        let mut config = tonic::transport::ClientTlsConfig::new().ca_certificate(authority);
        if let Some(name) = &self.domain {
            config = config.domain_name(name);
        }
        if let Some(identity) = &self.identity {
            config = config.identity(identity.to_tonic());
        }
        config
    }
}
