//! What a vendor's answer consisted of goes back to that vendor as it came.

use std::sync::Arc;

use ubos_common::json::{Limits, to_string};
use ubos_common::violation::Profile;
use upp::{
    AssistantMessage, ContentBlock, ErrorCode, List, MediaKind, Message, Source, ToolCall,
    ToolResult, ToolResultMessage, object,
};

use crate::quirks::Vendor::{self, Anthropic, Google, OpenAi};
use crate::quirks::{model, streamed, whole};
use crate::vendor::{answer, request, serve};

/// The request that sends a conversation with a response back.
async fn sent_back(vendor: Vendor, response: Message) -> String {
    sent_with(vendor, vec![Message::user(crate::stamp(1), "?"), response]).await
}

/// The request for the next message of a conversation.
async fn sent_with(vendor: Vendor, messages: Vec<Message>) -> String {
    let (url, server) = serve(answer("200 OK", "{}")).await;
    let mut next = request();
    next.messages = List::from(messages);
    let error = model(vendor, &url).complete(next).await.unwrap_err();
    assert_ne!(error.code, ErrorCode::InvalidRequest, "{error}");
    server.await.unwrap().remove(0)
}

// spec: UPP-10
#[tokio::test]
async fn an_answer_goes_back_as_it_came_unless_it_was_changed() {
    let blocks = concat!(
        r#"[{"type":"thinking","thinking":"","signature":"czE="},{"type":"redacted_thinking","data":"aGlk"},"#,
        r#"{"type":"text","text":"one"},{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":"x"}},"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[{"u":"v"}]},{"type":"thinking","thinking":"t2","signature":"czI="},"#,
        r#"{"type":"text","text":"two","citations":[{"type":"c","n":1}]},{"type":"tool_use","id":"t","name":"add","input":{"a":1}}]"#
    );
    let body = format!(r#"{{"content":{blocks},"stop_reason":"tool_use"}}"#);
    let parts = concat!(
        r#"[{"text":"plan","thought":true},{"text":"one","thoughtSignature":"czE="},{"executableCode":{"language":"PYTHON","code":"1"}},"#,
        r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},{"functionCall":{"name":"add","args":{"a":1}},"thoughtSignature":"czI="},{"text":"two"}]"#
    );
    let google =
        format!(r#"{{"candidates":[{{"content":{{"parts":{parts}}},"finishReason":"STOP"}}]}}"#);
    for (vendor, body, wanted, signature) in [
        (Anthropic, &body, blocks, "czI="),
        (Google, &google, parts, "czI="),
    ] {
        let message = whole(vendor, body).await.unwrap().message;
        let sent = sent_back(vendor, Message::Assistant(Arc::clone(&message))).await;
        assert!(sent.contains(wanted), "{sent}");
        // A message whose text or call was changed goes without what the vendor signed.
        let mut text = (*message).clone();
        text.content.push(ContentBlock::text("more"));
        let mut call = (*message).clone();
        call.tool_calls.as_mut().unwrap()[0].arguments = object(r#"{"a":2}"#).unwrap();
        let mut fewer = (*message).clone();
        fewer.tool_calls = None;
        let mut id = (*message).clone();
        id.tool_calls.as_mut().unwrap()[0].tool_call_id = "other".into();
        let mut name = (*message).clone();
        name.tool_calls.as_mut().unwrap()[0].tool_name = "other".into();
        let mut more = (*message).clone();
        let again = ToolCall::new("u".into(), "add".into(), object("{}").unwrap());
        more.tool_calls.as_mut().unwrap().push(again);
        let mut all = vec![text, call, fewer, name, more];
        // Google need not give calls an id: there it is ours, and the vendor's own is kept beside it.
        all.extend(matches!(vendor, Anthropic).then_some(id));
        for changed in all {
            let sent = sent_back(vendor, changed.into()).await;
            assert!(!sent.contains(signature) && sent.contains("two"), "{sent}");
        }
    }
}

// spec: UPP-10
#[tokio::test]
async fn a_changed_message_takes_nothing_from_the_others() {
    let anthropic = |n: u32| {
        format!(
            r#"{{"content":[{{"type":"thinking","thinking":"t{n}","signature":"s{n}"}},{{"type":"text","text":"said {n}"}}],"stop_reason":"end_turn"}}"#
        )
    };
    let google = |n: u32| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"said {n}","thoughtSignature":"s{n}"}}]}},"finishReason":"STOP"}}]}}"#
        )
    };
    let openai = |n: u32| {
        format!(
            r#"{{"choices":[{{"message":{{"content":"said {n}","reasoning":"t{n}","reasoning_details":[{{"data":"s{n}"}}]}},"finish_reason":"stop"}}]}}"#
        )
    };
    for (vendor, bodies) in [
        (Anthropic, [1, 2, 3].map(anthropic)),
        (Google, [1, 2, 3].map(google)),
        (OpenAi, [1, 2, 3].map(openai)),
    ] {
        let mut messages = vec![Message::user(crate::stamp(1), "?")];
        for body in &bodies {
            messages.push(Message::Assistant(
                whole(vendor, body).await.unwrap().message,
            ));
            messages.push(Message::user(crate::stamp(1), "and?"));
        }
        let has = |sent: &str| [1, 2, 3].map(|n| sent.contains(&format!("\"s{n}\"")));
        let sent = sent_with(vendor, messages.clone()).await;
        assert_eq!(has(&sent), [true; 3], "{sent}");
        // Edited.
        let mut edited = messages.clone();
        let Message::Assistant(second) = &messages[3] else {
            panic!("{messages:?}")
        };
        let mut second = AssistantMessage::clone(second);
        second.content.push(ContentBlock::text("more"));
        edited[3] = second.into();
        let sent = sent_with(vendor, edited).await;
        assert_eq!(has(&sent), [true, false, true], "{sent}");
        assert!(sent.contains("said 2") && sent.contains("more"), "{sent}");
        // Removed.
        messages.drain(3..5);
        let sent = sent_with(vendor, messages).await;
        assert_eq!(has(&sent), [true, false, true], "{sent}");
        assert!(!sent.contains("said 2"), "{sent}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn an_answer_of_which_a_part_cannot_be_kept_goes_back_without_what_was_signed() {
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    let claude = format!(
        r#"{{"content":[{{"type":"thinking","thinking":"hm","signature":"c2ln"}},{{"type":"odd","x":{deep}}},{{"type":"text","text":"one"}}],"stop_reason":"end_turn"}}"#
    );
    let gemini = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"text":"one","thoughtSignature":"c2ln"}},{{"odd":{deep}}}]}},"finishReason":"STOP"}}]}}"#
    );
    for (vendor, body) in [(Anthropic, claude), (Google, gemini)] {
        let message = whole(vendor, &body).await.unwrap().message;
        let sent = sent_back(vendor, Message::Assistant(message)).await;
        assert!(sent.contains("one") && !sent.contains("c2ln"), "{sent}");
    }
}

