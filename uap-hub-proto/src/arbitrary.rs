//! Messages of any shape, for fuzzing and property tests: good ones mostly, their corners included.
//!
//! ```
//! use arbitrary::{Arbitrary as _, Unstructured};
//! use prost::Message as _;
//! use uap_hub_proto::wire::TestResponse;
//!
//! let bytes: Vec<u8> = (0..=255).cycle().take(4_096).collect();
//! let message = TestResponse::arbitrary(&mut Unstructured::new(&bytes))?;
//! assert_eq!(TestResponse::decode(message.encode_to_vec().as_slice()), Ok(message));
//! # Ok::<(), arbitrary::Error>(())
//! ```

use arbitrary::{Arbitrary, Result, Unstructured};
use prost_types::{Duration, ListValue, Struct, Timestamp, Value, value::Kind};

use crate::wire::{
    AgentRegistration, AgentRegistrationResponse, Attachment, Capability, ListenRequest,
    ListenResponse, Payload, PayloadRequirement, SessionAcceptance, SessionProposal, SessionReady,
    StepReport, Summary, Telemetry, TestCapability, TestInit, TestProposalDetails, TestResponse,
    TestResult, TestStatus, TranslationCapability, TranslationInit, TranslationProposalDetails,
    TranslationResponse, TranslationResult, TranslationStatus, capability::Format, listen_request,
    listen_response, session_proposal::Details, test_response, translation_response,
};

/// Words of the protocol in the form that fuzzers take as a dictionary.
pub const DICTIONARY: &str = include_str!("../vectors/uap-hub.dict");

/// Parts of a list, steps of a report, members of a value.
const MAX_PARTS: usize = 3;

/// How deep steps and values are nested.
const MAX_DEPTH: u8 = 3;

macro_rules! generate {
    ($($name:ident { $($field:ident: $make:expr),* $(,)? })*) => {$(
        impl<'a> Arbitrary<'a> for $name {
            fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
                Ok(Self { $($field: ($make)(u)?,)* })
            }
        }
    )*};
}

generate! {
    AgentRegistration { display_name: text, capabilities: list }
    AgentRegistrationResponse { client_id: text }
    Capability { format: |u: &mut Unstructured<'a>| maybe(u, |u| Ok(match u.arbitrary()? {
        true => Format::Test(u.arbitrary()?),
        false => Format::Translation(u.arbitrary()?),
    })) }
    TestCapability { r#type: name, payloads: list }
    TranslationCapability { r#type: name, source_payloads: list, target_payloads: list }
    PayloadRequirement { r#type: name, is_required: any, is_repeatable: any, accepted_mime_types: mimes }
    Payload { r#type: name, attachment: option, metadata: |u: &mut Unstructured<'a>| maybe(u, |u| object(u, MAX_DEPTH)) }
    Attachment { name: text, mime_type: mime, data: |u: &mut Unstructured<'a>| Ok::<_, arbitrary::Error>(Vec::<u8>::arbitrary(u)?.into()) }
    ListenRequest { event: |u: &mut Unstructured<'a>| maybe(u, |u| Ok(match u.arbitrary()? {
        true => listen_request::Event::Ready(()),
        false => listen_request::Event::SessionAcceptance(u.arbitrary()?),
    })) }
    ListenResponse { event: |u: &mut Unstructured<'a>| maybe(u, |u| Ok(match u.arbitrary()? {
        true => listen_response::Event::SessionProposal(u.arbitrary()?),
        false => listen_response::Event::SessionReady(u.arbitrary()?),
    })) }
    SessionProposal { session_id: session, details: |u: &mut Unstructured<'a>| maybe(u, |u| Ok(match u.arbitrary()? {
        true => Details::Test(TestProposalDetails { r#type: name(u)? }),
        false => Details::Translation(TranslationProposalDetails { r#type: name(u)? }),
    })) }
    SessionAcceptance { session_id: session, accepted: any, reason: text }
    SessionReady { session_id: session }
    TestInit { test_type: name, payloads: list, acknowledged: any }
    TranslationInit { target_format: name, payloads: list, acknowledged: any }
    TestResponse { timestamp: time, number: any, event: |u: &mut Unstructured<'a>| maybe(u, |u| Ok(match u.int_in_range(0..=2)? {
        0 => test_response::Event::Status(u.arbitrary()?),
        1 => test_response::Event::Telemetry(u.arbitrary()?),
        _ => test_response::Event::Result(u.arbitrary()?),
    })) }
    TranslationResponse { timestamp: time, number: any, event: |u: &mut Unstructured<'a>| maybe(u, |u| Ok(match u.int_in_range(0..=2)? {
        0 => translation_response::Event::Status(u.arbitrary()?),
        1 => translation_response::Event::Telemetry(u.arbitrary()?),
        _ => translation_response::Event::Result(u.arbitrary()?),
    })) }
    TestStatus { state: number, message: text }
    TranslationStatus { state: number, message: text }
    TestResult { status: option, reports: |u: &mut Unstructured<'a>| steps(u, MAX_DEPTH), summary: option, attachments: list }
    TranslationResult { status: option, payloads: list, summary: option }
    Summary { total_duration: duration, start_time: time, metadata: |u: &mut Unstructured<'a>| maybe(u, |u| object(u, MAX_DEPTH)) }
    Telemetry { message: text, attachments: list, timestamp: time, severity: number, source: text }
}

impl<'a> Arbitrary<'a> for StepReport {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        step(u, MAX_DEPTH)
    }
}

