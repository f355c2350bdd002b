//! Callers that are told apart, and agents whose process dies.

use std::{
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tonic::{Code, Request, transport::Channel};
use uap_hub_proto::{
    capability::Skill,
    role::{
        CLIENT_ID_KEY, SESSION_ID_KEY,
        hub::{Job, JobEvent, Verdict},
    },
    transport::{
        client::AgentBuilder,
        server::{Denied, ServerConfig, serve},
    },
    wire::{AgentRegistration, agent_hub_client::AgentHubClient},
};

use crate::loopback::within;

/// Set where the process below is an agent that is killed.
const HUB: &str = "HUB_LOST_TEST_URL";
const KILLS: usize = 20;

type Client = AgentHubClient<Channel>;

fn request<T>(message: T, token: &str, key: Option<(&'static str, &str)>) -> Request<T> {
    let mut request = Request::new(message);
    let token = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    if let Some((name, key)) = key {
        let key = key.parse().unwrap();
        request.metadata_mut().insert(name, key);
    }
    request
}

async fn listen(client: &mut Client, token: &str, key: &str) -> Result<(), Code> {
    let request = request(tokio_stream::pending(), token, Some((CLIENT_ID_KEY, key)));
    let answer = client.listen(request).await;
    answer.map(drop).map_err(|status| status.code())
}

// spec: HUB-6-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_authorized_by_its_headers() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let config = ServerConfig::default().with_authorize(move |caller| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            match caller.bearer_token() {
                Some(token @ ("one" | "two")) => Ok(token.into()),
                _ => Err(Denied::Forbidden("not you".to_owned())),
            }
        }
    });
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut client = Client::connect(hub.url()).await.unwrap();
    let registration = AgentRegistration {
        display_name: "one".to_owned(),
        capabilities: vec![Skill::test("t").into()],
    };
    let answer = client.register(request(registration, "one", None)).await;
    let id = answer.unwrap().into_inner().client_id;
    assert_eq!(
        within(listen(&mut client, "three", &id)).await,
        Err(Code::PermissionDenied)
    );
    assert_eq!(
        within(listen(&mut client, "two", &id)).await,
        Err(Code::NotFound)
    );
    assert_eq!(within(listen(&mut client, "one", &id)).await, Ok(()));
    // Nothing of a body is sent: the headers are enough to be denied.
    let key = Some((SESSION_ID_KEY, "JOB-1"));
    let body = tokio_stream::pending();
    let denied = within(client.execute(request(body, "three", key))).await;
    assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    let body = tokio_stream::pending();
    let denied = within(client.translate(request(body, "three", key))).await;
    assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

fn killed_agent(url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "identity::the_agent_that_is_killed"])
        .env(HUB, url)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

// spec: HUB-5-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_a_disconnected_agent() {
    let hub = crate::loopback::hub().await;
    for _ in 0..KILLS {
        let mut agent = killed_agent(&hub.url());
        let mut job = hub.submit(Job::test("hang", vec![])).unwrap();
        within(async {
            while !matches!(
                job.next_event().await.expect("no end before it"),
                JobEvent::Started { .. }
            ) {}
        })
        .await;
        agent.kill().unwrap();
        agent.wait().unwrap();
        let outcome = within(job.outcome()).await;
        let wanted = (Verdict::Failed, "Agent disconnected");
        assert_eq!((outcome.verdict, outcome.message.as_str()), wanted);
    }
}

#[tokio::test]
async fn the_agent_that_is_killed() {
    let Ok(url) = std::env::var(HUB) else {
        return;
    };
    let _agent = AgentBuilder::new("killed")
        .on_test("hang", |_, _| std::future::pending())
        .start(&url)
        .unwrap();
    std::future::pending().await
}
