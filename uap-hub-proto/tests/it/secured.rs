//! Who may speak to whom: TLS, mutual TLS, tokens, and the services beside the hub's.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tonic::{
    Code, Request,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use uap_hub_proto::{
    role::{
        CLIENT_ID_KEY,
        agent::Event,
        hub::{self, Job},
    },
    transport::{
        Tls,
        client::{AgentBuilder, AgentHandle, StartError},
        server::{Denied, HubHandle, ServerConfig, serve, serve_on},
    },
    wire::{AgentRegistration, TestResult, agent_hub_client::AgentHubClient},
};

use crate::{
    loopback::within,
    resume::{GRACE, survives_a_cut_of},
};

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn idle() -> AgentBuilder {
    AgentBuilder::new("idle")
        .on_test("nothing", |_, _| async {
            Ok(TestResult::completed("done"))
        })
        .configure(|config| config.with_first_retry(Duration::from_millis(20)))
}

async fn does_a_job(hub: &HubHandle) {
    let job = hub.submit(Job::test("nothing", vec![])).unwrap();
    assert_eq!(within(job.outcome()).await.message, "done");
}

fn identified((chain, key): (String, String)) -> Tls {
    Tls::default().with_identity(chain, key)
}

/// Why an agent's first try came to nothing.
async fn refused(agent: &AgentHandle) -> String {
    let mut news = agent.events();
    loop {
        match within(news.recv()).await.unwrap() {
            Event::Retrying { reason, .. } => return reason,
            Event::Listening { .. } => panic!("it was let in"),
            _ => {}
        }
    }
}

// spec: HUB-6-3
#[tokio::test]
async fn tls_proves_the_hub_to_its_agents() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let config = ServerConfig::default().with_tls(identified(authority.sign("127.0.0.1")));
    let hub = serve_on(listener().await, config).await.unwrap();
    assert!(hub.url().starts_with("https://"));
    let _agent = idle()
        .with_tls(Tls::default().with_authority(authority.pem()))
        .start(&hub.url())
        .unwrap();
    does_a_job(&hub).await;
    let fooled = idle()
        .with_tls(Tls::default().with_authority(stranger.pem()))
        .start(&hub.url())
        .unwrap();
    assert!(refused(&fooled).await.contains("certificate"));
    let misled = idle()
        .with_tls(
            Tls::default()
                .with_authority(authority.pem())
                .with_domain("example.org".to_owned()),
        )
        .start(&hub.url())
        .unwrap();
    assert!(refused(&misled).await.contains("certificate"));
    assert_eq!(hub.agents().len(), 1);
}

