//! One message of each kind, and more where a kind has several: for tests, and as seeds of a fuzzer.

use super::*;
use arck_core_state::cast;

/// Of each request.
pub fn requests() -> Vec<Request> {
    let some = InodeList::new(&[1, 2, 3]).unwrap_or_default();
    vec![
        Request::GrantInodes { count: 7 },
        Request::Acquire { inodes: some },
        Request::Commit {
            inodes: some,
            release: true,
        },
        Request::CommitAll { release: false },
        Request::Recall {
            inodes: InodeList::default(),
        },
        Request::MoveDirectory {
            from: 1,
            from_name: b"a".to_vec(),
            to: 2,
            to_name: vec![b'x'; 255],
            flags: 1,
        },
        Request::SetOwner {
            inode: 5,
            uid: 6,
            gid: u32::MAX,
        },
        Request::GrowArena {
            branch_pages: 1,
            delta_pages: 2,
        },
        Request::MoreRoom {
            pages: 9,
            pressing: true,
        },
        Request::Receipt {
            inode: 1,
            fold: 2,
            offset: 3,
            length: 4,
        },
        Request::Forget { inode: 5 },
        Request::Sync { inodes: some },
        Request::LookUp {
            directory: 4,
            name: b"name".to_vec(),
        },
        Request::Admit {
            inode: 9,
            contents: true,
        },
        Request::Inspect { inode: 4 },
        Request::Read {
            inode: 4,
            generation: 5,
            position: 6,
            length: 7,
        },
        Request::Write {
            inode: 4,
            generation: 5,
            position: 6,
            append: true,
            bytes: vec![7; WRITE_MAX],
        },
        Request::Resize {
            inode: 4,
            generation: 5,
            size: 6,
        },
        Request::List {
            inode: 4,
            generation: 5,
            bucket: 6,
            skip: 7,
        },
        Request::DropSetId { inode: 8 },
        Request::GiveBack {
            segments: (0..cast::count(GIVE_BACK_MAX)).collect(),
        },
        Request::Ping,
    ]
}

/// Of each response.
pub fn responses() -> Vec<Response> {
    vec![
        Response::Done,
        Response::Error(28),
        Response::Violation("rule".into()),
        Response::Inodes((0..cast::count(GRANT_MAX)).collect()),
        Response::Bytes(vec![7; READ_MAX]),
        Response::Found {
            inode: 1,
            generation: 2,
            kind: 8,
        },
    ]
}
