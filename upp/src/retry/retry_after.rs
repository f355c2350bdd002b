//! The `Retry-After` header.

use core::time::Duration;

use ubos_common::time::Timestamp;

/// How long a `Retry-After` header asks to wait: seconds with or without a fraction, or the date in the form that HTTP/1.1 writes. At most `max`;
/// a date that is past asks for nothing.
pub(crate) fn retry_after(now: Timestamp, value: &str, max: Duration) -> Option<Duration> {
    let value = value.trim();
    let delay = match seconds(value) {
        Some(delay) => delay,
        None => date(value)?.saturating_since(now),
    };
    Some(delay.min(max))
}

/// Seconds with or without a fraction, `7` or `0.25`; more than fit are as many as fit.
pub(crate) fn seconds(value: &str) -> Option<Duration> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let are_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let nanos: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanos = nanos.parse().unwrap_or(0);
    Some(Duration::new(whole.parse().unwrap_or(u64::MAX), nanos))
}

/// A date as HTTP writes it, `Sun, 06 Nov 1994 08:49:37 GMT`; nobody checks the name of the day.
fn date(value: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, rest) = value.split_once(", ")?;
    let mut words = rest.split(' ');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let (time, zone) = (words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    if zone != "GMT" || words.next().is_some() {
        return None;
    }
    format!("{year}-{month:02}-{day}T{time}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UPP-9
    #[test]
    fn seconds_and_dates_are_read_and_bounded() {
        let now: Timestamp = "2026-01-31T23:59:00Z".parse().unwrap();
        let max = Duration::from_secs(3600);
        for (value, seconds) in [
            ("0", Some(0)),
            (" 59 ", Some(59)),
            ("3601", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("Sun, 01 Feb 2026 00:00:30 GMT", Some(90)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(3600)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", Some(1)),
            (".5", None),
            ("1.", None),
            ("1.5.5", None),
            ("99999999999999999999.5", Some(3600)),
            ("Sun, 01 Feb 2026 00:00:30 CET", None),
            ("Sun, 30 Feb 2026 00:00:30 GMT", None),
            ("Sun, 01 Feb 2026 00:00:30 GMT x", None),
        ] {
            assert_eq!(
                retry_after(now, value, max).map(|wait| wait.as_secs()),
                seconds,
                "{value}"
            );
        }
    }
}
