use futures::FutureExt as _;
use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;

use super::*;
use crate::samples::{self, result};

const ONE: Room = room(1, 1);

const fn room(tasks: usize, bytes: usize) -> Room {
    Room {
        tasks,
        of_issuer: usize::MAX,
        bytes,
    }
}

fn task() -> Arc<Task> {
    Arc::new(samples::task())
}

#[test]
fn a_task_that_is_taken_up_again_is_not_forgotten_as_the_one_that_ended() {
    let task = task();
    let ended = result(&task, Status::Succeeded);
    let (ledger, key) = (Ledger::default(), Key::of(&task));
    let body = Digest::of_bytes(b"");
    assert!(matches!(
        ledger.enter(&key, &task, body, 1, ONE),
        Entered::New(_)
    ));
    ledger.update(&key, &ended, (ended.encode().into(), None), usize::MAX);
    let before = Interruption {
        status: None,
        ends: Timestamp::EPOCH,
        is_cancelled: false,
    };
    ledger.resume(&key, (body, 0), before);
    let tasks = ledger.tasks();
    assert_eq!(tasks.finished.len(), 0);
    assert_eq!((tasks.bytes, tasks.running), (0, 0));
}

// spec: SAP-10-1, SAP-5-10
#[test]
fn a_result_as_long_as_the_bound_is_kept_and_a_longer_one_is_left_to_the_transcript() {
    let task = task();
    let ended = result(&task, Status::Succeeded);
    let bytes = ended.encode().len();
    for (bound, entry, wanted) in [
        (bytes, Some(7), Latest::Kept(ended.encode().into(), Some(7))),
        (bytes, None, Latest::Kept(ended.encode().into(), None)),
        (bytes - 1, Some(7), Latest::Recorded(7)),
        // Its recording was cut off, and it counts like any other.
        (bytes - 1, None, Latest::Lost),
    ] {
        let (ledger, key) = (Ledger::default(), Key::of(&task));
        let body = Digest::of_bytes(b"");
        let _ = ledger.enter(&key, &task, body, 1, ONE);
        ledger.update(&key, &ended, (ended.encode().into(), entry), bound);
        let Sight::Latest { latest, .. } = ledger.look(&key, None) else {
            panic!("it is forgotten");
        };
        assert_eq!(format!("{latest:?}"), format!("{wanted:?}"), "{bound}");
        // It is known whatever is kept of it, and does not run again.
        let again = ledger.enter(&key, &task, body, 1, ONE);
        assert!(matches!(again, Entered::Known(_)));
        let tasks = ledger.tasks();
        assert_eq!(tasks.bytes, wanted.bytes());
        assert_eq!(tasks.finished.len(), tasks.held.len());
    }
}

// spec: SAP-10-1, SAP-5-10
#[test]
fn results_whose_recording_was_cut_off_push_out_no_more_than_their_share() {
    let (long, short) = (task(), {
        let mut other = Task::clone(&task());
        other.issuer.agent_id = "b".parse().unwrap();
        Arc::new(other)
    });
    let mut ids = IdSource::seeded(3);
    let (ledger, body) = (Ledger::default(), Digest::of_bytes(b""));
    let kept = Key::of(&short);
    let _ = ledger.enter(&kept, &short, body, 1, ONE);
    let ended = result(&short, Status::Succeeded);
    let encoded: Arc<[u8]> = ended.encode().into();
    let bound = 2 * encoded.len();
    ledger.update(&kept, &ended, (Arc::clone(&encoded), Some(1)), bound);
    for _ in 0..10 {
        let key = Key::new(ids.next_id(), &long.issuer.agent_id);
        let _ = ledger.enter(&key, &long, body, 1, ONE);
        ledger.update(&key, &ended, (Arc::clone(&encoded), None), bound);
        assert!(ledger.tasks().bytes <= bound);
    }
    // Who has most loses his own.
    let Sight::Latest { latest, .. } = ledger.look(&kept, None) else {
        panic!("it is forgotten");
    };
    assert!(matches!(latest, Latest::Kept(..)), "{latest:?}");
}

