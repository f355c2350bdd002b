//! Types made from `proto/`; a test makes them again and compares.
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    clippy::nursery,
    reason = "generated code"
)]

include!("uap.v1.rs");
