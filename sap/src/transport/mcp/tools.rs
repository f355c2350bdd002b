//! What a server says of its tools.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use crate::ident::Capability;
use crate::processor::Processor;

/// The tool of a capability. Where its handler is typed, the tool says what it takes and gives.
pub(super) fn tool(processor: &Processor, capability: &Capability) -> Tool {
    let (payload, output) = shape(processor, capability);
    let mut input = Members::default();
    input.put(TASK, json!({"type": "string", "description": AS_TEXT}));
    if let Some(payload) = payload {
        let payload = input.lift(payload);
        input.put("payload", payload);
    }
    let about = format!("The capability {capability} of SAP V2.0: a Task in, a TaskResult out.");
    let tool = Tool::new(capability.to_string(), about, input.schema());
    let Some(output) = output else {
        return tool;
    };
    // An Ack has none of them: it is told where results go to an endpoint.
    let mut answer = Members::default();
    answer.put("status", json!({"type": "string"}));
    let output = answer.lift(output);
    // A task that did not succeed has none.
    answer.put("output", json!({"anyOf": [output, {"type": "null"}]}));
    tool.with_raw_output_schema(answer.schema())
}

#[cfg(feature = "typed")]
fn shape(processor: &Processor, capability: &Capability) -> (Option<Value>, Option<Value>) {
    let value = |schema: &ubos_common::json::RawBuf| serde_json::from_str(schema.as_str()).ok();
    let shape = processor.shape(capability);
    let payload = shape.and_then(|shape| value(&shape.payload));
    (payload, shape.and_then(|shape| value(&shape.output)))
}

#[cfg(not(feature = "typed"))]
const fn shape(_: &Processor, _: &Capability) -> (Option<Value>, Option<Value>) {
    (None, None)
}

/// The schema of an object, by its members.
#[derive(Default)]
struct Members {
    properties: JsonObject,
    definitions: Option<Value>,
}

impl Members {
    fn put(&mut self, name: &str, schema: Value) {
        self.properties.insert(name.to_owned(), schema);
    }

    /// Makes a schema that of a member: its definitions go up to the root, where references look for them.
    fn lift(&mut self, mut schema: Value) -> Value {
        if let Value::Object(members) = &mut schema {
            members.remove("$schema");
            self.definitions = members.remove("$defs");
        }
        schema
    }

    fn schema(self) -> Arc<JsonObject> {
        let mut schema = JsonObject::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Value::Object(self.properties));
        if let Some(definitions) = self.definitions {
            schema.insert("$defs".into(), definitions);
        }
        Arc::new(schema)
    }
}

/// The argument that holds a task as text.
pub(super) const TASK: &str = "task";
const AS_TEXT: &str =
    "the JSON text of a SAP V2.0 Task; instead of it the arguments may be the Task itself";
