use super::*;
use crate::transcript::EntryKind;
use futures::executor::block_on;
use ubos_common::json::{RawBuf, RawObject};

/// Three fit into a block.
fn entry(number: usize) -> Entry {
    entry_with(number, BLOCK / 3)
}

fn entry_with(number: usize, text: usize) -> Entry {
    let body = format!(r#"{{"number":{number},"text":"{}"}}"#, "x".repeat(text));
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    Entry::new(
        EntryKind::Task,
        at,
        RawObject::new(RawBuf::parse(&body).unwrap()).unwrap(),
    )
}

/// With the head behind each of so many entries.
fn with_entries(count: usize) -> (MemoryTranscript, Vec<Head>) {
    let transcript = MemoryTranscript::default();
    let mut heads = vec![transcript.verify(None).unwrap().head];
    for number in 0..count {
        assert_eq!(
            block_on(transcript.record(&entry(number))).unwrap(),
            number as u64
        );
        heads.push(transcript.verify(None).unwrap().head);
    }
    (transcript, heads)
}

#[cfg(feature = "driver")]
#[test]
fn many_entries_are_read_where_that_holds_up_nobody() {
    let (transcript, _) = with_entries(11);
    for (most, apart) in [(1, 0), (11, 1)] {
        let read = || block_on(transcript.read(0, most)).unwrap();
        let (entries, handed_over) = crate::work::handed_over(read);
        assert_eq!((entries.len(), handed_over), (most, apart));
    }
    let rest = json::to_vec(&entry_with(0, 0)).len();
    for (bytes, apart) in [(LONG, 0), (LONG + 1, 1)] {
        let transcript = MemoryTranscript::default();
        block_on(transcript.record(&entry_with(0, bytes - rest))).unwrap();
        let read = || block_on(transcript.read(0, 1)).unwrap();
        assert_eq!(crate::work::handed_over(read).1, apart);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn every_end_that_was_is_known_and_no_other() {
    let (transcript, mut heads) = with_entries(11);
    for head in &heads {
        let proof = transcript.verify(Some(head)).unwrap();
        assert_eq!(
            (proof.records, &proof.verdict),
            (11, &Verdict::Intact),
            "{head}"
        );
    }
    let (_, later) = with_entries(12);
    assert_eq!(heads, later[..12], "the same entries have the same ends");
    heads.extend([later[12].clone()]);
    heads.dedup();
    assert_eq!(heads.len(), 13, "each has its own");
    let text = later[11].as_ref();
    for wrong in [
        later[12].to_string(),
        text.replace("memory:11", "memory:10"),
        text.replace("memory:11", "memory:18446744073709551615"),
        text.replace("memory:11", "memory:0"),
        text.replace("memory", "log"),
        "memory".to_owned(),
    ] {
        let proof = transcript.verify(Some(&Head::from(wrong.clone()))).unwrap();
        let missing = Verdict::broken(11, "the head that was kept is not here");
        assert_eq!(proof.verdict, missing, "{wrong}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn entries_are_read_across_blocks() {
    let (transcript, _) = with_entries(10);
    for from in 0..12 {
        for max in [0, 1, 4, usize::MAX] {
            let read = block_on(transcript.read(from as u64, max)).unwrap();
            let wanted: Vec<Entry> = (from..10).take(max).map(entry).collect();
            assert_eq!(read, wanted, "{max} from {from}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn a_block_that_was_changed_is_damaged() {
    let (transcript, heads) = with_entries(10);
    {
        let mut blocks = lock(&transcript.line.shelf.blocks);
        let byte = blocks.full[1].text.last_mut().unwrap();
        *byte = b' ';
    }
    let proof = transcript.verify(Some(&heads[10])).unwrap();
    assert_eq!(proof.verdict, Verdict::broken(3, "record is damaged"));
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn where_the_newest_are_kept_the_oldest_go() {
    let transcript = MemoryTranscript::new(20).keeping_newest();
    let mut heads = Vec::new();
    for number in 0..100 {
        let taken = block_on(transcript.record(&entry(number))).unwrap();
        assert_eq!(taken, number as u64);
        let proof = transcript.verify(None).unwrap();
        assert_eq!(proof.verdict, Verdict::Intact);
        assert_eq!(proof.records + transcript.removed(), taken + 1);
        assert!(proof.records <= 20 && (number < 20 || proof.records > 16));
        heads.push(proof.head);
    }
    let first = transcript.removed();
    let gone = usize::try_from(first).unwrap();
    let left: Vec<Entry> = (gone..100).map(entry).collect();
    assert_eq!(block_on(transcript.read(first, 100)).unwrap(), left);
    let gone = block_on(transcript.read(first - 1, 1));
    assert!(matches!(gone, Err(TranscriptError::Archived { first: f }) if f == first));
    for (number, head) in heads.iter().enumerate() {
        match transcript.verify(Some(head)) {
            Ok(proof) => assert_eq!(proof.verdict, Verdict::Intact),
            Err(_) => assert!((number as u64) < first, "{head}"),
        }
    }
}

#[test]
fn where_the_newest_are_kept_their_bytes_are_bounded() {
    let bytes = json::to_vec(&entry(10)).len();
    let transcript = MemoryTranscript::default()
        .keeping_newest()
        .with_max_bytes(5 * bytes);
    for number in 10..40 {
        block_on(transcript.record(&entry(number))).unwrap();
        let held = lock(&transcript.line.shelf.blocks).bytes;
        assert!(held <= 5 * bytes && (number < 15 || held > 3 * bytes));
        let left = block_on(transcript.read(transcript.removed(), 9)).unwrap();
        assert_eq!(
            left.iter().map(|it| json::to_vec(it).len()).sum::<usize>(),
            held
        );
    }
    // One that never fits takes nothing away.
    let body = format!(r#"{{"text":"{}"}}"#, "x".repeat(5 * bytes));
    let mut long = entry(10);
    long.body = RawObject::new(RawBuf::parse(&body).unwrap()).unwrap();
    let removed = transcript.removed();
    let refused = block_on(transcript.record(&long));
    assert!(matches!(refused, Err(TranscriptError::FullOfBytes { .. })));
    assert_eq!(transcript.removed(), removed);
}

#[test]
fn what_is_over_the_bound_of_bytes_is_not_taken_and_leaves_nothing() {
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let small = Entry::new(EntryKind::Task, at, RawObject::empty());
    let limit = 2 * json::to_vec(&entry(0)).len() + json::to_vec(&small).len();
    let transcript = MemoryTranscript::default().with_max_bytes(limit);
    for number in [0, 1] {
        block_on(transcript.record(&entry(number))).unwrap();
    }
    let full = transcript.verify(None).unwrap();
    let refused = block_on(transcript.record(&entry(2)));
    assert!(matches!(refused, Err(TranscriptError::FullOfBytes { limit: l }) if l == limit));
    assert_eq!(transcript.verify(None).unwrap(), full);
    #[cfg(feature = "driver")]
    {
        let small = json::to_vec(&small).len();
        let room =
            [small, small + 1].map(|bytes| transcript.line.shelf.check_room(1, bytes).is_ok());
        assert_eq!(room, [true, false]);
    }
    block_on(transcript.record(&small)).unwrap();
    assert_eq!(block_on(transcript.read(2, 9)).unwrap(), [small]);
}
