//! The bytes of each message, as they have been since version 18 of the protocol: a controller and a LibFS of one
//! version may come from two builds. Who changes one of them makes another version
//! ([`PROTOCOL_VERSION`]), and says so here.

use crate::measure::HandOvers;
use crate::message::listed::{Listed, ListedName};
use crate::message::{InodeList, InodeRun, MESSAGE_MAX, Request, Response};
use crate::socket::{Access, Answer, Call, Caller, HandedOn, Welcome};
use crate::status::{Pool, Process, Processes};
use crate::{PROTOCOL_VERSION, Status};
use arck_core_state::Geometry;
use std::fmt::Debug;

fn requests() -> Vec<Request> {
    let inodes = InodeList::new(&[1, 0x0203_0405]).unwrap();
    let none = InodeList::default();
    let name = b"name".to_vec();
    vec![
        Request::GrantInodes { count: 0x0102_0304 },
        Request::Acquire { inodes },
        Request::Acquire { inodes: none },
        Request::Commit {
            inodes,
            release: true,
        },
        Request::CommitAll { release: false },
        Request::Recall { inodes },
        Request::MoveDirectory {
            from: 2,
            from_name: name.clone(),
            to: 3,
            to_name: b"other".to_vec(),
            flags: 1,
        },
        Request::SetOwner {
            inode: 4,
            uid: 5,
            gid: u32::MAX,
        },
        Request::GrowArena {
            branch_pages: 6,
            delta_pages: 7,
        },
        Request::MoreCredits {
            pages: 8,
            pressing: true,
        },
        Request::FoldCopy {
            inode: 9,
            fold: 0x0102_0304_0506_0708,
            offset: 10,
            length: 11,
        },
        Request::Forget { inode: 12 },
        Request::Sync { inodes },
        Request::LookUp {
            directory: 13,
            name,
        },
        Request::Admit {
            inode: 14,
            contents: false,
        },
        Request::Inspect { inode: 15 },
        Request::Read {
            inode: 16,
            generation: 17,
            position: 1 << 40,
            length: 18,
        },
        Request::Write {
            inode: 19,
            generation: 20,
            position: 21,
            append: true,
            bytes: vec![0xaa, 0xbb],
        },
        Request::WriteAttached {
            inode: 30,
            generation: 31,
            position: 3 << 40,
            append: true,
            length: 5000,
        },
        Request::SetMediation {
            inode: 34,
            generation: 35,
            mediation: 1,
        },
        Request::MakeName {
            directory: 36,
            generation: 37,
            name: b"made".to_vec(),
            kind: 1,
            mode: 0o640,
            uid: 40,
            gid: 41,
            size: 58,
            open: 59,
            mark: 60,
        },
        Request::RemoveName {
            directory: 38,
            generation: 39,
            name: b"removed".to_vec(),
            is_directory: true,
        },
        Request::LinkName {
            directory: 46,
            generation: 47,
            name: b"linked".to_vec(),
            inode: 48,
            inode_generation: 49,
        },
        Request::SetAttributes {
            inode: 50,
            generation: 51,
            which: 7,
            mode: 0o640,
            accessed: 52,
            modified: 53 << 32,
        },
        Request::Allocate {
            inode: 54,
            generation: 55,
            position: 56 << 32,
            length: 57,
            how: 2,
        },
        Request::SetExtended {
            inode: 59,
            generation: 60,
            name: b"user.set".to_vec(),
            how: 3,
            length: 61,
        },
        Request::Extended {
            inode: 62,
            generation: 63,
            position: 2000,
            names: true,
        },
        Request::MapTogether {
            inode: 42,
            generation: 43,
            first: 44 << 32,
            count: 45,
        },
        Request::Resize {
            inode: 22,
            generation: 23,
            size: 24,
        },
        Request::List {
            inode: 25,
            generation: 26,
            bucket: 27,
            skip: 28,
        },
        Request::DropSetId { inode: 29 },
        Request::GiveBack {
            segments: vec![30, 31],
        },
        Request::Ping,
    ]
}

fn responses() -> Vec<Response> {
    vec![
        Response::Done,
        Response::Error(28),
        Response::Violation("rule: Größe".into()),
        Response::Inodes(vec![InodeRun { first: 1, count: 2 }]),
        Response::Bytes(vec![3, 4, 5]),
        Response::Found {
            inode: 6,
            generation: 7,
            kind: 8,
        },
    ]
}

const HANDED_ON: HandedOn = HandedOn {
    inode: 1,
    generation: 2,
    flags: 0o2002,
    parent: 3,
};

fn caller() -> Caller {
    Caller {
        process: 1234,
        group: b"editors".to_vec(),
        region: 5 << 30,
    }
}

fn calls() -> Vec<Call> {
    let lock_file = |access| Call::LockFile {
        inode: 6,
        generation: 7,
        access,
    };
    vec![
        Call::Hello {
            version: PROTOCOL_VERSION,
            caller: caller(),
        },
        Call::MapSegments {
            segments: vec![1, 2],
        },
        Call::ReadSegments { segments: vec![3] },
        Call::GrantSegment,
        Call::RegionMade,
        Call::Goodbye,
        Call::Shutdown,
        Call::Measure { on: true },
        Call::Status,
        Call::Resume {
            version: PROTOCOL_VERSION,
            session: 4,
            secret: [5, u64::MAX],
            member: 6,
            caller: Caller::default(),
        },
        lock_file(Access::Read),
        lock_file(Access::Write),
        lock_file(Access::ReadWrite),
        Call::ReadPiece {
            inode: 8,
            generation: 9,
            position: 3 << 40,
            length: 10,
        },
        Call::HandOn(HANDED_ON),
        Call::Claim {
            was_sent: false,
            has_lock: true,
        },
        Call::KeepLock,
        Call::Pool,
        Call::Processes {
            session: 11,
            member: 12,
        },
        Call::Gates,
        Call::OpenPipe {
            inode: 10,
            generation: 11,
            access: Access::Write,
            waits: true,
        },
        Call::IsPipe {
            inode: 12,
            generation: 13,
        },
        Call::BindSocket {
            inode: 14,
            generation: 15,
            path: b"/arck/socket".to_vec(),
        },
        Call::FindSocket {
            inode: 16,
            generation: 17,
        },
        Call::AddWatch {
            inode: 18,
            generation: 19,
            mask: 0x8000_0fff,
            parent: 21,
        },
    ]
}