// spec: SAP-10-1
#[test]
fn what_running_tasks_say_is_left_to_the_transcript_before_an_end_is_forgotten() {
    let (one, two) = (task(), {
        let mut other = Task::clone(&task());
        other.issuer.agent_id = "b".parse().unwrap();
        Arc::new(other)
    });
    let said = result(&one, Status::Partial);
    let ended = result(&two, Status::Succeeded);
    let bytes = said.encode().len();
    let ledger = Ledger::default();
    let room = room(2, 2);
    for task in [&one, &two] {
        let _ = ledger.enter(&Key::of(task), task, Digest::of_bytes(b""), 1, room);
    }
    let kept = |result: &TaskResult, entry| (result.encode().into(), Some(entry));
    ledger.update(&Key::of(&two), &ended, kept(&ended, 2), bytes - 1);
    ledger.update(&Key::of(&one), &said, kept(&said, 1), bytes - 1);
    assert_eq!(ledger.tasks().bytes, 0);
    for (task, entry) in [(&one, 1), (&two, 2)] {
        let sight = ledger.look(&Key::of(task), None);
        let Sight::Latest {
            latest: Latest::Recorded(number),
            ..
        } = sight
        else {
            panic!("it is forgotten");
        };
        assert_eq!(number, entry);
    }
    assert_eq!(ledger.running(), 1);
}

#[test]
fn tasks_that_run_are_bounded_in_bytes_and_one_alone_is_not() {
    let task = task();
    let ledger = Ledger::default();
    let enter = |issuer: &str, bytes| {
        let key = Key::new(task.task_id, &issuer.parse().unwrap());
        let room = room(9, 10);
        let entered = ledger.enter(&key, &task, Digest::of_bytes(b""), bytes, room);
        (matches!(entered, Entered::New(_)), key)
    };
    let (is_in, long) = enter("a", 11);
    assert!(is_in);
    assert!(!enter("b", 1).0);
    ledger.forget(&long);
    // Of an issuer of whom nothing runs nothing is kept.
    assert!(ledger.tasks().running_of.is_empty());
    assert!(enter("b", 4).0 && enter("c", 6).0 && !enter("d", 1).0);
}

#[test]
fn one_issuer_has_no_more_places_than_his() {
    let task = task();
    let (ledger, mut ids) = (Ledger::default(), IdSource::seeded(4));
    let mut enter = |issuer: &str| {
        let key = Key::new(ids.next_id(), &issuer.parse().unwrap());
        let of_issuer = 2;
        let room = Room {
            of_issuer,
            ..room(4, 100)
        };
        let entered = ledger.enter(&key, &task, Digest::of_bytes(b""), 1, room);
        (matches!(entered, Entered::New(_)), key)
    };
    let first = enter("a").1;
    assert!(enter("a").0 && !enter("a").0);
    assert!(enter("b").0);
    // A place is free again however the task went.
    ledger.forget(&first);
    let second = enter("a");
    assert!(second.0 && !enter("a").0);
    let ended = result(&task, Status::Succeeded);
    let latest = (ended.encode().into(), Some(1));
    ledger.update(&second.1, &ended, latest, usize::MAX);
    assert!(enter("a").0 && !enter("a").0);
    assert_eq!((ledger.running(), ledger.tasks().running_of.len()), (3, 2));
}

// spec: SAP-10-1
#[test]
fn only_the_latest_result_of_a_task_counts_its_bytes() {
    let task = task();
    let (ledger, key) = (Ledger::default(), Key::of(&task));
    let _ = ledger.enter(&key, &task, Digest::of_bytes(b""), 1, ONE);
    for status in [Status::Running, Status::Partial] {
        let said = result(&task, status);
        ledger.update(&key, &said, (said.encode().into(), None), usize::MAX);
        assert_eq!(ledger.tasks().bytes, said.encode().len());
    }
}

