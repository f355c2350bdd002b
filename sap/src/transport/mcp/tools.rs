//! What a server says of its tools.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use ubos_common::json::RawBuf;

use crate::ident::Capability;
use crate::processor::{Peer, Processor};
use crate::schemas;

/// The tools of a server, which are made once.
#[derive(Debug)]
pub(super) struct Tools {
    of_capabilities: Vec<(Capability, Tool)>,
    about_tasks: Vec<Tool>,
}

impl Tools {
    pub(super) fn of(processor: &Processor, about_tasks: Vec<Tool>) -> Self {
        let tool = |capability: &Capability| (capability.clone(), tool(processor, capability));
        Self {
            of_capabilities: processor.capabilities().map(tool).collect(),
            about_tasks,
        }
    }

    /// Those that the hook of the processor shows a peer, and those about tasks, which say of no capability that it is here.
    pub(super) fn shown(&self, processor: &Processor, peer: &Peer) -> Vec<Tool> {
        let of_capabilities = self.of_capabilities.iter();
        let shown = of_capabilities.filter(|(capability, _)| processor.shows(peer, capability));
        let shown = shown.map(|(_, tool)| tool);
        shown.chain(&self.about_tasks).cloned().collect()
    }
}

/// The tool of a capability. It takes a Task, whose payload is what the handler takes where that is known, and
/// gives a result with what the handler gives.
fn tool(processor: &Processor, capability: &Capability) -> Tool {
    let shape = processor.shape(capability);
    let part = |schema: Option<&RawBuf>| {
        let schema = schema?.as_str();
        serde_json::from_str::<Value>(schema).ok()
    };
    let payload = part(shape.and_then(|shape| shape.payload.as_ref()));
    let output = part(shape.and_then(|shape| shape.output.as_ref()));
    let about = shape.and_then(|shape| shape.about.as_deref());
    let about = match about {
        Some(about) => format!("{about} {capability} of SAP V2.0: a Task in, a TaskResult out."),
        None => format!("The capability {capability} of SAP V2.0: a Task in, a TaskResult out."),
    };
    Tool::new(capability.to_string(), about, input(payload)).with_raw_output_schema(answer(output))
}

/// A Task, or its text.
fn input(payload: Option<Value>) -> Arc<JsonObject> {
    let mut schema = MessageSchema::read(schemas::TASK);
    let context = MessageSchema::read(schemas::CONSTITUTIONAL_CONTEXT);
    schema.put("constitutionalContext", context.whole());
    schema.definitions.remove("sap.constitutionalContext");
    if let Some(payload) = payload {
        let payload = schema.lift(payload, "#/properties/payload");
        schema.put("payload", payload);
    }
    schema.put(TASK, json!({"type": "string", "description": AS_TEXT}));
    let forms = json!([{"required": [TASK]}, {"required": schema.required}]);
    schema.either(forms)
}

/// A result, or the Ack of a task whose results go to an endpoint.
pub(super) fn answer(output: Option<Value>) -> Arc<JsonObject> {
    let mut schema = MessageSchema::read(schemas::RESULT);
    // A receipt has words of its own, and ids under another name.
    schema.put("status", json!({"type": "string"}));
    if let Some(output) = output {
        let output = schema.lift(output, "#/properties/output/anyOf/0");
        // A task that did not succeed has none.
        schema.put("output", json!({"anyOf": [output, {"type": "null"}]}));
    }
    let receipt = json!({"required": ["status", "messageId", "correlationId"]});
    let forms = json!([{"required": schema.required}, receipt]);
    schema.either(forms)
}

/// The schema of a message, in its parts.
#[derive(Default)]
struct MessageSchema {
    properties: JsonObject,
    required: Value,
    definitions: JsonObject,
}

impl MessageSchema {
    /// One of this crate's own. Its definitions get names that no handler's have.
    fn read(schema: &str) -> Self {
        let Ok(Value::Object(mut schema)) = serde_json::from_str(schema) else {
            return Self::default();
        };
        let mut take = |name| match schema.remove(name) {
            Some(Value::Object(members)) => members,
            _ => JsonObject::new(),
        };
        let (mut properties, definitions) = (take("properties"), take("$defs"));
        for property in properties.values_mut() {
            refer(property, &|reference| {
                let name = reference.strip_prefix(DEFINITIONS)?;
                Some(format!("{DEFINITIONS}sap.{name}"))
            });
        }
        let definitions = definitions
            .into_iter()
            .map(|(name, definition)| (format!("sap.{name}"), definition));
        Self {
            properties,
            required: schema.remove("required").unwrap_or_default(),
            definitions: definitions.collect(),
        }
    }

    fn put(&mut self, name: &str, schema: Value) {
        self.properties.insert(name.to_owned(), schema);
    }

    /// Makes a schema that of a part, which stands at this place: its definitions go up to the root, where
    /// references look for them, and what refers to the schema itself refers to the place.
    fn lift(&mut self, mut schema: Value, place: &str) -> Value {
        // One that has an address of its own is where its references begin.
        if schema.get("$id").is_some() {
            return schema;
        }
        let mut definitions = Value::Null;
        if let Value::Object(members) = &mut schema {
            members.remove("$schema");
            definitions = members.remove("$defs").unwrap_or_default();
        }
        let moved = |reference: &str| {
            let rest = reference.strip_prefix('#')?;
            let stays = reference.starts_with(DEFINITIONS);
            (!stays && (rest.is_empty() || rest.starts_with('/'))).then(|| format!("{place}{rest}"))
        };
        refer(&mut schema, &moved);
        refer(&mut definitions, &moved);
        if let Value::Object(definitions) = definitions {
            self.definitions.extend(definitions);
        }
        schema
    }

    /// A message that is always the same one.
    fn whole(self) -> Value {
        json!({"type": "object", "required": self.required, "properties": self.properties})
    }

    /// A message in one of several forms.
    fn either(self, forms: Value) -> Arc<JsonObject> {
        let mut schema = JsonObject::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Value::Object(self.properties));
        schema.insert("anyOf".into(), forms);
        schema.insert("$defs".into(), Value::Object(self.definitions));
        Arc::new(schema)
    }
}

/// Changes the references of a schema. A schema is as deep as this crate or its application has written it.
fn refer(schema: &mut Value, change: &dyn Fn(&str) -> Option<String>) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(reference) if name == "$ref" => {
                        if let Some(changed) = change(reference) {
                            *reference = changed;
                        }
                    }
                    member => refer(member, change),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, change)),
        _ => {}
    }
}

const DEFINITIONS: &str = "#/$defs/";
/// The argument that holds a task as text.
pub(super) const TASK: &str = "task";
const AS_TEXT: &str =
    "the JSON text of a SAP V2.0 Task; instead of it the arguments may be the Task itself";

#[cfg(test)]
mod tests {
    use super::super::Server;
    use super::*;
    use crate::processor::{Config, fixture};
    use crate::store::MemoryTranscript;
    use crate::transport::Service;

    #[test]
    fn the_tools_are_made_once_for_all_clones_of_a_server() {
        let transcript = Arc::new(MemoryTranscript::default());
        let processor = fixture::processor(transcript, Config::default());
        let service = Service::new(Arc::new(processor), Arc::new(fixture::Still));
        let server = Server::from(service);
        let listed = |server: &Server| server.shown(&Peer::default());
        let (one, other) = (listed(&server.clone()), listed(&server));
        let is_same =
            |(one, other): (&Tool, &Tool)| Arc::ptr_eq(&one.input_schema, &other.input_schema);
        assert!(!one.is_empty() && one.iter().zip(&other).all(is_same));
    }
}
