//! libFuzzer's program for `arck_fuzz::delta`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arck_fuzz::delta::run(bytes));

// Every other input is changed as a forger would change it, the rest as libFuzzer does.
libfuzzer_sys::fuzz_mutator!(|bytes: &mut [u8], size: usize, room: usize, seed: u32| {
    if seed % 2 == 1 && arck_fuzz::delta::mutate(&mut bytes[..size], seed.into()) {
        size
    } else {
        libfuzzer_sys::fuzzer_mutate(bytes, size, room)
    }
});
