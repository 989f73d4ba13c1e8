//! Maps of files, as more than one session sees them.

use arck_testkit::mapped::{BOTH, Mapped, READ, map, map_as};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, MapRequest, Mediation};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POOL: u64 = 64 << 20;
const PAGE: usize = 4096;

fn all_are(map: &Mapped<'_>, pages: usize, bytes: &[u8]) -> bool {
    (0..pages).all(|page| bytes.contains(&map.get(page * PAGE + 7).unwrap()))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What another session overwrites, truncates and uses anew stays in a map of the old file until
/// the map's session looks again; then the map follows, and the pages come back.
#[test]
fn a_map_keeps_its_pages() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("f", &[b'a'; 16 * PAGE]).unwrap();
    one.fold(true).unwrap();
    let handle = one.open_at_root("f", libc::O_RDWR).unwrap();
    let mapped = map(&one, handle, 16 * PAGE, READ).unwrap();
    one.close(handle);
    assert!(all_are(&mapped, 16, b"a"));

    // Twice, so that the first pages of the second session are dropped too.
    for byte in [b'b', b'c'] {
        let theirs = two.open_at_root("f", libc::O_WRONLY).unwrap();
        assert_eq!(
            two.write(theirs, &[byte; 16 * PAGE], Some(0)),
            Ok(16 * PAGE)
        );
        two.close(theirs);
        two.fold(true).unwrap();
        one.put(&format!("other {byte}"), &[b'x'; 64 * PAGE])
            .unwrap();
        two.put(&format!("more {byte}"), &[b'y'; 64 * PAGE])
            .unwrap();
        two.fold(false).unwrap();
        assert!(
            all_are(&mapped, 16, b"abc"),
            "somebody else's bytes are in the map"
        );
    }
    assert_eq!(one.get("f").unwrap(), vec![b'c'; 16 * PAGE]);
    assert!(all_are(&mapped, 16, b"c"), "the map follows");

    two.truncate(At::Root, b"f", 3 * PAGE as u64 + 10).unwrap();
    two.fold(true).unwrap();
    two.put("again", &[b'z'; 64 * PAGE]).unwrap();
    assert!(all_are(&mapped, 16, b"c"));
    assert_eq!(one.get("f").unwrap().len(), 3 * PAGE + 10);
    assert_eq!(mapped.get(3 * PAGE + 9), Some(b'c'));
    assert_eq!(mapped.get(3 * PAGE + 10), Some(0));
    assert_eq!(mapped.get(4 * PAGE), None);

    // Removed by the others, and still there.
    two.unlink(At::Root, b"f", 0).unwrap();
    two.fold(true).unwrap();
    one.put("last", &[b'w'; 64 * PAGE]).unwrap();
    assert_eq!(mapped.get(5), Some(b'c'));
    let before = two.statistics().unwrap().pages_free;
    drop(mapped);
    // Its own four, and what was kept for it.
    until("kept pages are freed", || {
        two.statistics().unwrap().pages_free >= before + 4 + 13
    });
    assert_eq!(pool.violations(), "");
}

/// A file of which one session has a writable map is changed by no other.
#[test]
fn a_writable_map_keeps_others_from_writing() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("f", &[b'a'; 4 * PAGE]).unwrap();
    one.fold(true).unwrap();
    let handle = one.open_at_root("f", libc::O_RDWR).unwrap();
    let theirs = two.open_at_root("f", libc::O_RDWR).unwrap();
    let reading = map(&two, theirs, 4 * PAGE, READ).unwrap();
    let mapped = map(&one, handle, 4 * PAGE, BOTH).unwrap();
    mapped.put(PAGE, b'b');
    let mut seen = [0];
    assert_eq!(two.read(theirs, &mut seen, Some(PAGE as u64)), Ok(1));
    assert_eq!(seen[0], b'b', "stores are the file's");
    assert_eq!(reading.get(PAGE), Some(b'b'));
    assert_eq!(two.write(theirs, b"x", Some(0)), Err(Errno::TXTBSY));
    assert_eq!(two.truncate_handle(theirs, 0), Err(Errno::TXTBSY));
    assert_eq!(
        map(&two, theirs, 4 * PAGE, BOTH).map(|_| ()),
        Err(Errno::NODEV)
    );
    // Its own session goes on as before, whoever looked meanwhile.
    one.fold(true).unwrap();
    assert_eq!(one.write(handle, b"w", Some(9)), Ok(1));
    assert_eq!(mapped.get(9), Some(b'w'));
    assert_eq!(one.truncate_handle(handle, 6 * PAGE as u64), Ok(()));
    mapped.put(2 * PAGE, b'm');
    assert_eq!(two.get("f").unwrap()[2 * PAGE], b'm');
    drop(mapped);
    assert_eq!(two.write(theirs, b"x", Some(0)), Ok(1));
    assert_eq!(one.get("f").unwrap()[..2], *b"xa");
    drop(reading);
    assert_eq!(pool.violations(), "");
}

