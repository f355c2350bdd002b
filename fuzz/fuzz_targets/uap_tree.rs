#![no_main]

#[path = "../bodies/uap_tree.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::check(bytes));
