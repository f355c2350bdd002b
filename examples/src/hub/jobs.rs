//! Jobs as JSON lines, and where they come from.

#![expect(clippy::disallowed_types, reason = "a program reads files")]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;
use uap_hub_proto::capability::Skill;
use uap_hub_proto::convert;
use uap_hub_proto::role::hub::Job;
use uap_hub_proto::wire::{Attachment, Payload};

/// Bytes of one line: a message of 64 MiB in base64, and what is around it.
const MAX_LINE_BYTES: u64 = 96 << 20;
/// Bytes of a file that a payload names.
const MAX_FILE_BYTES: usize = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: String,
    r#type: String,
    #[serde(default)]
    payloads: Vec<WrittenPayload>,
    agent: Option<String>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    priority: i8,
    group: Option<String>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPayload {
    r#type: String,
    name: Option<String>,
    mime_type: Option<String>,
    text: Option<String>,
    base64: Option<String>,
    file: Option<PathBuf>,
    metadata: Option<Map<String, Value>>,
}

/// A job that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) job: Job,
    /// The agent that it is for, by display name or client id.
    pub(super) agent: Option<String>,
    /// Bytes of its line, and of its data, which may stand in files.
    pub(super) bytes: usize,
}

/// Reads a line; `None` for a blank one.
pub(super) fn read(line: &str) -> Result<Option<Read>, String> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let written: Written = serde_json::from_str(line).map_err(|err| err.to_string())?;
    let skill = match written.kind.as_str() {
        "test" => Skill::test(written.r#type),
        "translation" => Skill::translation(written.r#type),
        other => return Err(format!("kind is test or translation, not {other:?}")),
    };
    let mut bytes = line.len();
    let mut payloads = Vec::with_capacity(written.payloads.len());
    for (payload, n) in written.payloads.into_iter().zip(0..) {
        // Before the next file is read: no hub takes a job of more.
        if bytes - line.len() > MAX_FILE_BYTES {
            return Err("the payloads have more than 64 MiB".to_owned());
        }
        let payload = payload.read();
        let payload = payload.map_err(|why| format!("payloads[{n}]: {why}"))?;
        bytes += payload.data().len();
        payloads.push(payload);
    }
    let mut job = Job::new(skill, payloads);
    job.priority = written.priority;
    job.group = written.group.map(Into::into);
    job.label = written.id.map(Into::into);
    job.time_limit = written.timeout_ms.map(Duration::from_millis);
    // It may wait as long as it may take.
    job.wait_limit = job.time_limit;
    let agent = written.agent;
    Ok(Some(Read { job, agent, bytes }))
}

impl WrittenPayload {
    fn read(self) -> Result<Payload, String> {
        let mut payload = Payload::new(self.r#type);
        if let Some(metadata) = &self.metadata {
            let metadata = convert::to_struct(metadata);
            payload.metadata = Some(metadata.map_err(|err| format!("metadata: {err}"))?);
        }
        let (data, name, mime_type) = match (self.text, self.base64, self.file) {
            (Some(text), None, None) => (text.into_bytes(), None, "text/plain"),
            (None, Some(text), None) => {
                let data = BASE64.decode(text).map_err(|_| "base64 is none")?;
                (data, None, "application/octet-stream")
            }
            (None, None, Some(path)) => {
                let data = read_file(&path).map_err(|err| format!("{}: {err}", path.display()))?;
                let name = path
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                (data, name, "application/octet-stream")
            }
            (None, None, None) if self.name.is_none() && self.mime_type.is_none() => {
                return Ok(payload);
            }
            (None, None, None) => (Vec::new(), None, "application/octet-stream"),
            _ => return Err("one of text, base64 and file".to_owned()),
        };
        let name = self
            .name
            .or(name)
            .unwrap_or_else(|| "attachment".to_owned());
        let mime_type = self.mime_type.unwrap_or_else(|| mime_type.to_owned());
        payload.attachment = Some(Attachment::new(name, mime_type, data));
        Ok(payload)
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    open(path)?
        .take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut data)?;
    if data.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("more than 64 MiB"));
    }
    Ok(data)
}

fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A line, or why there is none, and where.
pub(super) struct Input {
    pub(super) place: String,
    pub(super) line: io::Result<String>,
}

