//! Rights that change while others hold unfolded work: chmod and chown of files and of the directories
//! above them, directories that move to where they are closed, directories and files that somebody
//! removes, replaces or links while somebody else works in them. Sessions of several users, each a
//! process of its own with threads; needs root, to become them.
//!
//! What is looked for: nobody honest is convicted, nothing that was acknowledged is lost, nothing
//! that failed is there all the same, and no error is told that POSIX does not allow.
//!
//!     cargo test -p arck-testkit --test rights [-- WORD]
//!
//! runs those in whose name the word occurs. `ARCK_RIGHTS_SEED=N` begins with other seeds,
//! `ARCK_RIGHTS_ROUNDS=N` tries so many of each.

mod attributes;
mod beside_host;
mod board;
mod names;
mod open;
mod oracle;
mod set_id;
mod slices;
mod storm;
mod told;
mod trees;
mod worker;
#[path = "../users/world.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of several users, which use the rest"
)]
mod world;

use arck_testkit::harness;

/// Name, and what it does with a seed.
pub type Case = (&'static str, fn(u64));

fn main() -> std::process::ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("ARCK_RIGHTS_SEED").unwrap_or(1);
    let rounds: u64 = number("ARCK_RIGHTS_ROUNDS").unwrap_or(1);
    let all = [
        storm::ALL,
        names::ALL,
        trees::ALL,
        slices::ALL,
        open::ALL,
        set_id::ALL,
        told::ALL,
        attributes::ALL,
    ];
    let tests = all.concat().into_iter().map(|(name, case)| {
        harness::trial(name, move || {
            for seed in first..first + rounds {
                println!("{name}, seed {seed}");
                case(seed);
            }
        })
    });
    harness::run_as_root(tests.collect())
}
