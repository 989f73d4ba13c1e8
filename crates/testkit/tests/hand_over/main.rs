//! Hand-over between sessions that are processes of their own: owners that are stopped, dead, inside
//! an operation for ever, or silent; files unlinked or cut that another session has open; advisory
//! locks; owners that are stopped between the seal of a fold and its end, or anywhere (`stopped`); and that a reader sees at its next call what a writer has done.
//!
//!     cargo test -p arck-testkit --test hand_over [-- WORD]
//!
//! runs the tests in whose name the word occurs. The other session is this program, started
//! again (`other`); the tests themselves are in `tests`.

mod other;
mod stopped;
mod tests;

use arck_testkit::harness;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(pool) = other::pool() {
        other::main(&pool);
        return ExitCode::SUCCESS;
    }
    harness::run(
        tests::ALL
            .iter()
            .chain(stopped::ALL)
            .map(|&(name, test)| harness::trial(name, test))
            .collect(),
    )
}
