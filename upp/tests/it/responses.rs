//! OpenAI's responses endpoint, against a server on loopback that answers in the vendor's shape.

use std::sync::Arc;

use ubos_conformance::uap::check_model;
use upp::transport::{OpenAiResponsesModel, ProviderConfig};
use upp::{
    ContentBlock, ErrorCode, List, LlmModel, LlmRequest, LlmResponse, Message, Source, Stop,
    UppError, UserMessage, object,
};

use crate::stamp;
use crate::vendor::{KEY, answer, drain, events, parts, request, serve, serve_all, structured};

fn model(url: &str) -> OpenAiResponsesModel {
    let config = ProviderConfig::default()
        .with_base_url(url)
        .with_key(KEY.to_owned());
    OpenAiResponsesModel::new("gpt-x", config).unwrap()
}

const REASONING: &str = r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me see."}],"encrypted_content":"c2Vj"}"#;
const SEARCH: &str =
    r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"query":"x"}}"#;
const SAID: &str = r#"{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"Grüß dich","annotations":[{"type":"url_citation","url":"u"}],"logprobs":[]}]}"#;
const CALL: &str = r#"{"id":"fc_1","type":"function_call","call_id":"call_1","name":"add","arguments":"{\"a\":2}","status":"completed"}"#;

fn items() -> String {
    [REASONING, SEARCH, SAID, CALL].join(",")
}

fn body(status: &str, output: &str, more: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","model":"gpt-x-1","status":"{status}","output":[{output}],"usage":{{"input_tokens":11,"input_tokens_details":{{"cached_tokens":4,"cache_write_tokens":1}},"output_tokens":7,"output_tokens_details":{{"reasoning_tokens":3}},"total_tokens":18}}{more}}}"#
    )
}

fn event(text: &str) -> String {
    let kind: serde_json::Value = serde_json::from_str(text).unwrap();
    format!(
        "event: {}\ndata: {text}\n\n",
        kind["type"].as_str().unwrap()
    )
}

/// The same response, as the vendor streams it.
fn stream() -> String {
    let done = |n: u32, item: &str| {
        format!(r#"{{"type":"response.output_item.done","output_index":{n},"item":{item}}}"#)
    };
    let completed = body("completed", &items(), "");
    [
        r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}"#.to_owned(),
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#.into(),
        r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#.into(),
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Let me "}"#.into(),
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"see."}"#.into(),
        r#"{"type":"response.reasoning_summary_text.done","output_index":0,"summary_index":0,"text":"Let me see."}"#.into(),
        done(0, REASONING),
        // Without any delta.
        done(1, SEARCH),
        r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"message","role":"assistant","content":[]}}"#.into(),
        r#"{"type":"response.output_text.delta","output_index":2,"content_index":0,"delta":"Grüß "}"#.into(),
        r#"{"type":"response.brand_new","output_index":2,"x":1}"#.into(),
        r#"{"type":"response.output_text.delta","output_index":2,"content_index":0,"delta":"dich"}"#.into(),
        done(2, SAID),
        r#"{"type":"response.output_item.added","output_index":3,"item":{"type":"function_call","call_id":"call_1","name":"add","arguments":""}}"#.into(),
        r#"{"type":"response.function_call_arguments.delta","output_index":3,"delta":"{\"a\":"}"#.into(),
        r#"{"type":"response.function_call_arguments.delta","output_index":3,"delta":"2}"}"#.into(),
        done(3, CALL),
        format!(r#"{{"type":"response.completed","response":{completed}}}"#),
    ]
    .map(|text| event(&text))
    .concat()
}

fn check(response: &LlmResponse) {
    let message = &response.message;
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
        ("call_1", "add", r#"{"a":2}"#)
    );
    assert_eq!(
        (response.stop(), message.calls().len()),
        (Stop::ToolCalls, 1)
    );
    let usage = &response.usage;
    assert_eq!(
        (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.reasoning_tokens()
        ),
        (11, 4, 1, 7, Some(3))
    );
    let kept = message.metadata.as_ref().unwrap().get("openai").unwrap();
    let kept: serde_json::Value = kept.deserialize().unwrap();
    assert_eq!(
        (&kept["id"], &kept["model"]),
        (&"resp_1".into(), &"gpt-x-1".into())
    );
}

async fn whole(text: &str) -> Result<LlmResponse, UppError> {
    let (url, _server) = serve(answer("200 OK", text)).await;
    model(&url).complete(request()).await
}

async fn streamed(text: &str) -> Result<LlmResponse, UppError> {
    let (url, _server) = serve(events(text, 10_000)).await;
    drain(&model(&url), request()).await.1
}

/// Head and body of what the model is asked.
async fn sent(request: LlmRequest) -> (String, String) {
    let (url, server) = serve(answer("200 OK", &body("completed", "", ""))).await;
    let _ = model(&url).complete(request).await;
    let asked = server.await.unwrap().remove(0);
    let (head, body) = parts(&asked);
    (head.to_owned(), body.to_owned())
}

