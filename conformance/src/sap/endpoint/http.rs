//! The way to an endpoint: HTTP/1.1 without TLS, a connection for each request. For an endpoint that speaks TLS alone, a program
//! that ends TLS stands between.

use std::io::{Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use ubos_common::secret::Secret;

use super::{Endpoint, HttpResponse, Work};

/// An endpoint at an address such as `http://127.0.0.1:8080/sap/tasks`.
#[derive(Clone, Debug)]
pub struct HttpEndpoint {
    authority: String,
    path: String,
    work: Work,
    /// Of each request, with the break of its line; empty where none is set.
    authorization: Secret<String>,
}

impl HttpEndpoint {
    /// An endpoint that is asked for this work.
    ///
    /// # Errors
    ///
    /// In words: what is not right with the address.
    pub fn new(url: &str, work: Work) -> Result<Self, String> {
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or("an address that begins with http:// is wanted")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || !is_plain(authority) || !is_plain(path) {
            return Err("an address with a host and without spaces is wanted".to_owned());
        }
        Ok(Self {
            authority: authority.to_owned(),
            path: format!("/{path}"),
            work,
            authorization: Secret::new(String::new()),
        })
    }

    /// Sends a bearer token with each request. It is shown nowhere, and goes in the clear.
    ///
    /// # Errors
    ///
    /// In words: the token is empty, or has more than visible ASCII.
    pub fn with_bearer(mut self, token: &Secret<String>) -> Result<Self, String> {
        let text = token.expose();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token of visible ASCII, without spaces, is wanted".to_owned());
        }
        self.authorization = Secret::new(format!("authorization: Bearer {text}\r\n"));
        Ok(self)
    }

    /// Sends a request on a connection of its own.
    #[expect(
        clippy::disallowed_types,
        reason = "a transport of this package, which waits for one answer at a time"
    )]
    fn send(&self, request: &[u8]) -> std::io::Result<std::io::Take<std::net::TcpStream>> {
        let with_port = match self.authority.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
                self.authority.clone()
            }
            _ => format!("{}:80", self.authority),
        };
        let address = with_port.to_socket_addrs()?.next();
        let address = address.ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        let mut stream = std::net::TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(request)?;
        Ok(stream.take(LONGEST))
    }

    fn exchange(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        self.send(request)?.read_to_end(&mut answer)?;
        Ok(answer)
    }

    fn posting(&self, body: &[u8], wants_lines: bool) -> Vec<u8> {
        self.posting_with(body, wants_lines, "")
    }

    /// A request with these headers, each with the break of its line.
    fn posting_with(&self, body: &[u8], wants_lines: bool, headers: &str) -> Vec<u8> {
        let accept = if wants_lines {
            "application/x-ndjson"
        } else {
            "application/json"
        };
        let (path, host, length) = (&self.path, &self.authority, body.len());
        let authorization = self.authorization.expose();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\naccept: {accept}\r\n\
             content-length: {length}\r\nconnection: close\r\n{authorization}{headers}\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        request
    }

    /// Posts a task and reads its first line; then asks for its end, and reads the rest. Gives both answers.
    fn interrupt(&self, post: &[u8], delete: &[u8]) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let mut stream = self.send(post)?;
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut piece)?;
            answer.extend_from_slice(piece.get(..count).unwrap_or_default());
            let begun = answer.windows(4).position(|four| four == b"\r\n\r\n");
            let has_line = begun.is_some_and(|end| answer.iter().skip(end).any(|it| *it == b'}'));
            if count == 0 || has_line {
                break;
            }
        }
        let deleted = self.exchange(delete)?;
        stream.read_to_end(&mut answer)?;
        Ok((answer, deleted))
    }
}

impl Endpoint for HttpEndpoint {
    fn post(&mut self, body: &[u8], wants_lines: bool) -> Result<HttpResponse, String> {
        let answer = self.exchange(&self.posting(body, wants_lines));
        whole(&answer.map_err(|error| error.to_string())?)
    }

    fn post_correlated(
        &mut self,
        body: &[u8],
        correlation: &str,
    ) -> Result<Option<HttpResponse>, String> {
        let header = format!("x-correlation-id: {correlation}\r\n");
        let answer = self.exchange(&self.posting_with(body, false, &header));
        whole(&answer.map_err(|error| error.to_string())?).map(Some)
    }

