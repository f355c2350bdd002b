//! Messages as lines, both ways. Arguments and results cross as the text that they are: a value of `serde_json` would round
//! their numbers.

use core::time::Duration;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{
    CallToolResult, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerNotification,
    ServerResult,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf,
};
use tokio::sync::{Mutex, watch};
use ubos_common::json::{RawBuf, RawObject};

use super::server::{Answered, Calls};
use crate::limits::MAX_FRAME_BYTES;

/// The longest line that is read, and the longest list of tools. A longer line ends the session: nobody knows whose answer it is.
pub(super) const LINE_BYTES: usize = 16 << 20;

/// Bytes of room that are kept for the next line.
const KEPT_BYTES: usize = 64 << 10;

/// Characters of a server's error, or of a report of progress, that go on.
const MAX_CHARS: usize = 2_000;

/// The beginning of what a server says.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

/// The arguments of a call, beside its request.
#[derive(Clone)]
pub(super) struct RawArguments(pub(super) RawObject);

/// A stream of lines. It hands reports of progress and the texts of results to their calls as it reads them: the library
/// handles each notification in a task of its own, so that an answer may overtake what the server said before it.
pub(super) struct Lines<S> {
    reader: BufReader<ReadHalf<S>>,
    line: Vec<u8>,
    writer: Arc<Mutex<Writer<S>>>,
    waiting: Arc<AtomicUsize>,
    /// Lines that still wait when this is gone are not written.
    open: Option<watch::Sender<()>>,
    calls: Calls,
    /// A message that was read and is not handed on yet: reading may be dropped at any time.
    held: Option<RxJsonRpcMessage<RoleClient>>,
}

/// How long lines that wait to be written may take when the session ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes that wait to be written before no more are taken: a server that reads nothing is sent nothing.
const WAITING_BYTES: usize = 16 << 20;

/// Lines that wait to be written.
struct Writer<S> {
    /// `None` once it is closed.
    stream: Option<WriteHalf<S>>,
    unsent: Vec<u8>,
    sent: usize,
}

impl<S: AsyncRead + AsyncWrite> Lines<S> {
    pub(super) fn new(stream: S, calls: Calls) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            writer: Arc::new(Mutex::new(Writer {
                stream: Some(writer),
                unsent: Vec::new(),
                sent: 0,
            })),
            waiting: Arc::default(),
            open: Some(watch::Sender::new(())),
            calls,
            held: None,
        }
    }

    /// Reads to the end of a line; `None` at the end of the stream, and after too long a line. May be dropped at any time.
    async fn read_line(&mut self) -> Option<()> {
        loop {
            let available = self.reader.fill_buf().await.ok()?;
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            if taken == 0 || self.line.len() + taken > LINE_BYTES {
                return None;
            }
            self.line.extend(available.get(..taken)?);
            self.reader.consume(taken);
            if end.is_some() {
                return Some(());
            }
        }
    }
}

