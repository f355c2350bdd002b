//! What the cores do, and what is seen of the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use opensentience_wire::transport::tokio::Launcher;

use super::agent::{ROLE, TASKS};
use super::hostile::Core;

pub(crate) const AGENT: &str = "com.example.a";
/// How long each attack goes on, and on until it has come through.
const WATCHED: Duration = Duration::from_millis(1_500);
/// What an agent may grow by: what waits to be sent, a frame that comes, inputs and results that are held, and what an allocator
/// keeps of them.
const MOST: u64 = 64 << 20;
/// The threads of its pool, its own, that of this test, and some to spare.
const MOST_THREADS: u64 = 40;
/// A task for each call that runs, of which 256 may, and some to spare.
const MOST_TASKS: u64 = 260;
/// How long the agent may take on a busy machine.
const DEAD: Duration = Duration::from_secs(120);

/// What an attack is to come to, so that it is one: a kit whose cores say nothing would find every agent well.
struct Attack {
    name: &'static str,
    /// The least bytes and frames that the agent has taken behind the handshake.
    bytes: u64,
    frames: u64,
    then: Then,
}

/// What the agent does.
enum Then {
    /// It ends by itself.
    Ends,
    /// It goes on until the core is gone.
    Lives,
    /// It has answered so many times.
    Answers(u64),
}

const fn attack(name: &'static str, bytes: u64, frames: u64, then: Then) -> Attack {
    Attack {
        name,
        bytes,
        frames,
        then,
    }
}

const ATTACKS: [Attack; 24] = [
    attack("nothing", 0, 0, Then::Lives),
    attack("half a prefix", 2, 0, Then::Lives),
    attack("half a frame of 4 MB", 1_000_004, 0, Then::Lives),
    attack("a frame of 4 GiB", 64, 0, Then::Ends),
    attack("an empty frame", 4, 0, Then::Ends),
    attack("a call before the welcome", 100, 1, Then::Ends),
    attack("100,000 nested lists", 200_004, 1, Then::Ends),
    attack("a token refused", 100, 1, Then::Ends),
    attack("tokens tried", 10_000, 20, Then::Answers(20)),
    attack("questions", 200_000, 100, Then::Answers(100)),
    attack(
        "questions whose answers are not read",
        800_000,
        400,
        Then::Lives,
    ),
    attack("calls", 20_000, 100, Then::Answers(100)),
    attack("calls of 900 KB", 1_800_000, 2, Then::Lives),
    attack("calls with ids of 300 KB", 1_500_000, 5, Then::Answers(5)),
    attack("calls that never return", 60_000, 300, Then::Answers(40)),
    attack("calls that block", 60_000, 300, Then::Answers(40)),
    attack("output that is not read", 200, 1, Then::Lives),
    attack("results of 1.9 MB", 1_000, 5, Then::Answers(5)),
    attack(
        "results of 1.9 MB that are not read",
        10_000,
        100,
        Then::Lives,
    ),
    attack("a heartbeat every millisecond, unread", 50, 1, Then::Lives),
    attack("a frame of 2 GB behind the welcome", 4, 0, Then::Ends),
    attack("errors of 1 MB", 5_500_000, 5, Then::Lives),
    attack("half a call", 5, 0, Then::Lives),
    attack("a call byte by byte", 2_000, 0, Then::Lives),
];

/// The table of the last run that was written down: see [`all`].
const TABLE: &str = include_str!("TABLE.md");

/// Where it is, and the variable that has a run write it.
const TABLE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile_core/TABLE.md");
const WRITE: &str = "OSW_HOSTILE_CORE_WRITE";

const TITLE: &str = "| core | sent | frames | answers | the agent grows by | threads | tasks | ends within |\n|---|---|---|---|---|---|---|---|\n";

