//! Folds of everything that one session can do, and what sessions do to each other.

mod common;

use arck_controller::Options;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, PAGE_SIZE};
use arck_protocol::socket::{Answer, Call, HandedOn, call, call_with};
use arck_protocol::{InodeList, Request, Response};
use common::check::check;
use common::{Client, PATIENCE, ROOT, TestPool};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[test]
fn names_come_and_go() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"file", FileKind::File);
    let directory = client.create(ROOT, b"directory", FileKind::Directory);
    client.create(directory, b"inner", FileKind::File);
    let page = client.data_page(7).unwrap();
    client.write(file, 3, page);
    // Nothing is verified before the fold.
    assert_eq!(client.names(ROOT).len(), 0);
    client.commit(&[ROOT], false);
    assert_eq!(client.names(ROOT).len(), 2);
    // The children's own deltas are still theirs.
    assert_eq!(client.inode(file).size, 0);
    client.commit(&[file, directory], false);
    assert_eq!(client.inode(file).size, 4 * PAGE_SIZE);
    assert_eq!(client.verified_byte(file, 3), Some(7));
    assert_eq!(client.verified_byte(file, 0), None);
    assert_eq!(client.inode(file).pages, 1);
    assert_eq!(client.names(directory).len(), 1);
    assert_eq!(client.inode(ROOT).links, 3);

    client.link(file, FileKind::File, directory, b"second");
    client.rename((ROOT, b"file"), (directory, b"inner"));
    client.rename((ROOT, b"directory"), (ROOT, b"other"));
    client.commit(&[ROOT], false);
    assert_eq!(client.inode(file).links, 2);
    assert_eq!(
        client.names(directory).into_keys().collect::<Vec<_>>(),
        [b"inner".to_vec(), b"second".to_vec()]
    );
    assert_eq!(
        client.names(ROOT).into_keys().collect::<Vec<_>>(),
        [b"other"]
    );

    client.remove(directory, b"inner");
    client.remove(directory, b"second");
    client.remove(ROOT, b"other");
    client.commit(&[ROOT, directory, file], true);
    assert_eq!(client.names(ROOT).len(), 0);
    assert_eq!(client.inode(ROOT).links, 2);
    assert_eq!(client.header(file).kind(), HeaderKind::Free);
    assert_eq!(client.header(directory).kind(), HeaderKind::Free);
    assert!(!client.is_used(page));
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 0);
}

#[test]
fn a_file_grows_shrinks_and_has_holes() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"f", FileKind::File);
    client.commit_all(false);
    let free = client
        .control()
        .header
        .pages_free
        .load(std::sync::atomic::Ordering::Relaxed);
    let far = 512 * 512 + 5;
    for page in [0, 1, 511, 512, 600, far] {
        let data = client.data_page((page as u8).wrapping_add(1)).unwrap();
        client.write(file, page, data);
    }
    client.commit(&[file], false);
    assert_eq!(client.inode(file).pages, 6);
    assert_eq!(client.inode(file).root.height(), 3);
    for page in [0, 1, 511, 512, 600, far] {
        assert_eq!(
            client.verified_byte(file, page),
            Some((page as u8).wrapping_add(1))
        );
    }
    // Overwritten: the old page is free again.
    let before = client.data_page(1).unwrap();
    client.write(file, 512, before);
    client.truncate(file, 513 * PAGE_SIZE, 0);
    client.commit(&[file], false);
    assert_eq!(client.inode(file).pages, 4);
    assert_eq!(client.verified_byte(file, 600), None);
    // Cut off and written again in one fold.
    client.truncate(file, 0, 0);
    let data = client.data_page(9).unwrap();
    client.write(file, 0, data);
    client.commit(&[file], false);
    assert_eq!(client.inode(file).pages, 1);
    assert_eq!(client.verified_byte(file, 0), Some(9));
    assert_eq!(client.verified_byte(file, 511), None);
    client.truncate(file, 0, 1);
    client.commit(&[file], false);
    assert_eq!(client.inode(file).pages, 0);
    assert_eq!(
        client
            .control()
            .header
            .pages_free
            .load(std::sync::atomic::Ordering::Relaxed),
        free
    );
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).sizes["/f"], 0);
}

