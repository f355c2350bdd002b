//! Calls that wait for a person, who may answer from a second terminal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uap_agent::journal::{Decision, FileJournal, JournalError, Question, Recording, Verdict};
use uap_agent::{Agent, AgentStreamResult, ApprovalPolicy, ApprovalRequest};
use ubos_common::time::Now;
use upp::{ToolCall, json_text};

use super::args::{Asked, Decides};
use super::screen;

/// How often it is looked whether a person has decided.
const LOOKS: Duration = Duration::from_millis(200);

/// How often a journal is looked for that another terminal has open: a slow disk may keep it for seconds.
const MOST_LOOKS: u32 = 150;

/// Tools that wait for an approval.
pub(super) struct AskFirst(pub(super) Vec<String>);

impl ApprovalPolicy for AskFirst {
    fn request(&self, call: &ToolCall) -> Option<ApprovalRequest> {
        let waits = self.0.iter().any(|name| *name == *call.tool_name);
        waits.then(ApprovalRequest::default)
    }
}

/// The journal of the answer that is being given.
pub(super) struct Approvals {
    folder: PathBuf,
}

impl Approvals {
    /// The journal of a session.
    pub(super) fn of(checkpoints: &Path, session: &str) -> Self {
        let folder = checkpoints.join(session).join("run");
        Self { folder }
    }

    /// A journal for a new answer; nothing is begun.
    pub(super) fn begin(&self) -> Result<Arc<FileJournal>, String> {
        FileJournal::open(&self.folder)
            .map(Arc::new)
            .map_err(|err| err.to_string())
    }

    /// The answer is given, or given up: its journal is removed.
    pub(super) fn end(&self) -> Result<(), String> {
        match fs::remove_dir_all(&self.folder) {
            // It may be gone meanwhile, in whole or in part.
            Err(err) if self.folder.exists() => Err(err.to_string()),
            _ => Ok(()),
        }
    }

    /// Whether an answer was begun. One that has ended in its journal is not yet in the conversation.
    pub(super) async fn is_begun(&self) -> Result<bool, String> {
        let recording = self.recording().await;
        let place = self.folder.display();
        recording
            .map(|recording| recording.is_some())
            .map_err(|err| format!("{place}: {err}"))
    }

