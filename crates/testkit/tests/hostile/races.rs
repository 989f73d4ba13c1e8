//! Attacks on the time between look and use: what is stored changes while the controller copies it,
//! and goes away under those who read it.
//!
//! # Invariant
//! * Each attack says how many folds it must take, never how long.

use super::attacker::Attacker;
use super::table::{Attack, case};
use arck_core_state::branch::offset;
use arck_core_state::geometry::FILE_SIZE_MAX;
use arck_core_state::index::IndexRoot;
use arck_core_state::record::{RECORD_UNIT, RECORD_UNITS_MAX, Seed, effect};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::socket::{Answer, Call, call};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Folds in an attack that changes something all the time.
const FOLDS: usize = 2000;
const SPAN: u64 = arck_core_state::arena::ARENA_SPAN;

/// Stores one form and then the other over and over while `what` is done; the first stays.
fn flipping<T>(
    a: &Attacker,
    place: u64,
    forms: [&[u8]; 2],
    what: impl FnOnce(&Attacker) -> T,
) -> T {
    let mapping = a.arena_again();
    let over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Relaxed) {
                    for form in [forms[1], forms[0]] {
                        mapping
                            .bytes()
                            .copy_from(place as usize, form)
                            .expect("in the arena");
                    }
                }
            }
        });
        let done = what(a);
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Does something to the arena's file while `what` is done.
fn meanwhile<T>(a: &Attacker, act: fn(&OwnedFd), what: impl FnOnce(&Attacker) -> T) -> T {
    let file = rustix::io::dup(&a.arena_file).expect("a descriptor");
    let over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Relaxed) {
                    act(&file);
                }
            }
        });
        let done = what(a);
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Asks for a few folds of an inode while something changes; at least one of them must be
/// answered with what is to be expected of such a fold.
fn folds(a: &Attacker, number: InodeNumber, count: &mut usize) {
    for _ in 0..4 {
        *count += 1;
        match a.commit_of(number).as_str() {
            "accepted" => return,
            // A rule by name.
            rule if rule.starts_with('I') => {}
            // What was set aside after a grace period, on a slow machine.
            "ESTALE" => return,
            other => panic!("a fold: {other}"),
        }
    }
}

/// Some folds of an inode while a place in the arena turns from one form into the other, and some when
/// the first, good one stays.
fn flipping_folds(
    a: &Attacker,
    number: InodeNumber,
    at: u64,
    forms: [&[u8]; 2],
    count: &mut usize,
) {
    flipping(a, at, forms, |a| folds(a, number, count));
    folds(a, number, count);
}

