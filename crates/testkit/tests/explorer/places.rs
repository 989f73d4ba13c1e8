//! What is told of the places whose flushes, fences and streaming stores were left out.

use std::collections::BTreeMap;

/// Places that nobody notices, though they are there: what is left out, file, function, line, and
/// why they are there all the same. An entry that is noticed after all fails the test.
const UNNOTICED: &[(&str, &str, &str, &str, &str)] = &[
    (
        "Flush",
        "libfs-kit/src/delta/beginning.rs",
        "of",
        "_ => Some(branch.flush()?),",
        "for a thread that finds a branch which another began and has not fenced; sessions have one \
         thread here",
    ),
    (
        "Flush",
        "libfs-kit/src/delta.rs",
        "add_partner",
        ".flush(),",
        "for a thread that finds a partner which another has named and not fenced: the same",
    ),
    (
        "Fence",
        "libfs-kit/src/names/changes.rs",
        "name_linker",
        "Ok(Named::by(&mut branch, partner.ok_or_else(full)?))",
        "for another thread that unlinks the other names, durably, while the record can be seen and is \
         not fenced; one thread has fenced record and partner before it goes on",
    ),
    (
        "Fence",
        "libfs-kit/src/names/changes.rs",
        "name_remover",
        "Ok(Named::by(&mut branch, partner.ok_or_else(full)?))",
        "the same: for another thread that changes the inode or the directory before the record is \
         fenced",
    ),
    (
        "Fence",
        "arckfs/src/data/write.rs",
        "drop_entries",
        "order::drain(cleared);",
        "for another thread that uses the pages, or makes the file grow, with fences of its own; the \
         same thread's next fence comes before either counts",
    ),
    (
        "Fence",
        "libfs-kit/src/views/uncommitted.rs",
        "end_branch",
        "Ok(Branch::at(self.session, slot)?.end()?)",
        "for another thread that uses the number or the pages; the same thread's next fence comes \
         before either counts",
    ),
    (
        "Flush",
        "arckfs/src/data/step.rs",
        "fresh",
        "self.add(bytes.stream_zeroes(0, within).ok_or(Errno::IO)?);",
        "of the word in which the zeroes end and the data begins: it is flushed with the data",
    ),
    (
        "Flush",
        "arckfs/src/data/step.rs",
        "fresh",
        "self.add(bytes.stream_zeroes(end, whole - end).ok_or(Errno::IO)?);",
        "of the word in which the data ends: the same",
    ),
    (
        "Stream",
        "arckfs/src/data/write.rs",
        "clear_tail",
        "let zeroes = bytes.stream_zeroes(within, PAGE_SIZE as usize - within);",
        "secrecy: zeroes what was cut off, behind the end, which what is recovered does not show",
    ),
    (
        "Flush",
        "arckfs/src/data/write.rs",
        "clear_tail",
        "let zeroes = bytes.stream_zeroes(within, PAGE_SIZE as usize - within);",
        "the same",
    ),
    (
        "Fence",
        "arckfs/src/data/write.rs",
        "clear_tail",
        "order::drain(zeroes.ok_or(Errno::IO)?);",
        "the same",
    ),
    (
        "Flush",
        "controller/src/state/change/commit.rs",
        "zero_moved",
        "zeroed = Some(dirty.flush().join_all(zeroed));",
        "secrecy: zeroes what moved and is in nobody's use; what is recovered does not show it",
    ),
    (
        "Fence",
        "controller/src/state/change/commit.rs",
        "zero_moved",
        "order::drain(zeroed);",
        "the same",
    ),
    (
        "Flush",
        "controller/src/access/leftovers.rs",
        "zero",
        "self.sessions.state.journal.await_fence(dirty.flush());",
        "secrecy, after a crash: the same",
    ),
    (
        "Fence",
        "controller/src/access/leftovers.rs",
        "clear_leftovers",
        "self.sessions.state.journal.make_durable();",
        "the same",
    ),
    (
        "Sync",
        "controller/src/state/classes/table.rs",
        "store",
        "record::file(|| FileChange::Synced {",
        "secrecy and reach: a class that is lost is nobody's, and what has it is read by asking",
    ),
];

/// Stores whose place among the stores to their line the code relies on. That others' is not noticed
/// says nothing: there is nothing to leave out, since every store has some place.
const ORDERED: &[(&str, &str, &str)] = &[
    (
        "libfs-kit/src/delta.rs",
        "begin",
        ".store_u64(index * 8, words[index], Ordering::Release)",
    ),
    (
        "libfs-kit/src/delta.rs",
        "cut",
        "self.branch.store(offset::SIZE, size)?;",
    ),
    (
        "libfs-kit/src/delta.rs",
        "cut",
        "self.branch.store(offset::LIMIT, limit)",
    ),
    (
        "arckfs/src/data/write.rs",
        "publish_growth",
        "let (committed, stamped) = order::fence(branch.set_size(line, end, reached)?);",
    ),
    (
        "libfs-kit/src/delta.rs",
        "put_first_page",
        "self.branch.store(offset::ROOT, root.0)?;",
    ),
];

