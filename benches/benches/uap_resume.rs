//! Resuming recorded runs, and recording them in databases: `cargo bench -p benches --bench uap_resume [--features yardsticks]`.
//!
//! Prints the time of resuming a run of 10,000 recorded effects beside that of reading its journal in files, up to the entries
//! that a recording has (`Recording::load`: at most 2 times) and up to its records (`Journal::read`: no bar);
//! and, with the feature `yardsticks`, a lease taken and a step recorded in SQLite beside the same rows
//! written by hand, and in PostgreSQL where `UBOS_BENCH_POSTGRES` holds the address of a server on the loopback.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use futures::executor::block_on;
use uap_agent::journal::{FileJournal, Journal, MemoryJournal, Recording};
use uap_agent::{Agent, AgentOptions, agent};
use ubos_common::json::RawObject;
use upp::{FnTool, Reply, ScriptedModel, Tool, object};

/// Tool rounds of the run: an inference and a call each.
const ROUNDS: usize = 5_000;
/// Runs of each side, taken in turn; the shortest counts.
const TURNS: usize = 12;

fn main() {
    resumes();
    #[cfg(feature = "yardsticks")]
    databases::steps();
    #[cfg(not(feature = "yardsticks"))]
    println!("databases: not built, feature yardsticks");
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

fn echo() -> Arc<dyn Tool> {
    let schema = object(r#"{"type":"object"}"#).expect("a schema");
    Arc::new(FnTool::new(
        "echo",
        "Gives back its input",
        schema,
        |input, _| async { Ok(input.into()) },
    ))
}

/// An agent whose model calls its tool so many times, one call a round.
fn caller(rounds: usize) -> Agent {
    let mut left = rounds;
    let model = ScriptedModel::with(move |_| {
        let calls = left > 0;
        left = left.saturating_sub(1);
        Some(if calls {
            let input = object(r#"{"x":1}"#).ok()?;
            Reply::text("this is said before the tool is called").calling(
                format!("call-{left}"),
                "echo",
                input,
            )
        } else {
            Reply::text("done")
        })
    });
    agent(AgentOptions::new(Arc::new(model)).with_tools([echo()])).expect("an agent")
}

fn record(agent: &Agent, journal: Arc<dyn Journal>) {
    let state = agent.initial_state();
    let result = block_on(agent.record(journal, "go", &state).result()).expect("a result");
    assert_eq!(result.turn.tool_executions.len(), ROUNDS);
}

fn resumes() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = Arc::new(MemoryJournal::default());
    record(&caller(ROUNDS), whole.clone());
    let mut entries = block_on(whole.read()).expect("entries");
    timed("ended", &folder.path().join("ended"), entries.clone());
    // Killed while the model was asked for the last time.
    entries.truncate(entries.len() - 2);
    timed("not ended", &folder.path().join("not ended"), entries);
}

fn timed(name: &str, folder: &Path, entries: Vec<RawObject>) {
    let bytes: usize = entries.iter().map(|entry| entry.as_str().len()).sum();
    let count = entries.len();
    let (mut read, mut loaded, mut resumed) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let journal = Arc::new(FileJournal::open(folder).expect("a journal"));
    // As a run writes them: each is on the disk before the next is there.
    for (n, entry) in (0..).zip(entries) {
        block_on(journal.append(n, vec![entry])).expect("written");
    }
    for _ in 0..TURNS {
        let start = Instant::now();
        drop(black_box(block_on(journal.read()).expect("entries")));
        read = read.min(start.elapsed());
        let start = Instant::now();
        drop(black_box(
            block_on(Recording::load(journal.as_ref())).expect("a recording"),
        ));
        loaded = loaded.min(start.elapsed());
        let agent = caller(0);
        let start = Instant::now();
        let run = black_box(block_on(agent.resume(journal.clone())).expect("a run"));
        resumed = resumed.min(start.elapsed());
        drop(run);
    }
    println!(
        "a run of {} effects that has {name} ({count} entries, {bytes} bytes in files): resumed in {resumed:?}; \
         its records read and checked: {read:?}; its entries, too: {loaded:?}",
        2 * ROUNDS + 1,
    );
    let what = |of: &str| format!("UAP: a run that has {name} resumed / {of}");
    report(&what("its records read"), ratio(resumed, read), Bar::None);
    report(
        &what("its entries read"),
        ratio(resumed, loaded),
        Bar::AtMost(2.0),
    );
}

/// The first entry of a run, which takes its lease, and those of a step.
#[cfg(feature = "yardsticks")]
fn begin_and_step() -> [Vec<RawObject>; 2] {
    let journal = Arc::new(MemoryJournal::default());
    let agent = caller(1);
    let state = agent.initial_state();
    block_on(agent.record(journal.clone(), "go", &state).result()).expect("a result");
    let mut entries = block_on(journal.read()).expect("entries");
    entries.truncate(3);
    let step = entries.split_off(1);
    [entries, step]
}

#[cfg(feature = "yardsticks")]
mod databases {
    use super::{Duration, Instant, Journal as _, begin_and_step, block_on, ratio};
    use uap_agent::sql::{Database, PostgresConfig};
    use ubos_common::json::RawObject;

    const RUNS: usize = 300;

    const TABLES: &str = "CREATE TABLE bare_run (run TEXT PRIMARY KEY, next BIGINT NOT NULL, owner TEXT NOT NULL);
        CREATE TABLE bare_entry (run TEXT NOT NULL, n BIGINT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (run, n))";
    const NEW: &str = "INSERT INTO bare_run (run, next, owner) VALUES (?1, 1, ?2)";
    const ADD: &str = "INSERT INTO bare_entry (run, n, entry) VALUES (?1, ?2, ?3)";
    const SET: &str = "UPDATE bare_run SET next = ?3 WHERE run = ?1 AND next = ?2";

    pub(super) fn steps() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let database = Database::sqlite(file("ours.db")).expect("a database");
        let mut bare = Lite::open(&file("bare.db"));
        print("SQLite", &database, &mut |run, entries| {
            bare.run(run, entries)
        });
        let Ok(address) = std::env::var("UBOS_BENCH_POSTGRES") else {
            println!("PostgreSQL: not measured, no UBOS_BENCH_POSTGRES");
            return;
        };
        let database =
            Database::postgres(&PostgresConfig::new(address.as_str())).expect("a database");
        let mut bare = Pg::open(&address);
        print("PostgreSQL", &database, &mut |run, entries| {
            bare.run(run, entries)
        });
    }

    fn print(name: &str, database: &Database, bare: &mut dyn FnMut(&str, &[Vec<RawObject>; 2])) {
        let entries = begin_and_step();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for n in 0..RUNS {
            let start = Instant::now();
            let run = format!("{n} of {}", std::process::id());
            let journal = database.journal(run.as_str());
            let mut first = 0;
            for written in &entries {
                block_on(journal.append(first, written.clone())).expect("written");
                first += written.len() as u64;
            }
            ours.push(start.elapsed());
            let start = Instant::now();
            bare(&run, &entries);
            theirs.push(start.elapsed());
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!("{name}: a lease taken and a step recorded {ours:?}, the bare rows {theirs:?}");
        let what = format!("UAP: a lease taken and a step recorded in {name} / the bare rows");
        benches::report(&what, ratio(ours, theirs), benches::Bar::None);
    }

    fn median(mut spent: Vec<Duration>) -> Duration {
        spent.sort_unstable();
        spent.get(spent.len() / 2).copied().unwrap_or_default()
    }

    /// The numbers of the entries of both writes.
    fn numbered(entries: &[Vec<RawObject>; 2]) -> [(i64, Vec<(i64, &str)>); 2] {
        let mut next = 0_i64;
        entries.each_ref().map(|written| {
            let first = next;
            let rows = written.iter().map(|entry| {
                next += 1;
                (next - 1, entry.as_str())
            });
            let rows = rows.collect();
            (first, rows)
        })
    }

    struct Lite(rusqlite::Connection);

    impl Lite {
        fn open(file: &std::path::Path) -> Self {
            let link = rusqlite::Connection::open(file).expect("a file");
            link.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
                .expect("settings");
            link.execute_batch(TABLES).expect("tables");
            Self(link)
        }

        fn run(&mut self, run: &str, entries: &[Vec<RawObject>; 2]) {
            for (first, rows) in numbered(entries) {
                let link = self
                    .0
                    .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
                let link = link.expect("a transaction");
                let next = first + i64::try_from(rows.len()).expect("small");
                let changed = match first {
                    0 => link
                        .prepare_cached(NEW)
                        .and_then(|mut new| new.execute((run, "owner"))),
                    _ => link
                        .prepare_cached(SET)
                        .and_then(|mut set| set.execute((run, first, next))),
                };
                assert_eq!(changed.expect("a row"), 1);
                for (n, entry) in rows {
                    let added = link
                        .prepare_cached(ADD)
                        .and_then(|mut add| add.execute((run, n, entry)));
                    added.expect("a row");
                }
                link.commit().expect("committed");
            }
        }
    }

    struct Pg {
        link: postgres::Client,
        statements: [postgres::Statement; 3],
    }

    impl Pg {
        fn open(address: &str) -> Self {
            let mut link = postgres::Client::connect(address, postgres::NoTls).expect("a server");
            link.batch_execute("DROP TABLE IF EXISTS bare_run, bare_entry")
                .expect("no tables");
            link.batch_execute(TABLES).expect("tables");
            let statements = [NEW, SET, ADD].map(|text| {
                let text = text.replace('?', "$");
                link.prepare(&text).expect("a statement")
            });
            Self { link, statements }
        }

        fn run(&mut self, run: &str, entries: &[Vec<RawObject>; 2]) {
            let [new, set, add] = &self.statements;
            for (first, rows) in numbered(entries) {
                let mut link = self.link.transaction().expect("a transaction");
                let next = first + i64::try_from(rows.len()).expect("small");
                let changed = match first {
                    0 => link.execute(new, &[&run, &"owner"]),
                    _ => link.execute(set, &[&run, &first, &next]),
                };
                assert_eq!(changed.expect("a row"), 1);
                for (n, entry) in rows {
                    link.execute(add, &[&run, &n, &entry]).expect("a row");
                }
                link.commit().expect("committed");
            }
        }
    }
}
