//! Tests with a `main` of their own: those that become other users, or start their program again.
//!
//! # Invariant
//! Tests run one after another on the main thread, so that each may fork while there is no other.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// A test: its name, and what it does. It fails by a panic.
pub type Case = (&'static str, fn());

/// Runs those that the command line asks for, with the options of Rust's own harness.
pub fn run(tests: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// A test as the harness has it.
pub fn trial(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// Like [`run`], for tests that become other users: fails, and says how, where that is not allowed.
pub fn run_as_root(tests: Vec<Trial>) -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "these tests become other users, which only root can; run them by: sudo -E cargo test -p \
             arck-testkit"
        );
        return ExitCode::FAILURE;
    }
    run(tests)
}