#[test]
fn a_directory_grows_to_fifty_thousand_names_and_back() {
    let pool = TestPool::new(256 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let name = |i: u32| format!("a name of some length, number {i}").into_bytes();
    for i in 0..50_000 {
        client.create(ROOT, &name(i), FileKind::File);
        if i % 10_000 == 9_999 {
            client.commit(&[ROOT], false);
        }
    }
    let root = client.inode(ROOT);
    assert_eq!(root.entries, 50_000);
    assert_eq!(client.names(ROOT).len(), 50_000);
    for i in (0..50_000).step_by(777) {
        assert!(client.verified(ROOT, &name(i)).is_some());
    }
    // Buckets are neither much too many nor much too few: 2 units a name, 120 in a page.
    let fill = 50_000.0 * 2.0 / (root.size / PAGE_SIZE) as f64 / 120.0;
    assert!((0.5..1.3).contains(&fill), "{fill}");
    for i in 0..50_000 {
        if i % 100 != 0 {
            client.remove(ROOT, &name(i));
        }
    }
    client.commit(&[ROOT], true);
    assert_eq!(client.names(ROOT).len(), 500);
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 500);
}

#[test]
fn an_inode_goes_from_session_to_session() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut one = Client::connect(&pool.path());
    let mut two = Client::connect(&pool.path());
    one.acquire(&[ROOT]);
    let file = one.create(ROOT, b"file", FileKind::File);
    let page = one.data_page(1).unwrap();
    one.write(file, 0, page);
    // A reader: folded, and the owner stays.
    two.recall(&[ROOT]);
    assert_eq!(two.verified(ROOT, b"file").map(|d| d.inode), Some(file));
    two.recall(&[file]);
    assert_eq!(two.verified_byte(file, 0), Some(1));
    assert_eq!(one.header(file).ownership().session(), one.welcome.session);
    one.forget_overlay();
    // A writer: folded, and taken.
    let second = one.create(ROOT, b"second", FileKind::File);
    two.acquire(&[ROOT, file]);
    assert_eq!(one.header(ROOT).ownership().session(), two.welcome.session);
    assert_eq!(two.verified(ROOT, b"second").map(|d| d.inode), Some(second));
    two.rename((ROOT, b"file"), (ROOT, b"mine"));
    two.commit(&[ROOT], true);
    assert_eq!(one.header(ROOT).ownership().session(), 0);
    // What is idle after its lease, which is longer where the machine is slow, becomes shared for a reader.
    let started = Instant::now();
    while one.header(file).ownership().session() != 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
        one.recall(&[file]);
    }
    // The end of a session folds what it owns.
    two.acquire(&[ROOT]);
    two.create(ROOT, b"late", FileKind::File);
    drop(two);
    let started = Instant::now();
    while one.verified(ROOT, b"late").is_none() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(one);
    controller.stop().unwrap();
    let tree = check(&pool.path());
    assert_eq!(
        tree.paths.keys().collect::<Vec<_>>(),
        ["/late", "/mine", "/second"]
    );
}

#[test]
fn two_writers_take_turns() {
    let pool = TestPool::new(32 << 20);
    // This client does not look whether it was folded while it stored: no fold may go on without it.
    let controller = pool.serve_with(Options {
        patience: Duration::from_secs(60),
        ..Options::default()
    });
    let path = pool.path();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let path = &path;
            scope.spawn(move || {
                let mut client = Client::connect(path);
                let mut made = 0;
                let began = Instant::now();
                while made < 100 {
                    assert!(began.elapsed() < 3 * PATIENCE, "{writer} has made {made}");
                    client.acquire(&[ROOT]);
                    // The lease is long enough for this, unless the thread is put to sleep: then again.
                    let owner = client.header(ROOT).ownership();
                    if owner.session() != client.welcome.session || owner.is_marked() {
                        continue;
                    }
                    let number = client.number();
                    client.enter(0);
                    if client.header(ROOT).ownership() == owner {
                        let name = format!("{writer}-{made}");
                        client.create_as(ROOT, name.as_bytes(), FileKind::File, number);
                        made += 1;
                    }
                    client.operation(0).leave();
                }
                client.goodbye();
            });
        }
    });
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 200);
}

/// Each claim had what the file's owner had changed folded at once: who had been handed a file that another one
/// was writing could keep him from it by claiming it again and again.
#[test]
fn claims_have_an_owner_folded_no_oftener_than_readers_do() {
    let pool = TestPool::new(32 << 20);
    let options = Options {
        lease: Duration::from_secs(100),
        ..Options::default()
    };
    let controller = pool.serve_with(options);
    let mut owner = Client::connect(&pool.path());
    owner.acquire(&[ROOT]);
    let file = owner.create(ROOT, b"file", FileKind::File);
    owner.commit(&[ROOT], false);
    let of = HandedOn {
        inode: file,
        generation: owner.header(file).generation(),
        flags: libc::O_RDONLY as u32,
        parent: 0,
    };
    let (_, descriptors) = call(&owner.socket, &Call::HandOn(of)).unwrap();
    let other = Client::connect(&pool.path());
    let mut folds = BTreeSet::new();
    for size in 1..=20 {
        owner.edit_branch(file, |branch| branch.size = size);
        let claim = Call::Claim {
            was_sent: false,
            has_lock: true,
        };
        let claimed = call_with(&other.socket, &claim, &[descriptors[0].as_fd()]);
        assert!(matches!(claimed.unwrap().0, Answer::Described(_)));
        folds.insert(owner.header(file).fold());
    }
    assert_eq!((folds.len(), other.inode(file).size), (1, 1), "{folds:?}");
    owner.commit(&[file], true);
    assert_eq!(other.inode(file).size, 20);
    controller.stop().unwrap();
}

