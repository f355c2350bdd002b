#![no_main]

#[path = "../bodies/upp_message.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::check(bytes));
