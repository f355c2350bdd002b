//! What vendors and compatible servers send beside the ideal: it is read as it is meant, or it is an error.

use std::sync::Arc;

use ubos_common::json::{Limits, to_string};
use ubos_common::violation::{PointerText, Profile};
use upp::transport::{AnthropicModel, GoogleModel, OpenAiModel, ProviderConfig};
use upp::{ContentBlock, ErrorCode, List, LlmResponse, ModelReference, UppError, object};

use crate::vendor::{answer, drain, events, request, serve};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Vendor {
    OpenAi,
    Anthropic,
    Google,
}
use Vendor::{Anthropic, Google, OpenAi};

pub(crate) fn model(vendor: Vendor, url: &str) -> ModelReference {
    let params = object(r#"{"max_tokens":9}"#).unwrap();
    let config = ProviderConfig::default()
        .with_base_url(url)
        .with_params(params);
    match vendor {
        OpenAi => Arc::new(OpenAiModel::new("m", config).unwrap()),
        Anthropic => Arc::new(AnthropicModel::new("m", config).unwrap()),
        Google => Arc::new(GoogleModel::new("m", config).unwrap()),
    }
}

/// A response that was streamed in these events.
pub(crate) async fn streamed(vendor: Vendor, chunks: &[&str]) -> Result<LlmResponse, UppError> {
    let text: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    named(vendor, &text).await
}

async fn named(vendor: Vendor, text: &str) -> Result<LlmResponse, UppError> {
    let (url, _server) = serve(events(text, 10_000)).await;
    drain(model(vendor, &url).as_ref(), request()).await.1
}

pub(crate) async fn whole(vendor: Vendor, body: &str) -> Result<LlmResponse, UppError> {
    let (url, _server) = serve(answer("200 OK", body)).await;
    model(vendor, &url).complete(request()).await
}

fn calls(response: &LlmResponse) -> Vec<(&str, &str, &str)> {
    let calls = response.message.calls().iter();
    calls
        .map(|call| {
            (
                &*call.tool_call_id,
                &*call.tool_name,
                call.arguments.as_str(),
            )
        })
        .collect()
}

const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

// spec: UPP-7, UPP-10
#[tokio::test]
async fn a_chunk_that_cannot_be_read_is_an_error_with_its_place() {
    let hel = r#"{"choices":[{"delta":{"content":"Hel"}}]}"#;
    for (bad, place) in [
        (
            r#"{"choices":[{"delta":{"content":"lo"#,
            "/choices/0/delta/content",
        ),
        (
            r#"{"choices":[{"delta":{"content":7}}]}"#,
            "/choices/0/delta/content",
        ),
        (
            r#"{"choices":[{"delta":{"tool_calls":[{"function":7}]}}]}"#,
            "/choices/0/delta/tool_calls/0/function",
        ),
        (r#"{"choices":7}"#, "/choices"),
        ("oops", ""),
    ] {
        let error = streamed(OpenAi, &[hel, bad, STOP, "[DONE]"])
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidResponse, "{bad}");
        assert!(
            error
                .message
                .ends_with(&format!("cannot be read at {}", PointerText(place))),
            "{error}"
        );
    }
    let start = r#"{"type":"message_start","message":{"content":[]}}"#;
    for (bad, said) in [
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":7}}"#,
            r#"a content block cannot be read at "/text""#,
        ),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text"}}"#,
            "a text block has no text",
        ),
        (
            r#"{"type":"content_block_start","index":0}"#,
            r#"the event content_block_start cannot be read at the top"#,
        ),
        (
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lost"}}"#,
            "a delta does not fit its content block",
        ),
        (
            r#"{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"lost"}}"#,
            r#"the event content_block_delta cannot be read at "/index""#,
        ),
        (
            r#"{"type":"message_delta","delta":7}"#,
            r#"the event message_delta cannot be read at "/delta""#,
        ),
        (
            r#"{"type":"content_block_del"#,
            r#"an event cannot be read at "/type""#,
        ),
    ] {
        let error = streamed(
            Anthropic,
            &[
                start,
                bad,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"{"type":"message_stop"}"#,
            ],
        )
        .await
        .unwrap_err();
        let seen = (error.code, &*error.message);
        assert_eq!(seen, (ErrorCode::InvalidResponse, said), "{bad}");
    }
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    for (bad, said) in [
        (
            r#"{"candidates":[{"content":{"parts":[{"text":7}]}}]}"#,
            r#"a part of the content cannot be read at "/text""#,
        ),
        (
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"args":{}}}]}}]}"#,
            r#"a part of the content cannot be read at "/functionCall""#,
        ),
        (
            r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"?"}}]}}]}"#,
            r#"a part of the content cannot be read at "/inlineData/data""#,
        ),
        (
            r#"{"candidates":[{"content":{"par"#,
            r#"cannot be read at "/candidates/0/content"#,
        ),
    ] {
        let error = streamed(Google, &[bad, stop]).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidResponse, "{bad}");
        assert!(error.message.contains(said), "{error}");
    }
}

