//! The agents: a good one on the library, and those that flood, on bytes of their own.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use opensentience_wire::message::ToolSpec;
use opensentience_wire::transport::tokio::Agent;
use serde_json::{Value, json};
use ubos_common::json::{RawBuf, RawObject};

/// The variable that says which agent the program is.
pub(crate) const ROLE: &str = "OSW_FLOOD_ROLE";

pub(crate) const FLOODS: [&str; 12] = [
    "registrations",
    "descriptions",
    "schemas",
    "health",
    "newlines",
    "metrics",
    "output",
    "crumbs",
    "questions",
    "garbage",
    "results",
    "deaf",
];

pub(crate) fn run(role: &str) {
    if role == "good" {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let schema = RawObject::new(RawBuf::parse(r#"{"type":"object"}"#).unwrap()).unwrap();
        let agent = Agent::new("1.0.0".parse().unwrap());
        let agent = agent.tool(
            ToolSpec::local("echo", "gives back", schema),
            async |_, input| Ok(input),
        );
        runtime.unwrap().block_on(agent.serve_from_env()).unwrap();
        return;
    }
    let stream = UnixStream::connect(std::env::var("OPENSENTIENCE_SOCKET_PATH").unwrap()).unwrap();
    let agent = Hostile {
        agent_id: std::env::var("OPENSENTIENCE_AGENT_ID").unwrap(),
        writer: Arc::new(Mutex::new(stream.try_clone().unwrap())),
        next: 0,
    };
    agent.flood(role, stream);
}

struct Hostile {
    agent_id: String,
    writer: Arc<Mutex<UnixStream>>,
    next: u64,
}

impl Hostile {
    /// Floods until the core is gone.
    fn flood(mut self, role: &str, mut reader: UnixStream) {
        self.hello();
        let welcome = frame(&mut reader);
        let session = welcome["payload"]["session_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.register(&["echo"], "gives back", &json!({"type": "object"}));
        if role == "deaf" {
            // Calls of it wait until nobody wants them any more.
            loop {
                std::thread::park();
            }
        }
        let calls = self.answer_calls(role, reader);
        loop {
            self.next += 1;
            match role {
                "registrations" => self.register(&["echo"], "again", &json!({"type": "object"})),
                "descriptions" => {
                    let names: Vec<String> = (0..45).map(|n| format!("tool_{n}")).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    self.register(&names, &"long ".repeat(18_000), &json!({"type": "object"}));
                }
                "schemas" => {
                    // The patterns that take longest to compile: their escapes are translated one by one.
                    let members: serde_json::Map<String, Value> = (0..3)
                        .map(|n| {
                            let pattern = format!("{}{n}_{}", "\\w".repeat(180), self.next);
                            (format!("m{n}"), json!({"pattern": pattern}))
                        })
                        .collect();
                    self.register(
                        &["echo"],
                        "other",
                        &json!({"type": "object", "properties": members}),
                    );
                }
                "health" => {
                    let status = if self.next.is_multiple_of(2) {
                        "ok"
                    } else {
                        "degraded"
                    };
                    let beat = json!({"session_id": session, "uptime_ms": 1, "inflight_calls": 0, "status": status});
                    self.send("agent.heartbeat", json!({}), &beat);
                }
                "newlines" => {
                    let lines = [b'\n'; 64 << 10];
                    std::io::stdout().write_all(&lines).unwrap();
                }
                "questions" => {
                    let id = format!("question-{}", self.next);
                    self.send("agent.later", json!({"request_id": id}), &json!({}));
                }
                "garbage" => self.write(
                    br#"{"v":1,"type":"agent.tool.result","payload":{"call_id":[[[[1]]]]}}"#,
                ),
                "results" => {
                    let result = json!({"call_id": format!("none-{}", self.next), "status": "succeeded", "output": {}});
                    self.send("agent.tool.result", json!({}), &result);
                }
                // These are answers to calls.
                _ => {
                    calls.join().unwrap();
                    return;
                }
            }
        }
    }

    fn hello(&mut self) {
        let token = std::env::var("OPENSENTIENCE_SESSION_TOKEN").unwrap();
        let protocol = json!({"supported_versions": [1], "capabilities": ["tools", "streaming", "cancellation"]});
        let hello = json!({
            "session_token": token, "agent_id": self.agent_id, "agent_version": "1.0.0", "protocol": protocol,
        });
        self.send("agent.hello", json!({}), &hello);
    }

    fn register(&mut self, names: &[&str], description: &str, schema: &Value) {
        let tool = |name: &&str| {
            let tool_id = format!("{}/{name}", self.agent_id);
            json!({"tool_id": tool_id, "name": name, "description": description, "input_schema": schema})
        };
        let tools: Vec<Value> = names.iter().map(tool).collect();
        self.send(
            "agent.tools.register",
            json!({}),
            &json!({"tools": tools, "replace": true}),
        );
    }

    /// Reads by another thread, and answers calls where the flood is made of answers: else they would wait for each other, the core
    /// to be read, and the reader to write.
    fn answer_calls(&self, role: &str, mut reader: UnixStream) -> std::thread::JoinHandle<()> {
        let mut own = self.another();
        let role = role.to_owned();
        std::thread::spawn(move || {
            loop {
                let message = frame(&mut reader);
                let (kind, call) = (&message["type"], &message["payload"]["call_id"]);
                if kind == "core.goodbye" {
                    std::process::exit(0);
                }
                let answers = matches!(&*role, "metrics" | "output" | "crumbs");
                if kind != "core.tool.call" || !answers {
                    continue;
                }
                let metrics = if role == "metrics" {
                    "m".repeat(4_000_000)
                } else {
                    String::new()
                };
                if role == "output" {
                    // It reads no more.
                    own.stream(call, &"o".repeat(64 << 10));
                }
                if role == "crumbs" {
                    // Of all calls at once.
                    let (mut one, call) = (own.another(), call.clone());
                    std::thread::spawn(move || one.stream(&call, "c"));
                    continue;
                }
                let result = json!({"call_id": call, "status": "succeeded", "output": {}, "metrics": {"m": metrics}});
                own.send("agent.tool.result", json!({}), &result);
            }
        })
    }

    /// Another writer of the same connection.
    fn another(&self) -> Self {
        Self {
            agent_id: self.agent_id.clone(),
            writer: Arc::clone(&self.writer),
            next: 1 << 40,
        }
    }

    /// Streams a text for a call over and over, until the core is gone.
    fn stream(&mut self, call: &Value, text: &str) {
        for seq in 1.. {
            let data = json!({"text": text});
            let chunk = json!({"call_id": call, "seq": seq, "channel": "stdout", "data": data});
            self.send("agent.tool.stream", json!({}), &chunk);
        }
    }

    fn send(&mut self, kind: &str, ids: Value, payload: &Value) {
        self.next += 1;
        let mut message = json!({
            "v": 1, "type": kind, "id": format!("m-{}", self.next), "ts": "2026-01-01T00:00:00Z", "payload": payload,
        });
        if let (Value::Object(message), Value::Object(ids)) = (&mut message, ids) {
            message.extend(ids);
        }
        self.write(message.to_string().as_bytes());
    }

    fn write(&self, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let mut writer = self.writer.lock().unwrap();
        // A core that is gone has heard enough.
        if writer.write_all(&[&length, body].concat()).is_err() {
            std::process::exit(0);
        }
    }
}

/// The next frame; the program ends with the stream.
fn frame(reader: &mut UnixStream) -> Value {
    let mut length = [0; 4];
    let mut read = |bytes: &mut [u8]| {
        if reader.read_exact(bytes).is_err() {
            std::process::exit(0);
        }
    };
    read(&mut length);
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    read(&mut body);
    serde_json::from_slice(&body).unwrap()
}
