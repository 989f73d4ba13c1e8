//! Which workloads there are: every operation alone, every ordered pair of them, with and without a
//! fold in between and with the second one made by another session, and triples drawn by a seed.
//!
//! # Invariant
//! An operation is in a workload only where the model says that it succeeds.

use super::model::{self, Operation as O};
use super::recording::{Who, Workload};
use super::tree::Tree;
use crate::Random;
use arck_core_state::FileKind;

/// What is there, folded, before each workload.
pub fn setup() -> Vec<O> {
    vec![
        O::MakeDirectory("d"),
        O::MakeDirectory("e"),
        O::MakeDirectory("d/s"),
        O::Create("f"),
        O::Write("f", 0, 6000, 1),
        O::Create("g"),
        O::Write("g", 0, 100, 2),
        O::Create("d/x"),
        O::Write("d/x", 0, 9000, 3),
        O::Create("a"),
        O::SetAttribute("a", "user.one", "1"),
        O::Symlink("f", "l"),
    ]
}

/// The operations, one of each way in which it can store.
pub fn operations() -> Vec<O> {
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    vec![
        O::Create("n"),
        O::Create("d/n"),
        O::MakeDirectory("m"),
        O::Link("f", "h"),
        O::Link("f", "d/h"),
        O::Symlink("d/x", "k"),
        O::Unlink("f"),
        O::Unlink("n"),
        O::Unlink("d/x"),
        O::RemoveDirectory("d/s"),
        O::RemoveDirectory("m"),
        O::Rename("f", "r"),
        O::Rename("n", "r"),
        O::Rename("f", "d/r"),
        O::Rename("n", "d/r"),
        O::Rename("f", "g"),
        O::Rename("g", "f"),
        O::Rename("n", "f"),
        O::Rename("f", "d/x"),
        O::Rename("d", "e/d"),
        O::Rename("e", "r"),
        O::Exchange("f", "g"),
        O::Exchange("f", "d/x"),
        O::Write("f", 100, 200, 4),
        O::Write("f", 4000, 300, 5),
        O::Write("f", 0, 8192, 6),
        O::Write("n", 0, 5000, 7),
        O::Append("f", 100, 8),
        O::Append("f", 5000, 9),
        O::Write("f", 40_000, 50, 10),
        O::Write("g", 2_200_000, 50, 11),
        O::Truncate("f", 50),
        O::Truncate("f", 4096),
        O::Truncate("f", 0),
        O::Truncate("f", 20_000),
        O::Allocate("f", 0, 5000, 10_000),
        O::Allocate("f", punch, 0, 4096),
        O::Allocate("f", libc::FALLOC_FL_ZERO_RANGE, 100, 5000),
        O::ChangeMode("f", 0o600),
        O::ChangeMode("d", 0o700),
        O::SetTimes("f", 1_000_000, 2_000_000),
        O::SetAttribute("f", "user.name", "value"),
        O::SetAttribute("a", "user.two", "2"),
        O::RemoveAttribute("a", "user.one"),
        O::Commit(false),
        O::Commit(true),
    ]
}

fn kind(tree: &Tree, path: &str) -> Option<FileKind> {
    FileKind::from_mode(tree.nodes[tree.paths.get(path)?].mode)
}

fn has_parent(tree: &Tree, path: &str) -> bool {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    kind(tree, parent) == Some(FileKind::Directory)
}

fn is_empty(tree: &Tree, path: &str) -> bool {
    let below = format!("{path}/");
    !tree.paths.keys().any(|other| other.starts_with(&below))
}

