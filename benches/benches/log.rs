//! The log against what one would use instead: `cargo bench -p benches --bench log [--features yardsticks]`.
//!
//! A disk's sync time drifts by a factor of ten, so all engines take turns within each round, and what counts
//! is the median of the ratios of the rounds.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a yardstick is a plain file, and a bench reads the clock"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot write has nothing to say"
)]

use benches::{Bar, report};
use criterion::{Criterion, Throughput};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use ubos_common::log::format::{BlockBuilder, Chain, Limits, LogKeys};
use ubos_common::log::{Config, FsDir, Log, LogId, Verify};

const RECORD_BYTES: usize = 1024;
const ROUNDS: usize = 15;
/// Appends of one engine in one round when each waits for its sync.
const SINGLE: usize = 100;
/// Appends of one engine in one round when 64 are in flight.
const GROUPED: usize = 64 * 20;
/// Records that are proven.
const PROVEN: usize = 100_000;

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    durable(folder.path());
    proofs(folder.path());
    let mut criterion = Criterion::default().configure_from_args();
    codec(&mut criterion);
    criterion.final_summary();
}

fn config() -> Config {
    Config::default().with_log_id(LogId::from_bytes([5; 16]))
}

fn record() -> Vec<u8> {
    (0..RECORD_BYTES)
        .map(|at| (at * 31 % 251).to_le_bytes()[0])
        .collect()
}

/// An engine does its share of a round and says how much that was.
type Engine<'e> = (&'static str, Box<dyn FnMut() -> usize + 'e>);

/// Lets the engines take turns and prints what they need, in relation to the first.
fn compare(title: &str, engines: &mut [Engine<'_>]) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); engines.len()];
    for _ in 0..ROUNDS {
        for ((_, engine), times) in engines.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let done = engine();
            let done = u32::try_from(done).unwrap();
            times.push(start.elapsed().div_f64(f64::from(done)).as_secs_f64());
        }
    }
    println!(
        "\n{title}: time a record, median of {ROUNDS} rounds; ratio to the first, median of the rounds' ratios"
    );
    for ((name, _), own) in engines.iter().zip(&times) {
        let ratio = ratio(own, times.first().unwrap());
        let time = Duration::from_secs_f64(median(own.clone()));
        println!("  {name:<58} {time:>12.2?}  {ratio:>6.2}");
    }
    times
}

fn ratio(own: &[f64], base: &[f64]) -> f64 {
    median(own.iter().zip(base).map(|(own, base)| own / base).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A preallocated file, a write and an fdatasync an append: as little as can be done.
fn plain(folder: &Path) -> impl FnMut() -> usize {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .open(folder.join("plain"))
        .unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 64 << 20).unwrap();
    file.sync_all().unwrap();
    let (record, mut at) = (record(), 0);
    move || {
        for _ in 0..SINGLE {
            file.write_all_at(&record, at).unwrap();
            rustix::fs::fdatasync(&file).unwrap();
            at += RECORD_BYTES as u64;
        }
        SINGLE
    }
}

/// `threads` submitters that together keep `in_flight` appends in flight.
fn submit(log: &Log, threads: usize, in_flight: usize) -> usize {
    let record = record();
    let each = in_flight / threads;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..GROUPED / in_flight {
                    let tickets: Vec<_> = (0..each).map(|_| log.submit(&record).unwrap()).collect();
                    for ticket in tickets {
                        log.wait(ticket).unwrap();
                    }
                }
            });
        }
    });
    GROUPED
}

fn durable(folder: &Path) {
    let log = Log::open(folder.join("log"), config()).unwrap();
    let record = record();
    let ours = || {
        (0..SINGLE).for_each(|_| {
            log.append(&record).unwrap();
        });
        SINGLE
    };
    let mut engines: Vec<Engine<'_>> = vec![
        (
            "plain preallocated file, fdatasync each",
            Box::new(plain(folder)),
        ),
        ("log, append", Box::new(ours)),
        (
            "log, 64 in flight from 1 submitter",
            Box::new(|| submit(&log, 1, 64)),
        ),
        (
            "log, 64 in flight from 2 submitters",
            Box::new(|| submit(&log, 2, 64)),
        ),
        ("log, 64 threads", Box::new(|| submit(&log, 64, 64))),
    ];
    #[cfg(feature = "yardsticks")]
    engines.push((
        "SQLite, WAL, synchronous=FULL, a transaction each",
        Box::new(yardsticks::sqlite(folder, 1)),
    ));
    #[cfg(feature = "yardsticks")]
    engines.push((
        "SQLite, 64 records a transaction",
        Box::new(yardsticks::sqlite(folder, 64)),
    ));
    let times = compare("durable append, 1 KB", &mut engines);
    let time = |at: usize| times.get(at).map_or(&[][..], Vec::as_slice);
    let of = |one, other| ratio(time(one), time(other));
    report(
        "log: durable append of 1 KB / a plain file",
        of(1, 0),
        Bar::AtMost(1.1),
    );
    report(
        "log: single append / 64 in flight from 1 submitter",
        of(1, 2),
        Bar::AtLeast(15.0),
    );
    report(
        "log: single append / 64 in flight from 2 submitters",
        of(1, 3),
        Bar::AtLeast(15.0),
    );
    report("log: single append / from 64 threads", of(1, 4), Bar::None);
    if times.len() > 5 {
        report("SQLite / log: single append", of(5, 1), Bar::AtLeast(2.0));
        report(
            "SQLite, 64 a transaction / log: 64 in flight",
            of(6, 3),
            Bar::None,
        );
    }
}

