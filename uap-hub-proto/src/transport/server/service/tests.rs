//! Calls that are opened by hand: without a network, and without tasks that read them.

use std::{collections::BTreeSet, iter::from_fn, task::Waker, time::Duration};

use bytes::Bytes;
use http_body::{Body, Frame};
use tonic::codec::Codec as _;
use ubos_common::id::IdSource;

use super::super::{ServerConfig, budget::Held, handle::JobHandle};
use super::*;
use crate::{
    capability::Skill,
    role::hub::{Config, Job, Verdict},
    transport::codec::BoundedCodec,
    wire::{
        Payload, SessionAcceptance, TestStatus, listen_request, listen_response, test_response,
    },
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
    sender: fn(mail::Sender<Sent<T>>) -> SinkSender,
) -> Answers<T> {
    let unread = Unread::new(Pool::new(1 << 20, 1, 4, 1), Held::default());
    open_again(shared, (rpc, key, None), (most, &unread), sender)
}

/// As [`open`], perhaps again, on a connection with what is not read there.
fn open_again<T>(
    shared: &Arc<Shared>,
    (rpc, key, resume): (Rpc, &str, Option<Resume>),
    (most, unread): (usize, &Unread),
    sender: fn(mail::Sender<Sent<T>>) -> SinkSender,
) -> Answers<T> {
    let (messages, answers) = mail::mail(most);
    let call = CallState::default();
    let sink = Sink {
        unread: unread.clone(),
        messages: sender(messages),
        call: call.clone(),
    };
    let stream = shared.open(sink, |hub, now, stream| {
        let opened = Input::Opened {
            stream,
            rpc,
            key: Some(key),
            resume,
            identity: None,
        };
        hub.handle_input(now, opened).is_ok()
    });
    Answers {
        messages: answers,
        large: None,
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

/// Accepts a session, which is ready then.
fn accept(shared: &Arc<Shared>, listen: &mut Answers<ListenResponse>, session: &str) {
    let answer = SessionAcceptance {
        session_id: session.to_owned(),
        accepted: true,
        reason: String::new(),
    };
    let event = Some(listen_request::Event::SessionAcceptance(answer));
    let answer = Inbound::Listen(ListenRequest { event });
    tell(shared, listen.stream, answer);
    assert_eq!(next(listen).as_deref(), Some(session), "it is ready");
}

// spec: HUB-4-6
#[tokio::test]
async fn a_session_ends_that_is_opened_again_and_again_and_never_read() {
    let shared = hub(Config::default().with_resume_grace(Duration::from_secs(9)));
    let mut listen = listen(&shared, 4);
    let file = Payload::file("p", "", "", vec![0; 400 << 10]);
    let submitted = shared.submit(|hub, now| hub.submit(now, Job::test("t", vec![file])));
    let (id, inbox) = submitted.unwrap();
    let job = JobHandle::new(id, inbox, &shared);
    let session = next(&mut listen).unwrap();
    accept(&shared, &mut listen, &session);
    let held = Held::default();
    let unread = Unread::new(Pool::new(1 << 20, 1, 4, 1), held.clone());
    let open = |opening| {
        let again = (Rpc::Execute, &*session, Some(Resume::Job(opening)));
        open_again(&shared, again, (2, &unread), SinkSender::Test)
    };
    let unread = [open(1), open(2)];
    assert!(held.bytes() > 800 << 10);
    let refused = open(3);
    assert_eq!(
        refused.call.take_end().unwrap().code,
        status::Code::ResourceExhausted
    );
    let outcome = job.outcome().await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert!(outcome.message.contains("have not read"), "{outcome:?}");
    assert!(held.bytes() > 800 << 10, "also when the job has ended");
    drop((unread, refused));
    assert_eq!(held.bytes(), 0);
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
    accept(&shared, &mut listen, &session);
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

#[test]
fn nothing_more_is_read_of_a_call_whose_answers_are_dropped() {
    let listen = listen(&hub(Config::default()), 1);
    let call = listen.call.clone();
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(call.poll_read(cx, |_| Poll::<()>::Pending).is_pending());
    drop(listen);
    assert_eq!(
        call.poll_read(cx, |_| Poll::<()>::Pending),
        Poll::Ready(None)
    );
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
