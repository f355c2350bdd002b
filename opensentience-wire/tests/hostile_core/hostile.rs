//! A core that means harm.

use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use opensentience_wire::FrameDecoder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::attacks::{AGENT, Counts};

pub(crate) struct Core {
    reader: Reader,
    writer: Writer,
}

struct Reader {
    stream: OwnedReadHalf,
    decoder: FrameDecoder,
    token: String,
    counts: Arc<Counts>,
}

struct Writer {
    stream: OwnedWriteHalf,
    next: u64,
    token: String,
    counts: Arc<Counts>,
}

impl Core {
    pub(crate) fn new(stream: UnixStream, token: String, counts: Arc<Counts>) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: Reader {
                stream: reader,
                decoder: FrameDecoder::new(usize::MAX),
                token: token.clone(),
                counts: Arc::clone(&counts),
            },
            writer: Writer {
                stream: writer,
                next: 0,
                token,
                counts,
            },
        }
    }

    /// Goes on until the agent takes no more, or for ever.
    pub(crate) async fn attack(mut self, attack: &str) -> Result<()> {
        // Its hello.
        self.reader.frame().await?;
        let writer = &mut self.writer;
        match attack {
            "nothing" => {}
            "half a prefix" => writer.write(&[0, 0]).await?,
            "half a frame of 4 MB" => {
                writer.write(&[0, 0x3f, 0, 0]).await?;
                writer.write(&[b' '; 1_000_000]).await?;
            }
            "a frame of 4 GiB" => writer.write(&[0xff; 64]).await?,
            "an empty frame" => writer.write(&[0; 4]).await?,
            "a call before the welcome" => writer.call("echo", &json!({}), "").await?,
            "100,000 nested lists" => {
                let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
                writer.frame(deep.as_bytes()).await?;
            }
            "a token refused" => {
                let error = json!({"code": "protocol.unauthorized", "message": "another one"});
                let error = json!({"error": error});
                writer.send("core.welcome", error, &json!({})).await?;
            }
            _ => return self.open_and_flood(attack).await,
        }
        // It is the agent's turn to end this, or nobody's.
        self.reader.drain().await
    }

    async fn open_and_flood(mut self, attack: &str) -> Result<()> {
        self.open(attack).await?;
        let reads = !attack.ends_with("unread")
            && !attack.ends_with("not read")
            && attack != "calls of 900 KB"
            && attack != "a frame of 2 GB behind the welcome";
        let Self {
            mut reader,
            mut writer,
        } = self;
        if !reads {
            return writer.flood(attack).await;
        }
        tokio::select! {
            ended = writer.flood(attack) => ended,
            ended = reader.drain() => ended,
        }
    }

    /// Takes the agent in, and its tools.
    async fn open(&mut self, attack: &str) -> Result<()> {
        let (beats, most) = match attack {
            "a heartbeat every millisecond, unread" => (1, 4_194_304),
            "a frame of 2 GB behind the welcome" => (1_000, u32::MAX),
            _ => (1_000, 4_194_304),
        };
        let welcome = json!({"accepted_version": 1, "session_id": "s", "heartbeat_interval_ms": beats,
            "max_frame_bytes": most, "server": {"core_version": "1", "instance_id": "i"}});
        let writer = &mut self.writer;
        writer.send("core.welcome", json!({}), &welcome).await?;
        let register = loop {
            let frame = self.reader.frame().await?;
            if frame["type"] == "agent.tools.register" {
                break frame;
            }
        };
        let tools = register["payload"]["tools"].as_array().unwrap();
        let ids: Vec<_> = tools.iter().map(|tool| tool["tool_id"].clone()).collect();
        let answer = json!({"registered": ids, "rejected": []});
        let about = json!({"in_reply_to": register["id"]});
        writer.send("core.tools.registered", about, &answer).await?;
        for count in [&writer.counts.bytes, &writer.counts.frames] {
            count.store(0, Ordering::Relaxed);
        }
        // One that is at least heard of.
        if attack.ends_with("unread") {
            writer.send("core.ping", json!({}), &json!({})).await?;
        }
        Ok(())
    }
}

