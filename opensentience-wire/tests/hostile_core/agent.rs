//! The agent under attack.

use opensentience_wire::message::ToolSpec;
use opensentience_wire::transport::tokio::Agent;
use ubos_common::json::{RawBuf, RawObject};

/// The variable that makes the program the agent.
pub(crate) const ROLE: &str = "OSW_HOSTILE_CORE_AGENT";

/// An agent with tools that answer, write without end, never return, and block.
pub(crate) fn run() {
    let spec = |name: &str| ToolSpec::local(name, "of a test", RawObject::empty());
    let agent = Agent::new("1.0.0".parse().unwrap())
        .tool(spec("echo"), async |_, input| Ok(input))
        .tool(spec("long"), async |_, _| {
            let output = format!(r#"{{"text":"{}"}}"#, "x".repeat(1_900_000));
            Ok(RawObject::new(RawBuf::parse(&output)?).unwrap_or_default())
        })
        .tool(spec("write"), async |context, _| {
            loop {
                context.send("x".repeat(100_000)).await?;
            }
        })
        .tool(spec("wait"), async |context, _| {
            context.cancelled().await;
            core::future::pending().await
        })
        .blocking_tool(spec("block"), |context, input| {
            while !context.is_cancelled() {
                std::thread::sleep(core::time::Duration::from_millis(5));
            }
            Ok(input)
        });
    // However it ends: the core sees that it does.
    drop(agent.run());
}
