//! Every event in every stage of a session, held against the table in the documentation.

use super::*;

const TABLE: &str = include_str!("../../../src/role/hub/TRANSITIONS.md");

/// Stages in the order in which a session goes through them.
const STAGES: [&str; 8] = [
    "waiting",
    "proposed",
    "preparing",
    "ready",
    "open",
    "terminal",
    "over",
    "forgotten",
];

/// A session at a stage.
struct At {
    rig: Rig,
    job: JobId,
    agent: String,
    listen: StreamId,
    session: String,
    stream: Option<StreamId>,
    /// Of an agent that resumes its sessions.
    resume: Option<Resume>,
}

type Act = fn(&mut At);

/// What can happen, with the settings that it needs.
const EVENTS: [(&str, Act); 29] = [
    ("accepted", |at| at.answer(true)),
    ("refused", |at| at.answer(false)),
    ("accepted by another agent", |at| {
        let id = at.rig.register(vec![]);
        let other = at.rig.open(Rpc::Listen, Some(&id));
        at.rig.take();
        at.rig.answer(other, &at.session.clone(), true);
    }),
    ("prepared", |at| at.prepared(Ok(()))),
    ("preparation failed", |at| at.prepared(Err("no".into()))),
    ("Execute opened", |at| at.on_open(Rpc::Execute)),
    ("Translate opened", |at| at.on_open(Rpc::Translate)),
    ("status RUNNING", |at| {
        at.on_stream(|rig, stream| rig.status(stream, 3))
    }),
    ("status COMPLETED", |at| {
        at.on_stream(|rig, stream| rig.status(stream, 4))
    }),
    ("status UNSPECIFIED", |at| {
        at.on_stream(|rig, stream| rig.status(stream, 0))
    }),
    ("telemetry", |at| {
        at.on_stream(|rig, stream| {
            rig.say(
                stream,
                test_response::Event::Telemetry(Telemetry::default()),
            );
        });
    }),
    ("result FAILED", |at| {
        at.on_stream(|rig, stream| rig.result(stream, State::Failed))
    }),
    ("result RUNNING", |at| {
        at.on_stream(|rig, stream| rig.result(stream, State::Running))
    }),
    ("stream half-closed", |at| at.on_stream(Rig::half_close)),
    ("stream reset", |at| at.on_stream(Rig::reset)),
    ("stream reset, 2 attempts", |at| {
        at.on_stream(Rig::reset);
    }),
    ("connection lost", |at| at.on_stream(Rig::lose)),
    ("connection lost, resumes", |at| at.on_stream(Rig::lose)),
    ("lost for 60 s, resumes", |at| {
        at.on_stream(Rig::lose);
        at.rig.seconds(60);
    }),
    ("lost and opened again, resumes", |at| {
        at.on_stream(Rig::lose);
        at.reopen();
    }),
    ("opened again, resumes", At::reopen),
    ("30 s pass", |at| at.rig.seconds(30)),
    ("10 min pass", |at| at.rig.seconds(600)),
    ("Listen half-closed", |at| at.rig.half_close(at.listen)),
    ("Listen reset, 2 attempts", |at| {
        at.rig.reset(at.listen);
    }),
    ("Listen reset, grace 60 s", |at| {
        at.rig.reset(at.listen);
    }),
    ("Listen again", |at| {
        at.rig.open(Rpc::Listen, Some(&at.agent));
    }),
    ("cancelled", |at| {
        // Refused where the job has ended.
        let _ = at.rig.hub.cancel(at.rig.now, at.job);
    }),
    ("shutdown", |at| {
        at.rig.hub.shutdown(at.rig.now, Duration::from_secs(60))
    }),
];

impl At {
    fn new(stage: &str, event: &str) -> Self {
        let mut config = Config::default().with_prepare(true);
        if event.ends_with("2 attempts") {
            config = config.with_max_attempts(2);
        }
        if event.ends_with("grace 60 s") {
            config = config.with_resume_grace(Duration::from_secs(60));
        }
        if event.ends_with("resumes") {
            config = config.with_resume_grace(Duration::from_secs(60));
        }
        let mut rig = Rig::with(config);
        let (agent, listen) = rig.agent();
        if stage == "waiting" {
            rig.hub
                .set_agent_paused(rig.now, &agent.as_str().into(), true)
                .unwrap();
        }
        let job = rig.submit();
        let mut at = Self {
            session: rig
                .proposals()
                .pop()
                .map_or_else(|| "JOB-x".into(), |(_, id)| id),
            stream: None,
            rig,
            job,
            agent,
            listen,
            resume: event.ends_with("resumes").then_some(Resume::Job(1)),
        };
        let reached = STAGES.iter().position(|name| *name == stage).unwrap();
        let steps: [Act; 6] = [
            |at| at.answer(true),
            |at| at.prepared(Ok(())),
            |at| at.stream = Some(at.open(Rpc::Execute)),
            |at| at.on_stream(|rig, stream| rig.status(stream, 4)),
            |at| at.on_stream(|rig, stream| rig.result(stream, State::Completed)),
            |at| at.on_stream(Rig::half_close),
        ];
        for step in steps.iter().take(reached.saturating_sub(1)) {
            step(&mut at);
        }
        at.rig.take();
        at
    }

    fn answer(&mut self, accepted: bool) {
        self.rig
            .answer(self.listen, &self.session.clone(), accepted);
    }

    fn prepared(&mut self, done: Result<(), String>) {
        let session = SessionId::from(self.session.as_str());
        // Refused where nothing is being prepared.
        let _ = self.rig.hub.prepared(self.rig.now, &session, done);
        self.rig.drain();
    }

    fn open(&mut self, rpc: Rpc) -> StreamId {
        self.rig.open_as(rpc, Some(&self.session), self.resume)
    }

    fn reopen(&mut self) {
        self.resume = Some(Resume::Reports(2));
        self.open(Rpc::Execute);
    }

    fn on_open(&mut self, rpc: Rpc) {
        self.open(rpc);
    }

    fn on_stream(&mut self, act: impl FnOnce(&mut Rig, StreamId)) {
        if let Some(stream) = self.stream {
            act(&mut self.rig, stream);
        }
    }
}

/// One cell: what the hub says, in short.
fn cell(stage: &str, event: &str, act: Act) -> String {
    let mut at = At::new(stage, event);
    act(&mut at);
    let said = words(at.rig.take());
    let short = |word: String| {
        let mut parts = word.split(' ');
        match (parts.next(), parts.next()) {
            (Some(first @ ("end" | "ended" | "audit" | "status")), Some(second)) => {
                format!("{first} {second}")
            }
            (Some("told"), _) => "event ready".to_owned(),
            (first, _) => first.unwrap_or_default().to_owned(),
        }
    };
    let said: Vec<_> = said.into_iter().map(short).collect();
    if said.is_empty() {
        return "·".to_owned();
    }
    said.join(", ")
}

// spec: HUB-2-2, HUB-3-3, HUB-3-4, HUB-3-5, HUB-4-2, HUB-4-3, HUB-4-7, HUB-5-1, HUB-5-3, HUB-5-4
#[test]
fn the_table_says_what_every_event_does_in_every_stage() {
    let mut table = format!(
        "| event | {} |\n|{}\n",
        STAGES.join(" | "),
        "---|".repeat(9)
    );
    for (event, act) in EVENTS {
        let cells: Vec<_> = STAGES.iter().map(|stage| cell(stage, event, act)).collect();
        table += &format!("| {event} | {} |\n", cells.join(" | "));
    }
    assert!(
        TABLE.contains(&table),
        "TRANSITIONS.md should have this table:\n\n{table}"
    );
}
