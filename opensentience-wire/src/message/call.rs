//! Calls: the request, pieces of output, the end.

use ubos_common::json::{Fault, RawObject, Read, Reader};
use ubos_common::time::Rfc3339;

use super::actor::ActorType;
use crate::error::{ErrorCode, ErrorObject};

ubos_common::wire! {
    /// The core calls a tool.
    ///
    /// Spec: OpenSentience 4.3.1
    pub struct ToolCall {
        /// Names the call.
        required call_id: String = "call_id", "OSW-4.3-1";
        /// The tool.
        required tool_id: String = "tool_id", "OSW-4.3-1";
        /// Its arguments.
        required input: RawObject = "input", "OSW-4.3-1";
        /// Milliseconds that it may take; absent is without end.
        nullable timeout_ms: u64 = "timeout_ms", "OSW-4.3-1";
        /// Calls with one key have one effect.
        nullable idempotency_key: String = "idempotency_key", "OSW-4.3-1";
        /// The caller.
        nullable caller: Caller = "caller", "OSW-4.3-1";
        /// The place of the call.
        nullable context: CallContext = "context", "OSW-4.3-1";
    }
}

impl ToolCall {
    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let key = self.idempotency_key.as_ref().map_or(0, String::len);
        self.call_id.len()
            + self.tool_id.len()
            + self.input.as_str().len()
            + key
            + self.caller.as_ref().map_or(0, Caller::weight)
            + self.context.as_ref().map_or(0, CallContext::weight)
            + self.extra.bytes()
    }
}

ubos_common::wire! {
    /// The person, agent or system that calls a tool.
    pub struct Caller {
        /// The kind.
        required kind: ActorType = "type", "OSW-4.3-1";
        /// Who it is.
        required id: String = "id", "OSW-4.3-1";
    }
}

impl Caller {
    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        self.kind.as_str().len() + self.id.len() + self.extra.bytes()
    }
}

ubos_common::wire! {
    /// The place that a tool is called from. No secrets.
    pub struct CallContext {
        /// The project's folder.
        nullable project_root: String = "project_root", "OSW-4.3-1";
        /// Files and folders that matter.
        nullable resource_paths: Vec<String> = "resource_paths", "OSW-4.3-1";
        /// Hints for display.
        nullable ui: RawObject = "ui", "OSW-4.3-1";
    }
}

impl CallContext {
    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let root = self.project_root.as_ref().map_or(0, String::len);
        let ui = self.ui.as_ref().map_or(0, |ui| ui.as_str().len());
        let paths = self.resource_paths.iter().flatten();
        let held = |path: &String| size_of::<String>() + path.len();
        root + ui + paths.map(held).sum::<usize>() + self.extra.bytes()
    }
}

ubos_common::words! {
    /// Where a piece of output belongs.
    closed pub enum Channel {
        /// The tool's ordinary output.
        Stdout = "stdout",
        /// The tool's complaints.
        Stderr = "stderr",
        /// The tool's log.
        Log = "log",
        /// A part of the result, as JSON.
        PartialResult = "partial_result",
        /// What the tool is doing.
        Status = "status",
    }
}

ubos_common::wire! {
    /// A piece of a call's output.
    ///
    /// Spec: OpenSentience 4.3.2
    pub struct ToolStream {
        /// The call.
        required call_id: String = "call_id", "OSW-4.3-5";
        /// 1, 2, 3 …
        required seq: u64 = "seq", "OSW-4.3-5";
        /// Where it belongs.
        required channel: Channel = "channel", "OSW-4.3-5";
        /// The piece itself.
        required data: ChunkData = "data", "OSW-4.3-5";
        /// Whether no more pieces come.
        nullable done: bool = "done", "OSW-4.3-6";
    }
}

impl ToolStream {
    /// The bytes that it takes, about.
    #[cfg(feature = "tokio")]
    pub(crate) fn weight(&self) -> usize {
        /// What a piece takes beside its texts.
        const FIXED: usize = 512;
        let text = self.data.text.as_ref().map_or(0, String::len);
        let json = self
            .data
            .json
            .as_ref()
            .map_or(0, |json| json.as_str().len());
        let extra = self.extra.bytes() + self.data.extra.bytes();
        FIXED + self.call_id.len() + text + json + extra
    }

