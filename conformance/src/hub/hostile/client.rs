//! Clients that show a token.

use std::{fmt, io};

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};
use uap_hub_proto::wire::agent_hub_client::AgentHubClient;
use ubos_common::secret::Secret;

/// A client of a hub.
pub(super) type Client = AgentHubClient<InterceptedService<Channel, Shown>>;

/// A client on a connection.
pub(super) fn client(channel: Channel, shown: &Shown) -> Client {
    AgentHubClient::with_interceptor(channel, shown.clone())
}

/// What is shown on each call: a token, or nothing.
#[derive(Clone, Default)]
pub(super) struct Shown(Option<MetadataValue<Ascii>>);

impl Shown {
    pub(super) fn token(token: &Secret<String>) -> io::Result<Self> {
        let shown = Secret::new(format!("Bearer {}", token.expose()));
        let value: Result<MetadataValue<Ascii>, _> = shown.expose().parse();
        let mut value = value.map_err(|_| io::Error::other("a token is not of visible ASCII"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    /// The value of `authorization`.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.0.as_ref().map(MetadataValue::as_encoded_bytes)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Shown(..)"
        } else {
            "Shown"
        })
    }
}

impl Interceptor for Shown {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let metadata = request.metadata_mut();
            metadata.insert("authorization", value.clone());
        }
        Ok(request)
    }
}