fn steps(u: &mut Unstructured<'_>, depth: u8) -> Result<Vec<StepReport>> {
    let count = if depth == 0 {
        0
    } else {
        u.int_in_range(0..=MAX_PARTS)?
    };
    (0..count).map(|_| step(u, depth - 1)).collect()
}

fn step(u: &mut Unstructured<'_>, depth: u8) -> Result<StepReport> {
    Ok(StepReport {
        name: text(u)?,
        status: number(u)?,
        summary: option(u)?,
        steps: steps(u, depth)?,
    })
}

/// A state, status or severity: known ones mostly.
fn number(u: &mut Unstructured<'_>) -> Result<i32> {
    match u.int_in_range(0..=9)? {
        9 => u.arbitrary(),
        known => Ok(known),
    }
}

fn any<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>) -> Result<T> {
    u.arbitrary()
}

fn option<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>) -> Result<Option<T>> {
    maybe(u, T::arbitrary)
}

fn maybe<'a, T>(
    u: &mut Unstructured<'a>,
    make: impl FnOnce(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Option<T>> {
    match u.ratio(3, 4)? {
        true => make(u).map(Some),
        false => Ok(None),
    }
}

fn list<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=MAX_PARTS)?;
    (0..count).map(|_| u.arbitrary()).collect()
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    let length = u.int_in_range(0..=16)?;
    let mut text = String::new();
    for _ in 0..length {
        text.push(u.arbitrary()?);
    }
    Ok(text)
}

/// A type: one of few, so that they meet.
fn name(u: &mut Unstructured<'_>) -> Result<String> {
    choose(u, &["echo", "upper", "text", ""])
}

/// A session: one of few, or any text.
fn session(u: &mut Unstructured<'_>) -> Result<String> {
    match u.ratio(1, 8)? {
        true => text(u),
        false => choose(u, &["JOB-1", "JOB-2", "TRN-1", ""]),
    }
}

fn mime(u: &mut Unstructured<'_>) -> Result<String> {
    choose(
        u,
        &[
            "text/plain",
            "Text/Plain; charset=utf-8",
            "image/png",
            "png",
            "",
        ],
    )
}

fn mimes(u: &mut Unstructured<'_>) -> Result<Vec<String>> {
    let count = u.int_in_range(0..=MAX_PARTS)?;
    (0..count).map(|_| mime(u)).collect()
}

fn choose(u: &mut Unstructured<'_>, words: &[&str]) -> Result<String> {
    u.choose(words).map(|word| (*word).to_owned())
}

fn time(u: &mut Unstructured<'_>) -> Result<Option<Timestamp>> {
    maybe(u, |u| {
        let (seconds, nanos) = moment(u)?;
        Ok(Timestamp { seconds, nanos })
    })
}

fn duration(u: &mut Unstructured<'_>) -> Result<Option<Duration>> {
    maybe(u, |u| {
        let (seconds, nanos) = moment(u)?;
        Ok(Duration { seconds, nanos })
    })
}

/// Seconds and nanoseconds: sound ones mostly.
fn moment(u: &mut Unstructured<'_>) -> Result<(i64, i32)> {
    Ok(match u.ratio(1, 8)? {
        true => (u.arbitrary()?, u.arbitrary()?),
        false => (
            u.int_in_range(0..=4_000_000_000)?,
            u.int_in_range(0..=999_999_999)?,
        ),
    })
}

fn object(u: &mut Unstructured<'_>, depth: u8) -> Result<Struct> {
    let count = u.int_in_range(0..=MAX_PARTS)?;
    let fields = (0..count).map(|_| Ok((text(u)?, value(u, depth)?)));
    Ok(Struct {
        fields: fields.collect::<Result<_>>()?,
    })
}

fn value(u: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    let most = if depth == 0 { 4 } else { 6 };
    let kind = match u.int_in_range(0..=most)? {
        0 => None,
        1 => Some(Kind::NullValue(0)),
        2 => Some(Kind::BoolValue(u.arbitrary()?)),
        3 => Some(Kind::NumberValue(u.arbitrary()?)),
        4 => Some(Kind::StringValue(text(u)?)),
        5 => {
            let count = u.int_in_range(0..=MAX_PARTS)?;
            let values = (0..count).map(|_| value(u, depth - 1));
            let values = values.collect::<Result<_>>()?;
            Some(Kind::ListValue(ListValue { values }))
        }
        _ => Some(Kind::StructValue(object(u, depth - 1)?)),
    };
    Ok(Value { kind })
}
