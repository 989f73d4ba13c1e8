//! libFuzzer's program for `arck_fuzz::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arck_fuzz::message::run(bytes));
