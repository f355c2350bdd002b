//! What the tools of a server say of themselves, and those about a task that was called before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sap::processor::{
    Access, AllowAll, Authorize, Context, Identity, Outcome, Peer, Progress, Speakers, Table,
};
use sap::transport::Service;
use ubos_common::json::RawObject;

use super::super::world::{Real, text};
use super::*;

// spec: SAP-10-3
#[tokio::test]
async fn the_tools_about_a_task_take_its_issuer_and_its_id() {
    let mcp = OverMcp::start(&Seen::default(), Config::default()).await;
    let tools = mcp.asking.list_all_tools().await.unwrap();
    let about: Vec<_> = tools
        .iter()
        .filter(|tool| tool.name.starts_with("sap_"))
        .collect();
    assert_eq!(about.len(), 3);
    let whole = json!({"issuer": "A-prime", "taskId": "an id"});
    for tool in about {
        let schema = Value::Object((*tool.input_schema).clone());
        let takes = jsonschema::validator_for(&schema).unwrap();
        assert!(takes.is_valid(&whole));
        for member in ["/issuer", "/taskId"] {
            assert!(!takes.is_valid(&with(whole.clone(), member, None)));
            assert!(!takes.is_valid(&with(whole.clone(), member, Some(json!(7)))));
        }
        assert!(!takes.is_valid(&json!([])), "{schema}");
    }
}

// spec: SAP-10-3
#[tokio::test]
async fn a_tool_has_no_definitions_that_it_does_not_use() {
    let mcp = OverMcp::start(&Seen::default(), Config::default()).await;
    for tool in mcp.asking.list_all_tools().await.unwrap() {
        for schema in [Some(tool.input_schema), tool.output_schema] {
            let schema = Value::Object((*schema.unwrap()).clone());
            let text = schema.to_string();
            let definitions = schema["$defs"].as_object();
            for name in definitions.into_iter().flat_map(|them| them.keys()) {
                let reference = format!(r##""$ref":"#/$defs/{name}""##);
                assert!(text.contains(&reference), "{}: {name}", tool.name);
            }
        }
    }
}

// spec: SAP-10-3
#[tokio::test]
async fn one_who_follows_a_task_is_shown_its_parts() {
    let seen = Seen::default();
    let gate = Arc::clone(&seen.gate);
    let processor = seen.processor(Config::default());
    let processor = processor.authorize(Arc::new(AllowAll));
    let processor = processor.handle("test.wait".parse().unwrap(), move |mut cx: Context| {
        let gate = Arc::clone(&gate);
        async move {
            let part = Progress::partial(text("2"), vec![RawObject::empty()]);
            cx.report(part).await;
            while !gate.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(Outcome::new(text("3")))
        }
    });
    let server = Server::from(Service::new(Arc::new(processor), Arc::new(Real::default())));
    let (here, there) = tokio::io::duplex(1 << 21);
    let watching = Watching::default();
    let asking = watching.clone().serve(here);
    let (answering, asking) = futures::future::join(server.serve(there), asking).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let task = ask(1, "test.wait");
    let ids = json!({"issuer": task["issuer"]["agentId"], "taskId": task["taskId"]});
    let call = async |tool: &str, arguments: &Value| {
        let call = CallToolRequestParams::new(tool.to_owned());
        let call = call.with_arguments(arguments.as_object().unwrap().clone());
        message(&asking.call_tool(call).await.unwrap())
    };
    let told = || watching.0.lock().unwrap().len();
    let follow = async {
        // The task, RUNNING and PARTIAL, of which its caller is shown the last.
        until(|| seen.entries() == 3 && told() == 1).await;
        let following = call("sap_follow", &ids);
        let open = async {
            until(|| told() == 2).await;
            seen.gate.store(true, Ordering::SeqCst);
        };
        futures::future::join(following, open).await.0
    };
    let (called, followed) = futures::future::join(call("test.wait", &task), follow).await;
    assert_eq!(called, followed);
    let told = watching.0.lock().unwrap();
    assert_eq!(told[0], told[1]);
}

/// Lets everybody in, and says nothing of what it shows.
#[derive(Debug)]
struct Quiet;

impl Authorize for Quiet {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> sap::BoxFuture<'a, Access> {
        Box::pin(std::future::ready(Access::Allowed))
    }
}

/// Panics when it is asked what it shows.
#[derive(Debug)]
struct Broken;

impl Authorize for Broken {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> sap::BoxFuture<'a, Access> {
        Box::pin(std::future::ready(Access::Allowed))
    }

    fn shows(&self, _: &Peer, _: &sap::Capability) -> bool {
        panic!("a hook's own fault")
    }
}

/// The capabilities that a peer is told of by a processor with this hook, or nothing where there is no list.
async fn listed(authorize: Arc<dyn Authorize>, peer: Peer) -> Option<Vec<String>> {
    let processor = Seen::default().processor(Config::default());
    let processor = processor.authorize(authorize);
    let service = Service::new(Arc::new(processor), Arc::new(Real::default()));
    let (here, there) = tokio::io::duplex(1 << 21);
    let server = Server::from(service).with_peer(peer).serve(there);
    let (answering, asking) = futures::future::join(server, ().serve(here)).await;
    let (_answering, asking) = (answering.unwrap(), asking.unwrap());
    let tools = asking.list_all_tools().await.ok()?;
    let (about, tools): (Vec<_>, Vec<_>) = tools
        .into_iter()
        .map(|tool| tool.name.to_string())
        .partition(|name| name.starts_with("sap_"));
    assert_eq!(about.len(), 3);
    Some(tools)
}

// spec: SAP-11-2
#[tokio::test]
async fn a_peer_is_told_of_the_capabilities_that_it_may_know() {
    let agent = || "A-prime".parse().unwrap();
    let table = || Table::default().allow(agent(), "test.echo".parse().unwrap());
    let speakers = |then| Speakers::new(then).allow(Identity::SameProcess, agent());
    let (table, behind): (Arc<dyn Authorize>, Arc<dyn Authorize>) =
        (Arc::new(table()), Arc::new(speakers(Arc::new(table()))));
    let one = Some(vec!["test.echo".to_owned()]);
    let stranger = Peer::default;
    assert_eq!(listed(table, stranger()).await, one);
    assert_eq!(listed(Arc::clone(&behind), stranger()).await, Some(vec![]));
    assert_eq!(listed(behind, Peer::same_process()).await, one);
    assert_eq!(listed(Arc::new(Quiet), stranger()).await, Some(vec![]));
    let all = listed(Arc::new(AllowAll), stranger()).await.unwrap();
    assert!(all.len() > 1 && all.contains(&"test.echo".to_owned()));
    assert_eq!(listed(Arc::new(Broken), stranger()).await, None);
}
