//! Refusals that are recorded, and agents that fail while they are unhealthy.

use core::time::Duration;

use opensentience_wire::message::Health;
use opensentience_wire::role::router::{Config, Ended, Input, Output, Quota, RestartPolicy};
use opensentience_wire::{AuditName, ErrorCode};

use super::{drain, keyed, request, router};
use crate::kit::at;

// spec: OSW-8-1
#[test]
fn refusals_for_the_state_of_an_agent_a_rate_and_a_key_are_audited() {
    let quota = Quota::default().with_rate(1, Duration::from_secs(60));
    let config = Config::default()
        .with_tool_quota("b/count", quota)
        .with_restart(RestartPolicy::Always);
    let mut router = router(config);
    router.call(at(0), request("b/count")).unwrap();
    router.call(at(0), keyed("a/read", 1)).unwrap();
    let of_a = |input: fn(String) -> Input| input("a".to_owned());
    let mut refused = vec![
        router.call(at(0), request("b/count")).unwrap_err(),
        router.call(at(0), keyed("a/read", 2)).unwrap_err(),
    ];
    router.handle_input(
        at(0),
        of_a(|agent| Input::Health {
            agent,
            health: Health::Unhealthy,
        }),
    );
    refused.push(router.call(at(0), request("a/read")).unwrap_err());
    router.handle_input(
        at(0),
        of_a(|agent| Input::AgentDown {
            agent,
            ended: Ended::Failed,
        }),
    );
    refused.push(router.call(at(0), request("a/read")).unwrap_err());
    let outputs = drain(&mut router).into_iter();
    let told: Vec<_> = outputs
        .filter_map(|output| match output {
            Output::Audit(event) if event.name == AuditName::CallRefused => event.code,
            _ => None,
        })
        .collect();
    let codes: Vec<_> = refused.iter().map(ErrorCode::from).collect();
    assert_eq!(told, codes);
    assert_eq!(codes.len(), 4);
}

// spec: OSW-4.5-3
#[test]
fn an_agent_that_ends_well_while_it_is_unhealthy_has_failed() {
    for health in [Health::Ok, Health::Unhealthy] {
        let mut router = router(Config::default().with_restart(RestartPolicy::OnFailure));
        // While a call runs it is not stopped for its health.
        router.call(at(0), request("a/read")).unwrap();
        let agent = || "a".to_owned();
        let is_well = health == Health::Ok;
        let said = Input::Health {
            agent: agent(),
            health,
        };
        router.handle_input(at(0), said);
        let ended = Ended::Well;
        router.handle_input(
            at(1),
            Input::AgentDown {
                agent: agent(),
                ended,
            },
        );
        router.handle_timeout(at(5_000));
        let launches = drain(&mut router).into_iter();
        let launches = launches.filter(|output| matches!(output, Output::Launch { .. }));
        assert_eq!(launches.count(), usize::from(!is_well), "{is_well}");
    }
}
