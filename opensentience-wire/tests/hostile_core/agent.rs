//! The agent under attack.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use opensentience_wire::message::ToolSpec;
use opensentience_wire::transport::tokio::Agent;
use ubos_common::json::{RawBuf, RawObject};

/// The variable that makes the program the agent.
pub(crate) const ROLE: &str = "OSW_HOSTILE_CORE_AGENT";
/// The variable that names the file in which it keeps the most tasks that it has had.
pub(crate) const TASKS: &str = "OSW_HOSTILE_CORE_TASKS";

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
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(input)
        });
    // As `Agent::run` does, so that the runtime can be looked at.
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    if let Some(file) = std::env::var_os(TASKS) {
        let metrics = runtime.metrics();
        std::thread::spawn(move || watch(&metrics, file.as_ref()));
    }
    // However it ends: the core sees that it does.
    drop(runtime.block_on(agent.serve_from_env()));
}

/// Looks again and again how many tasks there are.
#[expect(clippy::disallowed_types, reason = "the test reads it")]
fn watch(metrics: &tokio::runtime::RuntimeMetrics, file: &Path) {
    let mut file = std::fs::File::options().append(true).open(file).unwrap();
    let mut most = 0;
    loop {
        let now = metrics.num_alive_tasks();
        if now > most {
            most = now;
            writeln!(file, "{most}").unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
