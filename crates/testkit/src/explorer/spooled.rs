//! Workloads of queues with a spool: writes that are queued and not done, as a program leaves them that is killed; their replay; and
//! requests that are done.
//!
//! What a crash leaves is replayed before it is looked at ([`spool::replayed`](super::spool::replayed)), as whoever opens the spool next does
//! it. So the model has done a write as soon as it has been queued, and nothing that stands in the spool itself is compared.

use super::model::{Operation as O, Sets};
use super::recording::{Who, Workload};
use super::spool::SPOOL;

fn setup() -> Vec<O> {
    vec![
        O::Create("f"),
        O::Write("f", 0, 9000, 1),
        O::Create("g"),
        O::Write("g", 0, 30_000, 2),
        O::Create(SPOOL),
        O::MakeSpool,
    ]
}

fn workload(operations: Vec<O>, from: usize) -> Workload {
    let names: Vec<String> = operations.iter().map(|one| format!("{one:?}")).collect();
    let steps = operations.into_iter();
    Workload {
        name: names.join(", "),
        setup: setup(),
        steps: steps.map(|operation| (Who::First, operation)).collect(),
        from,
    }
}

/// One request each, within a page and over several, queued and done; and a spool that is made.
pub fn single(_: Sets) -> Vec<Workload> {
    let steps = [
        vec![O::Queue("f", 100, 200, 11), O::Commit(false)],
        vec![
            O::Queue("f", 4000, 5000, 12),
            O::Replay("f"),
            O::Commit(true),
        ],
        vec![O::Queued("f", Some(4000), 300, 13)],
        vec![O::Queued("f", None, 200, 14)],
        vec![O::Queued("f", None, 9000, 15), O::Commit(false)],
    ];
    let mut found: Vec<_> = steps.into_iter().map(|steps| workload(steps, 0)).collect();
    let mut made = workload(
        vec![
            O::Create(SPOOL),
            O::MakeSpool,
            O::Queue("f", 0, 100, 16),
            O::Replay("f"),
        ],
        0,
    );
    made.setup.truncate(4);
    found.push(made);
    found
}

/// Several that lie over each other, queued one after another and replayed; and so many that the ring comes round.
pub fn chains(_: Sets) -> Vec<Workload> {
    let around = (0..5).flat_map(|turn| {
        [
            O::Queue("g", 2000 * turn, 18_000, 30 + turn as u8),
            O::Replay("g"),
        ]
    });
    let around: Vec<_> = around.collect();
    let last = around.len() - 4;
    vec![
        workload(
            vec![
                O::Queue("f", 0, 6000, 21),
                O::Replay("f"),
                O::Queue("f", 50, 10, 22),
                O::Queued("f", Some(40), 100, 23),
                O::Queued("f", None, 64, 24),
                O::Queue("f", 8990, 70, 25),
                O::Replay("f"),
            ],
            0,
        ),
        workload(around, last),
    ]
}

/// Each request after each, and after and before what ArckFS does to the same files, folded in between or not, and by a second session.
pub fn pairs(_: Sets) -> Vec<Workload> {
    let ours = [
        O::Queue("f", 4000, 300, 41),
        O::Queued("f", Some(100), 5000, 42),
        O::Queued("f", None, 700, 43),
        O::Queue("g", 0, 20_000, 44),
    ];
    let others = [
        O::Append("g", 500, 45),
        O::Truncate("g", 25_000),
        O::ChangeMode("f", 0o600),
        O::Commit(true),
    ];
    let any: Vec<_> = ours.iter().chain(&others).cloned().collect();
    let mut found = Vec::new();
    for (place, first) in any.iter().enumerate() {
        for (other, second) in any.iter().enumerate() {
            if place >= ours.len() && other >= ours.len() {
                continue;
            }
            let (one, two) = (first.clone(), second.clone());
            found.push(workload(vec![one, two, O::Commit(false)], 1));
            let (one, two) = (first.clone(), second.clone());
            found.push(workload(vec![one, O::Commit(false), two], 2));
            let mut by_second = workload(vec![first.clone(), second.clone()], 1);
            by_second.steps[1].0 = Who::Second;
            by_second.name.push_str(", by a second session");
            found.push(by_second);
        }
    }
    found
}
