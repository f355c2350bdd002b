//! The adapters against the proxy of LiteLLM, with mocked models.
//!
//! Needs a Python with `litellm[proxy]`; `UBOS_PYTHON` names it, `python3` by default.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{ErrorCode, LlmModel, LlmRequest, Message, ModelReference, Stop, object};

use crate::transcripts::asked;
use crate::vendor::drain;

const KEY: &str = "sk-0123456789abcdefghijklmnopqrstuvwxyz-0123456789";

/// The proxy, which ends with the test.
struct Proxy {
    process: Child,
    url: String,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start() -> Proxy {
    let python = std::env::var("UBOS_PYTHON").unwrap_or_else(|_| "python3".into());
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/external");
    let mut process = Command::new(python)
        .args([
            format!("{files}/litellm_proxy.py"),
            format!("{files}/litellm.yaml"),
        ])
        .env("LITELLM_MASTER_KEY", KEY)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let answer = process.stdout.take().unwrap();
    BufReader::new(answer).read_line(&mut port).unwrap();
    assert!(
        !port.is_empty(),
        "this test needs a Python with litellm[proxy]: set UBOS_PYTHON"
    );
    let url = format!("http://127.0.0.1:{}/v1", port.trim_end());
    Proxy { process, url }
}

impl Proxy {
    fn models(&self, name: &str) -> [ModelReference; 4] {
        let config = ProviderConfig::default()
            .with_base_url(&*self.url)
            .with_key(KEY.to_owned());
        let claude = config
            .clone()
            .with_params(object(r#"{"max_tokens":9}"#).unwrap());
        let gemini = config
            .clone()
            .with_base_url(self.url.replace("/v1", "/v1beta"));
        [
            Arc::new(OpenAiModel::new(name, config.clone()).unwrap()),
            Arc::new(OpenAiResponsesModel::new(name, config).unwrap()),
            Arc::new(AnthropicModel::new(name, claude).unwrap()),
            Arc::new(GoogleModel::new(name, gemini).unwrap()),
        ]
    }
}

fn next(response: &upp::LlmResponse) -> LlmRequest {
    let mut next = asked(Some(&response.message));
    next.messages
        .push(Message::user(crate::stamp(9), "and now?"));
    next
}

// spec: UPP-3, UPP-10
#[tokio::test]
async fn a_proxy_is_a_vendor_whatever_shape_it_is_spoken_to_in() {
    let proxy = start();
    for (n, model) in proxy.models("mocked").iter().enumerate() {
        let whole = model.complete(asked(None)).await.unwrap();
        let again = model.complete(next(&whole)).await.unwrap();
        for response in [&whole, &again] {
            assert_eq!(response.message.text(), "Grüß dich", "{n}");
            assert_eq!(response.stop(), Stop::End, "{n}");
            assert!(response.usage.output_tokens > 0, "{n}");
        }
        let (_, streamed) = drain(model.as_ref(), asked(None)).await;
        match n {
            // The proxy answers with a whole response, or fails within the stream: neither counts as an answer.
            1 | 2 => assert!(streamed.is_err(), "{streamed:?}"),
            _ => assert_eq!(streamed.unwrap().message.text(), "Grüß dich", "{n}"),
        }
    }
    // Of what it mocks it fails in two of the shapes.
    for (name, code) in [
        ("limited", ErrorCode::RateLimited),
        ("long", ErrorCode::ContextLengthExceeded),
    ] {
        let [openai, _, claude, _] = proxy.models(name);
        for model in [openai, claude] {
            let error = model.complete(asked(None)).await.unwrap_err();
            assert_eq!(error.code, code, "{error:?}");
        }
    }
    let [openai, ..] = proxy.models("calls");
    let response = openai.complete(asked(None)).await.unwrap();
    let call = &response.message.calls()[0];
    assert_eq!(
        (&*call.tool_name, call.arguments.as_str()),
        ("add", r#"{"a":2}"#)
    );
    // A key that is not the proxy's is not repeated.
    let wrong = ProviderConfig::default()
        .with_base_url(&*proxy.url)
        .with_key("sk-wrong-key-0123456789".to_owned());
    let refused = OpenAiModel::new("mocked", wrong).unwrap();
    let error = refused.complete(asked(None)).await.unwrap_err();
    assert!(!format!("{error:?}").contains("wrong-key"), "{error:?}");
}