#[cfg(feature = "yardsticks")]
mod yardsticks {
    use super::{GROUPED, SINGLE, record};
    use std::path::Path;

    pub(super) fn sqlite(folder: &Path, group: usize) -> impl FnMut() -> usize + use<> {
        let database = rusqlite::Connection::open(folder.join(format!("{group}.sqlite"))).unwrap();
        database
            .execute_batch(
                "pragma journal_mode=wal; pragma synchronous=full;
                 create table log (sequence integer primary key, bytes blob not null);",
            )
            .unwrap();
        let record = record();
        move || {
            let total = if group == 1 { SINGLE } else { GROUPED };
            for _ in 0..total / group {
                database.execute_batch("begin immediate").unwrap();
                let mut insert = database
                    .prepare_cached("insert into log (bytes) values (?1)")
                    .unwrap();
                for _ in 0..group {
                    insert.execute([&record]).unwrap();
                }
                drop(insert);
                database.execute_batch("commit").unwrap();
            }
            total
        }
    }
}

fn proofs(folder: &Path) {
    let dir = FsDir::new(folder.join("proven"));
    let log = Log::open(dir.path(), config()).unwrap();
    let record = record();
    for _ in 0..PROVEN / 64 {
        for _ in 0..64 {
            let _ = log.submit(&record).unwrap();
        }
        log.commit().unwrap();
    }
    let count = PROVEN / 64 * 64;
    let kept = log.close().unwrap();
    let chain = folder.join("chain");
    write_chain(&chain, &record, count);
    let mut engines: Vec<Engine<'_>> = vec![
        (
            "log, verify of 64-record blocks",
            Box::new(|| {
                let proven = Verify::default().kept(kept).run(&dir).unwrap();
                usize::try_from(proven.records).unwrap()
            }),
        ),
        (
            "chain of single records, one-shot hashes",
            Box::new(|| prove_chain(&chain)),
        ),
        (
            "reading alone",
            Box::new(|| {
                let mut bytes = 0;
                read_chunks(&chain, |chunk| bytes += black_box(chunk).len());
                bytes / (RECORD_BYTES + 32)
            }),
        ),
    ];
    let times = compare("proof, 1 KB records from the page cache", &mut engines);
    let time = |at: usize| times.get(at).map_or(&[][..], Vec::as_slice);
    let per_record = median(time(0).to_vec());
    report(
        "record-by-record chain / log: proof",
        ratio(time(1), time(0)),
        Bar::AtLeast(4.0),
    );
    println!(
        "  verify                       {:>6.2}  GB/s",
        1.024e-6 / per_record
    );
}

/// The yardstick: each record behind the digest of the record before it and itself.
fn write_chain(path: &Path, record: &[u8], count: usize) {
    let mut previous = [0; 32];
    let mut bytes = Vec::with_capacity(count * (RECORD_BYTES + 32));
    for _ in 0..count {
        previous = link(previous, record);
        bytes.extend_from_slice(&previous);
        bytes.extend_from_slice(record);
    }
    std::fs::write(path, bytes).unwrap();
}

fn link(previous: [u8; 32], record: &[u8]) -> [u8; 32] {
    let mut linked = [0; RECORD_BYTES + 32];
    linked.get_mut(..32).unwrap().copy_from_slice(&previous);
    linked.get_mut(32..).unwrap().copy_from_slice(record);
    *blake3::hash(&linked).as_bytes()
}

fn prove_chain(path: &Path) -> usize {
    let (mut previous, mut count) = ([0; 32], 0);
    read_chunks(path, |chunk| {
        for entry in chunk.chunks_exact(RECORD_BYTES + 32) {
            let (stored, record) = entry.split_at(32);
            previous = link(previous, record);
            assert_eq!(previous, stored, "record {count}");
            count += 1;
        }
    });
    count
}

fn read_chunks(path: &Path, mut take: impl FnMut(&[u8])) {
    let file = File::open(path).unwrap();
    let mut buffer = vec![0; (RECORD_BYTES + 32) * 512];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut buffer, at).unwrap();
        if read == 0 {
            break;
        }
        take(buffer.get(..read).unwrap());
        at += read as u64;
    }
}

/// The bytes alone: encoding and proving one block of 64 records.
fn codec(criterion: &mut Criterion) {
    let keys = LogKeys::new(LogId::from_bytes([5; 16]));
    let record = record();
    let encode = |block: &mut BlockBuilder| {
        block.begin(0);
        (0..64).for_each(|_| {
            block.push(&record).unwrap();
        });
        block.finish(keys.genesis(), 0)
    };
    let mut block = BlockBuilder::new(keys.clone(), Limits::default());
    let mut group = criterion.benchmark_group("log block of 64");
    group.throughput(Throughput::Bytes(64 * RECORD_BYTES as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| encode(&mut block)));
    encode(&mut block);
    let chain = Chain::new(keys.clone(), Limits::default(), keys.genesis(), 0);
    group.bench_function("decode", |bencher| {
        bencher.iter(|| chain.decode(black_box(block.as_bytes())).unwrap().summary())
    });
    group.finish();
}
