//! The Google adapter against a server on loopback that answers in the vendor's shape.

use std::sync::Arc;

use upp::transport::GoogleModel;
use upp::transport::ProviderConfig;
use upp::{
    AssistantMessage, ContentBlock, ErrorCode, LlmModel, LlmResponse, Message, ToolResult,
    ToolResultMessage, object,
};

use crate::stamp;
use crate::vendor::{KEY, answer, drain, events, parts, request, serve, structured};

fn model(url: &str) -> GoogleModel {
    let config = ProviderConfig::default()
        .with_base_url(url)
        .with_key(KEY.to_owned());
    GoogleModel::new("models/gemini-x", config).unwrap()
}

const WHOLE: &str = r#"{"candidates":[{"content":{"role":"model","parts":[
{"text":"Let me see.","thought":true},{"text":"Grüß dich"},
{"functionCall":{"name":"add","args":{"a":2}},"thoughtSignature":"c2lnbmVk"},
{"functionCall":{"id":"f-7","name":"add","args":{"a":3}}}]},
"finishReason":"STOP","index":0,"safetyRatings":[{"category":"C","probability":"NEGLIGIBLE"}]}],
"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":5,"thoughtsTokenCount":2,"cachedContentTokenCount":4,"totalTokenCount":18},
"modelVersion":"gemini-x-1","responseId":"r-1"}"#;

const EVENTS: &str = "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Let me \",\"thought\":true}]}}],\"usageMetadata\":{\"promptTokenCount\":11}}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"see.\",\"thought\":true},{\"text\":\"Grü\"}]}}]}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"ß dich\"},{\"functionCall\":{\"name\":\"add\",\"args\":{\"a\":2}},\"thoughtSignature\":\"c2lnbmVk\"}]},\"safetyRatings\":[{\"category\":\"C\",\"probability\":\"NEGLIGIBLE\"}]}],\"responseId\":\"r-1\",\"modelVersion\":\"gemini-x-1\"}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"functionCall\":{\"id\":\"f-7\",\"name\":\"add\",\"args\":{\"a\":3}}}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":11,\"candidatesTokenCount\":5,\"thoughtsTokenCount\":2,\"cachedContentTokenCount\":4}}\r\n\r\n";

