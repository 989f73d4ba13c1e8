//! Mediated files: what is written by messages, by whom, and how many of them there are.

use super::attacker::{Attacker, said};
use super::table::{Attack, case};
use super::world::ATTACKER_USER;
use arck_core_state::{FileKind, InodeNumber, Mediation};
use arck_protocol::control::{ATTACHED_MAX, map_entry};
use arck_protocol::message::{allocation, which};
use arck_protocol::socket::{Call, call};
use arck_protocol::{InodeList, Request, Response};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Who it is, where users are told apart.
const USER: u32 = ATTACKER_USER.0;
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(2);

fn write(inode: InodeNumber, generation: u32, position: u64, length: u32) -> Request {
    Request::WriteAttached {
        inode,
        generation,
        position,
        append: false,
        length,
    }
}

fn mediate(a: &Attacker, inode: InodeNumber, mediation: u32) -> String {
    said(&a.ask(&Request::SetMediation {
        inode,
        generation: a.header(inode).generation(),
        mediation,
    }))
}

/// A file of its own, which it has had mediated.
fn own_file(a: &Attacker) -> (InodeNumber, u32) {
    let file = a.find("attacker/file");
    assert_eq!(mediate(a, file, Mediation::On as u32), "accepted");
    (file, a.header(file).generation())
}

/// A directory of its own, which it has had mediated.
fn own_directory(a: &Attacker) -> (InodeNumber, u32) {
    let directory = a.find("attacker");
    assert_eq!(mediate(a, directory, Mediation::On as u32), "accepted");
    (directory, a.header(directory).generation())
}

fn make(directory: InodeNumber, generation: u32, name: &[u8], kind: u8, uid: u32) -> Request {
    Request::MakeName {
        directory,
        generation,
        name: name.to_vec(),
        kind,
        mode: u32::MAX,
        uid,
        gid: uid,
        size: 0,
        open: arck_protocol::control::NO_OPEN_PLACE,
        mark: 0,
    }
}

fn remove(directory: InodeNumber, generation: u32, name: &[u8]) -> Request {
    Request::RemoveName {
        directory,
        generation,
        name: name.to_vec(),
        is_directory: false,
    }
}

fn set(inode: InodeNumber, generation: u32, which: u32, mode: u32) -> Request {
    Request::SetAttributes {
        inode,
        generation,
        which,
        mode,
        accessed: u64::MAX,
        modified: 1 << 63,
    }
}

fn allocate(inode: InodeNumber, generation: u32, position: u64, length: u64, how: u8) -> Request {
    Request::Allocate {
        inode,
        generation,
        position,
        length,
        how,
    }
}

fn joined(told: impl IntoIterator<Item = String>) -> String {
    let told: BTreeSet<String> = told.into_iter().collect();
    told.into_iter().collect::<Vec<_>>().join(", ")
}

/// Segments that it is sent to write.
fn sent_to_write(a: &Attacker) -> Vec<std::fs::File> {
    let mut files = Vec::new();
    for segment in 0..a.welcome.geometry.segment_count {
        let segments = vec![segment];
        let sent = call(&a.socket, &Call::MapSegments { segments });
        let Ok((_, sent)) = sent else { continue };
        for file in sent {
            let flags = rustix::fs::fcntl_getfl(&file).expect("its flags");
            if flags.contains(rustix::fs::OFlags::RDWR) {
                files.push(std::fs::File::from(file));
            }
        }
    }
    files
}

fn together(inode: InodeNumber, generation: u32, first: u64, count: u64) -> Request {
    Request::MapTogether {
        inode,
        generation,
        first,
        count,
    }
}