// spec: UPP-7, UPP-10
#[tokio::test]
async fn what_no_response_needs_is_passed_over_alone() {
    let odd = r#"{"id":7,"model":{"a":[]},"usage":{"prompt_tokens":1.0,"completion_tokens":"x","prompt_tokens_details":7},"x":[[[]]],"choices":[{"index":0,"delta":{"content":"ok","role":7,"y":{}}}]}"#;
    let text = format!(
        "event: ping\ndata: not JSON\n\ndata: \n\nevent: brand_new\ndata: {{\"a\":1}}\n\ndata: {odd}\n\ndata: {STOP}\n\ndata: [DONE]\n\n"
    );
    let response = named(OpenAi, &text).await.unwrap();
    assert_eq!(response.message.text(), "ok");
    assert_eq!(
        (response.usage.input_tokens, response.usage.output_tokens),
        (1, 0)
    );
    let body = format!(
        "event: brand_new\ndata: not JSON\n\n{}",
        [
            r#"{"type":"message_start","message":{"id":7,"content":[],"usage":7}}"#,
            r#"{"type":"brand_new","x":1}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"o"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"brand_new_delta"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"k"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":"x"}}"#,
            r#"{"type":"message_stop"}"#,
        ]
        .map(|chunk| format!("data: {chunk}\n\n"))
        .concat()
    );
    let response = named(Anthropic, &body).await.unwrap();
    assert_eq!(response.message.text(), "ok");
    let body = r#"{"responseId":7,"usageMetadata":[],"candidates":[{"content":{"parts":[{"text":"ok"},{"brandNew":1}]},"finishReason":"STOP"}]}"#;
    assert_eq!(whole(Google, body).await.unwrap().message.text(), "ok");
}

// spec: UPP-7, UPP-10
#[tokio::test]
async fn a_pair_of_surrogates_may_be_split_over_two_chunks() {
    let text = |text: &str| format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
    for (first, second, wanted) in [
        (r"do NOT \ud83d", r"\ude00 delete it", "do NOT 😀 delete it"),
        (r"do NOT \ud83d", "delete it", "do NOT \u{fffd}delete it"),
        ("do NOT delete it", r"\ud83d", "do NOT delete it\u{fffd}"),
    ] {
        let response = streamed(OpenAi, &[&text(first), &text(second), STOP]).await;
        assert_eq!(response.unwrap().message.text(), wanted);
    }
    let part = |text: &str| {
        format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}}}}]}}"#)
    };
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    let response = streamed(Google, &[&part(r"a\ud83d"), &part(r"\ude00b"), stop]).await;
    assert_eq!(response.unwrap().message.text(), "a😀b");
}

// spec: UPP-10
#[tokio::test]
async fn content_and_arguments_come_in_every_shape_that_servers_write() {
    let body = r#"{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"},{"type":"text","text":"b"}],
        "tool_calls":[{"id":"c1","function":{"name":"f","arguments":{"a":[1]}}},{"id":"","function":{"name":"g","arguments":null}}]},"finish_reason":"tool_calls"}]}"#;
    let response = whole(OpenAi, body).await.unwrap();
    assert_eq!(
        response.message.content,
        [
            ContentBlock::Reasoning("hm".into()),
            ContentBlock::text("ab")
        ]
    );
    assert_eq!(
        calls(&response),
        [("c1", "f", r#"{"a":[1]}"#), ("m-4-call-1", "g", "{}")]
    );

    // One level is the object itself, and one more there may not be.
    let nested = |levels| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let deep = nested(126);
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(5 << 20));
    for arguments in [&deep, &long] {
        let body = format!(
            r#"{{"choices":[{{"message":{{"tool_calls":[{{"id":"c","function":{{"name":"f","arguments":{}}}}}]}},"finish_reason":"tool_calls"}}]}}"#,
            to_string(arguments)
        );
        let response = whole(OpenAi, &body).await.unwrap();
        assert_eq!(response.message.calls()[0].arguments.as_str(), arguments);
    }
    let body = format!(
        r#"{{"choices":[{{"message":{{"tool_calls":[{{"id":"c","function":{{"name":"f","arguments":{}}}}}]}},"finish_reason":"tool_calls"}}]}}"#,
        to_string(&nested(127))
    );
    let response = whole(OpenAi, &body).await.unwrap();
    let kept = response.message.calls()[0].malformed_arguments();
    assert_eq!(kept, Some(nested(127)));
}