fn check(response: &LlmResponse) {
    let message = &response.message;
    assert_eq!((&*message.id, &*response.stop_reason), ("m-4", "STOP"));
    assert_eq!(
        message.content,
        [
            ContentBlock::Reasoning("Let me see.".into()),
            ContentBlock::text("Grüß dich")
        ]
    );
    let calls: Vec<_> = message
        .calls()
        .iter()
        .map(|call| {
            (
                &*call.tool_call_id,
                &*call.tool_name,
                call.arguments.as_str(),
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("m-4-call-0", "add", r#"{"a":2}"#),
            ("f-7", "add", r#"{"a":3}"#)
        ]
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
    let said = message
        .metadata
        .as_ref()
        .unwrap()
        .get("google")
        .unwrap()
        .to_owned();
    for part in [
        r#""responseId":"r-1""#,
        r#""modelVersion":"gemini-x-1""#,
        r#""safetyRatings":[{"category":"C","probability":"NEGLIGIBLE"}]"#,
        r#""calls":[{},{"id":"f-7"}]"#,
    ] {
        assert!(said.as_str().contains(part), "{}", said.as_str());
    }
}

// spec: UPP-10
#[tokio::test]
async fn an_answer_is_the_same_whole_and_in_events_split_anywhere() {
    let (url, _server) = serve(answer("200 OK", WHOLE)).await;
    check(&model(&url).complete(request()).await.unwrap());
    for size in [1, 100, 10_000] {
        let (url, server) = serve(events(EVENTS, size)).await;
        let (types, response) = drain(&model(&url), request()).await;
        check(&response.unwrap());
        assert_eq!(
            types,
            [
                "message_start",
                "reasoning_delta",
                "reasoning_delta",
                "text_delta",
                "text_delta",
                "tool_call_delta",
                "tool_call_delta",
                "message_stop"
            ]
        );
        let asked = server.await.unwrap();
        assert!(
            asked[0].starts_with("POST /v1/models/gemini-x:streamGenerateContent?alt=sse HTTP/1.1")
        );
    }
}

// spec: UPP-2, UPP-10
#[tokio::test]
async fn the_body_is_the_request_and_the_parameters_as_they_stand() {
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(request()).await.unwrap();
    let asked = server.await.unwrap();
    let (head, body) = parts(&asked[0]);
    assert!(
        head.starts_with("POST /v1/models/gemini-x:generateContent HTTP/1.1"),
        "{head}"
    );
    assert!(
        head.to_lowercase()
            .contains(&format!("x-goog-api-key: {KEY}"))
    );
    assert_eq!(
        body,
        concat!(
            r#"{"contents":[{"role":"user","parts":[{"text":"hi \"there\""},{"inlineData":{"mimeType":"image/png","data":"AQID"}}]},"#,
            r#"{"role":"model","parts":[{"text":"well"},{"functionCall":{"name":"add","args":{"a":1}}}]},"#,
            r#"{"role":"user","parts":[{"functionResponse":{"name":"add","response":{"error":"three"}}}]}],"#,
            r#""systemInstruction":{"parts":[{"text":"be brief"}]},"#,
            r#""tools":[{"functionDeclarations":[{"name":"add","description":"Adds","parametersJsonSchema":{"type":"object"}}]}],"top":0.20}"#
        )
    );
}

// spec: UPP-10
#[tokio::test]
async fn calls_and_results_go_back_with_the_vendors_ids() {
    let (url, _server) = serve(answer("200 OK", WHOLE)).await;
    let said = model(&url).complete(request()).await.unwrap();
    let results = ["m-4-call-0", "f-7"]
        .map(|id| ToolResult::new(id.into(), object(r#"{"n":1}"#).unwrap().into()));
    let mut next = request();
    next.messages = vec![
        Message::Assistant(said.message),
        ToolResultMessage::new(stamp(5), results.into()).into(),
    ]
    .into();
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(next.clone()).await.unwrap();
    let asked = server.await.unwrap();
    let sent = concat!(
        r#"{"role":"model","parts":[{"text":"Let me see.","thought":true},{"text":"Grüß dich"},{"functionCall":{"name":"add","args":{"a":2}},"thoughtSignature":"c2lnbmVk"},"#,
        r#"{"functionCall":{"id":"f-7","name":"add","args":{"a":3}}}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"name":"add","response":{"n":1}}},"#,
        r#"{"functionResponse":{"id":"f-7","name":"add","response":{"n":1}}}]}]"#
    );
    assert!(asked[0].contains(sent), "{}", asked[0]);
    // A call has its id beside a changed text too.
    let Some(Message::Assistant(said)) = next.messages.get(0) else {
        panic!("{:?}", next.messages)
    };
    let mut edited = AssistantMessage::clone(said);
    edited.content.push("more".into());
    let results = next.messages.get(1).unwrap().clone();
    next.messages = vec![edited.into(), results].into();
    let (url, server) = serve(answer("200 OK", WHOLE)).await;
    model(&url).complete(next.clone()).await.unwrap();
    let asked = server.await.unwrap();
    let sent = r#"{"text":"more"},{"functionCall":{"name":"add","args":{"a":2}}},{"functionCall":{"id":"f-7","#;
    assert!(asked[0].contains(sent), "{}", asked[0]);
    // A result whose call is not there has no name to go out with.
    next.messages = next
        .messages
        .iter()
        .skip(1)
        .cloned()
        .collect::<Vec<_>>()
        .into();
    let error = model("http://127.0.0.1:9")
        .complete(next)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
}

// spec: UPP-2, UPP-10
#[tokio::test]
async fn structured_output_joins_the_users_generation_parameters() {
    let body = r#"{"candidates":[{"content":{"parts":[{"text":"{\"n\":"},{"text":"3}"}]},"finishReason":"STOP"}]}"#;
    let (url, server) = serve(answer("200 OK", body)).await;
    let mut request = structured();
    let params = |text: &str| Some(Arc::new(object(text).unwrap()));
    request.params = params(r#"{"generationConfig":{"temperature":0.20}}"#);
    let response = model(&url).complete(request.clone()).await.unwrap();
    assert_eq!(response.data.unwrap().as_str(), r#"{"n":3}"#);
    let asked = server.await.unwrap();
    let sent = r#""generationConfig":{"temperature":0.20,"responseMimeType":"application/json","responseJsonSchema":{"type":"object"}}}"#;
    assert!(asked[0].ends_with(sent), "{}", asked[0]);
    request.params = params(r#"{"generationConfig":{"responseMimeType":"text/plain"}}"#);
    let error = model("http://127.0.0.1:9")
        .complete(request)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
}

// spec: UPP-10
#[tokio::test]
async fn images_of_the_model_are_blocks() {
    let body = r#"{"candidates":[{"content":{"parts":[{"text":"here"},{"inlineData":{"mimeType":"image/png","data":"AQID"}}]},"finishReason":"STOP"}]}"#;
    let (url, _server) = serve(answer("200 OK", body)).await;
    let whole = model(&url).complete(structured_off()).await.unwrap();
    let (url, _server) = serve(events(&format!("data: {body}\n\n"), 9)).await;
    let (types, streamed) = drain(&model(&url), structured_off()).await;
    assert_eq!(streamed.unwrap(), whole);
    assert_eq!(
        types,
        ["message_start", "text_delta", "image_delta", "message_stop"]
    );
    assert!(matches!(
        whole.message.content[1],
        ContentBlock::Image { .. }
    ));
}

fn structured_off() -> upp::LlmRequest {
    let mut request = structured();
    request.structure = None;
    request
}

// spec: UPP-3
#[tokio::test]
async fn a_refusal_is_the_error_that_it_says() {
    use ErrorCode as E;
    let error = |code: u16, text: &str| {
        format!(r#"{{"error":{{"code":{code},"message":"{text}","status":"S"}}}}"#)
    };
    let said = |reason: &str| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"x"}}]}},"finishReason":"{reason}"}}]}}"#
        )
    };
    for (status, body, code) in [
        (
            "400 Bad Request",
            r#"{"error":{"message":"API key not valid","details":[{"reason":"API_KEY_INVALID"}]}}"#
                .to_owned(),
            E::AuthenticationFailed,
        ),
        (
            "400 Bad Request",
            error(
                400,
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            ),
            E::ContextLengthExceeded,
        ),
        ("401 Unauthorized", error(401, KEY), E::AuthenticationFailed),
        ("404 Not Found", error(404, "no model"), E::ModelNotFound),
        ("429 Too Many Requests", error(429, "slow"), E::RateLimited),
        (
            "500 Internal Server Error",
            "oops".to_owned(),
            E::ProviderError,
        ),
        ("200 OK", "[]".to_owned(), E::InvalidResponse),
        ("200 OK", "{}".to_owned(), E::InvalidResponse),
        (
            "200 OK",
            r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#.to_owned(),
            E::ContentFiltered,
        ),
        ("200 OK", said("SAFETY"), E::ContentFiltered),
        (
            "200 OK",
            said("MALFORMED_FUNCTION_CALL"),
            E::InvalidResponse,
        ),
    ] {
        let (url, _server) = serve(answer(status, &body)).await;
        let error = model(&url).complete(request()).await.unwrap_err();
        assert_eq!(
            (&error.code, &*error.provider),
            (&code, "google"),
            "{status} {body}"
        );
        assert!(!format!("{error} {error:?}").contains(KEY));
    }
    let begun = EVENTS.split_inclusive("\r\n\r\n").next().unwrap();
    let text = format!("{begun}data: {}\n\n", error(503, "overloaded"));
    let (url, _server) = serve(events(&text, 30)).await;
    let (types, failed) = drain(&model(&url), request()).await;
    assert_eq!(
        (types.len(), failed.unwrap_err().code),
        (2, E::ProviderError)
    );
    let (url, _server) = serve(events(begun, 30)).await;
    let (_, cut) = drain(&model(&url), request()).await;
    assert_eq!(cut.unwrap_err().code, E::InvalidResponse);
}
