//! What a look-up of a path costs that was looked up a moment ago: it goes on from what is remembered of the path, also
//! where that is deeper than one entry has levels, or a name is longer than an entry has room for.

use crate::traced;
use arck_testkit::{Shorthand, TestPool, connect};
use arckfs::At;
use std::path::Path;

/// Directories above the file, as names with so many bytes each.
type Shape = (&'static str, &'static [usize]);

/// Levels of an entry of the path cache, and bytes of its names: 10, and fewer than 96.
const SHAPES: &[Shape] = &[
    ("five deep", &[2; 5]),
    ("nine deep", &[2; 9]),
    ("ten deep", &[2; 10]),
    ("eleven deep", &[2; 11]),
    ("twenty deep", &[2; 20]),
    ("thirty deep", &[2; 30]),
    ("95 bytes, the first", &[95, 2, 2, 2, 2]),
    ("96 bytes, the first", &[96, 2, 2, 2, 2]),
    ("97 bytes, the first", &[97, 2, 2, 2, 2]),
    ("255 bytes, the first", &[255, 2, 2, 2, 2]),
    ("95 bytes, in between", &[2, 2, 95, 2, 2]),
    ("96 bytes, in between", &[2, 2, 96, 2, 2]),
    ("97 bytes, in between", &[2, 2, 97, 2, 2]),
    ("255 bytes, in between", &[2, 2, 255, 2, 2]),
    ("95 bytes, the last", &[2, 2, 2, 2, 95]),
    ("96 bytes, the last", &[2, 2, 2, 2, 96]),
    ("255 bytes, the last", &[2, 2, 2, 2, 255]),
    (
        "255 bytes, nineteen above it",
        &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 255],
    ),
    (
        "255 bytes, nineteen below it",
        &[255, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
    ),
];

/// Instructions for each piece of a path after the first; what the debug assertions take is among them.
const A_PIECE: u64 = 3000;
/// Those for a name that no entry has room for, besides.
const A_LONG_NAME: u64 = 1000;
/// Those for each byte, which is looked for slashes, hashed, and compared.
const A_BYTE: u64 = 20;
/// Names and bytes that an entry has room for.
const NAMES: usize = 9;
const BYTES: usize = 95;

/// Pieces in which a path is remembered, and names that are in none.
fn pieces(lengths: &[usize]) -> (u64, u64) {
    let (mut pieces, mut long) = (0, 0);
    // Of the piece that goes on: its names and bytes.
    let mut open = (NAMES, 0);
    for &length in lengths {
        if length > BYTES {
            long += 1;
            open = (NAMES, 0);
        } else if open.0 < NAMES && open.1 + 1 + length <= BYTES {
            open = (open.0 + 1, open.1 + 1 + length);
        } else {
            pieces += 1;
            open = (1, length);
        }
    }
    (pieces, long)
}

fn names(place: usize, lengths: &[usize]) -> Vec<String> {
    let letter = char::from(b'a' + place as u8);
    let name = |&length: &usize| letter.to_string().repeat(length);
    lengths.iter().map(name).collect()
}

/// The session that looks up, each path once to remember it, once more, and then stepped through.
pub fn look_up(pool: &Path) {
    let fs = connect(pool);
    for (place, (what, lengths)) in SHAPES.iter().enumerate() {
        let path = format!("{}/file", names(place, lengths).join("/"));
        let look = || fs.stat(At::Root, path.as_bytes(), 0);
        for _ in 0..2 {
            look().unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
        }
        traced::begin();
        let found = look();
        traced::end();
        assert!(found.is_ok(), "{what}");
    }
}

pub fn warm_paths_cost_alike_however_deep_and_long() {
    let pool = TestPool::new(64 << 20);
    let fs = pool.session();
    for (place, (_, lengths)) in SHAPES.iter().enumerate() {
        let mut path = String::new();
        for name in names(place, lengths) {
            path.push_str(&name);
            let made = fs.make_directory(At::Root, path.as_bytes(), 0o755);
            made.expect("a directory");
            path.push('/');
        }
        path.push_str("file");
        let file = fs.open_at_root(&path, libc::O_CREAT | libc::O_RDWR);
        fs.close(file.expect("a file"));
    }
    fs.fold(true).expect("a fold");
    fs.disconnect().expect("the end");
    let (counts, _) = traced::count(&format!("paths {}", pool.path().display()));
    assert_eq!(counts.len(), SHAPES.len());
    let five = counts[0];
    assert!(five > 500, "{five} instructions");
    for ((what, lengths), &count) in SHAPES.iter().zip(&counts) {
        let (pieces, long) = pieces(lengths);
        let bytes: usize = lengths.iter().map(|length| length + 1).sum();
        let most =
            five + 500 + A_PIECE * (pieces + long - 1) + A_LONG_NAME * long + A_BYTE * bytes as u64;
        println!(
            "{what}: {count} instructions, {pieces} pieces, {long} long names, {most} at most"
        );
        assert!(
            count <= most,
            "{what}: {count} instructions, {most} at most"
        );
    }
}
