//! A small model without a network: it knows four orders, uses the tools for them, and repeats anything else.

use std::collections::BTreeMap;
use std::time::Duration;

use ubos_common::json::{RawBuf, RawObject, to_string};
use upp::{LlmRequest, Message, Reply, ScriptedModel};

/// The longest that it can be told to wait.
const LONGEST_WAIT: u64 = 60;
/// Characters of a file that it repeats.
const SHOWN: usize = 2_000;

/// The model.
pub(super) fn model() -> ScriptedModel {
    ScriptedModel::with(|request| Some(answer(request).in_pieces_of(6)))
}

/// What the user wants done.
enum Order<'a> {
    Calc(&'a str),
    Count(&'a str),
    Read(&'a str),
    Wait(u64),
}

fn answer(request: &LlmRequest) -> Reply {
    let messages: Vec<&Message> = request.messages.iter().collect();
    let Some(at) = messages.iter().rposition(|message| is_task(message)) else {
        return Reply::text("I was asked nothing.");
    };
    let behind = messages.get(at + 1..).unwrap_or_default();
    let text = messages
        .get(at)
        .map(|message| message.text())
        .unwrap_or_default();
    let task = task_of(&text);
    let orders = orders_of(task);
    let results = behind.iter().rev().find_map(|message| match message {
        Message::ToolResult(message) => Some(message),
        _ => None,
    });
    if request.structure.is_some() {
        return planned(task);
    }
    if !request.offers_tools() {
        return Reply::text(thought(orders.as_deref(), results.is_some()));
    }
    match (orders, results) {
        (None, _) => Reply::text(format!("You said: {task}")),
        (Some(_), Some(results)) => {
            let told = results.results.iter().map(|result| {
                let failed = result.is_error == Some(true);
                let called = behind
                    .iter()
                    .filter_map(|m| m.as_assistant())
                    .flat_map(|m| m.calls());
                let mut named = called.filter(|call| call.tool_call_id == result.tool_call_id);
                let call = named.next_back();
                let name = call.map_or("", |call| &*call.tool_name);
                said_of(
                    name,
                    call.map(|call| &call.arguments),
                    &result.text(),
                    failed,
                )
            });
            Reply::text(told.collect::<Vec<_>>().join("\n"))
        }
        (Some(orders), None) => carried_out(request, &orders),
    }
}

/// What the user says, or what a plan's step says; not what a strategy says beside it.
fn is_task(message: &Message) -> bool {
    let is_users = matches!(message, Message::User(_));
    let marked = message.metadata().is_some_and(|m| m.get("uap").is_some());
    is_users && (!marked || message.text().contains(STEP))
}

/// What the strategy plan says before the words of a step.
const STEP: &str = " of the plan now: ";

fn task_of(text: &str) -> &str {
    match text.split_once(STEP) {
        Some((_, step)) => {
            let step = step.split(" Use the tool ").next().unwrap_or(step);
            step.strip_suffix('.').unwrap_or(step).trim()
        }
        None => text.trim(),
    }
}

/// All of them, joined by "and"; nothing where one is none.
fn orders_of(task: &str) -> Option<Vec<Order<'_>>> {
    let mut orders = Vec::new();
    let mut rest = Some(task);
    while let Some(text) = rest {
        // A text to count may hold an "and": it ends where an order begins.
        let next = text.match_indices(" and ").find(|(at, and)| {
            text.get(at + and.len()..)
                .is_some_and(|rest| order_of(rest).is_some())
        });
        let (own, more) = match next {
            Some((at, and)) => (text.get(..at).unwrap_or(text), text.get(at + and.len()..)),
            None => (text, None),
        };
        orders.push(order_of(own.trim())?);
        rest = more;
    }
    Some(orders)
}

fn order_of(text: &str) -> Option<Order<'_>> {
    let behind = |word: &str| {
        let (head, rest) = text.split_at_checked(word.len())?;
        let rest = rest.strip_prefix(' ')?.trim();
        (head.eq_ignore_ascii_case(word) && !rest.is_empty()).then_some(rest)
    };
    if let Some(sum) = behind("calc") {
        Some(Order::Calc(sum))
    } else if let Some(text) = behind("count words of").or_else(|| behind("count words in")) {
        Some(Order::Count(text))
    } else if let Some(file) = behind("read") {
        Some(Order::Read(file))
    } else {
        let seconds = behind("wait")?.parse().ok()?;
        Some(Order::Wait(seconds))
    }
}