/// Whether an operation succeeds on a tree.
pub fn applies(tree: &Tree, operation: &O) -> bool {
    let is_file = |path| kind(tree, path) == Some(FileKind::File);
    let is_free = |path: &str| has_parent(tree, path) && kind(tree, path).is_none();
    match *operation {
        O::Create(path) | O::MakeDirectory(path) | O::Symlink(_, path) => is_free(path),
        O::Link(from, to) => is_file(from) && is_free(to),
        O::Unlink(path) => is_file(path),
        O::RemoveDirectory(path) => {
            kind(tree, path) == Some(FileKind::Directory) && is_empty(tree, path)
        }
        O::Rename(from, to) => {
            let is_inside = to.starts_with(&format!("{from}/"));
            let is_same = tree.paths.get(from) == tree.paths.get(to);
            let into_free = is_free(to) && kind(tree, from).is_some();
            !is_inside && !is_same && (into_free || (is_file(from) && is_file(to)))
        }
        O::Exchange(from, to) => {
            is_file(from) && is_file(to) && tree.paths.get(from) != tree.paths.get(to)
        }
        O::Write(path, ..) | O::Append(path, ..) | O::Truncate(path, _) => is_file(path),
        O::Allocate(path, ..) | O::SetTimes(path, ..) => is_file(path),
        O::ChangeMode(path, _) => kind(tree, path).is_some(),
        O::SetAttribute(path, ..) => is_file(path),
        O::RemoveAttribute(path, name) => {
            is_file(path)
                && tree.nodes[&tree.paths[path]]
                    .attributes
                    .contains_key(name.as_bytes())
        }
        O::Commit(_) => true,
    }
}

fn after(tree: &Tree, operation: &O) -> Option<Tree> {
    applies(tree, operation).then(|| {
        let mut tree = tree.clone();
        tree.apply(operation);
        tree
    })
}

fn workload(steps: Vec<(Who, O)>, from: usize) -> Workload {
    let names: Vec<String> = steps
        .iter()
        .map(|(who, operation)| match who {
            Who::First => format!("{operation:?}"),
            Who::Second => format!("second session: {operation:?}"),
        })
        .collect();
    Workload {
        name: names.join(", "),
        setup: setup(),
        steps,
        from,
    }
}

fn base() -> Tree {
    let mut tree = model::empty();
    for operation in setup() {
        tree.apply(&operation);
    }
    tree
}

/// Every operation alone, and folded.
pub fn single() -> Vec<Workload> {
    let tree = base();
    let mut found = Vec::new();
    for operation in operations() {
        // What a new file is needed for begins with it.
        let mut steps = Vec::new();
        let mut tree = tree.clone();
        for maker in [O::Create("n"), O::MakeDirectory("m")] {
            if !applies(&tree, &operation)
                && let Some(made) = after(&tree, &maker)
                && applies(&made, &operation)
            {
                steps.push((Who::First, maker));
                tree = made;
            }
        }
        if !applies(&tree, &operation) {
            continue;
        }
        let from = steps.len();
        steps.push((Who::First, operation));
        steps.push((Who::First, O::Commit(false)));
        found.push(workload(steps, from));
    }
    found
}

/// Every ordered pair: made one after the other, with a fold in between, and the second by a
/// second session.
pub fn pairs() -> Vec<Workload> {
    let base = base();
    let mut found = Vec::new();
    for first in operations() {
        let Some(tree) = after(&base, &first) else {
            continue;
        };
        for second in operations() {
            if !applies(&tree, &second) {
                continue;
            }
            let (one, other) = ((Who::First, first.clone()), (Who::First, second.clone()));
            let commit = (Who::First, O::Commit(false));
            found.push(workload(
                vec![one.clone(), other.clone(), commit.clone()],
                1,
            ));
            if !matches!(first, O::Commit(_)) && !matches!(second, O::Commit(_)) {
                found.push(workload(vec![one.clone(), commit, other], 1));
                found.push(workload(vec![one, (Who::Second, second)], 1));
            }
        }
    }
    found
}

/// Three operations drawn by a seed, each now and then by a second session, now and then folded.
pub fn triples(count: usize, seed: u64) -> Vec<Workload> {
    let base = base();
    let all = operations();
    let mut random = Random::new(seed);
    let mut found = Vec::new();
    while found.len() < count {
        let mut tree = base.clone();
        let mut steps = Vec::new();
        for _ in 0..3 {
            let operation = random.pick(&all).clone();
            if let Some(next) = after(&tree, &operation) {
                tree = next;
                let who = if random.percent(20) { Who::Second } else { Who::First };
                steps.push((who, operation));
            }
        }
        if steps.len() == 3 {
            found.push(workload(steps, 0));
        }
    }
    found
}
