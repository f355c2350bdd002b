//! The OpenAI adapter against a server on loopback that answers in the vendor's shape.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use ubos_common::json::RawObject;
use ubos_common::time::Timestamp;
use upp::transport::openai::{OpenAiConfig, OpenAiModel};
use upp::{
    AssistantMessage, ErrorCode, FnTool, List, LlmModel, LlmRequest, LlmResponse, Message,
    ModelEvent, Stamp, Tool, ToolCall, ToolResult, ToolResultMessage, UppError, json_text, object,
};

const KEY: &str = "sk-not-a-real-key-0123456789";

/// Answers one request with these pieces, a flush and a moment between them; gives what it was sent.
async fn serve(pieces: Vec<Vec<u8>>) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "the server of a test")]
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let n = socket.read(&mut bytes).await.unwrap();
            seen.extend_from_slice(&bytes[..n]);
            let text = String::from_utf8_lossy(&seen);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) || n == 0 {
                break;
            }
        }
        for piece in pieces {
            socket.write_all(&piece).await.unwrap();
            socket.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        String::from_utf8(seen).unwrap()
    });
    (url, server)
}

fn answer(status: &str, body: &str) -> Vec<Vec<u8>> {
    vec![format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()]
}

/// An event stream, split at every few bytes.
fn events(text: &str, size: usize) -> Vec<Vec<u8>> {
    let mut pieces = vec![
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec(),
    ];
    pieces.extend(text.as_bytes().chunks(size).map(<[u8]>::to_vec));
    pieces
}

fn model(url: &str) -> OpenAiModel {
    OpenAiModel::new(
        "m-1",
        OpenAiConfig::default()
            .with_base_url(url)
            .with_key(KEY.to_owned()),
    )
    .unwrap()
}

