//! Tables of calls, as in [`semantics`](crate::semantics): every form, flag and kind of file, on
//! a directory of tmpfs and on a pool.

use crate::support::{compare_with_tmpfs, compile};
use std::process::Command;

fn same(name: &str) {
    let binary = compile(name);
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn attributes() {
    same("attributes");
}

#[test]
fn locks() {
    same("locks");
}

#[test]
fn places() {
    same("places");
}

#[test]
fn locks_of_shared_descriptions() {
    same("shared_locks");
}
