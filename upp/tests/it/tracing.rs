//! Trace events hold ids, counts and durations, and no payload.

use std::sync::Arc;

use futures::executor::block_on;
use ubos_common::id::IdSource;
use ubos_common::testing::Traces;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    AssistantMessage, ContentBlock, ErrorCode, FnTool, List, LlmCall, LlmCapabilities, LlmOptions,
    Reply, ScriptedModel, Source, Tool, UserMessage, json_text, llm, object,
};

#[test]
fn no_payload_is_in_a_trace_event() {
    let traces = Traces::of("");
    let model = ScriptedModel::new([
        Reply::text("canary reply").calling(
            "c1",
            "echo",
            object(r#"{"canary":"arguments"}"#).unwrap(),
        ),
        Reply::error(ErrorCode::ProviderError, "canary error"),
    ]);
    let echo = FnTool::new("echo", "Echoes", object("{}").unwrap(), |_, _| async {
        Ok(json_text("canary result"))
    });
    let options = LlmOptions::new(Arc::new(model))
        .with_system("canary system")
        .with_params(object(r#"{"canary":"params"}"#).unwrap())
        .with_tools([Arc::new(echo) as Arc<dyn Tool>]);
    let call = LlmCall::new(IdSource::seeded(1), || {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    });
    let instance = llm(options).unwrap();
    block_on(instance.generate(&List::default(), ["canary input"], call)).unwrap_err();
    let text = traces.text();
    for message in [
        "tool loop started",
        "tool loop takes an input",
        "tool loop infers",
        "tool loop received a response",
        "tool loop ran a tool",
        "tool loop finished",
    ] {
        assert!(text.contains(message), "{message} in {text}");
    }
    assert!(!text.contains("canary"), "{text}");
}

/// The spans of a call and their fields, without events.
fn spans(traces: &Traces) -> Vec<String> {
    let names = ["span ", "otel.", "gen_ai.", "server.", "error."];
    let text = traces.text();
    let lines = text.lines();
    let lines = lines.filter(|line| names.iter().any(|name| line.starts_with(name)));
    // How long a server takes is not the same twice.
    let lines = lines.map(|line| match line.split_once("first_chunk=") {
        Some((before, seconds)) if seconds.parse::<f64>().is_ok() => format!("{before}first_chunk"),
        _ => line.to_owned(),
    });
    lines.collect()
}

fn echo() -> FnTool {
    FnTool::new(
        "echo",
        "Echoes",
        object("{}").unwrap(),
        |arguments, _| async {
            match arguments.as_str() {
                "{}" => Ok(arguments.into()),
                _ => Err("canary".into()),
            }
        },
    )
}

fn call() -> LlmCall {
    LlmCall::new(IdSource::seeded(1), || {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    })
}

const PARAMS: &str = r#"{"max_tokens":9,"temperature":0.5,"top_p":1,"top_k":3,"seed":7,"frequency_penalty":0.25,"presence_penalty":-0.5,"n":2,"stop":["a","b"],"other":1}"#;

#[test]
fn every_span_has_the_fields_of_the_conventions() {
    let replies = [
        Reply::default()
            .calling("c1", "echo", object("{}").unwrap())
            .calling("c2", "echo", object(r#"{"x":1}"#).unwrap()),
        Reply::error(ErrorCode::RateLimited, "canary"),
    ];
    let request = [
        r#"gen_ai.operation.name="chat""#,
        r#"gen_ai.provider.name="scripted""#,
        r#"gen_ai.request.model="scripted""#,
        "gen_ai.request.stream=true",
        r#"gen_ai.output.type="json""#,
        "gen_ai.request.max_tokens=9",
        "gen_ai.request.choice.count=2",
        "gen_ai.request.seed=7",
        "gen_ai.request.top_k=3",
        "gen_ai.request.temperature=0.5",
        "gen_ai.request.top_p=1.0",
        "gen_ai.request.frequency_penalty=0.25",
        "gen_ai.request.presence_penalty=-0.5",
        r#"gen_ai.request.stop_sequences="a,b""#,
    ];
    let chat = [
        "span chat",
        r#"otel.name="chat scripted""#,
        r#"otel.kind="client""#,
    ];
    let chat = || chat.iter().chain(&request).copied();
    let tool = |call| {
        [
            "span execute_tool",
            r#"otel.name="execute_tool echo""#,
            r#"otel.kind="internal""#,
            r#"gen_ai.operation.name="execute_tool""#,
            r#"gen_ai.tool.name="echo""#,
            r#"gen_ai.tool.type="function""#,
            call,
            r#"gen_ai.tool.description="Echoes""#,
        ]
    };
    let wanted: Vec<&str> = chat()
        .chain([
            "gen_ai.usage.input_tokens=5",
            "gen_ai.usage.output_tokens=3",
            "gen_ai.usage.cache_read.input_tokens=0",
            "gen_ai.usage.cache_write.input_tokens=0",
            r#"gen_ai.response.finish_reasons="tool_calls""#,
        ])
        .chain(tool(r#"gen_ai.tool.call.id="c1""#))
        .chain(tool(r#"gen_ai.tool.call.id="c2""#))
        .chain([r#"otel.status_code="ERROR""#, r#"error.type="tool_error""#])
        .chain(chat())
        .chain([
            r#"otel.status_code="ERROR""#,
            r#"error.type="RATE_LIMITED""#,
        ])
        .collect();
    let traces = Traces::of("upp");
    let options = LlmOptions::new(Arc::new(ScriptedModel::new(replies)))
        .with_params(object(PARAMS).unwrap())
        .with_structure(object("{}").unwrap())
        .with_system("canary")
        .with_tool(echo());
    // Options that an instance has been made of make no second span.
    let instance = llm(llm(options).unwrap().options().clone()).unwrap();
    let model = instance.options().model();
    assert_eq!(
        (model.provider(), model.model_id()),
        ("scripted", "scripted")
    );
    let stream = instance
        .stream(&List::default(), ["canary"], call())
        .unwrap();
    block_on(stream.turn()).unwrap_err();
    let seen = spans(&traces);
    assert_eq!(seen, wanted);
}

#[test]
fn content_is_in_spans_where_it_is_asked_for() {
    let traces = Traces::of("upp");
    let mut capabilities = LlmCapabilities::text();
    capabilities.image_input = true;
    let model = ScriptedModel::new([
        Reply::text("so").calling("c1", "echo", object("{}").unwrap()),
        Reply::text("done"),
    ])
    .with_capabilities(capabilities);
    let options = LlmOptions::new(Arc::new(model))
        .with_system("be brief")
        .with_tool(echo())
        .with_content_in_spans();
    let instance = llm(options).unwrap();
    let image = ContentBlock::image(Source::Base64("canary".into()), "image/png");
    let shown = UserMessage::new(crate::stamp(1), vec![image]);
    let thought = vec![ContentBlock::Reasoning("hm".into())];
    let thought = AssistantMessage::new(crate::stamp(2), thought, None);
    let before = List::from(vec![shown.into(), thought.into()]);
    block_on(instance.generate(&before, ["hi"], call())).unwrap();
    let content: Vec<String> = spans(&traces)
        .into_iter()
        .filter(|line| {
            line.contains("messages")
                || line.contains("system_")
                || line.contains("tool.call.")
                || line.contains("definitions")
        })
        .map(|line| line.replace("\\\"", "'"))
        .collect();
    // Of an image there is its type alone.
    let hi = concat!(
        r#"{'role':'user','parts':[{'type':'image'}]},"#,
        r#"{'role':'assistant','parts':[{'type':'reasoning','content':'hm'}]},"#,
        r#"{'role':'user','parts':[{'type':'text','content':'hi'}]}"#
    );
    let so = r#"{'role':'assistant','parts':[{'type':'text','content':'so'},{'type':'tool_call','id':'c1','name':'echo','arguments':{}}]"#;
    let asked = |messages: &str| {
        [
            format!(r#"gen_ai.input.messages="[{messages}]""#),
            r#"gen_ai.system_instructions="[{'type':'text','content':'be brief'}]""#.into(),
            r#"gen_ai.tool.definitions="[{'type':'function','name':'echo','description':'Echoes','parameters':{}}]""#.into(),
        ]
    };
    let mut wanted = asked(hi).to_vec();
    wanted.extend([
        format!(r#"gen_ai.output.messages="[{so},'finish_reason':'tool_calls'}}]""#),
        r#"gen_ai.tool.call.id="c1""#.into(),
        r#"gen_ai.tool.call.arguments="{}""#.into(),
        r#"gen_ai.tool.call.result="{}""#.into(),
    ]);
    let result =
        r#"{'role':'tool','parts':[{'type':'tool_call_response','id':'c1','response':{}}]}"#;
    wanted.extend(asked(&format!("{hi},{so}}},{result}")));
    wanted.push(r#"gen_ai.output.messages="[{'role':'assistant','parts':[{'type':'text','content':'done'}],'finish_reason':'stop'}]""#.into());
    assert_eq!(content, wanted);
}

#[cfg(feature = "google")]
#[tokio::test]
async fn a_span_says_what_the_vendor_says() {
    use crate::vendor::{drain, events, request, serve};
    use upp::transport::{GoogleModel, ProviderConfig};

    let traces = Traces::of("upp");
    let body = r#"data: {"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":5,"thoughtsTokenCount":2,"cachedContentTokenCount":4},"modelVersion":"g-1","responseId":"r-1"}"#;
    let (url, _server) = serve(events(&format!("{body}\n\n"), 4_096)).await;
    let port = url
        .split(':')
        .nth(2)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let model = GoogleModel::new("g", ProviderConfig::default().with_base_url(url)).unwrap();
    let instance = llm(LlmOptions::new(Arc::new(model))).unwrap();
    let mut asked = request();
    let params = r#"{"generationConfig":{"maxOutputTokens":9,"candidateCount":1}}"#;
    asked.params = Some(Arc::new(object(params).unwrap()));
    drain(instance.options().model().as_ref(), asked)
        .await
        .1
        .unwrap();
    assert_eq!(
        spans(&traces),
        [
            "span chat",
            r#"otel.name="chat g""#,
            r#"otel.kind="client""#,
            r#"gen_ai.operation.name="chat""#,
            r#"gen_ai.provider.name="gcp.gemini""#,
            r#"gen_ai.request.model="g""#,
            "gen_ai.request.stream=true",
            "gen_ai.request.max_tokens=9",
            r#"server.address="127.0.0.1""#,
            &format!("server.port={port}"),
            "gen_ai.response.time_to_first_chunk",
            "gen_ai.usage.input_tokens=11",
            "gen_ai.usage.output_tokens=7",
            "gen_ai.usage.cache_read.input_tokens=4",
            "gen_ai.usage.cache_write.input_tokens=0",
            "gen_ai.usage.reasoning.output_tokens=2",
            r#"gen_ai.response.finish_reasons="STOP""#,
            r#"gen_ai.response.id="r-1""#,
            r#"gen_ai.response.model="g-1""#,
        ]
    );
}
