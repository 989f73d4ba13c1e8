//! Workloads of what an owner does in directories that are sealed: the delta that a fold takes stands behind the one that grows meanwhile.
//!
//! # Invariant
//! An operation is in a workload only where the model says that it succeeds.

use super::model::{Operation as O, Sets};
use super::recording::{Who, Workload};
use super::workloads::{after, applies, base, workload};

/// What an owner does in a directory that is sealed, with the names that it finds there.
pub fn sealed(_: Sets) -> Vec<Workload> {
    let sealed = [
        vec![O::Rename("f", "r")],
        vec![O::Unlink("f")],
        // A directory of whose delta a partner is all is not sealed.
        vec![O::Rename("f", "d/r"), O::Unlink("l")],
        vec![O::Rename("d/x", "r"), O::Rename("d/s", "d/t")],
    ];
    let beside = [
        O::Create("b"),
        O::MakeDirectory("d/b"),
        O::Rename("r", "q"),
        O::Rename("r", "f"),
        O::Rename("d/r", "q"),
        O::Rename("r", "d/q"),
        O::Rename("g", "f"),
        O::Unlink("r"),
        O::Unlink("d/r"),
        O::Unlink("g"),
        O::Link("g", "h"),
        O::Rename("d/s", "d/u"),
    ];
    let mut found = Vec::new();
    for sealed in sealed {
        let steps: Vec<_> = sealed.into_iter().map(|o| (Who::First, o)).collect();
        let tree = steps
            .iter()
            .try_fold(base(), |tree, (_, o)| after(&tree, o));
        let tree = tree.expect("it applies");
        for one in beside.iter().filter(|one| applies(&tree, one)) {
            let mut steps = steps.clone();
            steps.push((Who::Beside, one.clone()));
            if matches!(one, O::Create(_)) {
                // Taken back, and the name given again.
                steps.push((Who::Beside, O::Unlink("b")));
                steps.push((Who::Beside, O::Rename("g", "b")));
            }
            // Behind it, and folded.
            steps.push((Who::First, O::Create("n")));
            steps.push((Who::First, O::Commit(false)));
            found.push(workload(steps, 0));
        }
        // Several, which depend on what is sealed and on each other; crashes are looked at from there on.
        for chain in beside_in_a_row() {
            let mut tree = tree.clone();
            let mut chained = steps.clone();
            for one in chain {
                if let Some(next) = after(&tree, &one) {
                    tree = next;
                    chained.push((Who::Beside, one));
                }
            }
            chained.push((Who::First, O::Commit(false)));
            found.push(workload(chained, steps.len()));
        }
    }
    found
}

/// Rows of what an owner does beside what is sealed: names that come, move within a directory and between two, of which
/// one is sealed or both are, go, and take others' places. What does not apply behind one seal does behind another.
fn beside_in_a_row() -> Vec<Vec<O>> {
    vec![
        // Within the directory.
        vec![
            O::Create("b"),
            O::Rename("b", "c2"),
            O::Rename("g", "b"),
            O::Rename("r", "b"),
            O::Unlink("c2"),
            O::Create("f"),
        ],
        // To the other one and back.
        vec![
            O::Create("b"),
            O::Rename("b", "d/b"),
            O::Rename("g", "d/q"),
            O::Rename("r", "d/b"),
            O::Rename("d/q", "g"),
            O::Rename("d/r", "q"),
            O::Rename("d/s", "d/u"),
        ],
        // Over what was renamed, and what is gone comes again.
        vec![
            O::Rename("g", "r"),
            O::Rename("g", "d/r"),
            O::Create("g"),
            O::Create("f"),
            O::Rename("f", "d/h2"),
            O::Rename("d/h2", "f"),
            O::Unlink("r"),
        ],
    ]
}
