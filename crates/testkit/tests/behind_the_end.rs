//! What a cut takes off a file is not left behind its end, in memory that whoever may read the file maps.
//!
//! A truncation left it in the file's last page: a reader who came later found in mapped memory what
//! had been taken out of the file before he could read it.

use arck_core_state::{PAGE_SIZE, PagePtr, index};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};

const PAGE: usize = PAGE_SIZE as usize;
const SECRET: u8 = b's';

/// A page of a file as it is verified, as a session that may read it has it in memory.
fn page_of(session: &FileSystem, path: &str, page: u64) -> Option<[u8; PAGE]> {
    let kit = session.session();
    let number = session.stat(At::Root, path.as_bytes(), 0).unwrap().inode;
    let (_, inode) = kit.verified(number as u32).unwrap().unwrap();
    let place = index::lookup(kit, inode.root, page).filter(|place| *place != PagePtr::NULL)?;
    let mut bytes = [0; PAGE];
    kit.page_bytes(place)
        .unwrap()
        .copy_to(0, &mut bytes)
        .unwrap();
    Some(bytes)
}

type Cut = fn(&FileSystem);

fn truncate(session: &FileSystem) {
    session.truncate(At::Root, b"f", PAGE_SIZE + 100).unwrap();
}

/// What cuts the file, of two pages and a half, to a page and 100 bytes.
const CUTS: &[(&str, Cut)] = &[
    ("truncate", truncate),
    ("ftruncate", |session| {
        let handle = session.open_at_root("f", libc::O_RDWR).unwrap();
        session.truncate_handle(handle, PAGE_SIZE + 100).unwrap();
        session.close(handle);
    }),
    ("truncate, in a page that is appended to then", |session| {
        truncate(session);
        let handle = session
            .open_at_root("f", libc::O_WRONLY | libc::O_APPEND)
            .unwrap();
        assert_eq!(session.write(handle, b"more", None), Ok(4));
        session.close(handle);
        session.truncate(At::Root, b"f", PAGE_SIZE + 100).unwrap();
    }),
    ("truncate twice", |session| {
        session.truncate(At::Root, b"f", PAGE_SIZE + 2000).unwrap();
        truncate(session);
    }),
    ("O_TRUNC and a write", |session| {
        let flags = libc::O_WRONLY | libc::O_TRUNC;
        let handle = session.open_at_root("f", flags).unwrap();
        let whole = PAGE + 100;
        assert_eq!(session.write(handle, &vec![b'k'; whole], None), Ok(whole));
        session.close(handle);
    }),
];

#[test]
fn what_is_cut_off_is_not_left_in_the_last_page() {
    for (name, cut) in CUTS {
        // Whose the pages are that are cut, and whether they were verified before.
        for (whose, folded) in [
            ("one's own", false),
            ("one's own", true),
            ("another's", true),
        ] {
            let pool = TestPool::new(64 << 20);
            let (writer, other, reader) = (pool.session(), pool.session(), pool.session());
            let mut content = vec![b'k'; PAGE + 100];
            content.resize(2 * PAGE + PAGE / 2, SECRET);
            writer.put("f", &content).unwrap();
            if folded {
                writer.fold(true).unwrap();
            }
            let by = if whose == "another's" {
                &other
            } else {
                &writer
            };
            cut(by);
            by.fold(true).unwrap();
            let what = format!("{name} of {whose}, verified before: {folded}");
            assert_eq!(reader.get("f").unwrap(), content[..PAGE + 100], "{what}");
            let page = page_of(&reader, "f", 1).expect(&what);
            assert_eq!(page[..100], content[PAGE..PAGE + 100], "{what}");
            let left = page[100..].iter().filter(|&&byte| byte != 0).count();
            assert_eq!(left, 0, "{what}: bytes are left behind the end");
            assert_eq!(page_of(&reader, "f", 2), None, "{what}");
            assert_eq!(pool.violations(), "", "{what}");
        }
    }
}

/// What is behind the end of a page that is copied to be written does not go along.
#[test]
fn a_copy_of_a_last_page_has_nothing_behind_the_end() {
    let pool = TestPool::new(64 << 20);
    let (writer, other, reader) = (pool.session(), pool.session(), pool.session());
    writer.put("f", &[b'k'; 100]).unwrap();
    // A program stores behind the end of what it has mapped, as it may: the kernel's files keep it too.
    let kit = writer.session();
    writer.fold(false).unwrap();
    let number = writer.stat(At::Root, b"f", 0).unwrap().inode as u32;
    let (_, inode) = kit.verified(number).unwrap().unwrap();
    let place = index::lookup(kit, inode.root, 0).unwrap();
    let _ = kit.page_bytes(place).unwrap().write(200, &[SECRET; 300]);
    writer.fold(true).unwrap();
    let handle = other.open_at_root("f", libc::O_WRONLY).unwrap();
    assert_eq!(other.write(handle, b"new", Some(10)), Ok(3));
    other.close(handle);
    other.fold(true).unwrap();
    let page = page_of(&reader, "f", 0).unwrap();
    assert_eq!(&page[10..13], b"new");
    assert!(page[100..].iter().all(|&byte| byte == 0));
}
