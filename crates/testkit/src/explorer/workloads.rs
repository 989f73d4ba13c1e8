//! Which workloads there are: every operation alone, every ordered pair of them, with and without a
//! fold in between and with the second one made by another session, and triples drawn by a seed.
//!
//! # Invariant
//! An operation is in a workload only where the model says that it succeeds.

use super::model::{self, Operation as O, Sets};
use super::recording::{Who, Workload};
use super::spool::SPOOL;
use super::tree::Tree;
use crate::Random;
use arck_core_state::FileKind;
use std::sync::LazyLock;

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

/// Of a device that whoever runs this may make: others than root make none but that which stands for nothing.
fn device() -> u32 {
    match rustix::process::geteuid().is_root() {
        true => 0x0010_3103,
        false => 0,
    }
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
        O::Device("c", device()),
        O::Rename("c", "d/c"),
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
    let is_file = |path: &str| kind(tree, path) == Some(FileKind::File);
    let is_free = |path: &str| has_parent(tree, path) && kind(tree, path).is_none();
    match *operation {
        O::Create(path) | O::MakeDirectory(path) | O::Symlink(_, path) => is_free(path),
        O::Device(path, _) => is_free(path),
        O::Link(from, to) => is_file(from) && is_free(to),
        O::Hold(path) => is_file(path),
        O::LinkHeld(path, to) => tree.held.contains_key(path) && is_free(to),
        O::Unlink(path) => kind(tree, path).is_some_and(|kind| kind != FileKind::Directory),
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
        O::Mediate(path) => {
            matches!(kind(tree, path), Some(FileKind::Directory | FileKind::File))
        }
        O::Write(path, ..) | O::Tell(path, ..) | O::WriteMapped(path, ..) => is_file(path),
        O::Append(path, ..) | O::Truncate(path, _) | O::TellSize(path, _) => is_file(path),
        O::TellAllocate(path, ..) => is_file(path),
        O::Litter(path, _) => is_file(path),
        O::Allocate(path, ..) | O::SetTimes(path, ..) => is_file(path),
        O::ChangeMode(path, _) => kind(tree, path).is_some(),
        O::SetAttribute(path, ..) => {
            matches!(kind(tree, path), Some(FileKind::Directory | FileKind::File))
        }
        O::RemoveAttribute(path, name) => {
            is_file(path)
                && tree.nodes[&tree.paths[path]]
                    .attributes
                    .contains_key(name.as_bytes())
        }
        O::Commit(_) => true,
        O::MakeSpool => is_file(SPOOL),
        O::Queue(path, ..) | O::Queued(path, ..) | O::Replay(path) => {
            is_file(path) && is_file(SPOOL)
        }
        O::MakeLog(path, _) => is_free(path),
        O::Records(path, _) | O::CutLog(path) => is_file(&format!("{path}/.limit")),
        O::Values(changes) => changes.iter().all(|&(path, value)| match value {
            Some(_) => is_file(path) || is_free(path),
            None => is_file(path),
        }),
    }
}

pub(super) fn after(tree: &Tree, operation: &O) -> Option<Tree> {
    applies(tree, operation).then(|| {
        let mut tree = tree.clone();
        tree.apply(operation);
        tree
    })
}

pub(super) fn workload(steps: Vec<(Who, O)>, from: usize) -> Workload {
    let names: Vec<String> = steps
        .iter()
        .map(|(who, operation)| match who {
            Who::First => format!("{operation:?}"),
            Who::Second => format!("second session: {operation:?}"),
            Who::Beside => format!("beside what is sealed: {operation:?}"),
        })
        .collect();
    Workload {
        name: names.join(", ").replace("zzzzzzzz", ""),
        setup: setup(),
        steps,
        from,
    }
}

pub(super) fn base() -> Tree {
    let mut tree = model::empty();
    for operation in setup() {
        tree.apply(&operation);
    }
    tree
}

