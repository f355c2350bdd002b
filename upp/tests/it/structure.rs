//! How structured output is asked for: natively where the model has a form for the schema, else as a forced tool.

use std::sync::Arc;

use ubos_common::json::to_string;
use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{ErrorCode, LlmModel, LlmRequest, LlmResponse, Message, ToolChoice, UppError, object};

use crate::vendor::{add, answer, drain, events, parts, serve, structured};

const CLOSED: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;
const NULLABLE: &str = r#"{"type":"object","properties":{"n":{"type":["integer","null"]}},"required":["n"],"additionalProperties":false}"#;
const OPEN: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;

fn request(schema: &str, has_tools: bool, params: &str) -> LlmRequest {
    let mut request = structured();
    request.structure = Some(Arc::new(object(schema).unwrap()));
    request.params = Some(Arc::new(object(params).unwrap()));
    if has_tools {
        request.tools = vec![add()].into();
    }
    request
}

fn config(url: &str) -> ProviderConfig {
    ProviderConfig::default().with_base_url(url)
}

fn anthropic(model: &str, url: &str) -> AnthropicModel {
    AnthropicModel::new(model, config(url)).unwrap()
}

fn google(model: &str, url: &str) -> GoogleModel {
    GoogleModel::new(model, config(url)).unwrap()
}

fn openai(_: &str, url: &str) -> OpenAiModel {
    OpenAiModel::new("m", config(url)).unwrap()
}

/// What came of one request, and the body that was sent.
async fn ask<M: LlmModel>(
    model: impl Fn(&str, &str) -> M,
    name: &str,
    request: LlmRequest,
    body: &str,
) -> (Result<LlmResponse, UppError>, String) {
    let (url, server) = serve(answer("200 OK", body)).await;
    let response = model(name, &url).complete(request).await;
    let asked = server.await.unwrap().remove(0);
    (response, parts(&asked).1.to_owned())
}

fn data(response: &LlmResponse) -> Option<&str> {
    response.data.as_ref().map(|data| data.as_str())
}

