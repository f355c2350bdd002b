//! A core and an agent, wired in memory: the agent registers a tool and runs one call.

use opensentience_wire::message::{SemVer, ToolSpec};
use opensentience_wire::role::agent::{self, AgentConnection};
use opensentience_wire::role::core::{self, CallRequest, CoreConnection};
use opensentience_wire::role::Input;
use opensentience_wire::ubos_common::id::IdSource;
use opensentience_wire::ubos_common::json::{RawBuf, RawObject};
use opensentience_wire::ubos_common::time::{Mono, Now, Timestamp};
use opensentience_wire::{Grant, SessionToken};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let token = || SessionToken::from_random([9; 32]);
    let grant = Grant::new(now.mono, token(), "com.example.a");
    let config = core::Config::default();
    let mut core = CoreConnection::new(now, config, IdSource::seeded(1), Some(grant))?;
    let version = "1.0.0".parse()?;
    let config = agent::Config::new("com.example.a", version, token());
    let mut agent = AgentConnection::new(now, config, IdSource::seeded(2))?;
    let mut ended = false;
    for _ in 0..20 {
        while let Some(output) = agent.poll_output() {
            match output {
                agent::Output::Transmit(bytes) => core.handle_input(now, Input::Bytes(&bytes))?,
                agent::Output::Event(agent::Event::Welcomed { .. }) => {
                    let schema = RawBuf::parse(r#"{"type":"object"}"#)?;
                    let schema = RawObject::new(schema).ok_or("an object")?;
                    agent.register(now, vec![ToolSpec::local("echo", "echoes", schema)], false)?;
                }
                agent::Output::Call(call) => {
                    agent.finish(now, &call.call_id, Ok(RawObject::empty()))?;
                }
                _ => {}
            }
        }
        while let Some(output) = core.poll_output() {
            match output {
                core::Output::Transmit(bytes) => agent.handle_input(now, Input::Bytes(&bytes))?,
                core::Output::Event(core::Event::ToolsChanged) => {
                    let request = CallRequest::new("com.example.a/echo", RawObject::empty());
                    core.call_tool(now, request)?;
                }
                core::Output::Event(core::Event::Ended(_, outcome)) => {
                    outcome.into_result()?;
                    ended = true;
                }
                _ => {}
            }
        }
    }
    assert!(ended);
    Ok(())
}