// spec: HUB-4-6, HUB-6-3
#[tokio::test]
async fn a_connection_that_does_not_begin_tls_is_closed() {
    let authority = Authority::new();
    let config = ServerConfig::default()
        .with_tls(identified(authority.sign("127.0.0.1")))
        .with_first_call_timeout(Duration::from_millis(100));
    let hub = serve_on(listener().await, config).await.unwrap();
    let mut silent = tokio::net::TcpStream::connect(hub.local_addr())
        .await
        .unwrap();
    let read = within(tokio::io::AsyncReadExt::read(&mut silent, &mut [0; 9])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

// spec: HUB-6-3
#[tokio::test]
async fn mutual_tls_proves_the_agents_to_their_hub() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let tls = identified(authority.sign("127.0.0.1")).with_authority(authority.pem());
    let config = ServerConfig::default()
        .with_tls(tls)
        .with_authorize(|caller| async move {
            match (caller.certificates.len(), caller.certificate()) {
                (1, Some(identity)) => Ok(identity),
                (n, _) => Err(Denied::Forbidden(format!("{n} certificates"))),
            }
        });
    let hub = serve_on(listener().await, config).await.unwrap();
    let believes = || Tls::default().with_authority(authority.pem());
    let _agent = idle()
        .with_tls(identified(authority.sign("agent")).with_authority(authority.pem()))
        .start(&hub.url())
        .unwrap();
    does_a_job(&hub).await;
    let (chain, key) = stranger.sign("agent");
    for tls in [believes(), believes().with_identity(chain, key)] {
        let agent = idle().with_tls(tls).start(&hub.url()).unwrap();
        refused(&agent).await;
    }
    assert_eq!(hub.agents().len(), 1);
}

// spec: HUB-5-4, HUB-6-3
#[tokio::test]
async fn a_session_outlives_its_connection_over_mutual_tls() {
    let authority = Authority::new();
    let tls = identified(authority.sign("127.0.0.1")).with_authority(authority.pem());
    let config = hub::Config::default().with_resume_grace(GRACE);
    let config = ServerConfig::default().with_hub(config).with_tls(tls);
    let tls = identified(authority.sign("agent")).with_authority(authority.pem());
    let agent = AgentBuilder::new("a").with_tls(tls);
    let retry = Duration::from_millis(5);
    survives_a_cut_of(config, agent, true, 200, retry).await;
}

// spec: HUB-6-3, HUB-2-2
#[tokio::test]
async fn a_client_id_is_of_use_with_the_certificate_that_registered_it() {
    let authority = Authority::new();
    let tls = identified(authority.sign("127.0.0.1")).with_authority(authority.pem());
    let config = ServerConfig::default().with_tls(tls);
    let hub = serve_on(listener().await, config).await.unwrap();
    let connect = async || {
        let (chain, key) = authority.sign("agent");
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.pem()))
            .identity(Identity::from_pem(chain, key));
        let endpoint = Channel::from_shared(hub.url()).unwrap().tls_config(tls);
        AgentHubClient::new(endpoint.unwrap().connect().await.unwrap())
    };
    let (mut owner, mut other) = (connect().await, connect().await);
    let registered = owner.register(AgentRegistration::default()).await.unwrap();
    let id = registered.into_inner().client_id;
    let listen = async |client: &mut AgentHubClient<Channel>| {
        let mut request = Request::new(tokio_stream::pending());
        (request.metadata_mut()).insert(CLIENT_ID_KEY, id.parse().unwrap());
        let answer = within(client.listen(request)).await;
        answer.map(drop).map_err(|status| status.code())
    };
    assert_eq!(listen(&mut other).await, Err(Code::NotFound));
    assert_eq!(listen(&mut owner).await, Ok(()));
}

// spec: HUB-6-3
#[tokio::test]
async fn what_is_wrong_with_tls_is_said_at_once() {
    let authority = Authority::new();
    let start = |agent: AgentBuilder, url| agent.start(url).map(drop).unwrap_err();
    let tls = || Tls::default().with_authority(authority.pem());
    assert_eq!(start(idle(), "https://127.0.0.1:1"), StartError::Scheme);
    assert_eq!(
        start(idle().with_tls(tls()), "http://127.0.0.1:1"),
        StartError::Scheme
    );
    let broken = tls().with_identity("no PEM", String::from("no key"));
    assert_eq!(
        start(idle().with_tls(broken), "https://127.0.0.1:1"),
        StartError::Tls
    );
    assert_eq!(
        start(
            idle().with_bearer_token(String::from("a\nb")),
            "http://127.0.0.1:1"
        ),
        StartError::Token
    );
    let nobody = Tls::default().with_authority(String::from("no PEM"));
    let refused = start(idle().with_tls(nobody), "https://127.0.0.1:1").to_string();
    assert_eq!(
        refused,
        "tls.authority is no certificate, but must be a certificate as PEM text"
    );
    let broken = Tls::default().with_identity("no PEM", String::from("the key"));
    assert!(!format!("{broken:?}").contains("the key"));
    let served = |tls| async move {
        let config = ServerConfig::default().with_tls(tls);
        serve_on(listener().await, config)
            .await
            .unwrap_err()
            .to_string()
    };
    assert!(!served(broken).await.contains("the key"));
    let nobody = served(Tls::default()).await;
    assert_eq!(nobody, "tls.identity is missing, but a hub needs it");
    let blind = start(idle().with_tls(Tls::default()), "https://127.0.0.1:1").to_string();
    assert_eq!(blind, "tls.authority is missing, but an agent needs it");
}

