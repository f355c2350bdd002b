//! Properties of the codec.

use super::{
    BLOCK_HEADER_BYTES, BlockBuilder, Chain, EncodeError, Extent, Fault, Limits, LogKeys,
    SegmentHeader,
};
use crate::log::LogId;
use proptest::prelude::*;

fn keys() -> LogKeys {
    LogKeys::new(LogId::from_bytes([3; 16]))
}

fn chain(limits: Limits) -> Chain {
    Chain::new(keys(), limits, keys().genesis(), 5)
}

fn block(records: &[Vec<u8>]) -> Vec<u8> {
    let mut block = BlockBuilder::new(keys(), Limits::default());
    block.begin(5);
    records
        .iter()
        .for_each(|record| assert!(block.push(record).is_ok()));
    block.finish(keys().genesis(), 5);
    block.as_bytes().to_vec()
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8)) {
        let bytes = block(&records);
        let chain = chain(Limits::default());
        prop_assert_eq!(chain.extent(&bytes), Ok(Extent::Whole(bytes.len())));
        let decoded = chain.decode(&bytes).unwrap();
        let found: Vec<_> = decoded.records().map(|record| record.bytes.to_vec()).collect();
        prop_assert_eq!(found, records);
        for (record, sequence) in decoded.records().zip(5..) {
            prop_assert_eq!(record.sequence, sequence);
            prop_assert_eq!(&bytes[record.offset + 20..][..record.bytes.len()], record.bytes);
        }
    }

    #[test]
    fn every_prefix_wants_more(length in 0_usize..300) {
        let bytes = block(&[vec![1; 200]]);
        let chain = chain(Limits::default());
        let prefix = &bytes[..length.min(bytes.len() - 1)];
        prop_assert_eq!(chain.decode(prefix).unwrap_err(), Fault::CutShort { sequence: 5 });
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), flip in 0_usize..2000) {
        let chain = chain(Limits::default());
        prop_assert!(chain.decode(&bytes).is_err());
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
        let mut changed = block(&[vec![1; 50], vec![2; 60]]);
        let bit = flip % (changed.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        let fault = chain.decode(&changed).unwrap_err();
        prop_assert!(fault.sequence().is_some());
    }
}

#[test]
fn lengths_beyond_the_limits_are_named_before_anything_is_allocated() {
    let bytes = block(&[vec![1; 50], vec![2; 60]]);
    let small = chain(Limits::default().with_max_block_bytes(100));
    assert_eq!(
        small.extent(&bytes).unwrap_err(),
        Fault::TooLarge {
            sequence: 5,
            bytes: 150,
            limit: 100
        }
    );
    let exact = chain(Limits::default().with_max_block_bytes(150));
    assert_eq!(exact.extent(&bytes), Ok(Extent::Whole(bytes.len())));
    assert!(exact.allows(bytes.len() as u64) && !exact.allows(bytes.len() as u64 + 1));
    let small = chain(Limits::default().with_max_record_bytes(55));
    assert_eq!(
        small.decode(&bytes).unwrap_err(),
        Fault::TooLarge {
            sequence: 6,
            bytes: 60,
            limit: 55
        }
    );
}

#[test]
fn a_record_over_the_limits_is_not_added() {
    let limits = Limits::default().with_max_record_bytes(100);
    let mut block = BlockBuilder::new(keys(), limits);
    block.begin(5);
    let refused = EncodeError::RecordTooLarge {
        bytes: 101,
        limit: 100,
    };
    assert_eq!(block.push(&[1; 101]), Err(refused));
    assert_eq!(block.push(&[1; 100]), Ok(BLOCK_HEADER_BYTES));
}

#[test]
fn a_block_of_another_log_or_place_is_refused() {
    let bytes = block(&[vec![1]]);
    let other = LogKeys::new(LogId::from_bytes([4; 16]));
    let foreign = Chain::new(other.clone(), Limits::default(), keys().genesis(), 5);
    assert_eq!(
        foreign.decode(&bytes).unwrap_err(),
        Fault::BlockHeader { sequence: 5 }
    );
    let later = Chain::new(keys(), Limits::default(), keys().genesis(), 6);
    assert_eq!(
        later.decode(&bytes).unwrap_err(),
        Fault::Sequence {
            wanted: 6,
            found: 5
        }
    );
    let elsewhere = Chain::new(keys(), Limits::default(), other.genesis(), 5);
    assert_eq!(
        elsewhere.decode(&bytes).unwrap_err(),
        Fault::Chain { sequence: 5 }
    );
}

/// The block as a hostile writer makes it: with other bytes in a header whose checksum holds.
fn with_header(mut block: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    block[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = keys().header_checksum(&block[..64]);
    block[64..72].copy_from_slice(&checksum.to_le_bytes());
    block
}

#[test]
fn records_beyond_the_count_of_their_block_are_never_named() {
    let mut bytes = with_header(block(&[vec![1; 50], vec![2; 60]]), 4, &[1]);
    let chain = chain(Limits::default());
    let whole = Fault::BlockDigest { first: 5, end: 6 };
    assert_eq!(chain.decode(&bytes).unwrap_err(), whole);
    // The record that is too many is damaged, too: it is record 6, and the block has record 5 alone.
    let second = bytes.len() - 32 - 1;
    bytes[second] ^= 1;
    assert_eq!(chain.decode(&bytes).unwrap_err(), whole);
    let end = bytes.len() - 32;
    let digest = keys().block_digest(&bytes[..end]);
    bytes[end..].copy_from_slice(digest.as_bytes());
    assert_eq!(
        chain.decode(&bytes).unwrap_err(),
        Fault::BlockHeader { sequence: 5 }
    );
}

#[test]
fn a_header_is_refused_for_each_of_its_parts() {
    let sound = block(&[vec![1; 50]]);
    let refused = |bytes: &[u8]| {
        assert_eq!(
            chain(Limits::default()).extent(bytes),
            Err(Fault::BlockHeader { sequence: 5 })
        );
    };
    for bit in 0..72 * 8 {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused(&bytes);
    }
    // Wrong though the checksum holds: magic, no records, flags, a count that leads beyond the last sequence.
    refused(&with_header(sound.clone(), 0, b"ubox"));
    refused(&with_header(sound.clone(), 4, &[0]));
    refused(&with_header(sound.clone(), 12, &[2]));
    refused(&with_header(sound, 16, &[0xff; 8]));
}
