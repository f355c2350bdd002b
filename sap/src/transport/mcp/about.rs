//! Tools about a task that was sent before.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::tools;
use crate::ident::{AgentId, TaskId};
use crate::receipt::Nack;
use crate::task::Task;
use crate::transport::{About, Caller, Message, Service};

/// What a tool does with the task. No capability has such a name: there is a dot in each.
pub(super) enum Asks {
    Status,
    Cancel,
    Follow,
}

pub(super) const STATUS: &str = "sap_status";
pub(super) const CANCEL: &str = "sap_cancel";
pub(super) const FOLLOW: &str = "sap_follow";

impl Asks {
    pub(super) fn of(tool: &str) -> Option<Self> {
        match tool {
            STATUS => Some(Self::Status),
            CANCEL => Some(Self::Cancel),
            FOLLOW => Some(Self::Follow),
            _ => None,
        }
    }

    /// What is said of the task; one that is followed is told of on the way, until the client gives its call up.
    pub(super) async fn answer(
        &self,
        service: &Service,
        arguments: &JsonObject,
        caller: &mut dyn Caller,
    ) -> Message {
        let text = |name| arguments.get(name).and_then(Value::as_str);
        let issuer = text(ISSUER).and_then(|issuer| issuer.parse::<AgentId>().ok());
        let task_id = text(TASK_ID).and_then(|id| id.parse::<TaskId>().ok());
        let Some((issuer, task_id)) = issuer.zip(task_id) else {
            let why = "a task is asked about by \"issuer\" and \"taskId\"";
            return Message::Nack(service.note(Nack::malformed(why)).await);
        };
        let mut about = match service.about(&caller.peer(), &issuer, &task_id).await {
            Ok(about) => about,
            Err(nack) => return Message::Nack(nack),
        };
        match self {
            Self::Status => about.latest().await,
            Self::Cancel => about.cancel().await,
            Self::Follow => follow(&mut about, caller).await,
        }
    }
}

async fn follow(about: &mut About, caller: &mut dyn Caller) -> Message {
    let mut last = about.latest().await;
    let given_up = caller.cancelled();
    let following = async {
        while let Some(message) = about.next().await {
            caller.tell(message.clone()).await;
            last = message;
        }
    };
    match given_up {
        Some(given_up) => tokio::select! {
            () = following => {}
            () = given_up => {}
        },
        None => following.await,
    }
    last
}

/// What these tools take.
pub(super) fn arguments(task: &Task) -> JsonObject {
    let members = [
        (ISSUER, task.issuer.agent_id.to_string()),
        (TASK_ID, task.task_id.to_string()),
    ];
    let members = members.map(|(name, text)| (name.to_owned(), Value::String(text)));
    members.into_iter().collect()
}

pub(super) fn tools() -> impl Iterator<Item = Tool> {
    let tools = [
        (
            STATUS,
            "How far a task of SAP V2.0 is: its latest TaskResult, or an Ack where it has none yet.",
        ),
        (
            CANCEL,
            "Has a task of SAP V2.0 stopped, and says how far it is.",
        ),
        (
            FOLLOW,
            "Waits for the end of a task of SAP V2.0; its last TaskResult.",
        ),
    ];
    tools.into_iter().map(|(name, about)| {
        Tool::new(name, about, schema()).with_raw_output_schema(tools::answer(None))
    })
}

fn schema() -> Arc<JsonObject> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let mut schema = JsonObject::new();
    schema.insert("type".into(), "object".into());
    let properties = json!({
        ISSUER: text("the agent that issued the task"),
        TASK_ID: text("the id of the task"),
    });
    schema.insert("properties".into(), properties);
    schema.insert("required".into(), json!([ISSUER, TASK_ID]));
    Arc::new(schema)
}

const ISSUER: &str = "issuer";
const TASK_ID: &str = "taskId";
