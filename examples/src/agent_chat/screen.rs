//! What is shown: answers on standard output, all else on standard error.

use std::io::{self, Write};

use uap_agent::{AgentState, AgentStreamEvent, EventData, PlanStep, UapEvent, UapEventType};
use uap_agent::{ThreadNode, ThreadTree};
use upp::{Message, StreamEvent, StreamEventType};

/// Characters of a tool's arguments or result that are shown while an answer is given.
const SHOWN: usize = 160;

/// What the text that comes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Answer,
    Reasoning,
    Planning,
}

/// Shows the events of one answer.
#[derive(Debug)]
pub(super) struct Teller {
    phase: Phase,
    /// Whether the last text is still without the end of its line.
    is_open: bool,
}

impl Teller {
    pub(super) const fn new() -> Self {
        Self {
            phase: Phase::Answer,
            is_open: false,
        }
    }

    /// Shows an event.
    pub(super) fn tell(&mut self, event: &AgentStreamEvent, to: &mut To<'_>) -> io::Result<()> {
        match event {
            AgentStreamEvent::Uap(event) => self.tell_uap(event, to),
            AgentStreamEvent::Upp(event) => self.tell_upp(event, to),
            _ => Ok(()),
        }
    }

    fn tell_uap(&mut self, event: &UapEvent, to: &mut To<'_>) -> io::Result<()> {
        match (&event.event_type, &event.data) {
            (
                UapEventType::StepStart,
                EventData::Phase {
                    phase, plan_step, ..
                },
            ) => {
                self.phase = match &**phase {
                    "reasoning" => Phase::Reasoning,
                    "planning" => Phase::Planning,
                    _ => Phase::Answer,
                };
                match plan_step {
                    Some(step) => writeln!(to.talk, "  step {}", clean_line(&describe(step))),
                    None => Ok(()),
                }
            }
            (
                UapEventType::StepEnd,
                EventData::Phase {
                    plan: Some(plan), ..
                },
            ) => {
                writeln!(to.talk, "  plan")?;
                plan.iter()
                    .try_for_each(|step| writeln!(to.talk, "    {}", clean_line(&describe(step))))
            }
            (UapEventType::Reasoning, _) => {
                self.phase = Phase::Answer;
                self.end(to)
            }
            (UapEventType::Action, EventData::ToolCalls(calls)) => {
                self.end(to)?;
                calls.iter().try_for_each(|call| {
                    let (tool, arguments) = (&*call.tool_name, call.arguments.as_str());
                    writeln!(to.talk, "  {} {}", clean_line(tool), short(arguments))
                })
            }
            (UapEventType::Observation, EventData::Observations(executions)) => {
                executions.iter().try_for_each(|done| {
                    let failed = if done.is_error { " failed" } else { "" };
                    let (tool, result) = (&*done.tool_name, upp::ToolResult::from(done));
                    writeln!(
                        to.talk,
                        "  {}{failed}: {}",
                        clean_line(tool),
                        short(&result.text())
                    )
                })
            }
            _ => Ok(()),
        }
    }

    fn tell_upp(&mut self, event: &StreamEvent, to: &mut To<'_>) -> io::Result<()> {
        let text = event.delta.text.as_deref().unwrap_or_default();
        match (&event.event_type, self.phase) {
            (StreamEventType::TextDelta | StreamEventType::ObjectDelta, Phase::Answer) => {
                self.is_open |= !text.is_empty();
                write!(to.out, "{}", clean(text))?;
                to.out.flush()
            }
            (StreamEventType::TextDelta, Phase::Reasoning) => {
                if !self.is_open && !text.is_empty() {
                    write!(to.talk, "  thinking: ")?;
                }
                self.is_open |= !text.is_empty();
                write!(to.talk, "{}", clean_line(text))
            }
            (StreamEventType::MessageStop, _) => self.end(to),
            _ => Ok(()),
        }
    }

    /// Ends the line that is open.
    pub(super) fn end(&mut self, to: &mut To<'_>) -> io::Result<()> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        match self.phase {
            Phase::Reasoning => writeln!(to.talk),
            _ => {
                writeln!(to.out)?;
                to.out.flush()
            }
        }
    }
}

/// Where things are shown.
pub(super) struct To<'a> {
    /// Answers.
    pub(super) out: &'a mut dyn Write,
    /// All else.
    pub(super) talk: &'a mut dyn Write,
}

fn describe(step: &PlanStep) -> String {
    format!("{}: {}", step.id, step.description)
}

/// The conversation, a message a paragraph; what the strategy said beside it is cut to a line.
pub(super) fn history(state: &AgentState, out: &mut dyn Write) -> io::Result<()> {
    for message in state.messages() {
        let (who, text) = (message.message_type(), message.text());
        let marks = message.metadata();
        match message {
            Message::ToolResult(message) => {
                for result in &message.results {
                    let failed = if result.is_error == Some(true) {
                        " failed"
                    } else {
                        ""
                    };
                    writeln!(out, "tool{failed}: {}", short(&result.text()))?;
                }
            }
            _ if marks.is_some_and(|marks| marks.get("uap").is_some()) => {
                writeln!(out, "{who} (aside): {}", short(&text))?;
            }
            _ if text.is_empty() => {}
            _ => writeln!(out, "{who}: {}", clean(&text).replace('\n', "\n    "))?,
        }
        let calls = message.as_assistant().map(|message| message.calls());
        for call in calls.unwrap_or_default() {
            let (tool, arguments) = (&*call.tool_name, call.arguments.as_str());
            writeln!(out, "call: {} {}", clean_line(tool), short(arguments))?;
        }
    }
    Ok(())
}

/// The branches, children below their parents; a star is before the current one.
pub(super) fn tree(tree: &ThreadTree, out: &mut dyn Write) -> io::Result<()> {
    // A walk with a list of its own: a tree may be deep.
    let mut open = vec![(tree.root(), 0_usize)];
    while let Some((node, depth)) = open.pop() {
        let mark = if node.id == tree.current().id {
            '*'
        } else {
            ' '
        };
        let count = node.state.messages().len();
        let messages = if count == 1 { "message" } else { "messages" };
        let indent = "  ".repeat(depth.min(40));
        writeln!(out, "{mark} {indent}{}, {count} {messages}", title(node))?;
        let children = node.children.iter().rev();
        open.extend(children.filter_map(|child| Some((tree.node(*child)?, depth + 1))));
    }
    Ok(())
}

/// A branch's name and the beginning of its id.
pub(super) fn title(node: &ThreadNode) -> String {
    let id: String = node.id.to_string().chars().take(8).collect();
    match &node.name {
        Some(name) => format!("{} ({id})", clean_line(name)),
        None => id,
    }
}

/// One line, cut.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    clean_line(&short)
}

/// A text from elsewhere, which must not drive the terminal: control characters but the ends of lines are escaped.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// A text from elsewhere on one line.
pub(super) fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}