/// Records of a new name in a directory in two forms, one good and one not, over and over.
fn records(a: &mut Attacker, bad: impl Fn(&mut arck_core_state::record::Record<'_>)) -> String {
    let mut count = 0;
    let mut round = 0u32;
    while count < FOLDS {
        round += 1;
        let directory = a.own("attacker/one");
        let good = format!("good-{round}");
        let place = a.creation_with(directory, good.as_bytes(), |_| {});
        let fold = a.header(directory).fold();
        let mut forms = [[0; RECORD_UNITS_MAX * RECORD_UNIT]; 2];
        let at = u64::from(place.unit) * RECORD_UNIT as u64;
        a.load(at, &mut forms[0][..2 * RECORD_UNIT]);
        let (first, second) = forms.split_at_mut(1);
        let seed = Seed {
            directory,
            fold,
            unit: place.unit,
        };
        let record = arck_core_state::record::Record::decode(seed, &first[0]);
        let mut record = record.expect("what was just stored");
        bad(&mut record);
        record.encode(seed, &mut second[0]).expect("room");
        let length = record.units().max(2) * RECORD_UNIT;
        let forms = [&forms[0][..length], &forms[1][..length]];
        flipping_folds(a, directory, at, forms, &mut count);
        for name in a.names(directory).keys() {
            assert!(name.starts_with(b"good-"), "a name {name:?}");
        }
    }
    "what was copied was checked".into()
}

/// A word of the branch of a file in two forms.
fn branch_words(
    a: &mut Attacker,
    place: u64,
    forms: [u64; 2],
    check: impl Fn(&Attacker, InodeNumber),
) -> String {
    let mut count = 0;
    while count < FOLDS {
        let file = a.own("attacker/second");
        a.edit_branch(file, |b| b.size = 4096);
        let at = a.slot_offset(file) + place;
        let [good, bad] = forms.map(u64::to_le_bytes);
        flipping_folds(a, file, at, [&good, &bad], &mut count);
        check(a, file);
    }
    "what was copied was checked".into()
}

/// Names in a directory of the attacker's, folded while `act` goes on with the arena's file.
fn under(a: &mut Attacker, act: fn(&OwnedFd)) -> String {
    let mut count = 0;
    let mut round = 0;
    while count < FOLDS / 4 {
        round += 1;
        let directory = a.own("attacker/one");
        let name = format!("good-{round}");
        a.creation_with(directory, name.as_bytes(), |_| {});
        meanwhile(a, act, |a| folds(a, directory, &mut count));
        ftruncate(&a.arena_file, SPAN).expect("its length again");
        folds(a, directory, &mut count);
    }
    "a copy that survives".into()
}

/// A segment of the attacker's, with its descriptor.
fn segment(a: &Attacker) -> (u32, OwnedFd) {
    let (answer, descriptors) = call(&a.socket, &Call::GrantSegment).expect("an answer");
    let Answer::Segments(segments) = answer else {
        panic!("{answer:?}");
    };
    let file = descriptors.into_iter().next().expect("a descriptor");
    (segments[0], file)
}

/// A file of the attacker's of two pages that lie in a segment of which it has the descriptor.
pub fn file_in_segment(a: &mut Attacker) -> OwnedFd {
    let (segment, descriptor) = segment(a);
    let first = a.welcome.geometry.first_page(segment).0 + 8;
    let file = a.own("attacker/file");
    for page in 0..2 {
        a.write(file, page, PagePtr(first + page));
    }
    assert_eq!(a.commit_of(file), "accepted");
    descriptor
}

/// For as long as the process lives.
fn for_ever(act: impl Fn() + Send + 'static) {
    std::thread::spawn(move || {
        loop {
            act();
        }
    });
}

/// A data page of the attacker's that changes all the time, and where.
fn restless_page(a: &mut Attacker, forms: [Vec<u8>; 2]) -> PagePtr {
    let (segment, descriptor) = segment(a);
    let size = a.welcome.geometry.segment_size as usize;
    let mapping = Mapping::new(&descriptor, 0, size, MapOptions::READ_WRITE).expect("a map");
    for_ever(move || {
        for form in &forms {
            mapping
                .bytes()
                .copy_from(8 * PAGE_SIZE as usize, form)
                .expect("in the segment");
        }
    });
    PagePtr(a.welcome.geometry.first_page(segment).0 + 8)
}

const COPIED: &str = "what was copied was checked";

pub const ATTACKS: &[Attack] = &[
    case(
        "race",
        "a name that turns into one with a slash",
        COPIED,
        |a| records(a, |r| r.name = b"bad/xx"),
    ),
    case("race", "a name that turns into ..", COPIED, |a| {
        records(a, |r| r.name = b"..")
    }),
    case("race", "a name that gets longer and shorter", COPIED, |a| {
        records(a, |r| r.name = &[b'/'; 200])
    }),
    case(
        "race",
        "a new file that turns into one of root's",
        COPIED,
        |a| {
            records(a, |r| (r.uid, r.mode, r.name) = (0, 0o4755, b"bad"));
            let directory = a.find("attacker/one");
            for number in a.names(directory).into_values() {
                let inode = a.inode(number);
                assert_eq!(
                    (inode.uid, inode.mode & 0o7777),
                    (rustix::process::geteuid().as_raw(), 0o644)
                );
            }
            COPIED.into()
        },
    )
    .for_users(),
    case(
        "race",
        "an inode number that turns into another's",
        COPIED,
        |a| {
            let free = a.free_number();
            records(a, |r| (r.inode, r.name) = (free, b"bad"))
        },
    ),
    case(
        "race",
        "an effect that turns into a removal of another's name",
        COPIED,
        |a| {
            let theirs = a.find("sticky/theirs");
            let generation = a.header(theirs).generation();
            for round in 0..FOLDS as u32 / 4 {
                let directory = a.own("sticky");
                let number = a.number();
                a.edit_branch(number, |b| b.parent = directory);
                let place = a.record_with(directory, (number, FileKind::File), b"good", |r| {
                    r.source = b"theirs";
                    if round > 0 {
                        // The name is there from the round before.
                        r.state = 0;
                        (r.inode, r.generation) = (theirs, generation);
                    }
                });
                let good = if round == 0 { effect::ADD } else { 0 };
                let forms = [good, good | effect::REMOVE_SOURCE].map(u32::to_le_bytes);
                let at = u64::from(place.unit) * RECORD_UNIT as u64 + 4;
                let mut count = 0;
                flipping_folds(a, directory, at, [&forms[0], &forms[1]], &mut count);
                assert!(a.names(directory).contains_key(&b"theirs"[..]));
            }
            COPIED.into()
        },
    )
    .for_users(),
    case(
        "race",
        "a page pointer that turns into a victim's page",
        COPIED,
        |a| {
            let own = a.data_page(1).expect("a page");
            let theirs = a.page_of(a.find("sticky/theirs"), 0);
            let page = a.allocate();
            let mut count = 0;
            while count < FOLDS {
                let file = a.own("attacker/second");
                a.scribble(page, 0, &own.0.to_le_bytes());
                a.edit_branch(file, |b| {
                    b.size = 4096;
                    b.root = IndexRoot::new(u64::from(page), 1);
                });
                let forms = [own.0.to_le_bytes(), theirs.0.to_le_bytes()];
                let at = u64::from(page) * PAGE_SIZE;
                flipping_folds(a, file, at, [&forms[0], &forms[1]], &mut count);
                let now = a.page_of(file, 0);
                assert!(now == own || now.is_null(), "page {now:?}");
            }
            COPIED.into()
        },
    ),
    case(
        "race",
        "an index pointer that turns into a loop",
        COPIED,
        |a| {
            let (page, mut count) = (a.allocate(), 0);
            while count < FOLDS {
                let file = a.own("attacker/second");
                a.edit_branch(file, |b| b.root = IndexRoot::new(u64::from(page), 2));
                let forms = [[0; 8], u64::from(page).to_le_bytes()];
                let at = u64::from(page) * PAGE_SIZE;
                flipping_folds(a, file, at, [&forms[0], &forms[1]], &mut count);
            }
            COPIED.into()
        },
    ),
    case(
        "race",
        "a chain of records that turns into a loop",
        COPIED,
        |a| {
            let mut count = 0;
            let mut round = 0;
            while count < FOLDS {
                round += 1;
                let directory = a.own("attacker/one");
                a.creation_with(directory, format!("good-{round}").as_bytes(), |_| {});
                let page = a.branch(directory).tails[0];
                let forms = [[0; 4], page.to_le_bytes()];
                let at = u64::from(page) * PAGE_SIZE + 4;
                flipping_folds(a, directory, at, [&forms[0], &forms[1]], &mut count);
            }
            COPIED.into()
        },
    ),
    case(
        "race",
        "a size that turns into one beyond all sizes",
        COPIED,
        |a| {
            branch_words(a, offset::SIZE, [4096, FILE_SIZE_MAX + 1], |a, file| {
                assert!(a.inode(file).size <= 4096);
            })
        },
    ),
    case(
        "race",
        "a mode that turns into one with a type",
        COPIED,
        |a| {
            branch_words(a, offset::MODE, [0o644, 0o120_777], |a, file| {
                assert_eq!(a.inode(file).mode, 0o100_644);
            })
        },
    ),
    case(
        "race",
        "a partner that turns into a victim's directory",
        COPIED,
        |a| {
            let (own, theirs) = (a.find("attacker/two"), a.find("victim"));
            let forms = [u64::from(own), u64::from(theirs)];
            branch_words(a, offset::PARTNERS, forms, |_, _| {})
        },
    ),
    case(
        "race",
        "truncates its arena while it is copied",
        "a copy that survives",
        |a| {
            under(a, |file| {
                for length in [0, SPAN] {
                    ftruncate(file, length).expect("a length");
                }
            })
        },
    ),
    case(
        "race",
        "punches its arena while it is copied",
        "a copy that survives",
        |a| {
            under(a, |file| {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, how, 0, SPAN).expect("a hole");
            })
        },
    ),
    case(
        "race",
        "truncates its segment under readers",
        "EIO for its own files",
        |a| {
            let descriptor = file_in_segment(a);
            ftruncate(&descriptor, 0).expect("nothing");
            "EIO for its own files".into()
        },
    )
    .and(|scene, _| assert_eq!(scene.reads("attacker/file"), "EIO")),
    case(
        "race",
        "truncates its segment over and over under readers",
        "EIO for its own files",
        |a| {
            let size = a.welcome.geometry.segment_size;
            let descriptor = file_in_segment(a);
            for_ever(move || {
                for length in [0, size] {
                    ftruncate(&descriptor, length).expect("a length");
                }
            });
            "EIO for its own files".into()
        },
    ),
    case(
        "race",
        "punches its segment under readers",
        "zeroes in its own files",
        |a| {
            let size = a.welcome.geometry.segment_size;
            let descriptor = file_in_segment(a);
            for_ever(move || {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&descriptor, how, 0, size).expect("a hole");
            });
            "zeroes in its own files".into()
        },
    )
    .and(|scene, _| assert_eq!(scene.reads("attacker/file"), "Some(0)")),
    case(
        "race",
        "leaves a truncated segment to the next of its user",
        "allocated anew",
        |a| {
            let other = Attacker::connect(&a.pool);
            let (left, descriptor) = segment(&other);
            ftruncate(&descriptor, 0).expect("nothing");
            drop((other, descriptor));
            // Others wait for the same: until the controller has noticed the end.
            loop {
                let (next, descriptor) = segment(a);
                if next == left {
                    let status = rustix::fs::fstat(&descriptor).expect("a status");
                    let (length, blocks) = (status.st_size as u64, status.st_blocks as u64 * 512);
                    let size = a.welcome.geometry.segment_size;
                    assert!(
                        length == size && blocks >= size,
                        "{length} bytes, {blocks} allocated"
                    );
                    return "allocated anew".into();
                }
            }
        },
    ),
    case(
        "race",
        "a symbolic link whose target changes while it is read",
        "read within bounds",
        |a| {
            let page = restless_page(a, [vec![b'/'; 4096], vec![b'x'; 4096]]);
            let directory = a.own("attacker");
            let number = a.number();
            a.edit_branch(number, |b| b.parent = directory);
            a.write_size(number, page, 4000);
            a.record_with(directory, (number, FileKind::Link), b"link", |r| {
                r.mode = 0o777
            });
            assert_eq!(a.commit_of(directory), "accepted");
            "read within bounds".into()
        },
    ),
    case(
        "race",
        "extended attributes that change while they are read",
        "read within bounds",
        |a| {
            let forms = [0xff, 1].map(|byte| vec![byte; 4096]);
            let page = restless_page(a, forms);
            let file = a.own("attacker/file");
            assert_eq!(a.forge(file, |b| b.attributes = page.0 as u32), "accepted");
            "read within bounds".into()
        },
    ),
];
