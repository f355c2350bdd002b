//! The adapters against a server that reads requests and writes responses with the types of the vendors' own packages.
//!
//! Needs a Python with the packages openai, anthropic and google-genai; `UBOS_PYTHON` names it, `python3` by default.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ubos_conformance::uap::check_model;
use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{
    ContentBlock, LlmModel, LlmRequest, LlmResponse, Message, ToolResult, ToolResultMessage, object,
};

use crate::stamp;
use crate::transcripts;
use crate::vendor::{drain, request};

/// The server, which ends with its standard input.
struct Vendors(Child);

impl Drop for Vendors {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn serve() -> (Vendors, String) {
    let python = std::env::var("UBOS_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut server = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/external/vendors.py"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    out.read_line(&mut port).unwrap();
    assert!(
        !port.is_empty(),
        "these tests need a Python with openai, anthropic and google-genai: set UBOS_PYTHON"
    );
    let url = format!("http://127.0.0.1:{}/v1", port.trim());
    (Vendors(server), url)
}

fn models(url: &str) -> [Arc<dyn LlmModel>; 4] {
    let config = ProviderConfig::default().with_base_url(url);
    let claude = config
        .clone()
        .with_params(object(r#"{"max_tokens":9}"#).unwrap());
    [
        Arc::new(OpenAiModel::new("gpt-x", config.clone()).unwrap()),
        Arc::new(OpenAiResponsesModel::new("gpt-x", config.clone()).unwrap()),
        Arc::new(AnthropicModel::new("claude-sonnet-4-5", claude).unwrap()),
        Arc::new(GoogleModel::new("gemini-3-pro", config).unwrap()),
    ]
}

fn asked(has_structure: bool) -> LlmRequest {
    let mut request = request();
    request.params = None;
    if has_structure {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
        request.structure = Some(Arc::new(object(schema).unwrap()));
    }
    request
}

fn check(model: &dyn LlmModel, response: &LlmResponse) {
    let message = &response.message;
    assert_eq!(
        message.text(),
        "Grüß dich",
        "{model}",
        model = model.model_id()
    );
    let call = &message.calls()[0];
    assert_eq!(
        (&*call.tool_name, call.arguments.as_str()),
        ("add", r#"{"a":2}"#)
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
    assert_eq!(usage.reasoning_tokens(), Some(3));
    let thoughts = |block: &ContentBlock| matches!(block, ContentBlock::Reasoning(text) if &**text == "Let me see.");
    // Chat completions say nothing of reasoning.
    assert_eq!(
        message.content.iter().any(thoughts),
        message.content.len() > 1
    );
}

// spec: UPP-10
#[tokio::test]
async fn the_vendors_own_types_read_requests_and_write_responses() {
    let (_server, url) = serve();
    let gemini = url.replace("/v1", "/v1beta");
    for n in 0..4 {
        let model = &models(if n == 3 { &gemini } else { &url })[n];
        for has_structure in [false, true] {
            check_model(model.as_ref(), asked(has_structure))
                .await
                .unwrap();
            let whole = model.complete(asked(has_structure)).await.unwrap();
            check(model.as_ref(), &whole);
            let (_, streamed) = drain(model.as_ref(), asked(has_structure)).await;
            let streamed = streamed.unwrap();
            check(model.as_ref(), &streamed);
            // What was said goes back, and is read again.
            for response in [whole, streamed] {
                let mut next = asked(has_structure);
                let call = &response.message.calls()[0];
                let result = ToolResult::new(Arc::clone(&call.tool_call_id), upp::json_text("4"));
                next.messages
                    .push(Message::Assistant(Arc::clone(&response.message)));
                next.messages
                    .push(ToolResultMessage::new(stamp(9), vec![result]).into());
                check(model.as_ref(), &model.complete(next).await.unwrap());
            }
        }
    }
}

/// The check of requests finds what the vendor would refuse.
#[tokio::test]
async fn the_vendors_own_types_refuse_what_the_vendor_would() {
    let (_server, url) = serve();
    for (n, params) in [
        (0, r#"{"brand_new":1}"#),
        (1, r#"{"max_output_tokens":"many"}"#),
        (2, r#"{"max_tokens":9,"thinking":{"type":"brand_new"}}"#),
        (3, r#"{"generationConfig":{"brandNew":1}}"#),
    ] {
        let mut wrong = asked(false);
        wrong.params = Some(Arc::new(object(params).unwrap()));
        let error = models(&url)[n].complete(wrong).await.unwrap_err();
        assert_eq!(error.status_code, Some(422), "{error}");
    }
}

// spec: UPP-7, UPP-10
#[tokio::test]
async fn transcripts_survive_the_vendors_own_types() {
    let (_server, url) = serve();
    let mut count = 0;
    for transcript in transcripts::all() {
        let model = transcript.model(&url);
        if transcript.whole.is_some() {
            // The server compares what goes back with what it sent.
            let checked = check_model(model.as_ref(), transcripts::asked(None)).await;
            checked.unwrap_or_else(|fault| panic!("{}: {fault}", transcript.name));
            transcript.check(&model.complete(transcripts::asked(None)).await);
        }
        let (_, streamed) = drain(model.as_ref(), transcripts::asked(None)).await;
        transcript.check(&streamed);
        if let Ok(response) = streamed {
            let next = transcripts::asked(Some(&response.message));
            transcript.check(&model.complete(next).await);
        }
        count += 1;
    }
    assert!(count > 60, "{count}");
}