pub const ATTACKS: &[Attack] = &[
    case(
        "mediated",
        "has others' files brought where it can write them",
        "EACCES, EINVAL, ESTALE",
        |a| {
            let mut told = vec![];
            for path in ["open/theirs", "open", "attacker"] {
                let inode = a.find(path);
                let generation = a.header(inode).generation();
                for (first, count) in [(0, 1), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 40, 7)] {
                    told.push(said(&a.ask(&together(inode, generation, first, count))));
                    let stale = generation.wrapping_add(1);
                    told.push(said(&a.ask(&together(inode, stale, first, count))));
                }
            }
            told.push(said(&a.ask(&together(0, 1, 0, 1))));
            told.push(said(&a.ask(&together(u32::MAX, 1, 0, 1))));
            joined(told)
        },
    )
    .for_users(),
    case(
        "mediated",
        "has a file of its own together, cuts off what it was sent to write, and has it written and given up",
        "a file that is cut off",
        |a| {
            let file = a.find("attacker/shown");
            let generation = a.header(file).generation();
            let control = a.control();
            control.header.maps.store(1, Ordering::SeqCst);
            let list = |writable| {
                let entry = map_entry(file, generation, writable);
                control.maps[0].store(entry, Ordering::SeqCst);
            };
            let requests = [
                write(file, generation, 5000, 100),
                together(file, generation, 0, 1 << 20),
                Request::Resize {
                    inode: file,
                    generation,
                    size: 3,
                },
                Request::Resize {
                    inode: file,
                    generation,
                    size: 99_999,
                },
                Request::Acquire {
                    inodes: InodeList::new(&[file]).expect("one"),
                },
            ];
            let mut sent = 0;
            for turn in 0..20 {
                let before = sent_to_write(a).len();
                let told = a.ask(&together(file, generation, 0, 1 << 20));
                list(true);
                let files = sent_to_write(a);
                // Besides its own, and those that it could not give up: of the first turn at least.
                sent += files.len().saturating_sub(before);
                assert!(turn != 0 || matches!(told, Response::Bytes(_)), "{told:?}");
                for segment in &files {
                    let status = segment.metadata().expect("its length");
                    segment.set_len(turn * 4096).expect("cut off");
                    if turn % 3 == 2 {
                        segment.set_len(status.len()).expect("longer");
                    }
                }
                for request in &requests {
                    let _ = a.ask(request);
                }
                list(false);
                for request in requests.iter().rev() {
                    let _ = a.ask(request);
                }
            }
            assert_ne!(sent, 0, "it was sent nothing to write");
            "a file that is cut off".to_string()
        },
    )
    .for_users(),
    case("mediated", "has another's file mediated", "EPERM", |a| {
        let theirs = a.find("open/theirs");
        joined([0, 1, 2].map(|mediation| mediate(a, theirs, mediation)))
    })
    .for_users(),
    case(
        "mediated",
        "writes by messages what it may not write",
        "EACCES",
        |a| {
            let theirs = a.find("open/theirs");
            let before = a.inode(theirs);
            let generation = a.header(theirs).generation();
            let told = [1, 4096, ATTACHED_MAX as u32]
                .map(|length| said(&a.ask(&write(theirs, generation, 0, length))));
            assert_eq!(a.inode(theirs), before);
            joined(told)
        },
    )
    .for_users(),
    case(
        "mediated",
        "sends messages that no LibFS sends",
        "EFBIG, EINVAL, EISDIR, ESTALE",
        |a| {
            let (file, generation) = own_file(a);
            let before = a.inode(file);
            let directory = a.find("attacker");
            let of_directory = a.header(directory).generation();
            let most = ATTACHED_MAX as u32;
            let mut told = vec![];
            for request in [
                write(file, generation, 0, 0),
                write(file, generation, 0, most + 1),
                write(file, generation, 0, u32::MAX),
                write(file, generation, u64::MAX, 1),
                write(file, generation, u64::MAX - 1000, most),
                write(file, generation, i64::MAX as u64, 1),
                write(file, generation.wrapping_add(1), 0, 1),
                write(0, generation, 0, 1),
                write(u32::MAX, generation, 0, 1),
                write(directory, of_directory, 0, 1),
            ] {
                told.push(said(&a.ask(&request)));
            }
            for mediation in [Mediation::Found as u32, 4, u32::MAX] {
                told.push(mediate(a, file, mediation));
            }
            assert_eq!(a.inode(file), before);
            joined(told)
        },
    ),
    case(
        "mediated",
        "has it written to where it is stored while it does so",
        "written",
        |a| {
            let (file, generation) = own_file(a);
            let over = Arc::new(AtomicBool::new(false));
            let scribbling = std::thread::spawn({
                let over = over.clone();
                let control = a.control_again();
                move || {
                    let control = control();
                    let mut word = 1u64;
                    while !over.load(Ordering::Relaxed) {
                        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        for slot in control.requests.iter() {
                            slot.length.store(word as u32, Ordering::Relaxed);
                        }
                        for attachment in &control.attachments {
                            attachment.0[word as usize % attachment.0.len()]
                                .store(word, Ordering::Relaxed);
                        }
                    }
                }
            });
            let began = Instant::now();
            while began.elapsed() < FLOOD / 2 {
                // What it has broken itself is EPROTO.
                let _ = a.try_ask(&write(file, generation, 0, ATTACHED_MAX as u32));
            }
            over.store(true, Ordering::Relaxed);
            scribbling.join().expect("scribbled");
            let told = format!("{:?}", a.ask(&write(file, generation, 0, 8)));
            match told.starts_with("Bytes") {
                true => "written".into(),
                false => told,
            }
        },
    ),
    case(
        "mediated",
        "changes names by messages where it may not",
        "EACCES, EBUSY",
        |a| {
            let theirs = a.find("open/directory");
            let before = a.inode(theirs);
            let told = joined(
                [theirs, a.find("open"), a.find("attacker")]
                    .into_iter()
                    .flat_map(|directory| {
                        let generation = a.header(directory).generation();
                        let remove = |name: &[u8]| remove(directory, generation, name);
                        [
                            make(directory, generation, b"made", FileKind::File as u8, USER),
                            remove(b"theirs"),
                            remove(b"directory"),
                        ]
                    })
                    .map(|request| said(&a.ask(&request))),
            );
            assert_eq!(a.inode(theirs), before);
            told
        },
    )
    .for_users(),
    case(
        "mediated",
        "gives others' files names of its own by messages",
        "EACCES, EPERM, ESTALE",
        |a| {
            let (directory, generation) = own_directory(a);
            let mut told = vec![];
            for (number, path) in (0..).zip(["open/theirs", "open/directory", "open", "attacker"]) {
                let inode = a.find(path);
                let inode_generation = a.header(inode).generation();
                for inode_generation in [inode_generation, inode_generation.wrapping_add(1)] {
                    told.push(said(&a.ask(&Request::LinkName {
                        directory,
                        generation,
                        name: format!("link-{number}").into_bytes(),
                        inode,
                        inode_generation,
                    })));
                }
            }
            joined(told)
        },
    )
    .for_users(),
    case(
        "mediated",
        "sets by messages what it may not set, and what there is not",
        "EACCES, EBUSY, EINVAL, EPERM, ESTALE",
        |a| {
            let (file, _) = own_file(a);
            let mut told = vec![];
            for path in ["open/theirs", "open/directory", "open", "attacker", "attacker/file"] {
                let inode = a.find(path);
                let generation = a.header(inode).generation();
                let before = a.inode(inode);
                for (which, mode) in [
                    (0, 0),
                    (8, 0),
                    (u32::MAX, 0),
                    (which::MODE, 0o10000),
                    (which::MODE, u32::MAX),
                ] {
                    told.push(said(&a.ask(&set(inode, generation, which, mode))));
                }
                let stale = generation.wrapping_add(1);
                told.push(said(&a.ask(&set(inode, stale, which::ALL, 0))));
                if inode != file {
                    for bits in [which::MODE, which::ACCESSED, which::MODIFIED, which::ALL] {
                        told.push(said(&a.ask(&set(inode, generation, bits, 0o777))));
                    }
                }
                assert_eq!(a.inode(inode), before);
            }
            told.push(said(&a.ask(&set(0, 1, which::ALL, 0))));
            told.push(said(&a.ask(&set(u32::MAX, 1, which::ALL, 0))));
            joined(told)
        },
    )
    .for_users(),
    case(
        "mediated",
        "sets and reads attributes by messages that are not its own, and what there is not",
        "E2BIG, EACCES, EBUSY, EINVAL, ENODATA, ESTALE",
        |a| {
            let (file, _) = own_file(a);
            let mut told = vec![];
            let extended = |inode, generation, name: &[u8], how, length| Request::SetExtended {
                inode,
                generation,
                name: name.to_vec(),
                how,
                length,
            };
            for path in ["open/theirs", "open/directory", "open", "attacker", "attacker/file"] {
                let inode = a.find(path);
                let generation = a.header(inode).generation();
                let before = a.inode(inode);
                let names: [&[u8]; 6] = [b"", b"user.", b"name", b"trusted.n", b"user.n\0", b"system.n"];
                for name in names {
                    told.push(said(&a.ask(&extended(inode, generation, name, 0, 1))));
                }
                for (how, length) in [(5, 0), (6, 0), (4, 1), (16, 1), (255, 1), (0, u32::MAX), (0, ATTACHED_MAX as u32 + 1)] {
                    told.push(said(&a.ask(&extended(inode, generation, b"user.n", how, length))));
                }
                // More than there is room for; one that is not there.
                told.push(said(&a.ask(&extended(inode, generation, b"user.n", 0, ATTACHED_MAX as u32))));
                told.push(said(&a.ask(&extended(inode, generation, b"user.n", 2, 1))));
                let stale = generation.wrapping_add(1);
                told.push(said(&a.ask(&extended(inode, stale, b"user.n", 0, 1))));
                if inode != file && path != "attacker" {
                    told.push(said(&a.ask(&extended(inode, generation, b"user.n", 0, 1))));
                }
                for (generation, position) in [(generation, 4096), (generation, u32::MAX), (stale, 0)] {
                    told.push(said(&a.ask(&Request::Extended {
                        inode,
                        generation,
                        position,
                        names: position == 4096,
                    })));
                }
                assert_eq!(a.inode(inode), before);
            }
            told.push(said(&a.ask(&extended(0, 1, b"user.n", 0, 1))));
            told.push(said(&a.ask(&extended(u32::MAX, 1, b"user.n", 0, 1))));
            joined(told)
        },
    )
    .for_users(),
    case(
        "mediated",
        "takes space in others' files by messages, and more than there is",
        "EACCES, EFBIG, EINVAL, EISDIR, ESTALE",
        |a| {
            let (file, _) = own_file(a);
            let mut told = vec![];
            for path in ["open/theirs", "open/directory", "attacker", "attacker/file"] {
                let inode = a.find(path);
                let generation = a.header(inode).generation();
                let before = a.inode(inode);
                for (position, length) in [(0, 0), (u64::MAX, 1), (1, u64::MAX), (1, 1 << 47)] {
                    for how in [0, 1, 2, 3, 255] {
                        let asked = allocate(inode, generation, position, length, how);
                        told.push(said(&a.ask(&asked)));
                    }
                }
                if inode != file {
                    let asked = allocate(inode, generation, 0, 4096, allocation::ZERO);
                    told.push(said(&a.ask(&asked)));
                }
                let stale = generation.wrapping_add(1);
                told.push(said(&a.ask(&allocate(inode, stale, 0, 4096, 0))));
                assert_eq!(a.inode(inode), before);
            }
            // What is behind the end of a file costs nobody a moment.
            let generation = a.header(file).generation();
            for how in [allocation::FILL, allocation::ZERO, allocation::PUNCH] {
                let (position, end) = (1 << 20, 1u64 << 46);
                let asked = allocate(file, generation, position, end - position, how);
                let reached = end.to_le_bytes().to_vec();
                assert_eq!(a.ask(&asked), Response::Bytes(reached), "{how}");
            }
            joined(told)
        },
    )
    .for_users(),
    case(
        "mediated",
        "asks for names that no LibFS asks for",
        "EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, EPERM, ESTALE",
        |a| {
            let (directory, generation) = own_directory(a);
            let file = a.find("attacker/file");
            let of_file = a.header(file).generation();
            let kind = FileKind::File as u8;
            let own = |name: &[u8]| make(directory, generation, name, kind, USER);
            let mut requests = vec![
                own(b""),
                own(b"."),
                own(b".."),
                own(b"a/b"),
                own(b"a\0b"),
                own(b"file"),
                remove(directory, generation, b""),
                remove(directory, generation, b"."),
                remove(directory, generation, b".."),
                remove(directory, generation, b"../file"),
                make(directory, generation, b"n", kind, 0),
                make(directory, generation, b"n", kind, u32::MAX),
                make(directory, generation + 1, b"n", kind, USER),
                make(0, generation, b"n", kind, USER),
                make(u32::MAX, generation, b"n", kind, USER),
                make(file, of_file, b"n", kind, USER),
                Request::RemoveName {
                    directory,
                    generation,
                    name: b"file".to_vec(),
                    is_directory: true,
                },
            ];
            for (kind, sizes) in [
                // Nothing that has such a target is attached.
                (FileKind::Link, &[0, 1, 4096, ATTACHED_MAX as u32, u32::MAX][..]),
                (FileKind::CharacterDevice, &[1, u32::MAX]),
                (FileKind::BlockDevice, &[0, 7]),
                (FileKind::File, &[1]),
                (FileKind::Directory, &[4096]),
            ] {
                for &said in sizes {
                    let mut request = make(directory, generation, b"n", kind as u8, USER);
                    if let Request::MakeName { size, .. } = &mut request {
                        *size = said;
                    }
                    requests.push(request);
                }
            }
            requests.extend([0, 99, 255].map(|kind| make(directory, generation, b"n", kind, USER)));
            // A directory is not removed as a file.
            said(&a.ask(&make(
                directory,
                generation,
                b"d",
                FileKind::Directory as u8,
                USER,
            )));
            requests.push(remove(directory, generation, b"d"));
            joined(requests.iter().map(|request| said(&a.ask(request))))
        },
    )
    .for_users(),
    case(
        "mediated",
        "makes and removes as many names by messages as it can",
        "a bounded wait",
        |a| {
            let (directory, generation) = own_directory(a);
            let began = Instant::now();
            let mut number = 0u64;
            while began.elapsed() < FLOOD {
                number += 1;
                let name = format!("n{number}");
                let kind = [FileKind::File, FileKind::Directory][number as usize % 2];
                a.ask(&make(
                    directory,
                    generation,
                    name.as_bytes(),
                    kind as u8,
                    USER,
                ));
                if number.is_multiple_of(3) {
                    a.ask(&remove(directory, generation, name.as_bytes()));
                }
            }
            assert!(number > 10, "{number} names");
            "a bounded wait".into()
        },
    )
    .for_users(),
    case(
        "mediated",
        "writes as much by messages as it can",
        "a bounded wait",
        |a| {
            let (file, generation) = own_file(a);
            let began = Instant::now();
            let mut written = 0u64;
            while began.elapsed() < FLOOD {
                let told = a.ask(&write(file, generation, 0, ATTACHED_MAX as u32));
                written += u64::from(format!("{told:?}").starts_with("Bytes"));
            }
            assert!(written > 10, "{written} writes");
            "a bounded wait".into()
        },
    ),
];
