//! What becomes of files that lose their last name: who has one open goes on with it, and nobody else keeps it.

mod common;

use arck_core_state::FileKind;
use arck_core_state::header::HeaderKind;
use arck_protocol::control::OPEN_SLOTS;
use arck_protocol::{InodeList, Request};
use common::check::check;
use common::{Client, PATIENCE, ROOT, TestPool};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn an_open_file_outlives_its_name() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut one = Client::connect(&pool.path());
    let two = Client::connect(&pool.path());
    one.acquire(&[ROOT]);
    let file = one.create(ROOT, b"file", FileKind::File);
    let page = one.data_page(5).unwrap();
    one.write(file, 0, page);
    one.commit_all(false);
    two.list_open(17, file);
    one.remove(ROOT, b"file");
    one.commit(&[ROOT], false);
    assert_eq!(two.header(file).kind(), HeaderKind::Orphan);
    assert_eq!(two.verified_byte(file, 0), Some(5));
    assert!(two.is_used(page));
    one.done(&Request::Forget { inode: file });
    assert_eq!(two.header(file).kind(), HeaderKind::Orphan);
    two.unlist(17);
    two.done(&Request::Forget { inode: file });
    assert_eq!(two.header(file).kind(), HeaderKind::Free);
    assert!(!two.is_used(page));
    // Left behind by a session that ends.
    let second = one.create(ROOT, b"second", FileKind::File);
    one.commit_all(false);
    two.list_open(1, second);
    one.remove(ROOT, b"second");
    one.commit(&[ROOT], false);
    assert_eq!(one.header(second).kind(), HeaderKind::Orphan);
    two.goodbye();
    assert_eq!(one.header(second).kind(), HeaderKind::Free);
    one.goodbye();
    controller.stop().unwrap();
    check(&pool.path());
}

/// Only names that its delta gives it are looked for where a file loses its last verified one. What else it says is of use to
/// who has the file open, and to nobody else: its pages are its session's, as before.
#[test]
fn what_has_no_name_left_is_folded_for_who_has_it_open() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut one = Client::connect(&pool.path());
    let two = Client::connect(&pool.path());
    one.acquire(&[ROOT]);
    let directory = one.create(ROOT, b"directory", FileKind::Directory);
    let names = [&b"open"[..], b"closed", b"linked"];
    let files = names.map(|name| one.create(ROOT, name, FileKind::File));
    let [open, closed, linked] = files;
    for file in files {
        let page = one.data_page(5).unwrap();
        one.write(file, 0, page);
    }
    one.commit_all(false);
    let pages = files.map(|file| {
        let page = one.data_page(6).unwrap();
        one.write(file, 0, page);
        page
    });
    two.list_open(17, open);
    one.link(linked, FileKind::File, directory, b"other");
    names.iter().for_each(|name| one.remove(ROOT, name));
    one.commit(&[ROOT], false);

    assert_eq!(two.header(open).kind(), HeaderKind::Orphan);
    assert_eq!(two.verified_byte(open, 0), Some(5));
    two.done(&Request::Recall {
        inodes: InodeList::new(&[open]).unwrap(),
    });
    assert_eq!(two.verified_byte(open, 0), Some(6));
    assert!(two.is_used(pages[0]));

    assert_eq!(two.header(closed).kind(), HeaderKind::Free);
    assert!(!two.is_used(pages[1]));
    let next = one.create(ROOT, b"next", FileKind::File);
    one.write(next, 0, pages[1]);
    one.commit(&[ROOT, next], false);
    assert_eq!(two.verified_byte(next, 0), Some(6));

    assert_eq!(two.header(linked).kind(), HeaderKind::Alive);
    assert_eq!(two.inode(linked).links, 1);
    assert_eq!(two.verified_byte(linked, 0), Some(6));

    two.unlist(17);
    two.done(&Request::Forget { inode: open });
    assert_eq!(two.header(open).kind(), HeaderKind::Free);
    assert!(!two.is_used(pages[0]));
    one.goodbye();
    two.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 3);
}

/// Tables that are long all together are not looked at each time; what is listed stays, and all else
/// is freed in the end.
#[test]
fn files_are_freed_although_much_is_listed() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let listing: Vec<Client> = (0..9).map(|_| Client::connect(&pool.path())).collect();
    for client in &listing {
        let opens = &client.control().header.opens;
        opens.store(OPEN_SLOTS as u32, Ordering::SeqCst);
    }
    let mut one = Client::connect(&pool.path());
    one.acquire(&[ROOT]);
    let names: Vec<Vec<u8>> = (0..40).map(|i| format!("file{i}").into_bytes()).collect();
    let files: Vec<u32> = names
        .iter()
        .map(|name| one.create(ROOT, name, FileKind::File))
        .collect();
    one.commit_all(false);
    listing[3].list_open(OPEN_SLOTS - 1, files[7]);
    for name in &names {
        one.remove(ROOT, name);
        one.commit_all(false);
    }
    let kinds = || {
        let kind = |&file: &u32| one.header(file).kind();
        files.iter().map(kind).collect::<Vec<_>>()
    };
    let began = Instant::now();
    while kinds()
        .iter()
        .filter(|&&kind| kind != HeaderKind::Free)
        .count()
        > 1
    {
        assert!(began.elapsed() < PATIENCE, "{:?}", kinds());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(one.header(files[7]).kind(), HeaderKind::Orphan);
    listing[3].unlist(OPEN_SLOTS - 1);
    while one.header(files[7]).kind() != HeaderKind::Free {
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", kinds());
        std::thread::sleep(Duration::from_millis(20));
    }
    listing.into_iter().for_each(Client::goodbye);
    one.goodbye();
    controller.stop().unwrap();
    check(&pool.path());
}
