//! What the agent can do.

use std::time::Duration;

use uap_hub_proto::transport::client::{AgentBuilder, Context, HandlerError};
use uap_hub_proto::wire::{
    Payload, PayloadRequirement, Severity, StepReport, StepStatus, TestCapability, TestResult,
    TranslationCapability, TranslationResult,
};

/// Bytes that are echoed as words, too.
const MAX_WORDS: usize = 1_000;

/// The payload type of all that it does.
const TEXT: &str = "text";

/// An agent of a name with the three tests and the translation.
#[must_use]
pub fn agent(name: &str) -> AgentBuilder {
    let upper_takes = TranslationCapability {
        r#type: "upper".to_owned(),
        source_payloads: vec![texts(true)],
        target_payloads: vec![texts(true)],
    };
    AgentBuilder::new(name)
        .on_test(takes("echo", true), echo)
        .on_test(takes("sleep", false), sleep)
        .on_test(takes("fail", false), fail)
        .on_translation(upper_takes, upper)
}

fn takes(name: &str, is_required: bool) -> TestCapability {
    TestCapability {
        r#type: name.to_owned(),
        payloads: vec![texts(is_required)],
    }
}

fn texts(is_required: bool) -> PayloadRequirement {
    PayloadRequirement {
        r#type: TEXT.to_owned(),
        is_required,
        is_repeatable: true,
        accepted_mime_types: Vec::new(),
    }
}

async fn echo(payloads: Vec<Payload>, context: Context) -> Result<TestResult, HandlerError> {
    let texts: Vec<_> = payloads
        .into_iter()
        .filter(|one| one.r#type == TEXT)
        .collect();
    let first = texts
        .first()
        .ok_or_else(|| HandlerError::invalid("no text"))?;
    let words = match first.data() {
        short if short.len() <= MAX_WORDS => String::from_utf8_lossy(short).into_owned(),
        long => format!("{} bytes", long.len()),
    };
    let mut result = TestResult::completed(words);
    for (n, text) in texts.iter().enumerate() {
        context.progress(n + 1, texts.len(), "echoed").await?;
        let name = text.attachment.as_ref().map_or("", |file| &file.name);
        result = result.with_report(StepReport::new(name, StepStatus::Passed));
        result.attachments.extend(text.attachment.clone());
    }
    Ok(result)
}

async fn sleep(payloads: Vec<Payload>, context: Context) -> Result<TestResult, HandlerError> {
    let millis = match said(&payloads)? {
        Some(text) => text.trim().parse().map_err(|_| {
            HandlerError::invalid("the payload of type text is no number of milliseconds")
        })?,
        None => 1_000,
    };
    context
        .log(Severity::Info, format!("sleeping {millis} ms"))
        .await?;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(TestResult::completed(format!("slept {millis} ms")))
}

async fn fail(payloads: Vec<Payload>, _: Context) -> Result<TestResult, HandlerError> {
    let words = said(&payloads)?.unwrap_or("failed as it was told");
    Err(HandlerError::new(words))
}

async fn upper(payloads: Vec<Payload>, _: Context) -> Result<TranslationResult, HandlerError> {
    let mut made = Vec::new();
    for mut payload in payloads.into_iter().filter(|one| one.r#type == TEXT) {
        let capitals = utf8(&payload)?.to_uppercase();
        if let Some(file) = &mut payload.attachment {
            file.data = capitals.into();
        }
        made.push(payload);
    }
    Ok(TranslationResult::completed(made))
}

/// The first payload of type text.
fn said(payloads: &[Payload]) -> Result<Option<&str>, HandlerError> {
    let text = payloads.iter().find(|one| one.r#type == TEXT);
    text.map(utf8).transpose()
}

fn utf8(payload: &Payload) -> Result<&str, HandlerError> {
    std::str::from_utf8(payload.data())
        .map_err(|_| HandlerError::invalid("a payload of type text is no UTF-8"))
}