/// Stores through a map, and pages kept for one, over the controller's death.
#[test]
fn maps_and_a_killed_controller() {
    let mut pool = TestPool::new(POOL);
    let empty = {
        let session = pool.session();
        session.put("f", &[b'a'; 8 * PAGE]).unwrap();
        session.fold(true).unwrap();
        let free = session.statistics().unwrap().pages_free;
        session.disconnect().unwrap();
        free
    };
    {
        let (one, two) = (pool.session(), pool.session());
        let handle = one.open_at_root("f", libc::O_RDWR).unwrap();
        let reading = map(&one, handle, 8 * PAGE, READ).unwrap();
        let theirs = two.open_at_root("f", libc::O_WRONLY).unwrap();
        two.write(theirs, &[b'b'; 8 * PAGE], Some(0)).unwrap();
        two.close(theirs);
        two.fold(true).unwrap();
        assert!(all_are(&reading, 8, b"ab"));
        let mapped = map(&one, handle, 8 * PAGE, BOTH).unwrap();
        mapped.put(3 * PAGE, b's');
        mapped.sync(libc::MS_SYNC);
        pool.kill();
        std::mem::forget((reading, mapped));
    }
    pool.serve();
    let session = pool.session();
    let content = session.get("f").unwrap();
    assert_eq!((content[0], content[3 * PAGE]), (b'b', b's'));
    session.put("g", b"g").unwrap();
    session.unlink(At::Root, b"g", 0).unwrap();
    session.disconnect().unwrap();
    let session = pool.session();
    let free = session.statistics().unwrap().pages_free;
    assert!(free >= empty, "{free} pages of {empty} are free");
    assert_eq!(pool.violations(), "");
}

/// No room for the pages of a writable map: ENOSPC, and everything is as it was.
#[test]
fn a_full_pool_refuses_a_writable_map() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = session.open_at_root("sparse", flags).unwrap();
    session.truncate_handle(handle, 1 << 30).unwrap();
    assert_eq!(
        map(&session, handle, 1 << 30, BOTH).map(|_| ()),
        Err(Errno::NOSPC)
    );
    let reading = map(&session, handle, 1 << 30, READ).unwrap();
    assert_eq!(reading.get((1 << 30) - 1), Some(0));
    session.truncate_handle(handle, 0).unwrap();
    assert_eq!(reading.get(0), None);
    session.put("small", &[b's'; 100 * PAGE]).unwrap();
    session.truncate_handle(handle, 64 * PAGE as u64).unwrap();
    let mapped = map(&session, handle, 64 * PAGE, BOTH).unwrap();
    mapped.put(17, b'x');
    assert_eq!(reading.get(17), Some(b'x'));
    assert_eq!(session.get("sparse").unwrap()[17], b'x');
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * PAGE
}

/// A map of a file of which nearly all is a hole costs what its data costs.
#[test]
fn a_map_of_a_hole() {
    const LENGTH: usize = 1 << 40;
    let pool = TestPool::new(POOL);
    let one = pool.session();
    one.put("f", b"begin").unwrap();
    let handle = one.open_at_root("f", libc::O_RDWR).unwrap();
    one.truncate_handle(handle, LENGTH as u64 + 5).unwrap();
    let middle = LENGTH / 2 + 3 * PAGE;
    assert_eq!(one.write(handle, b"middle", Some(middle as u64)), Ok(6));

    let before = resident();
    let mapped = map(&one, handle, LENGTH + 3 * PAGE, READ).unwrap();
    // Other tests use memory too; with a word for each page it would be 2 GiB.
    assert!(resident() < before + (1 << 30), "memory for each page");
    let all = |bytes: &[(usize, Option<u8>)]| {
        for &(at, byte) in bytes {
            assert_eq!(mapped.get(at), byte, "at {at}");
        }
    };
    all(&[
        (0, Some(b'b')),
        (PAGE, Some(0)),
        (middle - 1, Some(0)),
        (middle, Some(b'm')),
        (middle + PAGE, Some(0)),
        (LENGTH + PAGE - 1, Some(0)),
        (LENGTH + PAGE, None),
    ]);
    // It follows, whatever is written, given up and cut off.
    let third = LENGTH / 3;
    assert_eq!(one.write(handle, b"third", Some(third as u64)), Ok(5));
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    one.allocate(handle, punch, middle as u64, PAGE as u64)
        .unwrap();
    all(&[
        (third, Some(b't')),
        (third + PAGE, Some(0)),
        (middle, Some(0)),
    ]);
    one.truncate_handle(handle, middle as u64).unwrap();
    all(&[
        (third, Some(b't')),
        (middle - 1, Some(0)),
        (middle, None),
        (LENGTH, None),
    ]);
    one.truncate_handle(handle, LENGTH as u64).unwrap();
    all(&[(middle, Some(0)), (LENGTH - 1, Some(0)), (LENGTH, None)]);
    one.close(handle);
}

