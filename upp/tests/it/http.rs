//! What all adapters do over HTTP: keys, headers, retries, time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use upp::transport::ProviderConfig;
use upp::transport::{OpenAiModel, PRESETS, preset};
use upp::{ErrorCode, KeyError, LinearBackoff, LlmModel, ModelEvent, RetryAfter, RoundRobinKeys};

use crate::vendor::{Pieces, answer, drain, events, parts, serve, serve_all, structured};

const BODY: &str = r#"{"choices":[{"message":{"content":"{}"},"finish_reason":"stop"}]}"#;
const EVENTS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"{}\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]";

fn model(config: ProviderConfig, url: &str) -> OpenAiModel {
    OpenAiModel::new("m", config.with_base_url(url)).unwrap()
}

fn limited(header: &str) -> Pieces {
    answer(&format!("429 Too Many Requests\r\n{header}"), "{}")
}

fn tenths() -> ProviderConfig {
    let strategy = LinearBackoff::default().with_delay(Duration::from_millis(1));
    ProviderConfig::default().with_retry(Arc::new(strategy))
}

// spec: UPP-9
#[tokio::test]
async fn each_attempt_goes_out_with_the_next_key() {
    let keys = Arc::new(RoundRobinKeys::new(["one".to_owned(), "two".to_owned()]).unwrap());
    let (url, server) = serve_all(vec![
        limited("x: y"),
        limited("x: y"),
        answer("200 OK", BODY),
    ])
    .await;
    let model = model(tenths().with_keys(keys), &url);
    model.complete(structured()).await.unwrap();
    for (asked, key) in server.await.unwrap().iter().zip(["one", "two", "one"]) {
        let wanted = format!("authorization: Bearer {key}\r\n");
        assert!(asked.contains(&wanted), "{asked}");
    }
}

// spec: UPP-9
#[tokio::test]
async fn a_stream_is_tried_again_until_its_first_byte() {
    let cut = events(
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
        100,
    );
    let (url, server) = serve_all(vec![
        limited("x: y"),
        answer("503 Unavailable", "oops"),
        // The connection is lost before anything has come.
        vec![b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n".to_vec()],
        events(EVENTS, 10),
    ])
    .await;
    let (types, response) = drain(&model(tenths(), &url), structured()).await;
    assert_eq!(response.unwrap().data.unwrap().as_str(), "{}");
    assert_eq!(types, ["message_start", "object_delta", "message_stop"]);
    assert_eq!(server.await.unwrap().len(), 4);
    // Once something has come, what follows is final.
    let (url, _server) = serve_all(vec![cut, events(EVENTS, 10)]).await;
    let (types, error) = drain(&model(tenths(), &url), structured()).await;
    assert_eq!(
        (types.len(), error.unwrap_err().code),
        (2, ErrorCode::InvalidResponse)
    );
}

// spec: UPP-9
#[tokio::test]
async fn nothing_is_tried_again_without_a_strategy() {
    let (url, _server) = serve_all(vec![limited("retry-after: 7"), answer("200 OK", BODY)]).await;
    let model = model(ProviderConfig::default(), &url);
    let error = model.complete(structured()).await.unwrap_err();
    assert_eq!(
        (error.code, error.retry_after),
        (ErrorCode::RateLimited, Some(Duration::from_secs(7)))
    );
}

// spec: UPP-9
#[tokio::test]
async fn a_requested_wait_is_bounded() {
    let (url, server) = serve_all(vec![
        limited("retry-after: 0"),
        limited("Retry-After: Thu, 01 Jan 1970 00:00:00 GMT"),
        limited("retry-after: 99999999"),
        answer("200 OK", BODY),
    ])
    .await;
    // Whoever waited for the fallback, or for what is asked last, would never come to the end.
    let strategy = RetryAfter::default().with_fallback_delay(Duration::from_secs(86_400));
    let config = ProviderConfig::default()
        .with_retry(Arc::new(strategy))
        .with_retry_after_max(Duration::from_millis(2));
    model(config, &url).complete(structured()).await.unwrap();
    assert_eq!(server.await.unwrap().len(), 4);
}

// spec: UPP-9, UPP-8
#[tokio::test]
async fn without_a_key_from_its_strategy_nothing_is_sent() {
    for (key, told) in [
        (Err(KeyError::Empty), "no key"),
        (Ok("a\nb".to_owned()), "cannot be sent"),
    ] {
        let give = move || std::future::ready(key.clone().map(Into::into));
        let config = ProviderConfig::default().with_keys(Arc::new(give));
        let error = model(config, "http://127.0.0.1:9/")
            .complete(structured())
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::AuthenticationFailed);
        assert!(error.message.contains(told), "{error}");
    }
}

// spec: UPP-8
#[tokio::test]
async fn a_key_of_no_known_shape_that_a_vendor_repeats_is_hidden() {
    let body = r#"{"error":{"message":"who is plain-old-word?"}}"#;
    let (url, _server) = serve(answer("401 Unauthorized", body)).await;
    let config = ProviderConfig::default().with_key("plain-old-word".to_owned());
    let error = model(config, &url)
        .complete(structured())
        .await
        .unwrap_err();
    assert_eq!(&*error.message, "who is [REDACTED]?");
}

