//! One tool call: the order of its hooks, and every way in which it goes wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Mono;
use upp::{
    CancelToken, FnTool, HookFuture, Permit, Tool, ToolCall, ToolContext, ToolError, ToolExecution,
    ToolSet, ToolUseStrategy, object, run_call,
};

/// Fails at one place, and notes every hook.
#[derive(Default)]
struct Noting {
    fails_at: &'static str,
    seen: Mutex<Vec<&'static str>>,
}

impl Noting {
    fn note(&self, hook: &'static str) -> Result<(), ToolError> {
        self.seen.lock().unwrap().push(hook);
        if self.fails_at == hook {
            Err(hook.into())
        } else {
            Ok(())
        }
    }
}

impl ToolUseStrategy for Noting {
    fn on_tool_call<'a>(&'a self, _: &'a dyn Tool, _: &'a RawObject) -> HookFuture<'a, ()> {
        Box::pin(async { self.note("call") })
    }
    fn on_before_call<'a>(&'a self, _: &'a dyn Tool, _: &'a RawObject) -> HookFuture<'a, Permit> {
        Box::pin(async {
            self.note("before")?;
            Ok(match self.fails_at {
                "skip" => Permit::Skip,
                "rewrite" => Permit::ProceedWith(object(r#"{"n":9}"#)?),
                _ => Permit::Proceed,
            })
        })
    }
    fn on_after_call<'a>(
        &'a self,
        _: &'a dyn Tool,
        _: &'a RawObject,
        _: &'a RawBuf,
    ) -> HookFuture<'a, Option<RawBuf>> {
        Box::pin(async {
            self.note("after")?;
            Ok((self.fails_at == "rewrite").then(|| RawBuf::parse("10").unwrap()))
        })
    }
    fn on_error<'a>(
        &'a self,
        _: &'a dyn Tool,
        _: &'a RawObject,
        _: &'a ToolError,
    ) -> HookFuture<'a, ()> {
        Box::pin(async {
            let _ = self.note("error");
            Err("and this hook fails too".into())
        })
    }
}

/// Needs approval for anything but `{"deny":true}`, echoes its arguments, panics or fails where told to.
struct Echo(FnTool);

impl Echo {
    fn new() -> Self {
        Self(FnTool::new(
            "echo",
            "",
            RawObject::empty(),
            |arguments: RawObject, _| async move {
                match arguments.as_str() {
                    r#"{"fail":true}"# => Err("it failed".into()),
                    r#"{"panic":true}"# => panic!("a secret"),
                    _ => Ok(arguments.into()),
                }
            },
        ))
    }
}

impl Tool for Echo {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        ""
    }
    fn parameters(&self) -> &RawObject {
        self.0.parameters()
    }
    fn approval<'a>(&'a self, arguments: &'a RawObject) -> HookFuture<'a, bool> {
        Box::pin(async move {
            if arguments.as_str() == r#"{"unsure":true}"# {
                Err("no answer".into())
            } else {
                Ok(arguments.as_str() != r#"{"deny":true}"#)
            }
        })
    }
    fn run<'a>(
        &'a self,
        arguments: &'a RawObject,
        context: &'a ToolContext,
    ) -> HookFuture<'a, RawBuf> {
        self.0.run(arguments, context)
    }
}

fn play(name: &str, fails_at: &'static str, arguments: &str) -> (ToolExecution, Vec<&'static str>) {
    let hooks = Arc::new(Noting {
        fails_at,
        ..Noting::default()
    });
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Echo::new())];
    let set = ToolSet::new(tools, Some(Arc::clone(&hooks) as Arc<dyn ToolUseStrategy>));
    let call = ToolCall::new("c1".into(), name.into(), object(arguments).unwrap());
    let clock = AtomicU64::new(0);
    let clock = move || Mono::from_millis(clock.fetch_add(5, Ordering::Relaxed));
    let execution = block_on(run_call(
        &set,
        &call,
        &ToolContext::new("c1", CancelToken::default()),
        &clock,
    ));
    let seen = hooks.seen.lock().unwrap().clone();
    (execution, seen)
}

