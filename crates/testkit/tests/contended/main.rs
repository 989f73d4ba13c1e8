//! Users who do not trust each other, all at work on the same few things for as long as a test lasts: names that come, move and
//! go in one directory (`storm`), and what FxMark has two writers do to one directory and to one file (`pairs`). Each is a
//! process of its own, in no group; needs root, to become them.
//!
//! # Invariants looked for
//! * What was answered was done, once: names and bytes are there as those who were answered say.
//! * No answer but success and what POSIX has there is given, whoever else is at work.
//! * Everybody comes to work: no call takes longer than [`shared::LONGEST_CALL`], and nobody does less than half of what
//!   would be his part, in one of five rounds.
//!
//!     cargo test -p arck-testkit --test contended [-- WORD]
//!
//! runs those in whose name the word occurs. `ARCK_CONTENDED_SEED=N` begins with another seed.

#[path = "../rights/board.rs"]
mod board;
#[path = "../../../controller/tests/common/check.rs"]
mod check;
mod pairs;
mod shared;
mod storm;
#[path = "../users/world.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of several users, which use the rest"
)]
mod world;

use arck_testkit::harness;

/// Name, and what it does with a seed.
type Case = (&'static str, fn(u64));

fn main() -> std::process::ExitCode {
    let seed = std::env::var("ARCK_CONTENDED_SEED");
    let seed = seed.ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let all: Vec<Case> = [storm::ALL, pairs::ALL].concat();
    let trials = all.into_iter().map(|(name, case)| {
        harness::trial(name, move || {
            println!("{name}, seed {seed}");
            case(seed);
        })
    });
    harness::run_as_root(trials.collect())
}