// spec: HUB-6-3
#[tokio::test]
async fn only_the_authorized_register() {
    let config = ServerConfig::default().with_authorize(|caller| async move {
        assert!(caller.addr.is_some());
        assert!(!format!("{caller:?}").contains("sesame"));
        match caller.bearer_token() {
            Some("sesame") => Ok("known".into()),
            Some("panic") => panic!("on purpose"),
            Some(_) => Err(Denied::Forbidden("that token is nobody's".into())),
            None => Err(Denied::Unauthenticated("a token is wanted".into())),
        }
    });
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
    for (token, code, words) in [
        (None, Code::Unauthenticated, "a token is wanted"),
        (
            Some("Bearer x"),
            Code::PermissionDenied,
            "that token is nobody's",
        ),
        (
            Some("Basic sesame"),
            Code::Unauthenticated,
            "a token is wanted",
        ),
        (
            Some("Bearer panic"),
            Code::Internal,
            "the authorization hook panicked",
        ),
    ] {
        let mut request = Request::new(AgentRegistration::default());
        if let Some(token) = token {
            request
                .metadata_mut()
                .insert("authorization", token.parse().unwrap());
        }
        let status = client.register(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, words));
    }
    let agent = idle().with_bearer_token(String::from("sesame"));
    assert!(!format!("{agent:?}").contains("sesame"));
    let agent = agent.start(&hub.url()).unwrap();
    assert!(!format!("{agent:?}").contains("sesame"));
    does_a_job(&hub).await;
}

async fn health(channel: &Channel) -> Result<i32, Code> {
    let service = "uap.v1.AgentHub".to_owned();
    let answer = HealthClient::new(channel.clone())
        .check(HealthCheckRequest { service })
        .await;
    answer
        .map(|answer| answer.into_inner().status)
        .map_err(|status| status.code())
}

/// The services that the hub names.
async fn services(channel: &Channel) -> Result<Vec<String>, Code> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answer = ServerReflectionClient::new(channel.clone())
        .server_reflection_info(tokio_stream::once(request))
        .await;
    let mut answers = answer.map_err(|status| status.code())?.into_inner();
    match answers.message().await.unwrap().unwrap().message_response {
        Some(MessageResponse::ListServicesResponse(list)) => {
            Ok(list.service.into_iter().map(|one| one.name).collect())
        }
        other => panic!("{other:?}"),
    }
}

// spec: HUB-6-3
#[tokio::test]
async fn health_and_reflection_tell_of_the_hub() {
    let hub = serve_on(listener().await, ServerConfig::default())
        .await
        .unwrap();
    let connect = |url| async { Channel::from_shared(url).unwrap().connect().await.unwrap() };
    let channel = connect(hub.url()).await;
    const SERVING: i32 = 1;
    const NOT_SERVING: i32 = 2;
    assert_eq!(health(&channel).await, Ok(SERVING));
    assert!(
        services(&channel)
            .await
            .unwrap()
            .contains(&"uap.v1.AgentHub".to_owned())
    );
    // While sessions are drained, balancers look elsewhere.
    let _agent = idle()
        .on_test("hang", |_, _| std::future::pending())
        .start(&hub.url())
        .unwrap();
    let mut hangs = hub.submit(Job::test("hang", vec![])).unwrap();
    while !matches!(
        within(hangs.next_event()).await.expect("no end before it"),
        hub::JobEvent::Started { .. }
    ) {}
    let leaving = hub.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { leaving.shutdown(Duration::from_secs(60)).await });
    within(async {
        while health(&channel).await != Ok(NOT_SERVING) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    hangs.cancel().unwrap();
    within(tasks.join_next()).await.unwrap().unwrap().unwrap();

    let silent = ServerConfig::default()
        .with_health(false)
        .with_reflection(false);
    let hub = serve_on(listener().await, silent).await.unwrap();
    let channel = connect(hub.url()).await;
    assert_eq!(health(&channel).await, Err(Code::Unimplemented));
    assert_eq!(services(&channel).await, Err(Code::Unimplemented));
}
