//! Twelve floods, one at a time: an agent that means harm beside a good one, both behind one router. What the good one's calls
//! take and what the router's process grows by is printed; that every call is answered, that the flood came and the growth is
//! asserted.
//!
//! The program is its own agents: the router launches it again with [`agent::ROLE`] set.

#![expect(clippy::print_stdout, reason = "the table is the result")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends with what goes wrong"
)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test measures time and starts tasks, and its agents block"
)]

#[cfg(unix)]
mod agent;

#[cfg(unix)]
fn main() {
    if let Ok(role) = std::env::var(agent::ROLE) {
        return agent::run(&role);
    }
    // `cargo test -- --list` and filters that name another test run none of it.
    let wanted = |argument: String| argument == "--list" || !argument.starts_with('-');
    if std::env::args().skip(1).any(wanted) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(core::all());
}

#[cfg(not(unix))]
fn main() {
    println!("agents are launched on Unix alone");
}

#[cfg(unix)]
mod core {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use opensentience_wire::AuditEvent;
    use opensentience_wire::message::{Health, Status};
    use opensentience_wire::role::core::{CallRequest, Config as CoreConfig};
    use opensentience_wire::role::router::Config;
    use opensentience_wire::transport::tokio::{Captured, Launcher, ToolRouter, View};
    use tokio::time::timeout;
    use ubos_common::json::{RawBuf, RawObject};

    use super::agent::{FLOODS, ROLE};

    /// How long each flood is watched.
    const WATCHED: Duration = Duration::from_millis(1_500);
    /// What a router may grow by under any flood: the ledger of one agent, a frame, and what an allocator keeps of them.
    const MOST: u64 = 112 << 20;
    /// What no busy machine takes for one call: beyond it the neighbour counts as dead.
    const DEAD: Duration = Duration::from_secs(60);

    fn launcher(role: &str) -> Launcher {
        let program = std::env::current_exe().unwrap();
        // However busy the machine is, none is turned away for being late.
        let patient = CoreConfig::default()
            .with_handshake_timeout(DEAD)
            .with_heartbeat_interval(DEAD * 10);
        Launcher::new(format!("com.example.{role}"), program)
            .env(ROLE, role)
            .with_config(patient)
    }

    /// What tells that a flood has come.
    #[derive(Clone, Default)]
    struct Seen {
        /// How often each event was recorded of the bad agent, by name and code.
        records: Arc<Mutex<BTreeMap<String, usize>>>,
        output: Arc<Mutex<Option<Captured>>>,
    }

    impl Seen {
        fn record(&self, event: &AuditEvent) {
            let code = event.code.as_ref().map(ToString::to_string);
            let key = format!("{} {}", event.name, code.unwrap_or_default());
            *self.records.lock().unwrap().entry(key).or_default() += 1;
        }

        /// Whether the bad agent has done what its flood is called by, and it had an effect.
        fn has_come(&self, flood: &str, view: &View) -> bool {
            let records = self.records.lock().unwrap();
            let recorded = |key: &str| records.contains_key(key);
            let is_bad = |tool: &str| tool.starts_with(&format!("com.example.{flood}/"));
            let mut tools = view.tools().filter(|tool| is_bad(&tool.tool_id));
            let bad = view.agents.get(&*format!("com.example.{flood}"));
            match flood {
                "registrations" | "questions" | "garbage" | "results" => {
                    recorded("agent.throttled ")
                }
                "descriptions" => tools.count() == 45,
                "schemas" => tools.any(|tool| tool.description == "other"),
                "health" => bad.is_some_and(|bad| bad.health == Health::Degraded),
                "newlines" => {
                    let output = self.output.lock().unwrap();
                    output.as_ref().is_some_and(|it| it.text().len() > 64 << 10)
                }
                "metrics" => recorded("tool.call_completed tool.output_too_large"),
                // Nobody takes it, or answers.
                _ => recorded("tool.call_completed tool.timeout"),
            }
        }
    }

    pub(super) async fn all() {
        println!(
            "{:<14} {:>6} {:>9} {:>9} {:>9}",
            "flood", "calls", "median", "p99", "growth"
        );
        for flood in FLOODS {
            let (mut times, growth) = one(flood).await;
            times.sort();
            let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
            let (calls, mib) = (times.len(), growth as f64 / f64::from(1 << 20));
            println!(
                "{flood:<14} {calls:>6} {:>6.2} ms {:>6.2} ms {mib:>5.1} MiB",
                at(50),
                at(99)
            );
            assert!(growth <= MOST, "{flood}: the router grew by {mib:.1} MiB");
        }
    }

    /// What the good agent's calls took beside a flood, and what this process grew by.
    async fn one(flood: &'static str) -> (Vec<Duration>, u64) {
        let seen = Seen::default();
        let (records, output) = (seen.clone(), Arc::clone(&seen.output));
        let router = ToolRouter::builder(Config::default())
            .agent("com.example.good", || launcher("good"))
            .agent(&format!("com.example.{flood}"), move || {
                let launcher = launcher(flood);
                *output.lock().unwrap() = Some(launcher.output());
                launcher
            })
            .with_audit(move |event: AuditEvent| records.record(&event))
            .start()
            .unwrap();
        router.ready().await;
        // One that never came would flood nobody.
        let bad = format!("com.example.{flood}");
        assert!(router.view().agents.contains_key(&*bad), "{flood}");
        let before = resident();
        let (start, mut most) = (Instant::now(), before);
        let (mut times, mut asked) = (Vec::new(), 0_u32);
        let mut open = Vec::new();
        let mut has_come = false;
        while start.elapsed() < WATCHED || times.is_empty() || !has_come {
            has_come = has_come || seen.has_come(flood, &router.view());
            let records = &seen.records;
            assert!(
                has_come || start.elapsed() < DEAD,
                "{flood} never came: {records:?}"
            );
            // The bad one is called, too: some of its floods are what it answers.
            if asked < 200 {
                asked += 1;
                let input = match flood {
                    "deaf" => long_input(),
                    _ => input(),
                };
                let mut request = CallRequest::new(format!("{bad}/echo"), input);
                request.timeout = Some(WATCHED);
                request.idempotency_key = Some(format!("key-{asked}"));
                open.extend(timeout(DEAD, router.call(request)).await.unwrap().ok());
            }
            let called = Instant::now();
            let call = router
                .call(CallRequest::new("com.example.good/echo", input()))
                .await;
            let outcome = timeout(DEAD, call.unwrap().result()).await.unwrap();
            assert_eq!(outcome.status, Status::Succeeded, "{outcome:?}");
            times.push(called.elapsed());
            most = most.max(resident());
        }
        drop(open);
        timeout(DEAD, router.shutdown()).await.unwrap();
        (times, most.saturating_sub(before))
    }

    fn input() -> RawObject {
        RawObject::new(RawBuf::parse(r#"{"text":"are you there"}"#).unwrap()).unwrap()
    }

    /// One of the longest that a call may have.
    fn long_input() -> RawObject {
        let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(1_000_000));
        RawObject::new(RawBuf::parse(&text).unwrap()).unwrap()
    }

    /// Bytes of this process in memory; 0 where nothing tells.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * 4_096
    }
}
