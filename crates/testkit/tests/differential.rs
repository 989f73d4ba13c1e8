//! Random sequences on ArckFS and on tmpfs have to tell the same and leave the same.
//!
//! `ARCK_DIFFERENTIAL_OPERATIONS` = steps altogether (100,000); `ARCK_DIFFERENTIAL_SEED` = first
//! seed; a failure prints its seed and the shortest sequence that shows it.

use arck_testkit::differential::{Settings, check};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Runs sequences until so many steps are done; gives up after a few failures.
fn check_all(first_seed: u64, share: u64, settings: Settings) {
    let steps = number("ARCK_DIFFERENTIAL_OPERATIONS", 100_000) * share / 100;
    let first = number("ARCK_DIFFERENTIAL_SEED", first_seed);
    let mut failures = Vec::new();
    for seed in first..first + steps.div_ceil(settings.length as u64) {
        if let Err(text) = check(seed, settings) {
            eprintln!("{text}");
            failures.push(seed);
        }
        if failures.len() >= number("ARCK_DIFFERENTIAL_FAILURES", 1) as usize {
            break;
        }
    }
    assert!(failures.is_empty(), "seeds that failed: {failures:?}");
}

const POOL: u64 = 64 << 20;

#[test]
fn short_sequences_with_restarts_and_kills() {
    check_all(
        1,
        50,
        Settings {
            pool: POOL,
            length: 400,
            crashes: true,
        },
    );
}

#[test]
fn long_sequences_without() {
    check_all(
        1_000_000,
        50,
        Settings {
            pool: POOL,
            length: 2500,
            crashes: false,
        },
    );
}
