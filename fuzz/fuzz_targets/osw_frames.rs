#![no_main]

#[path = "../bodies/osw_frames.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::check(bytes));