#[test]
fn a_refused_delta_changes_nothing_and_hinders_nobody() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut bad = Client::connect(&pool.path());
    bad.acquire(&[ROOT]);
    bad.create(ROOT, b"good", FileKind::File);
    bad.commit(&[ROOT], false);
    // A name twice.
    let number = bad.number();
    bad.create_as(ROOT, b"good", FileKind::File, number);
    let fold = bad.header(ROOT).fold();
    let answer = bad.ask(&Client::commit_request(&[ROOT], false));
    assert!(matches!(answer, Response::Violation(_)), "{answer:?}");
    assert_eq!(bad.header(ROOT).fold(), fold);
    assert!(!bad.header(ROOT).ownership().is_marked());
    let log = std::fs::read_to_string(pool.path().join("violations.log")).unwrap();
    assert_eq!(log.lines().count(), 1);
    // A reader gets the verified state, a writer gets the directory.
    let mut other = Client::connect(&pool.path());
    other.recall(&[ROOT]);
    assert_eq!(other.names(ROOT).len(), 1);
    other.acquire(&[ROOT]);
    other.create(ROOT, b"more", FileKind::File);
    other.commit(&[ROOT], false);
    assert_eq!(other.names(ROOT).len(), 2);
    // The directory's delta, and that of the file that it was to bear.
    assert_eq!(
        std::fs::read_dir(pool.path().join("aside"))
            .unwrap()
            .count(),
        2
    );
    // What straddled that is lost, and the session is told so.
    let lost = Request::FoldCopy {
        inode: ROOT,
        fold,
        offset: 0,
        length: 8,
    };
    assert_eq!(bad.errno(&lost), Errno::STALE);
    drop(bad);
    drop(other);
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 2);
}

#[test]
fn an_arena_that_is_cut_off_harms_only_its_session() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut bad = Client::connect(&pool.path());
    bad.acquire(&[ROOT]);
    bad.create(ROOT, b"x", FileKind::File);
    rustix::fs::ftruncate(&bad.arena_file, 4096).unwrap();
    let mut other = Client::connect(&pool.path());
    other.acquire(&[ROOT]);
    other.create(ROOT, b"y", FileKind::File);
    other.commit(&[ROOT], true);
    assert_eq!(other.names(ROOT).len(), 1);
    drop(bad);
    drop(other);
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 1);
}

#[test]
fn directories_move_by_message() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let a = client.create(ROOT, b"a", FileKind::Directory);
    let b = client.create(ROOT, b"b", FileKind::Directory);
    let inner = client.create(a, b"inner", FileKind::Directory);
    let file = client.create(inner, b"file", FileKind::File);
    client.commit_all(false);
    let request = |from, from_name: &[u8], to, to_name: &[u8], flags| Request::MoveDirectory {
        from,
        from_name: from_name.to_vec(),
        to,
        to_name: to_name.to_vec(),
        flags,
    };
    client.done(&request(a, b"inner", b, b"moved", 0));
    assert_eq!(client.inode(inner).parent, b);
    assert_eq!((client.inode(a).links, client.inode(b).links), (2, 3));
    assert_eq!(client.names(a).len(), 0);
    // A cycle, in both forms.
    assert_eq!(
        client.errno(&request(ROOT, b"b", inner, b"x", 0)),
        Errno::INVAL
    );
    assert_eq!(
        client.errno(&request(b, b"moved", inner, b"x", 0)),
        Errno::INVAL
    );
    assert_eq!(
        client.errno(&request(a, b"nothing", b, b"x", 0)),
        Errno::NOENT
    );
    assert_eq!(
        client.errno(&request(ROOT, b"a", b, b"moved", 1)),
        Errno::EXIST
    );
    assert_eq!(
        client.errno(&request(ROOT, b"a", b, b"moved", 0)),
        Errno::NOTEMPTY
    );
    assert_eq!(
        client.errno(&request(ROOT, b"a", inner, b"file", 0)),
        Errno::NOTDIR
    );
    assert_eq!(
        client.errno(&request(inner, b"file", ROOT, b"a", 0)),
        Errno::ISDIR
    );
    assert_eq!(client.errno(&request(ROOT, b"a", b, b"q", 2)), Errno::NOENT);
    // An exchange of a directory and a file.
    client.done(&request(inner, b"file", ROOT, b"a", 2));
    assert_eq!(client.verified(ROOT, b"a").map(|d| d.inode), Some(file));
    assert_eq!(client.inode(a).parent, inner);
    assert_eq!(
        (client.inode(ROOT).links, client.inode(inner).links),
        (3, 3)
    );
    // Onto an empty directory, which dies; whatever its owner has not folded counts.
    let c = client.create(ROOT, b"c", FileKind::Directory);
    let late = client.create(c, b"late", FileKind::File);
    assert_eq!(
        client.errno(&request(inner, b"file", ROOT, b"c", 0)),
        Errno::NOTEMPTY
    );
    client.forget_overlay();
    client.acquire(&[c]);
    client.remove(c, b"late");
    client.done(&request(inner, b"file", ROOT, b"c", 0));
    assert_eq!(client.verified(ROOT, b"c").map(|d| d.inode), Some(a));
    assert_eq!(client.header(c).kind(), HeaderKind::Free);
    assert_ne!(client.header(late).kind(), HeaderKind::Alive);
    client.goodbye();
    controller.stop().unwrap();
    let tree = check(&pool.path());
    assert_eq!(
        tree.paths.keys().collect::<Vec<_>>(),
        ["/a", "/b", "/b/moved", "/c"]
    );
}

