//! The programs `hub` and `hub-agent` as tests run them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the proxy between them has sockets and threads"
)]

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Lines, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bounded::{Bounded, bounded};

/// A hub that runs, and what it printed so far; killed when it is dropped.
pub(crate) struct Hub {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) seen: Vec<Value>,
    pub(crate) url: String,
    _bounded: Bounded,
}

impl Hub {
    pub(crate) fn start<S: AsRef<OsStr>>(options: &[S]) -> Self {
        Self::of(Self::command().args(options))
    }

    /// The program at any free port.
    pub(crate) fn command() -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hub"));
        command.args(["--listen", "127.0.0.1:0"]);
        command
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut hub = Self {
            _bounded: bounded(&child),
            stdin: child.stdin.take(),
            child,
            lines,
            seen: Vec::new(),
            url: String::new(),
        };
        hub.url = hub.until("listening")["url"].as_str().unwrap().to_owned();
        hub
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    pub(crate) fn say(&mut self, line: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads lines up to the first of an event.
    pub(crate) fn until(&mut self, event: &str) -> Value {
        self.until_one_of(&[event])
    }

    /// Reads lines up to the first of some events.
    pub(crate) fn until_one_of(&mut self, events: &[&str]) -> Value {
        loop {
            let line = self.lines.next().expect("more lines").unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            self.seen.push(line.clone());
            if events.iter().any(|event| line["event"] == **event) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the input, and gives the exit code and all that was printed.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<Value>) {
        drop(self.stdin.take());
        let mut seen = std::mem::take(&mut self.seen);
        for line in self.lines.by_ref() {
            seen.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
        (self.child.wait().unwrap().code(), seen)
    }

    /// Kills it, and gives what was read of it.
    pub(crate) fn kill(mut self) -> Vec<Value> {
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of an event.
pub(crate) fn with<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

/// An agent that runs, and what it says on standard error; killed when it is dropped.
pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) said: Option<Lines<BufReader<ChildStderr>>>,
    _bounded: Bounded,
}

impl Agent {
    pub(crate) fn start<S: AsRef<OsStr>>(options: &[S]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_hub-agent"))
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Self::of(child.unwrap())
    }

    pub(crate) fn of(mut child: Child) -> Self {
        let said = child.stderr.take().map(|said| BufReader::new(said).lines());
        Self {
            _bounded: bounded(&child),
            child,
            said,
        }
    }

    /// Reads up to the first line that has these words.
    pub(crate) fn says(&mut self, wanted: &str) -> String {
        let mut lines = self.said.iter_mut().flatten().map(Result::unwrap);
        let found = lines.find(|line| line.contains(wanted));
        found.unwrap_or_else(|| panic!("no {wanted:?}"))
    }

    /// Ends it with a signal, and gives the exit code.
    pub(crate) fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes connections on to an address, until they are cut.
pub(crate) struct Proxy {
    pub(crate) address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn start(to: String) -> Self {
        Self::led_by(Arc::new(Mutex::new(to)))
    }

    /// Each connection goes to the address that stands there when it comes.
    pub(crate) fn led_by(to: Arc<Mutex<String>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&open);
        thread::spawn(move || {
            for agent in listener.incoming().map_while(Result::ok) {
                let to = to.lock().unwrap().clone();
                // Where nobody listens, the connection is closed.
                let Ok(hub) = TcpStream::connect(to) else {
                    continue;
                };
                kept.lock().unwrap().push(agent.try_clone().unwrap());
                let both = [(&agent, &hub), (&hub, &agent)];
                for (from, into) in both.map(|(from, into)| (from.try_clone(), into.try_clone())) {
                    let (mut from, mut into) = (from.unwrap(), into.unwrap());
                    thread::spawn(move || {
                        // It ends when either side does, or is cut.
                        let _ = io::copy(&mut from, &mut into);
                        let _ = into.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, open }
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            // One that is closed already is cut.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}
