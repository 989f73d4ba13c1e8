//! Workloads of KVFS: values set and keys taken away, alone and in batches, before and after what ArckFS does
//! to the same files, folded in between or not, and by a second session.
//!
//! What a crash may leave of them is stricter than of writes: [`model::check`](super::model::check) knows a
//! value that is set as another inode, so what is found is as before in all, or as after in all.

use super::model::{Operation as O, Value};
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

/// What KVFS does.
fn operations() -> Vec<O> {
    vec![
        O::Values(&[("f", Some((100, 21)))]),
        O::Values(&[("f", Some((9000, 22)))]),
        O::Values(&[("f", Some((0, 23)))]),
        O::Values(&[("n", Some((5000, 24)))]),
        O::Values(&[("n", Some((32_768, 25)))]),
        O::Values(&[("d/x", Some((4096, 26)))]),
        O::Values(&[("f", None)]),
        O::Values(&[("n", None)]),
        O::Values(&[("d/x", None)]),
        O::Values(&[("f", Some((5000, 27))), ("n", Some((10, 28))), ("g", None)]),
        O::Values(&[("d/n", Some((10_000, 29))), ("d/x", Some((1, 30)))]),
        O::Values(&MANY),
    ]
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
pub fn single() -> Vec<Workload> {
    let is_possible = |one: &O| applies(&base(), one);
    let alone = |one| workload(vec![(Who::First, one), (Who::First, O::Commit(false))], 0);
    let ours = operations().into_iter();
    ours.filter(is_possible).map(alone).collect()
}

/// Values whose records come behind others, by which the directory's branch and its page are there and durable
/// already: nothing but their own fences stands between them and their names.
pub fn chains() -> Vec<Workload> {
    let chains = [
        vec![
            O::Values(&[("f", Some((100, 33)))]),
            O::Values(&[("n", Some((9000, 34)))]),
            O::Values(&[("f", Some((9000, 35)))]),
            O::Values(&[("n", None)]),
            O::Values(&[("n", Some((10, 36)))]),
        ],
        vec![
            O::Values(&[("f", Some((100, 37))), ("n", Some((9000, 38)))]),
            O::Values(&[("f", Some((9000, 39))), ("n", Some((0, 40)))]),
            O::Values(&[("f", None), ("n", Some((50, 41)))]),
        ],
    ];
    let of_first = |chain: Vec<O>| chain.into_iter().map(|one| (Who::First, one)).collect();
    let chains = chains.into_iter();
    chains.map(|chain| chain_of(of_first(chain), 0)).collect()
}

/// Each pair of which one is KVFS's, with a fold in between and without, and with the second by another session.
pub fn pairs() -> Vec<Workload> {
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
