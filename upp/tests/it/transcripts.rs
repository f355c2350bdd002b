//! The recorded quirks of vendors, in `vectors/transcripts.jsonl`: each response, whole and streamed, and what it means.

use std::sync::Arc;

use serde_json::Value;
use ubos_conformance::uap::check_model;
use upp::transport::{
    AnthropicModel, GoogleModel, OpenAiModel, OpenAiResponsesModel, ProviderConfig,
};
use upp::{
    AssistantMessage, ContentBlock, List, LlmRequest, LlmResponse, Message, ModelReference,
    UppError, object,
};

use crate::stamp;
use crate::vendor::{Pieces, answer, drain, events, parts, request, serve_all};

/// A line of the file.
#[derive(serde::Deserialize)]
pub(crate) struct Transcript {
    pub(crate) name: String,
    vendor: String,
    /// The body of a whole response.
    pub(crate) whole: Option<String>,
    /// The data of each event.
    pub(crate) events: Option<Vec<String>>,
    wanted: Option<Wanted>,
    error: Option<String>,
    /// What goes back to the vendor with the next request.
    back: Option<Value>,
    /// What is kept in the metadata.
    kept: Option<Value>,
}

#[derive(serde::Deserialize)]
struct Wanted {
    text: String,
    reasoning: String,
    calls: Vec<[String; 3]>,
    stop: String,
}

pub(crate) fn all() -> impl Iterator<Item = Transcript> {
    let file = include_str!("../../vectors/transcripts.jsonl");
    file.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// A conversation of a question and, where there is one, the response to it.
pub(crate) fn asked(response: Option<&Arc<AssistantMessage>>) -> LlmRequest {
    let mut request = request();
    request.params = None;
    request.messages = List::from(vec![Message::user(stamp(1), "?")]);
    if let Some(response) = response {
        request
            .messages
            .push(Message::Assistant(Arc::clone(response)));
    }
    request
}

impl Transcript {
    /// The vendor's model of this name, behind a server.
    pub(crate) fn model(&self, url: &str) -> ModelReference {
        let config = ProviderConfig::default().with_base_url(url);
        match &*self.vendor {
            "openai" => Arc::new(OpenAiModel::new(&*self.name, config).unwrap()),
            "openai-responses" => Arc::new(OpenAiResponsesModel::new(&*self.name, config).unwrap()),
            "anthropic" => {
                let params = object(r#"{"max_tokens":9}"#).unwrap();
                Arc::new(AnthropicModel::new(&*self.name, config.with_params(params)).unwrap())
            }
            "google" => Arc::new(GoogleModel::new(&*self.name, config).unwrap()),
            other => panic!("{other}"),
        }
    }

    fn whole(&self) -> Option<Pieces> {
        Some(answer("200 OK", self.whole.as_ref()?))
    }

    fn stream(&self) -> Option<Pieces> {
        let named = |data: &String| {
            let json: Option<Value> = serde_json::from_str(data).ok();
            let kind = json.as_ref().and_then(|json| json["type"].as_str());
            let name = kind.map_or_else(String::new, |kind| format!("event: {kind}\n"));
            format!("{name}data: {data}\n\n")
        };
        let text: String = self.events.as_ref()?.iter().map(named).collect();
        Some(events(&text, 10_000))
    }

    /// Checks what came of a response.
    pub(crate) fn check(&self, result: &Result<LlmResponse, UppError>) {
        let name = &self.name;
        let response = match (result, &self.error) {
            (Ok(response), None) => response,
            (Err(error), Some(wanted)) => {
                return assert_eq!(&error.code.to_string(), wanted, "{name}: {error}");
            }
            (result, wanted) => panic!("{name}: {result:?}, and not {wanted:?}"),
        };
        let wanted = self.wanted.as_ref().unwrap();
        let message = &response.message;
        let thought = message.content.iter().filter_map(|block| match block {
            ContentBlock::Reasoning(text) => Some(&**text),
            _ => None,
        });
        assert_eq!(message.text(), wanted.text, "{name}");
        assert_eq!(thought.collect::<String>(), wanted.reasoning, "{name}");
        let calls = message.calls().iter();
        let calls: Vec<_> = calls
            .map(|call| {
                let arguments = call.arguments.as_str().to_owned();
                [
                    call.tool_call_id.to_string(),
                    call.tool_name.to_string(),
                    arguments,
                ]
            })
            .collect();
        assert_eq!(calls, wanted.calls, "{name}");
        assert_eq!(response.stop().to_string(), wanted.stop, "{name}");
        if let Some(Value::Object(wanted)) = &self.kept {
            let kept = message.metadata.as_ref().unwrap().get("openai").unwrap();
            let kept: Value = kept.deserialize().unwrap();
            for (member, value) in wanted {
                assert_eq!(&kept[member], value, "{name}");
            }
        }
    }

    /// Checks that the response goes back with the next request as it came.
    fn check_back(&self, body: &str) {
        let Some(back) = &self.back else { return };
        let body: Value = serde_json::from_str(body).unwrap();
        let sent = match &*self.vendor {
            "openai" => &body["messages"][2],
            "anthropic" => &body["messages"][1]["content"],
            "google" => &body["contents"][1]["parts"],
            _ => &body["input"],
        };
        let is_back = match back {
            Value::Object(members) => members
                .iter()
                .all(|(name, value)| sent.get(name) == Some(value)),
            // The items of the responses endpoint stand between the question and the results.
            Value::Array(items) if self.vendor == "openai-responses" => {
                sent.as_array().unwrap()[1..].starts_with(items)
            }
            whole => sent == whole,
        };
        assert!(is_back, "{}: {sent}, and not {back}", self.name);
    }
}

// spec: UPP-7, UPP-10
#[tokio::test]
async fn transcripts_mean_what_they_say() {
    for transcript in all() {
        let recorded: Vec<_> = [transcript.whole(), transcript.stream()]
            .into_iter()
            .flatten()
            .collect();
        let (whole, stream) = (transcript.whole.is_some(), transcript.events.is_some());
        let mut answers = recorded.clone();
        let goes_back = transcript.error.is_none();
        if goes_back {
            answers.extend(recorded.iter().map(|_| answer("200 OK", "{}")));
        }
        if let [whole, stream] = &*recorded {
            answers.extend([whole, stream, stream, whole].map(Clone::clone));
            answers.extend(vec![whole.clone(); if goes_back { 2 } else { 0 }]);
        }
        let (url, server) = serve_all(answers).await;
        let model = transcript.model(&url);
        let mut results = Vec::new();
        if whole {
            results.push(model.complete(asked(None)).await);
        }
        if stream {
            results.push(drain(model.as_ref(), asked(None)).await.1);
        }
        for result in &results {
            transcript.check(result);
            if let Ok(response) = result {
                let _ = model.complete(asked(Some(&response.message))).await;
            }
        }
        if whole && stream {
            let checked = check_model(model.as_ref(), asked(None)).await;
            checked.unwrap_or_else(|fault| panic!("{}: {fault}", transcript.name));
        }
        let requests = server.await.unwrap();
        if goes_back {
            for request in requests.iter().skip(results.len()).take(results.len()) {
                transcript.check_back(parts(request).1);
            }
        }
    }
}
