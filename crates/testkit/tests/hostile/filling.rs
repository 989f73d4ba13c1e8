//! Attacks that take memory of the pool's file system, by what a session was sent to write.
//!
//! # Invariant
//! * Where there are users, the pool lies in a file system of its own, of [`MEMORY`] bytes, so that
//!   half of it can be taken.

use super::attacker::{Attacker, said};
use super::exhausting::is_closed;
use super::holding::received;
use super::keeping::ARENA;
use super::process::{BOUND, Role};
use super::table::{Attack, Scene, case};
use arck_controller::{Event, read_log};
use arck_core_state::PAGE_SIZE;
use arck_core_state::arena::{ARENA_PAGES, ARENA_SPAN, DELTA_FIRST};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::Request;
use arck_protocol::socket::{Call, call};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Bytes of the file system that the pool lies in.
pub const MEMORY: u64 = 512 << 20;
/// What an attacker takes at once.
const TAKEN: u64 = 96 << 20;
/// More than the pool has when nobody has taken anything.
const POOL_MEMORY: u64 = 112 << 20;
const CLOSED: &str = "session closed";
const TAKEN_BACK: &str = "taken back";

/// A session of which a file outgrows what it may be.
fn outgrows(a: &Attacker, grow: impl FnOnce(&OwnedFd, &OwnedFd)) -> String {
    let (socket, files) = received(a);
    grow(&files[ARENA], &files[ARENA + 1]);
    assert!(is_closed(&socket));
    // Descriptors and maps of it are kept.
    std::mem::forget(files);
    CLOSED.into()
}

/// Takes memory in an arena and a segment of a session that has ended.
fn take_again(files: &[OwnedFd], size: u64) {
    // The last of the arena, which nobody grows so far. Both may be cut at the same time.
    for (file, at) in [
        (&files[ARENA], ARENA_SPAN - TAKEN),
        (&files[ARENA + 1], size),
    ] {
        match fallocate(file, FallocateFlags::KEEP_SIZE, at, TAKEN) {
            Ok(()) | Err(Errno::INTR | Errno::NOSPC) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}

/// It is logged, and what was taken is there for others again, soon.
fn given_back(scene: &mut Scene, _: &mut Role) {
    scene.memory_is_at_most(POOL_MEMORY);
    let (log, _) = read_log(&scene.pool()).expect("a log");
    let told = log
        .iter()
        .filter(|entry| matches!(entry.event, Event::Outgrown { .. }));
    assert!(told.count() > 0, "nothing in the log");
}

/// The same, again and again.
fn given_back_each_time(scene: &mut Scene, attacker: &mut Role) {
    for _ in 0..3 {
        given_back(scene, attacker);
        scene.third_works();
        assert_eq!(attacker.ask("again"), TAKEN_BACK);
    }
    given_back(scene, attacker);
}

impl Scene {
    /// The pool's files take no more than so many bytes, soon.
    fn memory_is_at_most(&self, bound: u64) {
        let started = Instant::now();
        loop {
            let bytes = taken(&self.pool());
            if bytes <= bound {
                return;
            }
            assert!(started.elapsed() < BOUND, "the pool takes {bytes} bytes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Bytes that all files of a directory take.
fn taken(directory: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(status) if status.is_dir() => taken(&entry.path()),
            Ok(status) => status.blocks() * 512,
            // Gone.
            Err(_) => 0,
        })
        .sum()
}

pub const ATTACKS: &[Attack] = &[
    case("fill", "makes a segment longer", CLOSED, |a| {
        let size = a.welcome.geometry.segment_size;
        outgrows(a, |_, segment| {
            ftruncate(segment, size + PAGE_SIZE).expect("its own segment");
        })
    })
    .and(given_back)
    .in_little_memory(),
    case(
        "fill",
        "allocates behind the end of a segment",
        CLOSED,
        |a| {
            let size = a.welcome.geometry.segment_size;
            outgrows(a, |_, segment| {
                let keep = FallocateFlags::KEEP_SIZE;
                fallocate(segment, keep, size, TAKEN).expect("its own segment");
            })
        },
    )
    .and(given_back)
    .in_little_memory(),
    case("fill", "makes its arena longer", CLOSED, |a| {
        outgrows(a, |arena, _| {
            ftruncate(arena, ARENA_SPAN + TAKEN).expect("its own arena");
        })
    })
    .and(given_back)
    .in_little_memory(),
    case(
        "fill",
        "stores where its arena is not allocated",
        CLOSED,
        |a| {
            outgrows(a, |arena, _| {
                let span = ARENA_SPAN as usize;
                let map = Mapping::new(arena, 0, span, MapOptions::READ_WRITE).expect("a map");
                // As stores do, but without a signal where it is cut before it is through.
                let _ = map.populate((ARENA_SPAN - TAKEN) as usize, TAKEN as usize);
            })
        },
    )
    .and(given_back)
    .in_little_memory(),
    case(
        "fill",
        "takes memory by what it keeps of an ended session",
        TAKEN_BACK,
        |a| {
            let size = a.welcome.geometry.segment_size;
            let (socket, files) = received(a);
            call(&socket, &Call::Goodbye).expect("an answer");
            take_again(&files, size);
            a.when_asked = Some(Box::new(move || {
                take_again(&files, size);
                TAKEN_BACK.into()
            }));
            TAKEN_BACK.into()
        },
    )
    .and(given_back_each_time)
    .in_little_memory(),
    case(
        "fill",
        "grows the arenas of one session after another, and keeps them",
        "ENOSPC",
        |a| {
            let mut kept = Vec::new();
            for _ in 0..64 {
                let session = Attacker::connect(&a.pool);
                let mut pages = 1024;
                let grow = |delta_pages| {
                    said(&session.ask(&Request::GrowArena {
                        branch_pages: 0,
                        delta_pages,
                    }))
                };
                while pages < (ARENA_PAGES - DELTA_FIRST) / 4 {
                    match grow(pages).as_str() {
                        "accepted" => pages *= 2,
                        // In the end, not even little.
                        other if pages == 1024 => {
                            std::mem::forget(kept);
                            return other.to_owned();
                        }
                        _ => break,
                    }
                }
                let arena = rustix::io::dup(&session.arena_file).expect("its own arena");
                kept.push(arena);
                session.end();
            }
            "never refused".into()
        },
    )
    .and(|scene, _| scene.memory_is_at_most(MEMORY * 3 / 4))
    .for_users()
    .in_little_memory(),
];
