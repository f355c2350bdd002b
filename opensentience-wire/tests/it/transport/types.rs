//! Tools and calls with types of Rust.

use std::time::Duration;

use opensentience_wire::message::Channel;
#[cfg(feature = "schemars")]
use opensentience_wire::role::core::CallRequest;
#[cfg(feature = "schemars")]
use opensentience_wire::transport::tokio::CallError;
use opensentience_wire::transport::tokio::ToolError;
use opensentience_wire::{CommandError, ErrorCode, ErrorObject, Limits};
use serde_json::json;

#[cfg(feature = "schemars")]
use crate::kit::AGENT;
use crate::kit::token;

#[cfg(feature = "schemars")]
use super::{Pair, Quotient};
use super::{code, connect, request};

#[tokio::test]
async fn a_typed_tool_has_its_types_its_log_and_its_time() {
    let mut core = connect(Limits::default(), token()).await.unwrap();
    assert!(core.tools_changed().await);
    let input = json!({"numbers": [1, 2]});
    let asked = request("typed", input.clone()).with_timeout(Duration::from_secs(60));
    let mut call = core.call(asked).await.unwrap();
    let log = call.next_chunk().await.unwrap();
    assert_eq!(log.channel, Channel::Log);
    let output = call.result().await.output.unwrap();
    assert_eq!(output.as_str(), r#"{"sum":3,"timed":true}"#);
    let outcome = core.call(request("no_object", input)).await.unwrap();
    assert_eq!(code(&outcome.result().await), "tool.internal");
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn both_sides_of_a_call_may_have_types() {
    let mut handle = connect(Limits::default(), token()).await.unwrap();
    assert!(handle.tools_changed().await);
    let divide = format!("{AGENT}/divide");
    let of = |dividend, divisor| {
        CallRequest::typed(divide.as_str(), &Pair { dividend, divisor }).unwrap()
    };
    let quotient: Quotient = handle.ask(of(42, 6)).await.unwrap();
    assert_eq!(quotient, Quotient { quotient: 7 });
    let failed = handle.ask::<Quotient>(of(42, 0)).await.unwrap_err();
    assert_eq!(failed.to_string(), "tool.failed: division by zero");
    let unread = handle.ask::<Pair>(of(42, 6)).await.unwrap_err();
    assert!(matches!(unread, CallError::Output(_)), "{unread}");
    // The schema is that of the type, so what does not fit it is refused before the tool.
    let wrong = CallRequest::typed(divide.as_str(), &json!({"dividend": 1})).unwrap();
    let refused = handle.ask::<Quotient>(wrong).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("tool.invalid_input"),
        "{refused}"
    );
    let tools = handle.tools();
    let declared = tools.iter().find(|tool| tool.name == "divide").unwrap();
    let output = declared.output_schema.as_ref().unwrap().as_str();
    assert!(output.contains("quotient"), "{output}");
}

#[test]
fn errors_of_a_tool_keep_what_they_are() {
    let object = ErrorObject::of(ErrorCode::ToolBusy, "full");
    let text = |error: ToolError| error.to_string();
    assert_eq!(text(object.clone().into()), "tool.busy: full");
    assert_eq!(text(Box::new(object).into()), "tool.busy: full");
    assert_eq!(
        text(CommandError::Closing.into()),
        "tool.canceled: canceled"
    );
    let io = std::io::Error::other("no disk");
    assert_eq!(text(io.into()), "tool.failed: no disk");
    let missing = || -> Result<(), ToolError> { Ok(None.ok_or("nothing is there")?) };
    assert_eq!(
        text(missing().unwrap_err()),
        "tool.failed: nothing is there"
    );
}

#[tokio::test]
async fn an_input_of_another_type_is_refused_and_not_repeated() {
    let mut core = connect(Limits::default(), token()).await.unwrap();
    assert!(core.tools_changed().await);
    let input = json!({"numbers": ["hidden"]});
    let call = core.call(request("typed", input)).await.unwrap();
    let outcome = call.result().await;
    assert_eq!(code(&outcome), "tool.invalid_input");
    assert!(!format!("{outcome:?}").contains("hidden"));
}
