//! A server on loopback that answers as it is told, and questions to ask it.

use std::sync::Arc;
use std::time::Duration;

use crate::stamp;
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use ubos_common::json::RawObject;
use upp::{
    AssistantMessage, ContentBlock, FnTool, List, LlmModel, LlmRequest, LlmResponse, Message,
    ModelEvent, Source, Tool, ToolCall, ToolResult, ToolResultMessage, UppError, UserMessage,
    json_text, object,
};

pub(crate) const KEY: &str = "sk-not-a-real-key-0123456789";

/// What one connection is answered with: pieces, with a moment between them. The connection stays open at the end
/// where a piece is empty.
pub(crate) type Pieces = Vec<Vec<u8>>;

/// Answers one connection after the other; gives what each was asked.
pub(crate) async fn serve_all(
    answers: Vec<Pieces>,
) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "the server of a test")]
    let server = tokio::spawn(async move {
        let mut asked = Vec::new();
        for pieces in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            asked.push(question(&mut socket).await);
            for piece in pieces {
                if piece.is_empty() {
                    // Until the client leaves.
                    let _ = socket.read(&mut [0; 1]).await;
                    break;
                }
                if socket.write_all(&piece).await.is_err() {
                    break;
                }
                let _ = socket.flush().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        asked
    });
    (url, server)
}

/// Answers one connection.
pub(crate) async fn serve(pieces: Pieces) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    serve_all(vec![pieces]).await
}

async fn question(socket: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let n = socket.read(&mut bytes).await.unwrap();
        seen.extend_from_slice(&bytes[..n]);
        let text = String::from_utf8_lossy(&seen);
        let complete = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            body.len() >= length.unwrap_or(0)
        });
        if complete || n == 0 {
            return String::from_utf8(seen).unwrap();
        }
    }
}

/// An answer in one piece; `head` is the status line's rest and any further headers.
pub(crate) fn answer(head: &str, body: &str) -> Pieces {
    let length = body.len();
    vec![format!("HTTP/1.1 {head}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()]
}

/// An event stream, split at every few bytes.
pub(crate) fn events(text: &str, size: usize) -> Pieces {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let mut pieces = vec![head.as_bytes().to_vec()];
    pieces.extend(text.as_bytes().chunks(size).map(<[u8]>::to_vec));
    pieces
}

/// A question with an image, a call and its result, a tool, a system prompt and parameters.
pub(crate) fn request() -> LlmRequest {
    let call = ToolCall::new("c0".into(), "add".into(), object(r#"{"a":1}"#).unwrap());
    let image = ContentBlock::image(Source::Bytes(vec![1, 2, 3].into()), "image/png");
    let mut result = ToolResult::new("c0".into(), json_text("three"));
    result.is_error = Some(true);
    let messages = vec![
        UserMessage::new(stamp(1), vec!["hi \"there\"".into(), image]).into(),
        AssistantMessage::new(stamp(2), vec!["well".into()], Some(vec![call])).into(),
        ToolResultMessage::new(stamp(3), vec![result]).into(),
    ];
    let mut request = LlmRequest::new(List::from(messages), stamp(4));
    request.tools = vec![add()].into();
    request.system = Some("be brief".into());
    request.params = Some(Arc::new(object(r#"{"top":0.20}"#).unwrap()));
    request
}

pub(crate) fn add() -> Arc<dyn Tool> {
    let schema = object(r#"{"type":"object"}"#).unwrap();
    Arc::new(FnTool::new(
        "add",
        "Adds",
        schema,
        |a: RawObject, _| async { Ok(a.into()) },
    ))
}

/// A question for structured output and nothing else.
pub(crate) fn structured() -> LlmRequest {
    let messages = List::from(vec![Message::user(stamp(1), "count")]);
    let mut request = LlmRequest::new(messages, stamp(4));
    request.structure = Some(Arc::new(object(r#"{"type":"object"}"#).unwrap()));
    request
}

/// Streams an answer to its end: the types of its events, and what came of it.
pub(crate) async fn drain(
    model: &dyn LlmModel,
    request: LlmRequest,
) -> (Vec<String>, Result<LlmResponse, UppError>) {
    let mut stream = model.stream(request);
    let mut types = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(ModelEvent::Event(event)) => types.push(event.event_type.to_string()),
            Ok(ModelEvent::Done(response)) => {
                assert!(stream.next().await.is_none());
                return (types, Ok(*response));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(stream.next().await.is_none());
                return (types, Err(error));
            }
        }
    }
    panic!("no end");
}

/// Head and body of what the server was asked.
pub(crate) fn parts(asked: &str) -> (&str, &str) {
    asked.split_once("\r\n\r\n").unwrap()
}
