//! What is told of the places whose flushes, fences and streaming stores were left out.

use std::collections::BTreeMap;

/// Prints the table; gives what nobody noticed and should have.
pub fn report(places: &BTreeMap<String, Option<String>>) -> Vec<String> {
    let mut failures = Vec::new();
    for (place, by) in places {
        match by {
            Some(by) => println!("{place:<60} noticed by {by}"),
            None => {
                println!("{place:<60} NOT NOTICED");
                failures.push(format!("{place} can be left out and nobody notices"));
            }
        }
    }
    failures
}
