//! Whether a client wants lines as they come, or the last message as a whole.

use axum::http::{HeaderMap, header};

use super::{JSON, LINES};

/// Lines are sent where the client names them and prefers nothing to them.
pub(super) fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let ranges: Vec<_> = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(range)
        .collect();
    let is_named = ranges.iter().any(|(name, _)| name == LINES);
    let (lines, whole) = (quality(&ranges, LINES), quality(&ranges, JSON));
    is_named && lines > 0 && lines >= whole
}

/// A media range and its quality in thousandths. Other parameters are not looked at.
fn range(text: &str) -> (String, u16) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts.find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case("q").then_some(value.trim())
    });
    (name, quality.map_or(1_000, thousandths))
}

/// What is no quality of RFC 9110, 12.4.2 counts as none.
fn thousandths(text: &str) -> u16 {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = rest.len() <= 3 && rest.bytes().all(|byte| byte.is_ascii_digit());
    match (whole, is_plain) {
        ("0", true) => format!("{rest:0<3}").parse().unwrap_or(0),
        ("1", true) if rest.bytes().all(|byte| byte == b'0') => 1_000,
        _ => 0,
    }
}

/// Of the most specific range that a kind is in.
fn quality(ranges: &[(String, u16)], kind: &str) -> u16 {
    let of = |wanted: &str| {
        let mut named = ranges.iter().filter(|(name, _)| name == wanted);
        named.next().map(|(_, quality)| *quality)
    };
    of(kind)
        .or_else(|| of("application/*"))
        .or_else(|| of("*/*"))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SAP-10-2
    #[test]
    fn lines_are_sent_to_who_prefers_them() {
        for (accept, wanted) in [
            ("application/x-ndjson", true),
            ("Application/X-NDJSON; q=0.5", true),
            ("application/json, application/x-ndjson", true),
            ("application/x-ndjson;q=0.9, application/json;q=0.8", true),
            ("application/x-ndjson;q=0.001", true),
            ("application/x-ndjson, application/json;q=0", true),
            ("application/x-ndjson;q=1.00, application/json;q=0.9", true),
            ("application/x-ndjson;q=1.01", false),
            ("", false),
            ("*/*", false),
            ("application/*", false),
            ("application/json", false),
            ("application/x-ndjson;q=0", false),
            ("application/x-ndjson;q=0.000, */*", false),
            ("application/x-ndjson;q=0.5, application/json", false),
            ("application/x-ndjson;q=0.5, */*", false),
            ("application/x-ndjson;q=0.5, application/*;q=0.7", false),
            ("application/x-ndjson;q=2", false),
            ("application/x-ndjson;q=0.1234", false),
            ("application/x-ndjson;q=x", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(wants_lines(&headers), wanted, "{accept}");
        }
        let mut two = HeaderMap::new();
        for accept in ["application/json", "application/x-ndjson;q=0.3"] {
            two.append(header::ACCEPT, accept.parse().unwrap());
        }
        assert!(!wants_lines(&two));
    }
}