/// Reads all inputs, one after the other, until nobody listens.
pub(super) fn read_all(files: &[PathBuf], lines: &Sender<Input>) {
    let inputs = if files.is_empty() {
        &[PathBuf::from("-")]
    } else {
        files
    };
    for path in inputs {
        let name = path.display().to_string();
        let gone = match &*name {
            "-" => pass_on("stdin", &mut io::stdin().lock(), lines),
            _ => match open(path) {
                Ok(file) => pass_on(&name, &mut BufReader::new(file), lines),
                Err(err) => say(lines, name, Err(err)),
            },
        };
        if gone.is_none() {
            return;
        }
    }
}

/// `None` where nobody listens.
fn pass_on(name: &str, input: &mut dyn BufRead, lines: &Sender<Input>) -> Option<()> {
    for number in 1_u64.. {
        let mut bytes = Vec::new();
        let place = format!("{name}:{number}");
        let mut line = io::Read::take(&mut *input, MAX_LINE_BYTES);
        let read = line.read_until(b'\n', &mut bytes);
        match read {
            Ok(0) => break,
            Ok(length) if length as u64 == MAX_LINE_BYTES && !bytes.ends_with(b"\n") => {
                return say(
                    lines,
                    place,
                    Err(io::Error::other("a line of more than 96 MiB")),
                );
            }
            Ok(_) => {
                let line = String::from_utf8(bytes).map_err(io::Error::other);
                say(lines, place, line)?;
            }
            Err(err) => return say(lines, place, Err(err)),
        }
    }
    Some(())
}

fn say(lines: &Sender<Input>, place: String, line: io::Result<String>) -> Option<()> {
    lines.blocking_send(Input { place, line }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_with_all_it_has() {
        let line = r#"{"kind":"test","type":"echo","payloads":[{"type":"text","text":"hi"},
            {"type":"b","base64":"AAE=","name":"n","mime_type":"m","metadata":{"k":[1]}},{"type":"bare"}],
            "agent":"a","timeout_ms":5,"priority":-2,"group":"g","id":"x"}"#
            .replace('\n', "");
        let read = read(&line).unwrap().unwrap();
        assert_eq!(read.agent.as_deref(), Some("a"));
        assert_eq!(read.job.priority, -2);
        assert_eq!(read.job.payloads[0].data(), b"hi");
        assert_eq!(read.job.payloads[1].data(), [0, 1]);
        assert!(read.job.payloads[1].metadata.is_some());
        assert_eq!(read.job.payloads[2], Payload::new("bare"));
        assert_eq!(read.bytes, line.len() + 2 + 2);
    }

    #[test]
    fn files_of_a_job_are_read_until_they_are_too_many_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        let file = File::create(&large).unwrap();
        file.set_len(MAX_FILE_BYTES as u64 / 2 + 1).unwrap();
        let large = format!(r#"{{"type":"p","file":{large:?}}}"#);
        let line = format!(
            r#"{{"kind":"test","type":"t","payloads":[{large},{large},{{"type":"p","file":"/no/such"}}]}}"#
        );
        assert!(read(&line).unwrap_err().contains("more than 64 MiB"));
    }

    #[test]
    fn what_is_no_job_says_why() {
        assert!(read(" \n").unwrap().is_none());
        for (line, why) in [
            ("{", "EOF"),
            (r#"{"type":"t"}"#, "kind"),
            (r#"{"kind":"x","type":"t"}"#, "kind is test or translation"),
            (r#"{"kind":"test","type":"t","pyloads":[]}"#, "pyloads"),
            (
                r#"{"kind":"test","type":"t","payloads":[{"type":"p","text":"","base64":""}]}"#,
                "payloads[0]: one of",
            ),
            (
                r#"{"kind":"test","type":"t","payloads":[{"type":"p","base64":"?"}]}"#,
                "base64",
            ),
            (
                r#"{"kind":"test","type":"t","payloads":[{"type":"p","file":"/no/such"}]}"#,
                "/no/such",
            ),
            (r#"{"kind":"test","type":"t","priority":128}"#, "128"),
        ] {
            let found = read(line).unwrap_err();
            assert!(found.contains(why), "{line}: {found}");
        }
    }
}
