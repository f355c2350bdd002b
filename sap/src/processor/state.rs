//! What a processor holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::RawBuf;

use super::config::Config;
use super::flight::SingleFlight;
use super::gate::Gate;
use super::handler::Handler;
use super::hooks::{Authorize, ContractCheck, Judge};
use super::ledger::Ledger;
use super::refusals::Refusals;
use super::teller::Teller;
use crate::cache::{CacheStore, Caching};
use crate::ident::Capability;
use crate::result::Producer;
use crate::role::consumer;
use crate::transcript::Transcript;

/// Answers tasks.
pub struct Processor {
    pub(super) producer: Producer,
    pub(super) consumer: consumer::Config,
    pub(super) routes: BTreeMap<Capability, Route>,
    pub(super) caching: BTreeMap<Capability, Caching>,
    pub(super) authorize: Arc<dyn Authorize>,
    pub(super) gate: Gate,
    pub(super) policy: Arc<dyn Judge>,
    pub(super) contract: Arc<dyn ContractCheck>,
    pub(super) cache: Option<Arc<dyn CacheStore>>,
    pub(super) signals: Option<Arc<Teller>>,
    pub(super) refusals: Refusals,
    pub(super) transcript: Arc<dyn Transcript>,
    pub(super) config: Config,
    pub(super) ledger: Arc<Ledger>,
    pub(super) flights: SingleFlight,
}

pub(super) struct Route {
    pub(super) handler: Box<dyn Handler>,
    pub(super) shape: Option<Shape>,
}

/// What a handler does, takes and gives, as far as it says so. MCP shows it to those who may call it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Shape {
    /// What it does, in a sentence.
    pub about: Option<String>,
    /// The JSON Schema of its payload.
    pub payload: Option<RawBuf>,
    /// The JSON Schema of its output.
    pub output: Option<RawBuf>,
}

impl Shape {
    /// Sets what the handler does, in a sentence.
    #[must_use]
    pub fn with_about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    /// Sets the JSON Schema of its payload.
    #[must_use]
    pub fn with_payload(mut self, schema: RawBuf) -> Self {
        self.payload = Some(schema);
        self
    }

    /// Sets the JSON Schema of its output.
    #[must_use]
    pub fn with_output(mut self, schema: RawBuf) -> Self {
        self.output = Some(schema);
        self
    }
}
