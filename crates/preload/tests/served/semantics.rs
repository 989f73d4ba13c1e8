//! Calls one by one, each error of the manual pages: a program prints the result of everything
//! it does on a directory of tmpfs, and on a pool.

use crate::support::{compare_with_tmpfs, compile};
use std::process::Command;

fn same(name: &str) {
    let binary = compile(name);
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn renames() {
    same("renames");
}

#[test]
fn transfers() {
    same("transfers");
}

#[test]
fn addresses() {
    same("addresses");
}

#[test]
fn opening() {
    same("opening");
}