// spec: UPP-2
#[tokio::test]
async fn a_request_says_everything() {
    let mut asked = request();
    let document = ContentBlock::document(Source::Url("https://x/y.pdf".into()), "application/pdf");
    let more = UserMessage::new(stamp(5), vec!["and".into(), document]);
    asked.messages.push(more.into());
    let (head, body) = sent(asked).await;
    assert!(head.starts_with("POST /v1/responses HTTP/1.1"), "{head}");
    assert!(
        head.contains(&format!("authorization: Bearer {KEY}")),
        "{head}"
    );
    let wanted = concat!(
        r#"{"model":"gpt-x","instructions":"be brief","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi \"there\""},"#,
        r#"{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,AQID"}]},{"type":"message","role":"assistant","content":"well"},"#,
        r#"{"type":"function_call","call_id":"c0","name":"add","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c0","output":"three"},"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"and"},{"type":"input_file","file_url":"https://x/y.pdf"}]}],"#,
        r#""tools":[{"type":"function","name":"add","description":"Adds","parameters":{"type":"object"},"strict":false}],"#,
        r#""top":0.20}"#
    );
    assert_eq!(body, wanted);

    // What the user sets goes before, and stands beside the structure.
    let mut asked = structured();
    let params = r#"{"store":true,"text":{"verbosity":"low"}}"#;
    asked.params = Some(Arc::new(object(params).unwrap()));
    let (_, body) = sent(asked).await;
    let text = r#""text":{"verbosity":"low","format":{"type":"json_schema","name":"answer","schema":{"type":"object"}}}"#;
    assert!(
        body.contains(text) && body.contains(r#""store":true"#),
        "{body}"
    );
    for taken in [
        r#"{"input":[]}"#,
        r#"{"text":{"format":{}}}"#,
        r#"{"text":7}"#,
    ] {
        let mut asked = structured();
        asked.params = Some(Arc::new(object(taken).unwrap()));
        let error = model("http://127.0.0.1:9").complete(asked).await;
        assert_eq!(
            error.unwrap_err().code,
            ErrorCode::InvalidRequest,
            "{taken}"
        );
    }
}

// spec: UPP-7
#[tokio::test]
async fn a_stream_adds_up_to_the_whole_response() {
    let text = body("completed", &items(), "");
    check(&whole(&text).await.unwrap());
    for size in [7, 10_000] {
        let (url, _server) = serve(events(&stream(), size)).await;
        let (types, response) = drain(&model(&url), request()).await;
        check(&response.unwrap());
        assert_eq!(types.first().unwrap(), "message_start");
        assert_eq!(types.last().unwrap(), "message_stop");
        let count = |kind: &str| types.iter().filter(|seen| *seen == kind).count();
        assert_eq!((count("reasoning_delta"), count("text_delta")), (2, 2));
    }
    // Servers that send no deltas, or no items before the end.
    let end = event(&format!(
        r#"{{"type":"response.completed","response":{text}}}"#
    ));
    check(&streamed(&end).await.unwrap());
    // Models that show their thoughts and not a summary of them.
    let done = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}}"#;
    let delta = r#"{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"Hm."}"#;
    let completed = r#"{"type":"response.completed","response":{"status":"completed"}}"#;
    let text = [delta, done, completed].map(event).concat();
    let thought = streamed(&text).await.unwrap().message;
    assert_eq!(thought.content, [ContentBlock::Reasoning("Hm.".into())]);
    let structure = body("completed", &SAID.replace("Grüß dich", r#"{\"n\":1}"#), "");
    let (url, _server) = serve(answer("200 OK", &structure)).await;
    let response = model(&url).complete(structured()).await.unwrap();
    assert_eq!(response.data.unwrap().as_str(), r#"{"n":1}"#);
    assert_eq!(response.stop_reason.as_ref(), "completed");
}

// spec: UPP-7
#[tokio::test]
async fn a_message_starts_with_whatever_comes_first() {
    // Servers that announce no response, and name events that this endpoint does not have.
    let whole_stream = stream();
    let (_, rest) = whole_stream.split_once("\n\n").unwrap();
    assert!(rest.starts_with("event: response.output_item.added"));
    let text = format!("event: ping\ndata: not JSON\n\n{rest}");
    let (url, _server) = serve(events(&text, 10_000)).await;
    let (types, response) = drain(&model(&url), request()).await;
    check(&response.unwrap());
    assert_eq!(types.first().unwrap(), "message_start");
    let starts = types.iter().filter(|kind| *kind == "message_start");
    assert_eq!(starts.count(), 1, "{types:?}");
    let (announced, _) = whole_stream.split_at(whole_stream.len() - rest.len());
    let (url, _server) = serve(events(announced, 10_000)).await;
    let (types, cut) = drain(&model(&url), request()).await;
    assert!(types == ["message_start"] && cut.is_err(), "{types:?}");
    // What names itself as this endpoint's has to be read.
    for name in ["response.brand_new", "error"] {
        let text = format!("event: {name}\ndata: not JSON\n\n{rest}");
        assert!(streamed(&text).await.is_err(), "{name}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn items_go_back_as_they_came_unless_the_message_was_changed() {
    for message in [
        whole(&body("completed", &items(), ""))
            .await
            .unwrap()
            .message,
        streamed(&stream()).await.unwrap().message,
    ] {
        let mut next = request();
        let question = Message::user(stamp(1), "?");
        next.messages = List::from(vec![
            question.clone(),
            Message::Assistant(Arc::clone(&message)),
        ]);
        let (_, body) = sent(next.clone()).await;
        assert!(body.contains(&items()), "{body}");
        let mut edited = (*message).clone();
        edited.tool_calls.as_mut().unwrap()[0].arguments = object(r#"{"a":3}"#).unwrap();
        next.messages = List::from(vec![question, edited.into()]);
        let (_, body) = sent(next).await;
        assert!(!body.contains("c2Vj") && !body.contains("ws_1"), "{body}");
        assert!(
            body.contains(r#""content":"Grüß dich""#) && body.contains(r#"{\"a\":3}"#),
            "{body}"
        );
    }
}

// spec: UPP-3, UPP-10
#[tokio::test]
async fn what_is_not_whole_is_told_from_what_is() {
    for (reason, stop) in [
        ("max_output_tokens", Stop::Length),
        ("steered", Stop::Other("steered".into())),
    ] {
        let more = format!(r#","incomplete_details":{{"reason":"{reason}"}}"#);
        let response = whole(&body("incomplete", SAID, &more)).await.unwrap();
        assert_eq!(response.stop(), stop);
    }
    let filtered = r#","incomplete_details":{"reason":"content_filter"}"#;
    let slow = r#","error":{"code":"rate_limit_exceeded","message":"slow down"}"#;
    let cases = [
        (
            body("incomplete", SAID, filtered),
            ErrorCode::ContentFiltered,
        ),
        (body("failed", "", slow), ErrorCode::RateLimited),
        (
            body(
                "failed",
                "",
                r#","error":{"code":"invalid_prompt","message":"no"}"#,
            ),
            ErrorCode::InvalidRequest,
        ),
        (body("failed", "", ""), ErrorCode::ProviderError),
        (body("queued", "", ""), ErrorCode::ProviderError),
        (
            body("completed", r#"{"type":"message","content":7}"#, ""),
            ErrorCode::InvalidResponse,
        ),
        (
            body("completed", r#"{"type":"function_call","name":"add"}"#, ""),
            ErrorCode::InvalidResponse,
        ),
        ("[]".to_owned(), ErrorCode::InvalidResponse),
    ];
    for (text, code) in cases {
        assert_eq!(whole(&text).await.unwrap_err().code, code, "{text}");
        let failed = text.contains("failed");
        let kind = if failed { "failed" } else { "completed" };
        let event = event(&format!(
            r#"{{"type":"response.{kind}","response":{text}}}"#
        ));
        assert_eq!(streamed(&event).await.unwrap_err().code, code, "{text}");
    }
    let whole_stream = stream();
    let cut = whole_stream
        .split("event: response.completed")
        .next()
        .unwrap();
    let error = event(
        r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}"#,
    );
    for (text, code) in [
        (cut.to_owned(), ErrorCode::InvalidResponse),
        (format!("{cut}{error}"), ErrorCode::RateLimited),
        (
            format!("{cut}event: response.completed\ndata: {{\"type\":\"resp\n\n"),
            ErrorCode::InvalidResponse,
        ),
        (
            event(
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{"}"#,
            ),
            ErrorCode::InvalidResponse,
        ),
        (
            event(
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":7}"#,
            ),
            ErrorCode::InvalidResponse,
        ),
        (
            format!(
                "{cut}{}",
                event(&format!(
                    r#"{{"type":"response.output_item.done","output_index":3,"item":{CALL}}}"#
                ))
            ),
            ErrorCode::InvalidResponse,
        ),
    ] {
        assert_eq!(streamed(&text).await.unwrap_err().code, code, "{text}");
    }
    let (url, _server) = serve(answer(
        "429 Too Many Requests",
        r#"{"error":{"message":"slow down"}}"#,
    ))
    .await;
    let error = model(&url).complete(request()).await.unwrap_err();
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode::RateLimited, "slow down")
    );
}

// spec: UPP-7
#[tokio::test]
async fn it_does_what_agents_expect_of_a_model() {
    let whole = answer("200 OK", &body("completed", &items(), ""));
    let streamed = events(&stream(), 64);
    let answers = [&whole, &streamed, &streamed, &whole, &whole, &whole];
    let answers = answers.into_iter().cloned().collect();
    let (url, _server) = serve_all(answers).await;
    check_model(&model(&url), request()).await.unwrap();
    let failed = answer(
        "429 Too Many Requests",
        r#"{"error":{"message":"slow down"}}"#,
    );
    let (url, _server) = serve_all(vec![failed; 4]).await;
    check_model(&model(&url), request()).await.unwrap();
}
