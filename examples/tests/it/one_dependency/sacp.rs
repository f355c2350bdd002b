//! Runs a plan whose steps are answered at once.

use sacp::Message;
use sacp::runner::{Config, Input, Output, Runner};
use sacp::ubos_common::json::RawBuf;
use sacp::ubos_common::time::{Mono, Now, Timestamp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = br#"{"msg_id":"m1","g":"ADD","plan":[["get","ONE",{}],["get","TWO",{}]]}"#;
    let message = Message::decode(text)?;
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let mut runner = Runner::new(&message, Config::default())?;
    runner.start(now);
    let mut steps = 0;
    while let Some(output) = runner.poll_output() {
        if let Output::Dispatch { ticket, .. } = output {
            let output = RawBuf::parse("1")?;
            runner.handle_input(now, Input::Succeeded { ticket, output })?;
            steps += 1;
        }
    }
    assert!(runner.is_closed() && steps == 2);
    Ok(())
}
