//! libFuzzer's program for `arck_fuzz::delta`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arck_fuzz::delta::run(bytes));
