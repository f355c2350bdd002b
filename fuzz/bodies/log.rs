//! The log's decoder: no bytes make it panic, what was written reads back, and a changed byte is found.

use ubos_common::log::LogId;
use ubos_common::log::format::{BlockBuilder, Chain, Extent, Limits, LogKeys, SegmentHeader};

/// The first byte chooses what the rest is.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 3 {
        0 => segment(rest),
        1 => blocks(rest),
        _ => written(rest),
    }
}

fn keys() -> LogKeys {
    LogKeys::new(LogId::from_bytes([7; 16]))
}

fn chain() -> Chain {
    let keys = keys();
    let genesis = keys.genesis();
    Chain::new(keys, Limits::default(), genesis, 0)
}

fn segment(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        let again = header.encode(&LogKeys::new(header.log));
        assert!(SegmentHeader::decode(&again).is_ok_and(|h| h.index == header.index));
    }
}

fn blocks(mut bytes: &[u8]) {
    let mut chain = chain();
    while let Ok(block) = chain.decode(bytes) {
        let summary = block.summary();
        assert!(block.records().count() as u64 == summary.next_sequence - summary.first_sequence);
        chain.follow(&summary);
        bytes = bytes
            .get(summary.bytes..)
            .expect("a block lies within its bytes");
    }
    if let Err(fault) = chain.decode(bytes) {
        assert!(!fault.to_string().is_empty());
    }
    assert!(!matches!(chain.extent(&[]), Ok(Extent::Whole(_))));
}

/// Records are cut from the bytes by length bytes; two more choose a byte to change.
fn written(bytes: &[u8]) {
    let [at, mask, rest @ ..] = bytes else { return };
    let mut records = Vec::new();
    let mut rest = rest;
    while let Some((length, tail)) = rest.split_first() {
        let (record, after) = tail.split_at(usize::from(*length).min(tail.len()));
        records.push(record);
        rest = after;
    }
    if records.is_empty() {
        return;
    }
    let (keys, chain) = (keys(), chain());
    let mut builder = BlockBuilder::new(keys.clone(), Limits::default());
    builder.begin(0);
    for record in &records {
        builder.push(record).expect("within the limits");
    }
    let digest = builder.finish(keys.genesis(), 0);
    let block = chain
        .decode(builder.as_bytes())
        .expect("what is written decodes");
    assert_eq!(block.summary().digest, digest);
    assert!(
        block
            .records()
            .map(|record| record.bytes)
            .eq(records.iter().copied())
    );
    let mut changed = builder.as_bytes().to_vec();
    let place = usize::from(*at) * changed.len() / 256;
    if let Some(byte) = changed.get_mut(place)
        && *mask != 0
    {
        *byte ^= mask;
        assert!(
            chain.decode(&changed).is_err(),
            "a changed byte went unseen"
        );
    }
}
