//! No secret of a request is in an error, wherever the vendor repeats it.

use std::error::Error;
use std::sync::Arc;

use tokio::net::TcpListener;
use ubos_common::json::to_string;
use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{LlmModel, UppError};

use crate::vendor::{Pieces, answer, drain, events, serve_all, structured};

const KEY: &str = "plain-old-word";
const HEADER: &str = "hush-of-a-header";
const PASSWORD: &str = "hush-of-the-url";

fn models(url: &str) -> [Arc<dyn LlmModel>; 4] {
    let url = url.replace("http://", &format!("http://someone:{PASSWORD}@"));
    let config = ProviderConfig::default()
        .with_base_url(url)
        .with_params(upp::object(r#"{"max_tokens":9}"#).unwrap())
        .with_key(KEY.to_owned())
        .with_header("x-gateway", format!("Token {HEADER}"));
    [
        Arc::new(OpenAiModel::new("m", config.clone()).unwrap()),
        Arc::new(AnthropicModel::new("m", config.clone()).unwrap()),
        Arc::new(OpenAiResponsesModel::new("m", config.clone()).unwrap()),
        Arc::new(GoogleModel::new("m", config).unwrap()),
    ]
}

/// What a vendor may say: each secret, and secrets around the place where a message is cut.
fn texts() -> Vec<String> {
    let all = format!("{KEY} {HEADER} Token {HEADER} {PASSWORD}");
    let around_the_cut = (0..24)
        .step_by(6)
        .map(|n| format!("{} {all}", "x".repeat(480 + n)));
    [all.clone()].into_iter().chain(around_the_cut).collect()
}

fn check(error: &UppError) {
    let mut shown = format!("{error} {error:?} {}", to_string(error));
    let mut cause = error.source();
    while let Some(error) = cause {
        shown += &format!("{error} {error:?}");
        cause = error.source();
    }
    for secret in [KEY, HEADER, PASSWORD] {
        // A part of a secret is one, too.
        assert!(!shown.contains(&secret[..secret.len() - 4]), "{shown}");
    }
}

// spec: UPP-8
#[tokio::test]
async fn no_error_has_a_secret_that_the_vendor_repeats() {
    for said in texts() {
        let bodies = [
            format!(r#"{{"error":{{"message":"{said}","type":"{said}","code":"{said}"}}}}"#),
            format!(r#"{{"error":"{said}"}}"#),
            format!(r#"{{"type":"error","error":{{"type":"{said}","message":"{said}"}}}}"#),
            format!(r#"[{{"error":{{"code":401,"message":"{said}","status":"{said}"}}}}]"#),
            format!(r#"{{"detail":"{said}"}}"#),
            format!(r#"{{"status":"{said}","code":"{said}","message":"{said}"}}"#),
            said.clone(),
        ];
        let mut answers: Vec<Pieces> = Vec::new();
        for body in &bodies {
            answers.push(answer("401 Unauthorized", body));
            answers.push(answer("200 OK", body));
            answers.push(answer(&format!("302 Found\r\nlocation: /{said}"), body));
            answers.push(events(&format!("data: {body}\n\n"), 4_096));
            answers.push(events(&format!("event: {said}\ndata: {body}"), 4_096));
        }
        for n in 0..4 {
            let (url, server) = serve_all(answers.clone()).await;
            let model = &models(&url)[n];
            for n in 0..answers.len() {
                let error = match n % 5 {
                    0..=2 => model.complete(structured()).await.unwrap_err(),
                    _ => drain(model.as_ref(), structured()).await.1.unwrap_err(),
                };
                check(&error);
            }
            server.await.unwrap();
        }
    }
}

// spec: UPP-8
#[tokio::test]
async fn no_error_of_a_connection_has_a_secret() {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    let said = format!("{KEY} {HEADER} {PASSWORD}");
    for answered in [
        // The connection breaks before, and within, the response.
        String::new(),
        said.clone(),
        format!("HTTP/1.1 200 OK\r\n{said}: {said}\r\n\r\n"),
        format!("{head}content-length: 9999\r\n\r\n{said}"),
        format!("{head}transfer-encoding: chunked\r\n\r\n{said}"),
        format!("{head}content-length: {said}\r\n\r\n"),
        format!("HTTP/1.1 401 No\r\ncontent-length: 9999\r\n\r\n{said}"),
    ] {
        for n in 0..4 {
            let pieces = [answered.clone().into_bytes()];
            let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
            let answers = vec![pieces.collect(); 2];
            let (url, server) = serve_all(answers).await;
            let model = &models(&url)[n];
            check(&model.complete(structured()).await.unwrap_err());
            let (_, streamed) = drain(model.as_ref(), structured()).await;
            check(&streamed.unwrap_err());
            server.await.unwrap();
            // Now nobody listens.
            let error = model.complete(structured()).await.unwrap_err();
            assert_eq!(error.code, upp::ErrorCode::NetworkError);
            check(&error);
        }
    }
    // What cannot be sent at all.
    let config = || ProviderConfig::default().with_base_url("http://127.0.0.1:9/");
    let model = OpenAiModel::new("m", config().with_key(format!("{KEY}\n"))).unwrap();
    check(&model.complete(structured()).await.unwrap_err());
    let header = config().with_header("x-gateway", format!("{HEADER}\n"));
    check(&OpenAiModel::new("m", header).unwrap_err());
    for url in [
        format!("http://someone:{PASSWORD}@example.org/"),
        format!("http://someone:{PASSWORD}@:x"),
    ] {
        let wrong = ProviderConfig::default().with_base_url(url);
        check(&OpenAiModel::new("m", wrong).unwrap_err());
    }
}

// spec: UPP-8
#[tokio::test]
async fn no_redirect_is_followed() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = other.local_addr().unwrap();
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let head = format!("{status}\r\nlocation: http://{to}/v1/");
        for n in 0..4 {
            let (url, _server) = serve_all(vec![answer(&head, "{}")]).await;
            let error = models(&url)[n].complete(structured()).await.unwrap_err();
            assert!(error.message.starts_with("HTTP status 30"), "{error}");
        }
    }
    let asked = futures::FutureExt::now_or_never(other.accept());
    assert!(asked.is_none());
}
