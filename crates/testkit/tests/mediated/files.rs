//! Mediated files (KucoFS): sessions that do not trust each other write one by messages, none of which any session
//! sees a part of, and nobody becomes its owner.

use super::{PATH, answered_by_the_next, errno, mediation, owns, pool, set};
use arck_protocol::message::allocation;
use arck_protocol::{Request, Response};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, FileSystem, Handle, MapRequest, Mediation, SetTime, Timestamp};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of the longest write that is one message.
const LONGEST: usize = 64 << 10;

/// Makes the file, and has it mediated.
fn plant(session: &FileSystem, content: &[u8]) {
    session.put(PATH, content).expect("a file");
    set(session, Mediation::On);
    assert_eq!(mediation(session), Mediation::On);
}

fn open(session: &FileSystem, flags: i32) -> Handle {
    session.open_at_root(PATH, flags).expect("opened")
}

#[test]
fn sessions_that_take_turns_never_own_it() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one, &[0; 3 * 4096]);
    let handles = [open(&one, libc::O_RDWR), open(&other, libc::O_RDWR)];
    let sessions = [&one, &other];
    let mut known = vec![0; 3 * 4096];
    let mut random = Random::new(1);
    for turn in 0..400 {
        let who = turn % 2;
        let length = 1 + random.below(9000) as usize;
        let at = random.below(known.len() as u64) as usize;
        let bytes = random.bytes(length);
        let written = sessions[who].write(handles[who], &bytes, Some(at as u64));
        assert_eq!(written, Ok(length), "turn {turn}");
        known.resize(known.len().max(at + length), 0);
        known[at..at + length].copy_from_slice(&bytes);
        let mut read = vec![0; known.len() + 1];
        let reader = 1 - who;
        let count = sessions[reader].read(handles[reader], &mut read, Some(0));
        assert_eq!(count, Ok(known.len()), "turn {turn}");
        assert!(read[..known.len()] == known, "turn {turn}");
    }
    assert!(!owns(&one) && !owns(&other));
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// Who writes more than a message holds, or does something else to it, owns it for that. Afterwards it is nobody's.
#[test]
fn what_no_message_does_is_done_by_its_owner() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one, b"");
    let [mine, theirs] = [open(&one, libc::O_RDWR), open(&other, libc::O_RDWR)];
    let long = vec![7; LONGEST + 1];
    assert_eq!(one.write(mine, &long, Some(0)), Ok(long.len()));
    assert!(owns(&one));
    assert_eq!(other.write(theirs, b"theirs", Some(10)), Ok(6));
    assert!(!owns(&one) && !owns(&other));
    one.truncate_handle(mine, 13).expect("cut");
    assert!(!owns(&one) && !owns(&other));
    let mut read = [0; 20];
    assert_eq!(other.read(theirs, &mut read, Some(0)), Ok(13));
    assert_eq!(&read[8..13], &[7, 7, b't', b'h', b'e']);
    assert_eq!(other.write(theirs, b"!", Some(13)), Ok(1));
    assert!(!owns(&one) && !owns(&other));
    // So does who writes several buffers that are too long together, which nobody is to come between.
    let buffers = [&long[..40_000], &long[..40_000]];
    assert_eq!(one.write_vector(mine, buffers, Some(100), None), Ok(80_000));
    assert!(owns(&one));
    one.truncate_handle(mine, 14).expect("cut");
    // Its owner writes as one, again.
    set(&one, Mediation::Off);
    assert_eq!(other.write(theirs, b"?", Some(14)), Ok(1));
    assert_eq!(other.write(theirs, b".", Some(15)), Ok(1));
    assert!(owns(&other));
    assert_eq!(mediation(&other), Mediation::Off);
    assert_eq!(one.get(PATH).expect("read")[12..], *b"e!?.");
}

