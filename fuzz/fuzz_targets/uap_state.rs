#![no_main]

#[path = "../bodies/uap_state.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::check(bytes));