#[tokio::test]
async fn a_header_of_the_callers_wins_and_is_not_printed() {
    let (url, server) = serve(answer("200 OK", BODY)).await;
    let config = ProviderConfig::default()
        .with_key("key".to_owned())
        .with_header("Authorization", "Custom hush".to_owned())
        .with_header("x-more", "hush".to_owned());
    assert!(!format!("{config:?}").contains("hush"));
    model(config, &url).complete(structured()).await.unwrap();
    let asked = server.await.unwrap();
    let head = parts(&asked[0]).0;
    assert!(
        head.contains("authorization: Custom hush") && head.contains("x-more: hush"),
        "{head}"
    );
    assert!(!head.contains("Bearer"));
    let bad = ProviderConfig::default().with_header("a b", "c".to_owned());
    assert_eq!(
        OpenAiModel::new("m", bad).unwrap_err().code,
        ErrorCode::InvalidRequest
    );
}

// spec: UPP-3
#[tokio::test]
async fn a_vendor_that_falls_silent_is_given_up_by_either_timeout() {
    let short = Duration::from_millis(30);
    for config in [
        ProviderConfig::default().with_timeout(short),
        ProviderConfig::default().with_idle_timeout(short),
    ] {
        let mut pieces = events(": begun\n\n", 100);
        pieces.push(Vec::new());
        let (url, _server) = serve(pieces).await;
        let error = drain(&model(config, &url), structured())
            .await
            .1
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::Timeout);
    }
}

// spec: UPP-6
#[tokio::test]
async fn dropping_a_stream_ends_its_request() {
    let mut pieces = events(
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
        100,
    );
    pieces.push(Vec::new());
    let (url, server) = serve(pieces).await;
    let mut stream = model(ProviderConfig::default(), &url).stream(structured());
    assert!(matches!(
        stream.next().await,
        Some(Ok(ModelEvent::Event(_)))
    ));
    drop(stream);
    // The server's last piece waits until the client has left.
    server.await.unwrap();
}

// spec: UPP-10
#[test]
fn every_preset_is_a_model_of_its_name() {
    for known in PRESETS {
        assert_eq!(preset(known.name), Some(known));
        let model = OpenAiModel::new("m", known.config()).unwrap();
        assert_eq!(
            (model.provider(), model.capabilities()),
            (known.name, known.capabilities)
        );
    }
    assert_eq!(preset("nobody"), None);
}

#[test]
fn a_timeout_of_zero_is_refused_by_name() {
    for (config, setting) in [
        (
            ProviderConfig::default().with_timeout(Duration::ZERO),
            "timeout",
        ),
        (
            ProviderConfig::default().with_idle_timeout(Duration::ZERO),
            "idle_timeout",
        ),
    ] {
        let error = OpenAiModel::new("m", config).unwrap_err();
        let wanted = format!("{setting} is 0 s, but a request needs more than 0 s");
        assert_eq!(&*error.message, wanted);
    }
}

// spec: UPP-9
#[tokio::test]
async fn a_wait_is_read_from_every_place_where_vendors_write_it() {
    let body = |delay: &str| {
        format!(
            r#"[{{"error":{{"message":"slow down","details":[{{"@type":"RetryInfo","retryDelay":"{delay}"}}]}}}}]"#
        )
    };
    for (headers, body, millis) in [
        (
            "retry-after-ms: 250\r\nretry-after: 9",
            "{}".to_owned(),
            Some(250),
        ),
        ("retry-after-ms: 0.5", "{}".to_owned(), Some(0)),
        ("retry-after: 1.75", "{}".to_owned(), Some(1_750)),
        (
            "retry-after-ms: x\r\nretry-after: 2",
            "{}".to_owned(),
            Some(2_000),
        ),
        ("x: y", body("34.5s"), Some(34_500)),
        ("retry-after: 3", body("34.5s"), Some(3_000)),
        ("x: y", body("99999999s"), Some(3_600_000)),
        ("x: y", body("soon"), None),
    ] {
        let head = format!("429 Too Many Requests\r\n{headers}");
        let (url, _server) = serve(answer(&head, &body)).await;
        let error = model(ProviderConfig::default(), &url)
            .complete(structured())
            .await;
        let error = error.unwrap_err();
        assert_eq!(
            error.retry_after.map(|wait| wait.as_millis()),
            millis,
            "{headers} {body}"
        );
        assert_eq!(error.message.contains("slow down"), body != "{}");
    }
}

// spec: UPP-9
#[tokio::test]
async fn a_conflict_is_tried_again_and_a_bad_request_is_not() {
    let conflict = answer("409 Conflict", "{}");
    let (url, server) = serve_all(vec![conflict, answer("200 OK", BODY)]).await;
    model(tenths(), &url).complete(structured()).await.unwrap();
    assert_eq!(server.await.unwrap().len(), 2);
    let (url, _server) = serve(answer("400 Bad Request", "{}")).await;
    let error = model(tenths(), &url)
        .complete(structured())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
}
