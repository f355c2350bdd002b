//! The place of a request in a distributed trace, in the headers of every adapter.

use std::sync::Arc;
use std::time::Duration;

use ubos_common::trace_context::TraceContext;
use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{LinearBackoff, LlmModel, object};

use crate::vendor::{answer, drain, parts, serve, serve_all, structured};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The headers of a request that are about a trace, in their order by name.
fn about_trace(asked: &str) -> Vec<String> {
    let head = parts(asked).0.lines();
    let mut about: Vec<_> = head
        .filter(|line| line.to_lowercase().starts_with("trace"))
        .map(str::to_owned)
        .collect();
    about.sort();
    about
}

/// Every adapter, for one server.
fn adapters(config: &ProviderConfig, url: &str) -> Vec<Box<dyn LlmModel>> {
    let max = object(r#"{"max_tokens":10}"#).unwrap();
    let config = || config.clone().with_base_url(url);
    vec![
        Box::new(OpenAiModel::new("m", config()).unwrap()),
        Box::new(OpenAiResponsesModel::new("m", config()).unwrap()),
        Box::new(AnthropicModel::new("m", config().with_params(max)).unwrap()),
        Box::new(GoogleModel::new("m", config()).unwrap()),
    ]
}

#[tokio::test]
async fn a_place_goes_in_headers_of_every_attempt() {
    let parent = format!("traceparent: {PARENT}");
    let places = [
        (PARENT, Some("a=1"), vec![&*parent, "tracestate: a=1"]),
        (PARENT, None, vec![&*parent]),
        // A state that is not valid is dropped alone.
        (PARENT, Some("A=1"), vec![&*parent]),
        ("no place", Some("a=1"), vec![]),
    ];
    let strategy = LinearBackoff::default().with_delay(Duration::from_millis(1));
    let config = ProviderConfig::default().with_retry(Arc::new(strategy));
    for adapter in 0..4 {
        for (text, state, wanted) in &places {
            let pieces = [
                "429 Too Many Requests",
                "400 Bad Request",
                "400 Bad Request",
            ];
            let pieces = pieces.iter().map(|status| answer(status, "{}"));
            let (url, server) = serve_all(pieces.collect()).await;
            let model = adapters(&config, &url).remove(adapter);
            let mut request = structured();
            request.trace = TraceContext::read(text, *state);
            assert!(model.complete(request.clone()).await.is_err());
            assert!(drain(&*model, request).await.1.is_err());
            for asked in server.await.unwrap() {
                assert_eq!(about_trace(&asked), *wanted, "{}", model.provider());
            }
        }
    }
}

#[tokio::test]
async fn a_place_among_the_callers_headers_wins_whole() {
    let own = PARENT.replace("b7ad6b7169203331", "00f067aa0ba902b7");
    for (name, value) in [("TraceParent", &*own), ("tracestate", "b=2")] {
        let body = r#"{"choices":[{"message":{"content":"{}"},"finish_reason":"stop"}]}"#;
        let (url, server) = serve(answer("200 OK", body)).await;
        let mut request = structured();
        request.trace = TraceContext::read(PARENT, ["a=1"]);
        let config = ProviderConfig::default().with_header(name, value.to_owned());
        let model = adapters(&config, &url).remove(0);
        model.complete(request).await.unwrap();
        let wanted = format!("{}: {value}", name.to_lowercase());
        assert_eq!(about_trace(&server.await.unwrap()[0]), [wanted]);
    }
}
