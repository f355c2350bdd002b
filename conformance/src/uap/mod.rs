//! Kits and checkers for UAP-1.1 agents.
//!
//! Two kits judge anybody's implementation. [`file_kit`] asks a validator for its answer about states and thread trees.
//! [`run_kit`] reads a [`Recording`] of what an agent did: the events of its streams, the states that it saved, its thread
//! trees, and the lines of its logging middleware, as far as they were recorded, in the order in which they occurred.
//! [`levels`] sums the reports of both up by the four conformance levels of section 14.
//!
//! The checkers are for authors who extend `uap-agent`: [`check_strategy`] for execution strategies,
//! [`check_stream_equals_generate`] for agents, [`check_store`], [`check_history`] and [`check_writers`] for checkpoint
//! stores, [`check_journal`] for journals, [`check_resume`] for agents that are resumed, and [`check_model`] for models.
//!
//! ```
//! use ubos_conformance::uap::{FileKind, FileVector, Level, Recording, file_kit, levels, run_kit};
//! use ubos_conformance::ubos_common::json::Limits;
//! use ubos_conformance::{Expectations, Validity};
//! use uap_agent::{AgentState, ThreadTree};
//!
//! // A validator under test.
//! let files = file_kit().run(&Expectations::new(), |_| Ok(Box::new(|vector: &FileVector| {
//!     let (text, limits) = (vector.text.as_bytes(), Limits::default());
//!     Some(Validity::of(match vector.kind {
//!         FileKind::State => AgentState::from_json(text, &limits).is_ok(),
//!         _ => ThreadTree::from_json(text, &limits).is_ok(),
//!     }))
//! })));
//! assert!(files.is_conformant(), "{files}");
//!
//! // A run whose first event belongs to its second step.
//! let event = br#"{"source":"uap","uap":{"type":"step_start","step":2,"agentId":"a","data":{}}}"#;
//! let recording = Recording::new().event(event);
//! let run = run_kit().run(&Expectations::new(), |_| Ok(Box::new(recording.clone())));
//! assert!(run.to_string().contains("line 1: step 2 where 1 is next"), "{run}");
//!
//! let levels = levels([&files, &run]);
//! assert_eq!(levels[0].level, Level::Core);
//! assert!(levels[0].failed > 0 && levels[2].is_conformant());
//! ```
//!
//! Spec: UAP-1.1 14

mod event;
mod event_judges;
mod fault;
mod files;
mod journal;
mod level;
mod model;
mod model_blocks;
mod mutants;
mod recording;
pub mod resume_kit;
mod run_kit;
mod state_judges;
mod store;
mod strategy;
mod stream;
mod tree_judges;

pub use event::{AgentEvent, ReadEvent, RecordedEvent};
pub use files::{FileKind, FileVector, file_kit, vectors};
pub use journal::{
    Interruption, JournalFault, ResumeFault, ResumeReport, check_journal, check_resume,
};
pub use level::{Level, LevelReport, levels};
pub use model::{ModelFault, check_model};
pub use recording::{Recorded, RecordedLine, Recording, RecordingError, Runs};
pub use resume_kit::{MARK, ResumeProgram, Resuming, resume_kit};
pub use run_kit::run_kit;
pub use store::{StoreFault, check_history, check_store, check_writers};
pub use strategy::{StrategyBreach, StrategyFault, check_strategy, check_strategy_with};
pub use stream::{StreamFault, check_stream_equals_generate};