// spec: UPP-10
#[tokio::test]
async fn openai_enforces_a_schema_that_it_can_enforce() {
    let body = r#"{"choices":[{"message":{"content":"{\"n\":1}"},"finish_reason":"stop"}]}"#;
    for (schema, strict) in [(CLOSED, true), (NULLABLE, true), (OPEN, false)] {
        let (response, sent) = ask(openai, "m", request(schema, false, "{}"), body).await;
        assert_eq!(data(&response.unwrap()), Some(r#"{"n":1}"#));
        assert_eq!(sent.contains(r#""strict":true"#), strict, "{sent}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn claude_has_a_native_form() {
    const THINKS: &str = r#"{"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":5}}"#;
    const PLAIN: &str = r#"{"max_tokens":9,"output_config":{"effort":"low"}}"#;
    let body = r#"{"content":[{"type":"text","text":"{\"n\":1}"}],"stop_reason":"end_turn"}"#;
    let format = format!(r#""format":{{"type":"json_schema","schema":{CLOSED}}}"#);
    for (params, config) in [
        (
            PLAIN,
            format!(r#""output_config":{{"effort":"low",{format}}}"#),
        ),
        (THINKS, format!(r#""output_config":{{{format}}}"#)),
    ] {
        let asked = request(CLOSED, true, params);
        let (response, sent) = ask(anthropic, "claude-sonnet-4-5", asked, body).await;
        assert_eq!(data(&response.unwrap()), Some(r#"{"n":1}"#));
        assert!(
            sent.contains(&config) && !sent.contains("tool_choice"),
            "{sent}"
        );
        assert!(!sent.contains("json_response"), "{sent}");
    }
    let taken = r#"{"max_tokens":9,"output_config":{"format":{}}}"#;
    let error = anthropic("claude-sonnet-4-5", "http://127.0.0.1:9")
        .complete(request(CLOSED, false, taken))
        .await;
    assert_eq!(error.unwrap_err().code, ErrorCode::InvalidRequest);

    // Without a native form a tool is forced, but not beside thinking.
    let called = r#"{"content":[{"type":"tool_use","id":"t","name":"json_response","input":{"n":1}}],"stop_reason":"tool_use"}"#;
    let off = r#"{"max_tokens":9,"thinking":{"type":"disabled"}}"#;
    for (model, schema, params, choice) in [
        (
            "claude-3-7-sonnet-latest",
            CLOSED,
            THINKS,
            r#"{"type":"auto"}"#,
        ),
        ("claude-sonnet-4-5", OPEN, THINKS, r#"{"type":"auto"}"#),
        ("claude-sonnet-4-20250514", CLOSED, off, r#"{"type":"any"}"#),
        ("glm-9", CLOSED, off, r#"{"type":"any"}"#),
    ] {
        let asked = request(schema, true, params);
        let (response, sent) = ask(anthropic, model, asked.clone(), called).await;
        assert_eq!(data(&response.unwrap()), Some(r#"{"n":1}"#));
        assert!(
            sent.contains(&format!(r#""tool_choice":{choice}"#)),
            "{sent}"
        );
        assert!(!sent.contains("json_schema"), "{sent}");
        let declared = format!(
            r#"{{"name":"json_response","description":"Give the final answer.","input_schema":{schema}}}"#
        );
        assert!(sent.contains(&declared), "{sent}");
        // A model that was not forced may give none.
        let said = r#"{"content":[{"type":"text","text":"no"}],"stop_reason":"end_turn"}"#;
        let (response, _) = ask(anthropic, model, asked, said).await;
        assert_eq!(response.unwrap_err().code, ErrorCode::InvalidResponse);
    }
}

// spec: UPP-10
#[tokio::test]
async fn gemini_takes_a_schema_beside_tools_from_its_third_generation_on() {
    let text =
        r#"{"candidates":[{"content":{"parts":[{"text":"{\"n\":1}"}]},"finishReason":"STOP"}]}"#;
    let called = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"json_response","args":{"n":1}},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}"#;
    for (model, has_tools, body, is_tool) in [
        ("gemini-2.5-pro", true, called, true),
        ("gemini-2.5-pro", false, text, false),
        ("gemini-3-pro", true, text, false),
    ] {
        let asked = request(OPEN, has_tools, "{}");
        let (response, sent) = ask(google, model, asked.clone(), body).await;
        let response = response.unwrap();
        assert_eq!(data(&response), Some(r#"{"n":1}"#));
        assert!(response.message.calls().is_empty() && response.message.text() == r#"{"n":1}"#);
        // The next request would repeat a call that has no result.
        let kept = to_string(&Message::Assistant(response.message.clone()));
        assert!(!kept.contains("json_response"), "{kept}");
        let mode = sent.contains(r#""toolConfig":{"functionCallingConfig":{"mode":"ANY"}}"#);
        let declared = format!(
            r#"{{"name":"json_response","description":"Give the final answer.","parametersJsonSchema":{OPEN}}}"#
        );
        assert_eq!(sent.contains(&declared), is_tool, "{sent}");
        assert_eq!(
            (mode, sent.contains("responseJsonSchema")),
            (is_tool, !is_tool),
            "{sent}"
        );
        let (url, _server) = serve(events(&format!("data: {body}\n\n"), 50)).await;
        let (types, streamed) = drain(&google(model, &url), asked).await;
        assert_eq!(data(&streamed.unwrap()), Some(r#"{"n":1}"#));
        assert!(types.iter().any(|kind| kind == "object_delta"), "{types:?}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn a_model_that_calls_tools_has_not_answered_yet() {
    for text in ["Let me see.", r#"{\"n\":0}"#] {
        let openai_body = format!(
            r#"{{"choices":[{{"message":{{"content":"{text}","tool_calls":[{{"id":"a","function":{{"name":"add","arguments":"{{}}"}}}},{{"id":"b","function":{{"name":"add","arguments":"{{}}"}}}}]}},"finish_reason":"tool_calls"}}]}}"#
        );
        let asked = request(CLOSED, true, "{}");
        let (response, _) = ask(openai, "m", asked, &openai_body).await;
        let response = response.unwrap();
        assert_eq!((data(&response), response.message.calls().len()), (None, 2));

        let anthropic_body = format!(
            r#"{{"content":[{{"type":"text","text":"{text}"}},{{"type":"tool_use","id":"a","name":"add","input":{{}}}}],"stop_reason":"tool_use"}}"#
        );
        let asked = request(CLOSED, true, r#"{"max_tokens":9}"#);
        let (response, _) = ask(anthropic, "claude-sonnet-4-5", asked, &anthropic_body).await;
        let response = response.unwrap();
        assert_eq!((data(&response), response.message.calls().len()), (None, 1));
    }
    // Before its output a model may say what it does, and pause.
    let asked = request(CLOSED, true, r#"{"max_tokens":9}"#);
    let said = r#"{"content":[{"type":"text","text":"I search."},{"type":"text","text":"{\"n\":1}"}],"stop_reason":"end_turn"}"#;
    let (response, _) = ask(anthropic, "claude-sonnet-4-5", asked.clone(), said).await;
    assert_eq!(data(&response.unwrap()), Some(r#"{"n":1}"#));
    let paused = r#"{"content":[{"type":"text","text":"I search."}],"stop_reason":"pause_turn"}"#;
    for model in ["claude-sonnet-4-5", "claude-3-opus"] {
        let (response, _) = ask(anthropic, model, asked.clone(), paused).await;
        assert_eq!(response.unwrap().stop(), upp::Stop::Pause);
    }
}

// spec: UPP-10
#[tokio::test]
async fn a_tool_may_be_named_like_the_answer_tool_where_there_is_none() {
    let tool = || {
        let run = |_, _| async { Ok(upp::json_text("x")) };
        let schema = object(r#"{"type":"object"}"#).unwrap();
        Arc::new(upp::FnTool::new("json_response", "d", schema, run)) as Arc<dyn upp::Tool>
    };
    let mut asked = request(OPEN, false, r#"{"max_tokens":9}"#);
    asked.tools = vec![tool()].into();
    for model in [
        Arc::new(anthropic("claude-3-opus", "http://127.0.0.1:9")) as Arc<dyn LlmModel>,
        Arc::new(google("gemini-2.0", "http://127.0.0.1:9")),
    ] {
        let error = model.complete(asked.clone()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidRequest, "{error}");
        assert!(error.message.contains("json_response"), "{error}");
    }
    // Its call is an ordinary one.
    let body = r#"{"content":[{"type":"tool_use","id":"t","name":"json_response","input":{"n":1}}],"stop_reason":"tool_use"}"#;
    asked.structure = None;
    let (response, _) = ask(anthropic, "claude-3-opus", asked, body).await;
    let response = response.unwrap();
    assert_eq!((response.message.calls().len(), data(&response)), (1, None));
}

// spec: UPP-10
#[tokio::test]
async fn calls_are_forbidden_and_their_tools_stay_declared() {
    let forbidding = |schema: Option<&str>, params: &str| {
        let mut asked = request(OPEN, true, params);
        asked.structure = schema.map(|schema| Arc::new(object(schema).unwrap()));
        asked.tool_choice = ToolChoice::None;
        asked
    };
    let chat = r#"{"choices":[{"message":{"content":"{\"n\":1}"},"finish_reason":"stop"}]}"#;
    // The user's own choice is one among tools that may be called.
    let own = r#"{"tool_choice":"required"}"#;
    let (_, sent) = ask(openai, "m", forbidding(None, own), chat).await;
    assert!(sent.contains(r#""name":"add""#), "{sent}");
    assert!(
        sent.contains(r#""tool_choice":"none""#) && !sent.contains("required"),
        "{sent}"
    );

    let responses = |_: &str, url: &str| OpenAiResponsesModel::new("m", config(url)).unwrap();
    let said = r#"{"status":"completed","output":[]}"#;
    let (_, sent) = ask(responses, "m", forbidding(None, "{}"), said).await;
    assert!(sent.contains(r#""name":"add""#), "{sent}");
    assert!(sent.contains(r#""tool_choice":"none""#), "{sent}");

    let claude = r#"{"content":[{"type":"text","text":"hm"}],"stop_reason":"end_turn"}"#;
    let params = r#"{"max_tokens":9}"#;
    let (_, sent) = ask(
        anthropic,
        "claude-sonnet-4-5",
        forbidding(None, params),
        claude,
    )
    .await;
    assert!(sent.contains(r#""name":"add""#), "{sent}");
    assert!(sent.contains(r#""tool_choice":{"type":"none"}"#), "{sent}");
    // Structured output by a tool: that one, and no other.
    let called = r#"{"content":[{"type":"tool_use","id":"t","name":"json_response","input":{"n":1}}],"stop_reason":"tool_use"}"#;
    let (response, sent) = ask(anthropic, "glm-9", forbidding(Some(CLOSED), params), called).await;
    assert_eq!(data(&response.unwrap()), Some(r#"{"n":1}"#));
    let choice = r#""tool_choice":{"type":"tool","name":"json_response"}"#;
    assert!(
        sent.contains(choice) && sent.contains(r#""name":"add""#),
        "{sent}"
    );

    let gemini = r#"{"candidates":[{"content":{"parts":[{"text":"hm"}]},"finishReason":"STOP"}]}"#;
    let own = r#"{"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}"#;
    let (_, sent) = ask(google, "gemini-3-pro", forbidding(None, own), gemini).await;
    assert_eq!(sent.matches("toolConfig").count(), 1, "{sent}");
    assert!(
        sent.contains(r#""toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#),
        "{sent}"
    );
    assert!(sent.contains(r#""name":"add""#), "{sent}");
    let called = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"json_response","args":{"n":1}}}]},"finishReason":"STOP"}]}"#;
    let (response, sent) = ask(
        google,
        "gemini-2.5-flash",
        forbidding(Some(CLOSED), "{}"),
        called,
    )
    .await;
    assert_eq!(data(&response.unwrap()), Some(r#"{"n":1}"#));
    let mode = r#"{"mode":"ANY","allowedFunctionNames":["json_response"]}"#;
    assert!(sent.contains(mode), "{sent}");
}
