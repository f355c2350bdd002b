//! The order of the events of each block of a stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use upp::{StreamEvent, StreamEventType};

/// The blocks of a message so far.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    by_index: BTreeMap<u32, Block>,
}

#[derive(Debug, Default)]
struct Block {
    /// The type of its parts.
    kind: Option<StreamEventType>,
    state: State,
    /// The id and the name of a call.
    call: [Option<Arc<str>>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It has parts, and no start: not every vendor reports it.
    #[default]
    Bare,
    Started,
    Stopped,
}

impl Blocks {
    /// Takes the next event of a stream; what is wrong with it.
    pub(super) fn see(&mut self, event: &StreamEvent) -> Result<(), &'static str> {
        match &event.event_type {
            StreamEventType::MessageStop => self.stop_all(),
            StreamEventType::ContentBlockStart => self.start(event.index),
            StreamEventType::ContentBlockStop => self.stop(event.index),
            StreamEventType::TextDelta
            | StreamEventType::ReasoningDelta
            | StreamEventType::ObjectDelta
            | StreamEventType::ImageDelta
            | StreamEventType::AudioDelta
            | StreamEventType::VideoDelta
            | StreamEventType::ToolCallDelta => self.add(event),
            StreamEventType::ToolExecutionStart | StreamEventType::ToolExecutionEnd => {
                Err("a model runs no tools")
            }
            _ => Ok(()),
        }
    }

    /// A block that is not there yet, behind all others.
    fn block(&mut self, index: u32) -> Result<&mut Block, &'static str> {
        let last = self.by_index.last_key_value().map(|(last, _)| *last);
        if !self.by_index.contains_key(&index) && last.is_some_and(|last| index < last) {
            return Err("blocks begin in the order of their places");
        }
        Ok(self.by_index.entry(index).or_default())
    }

    fn start(&mut self, index: u32) -> Result<(), &'static str> {
        if self.by_index.contains_key(&index) {
            return Err("a block starts once, before its parts");
        }
        self.block(index)?.state = State::Started;
        Ok(())
    }

    fn stop(&mut self, index: u32) -> Result<(), &'static str> {
        match self.by_index.get_mut(&index) {
            Some(block) if block.state == State::Started => {
                block.state = State::Stopped;
                Ok(())
            }
            _ => Err("a block stops once, after its start"),
        }
    }

    fn add(&mut self, event: &StreamEvent) -> Result<(), &'static str> {
        let block = self.block(event.index)?;
        if block.state == State::Stopped {
            return Err("a block has no parts after its stop");
        }
        let kind = block.kind.get_or_insert_with(|| event.event_type.clone());
        if *kind != event.event_type {
            return Err("the parts of a block are of one kind");
        }
        let names = [&event.delta.tool_call_id, &event.delta.tool_name];
        for (known, name) in block.call.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            if known.get_or_insert_with(|| Arc::clone(name)) != name {
                return Err("a call has one id and one name");
            }
        }
        Ok(())
    }

    fn stop_all(&self) -> Result<(), &'static str> {
        let is_open = |block: &Block| block.state == State::Started;
        if self.by_index.values().any(is_open) {
            return Err("a block that has started stops before the message");
        }
        Ok(())
    }
}
