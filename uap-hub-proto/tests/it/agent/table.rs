//! Every event in every state, for the agent and for each of its sessions.

use super::*;

/// An agent in a phase, with nothing left to take.
fn in_phase(phase: &str) -> Rig {
    let capabilities = vec![Skill::test("t").into(), Skill::translation("f").into()];
    let config = Config::default().with_capabilities(capabilities);
    let mut rig = Rig {
        agent: FleetAgent::new(config, IdSource::seeded(0)).unwrap(),
        now: Now::new(Mono::ZERO, Timestamp::EPOCH),
        attempt: 0,
    };
    let reach = |rig: &mut Rig, words: &[&str]| words.iter().for_each(|word| event(rig, word));
    match phase {
        "idle" => {}
        "registering" => reach(&mut rig, &["start"]),
        "listening" => reach(&mut rig, &["start", "registered"]),
        "pausing" => reach(&mut rig, &["start", "register failed"]),
        "leaving" => reach(&mut rig, &["start", "registered", "shutdown"]),
        "closed" => reach(&mut rig, &["start", "shutdown"]),
        other => panic!("{other}"),
    }
    rig.take();
    rig
}

/// Something that happens to an agent; refusals of a closed one are its answer.
fn event(rig: &mut Rig, word: &str) {
    let proposal = ListenResponse {
        event: Some(listen_response::Event::SessionProposal(SessionProposal {
            session_id: "s".into(),
            details: test("t"),
        })),
    };
    // No phase comes after a second attempt.
    let current = 1;
    let registered = |attempt| Input::Registered {
        attempt,
        client_id: "id".into(),
    };
    let ended = |stream| Input::Ended {
        stream: StreamId(stream),
        status: Status::new(Code::Unavailable, "gone"),
    };
    let input = match word {
        "start" => return rig.agent.start(rig.now),
        "shutdown" => return rig.agent.shutdown(rig.now, Duration::ZERO),
        "a minute" => return rig.pass(60_000),
        "registered" => registered(current),
        "registered late" => registered(current + 9),
        "register failed" => Input::RegisterFailed {
            attempt: current,
            reason: "down".into(),
        },
        "proposal" => Input::Message {
            stream: StreamId(1),
            message: Inbound::Listen(proposal),
        },
        "stray proposal" => Input::Message {
            stream: StreamId(9),
            message: Inbound::Listen(proposal),
        },
        "stray job" => Input::Message {
            stream: StreamId(9),
            message: Inbound::Test(TestInit::default()),
        },
        "listen ended" => ended(1),
        "stray end" => ended(9),
        other => panic!("{other}"),
    };
    let was_closed = rig.agent.is_closed();
    let refused = rig.agent.handle_input(rig.now, input).is_err();
    assert_eq!(refused, was_closed);
}

/// What follows, for each phase and event; what is not listed changes nothing and says nothing.
const PHASES: &str = "\
idle, start: register 1
idle, shutdown: closed
registering, registered: open 1 Listen id; 1: ready; listening as id
registering, register failed: retrying 1
registering, a minute: retrying 1
registering, shutdown: closed
listening, proposal: 1: accept s
listening, listen ended: retrying 1
listening, shutdown: half-close 1
pausing, a minute: register 2
pausing, shutdown: closed
leaving, a minute: drop 1; closed
leaving, listen ended: closed";

// spec: HUB-5-2, HUB-2-7, HUB-3-7
#[test]
fn every_event_in_every_phase() {
    let phases = [
        "idle",
        "registering",
        "listening",
        "pausing",
        "leaving",
        "closed",
    ];
    let events = [
        "start",
        "registered",
        "registered late",
        "register failed",
        "a minute",
        "proposal",
        "stray proposal",
        "stray job",
        "listen ended",
        "stray end",
        "shutdown",
    ];
    let mut lines = Vec::new();
    for phase in phases {
        for word in events {
            let mut rig = in_phase(phase);
            event(&mut rig, word);
            let said = rig.take();
            if !said.is_empty() {
                lines.push(format!("{phase}, {word}: {}", said.join("; ")));
            }
        }
    }
    let mut wanted: Vec<_> = PHASES.lines().collect();
    wanted.sort_unstable();
    lines.sort();
    assert_eq!(lines, wanted);
}

