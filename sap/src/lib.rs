//! SAP V2.0: agent tasks and results under constitutional governance, sans-IO.
//!
//! A [`Task`] says who wants which capability done, in which constitutional context; each [`TaskResult`] says how
//! far it is, with the evidence that principles were kept. This crate reads and writes both without losing
//! anything, finds everything that is wrong with them, and knows what may follow what. Around them stand a
//! write-once cache, a transcript that shows tampering, and a processor that ends every task.
//!
//! What it is for: an agent asks another one for a piece of work and wants to know, later and for sure, what was
//! asked, under which principles, what came of it, and who says that the principles were kept.
//!
//! ```text
//! transport                     bus; http, mcp, nats                   feature each
//! processor                     bytes in, Ack and results out          feature `driver`
//! store                         memory; hash-chained files             feature `log`
//! cache, transcript, alignment  what is kept, and what is aligned      pure, or traits
//! learning                      signals in, heuristics out             pure
//! lifecycle, role, status       what may follow, what may be sent
//! validate, secrets             all findings, with pointer and clause
//! task, result, receipt, …      types and codec; `view` borrows
//! ```
//!
//! ```
//! use sap::validate::{Options, decode_task};
//! use sap::ubos_common::{json::DecodeError, violation::Profile};
//!
//! let text = br#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
//!     "correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z",
//!     "issuer":{"agentId":"A-prime","agentKind":"robot"},"target":{"capability":"consult.align"},
//!     "constitutionalContext":{"territory":"EUFM"},"payload":{"n":1.50}}"#;
//! let Err(DecodeError::Invalid(report)) = decode_task(text, &Options::default()) else { panic!("refused") };
//! assert!(report.to_string().contains("MUST /issuer/agentKind"));
//! assert!(report.to_string().contains("MUST /constitutionalContext/pressureLevel"));
//!
//! let (task, report) = decode_task(text, &Options::from(Profile::Lenient))?;
//! assert!(report.is_valid() && task.payload.as_str() == r#"{"n":1.50}"#);
//! # Ok::<(), DecodeError>(())
//! ```
//!
//! # A consumer
//!
//! It names its capabilities and is put on a transport; every task that comes ends in a Nack or a result. This one
//! is on the bus of the process (feature `driver`); the others take the same processor.
//!
#![cfg_attr(feature = "driver", doc = "```")]
#![cfg_attr(not(feature = "driver"), doc = "```ignore")]
//! use std::sync::Arc;
//! use sap::alignment::Rules;
//! use sap::cache::{Caching, WholePayload};
//! use sap::processor::{AllowAll, Config, Context, HandlerError, Outcome, Processor};
//! use sap::store::{MemoryCache, MemoryTranscript};
//! use sap::transport::bus::{self, Bus};
//! use sap::{Producer, ProducerKind};
//! use sap::ubos_common::{driver::Sleep, json::RawBuf};
//!
//! async fn consult(cx: Context) -> Result<Outcome, HandlerError> {
//!     cx.spend("tokens", 120.0)?;
//!     let output = RawBuf::from_serialize(&["Purpose", "Objects"]);
//!     let output = output.map_err(|error| HandlerError::unprocessable(error.to_string()))?;
//!     Ok(Outcome::new(output).citing(vec!["ubos://constitution/books".into()]))
//! }
//!
//! fn agent(clock: Arc<dyn Sleep + Send + Sync>) -> Result<Bus, Box<dyn std::error::Error>> {
//!     let transcript = Arc::new(MemoryTranscript::default());
//!     let producer = Producer::new("A-ml-001".parse()?, ProducerKind::Agent);
//!     let refusals = Arc::new(MemoryTranscript::default().keeping_newest()); // anybody can fill it
//!     let bus = Bus::new(clock, refusals, bus::Config::default())?;
//!     bus.attach(
//!         Processor::new(producer, Arc::new(AllowAll), transcript, Config::default())?
//!             .handle("consult.align".parse()?, consult)
//!             .policy(Arc::new(Rules::default().forbid("privacy", "home address").cite("honesty")))
//!             .cache(Arc::new(MemoryCache::default()))
//!             .cached("consult.align".parse()?, Caching::shared(WholePayload)),
//!         |warning| eprintln!("{warning}"),
//!     );
//!     Ok(bus)
//! }
//! ```
//!
//! # A producer
//!
//! It makes a task, which cannot be made without what is required, and sends it. What does not hold, or has a
//! secret in its payload, does not leave.
//!
#![cfg_attr(feature = "driver", doc = "```")]
#![cfg_attr(not(feature = "driver"), doc = "```ignore")]
//! use sap::transport::{Message, bus::Bus};
//! use sap::{AgentKind, CacheMode, CachePolicy, ConstitutionalContext, Issuer, PressureLevel, Target, Task};
//! use sap::ubos_common::{id::IdSource, json::{RawBuf, RawObject}, time::Timestamp};
//!
//! async fn ask(bus: &Bus, ids: &mut IdSource, now: Timestamp) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
//!     context.principles = Some(vec!["honesty".into(), "privacy".into()]);
//!     let mut cache = CachePolicy::new();
//!     cache.mode = Some(CacheMode::Prefer);
//!     cache.must_align = Some(true);
//!     context.cache_policy = Some(cache);
//!     let issuer = Issuer::new("A-prime".parse()?, AgentKind::Agent);
//!     let target = Target::new("consult.align".parse()?);
//!     let payload = RawObject::new(RawBuf::parse(r#"{"topic":"SAP"}"#)?).unwrap_or_default();
//!     let task = Task::draft(ids, now, issuer, target, context, payload);
//!     match bus.send(&task, &mut |progress| println!("{progress}")).await? {
//!         Some(Message::Result(result)) => println!("{}: {:?}", result.status, result.output),
//!         Some(Message::Nack(nack)) => println!("{nack}"),
//!         _ => println!("the results go elsewhere"),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # The cache
//!
//! Two tasks have the same [key](cache::Keys) when capability, essence of the payload, territory, principles and
//! output contract are the same; an [extractor](cache::Essence) says what of a payload matters. What was computed
//! and found VALID is written once and never changed; a later version of a record is added, and older ones stay for
//! audit. Whether a record answers a task is a [pure function](cache::decide) of the task's policy, the record and
//! the time. Equal tasks at the same time are computed once.
//!
//! # The transcript
//!
//! Every task and every result is in the [`Transcript`](transcript::Transcript) before anybody is told. Nacks are noted
//! [apart](processor::Processor::refusals), for anybody can cause them. It is chained:
//! a byte that was changed is found, and with a head that was kept elsewhere so is an end that was cut. Keep it in
//! files (`store::FileTranscript`, feature `log`), archive whole segments of it, and look through it with
//! `store::fsck`; [`Redacting`](store::Redacting) keeps secrets out of it.
//!
//! # Features
//!
//! None is on by default; the core has no IO, no clock and no runtime, and compiles for wasm32.
//!
//! | feature | what it adds |
//! |---|---|
//! | `log` | cache, transcript, signals and knowledge in hash-chained files |
//! | `driver` | the processor and the bus, on any runtime |
//! | `os` | ids and the time of day from the operating system: `IdSource::from_os`, `Timestamp::now` |
//! | `tokio` | a clock for the processor on tokio: `transport::TokioClock`; each transport brings it |
//! | `schema` | outputs held against the JSON Schema of their contract |
//! | `http`, `mcp`, `nats` | a transport each, client and server, on tokio |
//! | `typed` | handlers over serde types, with their schemas |
//! | `sign` | detached signatures of tasks, results and transcripts: Ed25519 |
//! | `tracing` | records of the machines, spans with correlation ids, counters of queues; without payloads |
//! | `arbitrary` | generators of messages, for fuzzing |
//! | `external-tests` | tests that need a `nats-server` |
//!
//! # Bounds
//!
//! | bound | default | at the bound |
//! |---|---|---|
//! | one message | [`Limits`](ubos_common::json::Limits) | refused |
//! | results a lifecycle remembers | 1,024 | the oldest is forgotten |
//! | tasks that run in a processor, their bytes | 1,024, 256 MiB | Nack `RATE_LIMIT` |
//! | tasks that wait to be let in: for the hook, then for the transcript | 256 together, 30 s each | Nack `RATE_LIMIT` |
//! | tasks to run again that `resume` hands out | 64 MiB | left to their senders |
//! | Nacks it notes | 1,000; 100 at once, 10 a second | counted |
//! | ended tasks it remembers | 10,000 | the oldest of the issuer who has most is forgotten |
//! | bytes of results that it keeps in memory | 64 MiB | they are read from the transcript |
//! | time of a task without a deadline | 1 hour | FAILED `TIMEOUT` |
//! | calls and bytes of records that wait for a store in files | 4,096; 64 MiB | refused |
//! | silence towards a client of HTTP, of a queue, of a bus | 300 s, 7 days, any | sent again where that is set, else no answer |
//! | what comes after a deadline, on all transports; an answer about a task over MCP | 300 s | no answer |
//! | connections of an HTTP server; of one address | 200; half of them | the next one waits; is closed |
//! | reports of a handler that wait | 16 | the handler waits |
//! | messages that wait for a slow caller or endpoint, their bytes | 64, 4 MiB; over HTTP 16, 1 MiB more | the handler waits, 1 s at most; then results on the way are left out |
//! | tasks on a bus, results in a mailbox | 1,024 | `try_send` Nacks, `send` waits until the deadline; the endpoint is unreachable |
//! | a task over HTTP, MCP | 1 MiB | Nack, 413 |
//! | calls that one MCP session has under way | no bound of its own, for a stream has one peer | those of the processor |
//! | tasks that one worker of a queue runs | 16 | it takes no more |
//! | attempts at a task of a queue | 5 | dead letter, and FAILED `INTERNAL` |
//! | schema of a contract | 64 KiB, 16 references | not enforced, with a warning |
//! | records of a cache in memory, in files | 10,000, 1,000,000 | not kept, with a warning |
//! | entries of a transcript in memory | 100,000 | refused, so the task is not delivered |
//! | what is learned of | [`learning::Bounds`] | refused or left out, and counted |
//! | essences whose outcome a trial remembers | 10,000 | the oldest is forgotten |
//! | artifacts of a library | 100,000 | refused |
//! | a table of what if | [`alignment::WhatIfTable`] | left out, and counted |
//! | open tasks of a producer, ended ones it remembers | 10,000, 10,000 | refused; the oldest is forgotten |
//! | work on messages of more than 64 KiB that waits for its 4 threads | one for each message that somebody holds | its turn comes in order, and strangers and tasks have theirs by turns |
//! | signals that wait for those who learn, bytes of what they are made of | 10,000; 64 MiB | lost, counted, with a warning |
//! | constraints of a task that are checked; what is kept of them between verdicts | 64; what 8 KiB of texts are read to, 200 KiB | listed as unchecked |
//! | principles of a task that are listed in evidence, beside those that are broken | 64 | one line for the rest |
//! | steps of all predicates of a verdict | 4 Mi, about one a byte that is read | `UNCHECKED`, or a rule that is not kept |
//! | a predicate | 1,024 bytes, 16 terms, 32 tokens a place | refused |
//!
//! Specification: SAP V2.0. A clause that a place of the code stands for is cited there (`impl: SAP-6-1`).

