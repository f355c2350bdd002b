#![no_main]

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

#[path = "../bodies/schema.rs"]
mod body;

/// Far more than the budget of steps takes: instrumentation and a busy machine are no finding.
const FINDING: Duration = Duration::from_secs(10);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static SLOWEST: Mutex<Duration> = Mutex::new(Duration::from_millis(1));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(cost) = body::check(bytes, || START.elapsed()) else {
        return;
    };
    let took = cost.compiled.max(cost.checked).max(cost.grown);
    let mut slowest = SLOWEST.lock().expect("no panic while it is held");
    if took > *slowest {
        *slowest = took;
        let growth = cost.grown.as_secs_f64() / cost.checked.as_secs_f64().max(1e-9);
        eprintln!(
            "slowest: {} bytes, compiled in {:?}, checked in {:?}, eight times the value {growth:.1} times that",
            cost.bytes, cost.compiled, cost.checked
        );
    }
    assert!(took < FINDING, "{cost:?}");
});
