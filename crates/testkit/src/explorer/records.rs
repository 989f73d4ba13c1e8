//! Workloads of logs: records that are appended, alone and several together, within a page and over several, in a section that
//! goes on and in one that is made for them; cuts; before and after what ArckFS does to the same files, folded in between or not, and by a second
//! session.
//!
//! What a crash may leave of records is stricter than of appended bytes: [`checking`](super::checking) takes them
//! as a whole or not at all.

use super::model::{self, Operation as O, Sets};
use super::recording::{Who, Workload};
use super::workloads::applies;

/// The log, and the bytes from which on a section takes no more.
const LOG: &str = "w";
const LIMIT: u64 = 12_000;

/// What is there, folded, before each workload: a log with a last page that is not full.
fn setup() -> Vec<O> {
    vec![
        O::MakeLog(LOG, LIMIT),
        O::Records(LOG, &[(100, 1)]),
        O::Records(LOG, &[(5000, 2), (900, 3)]),
    ]
}

/// What is appended and cut off.
fn operations() -> Vec<O> {
    let records: [&'static [(usize, u8)]; 5] = [
        &[(64, 11)],
        &[(3000, 12)],
        &[(2000, 13), (1, 14), (700, 15)],
        &[(13_000, 16)],
        &[(40_000, 17), (4096, 18)],
    ];
    let records = records.into_iter().map(|records| O::Records(LOG, records));
    records.chain([O::CutLog(LOG)]).collect()
}

/// What ArckFS does before or after it.
fn others() -> Vec<O> {
    const FIRST: &str = "w/00000000000000000000";
    vec![
        O::Append(FIRST, 500, 21),
        O::Link(FIRST, "kept"),
        O::ChangeMode(FIRST, 0o600),
        O::Create("w/other"),
        O::Commit(false),
        O::Commit(true),
    ]
}

/// The workload of these steps, of which crashes are looked at from one on.
fn workload(steps: Vec<(Who, O)>, from: usize) -> Workload {
    let names: Vec<String> = steps
        .iter()
        .map(|(who, operation)| format!("{who:?}: {operation:?}"))
        .collect();
    Workload {
        name: names.join(", "),
        setup: setup(),
        steps,
        from,
    }
}

fn of_first(operations: impl IntoIterator<Item = O>) -> Vec<(Who, O)> {
    let steps = operations.into_iter();
    steps.map(|operation| (Who::First, operation)).collect()
}

/// Each alone, and folded.
pub fn single(_: Sets) -> Vec<Workload> {
    let alone = |operation| workload(of_first([operation, O::Commit(false)]), 0);
    operations().into_iter().map(alone).collect()
}

/// Records behind each other, by which the branch and the index are there and durable already: nothing but their own
/// fences stands between them and the size; and over several sections, which are then cut off.
pub fn chains(_: Sets) -> Vec<Workload> {
    let small: &[(usize, u8)] = &[(64, 31)];
    let page: &[(usize, u8)] = &[(4096, 32)];
    let large: &[(usize, u8)] = &[(12_100, 33)];
    let records = |records| O::Records(LOG, records);
    let chains = [
        vec![
            records(small),
            records(small),
            records(page),
            records(small),
        ],
        vec![records(page), records(page), records(page), records(small)],
        vec![
            records(large),
            records(large),
            records(small),
            O::CutLog(LOG),
        ],
        vec![
            records(large),
            records(large),
            O::Commit(true),
            O::CutLog(LOG),
            records(small),
        ],
    ];
    let chains = chains.into_iter();
    chains.map(|chain| workload(of_first(chain), 0)).collect()
}

/// Each pair of which one is the log's, with a fold in between and without, and with the second by another session.
pub fn pairs(_: Sets) -> Vec<Workload> {
    let mut base = model::empty();
    setup().iter().for_each(|operation| base.apply(operation));
    let (ours, mut any) = (operations(), operations());
    any.extend(others());
    let mut found = Vec::new();
    for (place, first) in any.iter().enumerate() {
        if !applies(&base, first) {
            continue;
        }
        let mut between = base.clone();
        between.apply(first);
        for (other, second) in any.iter().enumerate() {
            let is_ours = place < ours.len() || other < ours.len();
            if !is_ours || !applies(&between, second) {
                continue;
            }
            let (one, two) = (first.clone(), second.clone());
            found.push(workload(of_first([one, two, O::Commit(false)]), 1));
            let (one, two) = (first.clone(), second.clone());
            found.push(workload(of_first([one, O::Commit(false), two]), 2));
            let steps = vec![(Who::First, first.clone()), (Who::Second, second.clone())];
            found.push(workload(steps, 1));
        }
    }
    found
}
