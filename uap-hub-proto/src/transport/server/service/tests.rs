//! Calls that are opened by hand: without a network, and without tasks that read them.

use std::{collections::BTreeSet, iter::from_fn, task::Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use tonic::codec::Codec as _;
use ubos_common::id::IdSource;

use std::time::Duration;

use super::super::{ServerConfig, handle::JobHandle, unfinished::Pool};
use super::*;
use crate::{
    capability::Skill,
    role::hub::{Config, Job},
    transport::codec::BoundedCodec,
    wire::{SessionAcceptance, TestStatus, listen_request, listen_response, test_response},
};

fn hub(config: Config) -> Arc<Shared> {
    let config = ServerConfig::default().with_hub(config);
    // Nothing is stored.
    let (shared, _) = Shared::new(config, IdSource::seeded(0)).unwrap();
    shared
}

/// A call on which so many messages may wait.
fn open<T>(
    shared: &Arc<Shared>,
    (rpc, key): (Rpc, &str),
    most: usize,
    sender: fn(mail::Sender<T>) -> SinkSender,
) -> Answers<T> {
    let (messages, answers) = mail::mail(most);
    let call = CallState::default();
    let sink = Sink {
        messages: sender(messages),
        call: call.clone(),
    };
    let stream = shared.open(sink, |hub, now, stream| {
        let opened = Input::Opened {
            stream,
            rpc,
            key: Some(key),
            resume: None,
            identity: None,
        };
        hub.handle_input(now, opened).is_ok()
    });
    Answers {
        messages: answers,
        unread: None,
        next: None,
        call,
        is_ended: false,
        stream,
        shared: shared.clone(),
    }
}

/// The control stream of an agent.
fn listen(shared: &Arc<Shared>, most: usize) -> Answers<ListenResponse> {
    let registration = AgentRegistration {
        display_name: "a".to_owned(),
        capabilities: vec![Skill::test("t").into()],
    };
    let registered = shared.act(|hub, now| hub.register(now, registration));
    let id = registered.unwrap().client_id;
    open(shared, (Rpc::Listen, &id), most, SinkSender::Listen)
}

/// The session of the next message, if there is one.
fn next(listen: &mut Answers<ListenResponse>) -> Option<String> {
    let cx = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(next) = Pin::new(listen).poll_next(cx) else {
        return None;
    };
    match next.unwrap().unwrap().event.unwrap() {
        listen_response::Event::SessionProposal(proposal) => Some(proposal.session_id),
        listen_response::Event::SessionReady(ready) => Some(ready.session_id),
    }
}

fn submit(shared: &Arc<Shared>) -> JobHandle {
    let submitted = shared.submit(|hub, now| hub.submit(now, Job::test("t", vec![])));
    let (id, inbox) = submitted.unwrap();
    JobHandle::new(id, inbox, shared)
}

fn tell(shared: &Arc<Shared>, stream: StreamId, message: Inbound) {
    let input = Input::Message { stream, message };
    shared.act(|hub, now| hub.handle_input(now, input)).unwrap();
}

#[test]
fn messages_that_find_a_call_full_come_as_it_is_read() {
    let shared = hub(Config::default());
    let mut listen = listen(&shared, 1);
    let _jobs: [_; 4] = [(); 4].map(|()| submit(&shared));
    let proposed: BTreeSet<_> = from_fn(|| next(&mut listen)).collect();
    assert_eq!(proposed.len(), 4);
}

#[test]
fn messages_that_are_sent_at_the_same_time_all_come() {
    let shared = hub(Config::default());
    let mut listen = listen(&shared, 1);
    shared.act(|hub, now| hub.set_paused(now, true));
    let _jobs: [_; 4] = [(); 4].map(|()| submit(&shared));
    shared.act(|hub, now| hub.set_paused(now, false));
    let proposed: BTreeSet<_> = from_fn(|| next(&mut listen)).collect();
    assert_eq!(proposed.len(), 4);
}

#[test]
fn a_call_with_too_many_messages_has_no_room_until_they_are_read() {
    let shared = hub(Config::default().with_max_unsent(2));
    let mut listen = listen(&shared, 1);
    let agents = || shared.inspect(|view| view.counts().agents);
    // One waits on the call, and two in the hub.
    let _first: [_; 3] = [(); 3].map(|()| submit(&shared));
    next(&mut listen).unwrap();
    // Two wait on the call, and two in the hub.
    let _then: [_; 2] = [(); 2].map(|()| submit(&shared));
    next(&mut listen).unwrap();
    assert_eq!(agents(), 1);
    let _last = submit(&shared);
    assert_eq!(agents(), 0, "it does not read");
}

// spec: HUB-4-4
#[test]
fn a_call_goes_on_whose_job_is_dropped_by_whoever_inspects_the_hub() {
    let shared = hub(Config::default().with_max_unread_events(2));
    let mut listen = listen(&shared, 4);
    let job = submit(&shared);
    let session = next(&mut listen).unwrap();
    let answer = SessionAcceptance {
        session_id: session.clone(),
        accepted: true,
        reason: String::new(),
    };
    let event = Some(listen_request::Event::SessionAcceptance(answer));
    let answer = Inbound::Listen(ListenRequest { event });
    tell(&shared, listen.stream, answer);
    assert_eq!(next(&mut listen).as_ref(), Some(&session), "it is ready");
    let call = open(&shared, (Rpc::Execute, &session), 4, SinkSender::Test);
    let status = TestStatus {
        state: crate::state::State::Acknowledged.to_wire(crate::capability::Kind::Test),
        message: String::new(),
    };
    let status = TestResponse {
        event: Some(test_response::Event::Status(status)),
        ..TestResponse::default()
    };
    tell(&shared, call.stream, Inbound::Test(status));
    let is_read = || {
        let cx = &mut Context::from_waker(Waker::noop());
        call.call.poll_read(cx, |_| Poll::Ready(())).is_ready()
    };
    assert!(!is_read(), "two events are unread");
    shared.inspect(|_| drop(job));
    assert!(is_read());
}

/// A call on which a message of 10,000 bytes waits, behind an agent that has not taken so many.
fn unread(bytes: usize) -> (Unread, mail::Sender<TestInit>, Answers<TestInit>, Peer) {
    let outgoing = Outgoing::new(Pool::new(20_000, 1, 1, 1), Duration::from_secs(40));
    let peer = Peer::of_nobody();
    let mut other = Unread::new(outgoing.clone(), Some(peer.clone()));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(other.poll_room(cx, bytes).is_ready());
    let (sender, messages) = mail::mail(4);
    sender.push(TestInit {
        test_type: "t".repeat(10_000),
        ..TestInit::default()
    });
    let answers = Answers {
        messages,
        unread: Some(Unread::new(outgoing, Some(peer.clone()))),
        next: None,
        call: CallState::default(),
        is_ended: false,
        stream: StreamId(9),
        shared: hub(Config::default()),
    };
    (other, sender, answers, peer)
}

// spec: HUB-4-6
#[tokio::test]
async fn a_message_waits_for_room_and_comes() {
    let (other, _sender, mut answers, _) = unread(10_000);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut next = || Pin::new(&mut answers).poll_next(cx);
    assert!(next().is_pending() && next().is_pending());
    drop(other);
    let Poll::Ready(Some(Ok(message))) = next() else {
        panic!("there is room")
    };
    assert_eq!(message.test_type.len(), 10_000);
    assert!(next().is_pending(), "it has not ended");
}

// spec: HUB-4-6
#[tokio::test]
async fn a_call_that_ends_before_there_was_room_says_so_alone() {
    let (_other, sender, answers, _) = unread(10_000);
    let call = answers.call.clone();
    let told = spawn(async move {
        let mut answers = answers;
        poll_fn(|cx| Pin::new(&mut answers).poll_next(cx)).await
    });
    tokio::task::yield_now().await;
    call.set_end(status::Status::new(status::Code::Aborted, "over"));
    drop(sender);
    let end = told.await.unwrap().unwrap().unwrap_err();
    assert_eq!(end.code(), tonic::Code::Aborted);
}

// spec: HUB-4-6
#[tokio::test(start_paused = true)]
async fn an_agent_that_leaves_what_is_over_loses_its_connection() {
    for is_taken in [false, true] {
        let (_other, _sender, mut answers, peer) = unread(0);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut answers).poll_next(cx).is_ready());
        let long = Duration::from_secs(600);
        tokio::time::sleep(long).await;
        assert!(!peer.is_given_up(), "the call goes on");
        if is_taken {
            assert!(Pin::new(&mut answers).poll_next(cx).is_pending());
        }
        (answers.call).set_end(status::Status::new(status::Code::Aborted, "over"));
        tokio::time::sleep(Duration::from_secs(39)).await;
        assert!(!peer.is_given_up(), "it has some time");
        tokio::time::sleep(long).await;
        assert_eq!(peer.is_given_up(), !is_taken);
    }
}

/// The body of a call: one frame.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|frame| Ok(Frame::data(frame))))
    }
}

// spec: HUB-4-4
#[tokio::test]
async fn a_call_of_many_messages_lets_others_run_while_it_is_read() {
    const MESSAGES: usize = 5_000;
    for is_gone in [false, true] {
        let body = Whole(Some(vec![0; 5 * MESSAGES].into()));
        let decoder = BoundedCodec::<TestInit, TestResponse>::default().decoder();
        let call = CallState::default();
        if is_gone {
            call.set_paused(true);
            call.gone();
        }
        let reader = Reader {
            shared: hub(Config::default()),
            stream: StreamId(9),
            broken: Broken::default(),
            call,
            peer: None,
        };
        let messages = Streaming::new_request(decoder, body, None, None);
        let reading = spawn(reader.run(messages, Inbound::Test));
        let mut turns = 0;
        while !reading.is_finished() {
            turns += 1;
            tokio::task::yield_now().await;
        }
        assert!(turns > 10, "{turns}");
    }
}
