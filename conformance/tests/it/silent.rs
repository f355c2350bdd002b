//! An agent that says nothing.

use std::time::Duration;

use opensentience_wire::SessionToken;
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_conformance::osw::{Launch, Peer, Received, agent_kit};
use ubos_conformance::{ConnectError, Expectations};

/// Time passes for it when it is waited for.
#[derive(Default)]
struct Silent(Duration);

impl Peer for Silent {
    fn launch(&mut self) -> Option<Launch> {
        Some(Launch::new(
            "com.example.a",
            SessionToken::from_random([7; 32]),
        ))
    }

    fn reconnect(&mut self) -> bool {
        false
    }

    fn now(&mut self) -> Now {
        Now::new(Mono::ZERO.saturating_add(self.0), Timestamp::EPOCH)
    }

    fn send(&mut self, _: &[u8]) {}

    fn receive(&mut self, within: Duration) -> Received {
        self.0 += within;
        Received::Nothing
    }

    fn close(&mut self) {}
}

/// As `AgentUnderTest` does it: waited for once, and launched no more.
#[test]
fn an_agent_that_says_nothing_fails_the_clause_of_the_hello() {
    let mut first = true;
    let report = agent_kit().run(&Expectations::new(), |_| {
        if !std::mem::take(&mut first) {
            return Err(ConnectError::Unreachable("it sent nothing".to_owned()));
        }
        Ok(Box::new(Silent::default()))
    });
    let table = report.to_string();
    assert_eq!((report.judged(), report.failed()), (1, 1), "{table}");
    let told = "OSW-4.1-1   a hello comes first (line 2, begin: no hello within 10 seconds)";
    assert!(table.contains(told), "{table}");
}
