//! TLS and mutual TLS: certificates and keys as PEM text.

use tonic::transport::{Certificate, Identity};
use ubos_common::secret::Secret;

use crate::ConfigError;

ubos_common::config! {
    /// The TLS settings of one side. Nothing shows the key.
    ///
    /// A hub needs an identity. An agent needs an authority; with an identity as well it can prove itself to a hub that has
    /// an authority (mutual TLS).
    Tls {}
    into {
        /// Sets the authority, as PEM text, that must have signed the peer's certificate.
        with_authority: authority: Option<String> = None,
        /// Sets the name in the hub's certificate, for an agent: that of the hub's address by default.
        with_domain: domain: Option<String> = None,
    }
    also {
        identity: Option<(String, Secret<String>)> = None,
    }
}

impl Tls {
    /// Sets the certificate chain of this side, its own certificate first, and its private key, both as PEM text.
    #[must_use]
    pub fn with_identity(
        mut self,
        chain: impl Into<String>,
        key: impl Into<Secret<String>>,
    ) -> Self {
        self.identity = Some((chain.into(), key.into()));
        self
    }

    /// The authority. One without a certificate would trust nobody, and the agent would try for ever.
    fn authority(&self) -> Result<Option<Certificate>, ConfigError> {
        let Some(authority) = &self.authority else {
            return Ok(None);
        };
        let has_certificate = authority.contains("-----BEGIN CERTIFICATE-----");
        ubos_common::ConfigError::require(
            has_certificate,
            "tls.authority",
            format_args!("no certificate"),
            "must be a certificate as PEM text",
        )?;
        Ok(Some(Certificate::from_pem(authority)))
    }

    fn identity(&self) -> Option<Identity> {
        let (chain, key) = self.identity.as_ref()?;
        Some(Identity::from_pem(chain, key.expose()))
    }

    // impl: HUB-6-3
    #[cfg(feature = "server")]
    pub(super) fn of_hub(&self) -> Result<tonic::transport::ServerTlsConfig, ConfigError> {
        ConfigError::present(self.identity.is_some(), "tls.identity", "a hub")?;
        let mut config = tonic::transport::ServerTlsConfig::new();
        if let Some(identity) = self.identity() {
            config = config.identity(identity);
        }
        Ok(match self.authority()? {
            Some(authority) => config.client_ca_root(authority),
            None => config,
        })
    }

    // impl: HUB-6-3
    #[cfg(feature = "client")]
    pub(super) fn of_agent(&self) -> Result<tonic::transport::ClientTlsConfig, ConfigError> {
        ConfigError::present(self.authority.is_some(), "tls.authority", "an agent")?;
        let mut config = tonic::transport::ClientTlsConfig::new();
        if let Some(authority) = self.authority()? {
            config = config.ca_certificate(authority);
        }
        if let Some(name) = &self.domain {
            config = config.domain_name(name);
        }
        if let Some(identity) = self.identity() {
            config = config.identity(identity);
        }
        Ok(config)
    }
}
