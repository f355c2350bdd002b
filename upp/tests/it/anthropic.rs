//! The Anthropic adapter against a server on loopback that answers in the vendor's shape.

use std::sync::Arc;

use upp::transport::AnthropicModel;
use upp::transport::ProviderConfig;
use upp::{ContentBlock, ErrorCode, LlmModel, LlmResponse, Message, object};

use crate::vendor::{KEY, answer, drain, events, parts, request, serve, structured};

fn model(url: &str) -> AnthropicModel {
    let config = ProviderConfig::default()
        .with_base_url(url)
        .with_params(object(r#"{"max_tokens":9}"#).unwrap())
        .with_key(KEY.to_owned());
    AnthropicModel::new("claude-x", config).unwrap()
}

const WHOLE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x-1","content":[
{"type":"thinking","thinking":"Let me see.","signature":"c2lnbmVk"},
{"type":"redacted_thinking","data":"aGlkZGVu"},
{"type":"text","text":"Grüß dich"},
{"type":"server_tool_use","id":"s1","name":"web_search","input":{"q":"x"}},
{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":2}}],
"stop_reason":"tool_use","stop_sequence":null,
"usage":{"input_tokens":11,"output_tokens":7,"cache_read_input_tokens":4,"cache_creation_input_tokens":3}}"#;

const EVENTS: &str = "event: message_start
data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-x-1\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":11,\"output_tokens\":1,\"cache_read_input_tokens\":4,\"cache_creation_input_tokens\":3}}}

event: ping
data: {\"type\":\"ping\"}

event: content_block_start
data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}

data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Let me \"}}

data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"see.\"}}

data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"c2lnbmVk\"}}

data: {\"type\":\"content_block_stop\",\"index\":0}

data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"aGlkZGVu\"}}

data: {\"type\":\"content_block_stop\",\"index\":1}

data: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}

data: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\",\"text\":\"Grü\"}}

data: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\",\"text\":\"ß dich\"}}

data: {\"type\":\"content_block_stop\",\"index\":2}

data: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s1\",\"name\":\"web_search\",\"input\":{\"q\":\"x\"}}}

data: {\"type\":\"content_block_stop\",\"index\":3}

data: {\"type\":\"content_block_start\",\"index\":4,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"add\",\"input\":{}}}

data: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":\"}}

data: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"2}\"}}

data: {\"type\":\"content_block_stop\",\"index\":4}

data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":7}}

event: message_stop
data: {\"type\":\"message_stop\"}

";

fn check(response: &LlmResponse) {
    let message = &response.message;
    assert_eq!((&*message.id, &*response.stop_reason), ("m-4", "tool_use"));
    assert_eq!(
        message.content,
        [
            ContentBlock::Reasoning("Let me see.".into()),
            ContentBlock::text("Grüß dich")
        ]
    );
    let call = &message.calls()[0];
    assert_eq!(
        (
            &*call.tool_call_id,
            &*call.tool_name,
            call.arguments.as_str()
        ),
        ("toolu_1", "add", r#"{"a":2}"#)
    );
    let usage = &response.usage;
    assert_eq!(
        (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens
        ),
        // Cached tokens are a part of the input.
        (18, 7, 4, 3)
    );
    let said = message.metadata.as_ref().unwrap().get("anthropic").unwrap();
    assert_eq!(
        said.to_owned().as_str(),
        concat!(
            r#"{"id":"msg_1","model":"claude-x-1","content":[{"type":"thinking","thinking":"Let me see.","signature":"c2lnbmVk"},"#,
            r#"{"type":"redacted_thinking","data":"aGlkZGVu"},{"type":"text","text":"Grüß dich"},"#,
            r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"q":"x"}},"#,
            r#"{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":2}}],"stop_reason":"tool_use"}"#
        )
    );
}

// spec: UPP-10
#[tokio::test]
async fn an_answer_is_the_same_whole_and_in_events_split_anywhere() {
    let (url, _server) = serve(answer("200 OK", WHOLE)).await;
    check(&model(&url).complete(request()).await.unwrap());
    for size in [1, 100, 10_000] {
        let (url, _server) = serve(events(EVENTS, size)).await;
        let (types, response) = drain(&model(&url), request()).await;
        check(&response.unwrap());
        let (start, stop) = ("content_block_start", "content_block_stop");
        assert_eq!(
            types,
            [
                "message_start",
                start,
                "reasoning_delta",
                "reasoning_delta",
                stop,
                start,
                stop,
                start,
                "text_delta",
                "text_delta",
                stop,
                start,
                stop,
                start,
                "tool_call_delta",
                "tool_call_delta",
                "tool_call_delta",
                stop,
                "message_stop"
            ]
        );
    }
}

// spec: UPP-10
#[tokio::test]
async fn what_a_message_says_itself_is_not_kept_beside_it() {
    for (more, is_kept) in [("", false), (r#","citations":[{"x":1}]"#, true)] {
        let block = format!(r#"{{"type":"text","text":"yes"{more}}}"#);
        let call = r#"{"type":"tool_use","id":"t","name":"add","input":{}}"#;
        let body = format!(
            r#"{{"id":"m","role":"assistant","model":"c","content":[{block},{call}],"stop_reason":"stop_sequence","stop_sequence":"END","usage":{{}}}}"#
        );
        let (url, _server) = serve(answer("200 OK", &body)).await;
        let message = model(&url).complete(request()).await.unwrap().message;
        let kept = message
            .metadata
            .as_ref()
            .and_then(|kept| kept.get("anthropic"));
        let kept = kept.unwrap().as_str();
        assert_eq!(kept.contains("\"content\""), is_kept);
        assert!(kept.contains(r#""stop_sequence":"END""#), "{kept}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn the_last_word_ends_a_stream_whose_connection_stays_open() {
    let mut pieces = events(EVENTS, 10_000);
    pieces.push(Vec::new());
    let (url, _server) = serve(pieces).await;
    check(&drain(&model(&url), request()).await.1.unwrap());
}

// spec: UPP-2, UPP-10
#[tokio::test]
async fn the_body_is_the_request_and_the_parameters_as_they_stand() {
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(request()).await.unwrap();
    let asked = server.await.unwrap();
    let (head, body) = parts(&asked[0]);
    assert!(head.starts_with("POST /v1/messages HTTP/1.1"), "{head}");
    let head = head.to_lowercase();
    assert!(
        head.contains(&format!("x-api-key: {KEY}"))
            && head.contains("anthropic-version: 2023-06-01")
    );
    assert_eq!(
        body,
        concat!(
            r#"{"model":"claude-x","messages":[{"role":"user","content":[{"type":"text","text":"hi \"there\""},"#,
            r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}}]},"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"well"},{"type":"tool_use","id":"c0","name":"add","input":{"a":1}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c0","content":"three","is_error":true}]}],"#,
            r#""system":"be brief","tools":[{"name":"add","description":"Adds","input_schema":{"type":"object"}}],"max_tokens":9,"top":0.20}"#
        )
    );
}

// spec: UPP-10
#[tokio::test]
async fn signed_thoughts_go_back_as_they_came() {
    let (url, _server) = serve(answer("200 OK", WHOLE)).await;
    let said = model(&url).complete(request()).await.unwrap();
    let mut next = request();
    next.messages = vec![Message::Assistant(said.message)].into();
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(next.clone()).await.unwrap();
    let asked = server.await.unwrap();
    let sent = concat!(
        r#""content":[{"type":"thinking","thinking":"Let me see.","signature":"c2lnbmVk"},"#,
        r#"{"type":"redacted_thinking","data":"aGlkZGVu"},{"type":"text","text":"Grüß dich"},"#,
        r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"q":"x"}},{"type":"tool_use""#
    );
    assert!(asked[0].contains(sent), "{}", asked[0]);
    // To a vendor of another name they do not go.
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    let config = ProviderConfig::default()
        .with_base_url(url)
        .with_params(object(r#"{"max_tokens":9}"#).unwrap())
        .with_provider("other");
    let other = AnthropicModel::new("m", config).unwrap();
    other.complete(next).await.unwrap();
    assert!(!server.await.unwrap()[0].contains("thinking"));
}

// spec: UPP-10
#[tokio::test]
async fn structured_output_is_a_forced_tool_that_nobody_sees() {
    let whole = r#"{"content":[{"type":"tool_use","id":"t","name":"json_response","input":{"n":3}}],"stop_reason":"tool_use"}"#;
    let (url, server) = serve(answer("200 OK", whole)).await;
    let response = model(&url).complete(structured()).await.unwrap();
    assert_eq!(response.data.as_ref().unwrap().as_str(), r#"{"n":3}"#);
    assert!(!response.message.has_tool_calls());
    assert_eq!(response.message.text(), r#"{"n":3}"#);
    let asked = server.await.unwrap();
    let body = parts(&asked[0]).1;
    assert!(body.contains(r#""input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"json_response"}"#), "{body}");

    let streamed = EVENTS
        .replace("\"name\":\"add\"", "\"name\":\"json_response\"")
        .replace("\"input\":{\"q\":\"x\"}", "\"input\":{}");
    let mut with_tools = request();
    with_tools.structure = structured().structure;
    let (url, server) = serve(events(&streamed, 40)).await;
    let (types, response) = drain(&model(&url), with_tools.clone()).await;
    let response = response.unwrap();
    assert_eq!(response.data.unwrap().as_str(), r#"{"a":2}"#);
    assert!(
        types.contains(&"object_delta".to_owned())
            && !types.contains(&"tool_call_delta".to_owned())
    );
    assert!(server.await.unwrap()[0].contains(r#""tool_choice":{"type":"any"}"#));

    with_tools.params = Some(Arc::new(
        object(r#"{"tool_choice":{"type":"none"}}"#).unwrap(),
    ));
    let error = model("http://127.0.0.1:9")
        .complete(with_tools)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
}

// spec: UPP-3
#[tokio::test]
async fn a_refusal_is_the_error_that_its_status_or_its_type_says() {
    use ErrorCode as E;
    let error = |kind: &str, text: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{text}"}}}}"#)
    };
    for (status, body, code) in [
        (
            "401 Unauthorized",
            error("authentication_error", &format!("bad {KEY}")),
            E::AuthenticationFailed,
        ),
        (
            "400 Bad Request",
            error("invalid_request_error", "prompt is too long: 9 tokens"),
            E::ContextLengthExceeded,
        ),
        (
            "400 Bad Request",
            error("invalid_request_error", "max_tokens: field required"),
            E::InvalidRequest,
        ),
        (
            "404 Not Found",
            error("not_found_error", "model"),
            E::ModelNotFound,
        ),
        (
            "429 Too Many Requests",
            error("rate_limit_error", "slow"),
            E::RateLimited,
        ),
        (
            "500 Internal Server Error",
            "<html>oops".to_owned(),
            E::ProviderError,
        ),
        (
            "529 Overloaded",
            error("overloaded_error", "busy"),
            E::ProviderError,
        ),
        ("200 OK", "<html>oops".to_owned(), E::InvalidResponse),
        ("200 OK", "{}".to_owned(), E::InvalidResponse),
        (
            "200 OK",
            r#"{"content":[{"type":"text","text":"x"}],"stop_reason":"refusal"}"#.to_owned(),
            E::ContentFiltered,
        ),
    ] {
        let (url, _server) = serve(answer(status, &body)).await;
        let error = model(&url).complete(request()).await.unwrap_err();
        assert_eq!(
            (&error.code, &*error.provider),
            (&code, "anthropic"),
            "{status} {body}"
        );
        assert!(!format!("{error} {error:?}").contains(KEY));
    }
    // In the middle of a stream, whose status said that all was well.
    let begun = EVENTS.split("event: ping").next().unwrap();
    for (kind, code) in [
        ("authentication_error", E::AuthenticationFailed),
        ("permission_error", E::AuthenticationFailed),
        ("billing_error", E::QuotaExceeded),
        ("rate_limit_error", E::RateLimited),
        ("not_found_error", E::ModelNotFound),
        ("request_too_large", E::ContextLengthExceeded),
        ("invalid_request_error", E::InvalidRequest),
        ("timeout_error", E::Timeout),
        ("overloaded_error", E::ProviderError),
    ] {
        let text = format!("{begun}event: error\ndata: {}\n\n", error(kind, "sorry"));
        let (url, _server) = serve(events(&text, 30)).await;
        let (types, error) = drain(&model(&url), request()).await;
        let error = error.unwrap_err();
        assert_eq!(
            (types.len(), &error.code, &*error.message, error.status_code),
            (1, &code, "sorry", None)
        );
    }
}

// spec: UPP-3
#[tokio::test]
async fn a_stream_that_is_cut_anywhere_is_an_error() {
    let places: Vec<usize> = EVENTS.match_indices("\n\n").map(|(at, _)| at + 2).collect();
    for at in places.iter().rev().skip(1) {
        let (url, _server) = serve(events(&EVENTS[..*at], 10_000)).await;
        let error = drain(&model(&url), request()).await.1.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidResponse, "{at}");
    }
}

// spec: UPP-2, UPP-10
#[tokio::test]
async fn a_request_without_max_tokens_is_not_sent() {
    let config = ProviderConfig::default().with_base_url("http://127.0.0.1:9/");
    let model = AnthropicModel::new("m", config).unwrap();
    let error = model.complete(request()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert!(error.message.contains("max_tokens"), "{error}");
}

// spec: UPP-2, UPP-10
#[tokio::test]
async fn parameters_of_a_request_replace_those_of_the_model() {
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    let mut own = structured();
    own.structure = None;
    own.params = Some(Arc::new(object(r#"{"max_tokens":5,"top_k":1.0}"#).unwrap()));
    model(&url).complete(own).await.unwrap();
    let asked = server.await.unwrap();
    assert!(
        parts(&asked[0])
            .1
            .ends_with(r#","max_tokens":5,"top_k":1.0}"#),
        "{}",
        asked[0]
    );
}

// spec: UPP-10
#[tokio::test]
async fn called_tools_are_declared_where_none_may_be_called() {
    let mut later = request();
    later.tools = Arc::new([]);
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(later.clone()).await.unwrap();
    let asked = server.await.unwrap();
    let declared = r#""tools":[{"name":"add","input_schema":{"type":"object"}}],"tool_choice":{"type":"none"}"#;
    assert!(parts(&asked[0]).1.contains(declared), "{}", asked[0]);
    // The user's own declarations stay alone.
    later.params = Some(Arc::new(
        object(r#"{"tools":[{"type":"web_search"}]}"#).unwrap(),
    ));
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(later).await.unwrap();
    let asked = server.await.unwrap();
    assert!(!asked[0].contains("input_schema") && !asked[0].contains("tool_choice"));
}