pub mod alignment;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod cache;
mod context;
mod dispatch;
mod error;
mod evidence;
mod future;
mod ident;
pub mod learning;
mod lifecycle;
mod limits;
mod number;
#[cfg(feature = "driver")]
pub mod processor;
mod receipt;
mod result;
pub mod role;
#[cfg(test)]
mod samples;
pub mod schemas;
mod secrets;
#[cfg(feature = "sign")]
pub mod sign;
mod status;
pub mod store;
mod task;
#[cfg(feature = "driver")]
mod trace;
pub mod transcript;
#[cfg(feature = "driver")]
pub mod transport;
pub mod validate;
mod view;
#[cfg(feature = "driver")]
mod work;

pub use context::{CacheMode, CachePolicy, ConstitutionalContext, PressureLevel, RiskTolerance};
pub use dispatch::{DispatchError, dispatch, report};
pub use error::{ErrorCode, ErrorObject, StoreError};
pub use evidence::{
    Alignment, BodyDigest, CacheEvidence, CacheKey, ConstitutionalEvidence, Fingerprint,
    PolicyCheck, PolicyViolation,
};
pub use future::BoxFuture;
pub use ident::{AgentId, Capability, CorrelationId, NameError, Reason, TaskId, Version};
pub use lifecycle::{Accepted, Lifecycle, LifecycleError};
pub use number::{Amount, Number, Psi, Whole};
pub use receipt::{Ack, Nack, ReceiptStatus};
pub use result::{Producer, ProducerKind, TaskResult};
pub use secrets::SecretPolicy;
pub use status::Status;
pub use task::{
    AgentKind, Attachment, Budget, Issuer, OutputContract, Priority, ReplyTo, Target, Task,
    Telemetry,
};
pub use ubos_common;
pub use ubos_common::ConfigError;
pub use view::{TargetView, TaskView, TelemetryView};

/// The README's examples, which name the features that each needs; these two have them all.
#[cfg(all(doctest, feature = "http", feature = "typed"))]
#[doc = include_str!("../README.md")]
struct Readme;
