//! `hub` and `hub-agent` together, over TLS, with certificates on both sides and a token.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Request, Response, Streaming, transport::Channel};
use uap_hub_proto::capability::Skill;
use uap_hub_proto::role::{CLIENT_ID_KEY, SESSION_ID_KEY};
use uap_hub_proto::wire::{
    AgentRegistration, ListenRequest, SessionAcceptance, TestResponse,
    agent_hub_client::AgentHubClient, listen_request, listen_response,
};

use crate::hub_programs::{Agent, Hub, with};

const HUB: &str = env!("CARGO_BIN_EXE_hub");
const AGENT: &str = env!("CARGO_BIN_EXE_hub-agent");

/// A folder with an authority, a certificate of each side, and two tokens.
struct Papers(TempDir);

impl Papers {
    fn new() -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let papers = Self(tempfile::tempdir().unwrap());
        papers.write("ca", &authority.pem());
        for name in ["hub", "agent"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            papers.write(&format!("{name}.pem"), &certificate.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers.write("token", "sesame\n");
        papers.write("other-token", "simsim\n");
        papers
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Options of a program; a value that names a paper is its file.
    fn options(&self, options: &[&str]) -> Vec<OsString> {
        let options = options.iter().map(|option| {
            let paper = self.path(option);
            if paper.exists() {
                paper.into_os_string()
            } else {
                (*option).into()
            }
        });
        options.collect()
    }
}

// spec: HUB-6-3
#[test]
fn both_sides_show_papers() {
    let papers = Papers::new();
    let mut hub = Hub::start(&papers.options(&[
        "--exit-when-done",
        "--max-control-bytes",
        "65536",
        "--tls-cert",
        "hub.pem",
        "--tls-key",
        "hub.key",
        "--tls-ca",
        "ca",
        "--token-file",
        "token",
    ]));
    let url = hub.url.clone();
    assert!(url.starts_with("https://"), "{url}");
    let own = ["--tls-cert", "agent.pem", "--tls-key", "agent.key"];
    let base = ["--hub", &url, "--tls-ca", "ca"];
    for (options, words) in [
        (["--token-file", "token"].to_vec(), "trying again"),
        (own.to_vec(), "the hub wants a token"),
        (
            [&own[..], &["--token-file", "other-token"]].concat(),
            "not a token of the hub",
        ),
    ] {
        let options = [&base[..], &options].concat();
        Agent::start(&papers.options(&options)).says(words);
    }
    let right = [
        &base[..],
        &own,
        &["--token-file", "token", "--name", "known"],
    ]
    .concat();
    let mut agent = Agent::start(&papers.options(&right));
    agent.says("listening as ");
    let payloads = json!([{"type": "text", "text": "hi"}]);
    hub.say(&json!({"kind": "test", "type": "echo", "payloads": payloads}));
    let (code, told) = hub.end();
    assert_eq!(code, Some(0));
    assert_eq!(with(&told, "result")[0]["message"], "hi", "{told:?}");
    let registered = with(&told, "agent-registered");
    assert_eq!(registered.len(), 1, "strangers came in: {registered:?}");
    assert_eq!(registered[0]["name"], "known");
    assert!(told.iter().all(|line| line["at"].is_string()), "{told:?}");
    let status = with(&told, "status")[0];
    assert!(
        status["agent_at"].as_str().unwrap().contains('.'),
        "whole seconds: {status}"
    );
}

#[test]
fn papers_that_cannot_be_used_are_said() {
    let papers = Papers::new();
    papers.write("empty", "\n");
    papers.write("nonsense", "no certificate");
    for (program, options) in [
        (HUB, &["--tls-cert", "hub.pem", "--tls-key", "/nowhere"][..]),
        (HUB, &["--tls-cert", "nonsense", "--tls-key", "hub.key"]),
        (HUB, &["--token-file", "empty"]),
        (HUB, &["--max-control-bytes", "0"]),
        (
            AGENT,
            &["--hub", "https://127.0.0.1:1", "--tls-ca", "nonsense"],
        ),
        (
            AGENT,
            &["--hub", "https://127.0.0.1:1", "--tls-ca", "/nowhere"],
        ),
        (
            AGENT,
            &["--hub", "http://127.0.0.1:1", "--token-file", "empty"],
        ),
    ] {
        let listen = if program == HUB {
            &["--listen", "127.0.0.1:0"][..]
        } else {
            &[]
        };
        let run = Command::new(program)
            .args(papers.options(&[listen, options].concat()))
            .output();
        assert_eq!(run.unwrap().status.code(), Some(2), "{options:?}");
    }
}

/// A request of whoever shows a token, with an id.
fn shown<T>(token: &str, id: Option<(&'static str, &str)>, body: T) -> Request<T> {
    let mut request = Request::new(body);
    let metadata = request.metadata_mut();
    metadata.insert("authorization", format!("Bearer {token}").parse().unwrap());
    if let Some((key, id)) = id {
        metadata.insert(key, id.parse().unwrap());
    }
    request
}

/// Opens the stream of a session, and gives what the hub says of it.
async fn executes(hub: &mut AgentHubClient<Channel>, token: &str, session: &str) -> Code {
    let (sender, reports) = mpsc::unbounded::<TestResponse>();
    let id = Some((SESSION_ID_KEY, session));
    let code = match hub.execute(shown(token, id, reports)).await {
        Ok(opened) => first(opened).await,
        Err(status) => status.code(),
    };
    drop(sender);
    code
}

/// The status that a call ended with, or `Ok` when a message came.
async fn first<T>(opened: Response<Streaming<T>>) -> Code {
    let mut opened = opened.into_inner();
    // A call that goes on without a word was let in.
    let message = tokio::time::timeout(Duration::from_secs(30), opened.message()).await;
    let message = message.unwrap_or(Ok(None));
    message.map_or_else(|status| status.code(), |_| Code::Ok)
}

// spec: HUB-6-3
#[tokio::test]
async fn what_one_holder_was_given_is_of_no_use_to_another() {
    let papers = Papers::new();
    papers.write("tokens", "one sesame\ntwo simsim\nopen-all\n");
    let mut command = Hub::command();
    command.args(papers.options(&["--token-file", "tokens"]));
    let mut program = Hub::of(command.stderr(Stdio::piped()));
    let mut hub = AgentHubClient::connect(program.url.clone()).await.unwrap();
    let registration = AgentRegistration {
        display_name: "one".to_owned(),
        capabilities: vec![Skill::test("t").into()],
    };
    let registered = hub.register(shown("sesame", None, registration)).await;
    let client = registered.unwrap().into_inner().client_id;
    let id = Some((CLIENT_ID_KEY, client.as_str()));
    for other in ["simsim", "open-all"] {
        let (_sender, answers) = mpsc::unbounded::<ListenRequest>();
        let code = match hub.listen(shown(other, id, answers)).await {
            Ok(opened) => first(opened).await,
            Err(status) => status.code(),
        };
        assert_eq!(code, Code::NotFound);
    }
    let (sender, answers) = mpsc::unbounded();
    let listening = hub.listen(shown("sesame", id, answers)).await.unwrap();
    let mut listening = listening.into_inner();
    program.say(&json!({"kind": "test", "type": "t"}));
    let session = loop {
        let said = listening.next().await.unwrap().unwrap();
        match said.event {
            Some(listen_response::Event::SessionProposal(offer)) => {
                let answer = SessionAcceptance {
                    session_id: offer.session_id,
                    accepted: true,
                    reason: String::new(),
                };
                let event = Some(listen_request::Event::SessionAcceptance(answer));
                sender.unbounded_send(ListenRequest { event }).unwrap();
            }
            Some(listen_response::Event::SessionReady(ready)) => break ready.session_id,
            _ => {}
        }
    };
    for (token, code) in [
        ("simsim", Code::NotFound),
        ("open-all", Code::NotFound),
        ("sesam", Code::PermissionDenied),
        ("sesame", Code::Ok),
    ] {
        assert_eq!(executes(&mut hub, token, &session).await, code, "{token}");
    }
    drop((sender, hub, listening));
    // What is told of an agent that went comes behind all else that is told of it.
    let program = tokio::task::spawn_blocking(move || {
        program.until("agent-gone");
        program
    });
    let mut program = program.await.unwrap();
    program.child.kill().unwrap();
    let told = program.seen.iter().map(Value::to_string);
    let told: Vec<String> = told.collect();
    let foreign = told.iter().filter(|line| line.contains("ForeignIdentity"));
    assert_eq!(foreign.count(), 4, "{told:?}");
    let mut complaints = String::new();
    let mut stderr = program.child.stderr.take().unwrap();
    stderr.read_to_string(&mut complaints).unwrap();
    for token in ["sesame", "simsim", "open-all"] {
        assert!(!told.iter().any(|line| line.contains(token)), "{told:?}");
        assert!(!complaints.contains(token), "{complaints}");
    }
}