// spec: UPP-10
#[tokio::test]
async fn media_of_google_go_back_where_they_stood() {
    let parts = concat!(
        r#"[{"inlineData":{"mimeType":"image/png","data":"AQID"},"thoughtSignature":"czE="},{"text":"one"},"#,
        r#"{"inlineData":{"mimeType":"audio/wav","data":"BAUG"}},{"inlineData":{"mimeType":"video/mp4","data":"CAkK"}}]"#
    );
    let body =
        format!(r#"{{"candidates":[{{"content":{{"parts":{parts}}},"finishReason":"STOP"}}]}}"#);
    let message = whole(Google, &body).await.unwrap().message;
    for block in [
        ContentBlock::media(MediaKind::Audio, vec![4, 5, 6], "audio/wav"),
        ContentBlock::media(MediaKind::Video, vec![8, 9, 10], "video/mp4"),
    ] {
        assert!(message.content.contains(&block), "{message:?}");
    }
    let sent = sent_back(Google, Message::Assistant(Arc::clone(&message))).await;
    assert!(sent.contains(parts), "{sent}");
    // The order alone is kept too.
    let unsigned = parts.replace(r#","thoughtSignature":"czE=""#, "");
    let plain = whole(Google, &body.replace(parts, &unsigned)).await;
    let sent = sent_back(Google, Message::Assistant(plain.unwrap().message)).await;
    assert!(sent.contains(&unsigned), "{sent}");
    // What the application put there instead goes without the signature, behind the text or before it.
    let mut changed = (*message).clone();
    let at = changed
        .content
        .iter()
        .position(|block| block.as_text().is_none());
    changed.content[at.unwrap()] =
        ContentBlock::image(Source::Bytes(vec![7, 8, 9].into()), "image/png");
    let sent = sent_back(Google, changed.clone().into()).await;
    assert!(sent.contains("BwgJ") && sent.contains("BAUG"), "{sent}");
    assert!(!sent.contains("czE="), "{sent}");
    // Thoughts of others stay out; what cannot be said at all is an error.
    changed.content.push(ContentBlock::Reasoning("hm".into()));
    let sent = sent_back(Google, changed.clone().into()).await;
    assert!(sent.contains("BwgJ") && !sent.contains("hm"), "{sent}");
    changed.content[at.unwrap()] = ContentBlock::image(Source::Text("x".into()), "image/png");
    let mut next = request();
    next.messages = List::from(vec![changed.into()]);
    let error = model(Google, "http://127.0.0.1:9/").complete(next).await;
    assert_eq!(error.unwrap_err().code, ErrorCode::InvalidRequest);
}

// spec: UPP-10
#[tokio::test]
async fn a_streamed_answer_of_anthropic_goes_back_as_it_came() {
    let chunks = [
        r#"{"type":"message_start","message":{"content":[]}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"czE="}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"","citations":[]}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"n":1}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"a\ud83d"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"\ude00"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let message = streamed(Anthropic, &chunks).await.unwrap().message;
    let sent = sent_back(Anthropic, Message::Assistant(message)).await;
    let wanted = concat!(
        r#"[{"type":"thinking","thinking":"","signature":"czE="},{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":1}},"#,
        r#"{"type":"text","text":"a😀","citations":[{"n":1}]}]"#
    );
    assert!(sent.contains(wanted), "{sent}");
}

// spec: UPP-10
#[tokio::test]
async fn what_compatible_vendors_send_beside_a_message_goes_back() {
    let details = r#"[{"type":"reasoning.encrypted","data":"c2ln"}]"#;
    let extra = r#"{"google":{"thought_signature":"c2lnMg=="}}"#;
    for name in ["reasoning", "reasoning_content"] {
        let chunks = [
            format!(r#"{{"choices":[{{"delta":{{"{name}":"hm, ","reasoning_details":{details}}}}}]}}"#),
            format!(r#"{{"choices":[{{"delta":{{"{name}":"so","content":"x","annotations":[{{"a":1}}]}},"logprobs":{{"content":[{{"t":1}}]}}}}]}}"#),
            format!(r#"{{"choices":[{{"delta":{{"annotations":[{{"a":2}}],"audio":{{"id":"au","data":"QUJD"}},"tool_calls":[{{"id":"c","function":{{"name":"add","arguments":"{{}}"}},"extra_content":{extra}}}]}},"logprobs":{{"content":[{{"t":2}}]}}}}]}}"#),
            r#"{"choices":[{"delta":{"audio":{"data":"REVG","transcript":"x"}},"finish_reason":"tool_calls"}]}"#.to_owned(),
        ];
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let message = streamed(OpenAi, &chunks).await.unwrap().message;
        let kept = message.metadata.as_ref().unwrap().get("openai").unwrap();
        let kept: serde_json::Value = kept.deserialize().unwrap();
        assert_eq!(kept["annotations"], serde_json::json!([{"a":1},{"a":2}]));
        assert_eq!(kept["logprobs"], serde_json::json!([{"t":1},{"t":2}]));
        assert_eq!(
            kept["audio"],
            serde_json::json!({"id":"au","data":"QUJDREVG","transcript":"x"})
        );

        let sent = sent_back(OpenAi, Message::Assistant(Arc::clone(&message))).await;
        let wanted = format!(
            r#""content":"x","{name}":"hm, so","reasoning_details":{details},"audio":{{"id":"au"}},"tool_calls":[{{"id":"c","type":"function","function":{{"name":"add","arguments":"{{}}"}},"extra_content":{extra}}}]"#
        );
        assert!(sent.contains(&wanted), "{sent}");
        // Another vendor gets nothing of it, and neither does this one where the application took the thoughts out.
        let sent = sent_back(Anthropic, Message::Assistant(Arc::clone(&message))).await;
        assert!(!sent.contains("hm, so") && !sent.contains("c2ln"), "{sent}");
        let mut changed = (*message).clone();
        changed
            .content
            .retain(|block| !matches!(block, ContentBlock::Reasoning(_)));
        let sent = sent_back(OpenAi, changed.into()).await;
        assert!(
            !sent.contains("hm, so") && !sent.contains("reasoning_details"),
            "{sent}"
        );
        // Nothing that was signed goes with what the application wrote instead. A store may order members of JSON.
        let stored: serde_json::Value =
            serde_json::from_str(&to_string(&Message::Assistant(Arc::clone(&message)))).unwrap();
        let (stored, _) = ubos_common::json::decode::<Message>(
            stored.to_string().as_bytes(),
            &Limits::default(),
            Profile::Strict,
        )
        .unwrap();
        assert!(sent_back(OpenAi, stored).await.contains("c2lnMg=="));
        let mut text = (*message).clone();
        text.content.push(ContentBlock::text("more"));
        let mut thought = (*message).clone();
        thought.content[0] = ContentBlock::Reasoning("hm, no".into());
        let mut call = (*message).clone();
        call.tool_calls.as_mut().unwrap()[0].arguments = object(r#"{"a":2}"#).unwrap();
        for changed in [text, thought, call] {
            let sent = sent_back(OpenAi, changed.into()).await;
            for signed in ["c2ln", "c2lnMg==", r#""id":"au""#] {
                assert!(!sent.contains(signed), "{sent}");
            }
            assert!(sent.contains(&format!(r#""{name}":"hm, "#)), "{sent}");
        }
    }
    let body =
        r#"{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"stop"}]}"#;
    let message = whole(OpenAi, body).await.unwrap().message;
    let sent = sent_back(OpenAi, Message::Assistant(message)).await;
    assert!(
        sent.contains(r#"{"role":"assistant","content":null,"refusal":"No."}"#),
        "{sent}"
    );
}

// spec: UPP-10
#[tokio::test]
async fn every_call_is_answered_before_the_next_request() {
    let calls = ["a", "b"].map(|id| ToolCall::new(id.into(), "add".into(), object("{}").unwrap()));
    let called = AssistantMessage::new(crate::stamp(2), vec![], Some(calls.into()));
    let question = |n| Message::user(crate::stamp(n), "?");
    let results = vec![ToolResult::new("b".into(), upp::json_text("three"))];
    let partly = ToolResultMessage::new(crate::stamp(3), results);
    for (vendor, wanted) in [
        (
            OpenAi,
            [
                r#"{"role":"tool","content":"the call was not run","tool_call_id":"a"}"#,
                r#"{"role":"tool","content":"the call was not run","tool_call_id":"b"}"#,
            ],
        ),
        (
            Anthropic,
            [
                r#"{"type":"tool_result","tool_use_id":"a","content":"the call was not run","is_error":true}"#,
                r#"{"type":"tool_result","tool_use_id":"b","content":"the call was not run","is_error":true}"#,
            ],
        ),
    ] {
        for (messages, missing) in [
            (
                vec![question(1), called.clone().into(), question(4)],
                [true, true],
            ),
            (
                vec![
                    question(1),
                    called.clone().into(),
                    partly.clone().into(),
                    question(4),
                ],
                [true, false],
            ),
        ] {
            let (url, server) = serve(answer("200 OK", "{}")).await;
            let mut next = request();
            next.messages = List::from(messages);
            let _ = model(vendor, &url).complete(next).await;
            let sent = server.await.unwrap().remove(0);
            assert_eq!(
                wanted.map(|result| sent.contains(result)),
                missing,
                "{sent}"
            );
            // What was said stays: both calls, both questions, and the result where there was one.
            let said = [r#""id":"a""#, r#""id":"b""#, r#""?""#, "three"];
            assert_eq!(
                said.map(|text| sent.matches(text).count()),
                [1, 1, 2, usize::from(!missing[1])],
                "{sent}"
            );
        }
    }
}