/// Places that are noticed in most runs and not in all: a run has a few of the moments at which they count, by the hash
/// seeds of its pools and by how its processes share the work. As above; no run fails by them.
const SOMETIMES: &[(&str, &str, &str, &str, &str)] = &[
    (
        "Fence",
        "arckfs/src/data/own.rs",
        "own_step",
        "self.confirm_repeatable(&file, &expected, step.branch, entries)?;",
        "a map that is made writable: noticed where the machine stops between two of its steps",
    ),
    (
        "Fence",
        "libfs-kit/src/names/creations.rs",
        "store_number",
        "let branch = order::fence(branch);",
        "a device: noticed where its record reaches the memory and its branch does not",
    ),
];

/// A place in the source, told by what stands there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    what: String,
    file: String,
    function: String,
    /// The line, without what it begins and ends with that is blank.
    text: String,
}

/// What stands at a place, as `Flush(testkit/src/lib.rs:1:1)` tells it.
fn known(place: &str) -> Option<Known> {
    let (what, rest) = place.split_once('(')?;
    let mut parts = rest.trim_end_matches(')').split(':');
    let (file, line) = (parts.next()?, parts.next()?.parse::<usize>().ok()?);
    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).ok()?;
    let lines: Vec<&str> = text.lines().take(line).collect();
    let function = lines.iter().rev().find_map(|line| {
        let (before, after) = line.split_once("fn ")?;
        let is_head = before
            .split_whitespace()
            .all(|word| word.starts_with("pub") || word == "const" || word == "unsafe");
        is_head.then(|| after.split(['(', '<']).next().unwrap_or_default())
    });
    Some(Known {
        what: what.into(),
        file: file.into(),
        function: function.unwrap_or_default().into(),
        text: lines.last()?.trim().into(),
    })
}

/// Whether there is something to be noticed at a place: what is quickly done.
pub fn is_to_be_noticed(place: &str) -> bool {
    let is_listed = |known: Known| {
        let mut listed = UNNOTICED.iter().chain(SOMETIMES);
        listed.any(|entry| known.is((entry.0, entry.1, entry.2, entry.3)))
    };
    !place.starts_with("Order") && !known(place).is_some_and(is_listed)
}

impl Known {
    fn is(&self, (what, file, function, text): (&str, &str, &str, &str)) -> bool {
        (&*self.what, &*self.file, &*self.function, &*self.text) == (what, file, function, text)
    }
}

/// Whether something was noticed by nobody that should have been.
pub fn any_unexpected(places: &BTreeMap<String, Option<String>>) -> bool {
    let mut unnoticed = places.iter().filter(|(_, by)| by.is_none());
    unnoticed.any(|(place, _)| is_to_be_noticed(place))
}

/// Prints what nobody noticed; gives what somebody should have. `all`: all places were tried.
pub fn report(places: &BTreeMap<String, Option<String>>, all: bool) -> Vec<String> {
    let mut failures = Vec::new();
    let mut unnoticed = Vec::new();
    for (place, _) in places.iter().filter(|(_, by)| by.is_none()) {
        let Some(known) = known(place) else {
            failures.push(format!("{place} is not in the source"));
            continue;
        };
        let reason = UNNOTICED
            .iter()
            .chain(SOMETIMES)
            .find(|entry| known.is((entry.0, entry.1, entry.2, entry.3)));
        let is_order = known.what == "Order";
        match reason {
            Some(entry) => println!("{place:<60} not noticed: {}", entry.4),
            None if is_order => {}
            None => {
                println!("{place:<60} NOT NOTICED: {known:?}");
                failures.push(format!("{place} can be left out and nobody notices"));
            }
        }
        unnoticed.push(known);
    }
    for &(what, file, function, text, _) in UNNOTICED {
        if all
            && !unnoticed
                .iter()
                .any(|known| known.is((what, file, function, text)))
        {
            failures.push(format!(
                "{what} of `{text}` in {function} of {file} is noticed, or gone: it need not be listed"
            ));
        }
    }
    for &(file, function, text) in ORDERED {
        let is_noticed = places.iter().any(|(place, by)| {
            let is_it = || known(place).is_some_and(|k| k.is(("Order", file, function, text)));
            by.is_some() && is_it()
        });
        if all && !is_noticed {
            failures.push(format!(
                "that `{text}` in {function} of {file} comes behind other stores to its line \
                 is not noticed"
            ));
        }
    }
    for what in ["Flush", "Fence", "Stream", "Sync", "Order"] {
        let of_it = places.iter().filter(|(place, _)| place.starts_with(what));
        let (noticed, missed): (Vec<_>, Vec<_>) = of_it.partition(|(_, by)| by.is_some());
        let all = noticed.len() + missed.len();
        println!("{what}: {} of {all} places noticed", noticed.len());
    }
    failures
}