impl<S: AsyncWrite> Writer<S> {
    /// Writes what waits. What is not written when this is dropped is written first the next time.
    async fn flush(&mut self) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        while let Some(unsent) = self.unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match stream.write(unsent).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.sent += count,
            }
        }
        self.unsent.clear();
        self.sent = 0;
        stream.flush().await
    }
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Transport<RoleClient> for Lines<S> {
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        "lines".into()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        let line = line_of(&item).and_then(|line| {
            let waits = Waits::new(&self.waiting, line.len());
            let waits = waits.ok_or_else(|| io::Error::other("the server reads nothing"))?;
            Ok((line, waits))
        });
        let open = self.open.as_ref().map(watch::Sender::subscribe);
        async move {
            let (line, _waits) = line?;
            let mut open = open.ok_or(io::ErrorKind::NotConnected)?;
            let sending = async {
                let mut writer = writer.lock().await;
                writer.unsent.extend(line);
                writer.flush().await
            };
            tokio::select! {
                biased;
                sent = sending => sent,
                // Nothing is said by it but its end.
                _ = open.changed() => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        while self.held.is_none() {
            self.read_line().await?;
            self.held = message_of(&self.line);
            if self.held.is_none() {
                self.line.clear();
            }
        }
        if let Some(message) = &self.held {
            hand_on(&self.calls, message, &self.line).await;
        }
        self.line.clear();
        self.line.shrink_to(KEPT_BYTES);
        self.held.take()
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // Whoever writes to a server that reads nothing keeps the lock.
        let late = tokio::time::timeout(FAREWELL, self.writer.lock()).await;
        if late.map(|mut writer| writer.stream = None).is_err() {
            self.open = None;
            self.writer.lock().await.stream = None;
        }
        Ok(())
    }
}

/// A line that waits, among all that do.
struct Waits {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Waits {
    /// `None` where too many bytes wait already; one line always may.
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Option<Self> {
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        let waits = Self {
            all: Arc::clone(all),
            bytes,
        };
        (before < WAITING_BYTES).then_some(waits)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Hands on what belongs to a call.
async fn hand_on(calls: &Calls, message: &RxJsonRpcMessage<RoleClient>, line: &[u8]) {
    match message {
        JsonRpcMessage::Notification(said) => {
            if let ServerNotification::ProgressNotification(report) = &said.notification {
                let calls = calls.lock().await;
                if let Some(call) = calls.reports.get(&report.params.progress_token) {
                    // One that says more follows; a slow core need not hear them all.
                    let _ = report_of(line).map(|text| call.try_send(text));
                }
            }
        }
        JsonRpcMessage::Response(answer) => {
            let mut calls = calls.lock().await;
            // The pages of a list go into no frame.
            let fits = calls.listing.as_ref() == Some(&answer.id) || line.len() <= MAX_FRAME_BYTES;
            if let Some(result) = calls.results.get_mut(&answer.id) {
                *result = match fits {
                    true => result_of(line).map_or(Answered::No, Answered::Text),
                    false => Answered::TooLong,
                };
            }
        }
        _ => {}
    }
}

/// A message as a line, with the arguments of a call as they are.
fn line_of(message: &TxJsonRpcMessage<RoleClient>) -> io::Result<Vec<u8>> {
    let mut line = match arguments_of(message) {
        None => serde_json::to_vec(message)?,
        Some(arguments) => {
            let mut whole = serde_json::to_value(message)?;
            let params = whole.get_mut("params").map(serde_json::Value::take);
            let params = with_member(&params.unwrap_or_default(), "arguments", arguments.as_str())?;
            if let Some(whole) = whole.as_object_mut() {
                whole.remove("params");
            }
            with_member(&whole, "params", &params)?.into_bytes()
        }
    };
    line.push(b'\n');
    Ok(line)
}

fn arguments_of(message: &TxJsonRpcMessage<RoleClient>) -> Option<&RawObject> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::CallToolRequest(call) = &request.request else {
        return None;
    };
    let arguments: &RawArguments = call.extensions.get()?;
    Some(&arguments.0)
}

/// The text of an object with members, with one more behind them.
fn with_member(object: &serde_json::Value, name: &str, value: &str) -> io::Result<String> {
    let mut text = serde_json::to_string(object)?;
    text.pop();
    text.push_str(&format!(",\"{name}\":{value}}}"));
    Ok(text)
}

/// What a line says; `None` where that is nothing of the protocol, as what a server logs on its standard output.
fn message_of(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    if let Ok(message) = serde_json::from_slice(line) {
        return Some(message);
    }
    // The library reads no number beyond a double: its place is taken by an empty result, for the call reads the text. So it
    // does what the library cannot read for other reasons.
    let answer: Answer<'_> = serde_json::from_slice(line).ok()?;
    match (answer.method, answer.result, answer.error) {
        (None, Some(_), _) => {
            let empty = ServerResult::CallToolResult(CallToolResult::success(Vec::new()));
            Some(JsonRpcMessage::response(empty, answer.id))
        }
        (None, None, Some(_)) => {
            let error = ErrorData::internal_error("an error that cannot be read", None);
            Some(JsonRpcMessage::error(error, Some(answer.id)))
        }
        _ => None,
    }
}

/// What a report of progress says, its numbers as they are.
fn report_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Report<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        progress: &'a RawValue,
        #[serde(borrow)]
        total: Option<&'a RawValue>,
        message: Option<String>,
    }
    let Report { params } = serde_json::from_slice(line).ok()?;
    let mut text = params.progress.get().to_owned();
    if let Some(total) = params.total {
        text.push_str(" of ");
        text.push_str(total.get());
    }
    if let Some(message) = params.message {
        text.push_str(": ");
        text.push_str(&message);
    }
    // Many wait where the core does not read.
    Some(shortened(&text))
}

/// The text of an answer's result; `None` where it is no sound JSON.
fn result_of(line: &[u8]) -> Option<RawBuf> {
    let answer: Answer<'_> = serde_json::from_slice(line).ok()?;
    RawBuf::parse(answer.result?.get()).ok()
}

/// An answer, its result unread.
#[derive(Deserialize)]
struct Answer<'a> {
    id: RequestId,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    method: Option<serde::de::IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_been_written_waits_no_more() {
        let all = Arc::default();
        let first = Waits::new(&all, WAITING_BYTES).unwrap();
        assert!(Waits::new(&all, 1).is_none());
        drop(first);
        assert!(Waits::new(&all, 1).is_some());
    }

    #[test]
    fn a_report_keeps_its_numbers() {
        let line =
            |params: &str| format!(r#"{{"method":"notifications/progress","params":{params}}}"#);
        for (params, text) in [
            (
                r#"{"progressToken":7,"progress":9007199254740993}"#,
                "9007199254740993",
            ),
            (
                r#"{"progress":0.10000000000000000001,"total":1e2,"message":"\u00e9"}"#,
                "0.10000000000000000001 of 1e2: é",
            ),
            (r#"{"progress":1,"total":null,"message":null}"#, "1"),
        ] {
            assert_eq!(report_of(line(params).as_bytes()).as_deref(), Some(text));
        }
        assert_eq!(report_of(line("{}").as_bytes()), None);
        let long = format!(r#"{{"progress":1,"message":"{}"}}"#, "é".repeat(9_000));
        let cut = report_of(line(&long).as_bytes()).unwrap();
        assert_eq!(cut.chars().count(), 2_000);
    }

    #[tokio::test]
    async fn a_stream_that_takes_nothing_more_is_an_error() {
        let mut room = [0; 3];
        let full = io::Cursor::new(&mut room[..]);
        let (_reader, stream) = tokio::io::split(tokio::io::join(tokio::io::empty(), full));
        let mut writer = Writer {
            stream: Some(stream),
            unsent: b"line\n".to_vec(),
            sent: 0,
        };
        let error = writer.flush().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}
