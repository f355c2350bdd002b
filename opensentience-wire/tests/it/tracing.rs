//! Spans with ids, and nothing of a payload or a token.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use opensentience_wire::message::{Actor, ActorType, CallContext, Channel, SemVer, ToolSpec};
use opensentience_wire::role::agent::{self, Chunk};
use opensentience_wire::role::core::{CallRequest, Config};
use opensentience_wire::transport::tokio::{Agent, AuditSink, ToolError, attach};
use opensentience_wire::{
    AuditEvent, CommandError, EncodeError, ErrorCode, ErrorObject, Grant, SessionToken,
};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Level, Metadata, Subscriber};
use ubos_common::id::IdSource;
use ubos_common::os::Clock;
use ubos_common::testing::Traces;

use crate::kit::{AGENT, RequestExt as _, frame, hello, object, spec, token};

/// A tool whose texts and schemas have a canary each.
fn described() -> ToolSpec {
    let mut tool = spec("described");
    tool.description = "canary-description".into();
    tool.input_schema = object(&json!({"type": "object", "title": "canary-schema"}));
    tool.output_schema = Some(object(&json!({"title": "canary-schema"})));
    tool.tags = Some(vec!["canary-tag".into()]);
    tool
}

// spec: OSW-7-2
#[tokio::test]
async fn spans_have_ids_and_neither_payload_nor_token() {
    let traces = Traces::of("");
    let (near, far) = tokio::io::duplex(4_096);
    let tools = Agent::new("1.0.0".parse::<SemVer>().unwrap())
        .tool(spec("echo"), async |context, input| {
            context
                .send("canary-out")
                .await
                .map_err(|_| ToolError::canceled())?;
            context
                .send(Chunk::text(Channel::Log, "canary-log"))
                .await
                .map_err(|_| ToolError::canceled())?;
            let part = object(&json!({"canary-part": "canary"}));
            context
                .send(Chunk::partial(part))
                .await
                .map_err(|_| ToolError::canceled())?;
            Ok(input)
        })
        .tool(spec("fail"), async |_, _| {
            Err(ToolError::failed("canary-error"))
        })
        .tool(spec("detail"), async |_, _| {
            let mut error = ErrorObject::of(ErrorCode::ToolFailed, "canary-error");
            error.details = Some(object(&json!({"canary-detail": "canary"})));
            error.debug = Some(object(&json!({"canary-debug": "canary"})));
            Err(error.into())
        })
        .tool(described(), async |_, input| Ok(input))
        .tool(spec("panic"), async |_, _| panic!("canary-panic"));
    let config = agent::Config::new(AGENT, "1.0.0".parse::<SemVer>().unwrap(), token());
    let serving = tokio::spawn(tools.serve(far, config));
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
    let core = attach(near, clock, Config::default(), ids, grant, audit);
    let mut core = core.await.unwrap();
    core.tools_changed().await;
    let mut ids = Vec::new();
    for tool in ["echo", "fail", "detail", "panic"] {
        let input = object(&json!({"password": "canary-input"}));
        let mut request = CallRequest::new(format!("{AGENT}/{tool}"), input);
        let mut context = CallContext::new();
        context.project_root = Some("canary-root".into());
        context.resource_paths = Some(vec!["canary-path".into()]);
        context.ui = Some(object(&json!({"canary-ui": "canary"})));
        request.context = Some(context);
        request.idempotency_key = Some(format!("canary-key-{tool}"));
        let mut actor = Actor::new(ActorType::Human, "ada".into());
        actor.display = Some("canary-display".into());
        request.actor = Some(actor);
        let call = core.call(request.with_correlation_id("mission-7"));
        let call = call.await.unwrap();
        ids.push(call.id().to_string());
        call.result().await;
    }
    let request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({})));
    let refused = core.call(request.with_correlation_id(token().expose()));
    assert!(matches!(
        refused.await.unwrap_err(),
        CommandError::Encode(EncodeError::HoldsToken)
    ));
    core.shutdown().await;
    serving.await.unwrap().unwrap();
    let said = traces.text();
    for wanted in [
        "span protocol.handshake".to_owned(),
        "open=true".into(),
        "span tool_router.call".into(),
        "span tool.execute".into(),
        format!("tool_id={AGENT}/echo"),
        format!("call_id={}", ids[0]),
        "correlation_id=mission-7".into(),
        "status=succeeded".into(),
        "code=tool.failed".into(),
        "code=tool.internal".into(),
        "name=agent.connected".into(),
        "reason=Goodbye".into(),
        "a call was taken".into(),
        "a tool waits".into(),
        "a connection has ended".into(),
    ] {
        assert!(said.contains(&wanted), "{wanted} in {said}");
    }
    // Of each call on both sides.
    for named in ["correlation_id=mission-7", "tool_id="] {
        let lines = said.lines().filter(|line| line.starts_with(named));
        assert_eq!(lines.count(), 2 * ids.len(), "{named}");
    }
    // There, and in the record.
    let ends = |start: &str| said.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(ends("status="), 3 * ids.len());
    assert_eq!(ends("code=tool.failed"), 2 * 2);
    assert!(!said.contains("canary") && !said.contains(token().expose()));
}

#[tokio::test]
async fn a_sink_that_panics_is_traced() {
    let traces = Traces::of("");
    let (near, mut far) = tokio::io::duplex(4_096);
    far.write_all(&frame(&hello())).await.unwrap();
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let audit = AuditSink::from(|_: AuditEvent| panic!("nobody's business"));
    let core = attach(
        near,
        clock,
        Config::default(),
        IdSource::seeded(1),
        grant,
        audit,
    );
    core.await.unwrap();
    let said = traces.text();
    assert!(
        said.contains("an audit sink or an observer panicked"),
        "{said}"
    );
}

/// The level of each record of the audit, by its name.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<BTreeMap<String, Level>>>);

#[derive(Default)]
struct Name(String);

impl Visit for Name {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "name" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Levels {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "osw::audit"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut name = Name::default();
        event.record(&mut name);
        self.0
            .lock()
            .unwrap()
            .insert(name.0, *event.metadata().level());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

// spec: OSW-8-1
#[tokio::test]
async fn a_record_of_the_audit_has_the_level_of_its_severity() {
    let levels = Levels::default();
    // Other tests reach the same events: with a second one each thread's subscriber is asked.
    let _second = Dispatch::new(levels.clone());
    let _default = tracing::subscriber::set_default(levels.clone());
    for granted in [token(), SessionToken::from_random([1; 32])] {
        let (near, mut far) = tokio::io::duplex(4_096);
        far.write_all(&frame(&hello())).await.unwrap();
        let clock = Clock::start();
        let grant = Grant::new(clock.now().mono, granted, AGENT);
        let (ids, audit) = (IdSource::seeded(1), AuditSink::default());
        let core = attach(near, clock, Config::default(), ids, grant, audit).await;
        drop(far);
        if let Ok(core) = core {
            core.shutdown().await;
        }
    }
    let levels = levels.0.lock().unwrap();
    assert_eq!(levels["agent.connected"], Level::DEBUG);
    assert_eq!(levels["agent.disconnected"], Level::WARN);
    assert_eq!(levels["agent.handshake_failed"], Level::ERROR);
}
