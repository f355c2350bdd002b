//! Strangers that attack a hub, and what an honest agent notices of them.
//!
//! Each attack runs alone, until the last of an honest agent's tries to register, listen and do a job has ended: what
//! counts as served was served while the attack went on. The hub's memory is read meanwhile. Where the hub is at an IPv4
//! address of this machine alone, the attacks come from another address than the honest agent. Nothing here breaks a rule of the
//! network: a hub that may face strangers must stand all of it. Some attacks need jobs, which the caller gives to the hub.

mod attacks;
mod client;
mod feed;
mod honest;
mod jobs;
mod memory;
mod target;

use std::{
    fmt, io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::runtime::{Builder, Handle};
use tonic::transport::Endpoint;
use uap_hub_proto::role::hub::Job;
use ubos_common::{os::Clock, secret::Secret};

pub use attacks::Attack;
use client::Shown;
use feed::Feed;
pub use honest::Latency;
use honest::PATIENCE;
use target::{Target, other_address};

/// The name of the threads that attack.
const THREAD: &str = "hub-hostile";

/// Attacks on a hub at a URL.
///
/// ```no_run
/// use ubos_conformance::hub::HostileRun;
///
/// let report = HostileRun::new("http://127.0.0.1:9000").with_process(4711).run()?;
/// println!("{report}");
/// assert!(report.is_survived());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostileRun {
    url: String,
    process: Option<u32>,
    time: Duration,
    patience: Duration,
    max_growth: u64,
    attacks: Vec<Attack>,
    tokens: Option<[Secret<String>; 2]>,
    feed: Option<Feed>,
}

impl HostileRun {
    /// Attacks on the hub at a URL, without TLS.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            process: None,
            time: Duration::from_secs(5),
            patience: PATIENCE,
            max_growth: 512 << 20,
            attacks: Attack::ALL.to_vec(),
            tokens: None,
            feed: None,
        }
    }

    /// Sets the tokens to show: that of the attackers, and that of the honest agent. To the hub they are two, and neither must learn
    /// what is the other's. None by default, where the hub is open to anybody.
    #[must_use]
    pub fn with_tokens(mut self, attackers: Secret<String>, honest: Secret<String>) -> Self {
        self.tokens = Some([attackers, honest]);
        self
    }

    /// Sets how the hub is given a job. It may block, and then holds up the attack alone: one that never returns keeps its
    /// thread, and the run ends. Without it, attacks that need jobs are left out.
    #[must_use]
    pub fn with_feed(mut self, feed: impl Fn(Job) + Send + Sync + 'static) -> Self {
        self.feed = Some(Feed::new(feed));
        self
    }

    /// Sets the process of the hub, on this machine, whose memory is read. Unknown by default.
    #[must_use]
    pub fn with_process(mut self, id: u32) -> Self {
        self.process = Some(id);
        self
    }

    /// Sets how long each attack runs: 5 s by default.
    #[must_use]
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets how long an honest agent may take to register, listen and do its job: 10 s by default. On a machine that is busy with
    /// something else it takes longer, and that is not the hub's fault.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets by how many bytes the hub's memory may grow under an attack: 512 MiB by default. Of no meaning without the
    /// hub's process.
    #[must_use]
    pub fn with_max_growth(mut self, bytes: u64) -> Self {
        self.max_growth = bytes;
        self
    }

    /// Sets the attacks: [all](Attack::ALL) by default.
    #[must_use]
    pub fn with_attacks(mut self, attacks: &[Attack]) -> Self {
        self.attacks = attacks.to_vec();
        self
    }

    /// Runs the attacks, one after the other. Those that take all places of an address are left out where there is no other
    /// address than that of the honest agent. It blocks: do not use it inside an async runtime.
    ///
    /// # Errors
    ///
    /// The URL is not valid, or no hub serves an honest agent there before the first attack.
    pub fn run(&self) -> io::Result<HostileReport> {
        let attackers = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(THREAD)
            .enable_all()
            .build()?;
        // The honest agent does not wait behind thousands of tasks of the attackers: that would not be the hub's fault.
        let runtime = Builder::new_current_thread()
            .thread_name(THREAD)
            .enable_all()
            .build()?;
        let endpoint = Endpoint::from_shared(self.url.clone()).map_err(io::Error::other)?;
        let endpoint = endpoint.connect_timeout(self.patience).tcp_nodelay(true);
        let clock = Clock::start();
        let shown = match &self.tokens {
            Some([attackers, honest]) => [Shown::token(attackers)?, Shown::token(honest)?],
            None => Default::default(),
        };
        let [_, honest] = &shown;
        let report = runtime.block_on(async {
            let times = (self.time.min(self.patience), self.patience);
            let trips = |feed| honest::trips(&endpoint, honest, feed, &clock, times);
            let mut feed = self.feed.as_ref();
            let mut calm = trips(feed).await;
            if calm.served == 0 && feed.is_some() {
                // No job comes of it: the honest agent listens alone, and attacks that need jobs find nothing to do.
                feed = None;
                calm = trips(feed).await;
            }
            if calm.served == 0 {
                let why = "no hub serves an honest agent there";
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
            }
            let mut rounds = Vec::new();
            let address = endpoint.uri().host().and_then(other_address);
            let target = Target::new(endpoint.clone(), address, shown.clone(), self.feed.clone());
            let may_run = |attack: &Attack| {
                let has_place = address.is_some() || !attack.fills_its_address();
                has_place && (self.feed.is_some() || !attack.takes_jobs())
            };
            for attack in self.attacks.iter().copied().filter(may_run) {
                let attacker = (attackers.handle(), &target);
                let agent = (&endpoint, honest, feed);
                rounds.push(self.round(attack, attacker, agent, &clock).await);
            }
            Ok(HostileReport {
                calm,
                rounds,
                max_growth: self.max_growth,
                patience: self.patience,
                does_jobs: feed.is_some(),
            })
        });
        // All tasks have ended. Somebody's function that still blocks is not waited for.
        attackers.shutdown_background();
        runtime.shutdown_background();
        report
    }

    async fn round(
        &self,
        attack: Attack,
        (attackers, target): (&Handle, &Target),
        (endpoint, shown, feed): (&Endpoint, &Shown, Option<&Feed>),
        clock: &Clock,
    ) -> HostileRound {
        let before = memory::resident(self.process);
        let attempts = Arc::default();
        let (its_target, mut ended) = target.for_attack();
        let attacking = attackers.spawn(attack.run(its_target, Arc::clone(&attempts)));
        // The honest agent begins when the attack has, or when that has long had its time.
        let begun = async {
            while attempts.load(Ordering::Relaxed) == 0 && !attacking.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(self.patience, begun).await;
        let times = (self.time, self.patience);
        let trips = honest::trips(endpoint, shown, feed, clock, times);
        let (under, most) = memory::most_during(self.process, trips).await;
        attacking.abort();
        // Its calls are over before the next attack begins: whoever still has the target runs.
        let _ = attacking.await;
        while ended.recv().await.is_some() {}
        HostileRound {
            attack,
            attempts: attempts.load(Ordering::Relaxed),
            under,
            breaches: target.take_breaches(),
            grown: before
                .zip(most)
                .map(|(before, most)| most.saturating_sub(before)),
        }
    }
}