/// The same for a private map that is written, from the beginning or later.
#[test]
fn a_private_copy_of_a_hole() {
    const LENGTH: usize = 1 << 40;
    let pool = TestPool::new(POOL);
    let one = pool.session();
    one.put("f", b"begin").unwrap();
    let handle = one.open_at_root("f", libc::O_RDWR).unwrap();
    let middle = LENGTH / 2 + 3 * PAGE + 17;
    assert_eq!(one.write(handle, b"middle", Some(middle as u64)), Ok(6));
    let last = LENGTH - 1;
    assert_eq!(one.write(handle, b"l", Some(last as u64)), Ok(1));
    let before = resident();
    for protection in [BOTH, READ] {
        for offset in [0, 2 * PAGE] {
            let request = MapRequest {
                address: 0,
                length: LENGTH - offset + PAGE,
                protection,
                flags: libc::MAP_PRIVATE,
                offset: offset as u64,
            };
            let length = request.length;
            let mapped = map_as(&one, handle, request).unwrap();
            if protection == READ {
                mapped.protect(length - PAGE, BOTH);
            }
            let all = |bytes: &[(usize, Option<u8>)]| {
                for &(at, byte) in bytes {
                    assert_eq!(mapped.get(at - offset), byte, "at {at}");
                }
            };
            if offset == 0 {
                all(&[(0, Some(b'b')), (4, Some(b'n')), (5, Some(0))]);
            }
            all(&[
                (2 * PAGE, Some(0)),
                (LENGTH / 3, Some(0)),
                (middle - 1, Some(0)),
                (middle, Some(b'm')),
                (middle + 5, Some(b'e')),
                (middle + 6, Some(0)),
                (last - PAGE, Some(0)),
                (last, Some(b'l')),
                (last + 1, None),
            ]);
            // It is a copy.
            mapped.put(middle - offset, b'x');
            mapped.put(LENGTH / 3 - offset, b'y');
            all(&[(middle, Some(b'x')), (LENGTH / 3, Some(b'y'))]);
            let mut byte = [0];
            assert_eq!(one.read(handle, &mut byte, Some(middle as u64)), Ok(1));
            assert_eq!(byte, *b"m");
        }
    }
    assert!(resident() < before + (1 << 30), "memory for each page");
    one.close(handle);
}

/// A map that is placed while other sessions write the file by messages shows what was in it, whatever comes into the
/// pages that these free.
#[test]
fn a_map_is_placed_while_messages_write_the_file() {
    const PAGES: usize = 4;
    let pool = TestPool::new(POOL);
    let (one, other, reader) = (pool.session(), pool.session(), pool.session());
    for path in ["/shown", "/beside"] {
        one.put(path, &[1; PAGES * PAGE]).unwrap();
        let on = one.set_mediation(At::Root, path.as_bytes(), Mediation::On);
        on.unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (session, path, bit) in [(&one, "/shown", 0), (&other, "/beside", 128)] {
            let over = &over;
            scope.spawn(move || {
                let handle = session.open_at_root(path, libc::O_RDWR).unwrap();
                let mut round = 0u8;
                while !over.load(Ordering::Acquire) {
                    round = (round + 1) % 100;
                    let bytes = vec![1 + round + bit; PAGES * PAGE];
                    assert_eq!(session.write(handle, &bytes, Some(0)), Ok(bytes.len()));
                }
            });
        }
        let handle = reader.open_at_root("/shown", libc::O_RDONLY).unwrap();
        let end = Instant::now() + Duration::from_millis(1500);
        let mut maps = 0;
        while Instant::now() < end {
            let shown = map(&reader, handle, PAGES * PAGE, READ).expect("mapped");
            for look in 0..30 {
                for page in 0..PAGES {
                    let byte = shown.byte(page * PAGE);
                    if byte == 0 || byte >= 128 {
                        over.store(true, Ordering::Release);
                        panic!("map {maps}, look {look}: page {page} shows {byte} of another file");
                    }
                }
                std::thread::sleep(Duration::from_micros(10));
            }
            maps += 1;
        }
        over.store(true, Ordering::Release);
        println!("{maps} maps");
    });
}