// spec: UPP-4
#[test]
fn one_call_goes_in_the_stated_order_whatever_fails() {
    let all = r#"{"n":1}"#;
    type Row = (
        &'static str,
        &'static str,
        &'static str,
        bool,
        Option<bool>,
        &'static str,
        &'static [&'static str],
    );
    let rows: [Row; 11] = [
        (
            "echo",
            "",
            all,
            false,
            Some(true),
            r#"{"n":1}"#,
            &["call", "before", "after"],
        ),
        (
            "echo",
            "rewrite",
            all,
            false,
            Some(true),
            "10",
            &["call", "before", "after"],
        ),
        ("none", "", all, true, None, r#""tool none not found""#, &[]),
        (
            "echo",
            "call",
            all,
            true,
            None,
            r#""call""#,
            &["call", "error"],
        ),
        (
            "echo",
            "before",
            all,
            true,
            None,
            r#""before""#,
            &["call", "before", "error"],
        ),
        (
            "echo",
            "skip",
            all,
            true,
            None,
            r#""the call was skipped""#,
            &["call", "before", "error"],
        ),
        (
            "echo",
            "",
            r#"{"unsure":true}"#,
            true,
            None,
            r#""no answer""#,
            &["call", "before", "error"],
        ),
        (
            "echo",
            "",
            r#"{"deny":true}"#,
            true,
            Some(false),
            r#""the call was denied""#,
            &["call", "before"],
        ),
        (
            "echo",
            "",
            r#"{"fail":true}"#,
            true,
            Some(true),
            r#""it failed""#,
            &["call", "before", "error"],
        ),
        (
            "echo",
            "",
            r#"{"panic":true}"#,
            true,
            Some(true),
            r#""the tool panicked""#,
            &["call", "before", "error"],
        ),
        (
            "echo",
            "after",
            all,
            true,
            Some(true),
            r#""after""#,
            &["call", "before", "after", "error"],
        ),
    ];
    for (name, fails_at, arguments, is_error, approved, result, hooks) in rows {
        let (execution, seen) = play(name, fails_at, arguments);
        assert_eq!(
            (execution.is_error, execution.approved),
            (is_error, approved),
            "{fails_at} {arguments}"
        );
        assert_eq!(
            (execution.result.as_str(), seen.as_slice()),
            (result, hooks),
            "{fails_at} {arguments}"
        );
        assert_eq!(upp::ToolResult::from(&execution).is_error, Some(is_error));
    }
    let (rewritten, _) = play("echo", "rewrite", all);
    assert_eq!(
        (rewritten.arguments.as_str(), rewritten.duration),
        (r#"{"n":9}"#, 5)
    );
}

#[test]
fn a_tool_returns_the_errors_that_it_meets() {
    let tool = FnTool::new(
        "read",
        "Reads",
        object("{}").unwrap(),
        |arguments, _| async move {
            let name: std::collections::BTreeMap<String, String> = arguments.deserialize()?;
            let text = match name.get("of").map(String::as_str) {
                Some("a file") => Err(std::io::Error::other("no such file"))?,
                Some("a library") => {
                    let error: Box<dyn std::error::Error + Send + Sync> = "it broke".into();
                    Err(error)?
                }
                Some("a model") => {
                    Err(upp::UppError::new(upp::ErrorCode::Timeout, "m", "too slow"))?
                }
                _ => "ok",
            };
            Ok(RawBuf::from_serialize(text)?)
        },
    );
    let set = ToolSet::new([Arc::new(tool) as Arc<dyn Tool>], None);
    for (arguments, wanted) in [
        (r#"{"of":1}"#, "invalid type"),
        (r#"{"of":"a file"}"#, "no such file"),
        (r#"{"of":"a library"}"#, "it broke"),
        (r#"{"of":"a model"}"#, "too slow"),
        ("{}", "ok"),
    ] {
        let call = ToolCall::new("c".into(), "read".into(), object(arguments).unwrap());
        let context = ToolContext::new("c", CancelToken::default());
        let ran = block_on(run_call(&set, &call, &context, &|| Mono::ZERO));
        assert_eq!(
            (ran.is_error, ran.result.as_str().contains(wanted)),
            (wanted != "ok", true)
        );
    }
}
