//! The reference agent: launched by a core, it serves five small tools.

use core::time::Duration;

use opensentience_wire::message::ToolSpec;
use opensentience_wire::transport::tokio::{Agent, ToolError};
use opensentience_wire::ubos_common::json::{RawBuf, RawObject};

fn object(text: &str) -> RawObject {
    let value = RawBuf::parse(text).ok().and_then(RawObject::new);
    value.unwrap_or_default()
}

fn spec(name: &str, description: &str) -> ToolSpec {
    ToolSpec::local(name, description, object(r#"{"type":"object"}"#))
}

/// A number in the input, or a default.
fn number(input: &RawObject, name: &str, default: u64) -> u64 {
    let value: Option<serde_json::Value> = input.deserialize().ok();
    let found = value.and_then(|value| value.get(name)?.as_u64());
    found.unwrap_or(default)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let version = env!("CARGO_PKG_VERSION").parse()?;
    let agent = Agent::new(version)
        .tool(spec("hello_world", "says hello"), async |_, _| {
            Ok(object(r#"{"text":"hello, world"}"#))
        })
        .tool(
            spec("stream_counter", "counts to n"),
            async |context, input| {
                for n in 1..=number(&input, "n", 3) {
                    let sent = context.send(n.to_string()).await;
                    sent.map_err(|_| ToolError::canceled())?;
                }
                Ok(object("{}"))
            },
        )
        .tool(
            spec("sleep", "sleeps for ms milliseconds"),
            async |context, input| {
                let span = Duration::from_millis(number(&input, "ms", 1_000));
                tokio::select! {
                    () = tokio::time::sleep(span) => Ok(object("{}")),
                    () = context.cancelled() => Err(ToolError::canceled()),
                }
            },
        )
        .tool(spec("invalid_input", "takes no input"), async |_, _| {
            Err(ToolError::invalid_input("this tool takes nothing at all"))
        })
        .tool(
            spec("large_output", "answers with n bytes"),
            async |_, input| {
                let bytes = usize::try_from(number(&input, "n", 3 << 20)).unwrap_or(0);
                let text = "x".repeat(bytes.min(16 << 20));
                Ok(object(&format!("{{\"text\":\"{text}\"}}")))
            },
        );
    agent.serve_from_env().await?;
    Ok(())
}
