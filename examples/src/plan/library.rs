//! A library file: verbs, tools and agents.

use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

ubos_common::wire! {
    /// What a library file holds.
    struct Library {
        optional verbs: Vec<VerbDef> = "verbs", "SACP-10-1";
        optional tools: Vec<ToolDef> = "tools", "SACP-10-1";
        optional agents: Vec<AgentRecord> = "agents", "SACP-11-1";
    }
}

/// Reads a library and registers all of it.
pub fn read(bytes: &[u8]) -> Result<MemoryRegistry, String> {
    let (library, _) = json::decode::<Library>(bytes, &Limits::default(), Profile::Strict)
        .map_err(|refused| refused.to_string())?;
    // A message, or a word misspelt, must not pass for a library without anything in it.
    if let Some((name, _)) = library.extra.iter().next() {
        return Err(format!("{name:?} is none of verbs, tools and agents"));
    }
    let mut registry = MemoryRegistry::default();
    let register = || {
        for verb in library.verbs.into_iter().flatten() {
            registry.add_verb(verb)?;
        }
        for tool in library.tools.into_iter().flatten() {
            registry.add_tool(tool)?;
        }
        for agent in library.agents.into_iter().flatten() {
            registry.add_agent(agent)?;
        }
        Ok::<_, sacp::registry::RegistryError>(())
    };
    register().map_err(|refused| refused.to_string())?;
    Ok(registry)
}
