//! What the agent does.

use std::time::Duration;

use sap::processor::{Context, HandlerError, Outcome, Progress, Shape};
use serde_json::{Value, json};
use ubos_common::json::{RawBuf, RawObject};

/// `text.upper`: the text in upper case.
pub async fn upper(cx: Context) -> Result<Outcome, HandlerError> {
    let payload = payload(&cx)?;
    let text = payload.get("text").and_then(Value::as_str);
    let text = text.ok_or_else(|| HandlerError::unprocessable("a member \"text\" is wanted"))?;
    outcome(&json!({"text": text.to_uppercase()}))
}

/// `text.echo`: the payload.
pub async fn echo(cx: Context) -> Result<Outcome, HandlerError> {
    Ok(Outcome::new(cx.task.payload.clone().into()))
}

/// `text.count`: counts from 1, and reports each number.
pub async fn count(mut cx: Context) -> Result<Outcome, HandlerError> {
    let to = payload(&cx)?.get("to").and_then(Value::as_u64);
    let to = to.filter(|to| *to <= MOST);
    let to =
        to.ok_or_else(|| HandlerError::unprocessable("a member \"to\" up to 1000 is wanted"))?;
    for number in 1..to {
        let left = RawObject::from_serialize(&json!({"action": "count", "from": number + 1}));
        let left = left.ok().flatten().unwrap_or_default();
        cx.report(Progress::partial(value(&json!(number))?, vec![left]))
            .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    outcome(&json!(to))
}

/// What is said of a capability to those who may call it.
#[must_use]
pub fn shape(capability: &str) -> Shape {
    let object = |name: &str, member: Value| {
        let members = Value::Object([(name.to_owned(), member)].into_iter().collect());
        json!({"type": "object", "required": [name], "properties": members})
    };
    let (about, takes, gives) = match capability {
        "text.upper" => {
            let text = object("text", json!({"type": "string"}));
            ("A text in upper case.", text.clone(), text)
        }
        "text.echo" => {
            let any = json!({"type": "object"});
            ("The payload as it came.", any.clone(), any)
        }
        _ => {
            let to = json!({"type": "integer", "minimum": 0, "maximum": MOST});
            let counted = json!({"type": "integer"});
            (
                "Counts from 1, and reports each number.",
                object("to", to),
                counted,
            )
        }
    };
    let shape = Shape::default().with_about(about);
    match (
        RawBuf::from_serialize(&takes),
        RawBuf::from_serialize(&gives),
    ) {
        (Ok(takes), Ok(gives)) => shape.with_payload(takes).with_output(gives),
        _ => shape,
    }
}

fn payload(cx: &Context) -> Result<Value, HandlerError> {
    let read = cx.task.payload.deserialize();
    read.map_err(|_| HandlerError::unprocessable("a payload with a number that no double holds"))
}

fn outcome(output: &Value) -> Result<Outcome, HandlerError> {
    Ok(Outcome::new(value(output)?))
}

fn value(value: &Value) -> Result<RawBuf, HandlerError> {
    RawBuf::from_serialize(value).map_err(|_| HandlerError::unprocessable("no JSON"))
}

const MOST: u64 = 1_000;