// spec: UPP-10
#[tokio::test]
async fn alternatives_are_never_mixed() {
    let chunk = |index: u32, text: &str| {
        format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"{text}"}}}}]}}"#)
    };
    let stop = |index: u32| {
        format!(r#"{{"choices":[{{"index":{index},"delta":{{}},"finish_reason":"stop"}}]}}"#)
    };
    let chunks = [
        chunk(1, "B"),
        chunk(0, "a"),
        chunk(1, "b"),
        chunk(0, "A"),
        stop(1),
        stop(0),
    ];
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let response = streamed(OpenAi, &chunks).await.unwrap();
    let body = r#"{"choices":[{"message":{"content":"aA"},"finish_reason":"stop"},{"message":{"content":"Bb"},"finish_reason":"stop"}]}"#;
    let at_once = whole(OpenAi, body).await.unwrap();
    let parts = |index: u32, text: &str| {
        format!(
            r#"{{"index":{index},"content":{{"parts":[{{"text":"{text}"}}]}},"finishReason":"STOP"}}"#
        )
    };
    let body = format!(
        r#"{{"candidates":[{},{}]}}"#,
        parts(0, "aA"),
        parts(1, "Bb")
    );
    let google = whole(Google, &body).await.unwrap();
    for (response, provider, member) in [
        (response, "openai", "choices"),
        (at_once, "openai", "choices"),
        (google, "google", "candidates"),
    ] {
        assert_eq!(response.message.text(), "aA");
        let metadata = response
            .message
            .metadata
            .as_ref()
            .unwrap()
            .get(provider)
            .unwrap();
        let kept: serde_json::Value = metadata.deserialize().unwrap();
        assert_eq!(kept[member][0]["index"], 1);
        assert_eq!(kept[member][0]["message"]["content"][0]["text"], "Bb");
        assert_eq!(kept[member].as_array().unwrap().len(), 1);
    }
}

// spec: UPP-10
#[tokio::test]
async fn an_alternative_may_be_without_an_end_and_there_are_at_most_128() {
    let choices = |count: usize| {
        let all: Vec<String> = (1..count)
            .map(|index| {
                format!(r#"{{"index":{index},"message":{{"content":"b","annotations":["c2ln"]}}}}"#)
            })
            .collect();
        format!(
            r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}},{}]}}"#,
            all.join(",")
        )
    };
    let candidates = |count: usize| {
        let all: Vec<String> = (1..count)
            .map(|index| format!(r#"{{"index":{index},"content":{{"parts":[{{"text":"b","thoughtSignature":"c2ln"}}]}}}}"#))
            .collect();
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"a"}}]}},"finishReason":"STOP"}},{}]}}"#,
            all.join(",")
        )
    };
    for count in [2, 128, 129] {
        let answers = [
            (whole(OpenAi, &choices(count)).await, "openai", "choices"),
            (
                whole(Google, &candidates(count)).await,
                "google",
                "candidates",
            ),
        ];
        for (answer, provider, member) in answers {
            if count > 128 {
                assert_eq!(answer.unwrap_err().code, ErrorCode::InvalidResponse);
                continue;
            }
            let message = answer.unwrap().message;
            assert_eq!(message.text(), "a");
            let metadata = message.metadata.as_ref().and_then(|all| all.get(provider));
            let kept: serde_json::Value = metadata.unwrap().deserialize().unwrap();
            let kept = kept[member].as_array().unwrap();
            assert_eq!(kept.len(), count - 1);
            for one in kept {
                assert_eq!(one["message"]["content"][0]["text"], "b", "{one}");
                assert!(
                    one["message"]["metadata"].to_string().contains("c2ln"),
                    "{one}"
                );
            }
        }
    }
}

