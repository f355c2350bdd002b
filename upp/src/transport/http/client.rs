//! The URL and the HTTP client of requests.

use core::net::IpAddr;
use std::sync::Arc;

use super::ProviderConfig;
use crate::error::{ErrorCode, UppError};

/// The base URL.
///
/// # Errors
///
/// The text is not a URL, or plain HTTP to another host without permission.
pub(super) fn base_url(
    config: &ProviderConfig,
    vendor: &str,
) -> Result<reqwest::Url, &'static str> {
    let text = config.base_url.as_deref().unwrap_or(vendor);
    // The text itself stays out of the error: it may hold a password.
    let url: reqwest::Url = text.parse().map_err(|_| "base_url is not a URL")?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if config.allow_plain_http || is_loopback(&url) => Ok(url),
        "http" => Err("base_url is plain HTTP to another host; use HTTPS, or allow plain HTTP"),
        _ => Err("base_url is neither HTTPS nor HTTP"),
    }
}

/// Whether the host of a URL is this machine.
fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// A client with its own TLS provider, so that none has to be installed for the process.
pub(super) fn client(config: &ProviderConfig) -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // The verifier is the platform's own.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // A redirect could lead from HTTPS to another host: a vendor's endpoint has none.
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none());
    if let Some(timeout) = config.timeout {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = config.idle_timeout {
        builder = builder.read_timeout(timeout);
    }
    Ok(builder.build()?)
}

/// The error of a failed connection. The text of `error` contains the URL and is dropped.
pub(super) fn transport(error: &reqwest::Error, provider: &Arc<str>) -> UppError {
    let (code, text) = if error.is_timeout() {
        (ErrorCode::Timeout, "the vendor did not answer in time")
    } else if error.is_connect() {
        (ErrorCode::NetworkError, "the connection could not be made")
    } else {
        (ErrorCode::NetworkError, "the connection failed")
    };
    UppError::new(code, Arc::clone(provider), text)
}

/// The error of creating a client.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("TLS is not available")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client could not be made")]
    Http(#[from] reqwest::Error),
}
