//! A router, driven as any machine is.

use core::convert::Infallible;

use opensentience_wire::role::router::{Config, Ended, Input, Output, RestartPolicy, Router};
use ubos_common::machine::Machine;
use ubos_common::time::Mono;

use super::{ended, request, router, sent, tools, up};
use crate::kit::at;

/// Tells a machine something, and gives what came out.
fn tell<M: Machine<Error = Infallible>>(machine: &mut M, input: M::Input<'_>) -> Vec<M::Output> {
    machine.handle_input(at(0), input).unwrap();
    core::iter::from_fn(|| machine.poll_output()).collect()
}

/// Lets a machine do what is due at the time that it names.
fn wait<M: Machine>(machine: &mut M) -> (Option<Mono>, Vec<M::Output>) {
    let due = machine.poll_timeout();
    machine.handle_timeout(at(due.unwrap().as_nanos().div_ceil(1_000_000)));
    let outputs = core::iter::from_fn(|| machine.poll_output()).collect();
    (due, outputs)
}

#[test]
fn a_driver_of_any_machine_drives_a_router() {
    let agent = || "a".to_owned();
    let config = Config::default().with_restart(RestartPolicy::Always);
    let mut router = Router::new(config).unwrap();
    let tools = tools("a", &["read"]);
    tell(
        &mut router,
        Input::AgentUp {
            agent: agent(),
            tools,
        },
    );
    let route = router.call(at(0), request("a/read")).unwrap();
    let ended_at = Ended::Failed;
    let outputs = tell(
        &mut router,
        Input::AgentDown {
            agent: agent(),
            ended: ended_at,
        },
    );
    assert_eq!(sent(&outputs), ["a a/read"]);
    assert_eq!(
        ended(&outputs),
        [(route, "agent.disconnected".into())].into()
    );
    let (due, outputs) = wait(&mut router);
    assert!(due > Some(Mono::ZERO));
    assert!(matches!(&outputs[..], [Output::Launch { attempt: 1, .. }]));
    assert_eq!(Machine::poll_timeout(&router), None);
    assert!(!Machine::is_closed(&router));
}

// spec: OSW-4.5-3
#[test]
fn an_agent_that_came_back_by_itself_is_not_launched() {
    let mut router = router(Config::default().with_restart(RestartPolicy::Always));
    let (agent, ended) = ("a".to_owned(), Ended::Failed);
    tell(&mut router, Input::AgentDown { agent, ended });
    assert!(router.poll_timeout().is_some());
    up(&mut router, 1, "a", &["read"]);
    assert_eq!(router.poll_timeout(), None);
}

#[test]
fn a_router_whose_outputs_nobody_takes_wants_no_more_input() {
    let mut router = router(Config::default());
    let mut waiting = 0;
    while Machine::accepts_input(&router) {
        // Each leaves its record.
        router.call(at(0), request("a/none")).unwrap_err();
        waiting += 1;
        assert!(waiting <= 10_000, "it has a bound");
    }
    assert!(router.poll_output().is_some());
    assert!(router.accepts_input() && waiting > 1);
}