/// Lengths, modes and times of a mediated file, and those of a mediated directory, go by message.
#[test]
fn lengths_and_attributes_go_by_message() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one, &[1; 9000]);
    let sessions = [&one, &other];
    let handles = [open(&one, libc::O_RDWR), open(&other, libc::O_RDWR)];
    assert_eq!(other.write(handles[1], b"!", Some(0)), Ok(1));
    let mut random = Random::new(3);
    let mut content = one.get(PATH).expect("read");
    for turn in 0..300 {
        let who = turn % 2;
        let size = random.below(20_000);
        let (session, path) = (sessions[who], PATH.as_bytes());
        match random.below(4) {
            0 => session.truncate_handle(handles[who], size).expect("cut"),
            1 => session.truncate(At::Root, path, size).expect("cut"),
            2 => {
                let handle = session.open(At::Root, path, libc::O_WRONLY | libc::O_TRUNC, 0);
                session.close(handle.expect("opened"));
                session.truncate(At::Root, path, size).expect("cut");
                content.clear();
            }
            _ => {
                let bytes = random.bytes(700);
                let written = session.write(handles[who], &bytes, Some(size));
                assert_eq!(written, Ok(700));
                let end = size as usize + 700;
                content.resize(content.len().max(end), 0);
                content[size as usize..end].copy_from_slice(&bytes);
                let mode = 0o600 | random.below(0o100) as u32;
                session.change_mode(At::Root, path, mode, 0).expect("chmod");
                let time = |seconds| {
                    SetTime::At(Timestamp {
                        seconds,
                        nanoseconds: 7,
                    })
                };
                let (accessed, modified) = (random.below(1000) as i64, random.below(1000) as i64);
                let times = [time(accessed), time(modified)];
                let set = session.set_times_handle(handles[who], times[0], times[1]);
                set.expect("times");
                let told = sessions[1 - who].stat(At::Root, path, 0).expect("there");
                assert_eq!(told.mode, libc::S_IFREG | mode);
                assert_eq!(told.accessed.seconds, accessed);
                assert_eq!(
                    (told.modified.seconds, told.modified.nanoseconds),
                    (modified, 7)
                );
                let only = session.set_times(At::Root, path, SetTime::Omit, SetTime::Now, 0);
                only.expect("times");
                let told = sessions[1 - who].stat(At::Root, path, 0).expect("there");
                assert_eq!(told.accessed.seconds, accessed);
                assert!(told.modified.seconds > 1000, "{:?}", told.modified);
                assert!(!owns(&one) && !owns(&other), "turn {turn}");
                continue;
            }
        }
        content.resize(size as usize, 0);
        let read = sessions[1 - who].get(PATH).expect("read");
        assert!(read == content, "turn {turn}");
        assert!(!owns(&one) && !owns(&other), "turn {turn}");
    }
    // Who has it mapped to be written cuts it as its owner, and nobody else does.
    let request = MapRequest {
        address: 0,
        length: 4096,
        protection: libc::PROT_READ | libc::PROT_WRITE,
        flags: libc::MAP_SHARED,
        offset: 0,
    };
    // SAFETY: where the kernel likes.
    let map = unsafe { one.map(handles[0], &request) }.expect("mapped");
    one.truncate(At::Root, PATH.as_bytes(), 5000).expect("cut");
    assert!(owns(&one));
    for cut in [
        other.truncate_handle(handles[1], 4000),
        other.truncate_handle(handles[1], 6000),
    ] {
        assert_eq!(cut, Err(Errno::TXTBSY));
    }
    assert_eq!(
        errno(other.truncate(At::Root, PATH.as_bytes(), 4000)),
        Errno::TXTBSY
    );
    // SAFETY: nobody uses it.
    unsafe { one.unmap(map, 4096) }.expect("unmapped");
    other.truncate_handle(handles[1], 4000).expect("cut");
    assert!(!owns(&one) && !owns(&other));
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// What two sessions write by turns, a little each, is mediated by itself; what one of them writes alone is its own
/// again.
#[test]
fn who_takes_turns_is_found() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    one.put(PATH, &[0; 4096]).expect("a file");
    let handles = [open(&one, libc::O_RDWR), open(&other, libc::O_RDWR)];
    let sessions = [&one, &other];
    let write = |who: usize, byte: u8| {
        let written = sessions[who].write(handles[who], &[byte; 100], Some(0));
        assert_eq!(written, Ok(100));
        let mut read = [0; 100];
        assert_eq!(
            sessions[1 - who].read(handles[1 - who], &mut read, Some(0)),
            Ok(100)
        );
        assert_eq!(read, [byte; 100]);
    };
    // A machine that pauses for longer than a lease at each turn takes longer to find it.
    let turns = (0..1000).find(|turn| {
        write(turn % 2, *turn as u8);
        mediation(&one) == Mediation::Found
    });
    println!("found in turn {turns:?}");
    assert!(turns.is_some(), "not found in 1,000 turns");
    write(0, 0);
    write(1, 1);
    assert!(!owns(&one) && !owns(&other));
    for turn in 0..100 {
        write(0, turn);
    }
    assert_eq!(mediation(&one), Mediation::Auto);
    write(0, 100);
    assert!(owns(&one));
    // As its owner says, and not by itself.
    set(&one, Mediation::Off);
    for turn in 0..20 {
        write(turn % 2, turn as u8);
    }
    assert_eq!(mediation(&one), Mediation::Off);
    let found = one.set_mediation(At::Root, PATH.as_bytes(), Mediation::Found);
    assert_eq!(errno(found), Errno::INVAL);
}

