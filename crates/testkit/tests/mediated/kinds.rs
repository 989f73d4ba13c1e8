//! What is made in a mediated directory, of every kind: with what it has in it from the beginning.

use super::names::{create, path, plant};
use super::{errno, owns, pool};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Mediation, Subject};

/// Of every kind of inode, and what it has in it from the beginning: a symbolic link's target, a device's number.
#[test]
fn every_kind_is_made_by_message() {
    const LINK: u32 = libc::S_IFLNK;
    let pool = pool();
    let sessions = [pool.session(), pool.session()];
    plant(&sessions[0]);
    create(&sessions[1], "first").expect("made");
    let longest = "t".repeat(4095);
    // Tests run as root, who makes devices.
    // What is no device has no number, whatever is said.
    let rows: [(u32, u64, &str); 10] = [
        (libc::S_IFREG, 0, ""),
        (libc::S_IFIFO, 0, ""),
        (libc::S_IFSOCK, 0, ""),
        (libc::S_IFIFO, 5, ""),
        (libc::S_IFREG, 5, ""),
        (libc::S_IFCHR, 0, ""),
        (libc::S_IFCHR, 0x103, ""),
        (libc::S_IFBLK, 0xffff_ffff, ""),
        (LINK, 0, "t"),
        (LINK, 0, &longest),
    ];
    for (turn, (kind, device, target)) in rows.into_iter().enumerate() {
        let [maker, looker] = [0, 1].map(|side| &sessions[(turn + side) % 2]);
        let at = path(&format!("k{turn}"));
        let make = || match kind {
            LINK => maker.symlink(target.as_bytes(), At::Root, at.as_bytes()),
            kind => maker.make_node(At::Root, at.as_bytes(), kind | 0o640, device),
        };
        make().unwrap_or_else(|failure| panic!("{at}: {failure:?}"));
        assert_eq!(errno(make()), Errno::EXIST, "{at}");
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let seen = looker.stat(At::Root, at.as_bytes(), flags).expect("there");
        assert_eq!(seen.mode & libc::S_IFMT, kind, "{at}");
        let is_device = matches!(kind, libc::S_IFCHR | libc::S_IFBLK);
        let number = if is_device { device } else { 0 };
        let size = if kind == LINK { target.len() } else { 0 };
        assert_eq!(
            (u64::from(seen.device), seen.size),
            (number, size as u64),
            "{at}"
        );
        if kind == LINK {
            let mut read = [0; 5000];
            let length = looker.read_link(At::Root, at.as_bytes(), &mut read);
            assert_eq!(&read[..length.expect("a link")], target.as_bytes(), "{at}");
        }
        assert!(!owns(maker) && !owns(looker), "{at}");
    }
    drop(sessions);
    assert_eq!(pool.violations(), "");
}

/// A session that has pages of its own where there are no others makes of them by itself what no message has a page for.
#[test]
fn who_has_room_needs_none_of_the_controllers() {
    let pool = TestPool::new(32 << 20);
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    create(&other, "first").expect("made");
    // More than a segment of the controller's has pages.
    let tagged: Vec<String> = (0..100).map(|number| format!("/tagged-{number}")).collect();
    for path in &tagged {
        one.put(path, b"").expect("made");
        let set = one.set_mediation(At::Root, path.as_bytes(), Mediation::On);
        set.expect("its owner may");
    }
    let full = (0..).find(|number| one.put(&format!("/fill-{number}"), &[7; 64 << 10]).is_err());
    println!("{full:?} files fill the pool");
    // Of what it takes away the pages stay its own.
    for number in 0..8 {
        let path = format!("/fill-{number}");
        one.unlink(At::Root, path.as_bytes(), 0).expect("unlinked");
    }
    one.fold(false).expect("folded");
    for path in &tagged {
        let tagged = Subject::Path(At::Root, path.as_bytes(), 0);
        let set = one.set_extended(tagged, b"user.name", &[7; 3000], 0);
        set.unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
    }
    let target = [b't'; 4000];
    let linked = one.symlink(&target, At::Root, path("link").as_bytes());
    linked.expect("linked");
    let mut read = [0; 5000];
    let length = other.read_link(At::Root, path("link").as_bytes(), &mut read);
    assert_eq!(&read[..length.expect("a link")], target);
    drop((one, other));
    assert_eq!(pool.violations(), "");
}
