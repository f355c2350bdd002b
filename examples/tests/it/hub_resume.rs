//! `hub` and `hub-agent` over a connection that is cut while a job runs.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the proxy between them has sockets and threads"
)]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// A program that is killed when it is dropped.
struct Program(Child);

impl Program {
    fn start(program: &str, options: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(options).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Self(child.unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes connections on, and keeps them so that they can be cut.
fn proxy(to: String) -> (String, Arc<Mutex<Vec<TcpStream>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let open = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&open);
    thread::spawn(move || {
        for agent in listener.incoming().map_while(Result::ok) {
            let Ok(hub) = TcpStream::connect(&to) else {
                return;
            };
            let both = [(&agent, &hub), (&hub, &agent)];
            for (from, into) in both.map(|(from, into)| (from.try_clone(), into.try_clone())) {
                let (mut from, mut into) = (from.unwrap(), into.unwrap());
                thread::spawn(move || io::copy(&mut from, &mut into));
            }
            kept.lock().unwrap().push(agent);
        }
    });
    (url, open)
}

/// The lines up to the first with this event; it is the last.
fn until(lines: &mut io::Lines<BufReader<ChildStdout>>, event: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    for line in lines {
        seen.push(serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        if seen.last().unwrap()["event"] == event {
            return seen;
        }
    }
    panic!("no {event}: {seen:?}");
}

// spec: HUB-5-4
#[test]
fn a_job_goes_on_when_the_connection_was_cut() {
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--exit-when-done",
        "--grace",
        "600",
    ];
    let mut hub = Program::start(env!("CARGO_BIN_EXE_hub"), &options);
    let mut lines = BufReader::new(hub.0.stdout.take().unwrap()).lines();
    let url = until(&mut lines, "listening").pop().unwrap()["url"].take();
    let address = url.as_str().unwrap().trim_start_matches("http://");
    let (url, open) = proxy(address.to_owned());
    let agent = ["--hub", &url, "--resume"];
    let _agent = Program::start(env!("CARGO_BIN_EXE_hub-agent"), &agent);
    let registered = until(&mut lines, "agent-registered").pop().unwrap();
    let upper = json!({
        "kind": "translation",
        "type": "upper",
        "makes": [{"type": "text", "mime_types": [], "always": true, "many": true}],
    });
    let skills = registered["skills"].as_array().unwrap();
    assert!(skills.contains(&upper), "{registered}");
    let wait = json!({"type": "text", "text": "3000"});
    let job = json!({"kind": "test", "type": "sleep", "payloads": [wait]});
    writeln!(hub.0.stdin.take().unwrap(), "{job}").unwrap();
    until(&mut lines, "init-sent");
    for connection in open.lock().unwrap().drain(..) {
        connection.shutdown(Shutdown::Both).unwrap();
    }
    // The new stream may come before the hub has seen the end of the old one, and then no cut is told.
    until(&mut lines, "resumed");
    let told = until(&mut lines, "result");
    assert_eq!(told.last().unwrap()["message"], "slept 3000 ms");
    assert!(
        told.iter().all(|line| line["event"] != "init-sent"),
        "{told:?}"
    );
    assert_eq!(hub.0.wait().unwrap().code(), Some(0));
}