// spec: SAP-5-10
#[test]
fn so_many_ended_tasks_are_known_and_of_one_that_is_forgotten_nothing_is_left() {
    let task = task();
    let (ledger, mut ids) = (Ledger::default(), IdSource::seeded(2));
    let ended = result(&task, Status::Succeeded);
    let encoded: Arc<[u8]> = ended.encode().into();
    let body = Digest::of_bytes(b"");
    let mut keys = Vec::new();
    for number in 0..=MAX_FINISHED as u64 {
        let key = Key::new(ids.next_id(), &task.issuer.agent_id);
        let _ = ledger.enter(&key, &task, body, 1, ONE);
        let latest = (Arc::clone(&encoded), Some(number));
        ledger.update(&key, &ended, latest, usize::MAX);
        keys.push(key);
        let known = ledger.tasks().held.len();
        assert_eq!(known, keys.len().min(MAX_FINISHED));
    }
    assert!(ledger.before(&keys[0]).is_none() && ledger.before(&keys[1]).is_some());
    let mut tasks = ledger.tasks();
    assert_eq!(tasks.bytes, MAX_FINISHED * encoded.len());
    assert_eq!(tasks.kept.pop(), Some(keys[1]));
}

/// Notes its number when it is woken.
struct Noting(usize, Arc<Mutex<Vec<usize>>>);

impl futures::task::ArcWake for Noting {
    fn wake_by_ref(this: &Arc<Self>) {
        this.1.lock().unwrap().push(this.0);
    }
}

// spec: SAP-5-2
#[test]
fn all_are_told_to_stop_in_an_order_that_does_not_change() {
    let (ledger, told) = (Ledger::default(), Arc::<Mutex<Vec<usize>>>::default());
    let room = room(20, 20);
    let mut listening = Vec::new();
    for number in (0..20).rev() {
        let mut one = Task::clone(&task());
        one.task_id = format!("00000000-0000-0000-0000-{number:012}")
            .parse()
            .unwrap();
        let (key, one) = (Key::of(&one), Arc::new(one));
        let Entered::New(stop) = ledger.enter(&key, &one, Digest::of_bytes(b""), 1, room) else {
            panic!("there is room");
        };
        let mut stopped = Box::pin(stop.stopped());
        let waker = futures::task::waker(Arc::new(Noting(number, Arc::clone(&told))));
        let mut waking = core::task::Context::from_waker(&waker);
        assert!(stopped.as_mut().poll(&mut waking).is_pending());
        listening.push(stopped);
    }
    assert_eq!(ledger.cancel_all(), 20);
    let told = told.lock().unwrap();
    assert!(told.is_sorted() && told.len() == 20, "{told:?}");
}

/// Looks into the ledger when it is woken, as an executor may that polls at once.
struct Curious(Arc<Ledger>, Mutex<Vec<usize>>);

impl futures::task::ArcWake for Curious {
    fn wake_by_ref(this: &Arc<Self>) {
        let is_free = this.0.0.try_lock().is_ok();
        assert!(is_free, "who is woken could wait for ever");
        this.1.lock().unwrap().push(this.0.running());
    }
}

// spec: SAP-5-2
#[test]
fn who_is_woken_may_look_here_at_once() {
    let (ledger, task) = (Arc::<Ledger>::default(), task());
    let curious = Arc::new(Curious(Arc::clone(&ledger), Mutex::default()));
    let waker = futures::task::waker(Arc::clone(&curious));
    let mut waking = core::task::Context::from_waker(&waker);
    let (key, room) = (Key::of(&task), room(1, 1));
    let Entered::New(stop) = ledger.enter(&key, &task, Digest::of_bytes(b""), 1, room) else {
        panic!("there is room");
    };
    let mut stopped = Box::pin(stop.stopped());
    assert!(stopped.as_mut().poll(&mut waking).is_pending());
    let Sight::Wait(mut changed) = ledger.look(&key, Some(0)) else {
        panic!("nothing is new");
    };
    assert!(changed.poll_unpin(&mut waking).is_pending());
    assert!(ledger.cancel(&key));
    let ended = result(&task, Status::Cancelled);
    ledger.update(&key, &ended, (ended.encode().into(), Some(1)), usize::MAX);
    assert_eq!(*curious.1.lock().unwrap(), [1, 0]);
    assert!(!ledger.cancel(&key) && ledger.cancel_all() == 0);
}
