//! The way to an endpoint: HTTP/1.1 without TLS, a connection for each request.

use std::io::{Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use super::{Endpoint, HttpResponse, Work};

/// An endpoint at an address such as `http://127.0.0.1:8080/sap/tasks`.
#[derive(Clone, Debug)]
pub struct HttpEndpoint {
    authority: String,
    path: String,
    work: Work,
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
        })
    }

    #[expect(
        clippy::disallowed_types,
        reason = "a transport of this package, which waits for one answer at a time"
    )]
    fn exchange(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
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
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

impl Endpoint for HttpEndpoint {
    fn post(&mut self, body: &[u8], wants_lines: bool) -> Result<HttpResponse, String> {
        let accept = if wants_lines {
            "application/x-ndjson"
        } else {
            "application/json"
        };
        let (path, host, length) = (&self.path, &self.authority, body.len());
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\naccept: {accept}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        let answer = self.exchange(&request).map_err(|error| error.to_string())?;
        read(&answer).ok_or_else(|| "an answer that is no HTTP/1.1".to_owned())
    }

    fn work(&self) -> &Work {
        &self.work
    }
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
    fn an_address_has_a_host() {
        let work = Work::new("a.b", serde_json::Value::Null, "A", 1);
        for url in ["https://a/b", "http://", "http:///b", "http://a b/"] {
            assert!(HttpEndpoint::new(url, work.clone()).is_err(), "{url}");
        }
    }
}
