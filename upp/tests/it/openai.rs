//! The OpenAI adapter against a server on loopback that answers in the vendor's shape.

use std::sync::Arc;

use ubos_common::json::RawObject;
use ubos_common::time::Timestamp;
use upp::transport::OpenAiModel;
use upp::transport::ProviderConfig;
use upp::{
    AssistantMessage, ContentBlock, ErrorCode, FnTool, List, LlmModel, LlmRequest, LlmResponse,
    MediaKind, Message, Metadata, Source, Stamp, Tool, ToolCall, ToolResult, ToolResultMessage,
    UppError, UserMessage, json_text, object,
};

use crate::vendor::{KEY, answer, drain, events, parts, serve, structured};

fn model(url: &str) -> OpenAiModel {
    OpenAiModel::new(
        "m-1",
        ProviderConfig::default()
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
    drain(model, request()).await
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
        let asked = server.await.unwrap().remove(0);
        let wanted = r#""stream":true,"stream_options":{"include_usage":true}"#;
        assert!(asked.contains(wanted), "{asked}");
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
    let (head, body) = parts(&sent[0]);
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1"));
    assert!(head.contains("content-type: application/json\r\n"));
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
            "429 Too Many Requests",
            r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#.to_owned(),
            ErrorCode::QuotaExceeded,
            "pay",
        ),
        (
            "500 Internal Server Error",
            "<html>".to_owned(),
            ErrorCode::ProviderError,
            "HTTP status 500",
        ),
        (
            "200 OK",
            "[]".to_owned(),
            ErrorCode::InvalidResponse,
            "not a chat completion",
        ),
        (
            "200 OK",
            "{}".to_owned(),
            ErrorCode::InvalidResponse,
            "without a stop reason",
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
    assert!(server.await.unwrap_err().is_cancelled());
    let error = model(&url).complete(request()).await.unwrap_err();
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode::NetworkError, "the connection could not be made")
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
    // Bytes that are no text, behind all that was asked for.
    let (said, _) = CHUNKS.split_once("data: [DONE]").unwrap();
    for bytes in [&b"data: \xff"[..], b"data: \xff\n\n"] {
        let mut pieces = events(said, 10_000);
        pieces.push(bytes.to_vec());
        let (url, _server) = serve(pieces).await;
        let error = last(&model(&url)).await.1.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidResponse);
    }
    // The end of the stream is one of the last event, too.
    let whole = r#"data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
    let (url, _server) = serve(events(whole, 50)).await;
    assert_eq!(last(&model(&url)).await.1.unwrap().message.text(), "x");
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
        ProviderConfig::default()
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
    let error = OpenAiModel::new("m", config("http://example.org/v1")).unwrap_err();
    assert!(error.message.contains("allow plain HTTP"), "{error}");
    assert!(
        OpenAiModel::new(
            "m",
            config("http://example.org/v1").with_plain_http_allowed()
        )
        .is_ok()
    );
}

// spec: UPP-10
#[tokio::test]
async fn media_structure_and_tool_metadata_have_the_vendors_shape() {
    let body = r#"{"id":"c-1","model":"m-1-1","system_fingerprint":null,"choices":[{"message":{"content":"{\"n\":3}"},"finish_reason":"stop"}]}"#;
    let (url, server) = serve(answer("200 OK", body)).await;
    let image = |source| ContentBlock::image(source, "image/png");
    let content = vec![
        image(Source::Bytes(vec![1, 2, 3].into())),
        image(Source::Url("https://x/y".into())),
        ContentBlock::document(Source::Base64("AQID".into()), "application/pdf"),
        ContentBlock::media(MediaKind::Audio, vec![1, 2, 3], "audio/mpeg"),
        ContentBlock::document(Source::Text("plain".into()), "text/plain"),
    ];
    let mut request = structured();
    request.messages = vec![UserMessage::new(crate::stamp(1), content).into()].into();
    let mut metadata = Metadata::default();
    metadata.set(
        "openai",
        object(r#"{"strict":true,"name":"other"}"#).unwrap(),
    );
    let tool = FnTool::new("t", "d", object("{}").unwrap(), |a: RawObject, _| async {
        Ok(a.into())
    });
    request.tools = vec![Arc::new(tool.with_metadata(metadata)) as Arc<dyn Tool>].into();
    let response = model(&url).complete(request.clone()).await.unwrap();
    assert_eq!(response.data.unwrap().as_str(), r#"{"n":3}"#);
    let said = response
        .message
        .metadata
        .as_ref()
        .unwrap()
        .get("openai")
        .unwrap();
    assert_eq!(
        said.to_owned().as_str(),
        r#"{"id":"c-1","model":"m-1-1","stop_reason":"stop"}"#
    );
    let asked = server.await.unwrap();
    assert_eq!(
        parts(&asked[0]).1,
        concat!(
            r#"{"model":"m-1","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}},"#,
            r#"{"type":"image_url","image_url":{"url":"https://x/y"}},{"type":"file","file":{"filename":"document","file_data":"data:application/pdf;base64,AQID"}},"#,
            r#"{"type":"input_audio","input_audio":{"data":"AQID","format":"mp3"}},{"type":"text","text":"plain"}]}],"#,
            r#""tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{},"strict":true}}],"#,
            r#""response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"}}}}"#
        )
    );
    for untaken in [
        ContentBlock::media(MediaKind::Video, vec![1], "video/mp4"),
        ContentBlock::document(Source::Url("https://x/y".into()), "application/pdf"),
    ] {
        request.messages = vec![Message::user(crate::stamp(1), untaken)].into();
        let error = model(&url).complete(request.clone()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
    }
}

// spec: UPP-10
#[tokio::test]
async fn a_model_that_will_not_answer_says_so_in_text() {
    let body = r#"{"choices":[{"message":{"content":null,"refusal":"I cannot."},"finish_reason":"stop"}]}"#;
    let (url, _server) = serve(answer("200 OK", body)).await;
    let response = model(&url).complete(structured()).await.unwrap();
    assert_eq!(
        (response.message.text().as_str(), response.data),
        ("I cannot.", None)
    );
}