// spec: UPP-10
#[tokio::test]
async fn a_new_id_begins_a_new_call_whatever_its_index() {
    let delta = |index: &str, id: &str, name: &str, arguments: &str| {
        let arguments = to_string(arguments);
        format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{{index}{id}"function":{{{name}"arguments":{arguments}}}}}]}}}}]}}"#
        )
    };
    let (i0, i1, a, b) = (
        r#""index":0,"#,
        r#""index":1,"#,
        r#""id":"a","#,
        r#""id":"b","#,
    );
    let (f, g, none) = (r#""name":"f","#, r#""name":"g","#, "");
    for (first, second) in [
        // As OpenAI does it; with index 0 for all; without an index; with an id in every delta.
        (
            [(i0, a, f, "{\"n\":"), (i0, none, none, "1}")],
            [(i1, b, g, "{"), (i1, none, none, "}")],
        ),
        (
            [(i0, a, f, "{\"n\":"), (i0, none, none, "1}")],
            [(i0, b, g, "{"), (i0, none, none, "}")],
        ),
        (
            [(none, a, f, "{\"n\":"), (none, none, none, "1}")],
            [(none, b, g, "{"), (none, none, none, "}")],
        ),
        // The id after the name.
        (
            [(i0, none, f, "{\"n\":"), (i0, a, none, "1}")],
            [(i1, none, g, "{"), (i1, b, none, "}")],
        ),
        (
            [(i0, a, f, "{\"n\":"), (i0, a, none, "1}")],
            [(i1, b, g, "{"), (i1, b, none, "}")],
        ),
    ] {
        let chunks: Vec<String> = first
            .iter()
            .chain(&second)
            .map(|(index, id, name, arguments)| delta(index, id, name, arguments))
            .chain([STOP.to_owned()])
            .collect();
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let response = streamed(OpenAi, &chunks).await.unwrap();
        assert_eq!(
            calls(&response),
            [("a", "f", r#"{"n":1}"#), ("b", "g", "{}")],
            "{chunks:?}"
        );
    }
}

// spec: UPP-3, UPP-10
#[tokio::test]
async fn a_failure_within_a_response_is_an_error() {
    let said = r#"{"choices":[{"message":{"content":"half"},"finish_reason":"error"}]}"#;
    assert_eq!(
        whole(OpenAi, said).await.unwrap_err().code,
        ErrorCode::ProviderError
    );
    for word in [
        "UNEXPECTED_TOOL_CALL",
        "MALFORMED_RESPONSE",
        "MALFORMED_FUNCTION_CALL",
    ] {
        let body = format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"half"}}]}},"finishReason":"{word}"}}]}}"#
        );
        let error = whole(Google, &body).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidResponse);
        assert!(error.message.contains(word));
    }
    for (vendor, body, code) in [
        (
            OpenAi,
            r#"{"error":{"message":"slow down","code":429}}"#,
            ErrorCode::RateLimited,
        ),
        (
            OpenAi,
            r#"{"choices":[{"error":{"message":"slow down","code":429}}]}"#,
            ErrorCode::RateLimited,
        ),
        (
            Anthropic,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
            ErrorCode::RateLimited,
        ),
        (
            Anthropic,
            r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
            ErrorCode::RateLimited,
        ),
        (
            Google,
            r#"{"error":{"message":"slow down","code":429,"details":[{"@type":"x"},{"retryDelay":"1.5s"}]}}"#,
            ErrorCode::RateLimited,
        ),
    ] {
        for error in [whole(vendor, body).await, streamed(vendor, &[body]).await] {
            let error = error.unwrap_err();
            assert_eq!(
                (&error.code, &*error.message),
                (&code, "slow down"),
                "{vendor:?}"
            );
            if let Google = vendor {
                assert_eq!(error.retry_after.unwrap().as_millis(), 1_500);
            }
        }
    }
    // Null is no error.
    let body = r#"{"error":null,"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}"#;
    assert_eq!(whole(OpenAi, body).await.unwrap().message.text(), "ok");
}