fn carried_out(request: &LlmRequest, orders: &[Order<'_>]) -> Reply {
    let (mut calls, mut said, mut wait) = (Vec::new(), Vec::new(), 0);
    for order in orders {
        let (tool, member, value) = match order {
            Order::Calc(sum) => ("calc", "expression", *sum),
            Order::Count(text) => ("word_count", "text", *text),
            Order::Read(file) => ("read_file", "path", *file),
            Order::Wait(seconds) => {
                wait = (*seconds).min(LONGEST_WAIT);
                said.push(format!("I waited for {wait} s."));
                continue;
            }
        };
        if request.tools.iter().any(|offered| offered.name() == tool) {
            let arguments = format!("{{\"{member}\":{}}}", to_string(value));
            let arguments = RawBuf::parse(&arguments).ok().and_then(RawObject::new);
            calls.push((tool, arguments.unwrap_or_default()));
        } else {
            said.push(format!(
                "I have no tool {tool} here; --dir lets me read files."
            ));
        }
    }
    let reply = match said.is_empty() {
        true => Reply::default(),
        false => Reply::text(said.join(" ")),
    };
    // Unique in the conversation, whatever was asked before.
    let turn = request.messages.len();
    let reply = (0..)
        .zip(calls)
        .fold(reply, |reply, (n, (tool, arguments))| {
            reply.calling(format!("call-{turn}-{n}"), tool, arguments)
        });
    reply.after(move || tokio::time::sleep(Duration::from_secs(wait)))
}

fn said_of(tool: &str, arguments: Option<&RawObject>, result: &str, failed: bool) -> String {
    let given = |member: &str| {
        let mut given: BTreeMap<String, String> = arguments?.deserialize().ok()?;
        given.remove(member)
    };
    if failed {
        return format!("{tool} failed: {result}");
    }
    match tool {
        "calc" => format!("{} = {result}", given("expression").unwrap_or_default()),
        "word_count" => {
            let counted: BTreeMap<String, u64> = serde_json::from_str(result).unwrap_or_default();
            let of = |name: &str| counted.get(name).copied().unwrap_or_default();
            format!("{} words, {} characters", of("words"), of("characters"))
        }
        "read_file" => {
            let result = result.trim_end();
            let shown: String = result.chars().take(SHOWN).collect();
            let more = if shown.len() < result.len() {
                " …"
            } else {
                ""
            };
            format!("{} says:\n{shown}{more}", given("path").unwrap_or_default())
        }
        _ => format!("{tool}: {result}"),
    }
}

fn thought(orders: Option<&[Order<'_>]>, has_results: bool) -> String {
    match orders {
        _ if has_results => "The tools have answered; I can say what came of it.".to_owned(),
        None => "No tool is needed: I say it again.".to_owned(),
        Some(orders) => {
            let tools = orders.iter().map(|order| match order {
                Order::Calc(_) => "calc",
                Order::Count(_) => "word_count",
                Order::Read(_) => "read_file",
                Order::Wait(_) => "patience",
            });
            format!("This takes {}.", tools.collect::<Vec<_>>().join(" and "))
        }
    }
}

/// A step for each order, or one for what is none.
fn planned(task: &str) -> Reply {
    let words: Vec<String> = match orders_of(task) {
        Some(orders) => orders
            .iter()
            .map(|order| match order {
                Order::Calc(sum) => format!("calc {sum}"),
                Order::Count(text) => format!("count words of {text}"),
                Order::Read(file) => format!("read {file}"),
                Order::Wait(seconds) => format!("wait {seconds}"),
            })
            .collect(),
        None => vec![task.to_owned()],
    };
    let steps: Vec<String> = (1..)
        .zip(&words)
        .map(|(n, words)| {
            let before = if n > 1 {
                format!("\"{}\"", n - 1)
            } else {
                String::new()
            };
            let words = to_string(words);
            format!(r#"{{"id":"{n}","description":{words},"dependsOn":[{before}]}}"#)
        })
        .collect();
    let plan = format!(r#"{{"steps":[{}]}}"#, steps.join(","));
    let data = RawBuf::parse(&plan).ok();
    let reply = Reply::text(plan);
    match data {
        Some(data) => reply.with_data(data),
        None => reply,
    }
}
