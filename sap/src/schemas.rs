//! JSON Schemas of the messages, for those who validate without this crate.
//!
//! They are JSON Schema 2020-12, need nothing from outside themselves, and leave unknown members open. On what
//! they can say they agree with the strict profile: a message without a MUST finding is valid under its schema,
//! and the other way round. Formats should be asserted, or a day that no calendar has passes. What no schema
//! sees are doubled members, numbers that a double rounds, and bounds on size.
//!
//! The same files stand in the folder `schemas` of this crate.
//!
//! ```
//! use sap::ubos_common::json::RawBuf;
//!
//! for schema in [sap::schemas::TASK, sap::schemas::RESULT, sap::schemas::CACHE_RECORD] {
//!     assert!(RawBuf::parse(schema)?.as_str().contains("urn:sap:2.0:"));
//! }
//! # Ok::<(), ubos_common::json::JsonError>(())
//! ```

/// Of a [`Task`](crate::Task); the schema of its context is part of it.
pub const TASK: &str = include_str!("../schemas/task.json");

/// Of a [`TaskResult`](crate::TaskResult).
pub const RESULT: &str = include_str!("../schemas/result.json");

/// Of a [`ConstitutionalContext`](crate::ConstitutionalContext).
pub const CONSTITUTIONAL_CONTEXT: &str = include_str!("../schemas/constitutional-context.json");

/// Of a [`CacheRecord`](crate::cache::CacheRecord).
pub const CACHE_RECORD: &str = include_str!("../schemas/cache-record.json");
