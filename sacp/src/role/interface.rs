//! An interface without a model: it knows the registered words alone.

use serde_json::{Map, Value};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};

use super::Interface;
use crate::message::{Message, NonEmpty, OutFmt};
use crate::plan::{Act, Plan};
use crate::registry::{AgentRecord, Embedder, NGrams, Query, Registry, best_for_goal};
use crate::reply::Clarify;

/// Finds the registered verbs in a person's words, the tool for each, and the parameters.
///
/// The words are split at `then`, `and then`, `;` and `.`. Each part needs a verb, or words that are similar to an
/// agent's description. Parameters are `name=value` or `name: value`, dates (`2026-06-01`), a capitalized word
/// after `in` or `at` (`location`), and a number after `under`, `below` or `budget` (`budget`). It asks back where
/// it cannot resolve a part.
///
/// ```
/// use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
/// use sacp::role::{Interface, WordInterface};
/// use ubos_common::json::RawBuf;
///
/// let mut registry = MemoryRegistry::default();
/// registry.add_verb(VerbDef::new("search".into(), "Finds".into(), vec![], RawBuf::parse("\"list\"")?))?;
/// registry.add_tool(ToolDef::new("H_API".into(), "Finds hotels".into(), vec!["search".into()]))?;
/// registry.add_agent(AgentRecord::new("HOTELS".into(), vec!["search".into()], vec!["H_API".into()],
///     vec![], vec!["list".into()], "Finds hotels".into()))?;
/// let interface = WordInterface::new(&registry);
/// let message = interface.interpret("search hotels in Paris under 150").unwrap();
/// assert_eq!(sacp::Graph::from(&message).steps()[0].act.tool, "H_API");
/// assert_eq!(message.context.unwrap()["location"].as_str(), "\"Paris\"");
/// assert_eq!(interface.interpret("make tea").unwrap_err().missing, ["verb"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 9, 10
// impl: SACP-9-2
pub struct WordInterface<'a> {
    registry: &'a dyn Registry,
    embedder: &'a dyn Embedder,
    threshold: f32,
    formatter: Option<(String, String)>,
    seed: u64,
}

impl core::fmt::Debug for WordInterface<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WordInterface")
            .field("threshold", &self.threshold)
            .field("formatter", &self.formatter)
            .finish_non_exhaustive()
    }
}

impl<'a> WordInterface<'a> {
    /// An interface to a registry. Its messages ask for raw answers.
    #[must_use]
    pub fn new(registry: &'a dyn Registry) -> Self {
        static GRAMS: NGrams = NGrams::standard();
        Self {
            registry,
            embedder: &GRAMS,
            threshold: 0.3,
            formatter: None,
            seed: 0,
        }
    }

    /// Ends every plan with an act of this verb and tool, which writes for a person.
    #[must_use]
    pub fn with_formatter(mut self, verb: &str, tool: &str) -> Self {
        self.formatter = Some((verb.to_owned(), tool.to_owned()));
        self
    }

    /// The act for a part of the words.
    fn act(&self, part: &str) -> Option<Act> {
        let verb = part.split_whitespace().find_map(|word| {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
            self.registry
                .verb(word)
                .or_else(|| self.registry.verb(&word.to_lowercase()))
        });
        let Some(verb) = verb else {
            return self.nearest(part);
        };
        let agents = self.registry.query(&Query::default().with_verb(&verb.name));
        let pairs = agents.iter().flat_map(|agent| &agent.supported_tools);
        let known =
            pairs.filter(|tool| crate::registry::look_up(self.registry, &verb.name, tool).is_ok());
        let near = |tool: &str| {
            let about = self
                .registry
                .tool(tool)
                .map(|tool| format!("{} {}", tool.id, tool.description));
            self.nearness(part, &about.unwrap_or_default())
        };
        let mut tools: Vec<(f32, &String)> = known.map(|tool| (near(tool), tool)).collect();
        // The agents come best first, and the sort is stable.
        tools.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let (_, tool) = tools.first()?;
        Some(Act::new(&verb.name, tool))
    }

    /// The act of the agent whose description is most similar to a part of the words.
    fn nearest(&self, part: &str) -> Option<Act> {
        let near = best_for_goal(self.registry, part, self.embedder, 1, self.threshold).ok()?;
        let agent: &AgentRecord = &near.first()?.agent;
        let pairs = agent
            .supported_verbs
            .iter()
            .flat_map(|verb| agent.supported_tools.iter().map(move |tool| (verb, tool)));
        let mut served = pairs
            .filter(|(verb, tool)| crate::registry::look_up(self.registry, verb, tool).is_ok());
        served.next().map(|(verb, tool)| Act::new(verb, tool))
    }