/// What became of a hub under attack.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostileReport {
    /// What an honest agent met before the first attack.
    pub calm: Latency,
    /// Each attack.
    pub rounds: Vec<HostileRound>,
    max_growth: u64,
    patience: Duration,
    /// Whether the honest agent does a job each time.
    does_jobs: bool,
}

/// One attack, and what was noticed of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostileRound {
    /// The attack.
    pub attack: Attack,
    /// Calls, connections or messages that it made.
    pub attempts: u64,
    /// What an honest agent met meanwhile.
    pub under: Latency,
    /// How often somebody learned what is another's.
    pub breaches: u64,
    /// By how many bytes the hub's memory grew; `None` where its process is unknown.
    pub grown: Option<u64>,
}

impl HostileReport {
    /// Whether each attack was tried, and while it went on the honest agent was served each time that it tried, within
    /// the [patience](HostileRun::with_patience), nobody learned what is another's, and the memory grew no further than it may.
    /// To be served is to listen, and where jobs come of the feed to do one to its end. Shorter times are for people
    /// to judge: they are the machine's as well.
    #[must_use]
    pub fn is_survived(&self) -> bool {
        self.rounds
            .iter()
            .all(|round| self.faults(round).is_empty())
    }

    /// What the hub did not stand of an attack.
    fn faults(&self, round: &HostileRound) -> Vec<&'static str> {
        let (under, grown) = (&round.under, round.grown);
        let judged = [
            (round.attempts == 0, "not tried"),
            (under.served == 0 || under.failed > 0, "locked out"),
            (round.breaches > 0, "told of others"),
            (grown.is_some_and(|grown| grown > self.max_growth), "memory"),
        ];
        let faults = judged.into_iter().filter(|(is_so, _)| *is_so);
        faults.map(|(_, fault)| fault).collect()
    }
}

impl fmt::Display for HostileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |attack: &str, attempts: &str, met: &Latency, grown: &str, verdict: &str| {
            let (median, p99) = (met.median, met.p99);
            writeln!(
                f,
                "{attack:<26} {attempts:>9} {:>7} {:>7} {:>10.2} {:>10.2} {grown:>10}  {verdict}",
                met.served,
                met.failed,
                median.as_secs_f64() * 1e3,
                p99.as_secs_f64() * 1e3,
            )
        };
        line("(calm)", "", &self.calm, "", "")?;
        for round in &self.rounds {
            let grown = round
                .grown
                .map(|grown| format!("{:.1} MiB", grown as f64 / 1048576.0));
            let verdict = match &self.faults(round)[..] {
                [] => "ok".to_owned(),
                ["not tried"] => "not tried".to_owned(),
                faults => format!("FAILED: {}", faults.join(", ")),
            };
            line(
                round.attack.name(),
                &round.attempts.to_string(),
                &round.under,
                grown.as_deref().unwrap_or("?"),
                &verdict,
            )?;
        }
        write!(
            f,
            "columns: attack, attempts; of an honest agent: served, failed, median and 99th percentile in ms; growth of memory\n\
             ok: it was tried, the honest agent {} each time within {} s, nobody learned what is another's, and the memory \
             grew by no more than {} MiB where it is known",
            if self.does_jobs {
                "listened and did a job"
            } else {
                "listened"
            },
            self.patience.as_secs(),
            self.max_growth >> 20,
        )
    }
}
