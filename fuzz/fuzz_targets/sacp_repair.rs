#![no_main]

#[path = "../bodies/sacp_repair.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::check(bytes));
