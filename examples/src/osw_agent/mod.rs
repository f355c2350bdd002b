//! `agent`: the reference agent. A core launches it; it offers five small tools and no others.

use std::process::ExitCode;
use std::time::Duration;

use opensentience_wire::message::{SemVer, ToolSpec};
use opensentience_wire::role::CloseReason;
use opensentience_wire::transport::mcp::{Bridge, BridgeError, NotCarried};
use opensentience_wire::transport::tokio::{Agent, ServeError, ToolContext, ToolError};
use opensentience_wire::{ErrorCode, ErrorObject};
use serde::Deserialize;
use serde_json::{Value, json};
use ubos_common::json::RawObject;

use mission::words::with_causes;

const USAGE: &str = "\
The reference agent of the OpenSentience runtime protocol. A core launches it:

usage: core -- agent [--mcp CMD ARGS...]

It reads OPENSENTIENCE_SOCKET_PATH, OPENSENTIENCE_SESSION_TOKEN and OPENSENTIENCE_AGENT_ID, and offers
hello_world, stream_counter, sleep, invalid_input and large_output.

  --mcp CMD ARGS...  offers the tools of that MCP server instead, which speaks on its standard input and output

exit codes: 0 the core said goodbye or is gone, 2 usage or no core's environment, 3 refused or broken
";

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let server = match arguments.split_first() {
        None => None,
        Some((help, _)) if matches!(help.as_str(), "--help" | "-h") => {
            let _ = std::io::Write::write_all(&mut std::io::stdout(), USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Some((mcp, [command, arguments @ ..])) if mcp == "--mcp" => Some((command, arguments)),
        Some(_) => {
            note!("agent: takes no arguments but --mcp CMD ARGS...; --help tells more");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => {
            note!("agent: {err}");
            return ExitCode::from(3);
        }
    };
    let served = match server {
        None => runtime.block_on(reference().serve_from_env()),
        Some((command, arguments)) => {
            if std::env::var_os("OPENSENTIENCE_SESSION_TOKEN").is_none() {
                let lacking = ServeError::Environment("OPENSENTIENCE_SESSION_TOKEN");
                note!("agent: {lacking}; --help tells more");
                return ExitCode::from(2);
            }
            match runtime.block_on(bridge(command, arguments)) {
                Ok(served) => served,
                Err(err) => {
                    note!("agent: {}", with_causes(&err));
                    return ExitCode::from(3);
                }
            }
        }
    };
    match served {
        Ok(_) => ExitCode::SUCCESS,
        Err(err @ ServeError::Environment(_)) => {
            note!("agent: {err}; --help tells more");
            ExitCode::from(2)
        }
        Err(err) => {
            note!("agent: {err}");
            ExitCode::from(3)
        }
    }
}

/// Serves the tools of an MCP server.
async fn bridge(
    command: &str,
    arguments: &[String],
) -> Result<Result<CloseReason, ServeError>, BridgeError> {
    let mut server = tokio::process::Command::new(command);
    server.args(arguments);
    let bridge = Bridge::launch(server).await?;
    let told = |losses: &[NotCarried]| {
        for loss in losses {
            note!("agent: {loss}");
        }
    };
    told(bridge.not_carried());
    let bridge = bridge.with_on_change(move |changed| match changed {
        Ok(losses) => told(&losses),
        Err(why) => note!("agent: the tools stay what they were: {why}"),
    });
    Ok(bridge.serve_from_env().await)
}

/// The agent with its five tools. Inputs are held against their schemas before a tool runs.
#[must_use]
pub fn reference() -> Agent {
    let version = env!("CARGO_PKG_VERSION")
        .parse::<SemVer>()
        .unwrap_or_else(|_| unreachable!("cargo checks it"));
    Agent::new(version)
        .tool(
            spec(
                "hello_world",
                "Says hello",
                &json!({"name": {"type": "string", "maxLength": 1000}}),
                &[],
            ),
            hello_world,
        )
        .tool(
            spec(
                "stream_counter",
                "Counts, a piece of output each",
                &json!({"count": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
                        "delay_ms": {"type": "integer", "minimum": 0, "maximum": 60_000}}),
                &["count"],
            ),
            stream_counter,
        )
        .tool(
            spec(
                "sleep",
                "Sleeps; can be cancelled",
                &json!({"ms": {"type": "integer", "minimum": 0}}),
                &["ms"],
            ),
            sleep,
        )
        .tool(
            spec(
                "invalid_input",
                "Takes an integer and nothing else",
                &json!({"value": {"type": "integer"}}),
                &["value"],
            ),
            invalid_input,
        )
        .tool(
            spec(
                "large_output",
                "Answers with so many bytes",
                &json!({"bytes": {"type": "integer", "minimum": 0}}),
                &["bytes"],
            ),
            large_output,
        )
}

fn spec(name: &str, about: &str, properties: &Value, required: &[&str]) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let mut spec = ToolSpec::local(name, about, object(&schema));
    spec.side_effects = Some(false);
    spec
}

fn object(value: &Value) -> RawObject {
    RawObject::from_serialize(value)
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// An input, in its type. The schema has let it pass, so only a number out of range is left to refuse.
fn typed<T: for<'de> Deserialize<'de>>(input: &RawObject) -> Result<T, ToolError> {
    input
        .deserialize()
        .map_err(|_| ToolError::invalid_input("a number out of range"))
}

async fn hello_world(_: ToolContext, input: RawObject) -> Result<RawObject, ToolError> {
    #[derive(Deserialize)]
    struct Input {
        name: Option<String>,
    }
    let input: Input = typed(&input)?;
    let name = input.name.unwrap_or_else(|| "world".to_owned());
    Ok(object(&json!({ "message": format!("Hello, {name}!") })))
}

async fn stream_counter(context: ToolContext, input: RawObject) -> Result<RawObject, ToolError> {
    #[derive(Deserialize)]
    struct Input {
        count: u64,
        #[serde(default)]
        delay_ms: u64,
    }
    let input: Input = typed(&input)?;
    for n in 1..=input.count {
        tokio::select! {
            sent = context.send(n.to_string()) => sent.map_err(|_| ToolError::canceled())?,
            () = context.cancelled() => return Err(ToolError::canceled()),
        }
        if input.delay_ms > 0 {
            pause(&context, input.delay_ms).await?;
        }
    }
    Ok(object(&json!({ "count": input.count })))
}

async fn sleep(context: ToolContext, input: RawObject) -> Result<RawObject, ToolError> {
    #[derive(Deserialize)]
    struct Input {
        ms: u64,
    }
    let input: Input = typed(&input)?;
    pause(&context, input.ms).await?;
    Ok(object(&json!({ "slept_ms": input.ms })))
}

async fn pause(context: &ToolContext, millis: u64) -> Result<(), ToolError> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(millis)) => Ok(()),
        () = context.cancelled() => Err(ToolError::canceled()),
    }
}

async fn invalid_input(_: ToolContext, input: RawObject) -> Result<RawObject, ToolError> {
    // Whatever is no integer was refused before.
    Ok(input)
}

async fn large_output(_: ToolContext, input: RawObject) -> Result<RawObject, ToolError> {
    #[derive(Deserialize)]
    struct Input {
        bytes: u64,
    }
    let input: Input = typed(&input)?;
    let limit = 2 << 20;
    // The library would refuse it, too; here nothing is even made of it.
    let bytes = usize::try_from(input.bytes)
        .ok()
        .filter(|bytes| *bytes <= limit);
    let Some(bytes) = bytes else {
        let message = format!(
            "{} bytes where {limit} are allowed; ask for less",
            input.bytes
        );
        return Err(ErrorObject::of(ErrorCode::ToolOutputTooLarge, message).into());
    };
    Ok(object(&json!({ "data": "x".repeat(bytes) })))
}