    /// `DELETE` of the task's id below the path, with its issuer as a parameter, is how an endpoint of this repository is told.
    /// One that answers 404, 405 or 501 does not know it.
    fn post_and_cancel(&mut self, body: &[u8]) -> Result<Option<HttpResponse>, String> {
        let task: serde_json::Value =
            serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let id = task.get("taskId").and_then(serde_json::Value::as_str);
        let (path, host) = (self.path.trim_end_matches('/'), &self.authority);
        let (id, issuer) = (id.unwrap_or_default(), escaped(&self.work.issuer));
        let authorization = self.authorization.expose();
        let delete = format!(
            "DELETE {path}/{id}?issuer={issuer} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\n\
             connection: close\r\n{authorization}\r\n"
        );
        let both = self.interrupt(&self.posting(body, true), delete.as_bytes());
        let (answer, deleted) = both.map_err(|error| error.to_string())?;
        match whole(&deleted)?.status {
            404 | 405 | 501 => Ok(None),
            _ => whole(&answer).map(Some),
        }
    }

    fn work(&self) -> &Work {
        &self.work
    }
}

/// A text as a parameter of a URL.
fn escaped(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let each = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(each).collect()
}

fn whole(answer: &[u8]) -> Result<HttpResponse, String> {
    read(answer).ok_or_else(|| "an answer that is no HTTP/1.1".to_owned())
}

/// A response that is there as a whole.
fn read(answer: &[u8]) -> Option<HttpResponse> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = core::str::from_utf8(answer.get(..end)?).ok()?;
    let rest = answer.get(end + 4..)?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let header = |wanted: &str| {
        let mut headers = head
            .split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        let named = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.trim().to_owned())
    };
    let coding = header("transfer-encoding").unwrap_or_default();
    let body = match coding.eq_ignore_ascii_case("chunked") {
        true => chunks(rest)?,
        false => rest.to_vec(),
    };
    Some(HttpResponse {
        status: status.parse().ok()?,
        correlation: header("x-correlation-id"),
        body,
    })
}

/// The body of which these are the chunks.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = core::str::from_utf8(rest.get(..end)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        let chunk = rest.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk.get(..size)?);
        rest = chunk.get(size.checked_add(2)?..)?;
    }
}

/// How long an endpoint may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const LONGEST: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_whole_or_in_chunks() {
        let head = "HTTP/1.1 200 OK\r\nX-Correlation-ID: a\r\n";
        for rest in [
            "content-length: 4\r\n\r\nabcd",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n",
        ] {
            let read = read(format!("{head}{rest}").as_bytes()).unwrap();
            assert_eq!((read.status, read.body.as_slice()), (200, &b"abcd"[..]));
            assert_eq!(read.correlation.as_deref(), Some("a"));
        }
        let cut = format!("{head}transfer-encoding: chunked\r\n\r\n9\r\nabc");
        assert!(read(cut.as_bytes()).is_none() && read(b"what").is_none());
    }

    #[test]
    fn a_token_goes_with_each_request_and_is_not_shown() {
        let work = Work::new("a.b", serde_json::Value::Null, "A", 1);
        let endpoint = HttpEndpoint::new("http://a/b", work).unwrap();
        let with = |token: &str| {
            let token = Secret::new(token.to_owned());
            endpoint.clone().with_bearer(&token)
        };
        for token in ["", "a b", "a\r\nx: y", "\u{e4}"] {
            let refused = with(token).unwrap_err();
            assert!(token.is_empty() || !refused.contains(token), "{refused}");
        }
        let endpoint = with("hunter2").unwrap();
        let request = String::from_utf8(endpoint.posting(b"{}", false)).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nauthorization: Bearer hunter2"), "{head}");
        assert_eq!(body, "{}");
        assert!(!format!("{endpoint:?}").contains("hunter2"));
    }

    #[test]
    fn an_address_has_a_host() {
        let work = Work::new("a.b", serde_json::Value::Null, "A", 1);
        for url in ["https://a/b", "http://", "http:///b", "http://a b/"] {
            assert!(HttpEndpoint::new(url, work.clone()).is_err(), "{url}");
        }
    }
}