/// Every operation alone, and folded.
pub fn single(_: Sets) -> Vec<Workload> {
    let tree = base();
    let mut found = Vec::new();
    for operation in operations() {
        // What a new file is needed for begins with it.
        let mut steps = Vec::new();
        let mut tree = tree.clone();
        for maker in [
            O::Create("n"),
            O::MakeDirectory("m"),
            O::Device("c", device()),
        ] {
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
pub fn pairs(_: Sets) -> Vec<Workload> {
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

/// What is set free is used again at once: pages, numbers, places, the same names.
pub fn chains(_: Sets) -> Vec<Workload> {
    let chains = [
        vec![
            O::Append("f", 5000, 20),
            O::Truncate("f", 50),
            O::Append("g", 5000, 21),
        ],
        vec![
            O::Append("f", 5000, 20),
            O::Truncate("f", 0),
            O::Write("g", 0, 8192, 21),
        ],
        vec![
            O::Create("n"),
            O::Write("n", 0, 5000, 20),
            O::Unlink("n"),
            O::Create("q"),
            O::Write("q", 0, 5000, 21),
        ],
        vec![
            O::Create("n"),
            O::Write("n", 0, 5000, 20),
            O::Rename("g", "n"),
            O::Create("q"),
            O::Append("f", 5000, 21),
        ],
        vec![
            O::SetAttribute("f", "user.one", "1"),
            O::SetAttribute("f", "user.two", "2"),
            O::Append("g", 5000, 20),
            O::RemoveAttribute("f", "user.one"),
            O::Append("g", 5000, 21),
        ],
        vec![
            O::MakeDirectory("m"),
            O::Create("m/n"),
            O::Unlink("m/n"),
            O::RemoveDirectory("m"),
            O::MakeDirectory("m"),
            O::Create("m/n"),
        ],
        vec![
            O::Device("c", device()),
            O::Commit(false),
            O::Rename("c", "d/c"),
            O::ChangeMode("d/c", 0o644),
            O::Unlink("d/c"),
            O::Device("d/c", 0),
        ],
        vec![
            O::Symlink("d/x", "k"),
            O::Unlink("k"),
            O::Symlink("elsewhere", "k"),
            O::Append("g", 5000, 20),
        ],
        vec![
            O::Append("f", 9000, 20),
            O::Allocate(
                "f",
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                0,
                12288,
            ),
            O::Append("g", 9000, 21),
        ],
        vec![
            O::Truncate("f", 0),
            O::Commit(false),
            O::Append("g", 9000, 20),
            O::Append("f", 9000, 21),
        ],
        vec![
            O::Unlink("d/x"),
            O::Commit(false),
            O::Create("d/x"),
            O::Append("d/x", 9000, 20),
        ],
        vec![
            O::Write("f", 2_200_000, 50, 20),
            O::Write("f", 4_400_000, 50, 21),
            O::Truncate("f", 100),
            O::Write("f", 2_200_000, 50, 22),
        ],
        vec![
            O::Link("f", "d/h"),
            O::Unlink("f"),
            O::Rename("d/h", "e/h"),
            O::Link("e/h", "f"),
            O::Unlink("e/h"),
        ],
        vec![
            O::Rename("f", "d/r"),
            O::Rename("d/x", "f"),
            O::Rename("d/r", "e/x"),
            O::RemoveDirectory("d/s"),
        ],
        // What stood behind the end, or in a page before, is not seen again.
        vec![O::Litter("f", 20), O::Truncate("f", 20_000)],
        vec![O::Litter("f", 20), O::Append("f", 5000, 21)],
        vec![O::Litter("f", 20), O::Write("f", 40_000, 50, 21)],
        vec![O::Truncate("f", 50), O::Truncate("f", 20_000)],
        vec![
            O::Truncate("f", 50),
            O::Commit(false),
            O::Truncate("f", 20_000),
        ],
        vec![O::Truncate("f", 50), O::Append("f", 5000, 20)],
        vec![
            O::Truncate("f", 50),
            O::Commit(true),
            O::Write("f", 40_000, 50, 20),
        ],
        vec![
            O::Append("g", 9000, 20),
            O::Truncate("g", 0),
            O::Allocate("f", 0, 5000, 10_000),
        ],
        vec![
            O::Append("g", 9000, 20),
            O::Truncate("g", 0),
            O::Write("f", 40_000, 50, 21),
        ],
        vec![
            O::Append("g", 9000, 20),
            O::Truncate("g", 0),
            O::Create("n"),
            O::Append("n", 100, 21),
            O::Symlink("elsewhere", "k"),
            O::SetAttribute("n", "user.one", "1"),
        ],
        // Holes are filled in the clock tick of another change, with pages that were used before.
        [O::Write("f", 60_000, 50, 20), O::Commit(false)]
            .into_iter()
            .chain((1..5).flat_map(|index| {
                [
                    O::Append("g", 9000, 21),
                    O::Truncate("g", 0),
                    O::Write("f", 100, 200, 22 + index),
                    O::Write("f", 8192 * u64::from(index) + 2000, 50, 30),
                    O::Commit(false),
                ]
            }))
            .collect(),
        // Records in pages that are there already.
        vec![
            O::Create("d/n"),
            O::Create("n"),
            O::Rename("n", "d/r"),
            O::Create("m"),
            O::Link("f", "d/h"),
            O::Unlink("f"),
            O::Rename("m", "e/m"),
        ],
        vec![
            O::Create("d/n"),
            O::Create("e/n"),
            O::Create("n"),
            O::Write("n", 0, 100, 20),
            O::Link("n", "d/h"),
            O::Unlink("n"),
            O::Append("f", 100, 21),
            O::Unlink("f"),
            O::Rename("d/n", "e/m"),
            O::Rename("d/h", "d/x"),
        ],
        // Numbers of what was never committed are used again.
        [O::Create("m")]
            .into_iter()
            .chain((0..6).flat_map(|index| {
                [
                    O::Create("n"),
                    O::Write("n", 0, 5000, 20 + index),
                    O::ChangeMode("n", 0o600),
                    O::Unlink("n"),
                ]
            }))
            .chain([O::Create("n"), O::Append("n", 50, 30)])
            .collect(),
        // More records than one page of a delta holds.
        (0..3)
            .flat_map(|_| [O::Create("n"), O::Rename("n", long(0)), O::Unlink(long(0))])
            .chain((0..10).map(|index| O::Create(long(index))))
            .chain((0..10).map(|index| O::Unlink(long(index))))
            .collect(),
    ];
    chains
        .into_iter()
        .map(|chain| chain_of(chain.into_iter().map(|o| (Who::First, o)).collect(), 0))
        .collect()
}

/// Chains of many operations.
pub fn long_chains(_: Sets) -> Vec<Workload> {
    let mut found = Vec::new();
    // The number of one that was never committed is used again after some creations, and its branch begun
    // anew, of which a line may be lost.
    let of = |operation: O| (Who::First, operation);
    let mut reused: Vec<(Who, O)> = [
        O::Create("n"),
        O::Write("n", 0, 5000, 20),
        O::ChangeMode("n", 0o600),
        O::Unlink("n"),
    ]
    .map(of)
    .into();
    let from = reused.len();
    reused.extend((0..40).flat_map(|index| {
        let name = short(index);
        [of(O::Create(name)), of(O::Append(name, 50, 21))]
    }));
    found.push(chain_of(reused, from));
    // A page of the index for each: the arena has to grow. Looked at from shortly before. None is where a file is folded
    // ahead, which would give the pages back.
    let place = |index: u64| (index << 21) + 4096;
    let pages = (1..72).map(|index| (Who::First, O::Write("g", place(index), 50, 20)));
    found.push(chain_of(pages.collect(), 58));
    found
}

/// What a second session changes of files that the first has made: pages that are not its own are
/// copied, also where the delta's index is there already.
pub fn taken_over(_: Sets) -> Vec<Workload> {
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let chains = [
        vec![
            O::Write("d/x", 0, 200, 20),
            O::Write("d/x", 5000, 200, 21),
            O::Write("d/x", 8900, 50, 22),
        ],
        vec![O::Write("f", 0, 200, 20), O::Truncate("f", 20_000)],
        vec![O::Write("f", 0, 200, 20), O::Write("f", 40_000, 50, 21)],
        vec![O::Write("f", 0, 200, 20), O::Append("f", 100, 21)],
        vec![
            O::Write("d/x", 0, 200, 20),
            O::Allocate("d/x", punch, 4096, 4096),
            O::Allocate("d/x", 0, 0, 9000),
            O::Write("f", 0, 8192, 21),
        ],
        vec![
            O::Write("f", 40_000, 50, 20),
            O::Truncate("f", 5000),
            O::Allocate("f", 0, 5000, 30_000),
            O::Write("g", 0, 8192, 21),
        ],
    ];
    let mut found: Vec<Workload> = chains
        .into_iter()
        .map(|chain| chain_of(chain.into_iter().map(|o| (Who::Second, o)).collect(), 0))
        .collect();
    // What stood behind the end in a page that the other session has written.
    let growing = [
        O::Write("d/x", 0, 200, 20),
        O::Write("d/x", 5000, 200, 21),
        O::Truncate("d/x", 20_000),
    ];
    let cut = [O::Truncate("d/x", 8500), O::Commit(true)].map(|o| (Who::First, o));
    let growing = growing.map(|o| (Who::Second, o));
    let littered = [(Who::First, O::Litter("d/x", 22))];
    found.push(chain_of(
        littered.into_iter().chain(growing.clone()).collect(),
        1,
    ));
    found.push(chain_of(
        cut.into_iter().chain(growing.clone()).collect(),
        2,
    ));
    found.push(chain_of(growing.into(), 0));
    found
}

/// A session links what it has open of another one's, when that has removed its name, and none of it is folded until
/// one of them is: then the linker has to come first, or the file goes with its last name that is known. And then the
/// other way round.
pub fn crosswise(_: Sets) -> Vec<Workload> {
    use Who::{First, Second};
    let workload = |folds| {
        let mut steps = vec![
            (First, O::Commit(true)),
            (Second, O::Create("e/x")),
            (Second, O::Write("e/x", 0, 5000, 20)),
            (Second, O::Commit(true)),
            (First, O::Hold("e/x")),
            (Second, O::Unlink("e/x")),
        ];
        let from = steps.len();
        steps.push((First, O::LinkHeld("e/x", "d/y")));
        steps.push((folds, O::Commit(false)));
        steps.push((Second, O::Hold("d/x")));
        steps.push((First, O::Unlink("d/x")));
        steps.push((Second, O::LinkHeld("d/x", "e/z")));
        steps.push((folds, O::Commit(false)));
        chain_of(steps, from)
    };
    vec![workload(First), workload(Second)]
}

/// A workload of what is known to succeed, folded at its end.
pub(super) fn chain_of(mut steps: Vec<(Who, O)>, from: usize) -> Workload {
    let mut tree = base();
    for (_, operation) in &steps {
        assert!(applies(&tree, operation), "{operation:?} in {steps:?}");
        tree.apply(operation);
    }
    let last = steps.last().map_or(Who::First, |step| step.0);
    steps.push((last, O::Commit(false)));
    workload(steps, from)
}

fn short(index: usize) -> &'static str {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..40).map(|index| format!("b{index}")).collect());
    &NAMES[index]
}

/// A name of 255 bytes, which takes nine units of a record page.
fn long(index: usize) -> &'static str {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        (0..10)
            .map(|index| format!("{index}{}", "z".repeat(254)))
            .collect()
    });
    &NAMES[index]
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
                let who = if random.percent(20) {
                    Who::Second
                } else {
                    Who::First
                };
                steps.push((who, operation));
            }
        }
        if steps.len() == 3 {
            found.push(workload(steps, 0));
        }
    }
    found
}
