//! Rights that change while others hold unfolded work: chmod and chown of files and of the directories
//! above them, directories that move to where they are closed, directories and files that somebody
//! removes, replaces or links while somebody else works in them. Sessions of several users, each a
//! process of its own with threads; needs root, to become them.
//!
//! What is looked for: nobody honest is convicted, nothing that was acknowledged is lost, nothing
//! that failed is there all the same, and no error is told that POSIX does not allow.
//!
//!     cargo test -p arck-testkit --test rights [-- WORD...]
//!
//! runs those in whose name one of the words occurs. `ARCK_RIGHTS_SEED=N` begins with other seeds,
//! `ARCK_RIGHTS_ROUNDS=N` tries so many of each.

mod board;
mod names;
mod open;
mod oracle;
mod set_id;
mod storm;
mod trees;
mod worker;
#[path = "../users/world.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of several users, which use the rest"
)]
mod world;

/// Name, and what it does with a seed.
pub type Case = (&'static str, fn(u64));

fn main() -> std::process::ExitCode {
    // SAFETY: no arguments, no memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!(
            "these tests become other users, which only root can; run them by: sudo -E cargo test -p \
             arck-testkit --test rights"
        );
        return std::process::ExitCode::FAILURE;
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("ARCK_RIGHTS_SEED").unwrap_or(1);
    let rounds: u64 = number("ARCK_RIGHTS_ROUNDS").unwrap_or(1);
    let mut failed = 0;
    let mut ran = 0;
    for (name, case) in storm::ALL
        .iter()
        .chain(names::ALL)
        .chain(trees::ALL)
        .chain(open::ALL)
        .chain(set_id::ALL)
    {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        ran += 1;
        let result = std::panic::catch_unwind(|| {
            for seed in first..first + rounds {
                println!("{name}, seed {seed}");
                case(seed);
            }
        });
        println!(
            "test {name} ... {}",
            if result.is_ok() { "ok" } else { "FAILED" }
        );
        failed += u32::from(result.is_err());
    }
    println!("{ran} run, {failed} failed");
    std::process::ExitCode::from(u8::from(failed != 0))
}
