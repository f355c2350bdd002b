//! Who is at the other end of a connection, and for whom it may speak.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sap::processor::{AllowAll, Config, Identity, Speakers};
use sap::transport::http::{self, HttpClient, Listener, serve};
use sap::transport::{Message, Service};
use sap::{ErrorCode, Status};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use ubos_common::secret::Secret;

use super::world::{Real, Seen, ask, typed};
use crate::samples::with;

/// Serves with a list of who may speak for `A-prime`; gives the address.
async fn server(seen: &Seen, identity: Identity, tls: Option<Arc<ServerConfig>>) -> String {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let mut listener = Listener::from(tcp);
    if let Some(tls) = tls {
        listener = listener.with_tls(tls);
    }
    start(seen, identity, listener);
    format!("localhost:{port}/sap/tasks")
}

fn start(seen: &Seen, identity: Identity, listener: Listener) {
    let speakers = Speakers::new(Arc::new(AllowAll));
    let speakers = speakers.allow(identity, "A-prime".parse().unwrap());
    let processor = seen.processor(Config::default());
    let processor = processor.authorize(Arc::new(speakers));
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let serving = serve(
        listener,
        service,
        http::Config::default(),
        std::future::pending(),
    );
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    tokio::spawn(serving);
}

/// What a client is told about a task of `issuer`: the code of a Nack, or that it was done.
async fn told(client: &HttpClient, number: u16, issuer: &str) -> Result<(), ErrorCode> {
    let task = with(
        ask(number, "test.echo"),
        "/issuer/agentId",
        Some(json!(issuer)),
    );
    let answer = client.send(&typed(&task.to_string()), &mut |_| {}).await;
    match answer.unwrap() {
        Some(Message::Nack(nack)) => Err(nack.code),
        Some(Message::Result(result)) if result.status == Status::Succeeded => Ok(()),
        answer => panic!("{answer:?}"),
    }
}

// spec: SAP-11-2
#[tokio::test]
async fn a_bearer_token_says_who_asks() {
    let seen = Seen::default();
    let token = |text: &str| Secret::new(text.to_owned());
    let identity = Identity::bearer(&token("tok-1"));
    let url = format!("http://{}", server(&seen, identity, None).await);
    let client = HttpClient::new(&url).unwrap();
    assert_eq!(
        told(&client, 1, "A-prime").await,
        Err(ErrorCode::Unauthorized)
    );
    let other = client.clone().with_bearer(&token("tok-2")).unwrap();
    assert_eq!(
        told(&other, 2, "A-prime").await,
        Err(ErrorCode::Unauthorized)
    );
    let known = client.clone().with_bearer(&token("tok-1")).unwrap();
    assert_eq!(told(&known, 3, "A-other").await, Err(ErrorCode::Forbidden));
    assert_eq!(told(&known, 4, "A-prime").await, Ok(()));
    assert_eq!(seen.calls(), 1);
    assert!(!format!("{known:?}").contains("tok-1"));
    assert!(client.with_bearer(&token("tok\n1")).is_err());
}

/// An authority, and a certificate with its key that it has signed.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    pub(super) fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }
}

/// A certificate and its key.
type Signed = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// A server at `localhost` that knows clients by certificates of an authority, and takes others too.
pub(super) fn server_tls(authority: &Authority) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(authority.roots());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .allow_unauthenticated();
    let (certificate, key) = authority.sign("localhost");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// A client that trusts an authority, with a certificate or without.
pub(super) fn client_tls(authority: &Authority, with: Option<Signed>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authority.roots());
    match with {
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .unwrap(),
        None => config.with_no_client_auth(),
    }
}

// spec: SAP-11-2
#[tokio::test]
async fn a_certificate_says_who_asks() {
    let (seen, authority) = (Seen::default(), Authority::new());
    let tls = server_tls(&authority);
    let (known, known_key) = authority.sign("desk");
    let (other, other_key) = authority.sign("desk");
    let identity = Identity::certificate(&known);
    let url = format!(
        "https://{}",
        server(&seen, identity, Some(Arc::new(tls))).await
    );
    let client = |with| {
        let client = HttpClient::new(&url).unwrap();
        client.with_tls(client_tls(&authority, with)).unwrap()
    };
    let unknown = Err(ErrorCode::Unauthorized);
    assert_eq!(told(&client(None), 1, "A-prime").await, unknown);
    let other = client(Some((other, other_key)));
    assert_eq!(told(&other, 2, "A-prime").await, unknown);
    let known = client(Some((known, known_key)));
    assert_eq!(told(&known, 3, "A-other").await, Err(ErrorCode::Forbidden));
    assert_eq!(told(&known, 4, "A-prime").await, Ok(()));
    // One that says nothing at its handshake holds a place for a time only, and stops nobody.
    let address = url.replace("https://", "").replace("/sap/tasks", "");
    let _silent = TcpStream::connect(&address).await.unwrap();
    assert_eq!(told(&known, 5, "A-prime").await, Ok(()));
}

