//! Messages, lifecycle, cache, transcript and processor from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, and says why"
)]

mod alignment;
#[cfg(feature = "driver")]
mod apart;
mod cache;
mod checklist;
mod consumer;
#[cfg(feature = "driver")]
mod copies;
#[cfg(feature = "driver")]
mod driven;
#[cfg(feature = "driver")]
mod essences;
#[cfg(feature = "log")]
mod files;
#[cfg(feature = "arbitrary")]
mod generated;
mod given_up;
#[cfg(feature = "driver")]
mod hooks;
#[cfg(feature = "driver")]
mod interrupted;
#[cfg(feature = "driver")]
mod judged;
#[cfg(feature = "log")]
mod kept;

mod issuers;
mod lab;
mod learned;
mod learning;
mod lifecycle;
mod message;
#[cfg(feature = "driver")]
mod processor;
#[cfg(feature = "driver")]
mod resume;
mod roles;

mod samples;
mod schemas;
mod shapes;
#[cfg(feature = "sign")]
mod sign;
#[cfg(feature = "driver")]
mod transport;
#[cfg(feature = "driver")]
mod unread;
mod vectors;
mod what_if;
