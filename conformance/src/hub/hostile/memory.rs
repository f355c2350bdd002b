//! The memory of a process.

use std::time::Duration;

/// How often it is read.
const PERIOD: Duration = Duration::from_millis(50);

/// Bytes that the process has in memory; `None` where that cannot be known.
pub(super) fn resident(process: Option<u32>) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process?)).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// What comes of `work`, and the most that the process has until then.
pub(super) async fn most_during<T>(
    process: Option<u32>,
    work: impl Future<Output = T>,
) -> (T, Option<u64>) {
    let mut most = None;
    let reads = async {
        loop {
            most = most.max(resident(process));
            tokio::time::sleep(PERIOD).await;
        }
    };
    let done = tokio::select! {
        done = work => done,
        never = reads => never,
    };
    (done, most.max(resident(process)))
}
