//! Runs one primitive many times: what counts instructions from outside is given two numbers of times, and the
//! difference is what the primitive itself executes (docs/medium.md).
//!
//!     valgrind --tool=cachegrind --cachegrind-out-file=/dev/null \
//!         target/release/examples/instructions "4 KiB streamed and fenced" 1000
// What the bare stores cost: no order is to be had here.
#![allow(clippy::disallowed_methods)]

use arck_pm::copy::Stores;
use arck_pm::{PersistPolicy, SharedBytes, fence, order, set_policy};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

const SIZE: usize = 4096;

type Case = (
    &'static str,
    fn(SharedBytes<'_>, usize, &mut [u8]) -> Option<()>,
);

const CASES: [Case; 7] = [
    ("a line stored, flushed and fenced", |memory, at, bytes| {
        order::drain(memory.write(at, &bytes[..64])?.flush());
        Some(())
    }),
    ("a word streamed and fenced", |memory, at, _| {
        memory.stream_u64(at, 1)?;
        fence();
        Some(())
    }),
    ("4 KiB streamed and fenced", |memory, at, bytes| {
        memory.stream_from(at, bytes)?;
        fence();
        Some(())
    }),
    ("4 KiB streamed, guarded", |memory, at, bytes| {
        memory.try_copy_from(at, bytes, Stores::Streaming).ok()
    }),
    ("4 KiB copied out", |memory, at, bytes| {
        memory.copy_to(at, bytes)
    }),
    ("4 KiB copied out, guarded", |memory, at, bytes| {
        memory.try_copy_to(at, bytes).ok()
    }),
    ("64 bytes copied out, guarded", |memory, at, bytes| {
        memory.try_copy_to(at, &mut bytes[..64]).ok()
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = arguments.as_slice() else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let case = CASES.iter().find(|(case, _)| case == name);
    let (Some((_, work)), Ok(count)) = (case, count.parse::<usize>()) else {
        eprintln!("instructions: {name} {count}: no such case, or no number");
        return ExitCode::FAILURE;
    };
    set_policy(PersistPolicy::Flush);
    let words: Vec<AtomicU64> = (0..SIZE / 4).map(|_| AtomicU64::new(1)).collect();
    let memory = SharedBytes::from_words(&words);
    let mut bytes = vec![1; SIZE];
    for index in 0..count {
        if work(memory, black_box(index % 2 * SIZE), &mut bytes).is_none() {
            return ExitCode::FAILURE;
        }
        black_box(&bytes);
    }
    ExitCode::SUCCESS
}
