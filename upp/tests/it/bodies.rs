//! What the bodies of all vendors' requests have in common: the user's parameters and the metadata of tools.

use std::sync::Arc;

use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{
    ContentBlock, ErrorCode, FnTool, LlmRequest, Message, Metadata, ModelReference, Source, object,
};

use crate::stamp;
use crate::vendor::{add, answer, parts, serve};

/// The endpoints, and a model of each.
const ENDPOINTS: [(&str, &str); 5] = [
    ("openai", "gpt-x"),
    ("openai-responses", "gpt-x"),
    ("anthropic", "claude-sonnet-4-5"),
    // Structured output is a forced tool here.
    ("anthropic", "claude-3-opus"),
    ("google", "gemini-2.5-pro"),
];

fn model(endpoint: &str, name: &str, url: &str) -> ModelReference {
    let config = ProviderConfig::default().with_base_url(url);
    match endpoint {
        "openai" => Arc::new(OpenAiModel::new(name, config).unwrap()),
        "openai-responses" => Arc::new(OpenAiResponsesModel::new(name, config).unwrap()),
        "anthropic" => Arc::new(AnthropicModel::new(name, config).unwrap()),
        "google" => Arc::new(GoogleModel::new(name, config).unwrap()),
        other => panic!("{other}"),
    }
}

