//! Users who do not trust each other, on one pool: each is a process of its own with his user id and
//! groups, and the pool is served by another user. Needs root, to become them.

mod cases;
#[path = "../../../controller/tests/common/check.rs"]
mod check;
mod crashes;
mod random;
mod world;

/// Name, and what it does.
type Case = (&'static str, fn());

fn main() -> std::process::ExitCode {
    // SAFETY: no arguments, no memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!(
            "these tests become other users, which only root can; run them by: sudo -E cargo test -p \
             arck-testkit --test users"
        );
        return std::process::ExitCode::FAILURE;
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let mut failed = 0;
    let mut ran = 0;
    let more: [Case; 2] = [
        ("moves_that_are_cut_off", crashes::moves_that_are_cut_off),
        ("random_trees", random::random_trees),
    ];
    for (name, case) in cases::ALL.iter().chain(&more) {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        ran += 1;
        let result = std::panic::catch_unwind(case);
        println!(
            "test {name} ... {}",
            if result.is_ok() { "ok" } else { "FAILED" }
        );
        failed += u32::from(result.is_err());
    }
    println!("{ran} run, {failed} failed");
    std::process::ExitCode::from(u8::from(failed != 0))
}
