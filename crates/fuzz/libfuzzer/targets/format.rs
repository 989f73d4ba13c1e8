//! libFuzzer's program for `arck_fuzz::format`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arck_fuzz::format::run(bytes));