/// Runs them all, prints the table, and has it written where [`WRITE`] is set.
pub(crate) async fn all() {
    let names = TABLE
        .lines()
        .skip(2)
        .filter_map(|row| row.split('|').nth(1));
    let is_new = std::env::var_os(WRITE).is_some();
    assert!(
        is_new
            || names
                .map(str::trim)
                .eq(ATTACKS.iter().map(|attack| attack.name)),
        "the table is of other attacks: set {WRITE} to write it anew"
    );
    let mut table = TITLE.to_owned();
    print!("{TITLE}");
    for attack in &ATTACKS {
        let seen = one(attack).await;
        let name = attack.name;
        let mib = seen.growth as f64 / f64::from(1 << 20);
        let row = format!(
            "| {name} | {} | {} | {} | {mib:.1} MiB | {} | {} | {} ms |\n",
            amount(seen.bytes),
            seen.frames,
            seen.answers,
            seen.threads,
            seen.tasks,
            seen.end.as_millis().max(1)
        );
        print!("{row}");
        table.push_str(&row);
        assert!(
            seen.growth <= MOST,
            "{name}: the agent grew by {mib:.1} MiB"
        );
        assert!(
            seen.threads <= MOST_THREADS,
            "{name}: {} threads",
            seen.threads
        );
        assert!(seen.tasks <= MOST_TASKS, "{name}: {} tasks", seen.tasks);
    }
    if is_new {
        std::fs::write(TABLE_PATH, table).unwrap();
    }
}

fn amount(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

struct Seen {
    bytes: u64,
    frames: u64,
    answers: u64,
    growth: u64,
    threads: u64,
    tasks: u64,
    end: Duration,
}

async fn one(attack: &Attack) -> Seen {
    let name = attack.name;
    let program = std::env::current_exe().unwrap();
    let tasks = tempfile::NamedTempFile::new().unwrap();
    let launcher = Launcher::new(AGENT, program).env(ROLE, "agent");
    let launcher = launcher.env(TASKS, tasks.path());
    let mut process = launcher.spawn().unwrap();
    let stream = process.accept().await.unwrap();
    let pid = stream.peer_cred().unwrap().pid().unwrap();
    let before = held(pid, "VmRSS:");
    let counts = Arc::<Counts>::default();
    let token = process.token().expose().to_owned();
    let core = Core::new(stream, token, Arc::clone(&counts));
    let mut attacking = Box::pin(core.attack(name));
    let (mut most, mut has_ended) = ((before, 0), false);
    let began = Instant::now();
    // However busy the machine is, an attack is to come through.
    while !counts.have_come_to(attack, has_ended) || !has_ended && began.elapsed() < WATCHED {
        tokio::select! {
            // After a long stall it looks no further: an agent waits 10 s for a welcome, and ends then.
            biased;
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            // One that the agent turns away has no more to do.
            _ = &mut attacking, if !has_ended => has_ended = true,
        }
        most.0 = most.0.max(held(pid, "VmRSS:"));
        most.1 = most.1.max(held(pid, "Threads:"));
        let seen = began.elapsed();
        assert!(
            seen < DEAD,
            "{name} did not come through, the agent has ended: {has_ended}, {counts:?}"
        );
    }
    // A core that is gone is the end of every agent.
    drop(attacking);
    let gone = Instant::now();
    while held(pid, "VmRSS:") > 0 {
        assert!(gone.elapsed() < DEAD, "{name}: the agent goes on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let end = gone.elapsed();
    process.stop(DEAD).await;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let tasks = std::fs::read_to_string(tasks.path()).unwrap();
    Seen {
        bytes: count(&counts.bytes),
        frames: count(&counts.frames),
        answers: count(&counts.answers),
        growth: (most.0 - before) * 1_024,
        // One is this test's.
        threads: most.1.saturating_sub(1),
        tasks: tasks.lines().last().map_or(0, |line| line.parse().unwrap()),
        end,
    }
}

/// A figure of a process's status; 0 once it has ended.
fn held(pid: i32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure.and_then(|figure| figure.parse().ok()).unwrap_or(0)
}

/// What went to the agent behind the handshake, and what came back.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bytes: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) answers: AtomicU64,
}

impl Counts {
    fn have_come_to(&self, attack: &Attack, has_ended: bool) -> bool {
        let least = |count: &AtomicU64, least| count.load(Ordering::Relaxed) >= least;
        let answers = match attack.then {
            Then::Ends => has_ended,
            Then::Lives => !has_ended,
            Then::Answers(most) => !has_ended && least(&self.answers, most),
        };
        answers && least(&self.bytes, attack.bytes) && least(&self.frames, attack.frames)
    }
}
