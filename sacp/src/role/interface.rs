//! An interface that asks a model.

use std::collections::BTreeSet;

use ubos_common::id::IdSource;
use ubos_common::json::to_string;
use ubos_common::violation::Level;

use super::Interface;
use crate::any::AnyMessage;
use crate::check::{Config, Finding, check_plan};
use crate::error::Code;
use crate::message::{Message, NonEmpty, OutFmt};
use crate::plan::Act;
use crate::prompt::{Bridge, interface_prompt, read_answer};
use crate::registry::Registry;
use crate::reply::{Clarify, ErrReply, Reply};

/// Has a model turn a person's words into a message, and holds the message to the registry and to the words.
///
/// The model is told what is wrong with its answer, and mends it, at most twice. A message is taken if the check of its plan
/// finds no MUST, and if it has every number of the words: a limit is not dropped in silence. What is left open, and what the
/// model asks, is asked back.
///
/// A model writes 0.1; [`v1::up`](crate::v1::up) makes a message of 1.0 of it, with the sender, time and id that the host knows.
///
/// ```
/// use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
/// use sacp::role::{Interface, ModelInterface};
/// use ubos_common::json::RawBuf;
///
/// let mut registry = MemoryRegistry::default();
/// registry.add_verb(VerbDef::new("search".into(), "Finds".into(), vec![], RawBuf::parse("\"list\"")?))?;
/// registry.add_tool(ToolDef::new("H_API".into(), "Finds hotels".into(), vec!["search".into()]))?;
/// registry.add_agent(AgentRecord::new("HOTELS".into(), vec!["search".into()], vec!["H_API".into()],
///     vec![], vec!["list".into()], "Finds hotels".into()))?;
/// // A model that forgets the limit until it is told.
/// let model = |prompt: &str| if prompt.contains("say 1200") {
///     r#"{"g":"STAY","ctx":{"budget":1200},"plan":[["search","H_API",{"city":"Paris"}]]}"#.to_owned()
/// } else {
///     r#"{"g":"STAY","plan":[["search","H_API",{"city":"Paris"}]]}"#.to_owned()
/// };
/// let interface = ModelInterface::new(&registry, ["HOTELS"], model);
/// let message = interface.interpret("a hotel in Paris for at most $1,200").unwrap();
/// assert_eq!(message.context.unwrap()["budget"].as_str(), "1200");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 9, 10
pub struct ModelInterface<'a, M> {
    registry: &'a dyn Registry,
    agents: Vec<String>,
    model: M,
    formatter: Option<(String, String)>,
}

impl<M> core::fmt::Debug for ModelInterface<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ModelInterface")
            .field("agents", &self.agents)
            .field("formatter", &self.formatter)
            .finish_non_exhaustive()
    }
}

impl<'a, M: Fn(&str) -> String> ModelInterface<'a, M> {
    /// An interface to these agents of a registry. The model takes a prompt and gives its answer.
    #[must_use]
    pub fn new<'n>(
        registry: &'a dyn Registry,
        agents: impl IntoIterator<Item = &'n str>,
        model: M,
    ) -> Self {
        Self {
            registry,
            agents: agents.into_iter().map(str::to_owned).collect(),
            model,
            formatter: None,
        }
    }

    /// Ends every plan with an act of this verb and tool, which writes for a person.
    #[must_use]
    pub fn with_formatter(mut self, verb: &str, tool: &str) -> Self {
        self.formatter = Some((verb.to_owned(), tool.to_owned()));
        self
    }

    /// The message, if it may be taken.
    fn checked(&self, words: &str, mut message: Message) -> Result<Message, Refused> {
        if let Some((verb, tool)) = &self.formatter {
            message.plan.push(Act::new(verb, tool));
        }
        message.out_fmt = Some(match &self.formatter {
            Some(_) => OutFmt::Human,
            None => OutFmt::Raw,
        });
        // The same words have the same id, so that a message that is sent twice is recognized.
        let fold = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        let seed = words.bytes().fold(0, fold);
        message.msg_id = NonEmpty::new(IdSource::seeded(seed).uuid().to_string());
        if let Some(number) = unsaid(words, &to_string(&message)) {
            let what = format!("the words say {number}, and the message does not");
            return Err(Refused::Again(ErrReply::new(Code::MissingField, what)));
        }
        let message = AnyMessage::from(message);
        let mut musts = check_plan(&message, Some(self.registry), &Config::default());
        musts.retain(|finding| finding.violation.level == Level::Must);
        match (message, musts.first()) {
            (AnyMessage::V01(message), None) => Ok(*message),
            (_, Some(first)) => Err(refused(&musts, first)),
            (AnyMessage::V10(_), None) => Err(Refused::Again(not_a_message())),
        }
    }
}