fn answers() -> Vec<Answer> {
    let measured = HandOvers {
        requests: 1,
        received: 2,
        answered: 3,
        deferred: 4,
        wait: 5,
        copy: 6,
        verify: 7,
        fold: 8,
        grant: 9,
        folds: 10,
        bytes_copied: 11,
        pages_read: 12,
        records: 13,
        bytes_journaled: 14,
    };
    let status = Status {
        sessions: 1,
        pages_free: 2,
        inodes_free: 3,
        closings: 4,
        waiting: 5,
        work: 6,
        moved: 7,
        longest: 8,
    };
    let pool = Pool {
        pages: 1,
        inodes: 2,
        durability: 3,
        flush: true,
        shared: false,
        user: 4,
        process: 5,
        violations: 6,
        mediated: 7,
        found: 8,
        together: 9,
    };
    let processes = Processes {
        more: true,
        processes: vec![Process {
            session: 1,
            member: 2,
            process: 3,
            user: 4,
            program: "sh".into(),
        }],
    };
    vec![
        Answer::Welcome(Welcome {
            session: 1,
            member: 2,
            geometry: Geometry::for_pool_size(64 << 20).unwrap(),
            uuid: *b"0123456789abcdef",
            hash_seed: 3,
            durability: 4,
            flush: 5,
            branch_pages: 6,
            delta_pages: 7,
            secret: [8, 9],
            makes_region: true,
            user: 10,
            user_group: 11,
        }),
        Answer::Resumed,
        Answer::Segments(vec![1, 2]),
        Answer::Done,
        Answer::Measured(measured),
        Answer::Status(status),
        Answer::Piece {
            number: 12,
            length: 13,
        },
        Answer::Described(HANDED_ON),
        Answer::Ahead,
        Answer::Waits,
        Answer::Watched { watch: 20 },
        Answer::Error(13, "no".into()),
        Answer::Pool(pool),
        Answer::Processes(processes),
    ]
}

fn listed() -> Vec<Listed> {
    let names = [(1, 8, "a"), (2, 4, "other")];
    let whole = Listed {
        sequence: 3,
        parent: 4,
        buckets: 5,
        next: None,
        names: Vec::from(names.map(|(inode, kind, name)| ListedName {
            inode,
            kind,
            name: name.into(),
        })),
    };
    let part = Listed {
        next: Some((6, 7)),
        names: Vec::new(),
        ..whole.clone()
    };
    vec![whole, part]
}

/// A line for each message, and that it is read from these bytes; and that there is one of each number.
fn lines<M: Debug + PartialEq>(
    kind: &str,
    numbers: &[u8],
    messages: Vec<M>,
    encode: impl Fn(&M, &mut [u8]) -> usize,
    decode: impl Fn(&[u8]) -> M,
) -> String {
    let mut without: Vec<_> = numbers.to_vec();
    let line = |message: M| {
        let mut buffer = [0; MESSAGE_MAX];
        let used = encode(&message, &mut buffer);
        without.retain(|number| *number != buffer[0]);
        let hex: String = buffer[..used].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(decode(&buffer[..used]), message, "{hex}");
        format!("{kind} {message:?} {hex}\n")
    };
    let lines = messages.into_iter().map(line).collect();
    assert!(
        without.is_empty(),
        "{kind}: no bytes are kept of {without:?}"
    );
    lines
}

#[test]
fn each_message_has_the_bytes_that_it_had() {
    let now = [
        lines(
            "request",
            Request::NUMBERS,
            requests(),
            |m, b| m.encode(b).unwrap(),
            |b| Request::decode(b).unwrap(),
        ),
        lines(
            "response",
            Response::NUMBERS,
            responses(),
            |m, b| m.encode(b).unwrap(),
            |b| Response::decode(b).unwrap(),
        ),
        lines(
            "call",
            Call::NUMBERS,
            calls(),
            |m, b| m.encode(b).unwrap(),
            |b| Call::decode(b).unwrap(),
        ),
        lines(
            "answer",
            Answer::NUMBERS,
            answers(),
            |m, b| m.encode(b).unwrap(),
            |b| Answer::decode(b).unwrap(),
        ),
        lines(
            "listed",
            &[],
            listed(),
            |m, b| {
                let bytes = m.encode().unwrap();
                b[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            },
            |b| Listed::decode(b).unwrap(),
        ),
    ]
    .concat();
    let kept = include_str!("message_bytes.txt");
    for (now, kept) in now.lines().zip(kept.lines()) {
        assert_eq!(now, kept);
    }
    assert_eq!(now.lines().count(), kept.lines().count(), "{now}");
    assert_eq!(
        PROTOCOL_VERSION, 24,
        "other bytes: keep those of this version"
    );
}
