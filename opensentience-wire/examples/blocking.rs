//! Both machines without a runtime: two threads, a pair of sockets, and the standard library.
//!
//! `cargo run -p opensentience-wire --example blocking`

#![allow(
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a driver does the IO that the library does not"
)]

use std::error::Error;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use opensentience_wire::message::ToolSpec;
use opensentience_wire::role::{Input, agent, core};
use opensentience_wire::ubos_common::id::IdSource;
use opensentience_wire::ubos_common::json::RawObject;
use opensentience_wire::ubos_common::machine::Machine;
use opensentience_wire::ubos_common::os::{Clock, fill_random};
use opensentience_wire::ubos_common::time::Mono;
use opensentience_wire::{Grant, SessionToken};

type Failure = Box<dyn Error + Send + Sync>;

/// A socket, a clock, and nothing that either machine knows of.
struct Wire {
    stream: UnixStream,
    clock: Clock,
    buffer: Vec<u8>,
}

impl Wire {
    fn new(stream: UnixStream) -> Self {
        let clock = Clock::start();
        let buffer = vec![0; 64 << 10];
        Self {
            stream,
            clock,
            buffer,
        }
    }

    /// Waits for bytes or for the machine's deadline, whichever comes first, and tells the machine.
    fn step<M>(&mut self, machine: &mut M) -> Result<(), Failure>
    where
        M: for<'a> Machine<Input<'a> = Input<'a>>,
        M::Error: Error + Send + Sync + 'static,
    {
        let wait = machine.poll_timeout().map(|at| self.until(at));
        self.stream.set_read_timeout(wait)?;
        let read = self.stream.read(&mut self.buffer);
        let now = self.clock.now();
        match read {
            Ok(0) => machine.handle_input(now, Input::Eof)?,
            Ok(count) => {
                let bytes = self.buffer.get(..count).unwrap_or_default();
                machine.handle_input(now, Input::Bytes(bytes))?;
            }
            Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                machine.handle_timeout(now);
            }
            Err(err) => return Err(err.into()),
        }
        Ok(())
    }

    /// A read timeout of zero would be none at all.
    fn until(&self, at: Mono) -> Duration {
        let left = at.saturating_since(self.clock.now().mono);
        left.max(Duration::from_millis(1))
    }
}

fn serve(stream: UnixStream, token: SessionToken) -> Result<(), Failure> {
    let mut wire = Wire::new(stream);
    let version = "1.0.0".parse()?;
    let config = agent::Config::new("com.example.a", version, token);
    let mut agent = agent::AgentConnection::new(wire.clock.now(), config, IdSource::from_os()?)?;
    loop {
        while let Some(output) = agent.poll_output() {
            let now = wire.clock.now();
            match output {
                agent::Output::Transmit(bytes) => wire.stream.write_all(&bytes)?,
                agent::Output::Event(agent::Event::Welcomed { .. }) => {
                    let echo = ToolSpec::local("echo", "gives its input back", RawObject::empty());
                    agent.register(now, vec![echo], false)?;
                }
                // The tool runs here; one that takes longer would get a thread.
                agent::Output::Call(call) => {
                    agent.finish(now, &call.call_id, Ok(call.call.input))?
                }
                agent::Output::Close(_) => return Ok(()),
                _ => {}
            }
        }
        wire.step(&mut agent)?;
    }
}

fn main() -> Result<(), Failure> {
    let (near, far) = UnixStream::pair()?;
    let mut bits = [0; 32];
    fill_random(&mut bits)?;
    let token = move || SessionToken::from_random(bits);
    let served = std::thread::spawn(move || serve(far, token()));

    let mut wire = Wire::new(near);
    let now = wire.clock.now();
    let grant = Grant::new(now.mono, token(), "com.example.a");
    let config = core::Config::default();
    let mut core = core::CoreConnection::new(now, config, IdSource::from_os()?, Some(grant))?;
    loop {
        while let Some(output) = core.poll_output() {
            let now = wire.clock.now();
            match output {
                core::Output::Transmit(bytes) => wire.stream.write_all(&bytes)?,
                core::Output::Event(core::Event::ToolsChanged) => {
                    let request = core::CallRequest::new("com.example.a/echo", RawObject::empty());
                    core.call_tool(now, request.with_timeout(Duration::from_secs(5)))?;
                }
                core::Output::Event(core::Event::Ended(_, outcome)) => {
                    println!("{} after {:?}", outcome.status, outcome.duration);
                    core.goodbye(now, "done", None)?;
                }
                core::Output::Close(reason) => {
                    println!("{reason:?}");
                    drop(wire);
                    return served.join().map_err(|_| "the agent panicked")?;
                }
                _ => {}
            }
        }
        wire.step(&mut core)?;
    }
}