impl<M: Fn(&str) -> String> Interface for ModelInterface<'_, M> {
    // impl: SACP-9-2
    fn interpret(&self, words: &str) -> Result<Message, Clarify> {
        if words.trim().is_empty() {
            return Err(Clarify::new(["g"], "no words"));
        }
        let agents: Vec<&str> = self.agents.iter().map(String::as_str).collect();
        let mut bridge = Bridge::new(interface_prompt(words, self.registry, &agents));
        let mut prompt = bridge.prompt().to_owned();
        loop {
            let error = match read_answer(&(self.model)(&prompt)) {
                Ok(Reply::Clarify(question)) => return Err(question),
                Ok(Reply::Message(message)) => match self.checked(words, *message) {
                    Ok(message) => return Ok(message),
                    Err(Refused::Ask(question)) => return Err(question),
                    Err(Refused::Again(error)) => error,
                },
                Ok(_) => not_a_message(),
                Err(error) => error,
            };
            let unclear = |error: Box<ErrReply>| Clarify::new(["g"], error.details.as_str());
            prompt = bridge.again(error).map_err(unclear)?;
        }
    }
}

/// Why a message is not taken.
enum Refused {
    /// Only the person knows it.
    Ask(Clarify),
    /// The model is told.
    Again(ErrReply),
}

/// A question, where every finding is one; else what the model did wrong first.
fn refused(musts: &[Finding], first: &Finding) -> Refused {
    let what = first.violation.message.as_ref();
    if musts.iter().all(|finding| finding.question.is_some()) {
        let missing = musts
            .iter()
            .filter_map(|finding| finding.question.as_deref());
        return Refused::Ask(Clarify::new(missing, what));
    }
    let wrong = musts.iter().find(|finding| finding.question.is_none());
    let wrong = wrong.map_or(what, |finding| finding.violation.message.as_ref());
    Refused::Again(ErrReply::new(Code::MalformedPlan, wrong).at(&first.violation.pointer))
}

fn not_a_message() -> ErrReply {
    ErrReply::new(Code::OutFmtViolation, "the answer is no message of 0.1")
}

/// A number of the words that the message does not have.
fn unsaid(words: &str, message: &str) -> Option<String> {
    let said = numbers(message);
    numbers(words)
        .into_iter()
        .find(|number| !said.contains(number))
}

/// The numbers in a text, each in one spelling: `$1,200.00` and `1200` are the same.
fn numbers(text: &str) -> BTreeSet<String> {
    let inner = |text: &[char]| matches!(text, [a, ',' | '\'', b, ..] if a.is_ascii_digit() && b.is_ascii_digit());
    let characters: Vec<char> = text.chars().collect();
    let mut joined = String::new();
    for (n, c) in characters.iter().enumerate() {
        let around = characters.get(n.saturating_sub(1)..).unwrap_or_default();
        if !(n > 0 && inner(around)) {
            joined.push(*c);
        }
    }
    let runs = joined.split(|c: char| !c.is_ascii_digit() && c != '.');
    let plain = |run: &str| {
        let run = run.trim_matches('.');
        let (whole, part) = run.split_once('.').unwrap_or((run, ""));
        let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
        if part.is_empty() {
            whole.to_owned()
        } else {
            format!("{whole}.{part}")
        }
    };
    let digits = runs.filter(|run| run.contains(|c: char| c.is_ascii_digit()));
    digits.map(plain).collect()
}
