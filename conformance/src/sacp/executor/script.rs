//! What a case tells an executor, and what it is heard to say.

use serde_json::{Value, json};

use crate::{Judge, Protocol, Recorder, Verdict};

/// Something that runs plans, driven line by line. Its time is what it is told.
pub trait Executor {
    /// Takes one line of JSON, and gives the lines that come of it; `None` where it does not know such a line.
    fn tell(&mut self, line: &str) -> Option<Vec<String>>;
}

/// The protocol between the kit and an executor.
#[derive(Debug)]
pub struct Executors;

impl Protocol for Executors {
    type Line = ExecutorLine;
    type Peer = dyn Executor;

    fn describe(line: &ExecutorLine) -> String {
        match line {
            ExecutorLine::Told(text) => format!("> {text}"),
            ExecutorLine::Said(text) => format!("< {text}"),
        }
    }
}

/// One line of a recording.
// exhaustive: the two directions
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutorLine {
    /// What the executor was told.
    Told(String),
    /// What it said.
    Said(String),
}

/// One step of a scenario. A tool is named by its own name: no plan of the kit calls one twice.
#[derive(Clone, Debug)]
pub(super) enum Move {
    /// A message to run.
    Start(String),
    /// The call of this tool succeeds with this output.
    Succeed(&'static str, &'static str),
    /// The call of this tool fails; another attempt may help.
    Fail(&'static str),
    /// So many milliseconds have gone by since the beginning.
    Time(u64),
    /// The run is called off.
    Cancel,
    /// Somebody else's message about a message that is followed.
    Heard(String),
}

/// Tells a peer the moves, one after another, and records both sides. A move about a call that is not open is left out.
pub(super) fn play(
    peer: &mut dyn Executor,
    recorder: &mut Recorder<ExecutorLine>,
    moves: Vec<Move>,
) {
    let mut open: Vec<(Value, String)> = Vec::new();
    for step in moves {
        let mut call = |tool: &str| {
            let place = open.iter().position(|(_, other)| other == tool)?;
            Some(open.remove(place).0)
        };
        let told = match step {
            Move::Start(message) => format!("{{\"start\":{message}}}"),
            Move::Heard(message) => format!("{{\"heard\":{message}}}"),
            Move::Time(ms) => json!({ "time": ms }).to_string(),
            Move::Cancel => json!({ "cancel": true }).to_string(),
            Move::Succeed(tool, output) => match call(tool) {
                Some(id) => format!("{{\"succeed\":{id},\"output\":{output}}}"),
                None => continue,
            },
            Move::Fail(tool) => match call(tool) {
                Some(id) => json!({"fail": id, "message": "down", "retryable": true}).to_string(),
                None => continue,
            },
        };
        recorder.record(ExecutorLine::Told(told.clone()));
        let Some(said) = peer.tell(&told) else {
            return recorder.peer_does_not_know(told);
        };
        for line in said {
            let read: Value = serde_json::from_str(&line).unwrap_or_default();
            if let (Some(id), Some(tool)) = (read.get("call"), read.get("tool")) {
                let tool = tool.as_str().unwrap_or_default().to_owned();
                open.push((id.clone(), tool));
            }
            if let Some(id) = read.get("stop") {
                open.retain(|(other, _)| other != id);
            }
            recorder.record(ExecutorLine::Said(line));
        }
    }
}

/// What was said after each line that was told.
#[derive(Debug, Default)]
pub(super) struct Rounds(Vec<Vec<Value>>);

/// What a rule finds: `Err` says what was seen.
pub(super) type Found = Result<(), String>;

impl Rounds {
    /// The tools that were called in a round, by name.
    pub(super) fn calls(&self, round: usize) -> Vec<&str> {
        let said = self.0.get(round).into_iter().flatten();
        let called = said.filter(|line| line.get("call").is_some());
        let mut tools: Vec<&str> = called.filter_map(|line| line["tool"].as_str()).collect();
        tools.sort_unstable();
        tools
    }

    /// Holds the tools that were called in each round against what is wanted.
    pub(super) fn called(&self, wanted: &[&[&str]]) -> Found {
        for (round, wanted) in wanted.iter().enumerate() {
            let seen = self.calls(round);
            if seen != *wanted {
                return Err(format!(
                    "after line {round}: calls of {seen:?}, not {wanted:?}"
                ));
            }
        }
        let late: Vec<&str> = (wanted.len()..self.0.len())
            .flat_map(|n| self.calls(n))
            .collect();
        if late.is_empty() {
            return Ok(());
        }
        Err(format!("further calls: {late:?}"))
    }

    /// The inputs of the first call of a tool.
    pub(super) fn inputs(&self, tool: &str) -> Option<&Value> {
        let mut calls = self.0.iter().flatten();
        calls.find(|line| line["tool"] == tool)?.get("inputs")
    }

    /// The answers, in their order.
    pub(super) fn answers(&self) -> Vec<&Value> {
        let said = self.0.iter().flatten();
        said.filter_map(|line| line.get("answer")).collect()
    }

    /// The one answer.
    pub(super) fn answer(&self) -> Result<&Value, String> {
        match self.answers()[..] {
            [answer] => Ok(answer),
            ref others => Err(format!("{} answers", others.len())),
        }
    }

    /// Holds a part of the one answer against what is wanted.
    pub(super) fn has(&self, pointer: &str, wanted: &Value) -> Found {
        let seen = self.answer()?.pointer(pointer).unwrap_or(&Value::Null);
        if seen == wanted {
            return Ok(());
        }
        Err(format!("{pointer} of the answer is {seen}, not {wanted}"))
    }

    /// Whether the call of a tool was stopped.
    pub(super) fn is_stopped(&self, tool: &str) -> bool {
        let mut calls = self.0.iter().flatten();
        let id = calls
            .find(|line| line["tool"] == tool)
            .map(|line| &line["call"]);
        let mut said = self.0.iter().flatten();
        id.is_some_and(|id| said.any(|line| line.get("stop") == Some(id)))
    }

    /// What was said of each state that was heard: the state, or the code of the refusal.
    pub(super) fn states(&self) -> Vec<&str> {
        let said = self.0.iter().flatten();
        said.filter_map(|line| line.get("state").or_else(|| line.get("refused"))?.as_str())
            .collect()
    }
}

/// A rule about a whole recording.
pub(super) struct Rule {
    rounds: Rounds,
    holds: fn(&Rounds) -> Found,
}

impl Rule {
    pub(super) fn new(holds: fn(&Rounds) -> Found) -> Self {
        Self {
            rounds: Rounds::default(),
            holds,
        }
    }
}

impl Judge<ExecutorLine> for Rule {
    fn see(&mut self, line: &ExecutorLine) {
        match line {
            ExecutorLine::Told(_) => self.rounds.0.push(Vec::new()),
            ExecutorLine::Said(text) => {
                let line = serde_json::from_str(text).unwrap_or_default();
                self.rounds
                    .0
                    .last_mut()
                    .into_iter()
                    .for_each(|round| round.push(Value::clone(&line)));
            }
        }
    }

    fn verdict(&mut self) -> Verdict {
        match (self.holds)(&self.rounds) {
            Ok(()) => Verdict::Pass,
            Err(seen) => Verdict::fail("the run", seen),
        }
    }
}