fn request() -> LlmRequest {
    let stamp = |n: u32| Stamp::with_id(format!("m-{n}"), Timestamp::EPOCH);
    let call = ToolCall::new("c0".into(), "add".into(), object(r#"{"a":1}"#).unwrap());
    let messages = vec![
        Message::user(stamp(1), "hi \"there\""),
        AssistantMessage::new(stamp(2), vec![], Some(vec![call])).into(),
        ToolResultMessage::new(
            stamp(3),
            vec![ToolResult::new("c0".into(), json_text("three"))],
        )
        .into(),
    ];
    let mut request = LlmRequest::new(List::from(messages), stamp(4));
    let add = FnTool::new(
        "add",
        "Adds",
        object(r#"{"type":"object"}"#).unwrap(),
        |a: RawObject, _| async { Ok(a.into()) },
    );
    request.tools = vec![Arc::new(add) as Arc<dyn Tool>].into();
    request.system = Some("be brief".into());
    request.params = Some(Arc::new(
        object(r#"{"temperature":0.20,"seed":7}"#).unwrap(),
    ));
    request
}

async fn last(model: &OpenAiModel) -> (Vec<String>, Result<LlmResponse, UppError>) {
    let mut stream = model.stream(request());
    let mut types = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(ModelEvent::Event(event)) => types.push(event.event_type.to_string()),
            Ok(ModelEvent::Done(response)) => {
                assert!(stream.next().await.is_none());
                return (types, Ok(*response));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (types, Err(error)),
        }
    }
    panic!("no end");
}

const CHUNKS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
: keep-alive\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grüß\"}}]}\r\n\r\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" dich\"}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":\"\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"2}\"}}]}}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n\
data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
data: [DONE]\n\n";

#[tokio::test]
async fn a_stream_is_read_however_its_bytes_are_split() {
    for size in [1, 7, 100, 10_000] {
        let (url, server) = serve(events(CHUNKS, size)).await;
        let (types, response) = last(&model(&url)).await;
        let response = response.unwrap();
        assert_eq!(
            types,
            [
                "message_start",
                "text_delta",
                "text_delta",
                "tool_call_delta",
                "tool_call_delta",
                "tool_call_delta",
                "message_stop"
            ]
        );
        assert_eq!(response.message.text(), "Grüß dich");
        assert_eq!(
            (&*response.message.id, &*response.stop_reason),
            ("m-4", "tool_calls")
        );
        let call = &response.message.calls()[0];
        assert_eq!(
            (
                &*call.tool_call_id,
                &*call.tool_name,
                call.arguments.as_str()
            ),
            ("c1", "add", r#"{"a":2}"#)
        );
        let usage = &response.usage;
        assert_eq!(
            (
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens
            ),
            (11, 7, 4)
        );
        server.await.unwrap();
    }
}

// spec: UPP-2
#[tokio::test]
async fn the_body_is_the_request_and_the_parameters_as_they_stand() {
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"hello","tool_calls":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let (url, server) = serve(answer("200 OK", body)).await;
    let response = model(&url).complete(request()).await.unwrap();
    assert_eq!(
        (
            response.message.text().as_str(),
            response.usage.output_tokens
        ),
        ("hello", 2)
    );
    let sent = server.await.unwrap();
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1"));
    assert!(
        head.to_lowercase()
            .contains(&format!("authorization: bearer {KEY}"))
    );
    assert_eq!(
        body,
        concat!(
            r#"{"model":"m-1","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi \"there\""},"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c0","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},"#,
            r#"{"role":"tool","content":"three","tool_call_id":"c0"}],"#,
            r#""tools":[{"type":"function","function":{"name":"add","description":"Adds","parameters":{"type":"object"}}}],"#,
            r#""seed":7,"temperature":0.20}"#
        )
    );
}

// spec: UPP-3
#[tokio::test]
async fn a_refusal_is_the_error_that_its_status_says() {
    let long = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    for (status, body, code, message) in [
        (
            "401 Unauthorized",
            format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#),
            ErrorCode::AuthenticationFailed,
            "Incorrect",
        ),
        (
            "400 Bad Request",
            long.to_owned(),
            ErrorCode::ContextLengthExceeded,
            "too long",
        ),
        (
            "400 Bad Request",
            "{}".to_owned(),
            ErrorCode::InvalidRequest,
            "HTTP status 400",
        ),
        (
            "429 Too Many Requests",
            "slow down".to_owned(),
            ErrorCode::RateLimited,
            "HTTP status 429",
        ),
        (
            "200 OK",
            "[]".to_owned(),
            ErrorCode::InvalidResponse,
            "another shape",
        ),
        (
            "200 OK",
            "{}".to_owned(),
            ErrorCode::InvalidResponse,
            "before its end",
        ),
    ] {
        let (url, _server) = serve(answer(status, &body)).await;
        let error = model(&url).complete(request()).await.unwrap_err();
        assert_eq!(
            (&error.code, &*error.provider),
            (&code, "openai"),
            "{status}"
        );
        assert!(error.message.contains(message), "{}", error.message);
        assert!(!format!("{error} {error:?}").contains(KEY));
        let (url, _server) = serve(answer(status, &body)).await;
        assert_eq!(
            last(&model(&url)).await.1.unwrap_err().code,
            code,
            "streamed {status}"
        );
    }
    let (url, server) = serve(vec![]).await;
    server.abort();
    let _ = server.await;
    assert_eq!(
        model(&url).complete(request()).await.unwrap_err().code,
        ErrorCode::NetworkError
    );
}

// spec: UPP-3
#[tokio::test]
async fn a_stream_that_breaks_off_is_an_error() {
    let cut = CHUNKS
        .split("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish")
        .next()
        .unwrap();
    let (url, _server) = serve(events(cut, 50)).await;
    assert_eq!(
        last(&model(&url)).await.1.unwrap_err().code,
        ErrorCode::InvalidResponse
    );
    let late = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    let (url, _server) = serve(events(late, 50)).await;
    let (types, error) = last(&model(&url)).await;
    assert_eq!(
        (types.len(), &*error.unwrap_err().message),
        (2, "overloaded")
    );
}

// spec: UPP-8
#[test]
fn keys_are_not_printed_and_do_not_leave_unencrypted() {
    let config = |url: &str| {
        OpenAiConfig::default()
            .with_base_url(url)
            .with_key(KEY.to_owned())
    };
    for good in [
        "https://example.org/v1",
        "http://localhost:1/v1",
        "http://127.0.0.2/v1",
        "http://[::1]:9/v1",
    ] {
        let model = OpenAiModel::new("m", config(good)).unwrap();
        assert!(!format!("{model:?} {:?}", config(good)).contains(KEY));
    }
    for bad in [
        "http://example.org/v1",
        "http://127.0.0.1.example.org/",
        "http://10.0.0.1/v1",
        "http://0.0.0.0/v1",
        "http://[2001:db8::1]/v1",
        "http://localhost.example.org",
        "ftp://127.0.0.1",
        "nonsense",
    ] {
        assert_eq!(
            OpenAiModel::new("m", config(bad)).unwrap_err().code,
            ErrorCode::InvalidRequest,
            "{bad}"
        );
    }
    assert!(
        OpenAiModel::new(
            "m",
            config("http://example.org/v1").with_plain_http_allowed()
        )
        .is_ok()
    );
}
