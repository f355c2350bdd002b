#![no_main]

#[path = "../bodies/hub_machine.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::check(bytes));
