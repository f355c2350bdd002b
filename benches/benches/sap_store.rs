//! A cache of a million records in files: writing it, opening it, finding one record:
//! `cargo bench -p benches --bench sap_store`. It takes about a gigabyte of the temporary folder.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject fails has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the figures are the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use futures::executor::block_on;
use sap::Alignment;
use sap::cache::{CacheKey, CacheRecord, CacheStore as _};
use sap::store::FileCache;
use ubos_common::canon::Digest;
use ubos_common::json::RawBuf;
use ubos_common::log::{Config, LogId, Sync};
use ubos_common::time::Timestamp;

fn key(number: usize) -> CacheKey {
    let digest = Digest::of_bytes(&number.to_le_bytes());
    digest.to_string().parse().expect("a digest")
}

fn record(number: usize) -> CacheRecord {
    let output = format!(r#"{{"number":{number},"text":"{}"}}"#, "word ".repeat(60));
    CacheRecord::new(
        key(number),
        Timestamp::EPOCH.into(),
        "A-ml-001".parse().expect("an id"),
        Alignment::Valid,
        RawBuf::parse(&output).expect("JSON"),
        vec!["ubos://constitution/books".into()],
        key(number).to_string().parse().expect("a digest"),
        sap::Version::V2.to_string(),
    )
}

fn main() {
    // `cargo test` runs benches once, to see that they run.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let records = if is_bench { 1_000_000 } else { 1_000 };
    let folder = tempfile::tempdir().expect("a folder");
    let config = || {
        Config::default()
            .with_log_id(LogId::from_bytes([5; 16]))
            .with_sync(Sync::None)
    };
    let start = Instant::now();
    let cache = FileCache::open(folder.path(), config()).expect("a cache");
    for number in 0..records {
        block_on(cache.put(&record(number))).expect("kept");
    }
    drop(cache);
    println!("{records} records written in {:?}", start.elapsed());
    let start = Instant::now();
    let cache = FileCache::open(folder.path(), config()).expect("a cache");
    println!("opened in {:?}", start.elapsed());
    let lookups = 10_000;
    let keys: Vec<CacheKey> = (0..lookups).map(|n| key(n * 7_919 % records)).collect();
    let start = Instant::now();
    for key in &keys {
        let found = block_on(cache.find(key)).expect("read");
        assert!(black_box(found).record.is_some());
    }
    println!(
        "a lookup takes {:?}",
        start.elapsed() / u32::try_from(lookups).expect("few")
    );
}
