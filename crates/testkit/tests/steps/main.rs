//! What calls cost, counted and not timed: by single steps, an instruction each. No load of the machine changes it.
//!
//!     cargo test -p arck-testkit --test steps [-- WORD]
//!
//! The session that is stepped through is this program, started again (`traced`).

mod cuts;
mod paths;
mod traced;

use arck_testkit::harness;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Ok(what) = std::env::var(traced::WHAT) {
        let words: Vec<&str> = what.split(' ').collect();
        match words[..] {
            ["cut", pool, name, whose] => cuts::cut(Path::new(pool), name, whose == "own"),
            ["paths", pool] => paths::look_up(Path::new(pool)),
            _ => panic!("what is it to do? {what}"),
        }
        return ExitCode::SUCCESS;
    }
    harness::run(vec![
        harness::trial("a_cut_costs_what_it_cuts", cuts::a_cut_costs_what_it_cuts),
        harness::trial(
            "warm_paths_cost_alike_however_deep_and_long",
            paths::warm_paths_cost_alike_however_deep_and_long,
        ),
    ])
}