/// Two sessions that have much to write each are faster as owners.
#[test]
fn who_writes_much_is_left_alone() {
    let pool = pool();
    let sessions = [pool.session(), pool.session()];
    sessions[0].put(PATH, &vec![0; 1 << 20]).expect("a file");
    let write_for_a_while = || -> u64 {
        std::thread::scope(|scope| {
            let writers = sessions.iter().map(|session| {
                scope.spawn(move || {
                    let handle = open(session, libc::O_RDWR);
                    let began = Instant::now();
                    let mut done = 0u64;
                    while began.elapsed().as_millis() < 300 {
                        let at = done % 256 * 4096;
                        assert_eq!(session.write(handle, &[1; 4096], Some(at)), Ok(4096));
                        done += 1;
                    }
                    session.close(handle);
                    done
                })
            });
            let writers: Vec<_> = writers.collect();
            let done = writers.into_iter().map(|writer| writer.join());
            done.map(|done| done.expect("done")).sum()
        })
    };
    // Who does not get a processor for a whole lease, three times in a row, has little to write as far as anybody sees.
    let left = (0..5).find(|_| {
        let done = write_for_a_while();
        let mediation = mediation(&sessions[0]);
        println!("{done} writes, {mediation:?}");
        mediation == Mediation::Auto
    });
    assert!(left.is_some(), "mediated in each of five rounds");
}

#[test]
fn it_stays_so_and_is_its_owners_to_say() {
    let mut pool = pool();
    let one = pool.session();
    plant(&one, b"text");
    one.make_node(At::Root, b"/pipe", libc::S_IFIFO | 0o600, 0)
        .expect("made");
    let on = |path: &[u8]| one.set_mediation(At::Root, path, Mediation::On);
    assert_eq!(errno(on(b"/pipe")), Errno::INVAL);
    assert_eq!(errno(on(b"/nothing")), Errno::NOENT);
    assert_eq!(errno(one.mediation(At::Root, b"/pipe")), Errno::INVAL);
    let copy = open(&one, libc::O_RDWR);
    assert_eq!(one.write(copy, b"T", Some(0)), Ok(1));
    drop(one);
    pool.stop();
    pool.serve();
    let other = pool.session();
    assert_eq!(mediation(&other), Mediation::On);
    assert_eq!(other.get(PATH).expect("read"), b"Text");
}

/// Records of all lengths that a message holds, appended by threads of two sessions, by one buffer and by several: each
/// is there once, and whole.
#[test]
fn appends_are_whole_and_there_once() {
    const THREADS: usize = 2;
    const RECORDS: usize = 60;
    let pool = pool();
    let sessions = [pool.session(), pool.session()];
    plant(&sessions[0], b"");
    let record = |who: usize, number: usize| {
        let length = 8 + Random::new((who * RECORDS + number) as u64).below(9000) as usize;
        let mut bytes = vec![who as u8 + 1; length];
        bytes[0..4].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&((who * RECORDS + number) as u32).to_le_bytes());
        bytes
    };
    std::thread::scope(|scope| {
        for who in 0..2 * THREADS {
            let session = &sessions[who % 2];
            let handle = open(session, libc::O_WRONLY | libc::O_APPEND);
            scope.spawn(move || {
                for number in 0..RECORDS {
                    let bytes = record(who, number);
                    let written = match number % 2 {
                        0 => session.write(handle, &bytes, None),
                        _ => session.write_vector(handle, bytes.chunks(1000), None, None),
                    };
                    assert_eq!(written, Ok(bytes.len()));
                }
            });
        }
    });
    let all = sessions[0].get(PATH).expect("read");
    let mut seen = vec![0; 2 * THREADS];
    let mut at = 0;
    while at < all.len() {
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap()) as usize;
        let (length, name) = (word(at), word(at + 4));
        let (who, number) = (name / RECORDS, name % RECORDS);
        assert!(all[at..at + length] == record(who, number), "at {at}");
        assert_eq!(seen[who], number, "each writer's records are in order");
        seen[who] += 1;
        at += length;
    }
    assert_eq!(seen, vec![RECORDS; 2 * THREADS]);
    drop(sessions);
    assert_eq!(pool.violations(), "");
}