#[test]
fn a_full_pool_says_so_loses_nothing_and_is_usable_after_deleting() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let mut pages = 0;
    let mut files = Vec::new();
    'full: for i in 0.. {
        let name = format!("file {i}");
        let file = client.create(ROOT, name.as_bytes(), FileKind::File);
        files.push((name, file));
        for page in 0..64 {
            match client.data_page(i as u8) {
                Ok(data) => client.write(file, page, data),
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    break 'full;
                }
            }
            pages += 1;
        }
    }
    assert!(pages * PAGE_SIZE > 11 << 20, "{pages} pages");
    client.commit_all(false);
    for (i, (_, file)) in files.iter().enumerate().take(files.len() - 1) {
        assert_eq!(client.verified_byte(*file, 63), Some(i as u8));
    }
    for (name, _) in &files {
        client.remove(ROOT, name.as_bytes());
    }
    client.commit_all(false);
    // The pages are the session's own to use again, and another's when it has gone.
    client.goodbye();
    let mut next = Client::connect(&pool.path());
    next.acquire(&[ROOT]);
    let file = next.create(ROOT, b"again", FileKind::File);
    for page in 0..pages.min(1000) {
        let data = next.data_page(1).unwrap();
        next.write(file, page, data);
    }
    next.commit_all(true);
    next.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 1);
}

#[test]
fn numbers_run_out_and_come_back() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let client = Client::connect(&pool.path());
    let grant = Request::GrantInodes { count: 256 };
    let mut granted = 0;
    let errno = loop {
        match client.ask(&grant) {
            Response::Inodes(runs) => granted += runs.iter().map(|run| run.count).sum::<u32>(),
            Response::Error(errno) => break Errno::from_raw_os_error(errno),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(errno, Errno::NOSPC);
    assert!(granted > 1000, "{granted}");
    client.goodbye();
    let client = Client::connect(&pool.path());
    assert!(matches!(client.ask(&grant), Response::Inodes(_)));
    drop(client);
    controller.stop().unwrap();
    check(&pool.path());
}

#[test]
fn owners_change_by_message() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"file", FileKind::File);
    client.commit(&[ROOT], false);
    client.edit_branch(file, |branch| branch.mode = 0o6755);
    let before = client.header(file).fold();
    let chown = Request::SetOwner {
        inode: file,
        uid: u32::MAX,
        gid: client.inode(file).gid,
    };
    client.done(&chown);
    // The pending mode was folded first, and chown takes set-id bits away.
    assert_eq!(client.inode(file).mode & 0o7777, 0o755);
    assert_ne!(client.header(file).fold(), before);
    assert_eq!(
        client.header(file).ownership().session(),
        client.welcome.session
    );
    if rustix::process::geteuid().is_root() {
        client.done(&Request::SetOwner {
            inode: file,
            uid: 1234,
            gid: 55,
        });
        assert_eq!((client.inode(file).uid, client.inode(file).gid), (1234, 55));
    }
    let list = InodeList::new(&[4000]).unwrap();
    assert_eq!(
        client.errno(&Request::Acquire { inodes: list }),
        Errno::STALE
    );
    client.goodbye();
    controller.stop().unwrap();
}
