//! Verdicts, contracts, single flight and signals, through the whole processor.

mod flights;
mod told;
mod verdicts;
