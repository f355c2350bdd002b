//! Which requests are read: a browser on a page of somebody else may send some, too.

use core::net::{Ipv4Addr, Ipv6Addr};

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};

use super::config::{Config, Hosts};
use crate::error::ErrorCode;

/// Why a request is turned away before its body is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turned {
    pub(super) status: StatusCode,
    pub(super) code: ErrorCode,
    pub(super) why: &'static str,
}

/// Judges who asks, and from where.
pub(super) fn admit_head(head: &Parts, config: &Config) -> Result<(), Turned> {
    let forbidden = |why| Turned {
        status: StatusCode::FORBIDDEN,
        code: ErrorCode::Forbidden,
        why,
    };
    let host = host_of(head);
    if !is_ours(host, &config.hosts) {
        return Err(forbidden(
            "the host of the request is not one of this server",
        ));
    }
    let origin = text(&head.headers, &ORIGIN);
    if head.headers.contains_key(ORIGIN) && !is_allowed(origin, host, &config.origins) {
        return Err(forbidden("the origin of the request is not allowed"));
    }
    Ok(())
}

/// Judges a request with a body, by its head.
pub(super) fn admit(head: &Parts, config: &Config) -> Result<(), Turned> {
    admit_head(head, config)?;
    let length = text(&head.headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if length.is_some_and(|length: u64| length > config.max_body_bytes as u64) {
        return Err(Turned {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: ErrorCode::InvalidTask,
            why: "the body is too long",
        });
    }
    if !text(&head.headers, &CONTENT_TYPE).is_some_and(is_json) {
        return Err(Turned {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code: ErrorCode::InvalidTask,
            why: "the body is not said to be JSON",
        });
    }
    Ok(())
}

fn host_of(head: &Parts) -> Option<&str> {
    let of_address = head.uri.authority().map(axum::http::uri::Authority::as_str);
    of_address.or_else(|| text(&head.headers, &HOST))
}

fn is_ours(host: Option<&str>, hosts: &Hosts) -> bool {
    match hosts {
        Hosts::Any => true,
        Hosts::These(hosts) => is_among(host, hosts),
        Hosts::Addresses => is_address(host.unwrap_or_default()),
    }
}

/// Whether a host is an address or `localhost`, with or without a port.
fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let in_brackets = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match in_brackets {
        Some(name) => name.parse::<Ipv6Addr>().is_ok(),
        None => name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok(),
    }
}

/// The pages of this server itself, and those of the settings.
fn is_allowed(origin: Option<&str>, host: Option<&str>, origins: &[String]) -> bool {
    let own = origin
        .and_then(|origin| origin.split_once("://"))
        .zip(host)
        .is_some_and(|((_, of_origin), host)| of_origin.eq_ignore_ascii_case(host));
    own || is_among(origin, origins)
}

fn is_among(seen: Option<&str>, allowed: &[String]) -> bool {
    let seen = seen.unwrap_or_default();
    allowed.iter().any(|one| one.eq_ignore_ascii_case(seen))
}

pub(super) fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    media == "application/json" || media.starts_with("application/") && media.ends_with("+json")
}

/// A header that is there once, and is text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    only.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(config: &Config, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::post("/sap/tasks");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        admit(&head, config).map_or_else(|turned| turned.status.as_u16(), |()| 200)
    }

    // spec: SAP-10-2
    #[test]
    fn only_json_from_allowed_pages_for_this_server_is_read() {
        let open = Config::default().with_origins(["https://a.example"]);
        let bound = open.clone().with_hosts(["127.0.0.1:80"]);
        let json = ("content-type", "application/json");
        let (here, there) = (("host", "127.0.0.1:80"), ("host", "evil.example"));
        let origin = |origin| ("origin", origin);
        let length = |length| ("content-length", length);
        for (config, headers, wanted) in [
            (&open, vec![json], 200),
            (
                &open,
                vec![("content-type", "Application/JSON; charset=utf-8")],
                200,
            ),
            (&open, vec![("content-type", "application/sap+json")], 200),
            (&open, vec![("content-type", "text/plain")], 415),
            (&open, vec![("content-type", "application/jsonish")], 415),
            (&open, vec![json, ("content-type", "text/plain")], 415),
            (&open, vec![], 415),
            (&open, vec![json, origin("https://a.example")], 200),
            (&open, vec![json, origin("https://b.example")], 403),
            (
                &open,
                vec![
                    json,
                    origin("https://a.example"),
                    origin("https://b.example"),
                ],
                403,
            ),
            (&open, vec![json, origin("null"), here], 403),
            (&open, vec![json, origin("http://127.0.0.1:80"), here], 200),
            (&open, vec![json, there], 200),
            (&bound, vec![json, here], 200),
            (&bound, vec![json, there], 403),
            (&bound, vec![json, here, there], 403),
            (&bound, vec![json], 403),
            (
                &bound,
                vec![json, origin("http://evil.example"), there],
                403,
            ),
            (&open, vec![json, length("1048576")], 200),
            (&open, vec![json, length("1048577")], 413),
            (&open, vec![json, length("1"), length("1048577")], 200),
        ] {
            assert_eq!(status(config, &headers), wanted, "{headers:?}");
        }
    }
}
