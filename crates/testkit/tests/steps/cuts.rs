//! What it costs to cut the last page off a file: as much as is cut, however long the file is. What the controller looks
//! at, copies and journals when it folds that is counted, too.

use crate::traced;
use arck_libfs_kit::session::connect_socket;
use arck_protocol::measure::HandOvers;
use arck_protocol::socket::{Answer, Call, call};
use arck_testkit::{Shorthand, TestPool, connect};
use arckfs::FileSystem;
use std::path::Path;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Name, bytes, and whether only its first and last page are there.
const SHAPES: [(&str, u64, bool); 3] = [
    ("short", MIB, false),
    ("long", 512 * MIB, false),
    ("sparse", 4096 * MIB, true),
];

fn make(fs: &FileSystem, name: &str, size: u64, is_sparse: bool) {
    let file = fs.open_at_root(name, libc::O_RDWR | libc::O_CREAT);
    let file = file.expect("a file");
    let data = vec![7; MIB as usize];
    let write = |length: u64, at: u64| {
        let written = fs.write(file, &data[..length as usize], Some(at));
        assert_eq!(written, Ok(length as usize), "{name} at {at}");
    };
    match is_sparse {
        true => [0, size - PAGE].into_iter().for_each(|at| write(PAGE, at)),
        false => (0..size / MIB).for_each(|at| write(MIB, at * MIB)),
    }
    fs.close(file);
}

fn measured(pool: &Path) -> HandOvers {
    let socket = connect_socket(pool).expect("a controller");
    let answer = call(&socket, &Call::Measure { on: true });
    match answer.expect("an answer").0 {
        Answer::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// The session that cuts. It tells what the fold of the cut took.
pub fn cut(pool: &Path, name: &str, is_own: bool) {
    let fs = connect(pool);
    make(&fs, "warm", MIB, false);
    let (_, size, is_sparse) = SHAPES
        .into_iter()
        .find(|(shape, ..)| *shape == name)
        .unwrap();
    if is_own {
        make(&fs, name, size, is_sparse);
    } else {
        fs.fold(false).expect("a fold");
    }
    let open = |name| fs.open_at_root(name, libc::O_RDWR).expect("a file");
    let (warm, file) = (open("warm"), open(name));
    // It owns the file, and has its view.
    let written = fs.write(file, &[8], Some(0));
    assert_eq!(written, Ok(1));
    for pages in 1..4 {
        fs.truncate_handle(warm, MIB - pages * PAGE).expect("a cut");
    }
    if !is_own {
        fs.fold(false).expect("a fold");
    }
    traced::begin();
    let cut = fs.truncate_handle(file, size - PAGE);
    traced::end();
    cut.expect("a cut");
    measured(pool);
    fs.fold(false).expect("a fold");
    let fold = measured(pool);
    assert_eq!(fs.stat_handle(file).expect("a stat").size, size - PAGE);
    println!(
        "{} {} {} {}",
        fold.pages_read, fold.bytes_copied, fold.bytes_journaled, fold.records
    );
}

/// What a cut took.
#[derive(Clone, Copy, Debug)]
struct Cost {
    instructions: u64,
    /// Of the fold.
    pages_read: u64,
    bytes_copied: u64,
    bytes_journaled: u64,
    records: u64,
}

fn cost(pool: &Path, name: &str, whose: &str) -> Cost {
    let (instructions, told) = traced::count(&format!("cut {} {name} {whose}", pool.display()));
    let numbers: Vec<u64> = told
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let [pages_read, bytes_copied, bytes_journaled, records] = numbers[..] else {
        panic!("{told}");
    };
    let [instructions] = instructions[..] else {
        panic!("{instructions:?}");
    };
    Cost {
        instructions,
        pages_read,
        bytes_copied,
        bytes_journaled,
        records,
    }
}

pub fn a_cut_costs_what_it_cuts() {
    for whose in ["folded", "own"] {
        let pool = TestPool::new(1024 * MIB);
        if whose == "folded" {
            let fs = pool.session();
            for (name, size, is_sparse) in SHAPES {
                make(&fs, name, size, is_sparse);
            }
            fs.fold(true).expect("a fold");
            fs.disconnect().expect("the end");
        }
        let costs = SHAPES.map(|(name, ..)| (name, cost(&pool.path(), name, whose)));
        let (_, short) = costs[0];
        for (name, cost) in costs {
            println!("{name}, {whose}: {cost:?}");
        }
        for (name, cost) in &costs[1..] {
            let what = format!("{name}, {whose}: {cost:?}; short: {short:?}");
            assert!(short.instructions > 100 && short.pages_read > 0, "{what}");
            assert!(cost.instructions <= short.instructions + 1500, "{what}");
            if whose == "folded" {
                // The index is higher by a page or two.
                assert!(cost.pages_read <= short.pages_read + 8, "{what}");
                assert!(cost.bytes_journaled < 2 * short.bytes_journaled, "{what}");
                assert!(cost.bytes_copied <= 2 * short.bytes_copied, "{what}");
                assert_eq!(cost.records, short.records, "{what}");
            }
        }
        assert_eq!(pool.violations(), "");
    }
}