    /// The journal for a writer, where there is one. Another terminal may have it open for a moment.
    async fn journal(&self) -> Result<Option<FileJournal>, JournalError> {
        let mut left = MOST_LOOKS;
        loop {
            // Nothing is created: the talk may be removing it.
            match FileJournal::open_existing(&self.folder) {
                Err(JournalError::InUse) if left > 0 => left -= 1,
                opened => return opened,
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// The recording; `None` where there is none.
    async fn recording(&self) -> Result<Option<Recording>, JournalError> {
        let loaded = match FileJournal::open_existing(&self.folder) {
            Ok(Some(journal)) => Recording::load(&journal).await,
            Ok(None) => return Ok(None),
            // Another process writes it.
            Err(JournalError::InUse) => FileJournal::peek(&self.folder)
                .and_then(|entries| Recording::from_entries(&entries)),
            Err(error) => Err(error),
        };
        match loaded {
            Err(JournalError::Empty) => Ok(None),
            // The answer was given while this was read.
            Err(JournalError::Failed(_)) if !self.folder.exists() => Ok(None),
            loaded => loaded.map(Some),
        }
    }

    /// Goes on with the answer, once a person has decided.
    pub(super) async fn resumed(&self, agent: &Agent) -> Result<AgentStreamResult, String> {
        self.tell().await?;
        loop {
            let journal = self.journal().await.map_err(|err| told(&err))?;
            let journal = journal.ok_or("no answer waits any more")?;
            match agent.resume(Arc::new(journal)).await {
                Err(JournalError::Paused(_)) => {}
                resumed => return resumed.map_err(|err| err.to_string()),
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    async fn tell(&self) -> Result<(), String> {
        let recording = self.recording().await.map_err(|err| told(&err))?;
        let questions = recording
            .map(|recording| recording.questions())
            .unwrap_or_default();
        for question in &questions {
            note!("  waits for approval: {}", line(question));
        }
        if !questions.is_empty() {
            note!(
                "  --approve, --reject or --answer in another terminal goes on; Ctrl-C leaves it waiting"
            );
        }
        Ok(())
    }

    /// What a second terminal asks for; gives the lines to be shown.
    pub(super) async fn decide(
        &self,
        now: Now,
        decides: Decides,
        by: &str,
    ) -> Result<Vec<String>, String> {
        let recording = self.recording().await.map_err(|err| told(&err))?;
        let questions = recording
            .map(|recording| recording.questions())
            .unwrap_or_default();
        let (asked, verdict) = match decides {
            Decides::Lists => return Ok(questions.iter().map(line).collect()),
            Decides::Approves(asked) => (asked, Verdict::Approve),
            Decides::Rejects(asked) => (asked, Verdict::Reject(format!("by {by}").into())),
            Decides::Answers(asked, text) => (asked, Verdict::Answer(json_text(&text))),
        };
        let id = asked.effect;
        let question = questions.iter().find(|question| question.effect == id);
        let question = question
            .ok_or_else(|| format!("nothing waits under {id}; --pending lists what does"))?;
        if !question.digest.to_string().starts_with(&asked.digest) {
            return Err(format!("{id} is another call: {}", line(question)));
        }
        let journal = self.journal().await.map_err(|err| told(&err))?;
        let journal = journal.ok_or_else(|| format!("nothing waits under {id} any more"))?;
        let decision = Decision::new(question, by, verdict);
        let decided = Recording::decide(&journal, now, &decision).await;
        decided.map_err(|err| err.to_string())?;
        Ok(vec![format!("decided: {}", line(question))])
    }
}

/// Why a journal was not opened or read.
fn told(err: &JournalError) -> String {
    match err {
        JournalError::InUse => {
            "the answer is under way: what it asks can be decided when nothing else runs".to_owned()
        }
        err => err.to_string(),
    }
}

/// A question in a line: its id, the start of the digest to which a decision is bound, and the call.
fn line(question: &Question) -> String {
    let digest = question.digest.to_string();
    let call = format!("{} {}", question.tool, question.arguments.as_str());
    let start = digest.get(..Asked::DIGITS).unwrap_or(&digest);
    format!("{}:{start} {}", question.effect, screen::clean_line(&call))
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;
    use uap_agent::{AgentOptions, agent};
    use ubos_common::time::{Mono, Timestamp};
    use upp::{FnTool, Reply, ScriptedModel, Tool, object};

    use super::*;

    async fn listed(approvals: &Approvals) -> Result<Vec<String>, String> {
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        approvals.decide(now, Decides::Lists, "ann").await
    }

    fn tool(name: &str, started: &Arc<Notify>) -> Arc<dyn Tool> {
        let started = Arc::clone(started);
        let run = move |_, _| {
            started.notify_one();
            std::future::pending()
        };
        Arc::new(FnTool::new(name, "", object("{}").unwrap(), run))
    }

    #[tokio::test]
    async fn what_waits_is_listed_while_another_call_runs() {
        let dir = tempfile::tempdir().unwrap();
        let approvals = Approvals::of(dir.path(), "s");
        let calls = Reply::default()
            .calling("c1", "pay", object("{}").unwrap())
            .calling("c2", "look", object("{}").unwrap());
        let started = Arc::new(Notify::new());
        let options = AgentOptions::new(Arc::new(ScriptedModel::new([calls])))
            .with_tools([tool("pay", &started), tool("look", &started)])
            .with_approvals(Arc::new(AskFirst(vec!["pay".to_owned()])));
        let agent = agent(options).unwrap();
        let run = agent.record(approvals.begin().unwrap(), "go", &agent.initial_state());
        let meanwhile = async {
            started.notified().await;
            // Only one process writes.
            let opened = FileJournal::open_existing(&approvals.folder);
            let why = told(&opened.unwrap_err());
            assert!(why.contains("the answer is under way"), "{why}");
            listed(&approvals).await
        };
        let seen = tokio::select! {
            _ = run.result() => panic!("a tool runs"),
            listed = meanwhile => listed.unwrap(),
        };
        assert!(
            matches!(&*seen, [line] if line.contains(" pay {}")),
            "{seen:?}"
        );
    }

    #[tokio::test]
    async fn a_journal_that_is_damaged_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let approvals = Approvals::of(dir.path(), "s");
        drop(approvals.begin().unwrap());
        let segment = fs::read_dir(&approvals.folder).unwrap().next();
        let segment = segment.unwrap().unwrap().path();
        let mut bytes = fs::read(&segment).unwrap();
        bytes[3] ^= 1;
        fs::write(&segment, bytes).unwrap();
        let why = listed(&approvals).await.unwrap_err();
        assert!(!why.contains("under way"), "{why}");
    }

    #[tokio::test]
    async fn who_looks_brings_no_journal_back_that_is_being_removed() {
        let dir = tempfile::tempdir().unwrap();
        let approvals = Approvals::of(dir.path(), "s");
        approvals.end().unwrap();
        assert_eq!(listed(&approvals).await, Ok(Vec::new()));
        assert!(!approvals.folder.exists());
        fs::create_dir_all(&approvals.folder).unwrap();
        assert_eq!(listed(&approvals).await, Ok(Vec::new()));
        assert_eq!(fs::read_dir(&approvals.folder).unwrap().count(), 0);
        approvals.end().unwrap();
        assert!(!approvals.folder.exists());
    }
}
