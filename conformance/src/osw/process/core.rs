//! A core that is a program: it launches an agent of ours, which hands its test agent over to the judge.
//!
//! ```text
//! judge ──launches──> the core's command ──launches──> test agent (an executable that the judge made)
//!   ^                                                    │ tells what it was launched with
//!   └────────────── bytes, both ways ────────────────────┘ and relays: the core sees its own child
//! ```

use core::time::Duration;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;

use rustix::process::{Pid, Signal};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use ubos_common::json::{self, Limits};
use ubos_common::os::Clock;
use ubos_common::time::Now;
use ubos_common::violation::Profile;

use super::{STOPPING, Wire, runtime};
use crate::ConnectError;
use crate::osw::recording::START;
use crate::osw::{Launch, Peer, Received};
use opensentience_wire::SessionToken;

/// How long a core may take to launch its agent.
const LAUNCHING: Duration = START;

/// A core under test: a command that launches the agent whose path stands in it as `{}`.
#[derive(Debug)]
pub struct CoreUnderTest {
    command: Rc<[OsString]>,
    test_agent: Rc<[OsString]>,
    /// It did not launch the agent, in all the time there is.
    never_launched: Rc<Cell<bool>>,
}

impl CoreUnderTest {
    /// A core's command, and the command of a program that ends in [`run_test agent`] with its last argument.
    #[must_use]
    pub fn new(command: Vec<OsString>, test_agent: Vec<OsString>) -> Self {
        Self {
            command: command.into(),
            test_agent: test_agent.into(),
            never_launched: Rc::default(),
        }
    }

    /// A peer for one case.
    ///
    /// # Errors
    ///
    /// The core launched no agent before; waiting again would take long and show nothing.
    pub fn peer(&self) -> Result<Box<dyn Peer>, ConnectError> {
        if self.never_launched.get() {
            let why = "the core launched no agent when it was started before";
            return Err(ConnectError::Unreachable(why.to_owned()));
        }
        Ok(Box::new(CorePeer {
            runtime: runtime().map_err(|error| ConnectError::Unreachable(error.to_string()))?,
            clock: Clock::start(),
            command: Rc::clone(&self.command),
            test_agent: Rc::clone(&self.test_agent),
            never_launched: Rc::clone(&self.never_launched),
            launched: None,
            wire: Wire::default(),
        }))
    }
}

struct CorePeer {
    runtime: Runtime,
    clock: Clock,
    command: Rc<[OsString]>,
    test_agent: Rc<[OsString]>,
    never_launched: Rc<Cell<bool>>,
    launched: Option<Launched>,
    wire: Wire,
}

struct Launched {
    child: Child,
    listener: UnixListener,
    /// The test agent gives up when this is dropped.
    control: UnixStream,
    _folder: tempfile::TempDir,
}

ubos_common::wire! {
    /// What the test agent was launched with.
    struct LaunchRecord {
        required agent_id: String = "agent_id", "";
        required @secret token: SessionToken = "token", "";
        required variables: Vec<String> = "variables", "";
        required folder_mode: u64 = "folder_mode", "";
        required socket_mode: u64 = "socket_mode", "";
    }
}

impl CorePeer {
    fn stop(&mut self) {
        self.wire = Wire::default();
        let Some(Launched {
            mut child, control, ..
        }) = self.launched.take()
        else {
            return;
        };
        drop(control);
        self.runtime.block_on(stop(&mut child));
    }

    async fn start(&self) -> Option<(Launched, Launch)> {
        let (folder, path, listener) = socket().ok()?;
        let program = executable(folder.path(), &self.test_agent, &path).ok()?;
        let mut child = spawn(&self.command, &program).ok()?;
        let accepted = async {
            tokio::select! {
                accepted = listener.accept() => accepted.ok(),
                _ = child.wait() => None,
            }
        };
        let accepted = tokio::time::timeout(LAUNCHING, accepted).await;
        let Some((control, _)) = accepted.ok().flatten() else {
            stop(&mut child).await;
            return None;
        };
        let mut control = BufReader::new(control);
        let mut line = String::new();
        let mut bounded = (&mut control).take(1 << 20);
        let told = bounded.read_line(&mut line);
        tokio::time::timeout(LAUNCHING, told).await.ok()?.ok()?;
        let found =
            json::decode::<LaunchRecord>(line.as_bytes(), &Limits::default(), Profile::Strict);
        let (found, _) = found.ok()?;
        let mut launch = Launch::new(found.agent_id, found.token);
        launch.variables = Some(found.variables);
        let mode = |mode: u64| u32::try_from(mode).unwrap_or_default();
        launch.modes = Some((mode(found.folder_mode), mode(found.socket_mode)));
        let launched = Launched {
            child,
            listener,
            control: control.into_inner(),
            _folder: folder,
        };
        Some((launched, launch))
    }

    /// Has the test agent open a connection.
    fn connect(&mut self) -> bool {
        let Some(launched) = &mut self.launched else {
            return false;
        };
        let connected = async {
            launched.control.write_all(b"\n").await.ok()?;
            launched.listener.accept().await.ok()
        };
        let connected = async { tokio::time::timeout(LAUNCHING, connected).await };
        let stream = self.runtime.block_on(connected).ok().flatten();
        let there = stream.is_some();
        self.wire = stream.map_or_else(Wire::default, |(stream, _)| Wire::new(stream));
        there
    }
}

/// Asks a core to end, and kills it where it does not.
async fn stop(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let group = group.and_then(Pid::from_raw);
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(group) = group {
            // A group that is gone needs no signal.
            let _ = rustix::process::kill_process_group(group, signal);
        }
        let _ = tokio::time::timeout(STOPPING, child.wait()).await;
    }
}

