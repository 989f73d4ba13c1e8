//! What is told of the places whose flushes, fences and streaming stores were left out.

use std::collections::BTreeMap;

/// Places that nobody notices, by what is left out, file and part of the line, and why they are
/// there all the same. Those under "not shown" are open: no workload shows that they are needed, and
/// nothing shows that they are not.
const KNOWN: &[(&str, &str, &str, &str)] = &[
    (
        "Flush",
        "arckfs/src/write.rs",
        "Some(branch.flush()?)",
        "for a thread that finds a branch which another began and has not fenced: one thread has none such",
    ),
    (
        "Flush",
        "arckfs/src/write/step.rs",
        "stream_zeroes(end, whole - end)",
        "its first line is flushed by the data that ends in it too",
    ),
    (
        "Flush",
        "arckfs/src/write/step.rs",
        "self.branch.flush_line_0()?",
        "the line is flushed with size or times as well, unless both were stored in this clock tick",
    ),
    (
        "Flush",
        "libfs-kit/src/delta/entries.rs",
        "branch.set(offset::ROOT",
        "the same",
    ),
    (
        "Flush",
        "libfs-kit/src/delta.rs",
        ".flush()",
        "line 1 of a branch that ends, and a partner named already: see the fences of both",
    ),
    (
        "Flush",
        "arckfs/src/space.rs",
        "branch.flush_line_0()?",
        "there for the proof that entries ask for; punching is rare",
    ),
    (
        "Fence",
        "arckfs/src/names.rs",
        "order::fence((partner, begun))",
        "partners count for folds of single inodes by a living controller; recovery folds all",
    ),
    (
        "Fence",
        "arckfs/src/names.rs",
        "order::fence((branch.flush_line_0()?, begun, partner))",
        "the same",
    ),
    (
        "Fence",
        "arckfs/src/names.rs",
        "order::fence((one, other,",
        "the same",
    ),
    (
        "Flush",
        "controller/src/arena.rs",
        "table.flush(offset, 8)",
        "words of one line of the session table: another flush of it follows before anything depends on it",
    ),
    (
        "Flush",
        "controller/src/arena.rs",
        "table.flush(offset, bytes.len())",
        "user and groups of the session: in the tests root, who is all zeroes",
    ),
    (
        "Fence",
        "controller/src/arena.rs",
        "arck_pm::fence()",
        "entries of places that were empty, and of sessions that own nothing any more",
    ),
    (
        "Fence",
        "arckfs/src/births.rs",
        "Branch::at(self.session, slot)?.end()?",
        "not shown: a branch of an unborn inode without a name is not looked at by recovery",
    ),
    (
        "Fence",
        "arckfs/src/space.rs",
        "order::fence(stored)",
        "not shown: pages that are used again hold zeroes where the workloads look",
    ),
    (
        "Fence",
        "arckfs/src/write.rs",
        "order::fence(step.publish_entries(&data)?)",
        "not shown: the entries and the size of a growing truncation",
    ),
    (
        "Fence",
        "arckfs/src/write.rs",
        "order::fence(begun)",
        "not shown: the same",
    ),
    (
        "Flush",
        "controller/src/change/commit.rs",
        "memory.flush(at, length as usize)",
        "zeroes what moved and is in nobody's use: secrecy, not recovery",
    ),
    (
        "Flush",
        "controller/src/recovery.rs",
        ".flush(offset as usize, bytes.len())",
        "not shown: recovery is not crashed in this part of the test",
    ),
    (
        "Sync",
        "controller/src/classes.rs",
        "",
        "a class that is lost is nobody's: what has it is read by asking",
    ),
];

/// The line of a place, as `Flush(testkit/src/lib.rs:1:1)` tells it.
fn line_of(place: &str) -> Option<(String, String, String)> {
    let (kind, rest) = place.split_once('(')?;
    let mut parts = rest.trim_end_matches(')').split(':');
    let (file, line) = (parts.next()?, parts.next()?.parse::<usize>().ok()?);
    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().nth(line.checked_sub(1)?)?;
    Some((kind.into(), file.into(), line.trim().into()))
}

/// Why nobody notices a place, if that is known.
fn reason(place: &str) -> Option<&'static str> {
    let (kind, file, line) = line_of(place)?;
    KNOWN
        .iter()
        .find(|known| known.0 == kind && known.1 == file && line.contains(known.2))
        .map(|known| known.3)
}

/// Prints the table; gives what nobody noticed and should have.
pub fn report(places: &BTreeMap<String, Option<String>>) -> Vec<String> {
    let mut failures = Vec::new();
    let mut noticed = 0;
    for (place, by) in places {
        match (by, reason(place)) {
            (Some(by), _) => {
                noticed += 1;
                println!("{place:<60} noticed by {by}");
            }
            (None, Some(reason)) => println!("{place:<60} not noticed: {reason}"),
            (None, None) => {
                println!("{place:<60} NOT NOTICED");
                failures.push(format!("{place} can be left out and nobody notices"));
            }
        }
    }
    println!("{noticed} of {} places noticed", places.len());
    failures
}
