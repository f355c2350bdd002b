//! What `--json` prints.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scan::{Language, Largest, Note, Unreadable};

/// The one JSON document.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Counts.
    pub folder: FolderCounts,
    /// Largest files, largest first.
    pub largest: Vec<Largest>,
    /// Lines with TODO or FIXME.
    pub notes: Vec<Note>,
    /// Groups of files of equal content.
    pub duplicates: Vec<Vec<String>>,
    /// Places that look like secrets.
    pub secrets: Vec<Note>,
    /// Entries that the lists above leave out.
    pub truncated: Truncated,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
    /// The governed task.
    pub sap: SapPart,
    /// The plan.
    pub sacp: SacpPart,
    /// The tool process.
    pub opensentience: WirePart,
    /// The independent check.
    pub hub: HubPart,
    /// The writer of the report.
    pub agent: AgentPart,
    /// The tamper-evident record.
    pub transcript: TranscriptPart,
    /// The report, in Markdown.
    pub report: String,
}

/// Counts of the folder.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FolderCounts {
    /// Files.
    pub files: u64,
    /// Newline characters of text files.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// The same by language.
    pub languages: BTreeMap<String, Language>,
}

/// Entries that a list leaves out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Truncated {
    /// Of the notes.
    pub notes: u64,
    /// Of the groups of duplicates, and of the files in them.
    pub duplicates: u64,
    /// Of the secrets.
    pub secrets: u64,
    /// Of what could not be read.
    pub unreadable: u64,
}

/// The mission's own task, and all tasks under it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SapPart {
    /// The mission's task.
    pub task_id: String,
    /// What all its tasks share.
    pub correlation_id: String,
    /// How it ended.
    pub status: String,
    /// What its alignment came to.
    pub alignment: String,
    /// Tasks, this one included.
    pub tasks: u64,
    /// Acts answered from the cache.
    pub cache_hits: u64,
    /// Acts that were looked for in the cache and computed.
    pub cache_misses: u64,
}

/// The plan.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SacpPart {
    /// Acts that ended well.
    pub steps: u64,
    /// Agents that were missing and made.
    pub spawned: u64,
}

/// The tool process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WirePart {
    /// Calls that were made.
    pub calls: u64,
    /// Chunks that came back while they ran.
    pub stream_chunks: u64,
    /// Calls that were cancelled.
    pub canceled: u64,
}

/// The independent check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HubPart {
    /// Agents of the fleet.
    pub agents: u64,
    /// Sessions that they ran.
    pub sessions: u64,
    /// Whether all of them came to the audit's figures.
    pub agree: bool,
}

/// The writer of the report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AgentPart {
    /// Its strategy.
    pub strategy: String,
    /// Its steps.
    pub steps: u64,
    /// Tools that it called.
    pub tool_calls: u64,
    /// Tokens that it read.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
}

/// The tamper-evident record.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TranscriptPart {
    /// Records of all missions with this state.
    pub records: u64,
    /// Whether the whole chain was read again and holds.
    pub verified: bool,
    /// The digest to keep elsewhere, so that a cut tail is found.
    pub head: String,
}