/// An executable without arguments that runs the test agent.
fn executable(folder: &Path, test_agent: &[OsString], control: &Path) -> io::Result<PathBuf> {
    let path = folder.join("agent");
    let mut script = b"#!/bin/sh\nexec".to_vec();
    for word in test_agent
        .iter()
        .map(OsString::as_os_str)
        .chain([control.as_os_str()])
    {
        script.push(b' ');
        quote(&mut script, word);
    }
    script.push(b'\n');
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// A word that a shell takes as it is.
fn quote(script: &mut Vec<u8>, word: &OsStr) {
    script.push(b'\'');
    for byte in word.as_encoded_bytes() {
        match byte {
            b'\'' => script.extend_from_slice(b"'\\''"),
            byte => script.push(*byte),
        }
    }
    script.push(b'\'');
}

/// Starts the core in a group of its own; `{}` in its command becomes the agent's path.
fn spawn(command: &[OsString], agent: &Path) -> io::Result<Child> {
    let agent = agent.to_string_lossy();
    let mut words = command.iter().map(|word| match word.to_str() {
        Some(text) => OsString::from(text.replace("{}", &agent)),
        None => word.clone(),
    });
    let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

impl Peer for CorePeer {
    fn launch(&mut self) -> Option<Launch> {
        self.stop();
        let started = self.runtime.block_on(self.start());
        self.never_launched.set(started.is_none());
        let (launched, launch) = started?;
        self.launched = Some(launched);
        self.connect().then_some(launch)
    }

    fn reconnect(&mut self) -> bool {
        self.connect()
    }

    fn now(&mut self) -> Now {
        self.clock.now()
    }

    fn send(&mut self, bytes: &[u8]) {
        let Self { runtime, wire, .. } = self;
        runtime.block_on(wire.send(bytes));
    }

    fn receive(&mut self, within: Duration) -> Received {
        let Self { runtime, wire, .. } = self;
        runtime.block_on(wire.receive(within))
    }

    fn close(&mut self) {
        let Self { runtime, wire, .. } = self;
        runtime.block_on(wire.close());
    }
}

impl Drop for CorePeer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Is the agent that a core under test launches: tells the judge at `control` what it was launched with, and relays
/// a connection to the core each time that the judge asks for one, until the judge is gone.
///
/// # Errors
///
/// The judge cannot be reached, or this process was not launched by a core.
#[expect(clippy::disallowed_methods, reason = "each relay is a task")]
pub async fn run_test_agent(control: &Path) -> io::Result<()> {
    let mut judge = UnixStream::connect(control).await?;
    let var = |name: &str| std::env::var(name).map_err(|_| io::Error::other(format!("no {name}")));
    let core = var("OPENSENTIENCE_SOCKET_PATH").or_else(|_| var("OPENSENTIENCE_SOCKET"))?;
    let core = PathBuf::from(core);
    let mode = |path: &Path| {
        std::fs::metadata(path).map_or(0, |found| u64::from(found.permissions().mode() & 0o7777))
    };
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let found = LaunchRecord::new(
        var("OPENSENTIENCE_AGENT_ID")?,
        var("OPENSENTIENCE_SESSION_TOKEN")?.into(),
        names.collect(),
        mode(core.parent().unwrap_or(&core)),
        mode(&core),
    );
    let mut line = json::to_vec(&found);
    line.push(b'\n');
    judge.write_all(&line).await?;
    let mut word = [0];
    while let Ok(1) = judge.read(&mut word).await {
        let to_core = UnixStream::connect(&core).await;
        let to_judge = UnixStream::connect(control).await?;
        // A core that takes no more connections is one that closes at once.
        if let Ok(to_core) = to_core {
            tokio::spawn(both_ways(to_core, to_judge));
        }
    }
    Ok(())
}

/// Passes bytes on. A core that takes no more may have said goodbye before: each way ends by itself, and the other side sees it.
async fn both_ways(core: impl AsyncRead + AsyncWrite, judge: impl AsyncRead + AsyncWrite) {
    let ((mut core_says, mut to_core), (mut judge_says, mut to_judge)) =
        (tokio::io::split(core), tokio::io::split(judge));
    let from_core = async {
        let _ = tokio::io::copy(&mut core_says, &mut to_judge).await;
        let _ = to_judge.shutdown().await;
    };
    let from_judge = async {
        let _ = tokio::io::copy(&mut judge_says, &mut to_core).await;
        let _ = to_core.shutdown().await;
    };
    tokio::join!(from_core, from_judge);
}

/// A socket in a folder that only this user reaches.
fn socket() -> io::Result<(tempfile::TempDir, PathBuf, UnixListener)> {
    let folder = tempfile::Builder::new()
        .prefix("osw")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()?;
    let path = folder.path().join("core");
    let listener = UnixListener::bind(&path)?;
    Ok((folder, path, listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_core_has_said_is_passed_on_although_it_takes_no_more() {
        let (core, mut far) = tokio::io::duplex(64);
        let (judge, mut near) = tokio::io::duplex(64);
        let (says, _) = tokio::io::split(core);
        // Writing to it fails.
        let (gone, _) = tokio::io::duplex(1);
        let core = tokio::io::join(says, gone);
        near.write_all(b"a result").await.unwrap();
        let mut heard = String::new();
        let talk = async {
            tokio::task::yield_now().await;
            far.write_all(b"goodbye").await.unwrap();
            drop(far);
            near.read_to_string(&mut heard).await.unwrap();
            drop(near);
        };
        tokio::join!(both_ways(core, judge), talk);
        assert_eq!(heard, "goodbye");
    }
}
