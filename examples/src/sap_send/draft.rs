//! A task from options.

use sap::{
    AgentKind, CacheMode, CachePolicy, ConstitutionalContext, Issuer, PressureLevel, Target, Task,
};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::os::Clock;

use super::args::Draft;

/// The task, or what is wrong with the options.
pub fn task(draft: &Draft) -> Result<Task, String> {
    let payload = draft.payload.as_deref().unwrap_or("{}");
    let payload = RawBuf::parse(payload).ok().and_then(RawObject::new);
    let payload = payload.ok_or("--payload is no JSON object")?;
    let issuer = draft.issuer.as_deref().unwrap_or("sap-send");
    let issuer = issuer
        .parse()
        .map_err(|error| format!("--issuer: {error}"))?;
    let capability = draft.capability.parse();
    let mut target = Target::new(capability.map_err(|error| format!("--capability: {error}"))?);
    target.agent_id.clone_from(&draft.agent);
    let level = match draft.level.as_deref() {
        None | Some("instant") => PressureLevel::Instant,
        Some("consulted") => PressureLevel::Consulted,
        Some("deliberated") => PressureLevel::Deliberated,
        Some(_) => return Err("--level is instant, consulted or deliberated".into()),
    };
    let mut context = ConstitutionalContext::new(level);
    context.territory.clone_from(&draft.territory);
    context.cache_policy = cache(draft.cache.as_deref())?;
    let mut ids = IdSource::from_os().map_err(|error| error.to_string())?;
    Ok(Task::draft(
        &mut ids,
        Clock::start().now().wall,
        Issuer::new(issuer, AgentKind::User),
        target,
        context,
        payload,
    ))
}

fn cache(mode: Option<&str>) -> Result<Option<CachePolicy>, String> {
    let mode = match mode {
        None => return Ok(None),
        Some("prefer") => CacheMode::Prefer,
        Some("only") => CacheMode::Only,
        Some("bypass") => CacheMode::Bypass,
        Some(_) => return Err("--cache is prefer, only or bypass".into()),
    };
    let mut policy = CachePolicy::new();
    policy.mode = Some(mode);
    Ok(Some(policy))
}