// spec: UPP-7, UPP-10
#[tokio::test]
async fn a_stream_of_anthropic_may_begin_with_blocks() {
    let text = [
        r#"{"type":"message_start","message":{"content":[{"type":"text","text":"a"}]}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"b"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ]
    .map(|chunk| format!("data: {chunk}\n\n"))
    .concat();
    let (url, _server) = serve(events(&text, 10_000)).await;
    let (types, response) = drain(model(Anthropic, &url).as_ref(), request()).await;
    assert_eq!(response.unwrap().message.text(), "a\n\nb");
    let block = ["content_block_start", "text_delta", "content_block_stop"];
    let mut wanted = vec!["message_start"];
    wanted.extend(block.iter().chain(&block));
    wanted.push("message_stop");
    assert_eq!(types, wanted);
}

// spec: UPP-10
#[tokio::test]
async fn token_counts_mean_the_same_for_every_vendor() {
    let openai = |usage: &str| {
        format!(
            r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
        )
    };
    // Input with cached, cached, cache written, output with reasoning, reasoning. The numbers are in the vendors' own words.
    for (vendor, body, wanted) in [
        (
            OpenAi,
            openai(
                r#"{"prompt_tokens":6300,"completion_tokens":700,"total_tokens":7000,"prompt_tokens_details":{"cached_tokens":5000,"cache_write_tokens":300},"completion_tokens_details":{"reasoning_tokens":640}}"#,
            ),
            (6_300, 5_000, 300, 700, Some(640)),
        ),
        (
            OpenAi,
            openai(
                r#"{"prompt_tokens":6000,"completion_tokens":7,"prompt_cache_hit_tokens":5000,"prompt_cache_miss_tokens":1000}"#,
            ),
            (6_000, 5_000, 0, 7, None),
        ),
        (
            Anthropic,
            r#"{"content":[],"stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":700,"cache_read_input_tokens":5000,"cache_creation_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":300,"ephemeral_1h_input_tokens":0},"output_tokens_details":{"thinking_tokens":640}}}"#.to_owned(),
            (6_300, 5_000, 300, 700, Some(640)),
        ),
        (
            Google,
            r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":6295,"toolUsePromptTokenCount":5,"cachedContentTokenCount":5000,"candidatesTokenCount":60,"thoughtsTokenCount":640,"totalTokenCount":7000}}"#.to_owned(),
            (6_300, 5_000, 0, 700, Some(640)),
        ),
    ] {
        let usage = whole(vendor, &body).await.unwrap().usage;
        let seen = (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.reasoning_tokens(),
        );
        assert_eq!(seen, wanted, "{body}");
        let (read, _) = ubos_common::json::decode::<upp::CycleUsage>(
            to_string(&usage).as_bytes(),
            &Limits::default(),
            Profile::Strict,
        )
        .unwrap();
        assert_eq!(read, usage);
    }
    // The counts of a stream come in two events; the later ones go before.
    let usage = streamed(
        Anthropic,
        &[
            r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":1000,"cache_read_input_tokens":5000,"output_tokens":1}}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    )
    .await
    .unwrap()
    .usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (6_000, 7));
}

/// The turn of a call with a tool, and what the server was asked.
#[cfg(feature = "driver")]
async fn turn(vendor: Vendor, bodies: &[&str]) -> (Result<upp::Turn, UppError>, Vec<String>) {
    use ubos_common::time::{Mono, Now, Timestamp};

    let answers = bodies.iter().map(|body| answer("200 OK", body)).collect();
    let (url, server) = crate::vendor::serve_all(answers).await;
    let options = upp::LlmOptions::new(model(vendor, &url)).with_tools([crate::vendor::add()]);
    let ids = ubos_common::id::IdSource::seeded(1);
    let call = upp::LlmCall::new(ids, || Now::new(Mono::ZERO, Timestamp::EPOCH));
    let instance = upp::llm(options).unwrap();
    let turn = instance.generate(&List::default(), ["?"], call).await;
    (turn, server.await.unwrap())
}

// spec: UPP-4, UPP-10
#[cfg(feature = "driver")]
#[tokio::test]
async fn a_malformed_call_gets_an_error_result() {
    for arguments in [r#"{"a":1,}"#, r#"{"a":"#, "[1]", r#"{"a":1,"a":2}"#] {
        let first = format!(
            r#"{{"choices":[{{"message":{{"tool_calls":[{{"id":"c","function":{{"name":"add","arguments":{}}}}}]}},"finish_reason":"tool_calls"}}]}}"#,
            to_string(arguments)
        );
        let last = r#"{"choices":[{"message":{"content":"sorry"},"finish_reason":"stop"}]}"#;
        let (turn, asked) = turn(OpenAi, &[&first, last]).await;
        let turn = turn.unwrap();
        assert_eq!(turn.response.text(), "sorry");
        let execution = turn.tool_executions.get(0).unwrap();
        assert!(execution.is_error && execution.result.as_str().contains("not a JSON object"));
        let sent = format!(r#""arguments":{}"#, to_string(arguments));
        assert!(asked[1].contains(&sent), "{}", asked[1]);
    }
}

// spec: UPP-10
#[cfg(feature = "driver")]
#[tokio::test]
async fn a_turn_says_why_its_response_ended() {
    use upp::Stop;

    let openai = |word: &str| {
        format!(r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"{word}"}}]}}"#)
    };
    let anthropic = |word: &str| format!(r#"{{"content":[],"stop_reason":"{word}"}}"#);
    let google = |word: &str| format!(r#"{{"candidates":[{{"finishReason":"{word}"}}]}}"#);
    for (vendor, body, stop) in [
        (OpenAi, openai("stop"), Stop::End),
        (OpenAi, openai("length"), Stop::Length),
        (OpenAi, openai("odd"), Stop::Other("odd".into())),
        (Anthropic, anthropic("end_turn"), Stop::End),
        (Anthropic, anthropic("max_tokens"), Stop::Length),
        (
            Anthropic,
            anthropic("model_context_window_exceeded"),
            Stop::Length,
        ),
        (Google, google("STOP"), Stop::End),
        (Google, google("MAX_TOKENS"), Stop::Length),
    ] {
        let (turn, _) = turn(vendor, &[&body]).await;
        assert_eq!(turn.unwrap().stop(), Some(stop), "{body}");
    }
}

// spec: UPP-10
#[cfg(feature = "driver")]
#[tokio::test]
async fn a_paused_message_goes_on() {
    let used = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":"x"}}"#;
    let paused = format!(r#"{{"content":[{used}],"stop_reason":"pause_turn"}}"#);
    let last = r#"{"content":[{"type":"text","text":"done"}],"stop_reason":"end_turn"}"#;
    let (result, asked) = turn(Anthropic, &[&paused, last]).await;
    let result = result.unwrap();
    assert_eq!(
        (result.response.text().as_str(), result.cycles),
        ("done", 2)
    );
    assert!(asked[1].contains(&format!(r#"{{"role":"assistant","content":[{used}]}}"#)));
    // Not without end: after the last round the message stays paused.
    let (result, asked) = turn(Anthropic, &[paused.as_str(); 11]).await;
    assert_eq!(
        (result.unwrap().stop(), asked.len()),
        (Some(upp::Stop::Pause), 11)
    );
}

// spec: UPP-7, UPP-10
#[tokio::test]
async fn deltas_of_two_calls_may_take_turns() {
    let delta = |more: &str| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{more}]}}}}]}}"#);
    let chunks = [
        delta(r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"n\":"}}"#),
        delta(r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}"#),
        delta(r#"{"index":0,"function":{"arguments":"1}"}}"#),
        delta(r#"{"index":1,"function":{"arguments":"}"}}"#),
    ];
    let mut chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    chunks.push(STOP);
    let response = streamed(OpenAi, &chunks).await.unwrap();
    let wanted = [("a", "f", r#"{"n":1}"#), ("b", "g", "{}")];
    assert_eq!(calls(&response), wanted);
}

// spec: UPP-10
#[tokio::test]
async fn a_stream_ends_with_done_although_the_server_says_no_goodbye() {
    let said = r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
    let mut pieces = events(&format!("data: {said}\n\ndata: [DONE]\n\n"), 10_000);
    pieces.push(Vec::new());
    let (url, _server) = serve(pieces).await;
    let model = model(OpenAi, &url);
    let response = drain(model.as_ref(), request());
    let minute = std::time::Duration::from_secs(60);
    let (_, response) = tokio::time::timeout(minute, response).await.unwrap();
    assert_eq!(response.unwrap().message.text(), "x");
    // It does not stand for a reason.
    let said = r#"{"choices":[{"delta":{"content":"x"}}]}"#;
    assert!(streamed(OpenAi, &[said, "[DONE]"]).await.is_err());
}

// spec: UPP-10
#[tokio::test]
async fn a_call_with_an_empty_id_gets_one() {
    let body = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"","name":"f","args":{}}}]},"finishReason":"STOP"}]}"#;
    let response = whole(Google, body).await.unwrap();
    assert_eq!(calls(&response), [("m-4-call-0", "f", "{}")]);
}