    /// Whether the data has the shape that its channel wants.
    // impl: OSW-4.3-5
    pub(crate) const fn fits_channel(&self) -> bool {
        match self.channel {
            Channel::PartialResult => self.data.json.is_some() && self.data.text.is_none(),
            _ => self.data.text.is_some() && self.data.json.is_none(),
        }
    }
}

ubos_common::wire! {
    /// A piece of output: a text, or an object on [`Channel::PartialResult`].
    pub struct ChunkData {
        /// The text.
        nullable text: String = "text", "OSW-4.3-5";
        /// The object.
        nullable json: RawObject = "json", "OSW-4.3-5";
    }
}

ubos_common::words! {
    /// How a call ended.
    closed pub enum Status {
        /// It did what it was asked.
        Succeeded = "succeeded",
        /// It did not.
        Failed = "failed",
        /// It was stopped.
        Canceled = "canceled",
    }
}

ubos_common::wire! {
    /// The end of a call; each has exactly one.
    ///
    /// Spec: OpenSentience 4.3.3
    pub struct ToolOutcome {
        /// The call.
        required call_id: String = "call_id", "OSW-4.3-8";
        /// How it ended.
        required status: Status = "status", "OSW-4.3-8";
        /// What came of it, where it succeeded.
        nullable output: RawObject = "output", "OSW-4.3-8";
        /// Why not, where it did not.
        nullable error: ErrorObject = "error", "OSW-3-11";
        /// When the tool began.
        nullable started_at: Rfc3339 = "started_at", "OSW-4.3-8";
        /// When it ended.
        nullable finished_at: Rfc3339 = "finished_at", "OSW-4.3-8";
        /// Figures such as `duration_ms`.
        nullable metrics: RawObject = "metrics", "OSW-4.3-8";
    }
}

impl ToolOutcome {
    /// Makes status, output and error agree: `status` decides. Gives whether a member had to go.
    // impl: OSW-4.3-8
    pub(crate) fn settle(&mut self, envelope_error: Option<&ErrorObject>) -> bool {
        let missing = match self.status {
            Status::Succeeded => return self.error.take().is_some(),
            Status::Canceled => (ErrorCode::ToolCanceled, "canceled, without a reason"),
            _ => (ErrorCode::ToolFailed, "failed, without a reason"),
        };
        let error = self.error.take().or_else(|| envelope_error.cloned());
        self.error = Some(error.unwrap_or_else(|| ErrorObject::of(missing.0, missing.1)));
        self.output.take().is_some()
    }
}

/// The call that a payload is about, where it says one, whatever else is wrong with it.
pub(crate) struct AboutCall(pub(crate) Option<String>);

impl Read<'_> for AboutCall {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut found = None;
        reader.object(|reader, name| {
            if name == "call_id" {
                let mark = reader.mark();
                let id = reader.str();
                found = reader.settle(mark, id)?.map(std::borrow::Cow::into_owned);
                return Ok(());
            }
            reader.skip()
        })?;
        Ok(Self(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_holds_counts_with_all_its_members() {
        let weight = |[call, tool, input, other]: [&str; 4]| {
            let text = format!(
                r#"{{"call_id":"{call}","tool_id":"{tool}","input":{{"a":"{input}"}}{other}}}"#
            );
            let limits = ubos_common::json::Limits::default();
            let profile = ubos_common::violation::Profile::Strict;
            let read = ubos_common::json::decode::<ToolCall>(text.as_bytes(), &limits, profile);
            read.unwrap().0.weight()
        };
        let long = "x".repeat(1_000);
        let within = |member: &str| format!(",{}", member.replace("LONG", &long));
        let bare = weight(["c", "t", "", ""]);
        let beside = [
            r#""idempotency_key":"LONG""#,
            r#""later":"LONG""#,
            r#""caller":{"type":"agent","id":"LONG"}"#,
            r#""caller":{"type":"agent","id":"i","later":"LONG"}"#,
            r#""context":{"project_root":"LONG"}"#,
            r#""context":{"resource_paths":["LONG"]}"#,
            r#""context":{"ui":{"a":"LONG"}}"#,
            r#""context":{"later":"LONG"}"#,
        ]
        .map(within);
        let beside = beside.each_ref().map(|member| ["c", "t", "", member]);
        for more in [
            [&*long, "t", "", ""],
            ["c", &long, "", ""],
            ["c", "t", &long, ""],
        ]
        .into_iter()
        .chain(beside)
        {
            let more = weight(more).saturating_sub(bare);
            assert!((999..1_200).contains(&more), "{more}");
        }
    }
}
