//! Large files of other users: they need no room of their own where their writer has ended, and no class
//! where there is no room.

use super::cheap::status;
use super::world::{ANN, BOB, Session, World};
use arck_testkit::harness::Case;
use std::time::{Duration, Instant};

pub const ALL: &[Case] = &[
    (
        "a_large_file_of_who_has_ended_is_mapped_where_it_is",
        a_large_file_of_who_has_ended_is_mapped_where_it_is,
    ),
    (
        "a_large_file_that_there_is_no_room_to_move_is_read_in_large_pieces",
        a_large_file_that_there_is_no_room_to_move_is_read_in_large_pieces,
    ),
    (
        "a_large_file_is_moved_while_others_work",
        a_large_file_is_moved_while_others_work,
    ),
];

const POOL: u64 = 256 << 20;
/// More than is left beside it; not of whole pages.
const LARGE: usize = (150 << 20) + 1234;
/// What there is room to move.
const MEDIUM: usize = (60 << 20) + 1234;

/// Each word says where it is.
fn content(length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut content: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    content.truncate(length);
    content
}

fn make(ann: &Session, length: usize) {
    ann.put("/large", &content(length), 0o644);
}

/// Reads all of it, within a time that leaves a busy machine its own.
fn read(bob: &Session, length: usize) -> Duration {
    let began = Instant::now();
    let found = bob.get("/large").unwrap();
    let took = began.elapsed();
    eprintln!("{} MiB in {took:?}", length >> 20);
    assert!(found == content(length), "something else");
    assert!(took < Duration::from_secs(20), "{took:?}");
    took
}

/// 600 MiB that all may read, in a pool with 386 MiB free, were read at 0.9 MB in 12 s: each read tried
/// to move all of it, failed, and had 2,000 bytes in a message.
fn a_large_file_of_who_has_ended_is_mapped_where_it_is() {
    let world = World::new(POOL);
    world.as_user(ANN, |ann| make(ann, LARGE));
    let before = status(&world.pool()).pages_free;
    world.as_user(BOB, |bob| {
        read(bob, LARGE);
    });
    // It has not been copied, nor was there room for that.
    let after = status(&world.pool()).pages_free;
    assert!(
        before.abs_diff(after) < 4096,
        "{before} pages free, then {after}"
    );
    assert_eq!(world.violations(), "");
}

fn a_large_file_that_there_is_no_room_to_move_is_read_in_large_pieces() {
    let world = World::new(POOL);
    world.together(
        ANN,
        |ann, turns| {
            make(ann, LARGE);
            turns.next();
        },
        BOB,
        |bob, turns| {
            read(bob, LARGE);
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}

fn a_large_file_is_moved_while_others_work() {
    let world = World::new(POOL);
    world.together(
        ANN,
        |ann, turns| {
            make(ann, MEDIUM);
            turns.next();
        },
        BOB,
        |bob, turns| {
            let first = read(bob, MEDIUM);
            let again = read(bob, MEDIUM);
            eprintln!("{first:?}, then {again:?}");
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}
