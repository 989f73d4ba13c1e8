//! Hand-over between sessions that are processes of their own: owners that are stopped, dead, inside
//! an operation for ever, or silent; files unlinked or cut that another session has open; advisory
//! locks; and that a reader sees at its next call what a writer has done.
//!
//!     cargo test -p arck-testkit --test hand_over [-- WORD...]
//!
//! runs the tests in whose name one of the words occurs. The other session is this program, started
//! again (`other`); the tests themselves are in `tests`.

mod other;
mod tests;

use std::time::Instant;

fn main() {
    if let Some(pool) = other::pool() {
        return other::main(&pool);
    }
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let chosen: Vec<_> = tests::ALL
        .iter()
        .filter(|(name, _)| is_wanted(name))
        .collect();
    println!("\nrunning {} tests", chosen.len());
    let started = Instant::now();
    let mut failed = 0;
    for (name, test) in &chosen {
        let result = match std::panic::catch_unwind(test) {
            Ok(()) => "ok",
            Err(_) => {
                failed += 1;
                "FAILED"
            }
        };
        println!("test {name} ... {result}");
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        chosen.len() - failed,
        started.elapsed().as_secs_f64()
    );
    if failed != 0 {
        std::process::exit(101);
    }
}