/// A write is there for everybody, or not at all, whatever its length: readers that look all the time see no mixture.
#[test]
fn nobody_sees_a_part_of_a_write() {
    let pool = pool();
    let (one, other, reader) = (pool.session(), pool.session(), pool.session());
    plant(&one, &vec![1; LONGEST]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (session, first) in [(&one, 1u8), (&other, 101u8)] {
            let handle = open(session, libc::O_RDWR);
            let over = &over;
            scope.spawn(move || {
                let mut round = 0;
                while !over.load(Ordering::Acquire) {
                    let bytes = vec![first + round; LONGEST];
                    assert_eq!(session.write(handle, &bytes, Some(0)), Ok(LONGEST));
                    round = (round + 1) % 100;
                }
            });
        }
        let _over = SetAtEnd(&over);
        let handle = open(&reader, libc::O_RDONLY);
        let mut seen = BTreeSet::new();
        let began = Instant::now();
        while seen.len() < 50 {
            assert!(began.elapsed().as_secs() < 20, "{} writes seen", seen.len());
            let mut read = vec![0; LONGEST];
            assert_eq!(reader.read(handle, &mut read, Some(0)), Ok(LONGEST));
            let mixed = read.iter().position(|byte| *byte != read[0]);
            assert_eq!(mixed, None, "a write of {} and one of another", read[0]);
            seen.insert(read[0]);
        }
    });
}