// spec: SAP-11-2
#[tokio::test]
async fn a_unix_socket_says_which_user_asks() {
    use std::os::unix::fs::MetadataExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().metadata().unwrap().uid();
    for (listed, wanted) in [(user, "HTTP/1.1 200"), (user + 1, "HTTP/1.1 401")] {
        let seen = Seen::default();
        let path = folder.path().join(listed.to_string());
        let listener = UnixListener::bind(&path).unwrap();
        start(&seen, Identity::UnixUser(listed), listener.into());
        let task = ask(1, "test.echo").to_string();
        let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
        let request = format!(
            "POST /sap/tasks HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{task}",
            task.len()
        );
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(wanted), "{answer}");
    }
}

/// The one place of a server is free again where the client that has it does not read.
// spec: SAP-10-2
#[tokio::test]
async fn a_client_that_never_reads_loses_its_place() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (seen, folder) = (Seen::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("socket");
    let listener: Listener = UnixListener::bind(&path).unwrap().into();
    let config = http::Config::default()
        .with_max_connections(1)
        .with_head_timeout(std::time::Duration::from_secs(3_600))
        .with_write_timeout(std::time::Duration::from_millis(50));
    let service = seen.service_of(Config::default());
    let serving = serve(listener, service, config, std::future::pending());
    #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
    let server = tokio::spawn(serving);
    // More than a socket holds.
    let text = "x".repeat(1 << 19);
    let request = |task: &serde_json::Value, connection: &str| {
        let task = task.to_string();
        let head = format!(
            "Host: localhost\r\nConnection: {connection}\r\nContent-Type: application/json"
        );
        let length = task.len();
        format!("POST /sap/tasks HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{task}")
    };
    let long = with(ask(1, "test.echo"), "/payload/text", Some(json!(text)));
    let mut deaf = UnixStream::connect(&path).await.unwrap();
    let asked = request(&long, "keep-alive");
    deaf.write_all(asked.as_bytes()).await.unwrap();
    let mut next = UnixStream::connect(&path).await.unwrap();
    let asked = request(&ask(2, "test.echo"), "close");
    next.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    next.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(deaf);
    server.abort();
}

#[cfg(feature = "sign")]
mod signed {
    use sap::processor::Signed;
    use sap::sign::{Keys, SignatureError, SigningKey};
    use sap::transport::SendError;

    use super::*;

    fn key(id: &str, seed: u8) -> Arc<SigningKey> {
        Arc::new(SigningKey::from_seed(id, &Secret::new([seed; 32])).unwrap())
    }

    fn trust(key: &SigningKey, id: &str, agent: &str) -> Arc<Keys> {
        let agent = agent.parse().unwrap();
        Arc::new(Keys::default().trust(id, key.public_key(), agent))
    }

    // spec: SAP-2-4, SAP-11-2
    #[tokio::test]
    async fn tasks_and_results_are_signed_beside_the_message() {
        let (seen, desk, agent) = (Seen::default(), key("desk", 1), key("agent", 2));
        let keys = trust(&desk, "desk", "A-prime");
        let processor = seen.processor(Config::default());
        let (us, clock) = ("A-ml-001".parse().unwrap(), Arc::new(Real::default()));
        // These tasks are old, and name no agent.
        let signed = Signed::new(keys, us, clock, Arc::new(AllowAll));
        let signed = signed.without_target().without_max_age();
        let processor = processor.authorize(Arc::new(signed));
        let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
        let service = service.sign(Arc::clone(&agent));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sap/tasks", listener.local_addr().unwrap());
        let serving = serve(
            listener,
            service,
            http::Config::default(),
            std::future::pending(),
        );
        #[expect(clippy::disallowed_methods, reason = "a server beside the test")]
        tokio::spawn(serving);
        let client = HttpClient::new(&url).unwrap();
        let unknown = Err(ErrorCode::Unauthorized);
        assert_eq!(told(&client, 1, "A-prime").await, unknown);
        let other = client.clone().with_signing_key(key("desk", 9));
        assert_eq!(told(&other, 2, "A-prime").await, unknown);
        let client = client.with_signing_key(desk);
        assert_eq!(told(&client, 3, "A-other").await, Err(ErrorCode::Forbidden));
        assert_eq!(told(&client, 4, "A-prime").await, Ok(()));
        let strict = client
            .clone()
            .with_trusted_keys(trust(&agent, "agent", "A-ml-001"));
        assert_eq!(told(&strict, 5, "A-prime").await, Ok(()));
        for (keys, wanted) in [
            (trust(&agent, "agent", "A-else"), SignatureError::OtherAgent),
            (
                trust(&key("x", 3), "agent", "A-ml-001"),
                SignatureError::Mismatch,
            ),
        ] {
            let strict = client.clone().with_trusted_keys(keys);
            let task = typed(&ask(6, "test.echo").to_string());
            let refused = strict.send(&task, &mut |_| panic!("told")).await;
            let Err(SendError::Unsigned(seen)) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!(seen, wanted);
        }
        // A server that does not sign.
        let open = server(&seen, Identity::SameProcess, None).await;
        let strict = HttpClient::new(&format!("http://{open}")).unwrap();
        let strict = strict.with_trusted_keys(trust(&agent, "agent", "A-ml-001"));
        assert_eq!(told(&strict, 7, "A-prime").await, unknown);
    }
}
