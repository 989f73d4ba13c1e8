//! Workloads of values, which each LibFS sets in its way: set and taken away, alone and several of one directory;
//! and of KVFS's beside files: before and after what ArckFS does to the same files, folded in between or not, and by a
//! second session.
//!
//! What a crash may leave of them is stricter than of writes: [`checking`](super::checking) knows a
//! value that is set as another inode, so what is found is as before in all, or as after in all.

use super::model::{Operation as O, Sets, Value};
use super::recording::{Who, Workload};
use super::workloads::{after, applies, base, chain_of, workload};
use std::sync::LazyLock;

/// Keys of a batch whose records take more than one page, with values of no bytes, one page and two.
static MANY: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let key = |number: u8| -> &'static str { Box::leak(format!("k{number:02}").into_boxed_str()) };
    (0..40)
        .map(|number| (key(number), Some((usize::from(number % 3) * 2100, number))))
        .chain([("g", None)])
        .collect()
});

/// A batch of KVFS's.
pub fn in_batches(changes: &'static [Value]) -> Vec<O> {
    vec![O::Values(changes)]
}

/// One after the other by a LibFS of files: each is written under another name, and renamed.
pub fn by_files(changes: &'static [Value]) -> Vec<O> {
    let change = |&(path, value): &Value| match value {
        None => vec![O::Unlink(path)],
        Some((0, _)) => vec![O::Create(ASIDE), O::Rename(ASIDE, path)],
        Some((length, fill)) => vec![
            O::Create(ASIDE),
            O::Write(ASIDE, 0, length, fill),
            O::Rename(ASIDE, path),
        ],
    };
    changes.iter().flat_map(change).collect()
}

/// Where a value is on its way: in another directory than most, so that the rename is of two.
const ASIDE: &str = "e/aside";

/// What is set and taken away.
fn changes() -> Vec<&'static [Value]> {
    vec![
        &[("f", Some((100, 21)))],
        &[("f", Some((9000, 22)))],
        &[("f", Some((0, 23)))],
        &[("n", Some((5000, 24)))],
        &[("n", Some((32_768, 25)))],
        &[("d/x", Some((4096, 26)))],
        &[("f", None)],
        &[("n", None)],
        &[("d/x", None)],
        &[("f", Some((5000, 27))), ("n", Some((10, 28))), ("g", None)],
        &[("d/n", Some((10_000, 29))), ("d/x", Some((1, 30)))],
        &MANY,
    ]
}

/// What KVFS does.
fn operations() -> Vec<O> {
    changes().into_iter().flat_map(in_batches).collect()
}

/// What ArckFS does before or after it.
fn others() -> Vec<O> {
    vec![
        O::Write("f", 100, 5000, 31),
        O::Write("n", 0, 5000, 32),
        O::Truncate("f", 50),
        O::Unlink("f"),
        O::Link("f", "h"),
        O::Rename("f", "g"),
        O::Rename("n", "f"),
        O::ChangeMode("f", 0o600),
        O::Commit(false),
        O::Commit(true),
    ]
}

/// Each alone, and folded.
pub fn single(sets: Sets) -> Vec<Workload> {
    let is_possible = |changes: &&'static [Value]| applies(&base(), &O::Values(changes));
    // What takes a page of records is in it without many names too, where each is several operations.
    let is_short = |changes: &&'static [Value]| sets(changes).len() <= 10;
    let all = changes().into_iter().filter(is_possible).filter(is_short);
    let of_first = |one| (Who::First, one);
    let alone = |changes| sets(changes).into_iter().map(of_first).collect();
    all.map(|changes| chain_of(alone(changes), 0)).collect()
}

/// Values whose records come behind others, by which the directory's branch and its page are there and durable
/// already: nothing but their own fences stands between them and their names.
pub fn chains(sets: Sets) -> Vec<Workload> {
    let chains: [&[&'static [Value]]; 2] = [
        &[
            &[("f", Some((100, 33)))],
            &[("n", Some((9000, 34)))],
            &[("f", Some((9000, 35)))],
            &[("n", None)],
            &[("n", Some((10, 36)))],
        ],
        &[
            &[("f", Some((100, 37))), ("n", Some((9000, 38)))],
            &[("f", Some((9000, 39))), ("n", Some((0, 40)))],
            &[("f", None), ("n", Some((50, 41)))],
        ],
    ];
    let chain = |chain: &[&'static [Value]]| {
        let steps = chain.iter().flat_map(|changes| sets(changes));
        chain_of(steps.map(|one| (Who::First, one)).collect(), 0)
    };
    chains.into_iter().map(chain).collect()
}

/// Each pair of which one is KVFS's, with a fold in between and without, and with the second by another session.
pub fn pairs(_: Sets) -> Vec<Workload> {
    let (ours, mut any) = (operations(), operations());
    any.extend(others());
    let mut found = Vec::new();
    let commit = || (Who::First, O::Commit(false));
    for (place, first) in any.iter().enumerate() {
        let Some(between) = after(&base(), first) else {
            continue;
        };
        for (other, second) in any.iter().enumerate() {
            let is_ours = place < ours.len() || other < ours.len();
            if !is_ours || !applies(&between, second) {
                continue;
            }
            let (first, second) = ((Who::First, first.clone()), second.clone());
            let last = (Who::First, second.clone());
            found.push(workload(vec![first.clone(), last.clone(), commit()], 1));
            found.push(workload(vec![first.clone(), commit(), last], 2));
            found.push(workload(vec![first, (Who::Second, second)], 1));
        }
    }
    found
}
