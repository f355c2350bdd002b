//! What is too much: the last that is taken, and the first that is not.

use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{
    Accumulator, ErrorCode, LlmModel, LlmResponse, StreamEvent, StreamEventType, UppError, object,
};

use crate::stamp;
use crate::vendor::{answer, drain, events, request, serve};

const MIB: usize = 1 << 20;

fn config(url: &str) -> ProviderConfig {
    let params = object(r#"{"max_tokens":9}"#).unwrap();
    ProviderConfig::default()
        .with_base_url(url)
        .with_params(params)
}

/// A response that was streamed in these events.
async fn streamed<M: LlmModel>(
    model: impl FnOnce(ProviderConfig) -> M,
    chunks: impl IntoIterator<Item = String>,
) -> Result<LlmResponse, UppError> {
    let chunks = chunks.into_iter();
    let text: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
    let (url, _server) = serve(events(&text, MIB)).await;
    drain(&model(config(&url)), request()).await.1
}

fn openai(config: ProviderConfig) -> OpenAiModel {
    OpenAiModel::new("m", config).unwrap()
}

fn claude(config: ProviderConfig) -> AnthropicModel {
    AnthropicModel::new("m", config).unwrap()
}

fn gemini(config: ProviderConfig) -> GoogleModel {
    GoogleModel::new("m", config).unwrap()
}

fn is_refused(result: Result<LlmResponse, UppError>) -> bool {
    result.is_err_and(|error| error.code == ErrorCode::InvalidResponse)
}

// spec: UPP-7
#[test]
fn a_message_has_64_mib_and_4096_parts() {
    let delta = |kind: &StreamEventType, index, text: &str| {
        let mut event = StreamEvent::bare(kind.clone(), index);
        match kind {
            StreamEventType::ToolCallDelta => event.delta.arguments_json = Some(text.into()),
            _ => event.delta.text = Some(text.into()),
        }
        event
    };
    for kind in [
        StreamEventType::TextDelta,
        StreamEventType::ReasoningDelta,
        StreamEventType::ToolCallDelta,
    ] {
        let mut whole = Accumulator::new("m");
        let mib = delta(&kind, 0, &"x".repeat(MIB));
        (0..64).for_each(|_| whole.add(&mib).unwrap());
        let error = whole.add(&delta(&kind, 0, "x")).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidResponse);

        let mut whole = Accumulator::new("m");
        (0..4_096).for_each(|index| whole.add(&delta(&kind, index, "x")).unwrap());
        whole.add(&delta(&kind, 4_095, "y")).unwrap();
        assert!(whole.add(&delta(&kind, 4_096, "x")).is_err());
    }
    // Two kinds of one part.
    let mut whole = Accumulator::new("m");
    whole
        .add(&delta(&StreamEventType::TextDelta, 0, "x"))
        .unwrap();
    assert!(
        whole
            .add(&delta(&StreamEventType::ReasoningDelta, 0, "x"))
            .is_err()
    );
    let (message, _) = whole.finish(stamp(1)).unwrap();
    assert_eq!(message.text(), "x");
}

// spec: UPP-10
#[tokio::test]
async fn a_body_has_64_mib() {
    let body = r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#;
    for (size, is_ok) in [(64 * MIB, true), (64 * MIB + 1, false)] {
        let body = body.to_owned() + &" ".repeat(size - body.len());
        let (url, server) = serve(answer("200 OK", &body)).await;
        let result = openai(config(&url)).complete(request()).await;
        drop(server);
        assert_eq!(result.is_ok(), is_ok, "{result:?}");
        assert!(is_ok || is_refused(result));
    }
}

// spec: UPP-10
#[tokio::test]
async fn what_is_kept_raw_has_64_mib() {
    let long = "x".repeat(13 * MIB);
    let part = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"executableCode":{{"code":"{long}"}}}}]}}}}]}}"#
    );
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    let chunks = |n| {
        let parts = core::iter::repeat_n(part.clone(), n);
        parts.chain([stop.to_owned()])
    };
    assert!(streamed(gemini, chunks(4)).await.is_ok());
    assert!(is_refused(streamed(gemini, chunks(5)).await));

    let start = r#"{"type":"message_start","message":{"content":[]}}"#;
    let block =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let eight_mib = "x".repeat(8 * MIB - 2); // And the quotes.
    let part = format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"citations_delta","citation":"{eight_mib}"}}}}"#
    );
    let more =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#;
    let stop = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let chunks = |last: &[&str]| {
        let begin = [start.to_owned(), block.to_owned()].into_iter();
        let parts = begin.chain(core::iter::repeat_n(part.clone(), 8));
        let end = [stop, r#"{"type":"message_stop"}"#];
        let last: Vec<String> = last.iter().chain(&end).map(ToString::to_string).collect();
        parts.chain(last)
    };
    assert!(streamed(claude, chunks(&[])).await.is_ok());
    assert!(is_refused(streamed(claude, chunks(&[more])).await));

    let part = format!(r#"{{"choices":[{{"delta":{{"annotations":["{long}"]}}}}]}}"#);
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let chunks = |n| {
        let parts = core::iter::repeat_n(part.clone(), n);
        parts.chain([stop.to_owned()])
    };
    assert!(streamed(openai, chunks(4)).await.is_ok());
    assert!(is_refused(streamed(openai, chunks(5)).await));
}

// spec: UPP-10
#[tokio::test]
async fn an_answer_has_4096_blocks_and_128_alternatives() {
    let start = r#"{"type":"message_start","message":{"content":[]}}"#.to_owned();
    let block = |n| {
        format!(
            r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"brand_new","n":{n}}}}}"#
        )
    };
    let end = [
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.to_owned(),
        r#"{"type":"message_stop"}"#.to_owned(),
    ];
    for (blocks, is_ok) in [(4_096, true), (4_097, false)] {
        let chunks = [start.clone()].into_iter().chain((0..blocks).map(block));
        let result = streamed(claude, chunks.chain(end.clone())).await;
        assert_eq!(result.is_ok(), is_ok, "{result:?}");
        assert!(is_ok || is_refused(result));
    }

    let item = |n| {
        format!(
            r#"{{"type":"response.output_item.done","output_index":{n},"item":{{"type":"brand_new","id":"{n}"}}}}"#
        )
    };
    let end = r#"{"type":"response.completed","response":{"status":"completed"}}"#.to_owned();
    for (items, is_ok) in [(4_096, true), (4_097, false)] {
        let chunks = (0..items).map(item).chain([end.clone()]);
        let model = |config| OpenAiResponsesModel::new("m", config).unwrap();
        let result = streamed(model, chunks).await;
        assert_eq!(result.is_ok(), is_ok, "{result:?}");
        assert!(is_ok || is_refused(result));
    }

    let choice = |n| {
        format!(
            r#"{{"choices":[{{"index":{n},"delta":{{"content":"x"}},"finish_reason":"stop"}}]}}"#
        )
    };
    for (choices, is_ok) in [(128, true), (129, false)] {
        let result = streamed(openai, (0..choices).map(choice)).await;
        assert_eq!(result.is_ok(), is_ok, "{result:?}");
        assert!(is_ok || is_refused(result));
    }
}