/// An agent whose session `s` is in a stage, on stream 2, with nothing left to take.
fn in_stage(stage: &str) -> Rig {
    let mut rig = Rig::listening();
    rig.propose("s", test("t"));
    let reach = |rig: &mut Rig, words: &[&str]| words.iter().for_each(|word| drop(act(rig, word)));
    match stage {
        "accepted" => {}
        "opened" => reach(&mut rig, &["ready"]),
        "running" => reach(&mut rig, &["ready", "job"]),
        "finishing" => reach(&mut rig, &["ready", "job", "finish"]),
        "over" => reach(&mut rig, &["ready", "job", "finish", "ended"]),
        other => panic!("{other}"),
    }
    rig.take();
    rig
}

/// Something that happens to a session; the answer to a command is its error.
fn act(rig: &mut Rig, word: &str) -> Result<(), CommandError> {
    let id = SessionId::from("s");
    match word {
        "proposed again" => rig.propose("s", test("t")),
        "ready" => rig.ready("s"),
        "job" => rig.init(2),
        "ended" => rig.ended(2, Code::Ok),
        "broken" => rig.ended(2, Code::Unknown),
        "listen ended" => rig.ended(1, Code::Unavailable),
        "5 s" => rig.pass(5_000),
        "30 s" => rig.pass(30_000),
        "5 min" => rig.pass(300_000),
        "shutdown" => rig.agent.shutdown(rig.now, Duration::ZERO),
        "drained" => {
            rig.agent.shutdown(rig.now, Duration::ZERO);
            rig.pass(0);
        }
        "status" => return rig.agent.status(rig.now, &id, State::Running, "on"),
        "telemetry" => {
            let line = Telemetry::new(Severity::Info, "line");
            return rig.agent.telemetry(rig.now, &id, line);
        }
        "finish" => {
            let result = TestResult::completed("done").into();
            return rig.agent.finish(rig.now, &id, result);
        }
        other => panic!("{other}"),
    }
    Ok(())
}

/// What follows, for each stage and event; what is not listed changes nothing and says nothing.
const STAGES: &str = "\
accepted, ready: open 2 Execute s; 2: status 1 
accepted, listen ended: over s; retrying 1
accepted, 5 min: over s
accepted, drained: over s; half-close 1
accepted, status: refused
accepted, telemetry: refused
accepted, finish: refused
opened, job: 2: status 3 ; run s test type \"t\" 1
opened, ended: over s
opened, broken: over s
opened, listen ended: retrying 1
opened, 30 s: 2: result the hub did not send the job in time; half-close 2
opened, 5 min: 2: result the hub did not send the job in time; half-close 2
opened, drained: drop 2; over s; half-close 1
opened, status: refused
opened, telemetry: refused
opened, finish: refused
running, ended: stop s; over s
running, broken: stop s; over s
running, listen ended: retrying 1
running, drained: drop 2; stop s; over s; half-close 1
running, status: 2: status 3 on
running, telemetry: 2: line
running, finish: 2: result done; half-close 2
finishing, ended: over s
finishing, broken: over s
finishing, listen ended: retrying 1
finishing, 5 s: drop 2; over s
finishing, 30 s: drop 2; over s
finishing, 5 min: drop 2; over s
finishing, drained: drop 2; over s; half-close 1
finishing, status: refused
finishing, telemetry: refused
finishing, finish: refused
over, proposed again: 1: accept s
over, listen ended: retrying 1
over, shutdown: half-close 1
over, drained: half-close 1
over, status: refused
over, telemetry: refused
over, finish: refused";

// spec: HUB-3-7, HUB-4-1, HUB-4-8, HUB-4-7
#[test]
fn every_event_in_every_stage_of_a_session() {
    let stages = ["accepted", "opened", "running", "finishing", "over"];
    let events = [
        "proposed again",
        "ready",
        "job",
        "ended",
        "broken",
        "listen ended",
        "5 s",
        "30 s",
        "5 min",
        "shutdown",
        "drained",
        "status",
        "telemetry",
        "finish",
    ];
    let mut lines = Vec::new();
    for stage in stages {
        for word in events {
            let mut rig = in_stage(stage);
            let answer = act(&mut rig, word);
            let said = rig.take();
            match (answer, said.is_empty()) {
                (Err(error), true) => {
                    assert_eq!(error, CommandError::NotRunning);
                    lines.push(format!("{stage}, {word}: refused"));
                }
                (Ok(()), false) => lines.push(format!("{stage}, {word}: {}", said.join("; "))),
                (Ok(()), true) => {}
                (Err(error), false) => panic!("{stage}, {word}: {error} and {said:?}"),
            }
        }
    }
    let mut wanted: Vec<_> = STAGES.lines().collect();
    wanted.sort_unstable();
    lines.sort();
    assert_eq!(lines, wanted);
}