impl Writer {
    async fn flood(&mut self, attack: &str) -> Result<()> {
        match attack {
            // Each beat would wait behind those before it.
            "a heartbeat every millisecond, unread" => core::future::pending().await,
            "a frame of 2 GB behind the welcome" => {
                self.write(&[0x7f, 0, 0, 0]).await?;
                loop {
                    self.write(&[b' '; 64 << 10]).await?;
                }
            }
            "half a call" => {
                self.write(&[0, 0x0f, 0, 0, b'{']).await?;
                return core::future::pending().await;
            }
            "a call byte by byte" => {
                self.write(&[0, 0x0f, 0, 0]).await?;
                loop {
                    self.write(b" ").await?;
                    tokio::task::yield_now().await;
                }
            }
            _ => {}
        }
        let large = json!({"text": "x".repeat(900_000)});
        loop {
            let number = self.next;
            match attack {
                "questions" | "questions whose answers are not read" => {
                    let about = json!({"request_id": format!("{number}{}", "q".repeat(2_000))});
                    self.send("core.later", about, &json!({})).await?;
                }
                "errors of 1 MB" => {
                    let error =
                        json!({"code": "c".repeat(100_000), "message": "m".repeat(1_000_000)});
                    let error = json!({"error": error});
                    self.send("core.error", error, &json!({})).await?;
                }
                // It knows the token, and has it said again: whole, in part, and where an answer echoes it.
                "tokens tried" => {
                    let token = self.token.clone();
                    let (head, _) = token.split_at(token.len() / 2);
                    let said = [
                        json!({"t": token}),
                        json!({ token.clone(): 1 }),
                        json!({"t": head}),
                    ];
                    let id = if number % 4 == 3 { &*token } else { "" };
                    self.call("echo", &said[usize::try_from(number % 3).unwrap()], id)
                        .await?;
                }
                "calls of 900 KB" => self.call("echo", &large, "").await?,
                "calls with ids of 300 KB" => {
                    self.call("echo", &json!({}), &"i".repeat(300_000)).await?;
                }
                "calls that never return" => self.call("wait", &json!({}), "").await?,
                "calls that block" => self.call("block", &json!({}), "").await?,
                "output that is not read" => self.call("write", &json!({}), "").await?,
                "results of 1.9 MB" | "results of 1.9 MB that are not read" => {
                    self.call("long", &json!({}), "").await?;
                }
                "calls" => self.call("echo", &json!({}), "").await?,
                _ => return Err(std::io::Error::other(format!("{attack} is no attack"))),
            }
        }
    }

    async fn call(&mut self, tool: &str, input: &Value, id: &str) -> Result<()> {
        let payload = json!({"call_id": format!("c{}{id}", self.next), "tool_id": format!("{AGENT}/{tool}"),
            "input": input});
        let about = json!({"request_id": format!("r{}", self.next)});
        self.send("core.tool.call", about, &payload).await
    }

    async fn send(&mut self, kind: &str, about: Value, payload: &Value) -> Result<()> {
        self.next += 1;
        let mut message = json!({"v": 1, "type": kind, "id": format!("m{}", self.next),
            "ts": "2026-01-16T12:00:00Z", "payload": payload});
        for (name, value) in about.as_object().unwrap() {
            message[name] = value.clone();
        }
        self.frame(message.to_string().as_bytes()).await
    }

    async fn frame(&mut self, body: &[u8]) -> Result<()> {
        let length = u32::try_from(body.len()).unwrap();
        self.write(&[&length.to_be_bytes(), body].concat()).await?;
        self.counts.frames.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        let count = &self.counts.bytes;
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Reader {
    /// The next frame of the handshake.
    async fn frame(&mut self) -> Result<Value> {
        let length = self.stream.read_u32().await?;
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body).unwrap())
    }

    /// Reads to the end, and counts answers: heartbeats are none.
    async fn drain(&mut self) -> Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = self.stream.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let mut rest = &buffer[..count];
            while let (taken, Some(frame)) = self.decoder.decode(rest).unwrap() {
                rest = &rest[taken..];
                let holds = |text: &str| frame.windows(text.len()).any(|it| it == text.as_bytes());
                assert!(!holds(&self.token), "the agent says its token");
                if !holds(r#""type":"agent.heartbeat""#) {
                    self.counts.answers.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
