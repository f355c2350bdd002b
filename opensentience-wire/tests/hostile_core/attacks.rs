//! What the cores do.

use std::time::{Duration, Instant};

use opensentience_wire::transport::tokio::Launcher;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::agent::ROLE;

const AGENT: &str = "com.example.a";
/// How long each attack goes on.
const WATCHED: Duration = Duration::from_millis(1_500);
/// What an agent may grow by: the bounds of a connection together, and what an allocator keeps of them.
const MOST: u64 = 192 << 20;
/// The threads of its pool, its own, and some to spare.
const MOST_THREADS: u64 = 40;
/// How long the agent may take to end on a busy machine.
const DEAD: Duration = Duration::from_secs(60);

const ATTACKS: [&str; 18] = [
    "nothing",
    "half a prefix",
    "half a frame",
    "a frame of 4 GiB",
    "an empty frame",
    "a call before",
    "deep nesting",
    "questions",
    "unread answers",
    "calls",
    "large calls",
    "calls that wait",
    "calls that block",
    "unread output",
    "fast beats",
    "a long frame",
    "large errors",
    "half a call",
];

pub(crate) async fn all() {
    println!(
        "{:<18} {:>10} {:>8} {:>9}",
        "core", "growth", "threads", "its end"
    );
    for attack in ATTACKS {
        let seen = one(attack).await;
        let mib = seen.growth as f64 / f64::from(1 << 20);
        println!(
            "{attack:<18} {mib:>6.1} MiB {:>8} {:>6} ms",
            seen.threads,
            seen.end.as_millis()
        );
        assert!(
            seen.growth <= MOST,
            "{attack}: the agent grew by {mib:.1} MiB"
        );
        assert!(
            seen.threads <= MOST_THREADS,
            "{attack}: {} threads",
            seen.threads
        );
    }
}

struct Seen {
    growth: u64,
    threads: u64,
    end: Duration,
}