/// A question that holds no more than the words of `holds` say.
fn asking(holds: &str, parameter: &str) -> LlmRequest {
    let mut request = LlmRequest::new(vec![Message::user(stamp(1), "?")].into(), stamp(4));
    if holds.contains("system") {
        request.system = Some("be brief".into());
    }
    if holds.contains("tools") {
        request.tools = vec![add()].into();
    }
    if holds.contains("structure") {
        request.structure = Some(Arc::new(object(r#"{"type":"object"}"#).unwrap()));
    }
    let params = format!(r#"{{"max_tokens":9,"{parameter}":[]}}"#);
    request.params = Some(Arc::new(object(&params).unwrap()));
    request
}

/// Whether a request is refused before anything is sent: nobody listens where it would go.
async fn is_refused((endpoint, name): (&str, &str), request: LlmRequest) -> bool {
    let model = model(endpoint, name, "http://127.0.0.1:9/");
    let error = model.complete(request).await.unwrap_err();
    error.code == ErrorCode::InvalidRequest
}

// spec: UPP-2
#[tokio::test]
async fn a_parameter_that_the_request_itself_sets_is_refused() {
    let [chat, responses, claude, older, gemini] = ENDPOINTS;
    for (endpoint, parameter, holds) in [
        (chat, "model", ""),
        (chat, "messages", ""),
        (chat, "stream", ""),
        (chat, "stream_options", ""),
        (chat, "tools", "tools"),
        (chat, "response_format", "structure"),
        (responses, "model", ""),
        (responses, "input", ""),
        (responses, "stream", ""),
        (responses, "instructions", "system"),
        (responses, "tools", "tools"),
        (claude, "model", ""),
        (claude, "messages", ""),
        (claude, "stream", ""),
        (claude, "system", "system"),
        (claude, "tools", "tools"),
        (older, "tools", "structure"),
        (older, "tool_choice", "structure"),
        (gemini, "contents", ""),
        (gemini, "systemInstruction", "system"),
        (gemini, "tools", "tools"),
        (gemini, "toolConfig", "tools structure"),
    ] {
        let taken = is_refused(endpoint, asking(holds, parameter)).await;
        // What the request does not set is the user's.
        let free = !holds.is_empty() && !is_refused(endpoint, asking("", parameter)).await;
        let wanted = (true, !holds.is_empty());
        assert_eq!((taken, free), wanted, "{endpoint:?} {parameter}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn metadata_of_a_tool_stands_in_its_declaration_at_that_vendor() {
    for (endpoint, name) in ENDPOINTS {
        let provider = endpoint.trim_end_matches("-responses");
        let mut metadata = Metadata::default();
        let said = r#"{"cache_control":{"type":"x"},"name":"other","description":"other"}"#;
        metadata.set(provider, object(said).unwrap());
        metadata.set("elsewhere", object(r#"{"elsewhere":1}"#).unwrap());
        let run = |arguments: ubos_common::json::RawObject, _| async { Ok(arguments.into()) };
        let tool = FnTool::new("t", "d", object("{}").unwrap(), run).with_metadata(metadata);
        let mut request = asking("", "custom");
        request.tools = vec![Arc::new(tool) as Arc<dyn upp::Tool>].into();
        let (url, server) = serve(answer("200 OK", "{}")).await;
        let error = model(endpoint, name, &url).complete(request).await;
        assert_ne!(error.unwrap_err().code, ErrorCode::InvalidRequest);
        let asked = server.await.unwrap().remove(0);
        let body: serde_json::Value = serde_json::from_str(parts(&asked).1).unwrap();
        let declared = &body["tools"][0];
        let declared = match endpoint {
            "openai" => &declared["function"],
            "google" => &declared["functionDeclarations"][0],
            _ => declared,
        };
        assert_eq!(declared["cache_control"]["type"], "x", "{body}");
        assert_eq!(
            (&declared["name"], &declared["description"]),
            (&"t".into(), &"d".into()),
            "{body}"
        );
        assert!(declared.get("elsewhere").is_none(), "{body}");
    }
}

// spec: UPP-10
#[test]
fn every_vendor_has_an_endpoint() {
    let config = ProviderConfig::default;
    let shown = |model: &dyn std::fmt::Debug| format!("{model:?}");
    for (model, host) in [
        (
            shown(&OpenAiModel::new("m", config()).unwrap()),
            "api.openai.com",
        ),
        (
            shown(&OpenAiResponsesModel::new("m", config()).unwrap()),
            "api.openai.com",
        ),
        (
            shown(&AnthropicModel::new("m", config()).unwrap()),
            "api.anthropic.com",
        ),
        (
            shown(&GoogleModel::new("m", config()).unwrap()),
            "generativelanguage.googleapis.com",
        ),
    ] {
        assert!(model.contains(host), "{model}");
    }
}

// spec: UPP-2, UPP-10
#[tokio::test]
async fn anthropic_takes_documents_of_three_kinds_and_images_of_two() {
    let url = || Source::Url("https://x/y".into());
    let text = || Source::Text("said".into());
    let image = |source| ContentBlock::image(source, "image/png");
    let mut titled = ContentBlock::document(text(), "text/plain");
    if let ContentBlock::Document { title, .. } = &mut titled {
        *title = Some("Notes".into());
    }
    for (block, wanted) in [
        (
            titled,
            Some(
                r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"said"},"title":"Notes"}"#,
            ),
        ),
        (
            ContentBlock::document(url(), "application/pdf"),
            Some(r#"{"type":"document","source":{"type":"url","url":"https://x/y"}}"#),
        ),
        (
            ContentBlock::document(Source::Base64("AQID".into()), "application/pdf"),
            Some(
                r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AQID"}}"#,
            ),
        ),
        (
            image(url()),
            Some(r#"{"type":"image","source":{"type":"url","url":"https://x/y"}}"#),
        ),
        (
            image(Source::Base64("AQID".into())),
            Some(
                r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}}"#,
            ),
        ),
        (image(text()), None),
    ] {
        let mut request = asking("", "custom");
        request.messages = vec![Message::user(stamp(1), block)].into();
        let Some(wanted) = wanted else {
            assert!(is_refused(ENDPOINTS[2], request).await);
            continue;
        };
        let (url, server) = serve(answer("200 OK", "{}")).await;
        let model = model("anthropic", "claude-x", &url);
        let error = model.complete(request).await.unwrap_err();
        assert_ne!(error.code, ErrorCode::InvalidRequest, "{error}");
        let asked = server.await.unwrap().remove(0);
        assert!(
            asked.contains(&format!(r#""content":[{wanted}]"#)),
            "{asked}"
        );
    }
}
