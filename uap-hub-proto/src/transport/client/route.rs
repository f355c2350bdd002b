//! The way to the hub.

use tonic::{Request, metadata::AsciiMetadataValue, transport::Endpoint};

/// The hub's address, and the token for it.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) endpoint: Endpoint,
    /// The token, sent with every call.
    pub(super) token: Option<AsciiMetadataValue>,
}

impl Route {
    /// A request with the token on it.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request
                .metadata_mut()
                .insert("authorization", token.clone());
        }
        request
    }
}
