//! What a processor holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::Config;
use super::flight::SingleFlight;
use super::handler::Handler;
use super::hooks::{Authorize, ContractCheck, Judge};
use super::ledger::Ledger;
use super::refusals::Refusals;
use crate::cache::{CacheStore, Caching};
use crate::ident::Capability;
use crate::learning::SignalSink;
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
    pub(super) policy: Arc<dyn Judge>,
    pub(super) contract: Arc<dyn ContractCheck>,
    pub(super) cache: Option<Arc<dyn CacheStore>>,
    pub(super) signals: Option<Arc<dyn SignalSink>>,
    pub(super) refusals: Refusals,
    pub(super) transcript: Arc<dyn Transcript>,
    pub(super) config: Config,
    pub(super) ledger: Ledger,
    pub(super) flights: SingleFlight,
}

pub(super) struct Route {
    pub(super) handler: Box<dyn Handler>,
    #[cfg(feature = "typed")]
    pub(super) shape: Option<Shape>,
}

/// What a typed handler takes and gives, as JSON Schemas.
#[cfg(feature = "typed")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// Of the payload.
    pub payload: ubos_common::json::RawBuf,
    /// Of the output.
    pub output: ubos_common::json::RawBuf,
}
