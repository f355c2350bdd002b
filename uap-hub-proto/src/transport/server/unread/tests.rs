use std::{collections::BTreeMap, task::Waker};

use http_body::Body as _;
use prost_types::{Struct, value::Kind};

use super::*;
use crate::{role::hub, wire::Attachment};

/// Payloads without a file, with an empty one, and with small and large ones.
fn payloads() -> Vec<Payload> {
    let text = Kind::StringValue("x".repeat(SMALL));
    let fields = BTreeMap::from([("note".to_owned(), text.into())]);
    let metadata = Some(Struct { fields });
    let mut described = Payload::file("d", "d.bin", "a/b", vec![1; SMALL + 1]);
    described.metadata = metadata.clone();
    vec![
        Payload {
            r#type: "none".to_owned(),
            attachment: None,
            metadata,
        },
        Payload {
            attachment: Some(Attachment::default()),
            ..Payload::default()
        },
        Payload::file("s", "s.bin", "a/b", vec![2; SMALL]),
        described,
        Payload::file("l", "l.bin", "a/b", vec![3; 100_000]),
        Payload::file("e", "e.bin", "a/b", vec![]),
    ]
}

fn test(payloads: Vec<Payload>) -> TestInit {
    TestInit {
        test_type: "t".to_owned(),
        payloads,
        acknowledged: Some(7),
    }
}

/// What the pieces of a message are together, without the frame of gRPC.
fn joined<T: Split>(message: T) -> Bytes {
    let all = pieces(message).unwrap().concat();
    let (head, message) = all.split_at(5);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    assert_eq!(head, [&[0][..], &length].concat());
    message.to_vec().into()
}

// spec: HUB-4-1
#[test]
fn a_message_in_pieces_is_the_same_message() {
    for most in 0..=payloads().len() {
        let payloads: Vec<_> = payloads().into_iter().take(most).collect();
        let message = test(payloads.clone());
        assert_eq!(TestInit::decode(joined(message.clone())), Ok(message));
        let message = TranslationInit {
            target_format: "f".to_owned(),
            payloads,
            acknowledged: None,
        };
        let decoded = TranslationInit::decode(joined(message.clone()));
        assert_eq!(decoded, Ok(message));
    }
}

/// How many large files there are, and how many of the pieces are such files.
fn uncopied<T: Split>(message: T, payloads: &[Payload]) -> (usize, usize) {
    let large: Vec<_> = (payloads.iter())
        .map(|payload| payload.data().as_ptr_range())
        .filter(|range| range.end.addr() - range.start.addr() > SMALL)
        .collect();
    let pieces = pieces(message).unwrap();
    let given = pieces.iter().map(|piece| piece.as_ptr_range());
    let same = given.filter(|range| large.contains(range)).count();
    (same, large.len())
}

// spec: HUB-4-6
#[test]
fn large_files_are_not_copied() {
    let payloads = payloads();
    assert_eq!(uncopied(test(payloads.clone()), &payloads), (2, 2));
    let translation = TranslationInit {
        target_format: "f".to_owned(),
        payloads: payloads.clone(),
        acknowledged: None,
    };
    assert_eq!(uncopied(translation, &payloads), (2, 2));
}

fn connection() -> (Unread, Arc<Pool>, Held) {
    let (pool, held) = (Pool::new(1 << 20, 1, 4, 1), Held::default());
    (Unread::new(pool.clone(), held.clone()), pool, held)
}

// spec: HUB-4-6
#[test]
fn large_messages_count_until_their_last_piece_is_dropped() {
    let (unread, _pool, held) = connection();
    let sent = unread.add(test(payloads())).unwrap();
    let bytes = sent.message.encoded_len();
    assert_eq!(held.bytes(), bytes);
    let large = Large::default();
    large.put(sent.message, &sent.charge.unwrap()).unwrap();
    let mut pieces: Vec<_> = std::iter::from_fn(|| large.next()).collect();
    assert!(pieces.len() > 2);
    while pieces.pop().is_some() {
        let left = if pieces.is_empty() { 0 } else { bytes };
        assert_eq!(held.bytes(), left, "{}", pieces.len());
    }
}

// spec: HUB-4-6
#[test]
fn small_messages_do_not_count_and_what_is_too_much_is_refused() {
    let (unread, _pool, held) = connection();
    let empty = test(Vec::new()).encoded_len();
    let sized = |bytes: usize| TestInit {
        test_type: "t".repeat(bytes),
        ..test(Vec::new())
    };
    let small = unread.add(sized(SMALL - empty - 1)).unwrap();
    assert!(small.charge.is_none() && small.message.encoded_len() <= SMALL);
    let large = unread.add(sized(SMALL)).unwrap();
    assert!(large.charge.is_some() && held.bytes() > SMALL);
    assert_eq!(unread.add(sized(1 << 20)).unwrap_err(), Full);
    drop(large);
    assert_eq!(held.bytes(), 0, "what was refused counts no more");
    assert!(unread.add(sized((1 << 20) - 100)).is_ok());
}

// spec: HUB-4-6
#[test]
fn who_reads_what_it_is_sent_is_never_refused() {
    for (jobs, message) in [(3 << 20, 1 << 20), (1 << 20, 5 << 20)] {
        let config = hub::Config::default()
            .with_max_queued_bytes(jobs)
            .with_max_message_bytes(message);
        let config = ServerConfig::default().with_hub(config);
        let mut all = Account::new(Unread::pool(&config), Held::default());
        let most = jobs.max(message);
        assert_eq!((all.add(most), all.add(1)), (Ok(()), Err(Full)), "{most}");
    }
}

/// Gives small messages, and says that it has nothing before each large one.
struct Small(VecDeque<Option<&'static [u8]>>, Large);

impl http_body::Body for Small {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.0.pop_front() {
            Some(Some(bytes)) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(bytes))))),
            Some(None) => {
                lock(&self.1.0).extend([Bytes::from_static(b"L"), Bytes::from_static(b"M")]);
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

#[test]
fn large_messages_come_in_their_places_and_before_the_end() {
    let large = Large::default();
    let small = VecDeque::from([Some(&b"a"[..]), None, Some(b"b"), None]);
    let mut answer = http::Response::new(Body::new(Small(small, large.clone())));
    answer.extensions_mut().insert(large);
    let mut body = Large::within(answer).into_body();
    let mut cx = Context::from_waker(Waker::noop());
    let mut come = Vec::new();
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
        come.extend(frame.unwrap().into_data().unwrap());
    }
    assert_eq!(come, b"aLMbLM");
}