/// Says that it is over, also where a test fails.
struct SetAtEnd<'b>(&'b AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A buffer of which not all is there is written as far as it is, as it is to any file.
#[test]
fn a_bad_buffer_hurts_nobody() {
    let pool = pool();
    let one = pool.session();
    plant(&one, b"before");
    let handle = open(&one, libc::O_RDWR);
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("half", flags).expect("a memory file");
    rustix::fs::ftruncate(&file, 4096).expect("of a page");
    // SAFETY: a new mapping of two pages, the second of which is behind the file's end.
    let pages = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (protection, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let at = libc::mmap(std::ptr::null_mut(), 8192, protection, shared, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>()
    };
    // SAFETY: it is handed to what is to look at it guarded, and nobody else looks at it.
    let (half, none) = unsafe {
        (
            std::slice::from_raw_parts(pages.add(4000), 200),
            std::slice::from_raw_parts(pages.add(4096), 100),
        )
    };
    assert_eq!(one.write(handle, half, Some(0)), Ok(96));
    assert_eq!(one.write(handle, none, Some(0)), Err(Errno::FAULT));
    let vector = [&b"ab"[..], none];
    assert_eq!(one.write_vector(handle, vector, Some(0), None), Ok(2));
    assert_eq!(&one.get(PATH).expect("read")[..4], b"ab\0\0");
}

/// A controller that ends between having appended and saying so: the next one says so, and appends nothing.
#[test]
fn what_was_appended_is_not_appended_again() {
    let mut pool = pool();
    let one = pool.session();
    plant(&one, b"");
    let handle = open(&one, libc::O_WRONLY | libc::O_APPEND);
    let inode = one.stat(At::Root, PATH.as_bytes(), 0).expect("there").inode as u32;
    let generation = one.session().header(inode).expect("there").generation();
    let mut appended = 0;
    for (length, times) in [(10, 1), (3000, 2), (LONGEST, 3)] {
        for _ in 0..times {
            assert_eq!(one.write(handle, &vec![1; length], None), Ok(length));
            appended += length;
        }
        let request = Request::WriteAttached {
            inode,
            generation,
            position: 0,
            append: true,
            length: length as u32,
        };
        answered_by_the_next(&mut pool, &one, &request).expect("answered");
        assert_eq!(one.get(PATH).expect("read").len(), appended);
    }
}

/// Nor is a cut done twice, or what is zeroed: what others have written since then stays.
#[test]
fn what_was_cut_and_zeroed_is_not_so_again() {
    let mut pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one, &[1; 9000]);
    let [mine, theirs] = [open(&one, libc::O_RDWR), open(&other, libc::O_RDWR)];
    assert_eq!(other.write(theirs, b"!", Some(0)), Ok(1));
    let inode = one.stat(At::Root, PATH.as_bytes(), 0).expect("there").inode as u32;
    let generation = one.session().header(inode).expect("there").generation();
    let resize = Request::Resize {
        inode,
        generation,
        size: 10,
    };
    one.truncate_handle(mine, 10).expect("cut");
    assert_eq!(other.write(theirs, &[2; 5000], Some(0)), Ok(5000));
    let told = answered_by_the_next(&mut pool, &one, &resize);
    assert_eq!(told, Ok(Response::Done));
    assert_eq!(one.get(PATH).expect("read"), [2; 5000]);
    for how in [allocation::ZERO, allocation::PUNCH] {
        let allocate = Request::Allocate {
            inode,
            generation,
            position: 100,
            length: 4000,
            how,
        };
        let end = Ok(Response::Bytes(4100u64.to_le_bytes().to_vec()));
        assert_eq!(one.session().request(&allocate), end);
        assert_eq!(one.get(PATH).expect("read")[100..4100], [0; 4000]);
        assert_eq!(other.write(theirs, &[3; 5000], Some(0)), Ok(5000));
        let told = answered_by_the_next(&mut pool, &one, &allocate);
        assert_eq!(told, end);
        assert_eq!(one.get(PATH).expect("read"), [3; 5000], "{how}");
    }
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// A write that is too long for a message is one to all threads of its session, whatever these send meanwhile.
#[test]
fn nothing_of_the_session_comes_into_a_long_write() {
    const LONG: usize = 5 << 20;
    const TIMES: usize = 5;
    let pool = TestPool::new(256 << 20);
    let one = pool.session();
    plant(&one, b"");
    let append = || open(&one, libc::O_WRONLY | libc::O_APPEND);
    let mut short = 0;
    std::thread::scope(|scope| {
        let (long_handle, short_handle) = (append(), append());
        let one = &one;
        let long = scope.spawn(move || {
            for _ in 0..TIMES {
                assert_eq!(one.write(long_handle, &vec![b'l'; LONG], None), Ok(LONG));
            }
        });
        while !long.is_finished() {
            assert_eq!(one.write(short_handle, &[b's'; 100], None), Ok(100));
            short += 1;
        }
    });
    let all = one.get(PATH).expect("read");
    assert_eq!(all.len(), TIMES * LONG + short * 100);
    assert!(short > 0, "nothing was sent meanwhile");
    let mut at = 0;
    while at < all.len() {
        let length = if all[at] == b'l' { LONG } else { 100 };
        let other = all[at..at + length]
            .iter()
            .position(|byte| *byte != all[at]);
        assert_eq!(other, None, "of what begins at {at}");
        at += length;
    }
}

/// A file that a session has mapped is written by owners, however it was written before: each message would have pages kept
/// for the map. It is not found any more.
#[test]
fn what_is_mapped_is_written_by_its_owner() {
    for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
        let pool = pool();
        let (one, other) = (pool.session(), pool.session());
        one.put(PATH, &[0; 4096]).expect("a file");
        let handles = [open(&one, libc::O_RDWR), open(&other, libc::O_RDWR)];
        let found = (0..1000).any(|turn| {
            let session = [&one, &other][turn % 2];
            assert_eq!(
                session.write(handles[turn % 2], &[1; 100], Some(0)),
                Ok(100)
            );
            mediation(&one) == Mediation::Found
        });
        assert!(found);
        let request = MapRequest {
            address: 0,
            length: 4096,
            protection,
            flags: libc::MAP_SHARED,
            offset: 0,
        };
        // SAFETY: where the kernel likes.
        let map = unsafe { one.map(handles[0], &request) }.expect("mapped");
        let written = other.write(handles[1], &[2; 100], Some(0));
        match protection & libc::PROT_WRITE {
            0 => assert_eq!(written, Ok(100)),
            _ => assert_eq!(written, Err(Errno::TXTBSY)),
        }
        assert_eq!(mediation(&one), Mediation::Auto);
        // SAFETY: nobody uses it.
        unsafe { one.unmap(map, 4096) }.expect("unmapped");
        assert_eq!(other.write(handles[1], &[3; 100], Some(0)), Ok(100));
        assert!(owns(&other));
    }
}