    fn nearness(&self, a: &str, b: &str) -> f32 {
        match (self.embedder.embed(a), self.embedder.embed(b)) {
            (Some(a), Some(b)) => a.iter().zip(&b).map(|(a, b)| a * b).sum(),
            _ => 0.0,
        }
    }
}

impl Interface for WordInterface<'_> {
    fn interpret(&self, words: &str) -> Result<Message, Clarify> {
        let parameters = parameters(words);
        let mut plan = Plan::default();
        let mut goal = None;
        for part in parts(words) {
            let Some(act) = self.act(part) else {
                let what = format!("nothing that is registered fits {part:?}");
                return Err(Clarify::new(["verb"], what));
            };
            goal.get_or_insert_with(|| format!("{}_{}", act.verb, act.tool).to_uppercase());
            let params = RawObject::from_serialize(&own(part, &parameters))
                .ok()
                .flatten()
                .unwrap_or_default();
            plan.push(act.with_params(params));
        }
        let Some(goal) = goal else {
            return Err(Clarify::new(["g"], "no words"));
        };
        if let Some((verb, tool)) = &self.formatter {
            if crate::registry::look_up(self.registry, verb, tool).is_err() {
                let what = format!(
                    "{verb} with {tool} is not registered, and somebody must write the answer"
                );
                return Err(Clarify::new(["formatter"], what));
            }
            plan.push(Act::new(verb, tool));
        }
        let mut message = Message::new(&goal, plan);
        // The same words give the same id, so that a message that is sent twice is recognized.
        let seed = words.bytes().fold(self.seed, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        message.msg_id = NonEmpty::new(IdSource::seeded(seed).uuid().to_string());
        message.out_fmt = Some(if self.formatter.is_some() {
            OutFmt::Human
        } else {
            OutFmt::Raw
        });
        for (name, value) in &parameters {
            if let Ok(value) = RawBuf::from_serialize(value) {
                message.set_context(name, value);
            }
        }
        Ok(message)
    }
}

/// The parts of the words, one request each.
fn parts(words: &str) -> impl Iterator<Item = &str> {
    let clauses = words
        .split(['\n', ';'])
        .flat_map(|clause| clause.split(". "));
    let parts = clauses.flat_map(|clause| clause.split(" then "));
    let trimmed = parts.map(|part| {
        part.trim()
            .trim_end_matches(" and")
            .trim_end_matches(['.', ','])
    });
    trimmed.filter(|part| !part.is_empty())
}

/// The parameters of one part.
fn own(part: &str, all: &Map<String, Value>) -> Map<String, Value> {
    let here = parameters(part);
    all.iter()
        .filter(|(name, _)| here.contains_key(*name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn parameters(words: &str) -> Map<String, Value> {
    let mut found = Map::new();
    let mut dates = Vec::new();
    let tokens: Vec<&str> = words.split_whitespace().collect();
    for (n, token) in tokens.iter().enumerate() {
        let token = token.trim_matches(|c| matches!(c, ',' | ';' | '.' | '!' | '?' | '"' | '\''));
        let next = tokens
            .get(n + 1)
            .map(|next| next.trim_matches(|c: char| matches!(c, ',' | ';' | '.' | '!' | '?')));
        if let Some((name, value)) = token
            .split_once('=')
            .filter(|(name, value)| is_name(name) && !value.is_empty())
        {
            found.insert(name.to_owned(), value_of(value));
        } else if let (Some(name), Some(next)) =
            (token.strip_suffix(':').filter(|name| is_name(name)), next)
        {
            found.insert(name.to_owned(), value_of(next));
        } else if is_date(token) {
            dates.push(Value::from(token));
        }
        match (token.to_lowercase().as_str(), next) {
            ("in" | "at", Some(place)) if place.starts_with(char::is_uppercase) => {
                found
                    .entry("location")
                    .or_insert_with(|| Value::from(place));
            }
            ("under" | "below" | "budget", Some(amount)) => {
                let digits = amount.trim_matches(|c: char| !c.is_ascii_digit());
                if let Ok(amount) = digits.parse::<u64>() {
                    found.entry("budget").or_insert_with(|| Value::from(amount));
                }
            }
            _ => {}
        }
    }
    if !dates.is_empty() {
        found.insert("dates".to_owned(), Value::Array(dates));
    }
    found
}

fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(word)
        && text.len() <= 64
}

/// A number or boolean of JSON, else a text.
fn value_of(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::from(text),
    }
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |n: usize| bytes.get(n).is_some_and(u8::is_ascii_digit);
    bytes.len() == 10
        && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(digit)
        && bytes.get(4) == Some(&b'-')
        && bytes.get(7) == Some(&b'-')
}
