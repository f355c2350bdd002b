//! A schema and a value, with a zero byte between them: what a check costs.

use std::time::Duration;

use ubos_common::json::RawBuf;
use ubos_common::schema::Schema;

/// The time of a compilation and a check, and of a check of the value eight times in a list.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Bytes of schema and value.
    pub bytes: usize,
    /// The schema is compiled.
    pub compiled: Duration,
    /// The value is checked.
    pub checked: Duration,
    /// A list of eight such values is checked, each as the value was.
    pub grown: Duration,
}

/// Compiles, checks, and measures with a clock that counts from anywhere. Nothing is said where the schema or the
/// value is refused.
pub fn check(bytes: &[u8], clock: impl Fn() -> Duration) -> Option<Cost> {
    let zero = bytes.iter().position(|byte| *byte == 0)?;
    let schema = std::str::from_utf8(bytes.get(..zero)?).ok()?;
    let value = RawBuf::parse(std::str::from_utf8(bytes.get(zero + 1..)?).ok()?).ok()?;
    let start = clock();
    let one = Schema::compile(schema).ok()?;
    let compiled = clock().saturating_sub(start);
    let checked = time(&one, &value, &clock);
    let list = RawBuf::parse(&format!("[{}]", [value.as_str(); 8].join(","))).ok()?;
    let many = Schema::compile(&format!("{{\"items\":{schema}}}")).ok();
    let grown = many.map_or(checked, |many| time(&many, &list, &clock));
    Some(Cost {
        bytes: bytes.len(),
        compiled,
        checked,
        grown,
    })
}

fn time(schema: &Schema, value: &RawBuf, clock: impl Fn() -> Duration) -> Duration {
    let start = clock();
    let findings = schema.findings(value.as_raw());
    let elapsed = clock().saturating_sub(start);
    assert!(findings.is_err() || findings.is_ok_and(|findings| findings.len() <= 16));
    elapsed
}