async fn one(attack: &str) -> Seen {
    let program = std::env::current_exe().unwrap();
    let launcher = Launcher::new(AGENT, program).env(ROLE, "agent");
    let mut process = launcher.spawn().unwrap();
    let stream = process.accept().await.unwrap();
    let pid = stream.peer_cred().unwrap().pid().unwrap();
    let before = held(pid, "VmRSS:");
    let mut core = Core { stream, next: 0 };
    core.frame().await;
    let mut most = (before, 0);
    let mut attacking = Box::pin(timeout(WATCHED, core.attack(attack)));
    loop {
        tokio::select! {
            // One that the agent turns away has no more to do.
            _ = &mut attacking => break,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                most.0 = most.0.max(held(pid, "VmRSS:"));
                most.1 = most.1.max(held(pid, "Threads:"));
            }
        }
    }
    // A core that is gone is the end of every agent.
    drop(attacking);
    drop(core);
    let gone = Instant::now();
    while held(pid, "VmRSS:") > 0 {
        assert!(gone.elapsed() < DEAD, "{attack}: the agent goes on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let end = gone.elapsed();
    process.stop(DEAD).await;
    Seen {
        growth: (most.0 - before) * 1_024,
        threads: most.1,
        end,
    }
}

/// A figure of a process's status; 0 once it has ended.
fn held(pid: i32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure.and_then(|figure| figure.parse().ok()).unwrap_or(0)
}

struct Core {
    stream: UnixStream,
    next: u64,
}

impl Core {
    /// Goes on until the agent takes no more, or this core's time is over.
    async fn attack(&mut self, attack: &str) -> std::io::Result<()> {
        match attack {
            "nothing" => {}
            "half a prefix" => self.stream.write_all(&[0, 0]).await?,
            "half a frame" => {
                self.stream.write_all(&[0, 0x3f, 0, 0]).await?;
                self.stream.write_all(&[b' '; 1_000_000]).await?;
            }
            "a frame of 4 GiB" => self.stream.write_all(&[0xff; 64]).await?,
            "an empty frame" => self.stream.write_all(&[0; 4]).await?,
            "a call before" => self.call("echo", &json!({})).await?,
            "deep nesting" => {
                let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
                self.write(deep.as_bytes()).await?;
            }
            _ => {
                self.open(attack).await?;
                return self.flood(attack).await;
            }
        }
        // It is the agent's turn to end this, or nobody's.
        self.drain().await
    }

    async fn flood(&mut self, attack: &str) -> std::io::Result<()> {
        let large = json!({"text": "x".repeat(900_000)});
        match attack {
            // Each beat would wait behind those before it.
            "fast beats" => core::future::pending().await,
            "a long frame" => {
                self.stream.write_all(&[0x7f, 0, 0, 0]).await?;
                loop {
                    self.stream.write_all(&[b' '; 64 << 10]).await?;
                }
            }
            "half a call" => {
                self.stream.write_all(&[0, 0x0f, 0, 0, b'{']).await?;
                return self.drain().await;
            }
            _ => {}
        }
        let (tool, input, reads) = match attack {
            "large calls" => ("echo", large, false),
            "calls that wait" => ("wait", json!({}), true),
            "calls that block" => ("block", json!({}), true),
            "unread output" => ("write", json!({}), false),
            _ => ("echo", json!({}), attack != "unread answers"),
        };
        loop {
            match attack {
                "questions" | "unread answers" => {
                    let id = format!("{}{}", self.next, "q".repeat(2_000));
                    self.send("core.later", json!({"request_id": id}), &json!({}))
                        .await?;
                }
                "large errors" => {
                    let error =
                        json!({"code": "c".repeat(100_000), "message": "m".repeat(1_000_000)});
                    self.send("core.error", json!({"error": error}), &json!({}))
                        .await?;
                }
                _ => self.call(tool, &input).await?,
            }
            if reads {
                self.skip();
            }
        }
    }

    /// Takes the agent in, and its tools.
    async fn open(&mut self, attack: &str) -> std::io::Result<()> {
        let (beats, most) = match attack {
            "fast beats" => (1, 4_194_304),
            "a long frame" => (1_000, u32::MAX),
            _ => (1_000, 4_194_304),
        };
        let welcome = json!({"accepted_version": 1, "session_id": "s", "heartbeat_interval_ms": beats,
            "max_frame_bytes": most, "server": {"core_version": "1", "instance_id": "i"}});
        self.send("core.welcome", json!({}), &welcome).await?;
        let register = loop {
            let frame = self.frame().await;
            if frame["type"] == "agent.tools.register" {
                break frame;
            }
        };
        let tools = register["payload"]["tools"].as_array().unwrap();
        let ids: Vec<_> = tools.iter().map(|tool| tool["tool_id"].clone()).collect();
        let answer = json!({"registered": ids, "rejected": []});
        let about = json!({"in_reply_to": register["id"]});
        self.send("core.tools.registered", about, &answer).await
    }

    async fn call(&mut self, tool: &str, input: &Value) -> std::io::Result<()> {
        let payload = json!({"call_id": format!("c{}", self.next), "tool_id": format!("{AGENT}/{tool}"),
            "input": input});
        let about = json!({"request_id": format!("r{}", self.next)});
        self.send("core.tool.call", about, &payload).await
    }

    async fn send(&mut self, kind: &str, about: Value, payload: &Value) -> std::io::Result<()> {
        self.next += 1;
        let mut message = json!({"v": 1, "type": kind, "id": format!("m{}", self.next),
            "ts": "2026-01-16T12:00:00Z", "payload": payload});
        for (name, value) in about.as_object().unwrap() {
            message[name] = value.clone();
        }
        self.write(message.to_string().as_bytes()).await
    }

    async fn write(&mut self, body: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(body.len()).unwrap();
        self.stream.write_all(&length.to_be_bytes()).await?;
        self.stream.write_all(body).await
    }

    /// The next frame.
    async fn frame(&mut self) -> Value {
        let length = self.stream.read_u32().await.unwrap();
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut body).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Reads what is there, and no more.
    fn skip(&self) {
        let mut buffer = [0; 64 << 10];
        while self
            .stream
            .try_read(&mut buffer)
            .is_ok_and(|count| count > 0)
        {}
    }

    /// Reads to the end.
    async fn drain(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; 64 << 10];
        while self.stream.read(&mut buffer).await? > 0 {}
        Ok(())
    }
}
