//! What holds of every pool when a test is done with it whose programs are honest: the verifier has
//! refused nothing.
//!
//! # Invariant
//! * A test says nothing for this: what it makes its pool by asks at the pool's end. Tests of what is
//!   refused are the exception, and say so ([`crate::TestPool::has_refusals`] and the like).

use arck_controller::{VIOLATIONS_LOG, VIOLATIONS_LOG_OLD};
use std::path::Path;

/// What was refused on a pool, a line each.
pub fn refused(pool: &Path) -> String {
    [VIOLATIONS_LOG_OLD, VIOLATIONS_LOG]
        .map(|name| std::fs::read_to_string(pool.join(name)).unwrap_or_default())
        .concat()
}

/// Panics if anything was; says it, if the test is panicking already.
pub fn assert_nothing_refused(pool: &Path) {
    let refused = refused(pool);
    if refused.is_empty() {
        return;
    }
    let told = format!("the verifier refused changes of honest programs:\n{refused}");
    match std::thread::panicking() {
        true => eprintln!("{told}"),
        false => panic!("{told}"),
    }
}
