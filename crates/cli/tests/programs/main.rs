//! Programs that must work unmodified under `arck run`: each does its work on a directory of tmpfs,
//! on a pool, and on a pool with a session for each process (`--no-group`). What it prints, its exit status, and the
//! files that it leaves behind must be the same, those of the pool after a new start of the
//! controller; a check of the whole pool must find nothing.
//!
//!     scripts/test-apps               all programs, and a table of times
//!     scripts/test-apps git           those whose name has this in it
//!     ARCK_APPS_ROUNDS=3 scripts/test-apps      so many times each; times are medians
//!
//! A case is a script in `cases`; what stands in its first lines is explained in [`case`]. The trial
//! `sources` is of the script that fetches what some of them build.
//!
//! # Invariant
//! All forms see the same paths: what tmpfs held is moved away, and the pool is shown in its place.
//! So names stored in files are the same, and a call that gets past the library finds nothing there.

mod case;
mod sources;
#[path = "../cli/support.rs"]
#[allow(dead_code)]
mod support;
mod table;
mod tree;
mod work;

use case::Case;
use libtest_mimic::{Arguments, Trial};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use table::Row;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Times are measured.
    arguments.test_threads = Some(1);
    let rounds = std::env::var("ARCK_APPS_ROUNDS").map_or(1, |text| {
        text.parse()
            .ok()
            .filter(|rounds| *rounds > 0)
            .expect("ARCK_APPS_ROUNDS is a number")
    });
    let rows = Arc::new(Mutex::new(Vec::new()));
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cases");
    let mut trials: Vec<Trial> = Case::all(&directory)
        .into_iter()
        .map(|case| {
            let rows = rows.clone();
            Trial::test(case.name.clone(), move || {
                let mut row = Row::new(&case);
                let done = work::compare(&case, rounds, &mut row);
                row.ok = done.is_ok();
                rows.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(row);
                done.map_err(Into::into)
            })
        })
        .collect();
    trials.push(Trial::test("sources", || {
        sources::fetches_from_lists_of_both_forms().map_err(Into::into)
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
    if !rows.is_empty() {
        print!("{}", table::table(&rows, rounds));
    }
    conclusion.exit_code()
}
