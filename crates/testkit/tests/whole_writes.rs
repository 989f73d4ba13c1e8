//! Reads and writes of one file by threads of one session: each is seen as a whole, however many
//! pages, steps or buffers it has, and whatever is folded meanwhile.

use arck_testkit::{Shorthand, StopAtEnd, TestPool};
use arckfs::{At, FileSystem, Handle};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POOL: u64 = 256 << 20;
const THREADS: usize = 4;

/// What two writers do while one thread reads.
struct Contest<W, R> {
    /// Of each write, in bytes; the file is two pages longer.
    length: usize,
    /// How long it is read, at the least.
    lasts: Duration,
    /// The session is folded all the time.
    folded: bool,
    /// The write of a round: all the bytes, always at the same place.
    write: W,
    /// The read of a round, there, into all of the buffer.
    read: R,
}

impl<W, R> Contest<W, R>
where
    W: Fn(&FileSystem, Handle, u64, &[u8]) + Sync,
    R: Fn(&FileSystem, Handle, u64, &mut [u8]) + Sync,
{
    /// Each write is of one byte over and over, no two writes in a row of the same: a read that
    /// finds two bytes has seen parts of two writes. Goes on until both writers have written.
    fn is_never_torn(&self) {
        /// Writes of each writer, at the least.
        const WRITES: u64 = 3;
        /// For what scheduling alone can hold off.
        const PATIENCE: Duration = Duration::from_secs(300);
        let pool = TestPool::new(POOL);
        let one = pool.session();
        one.put("file", &vec![0; self.length + 2 * 4096]).unwrap();
        let stop = AtomicBool::new(false);
        let written = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            let mut writers = Vec::new();
            for (writer, written) in written.iter().enumerate() {
                let (one, stop) = (&one, &stop);
                writers.push(scope.spawn(move || {
                    let handle = one.open_at_root("file", libc::O_WRONLY).expect("open");
                    let mut round = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        let fill = (2 * round + writer as u64 + 1) as u8;
                        (self.write)(one, handle, round, &vec![fill; self.length]);
                        written.fetch_add(1, Ordering::Relaxed);
                        round += 1;
                    }
                    one.close(handle);
                }));
            }
            if self.folded {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        one.fold(false).expect("fold");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let begun = Instant::now();
            let enough = || {
                let all = written
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) >= WRITES);
                all && begun.elapsed() >= self.lasts
            };
            let handle = one.open_at_root("file", libc::O_RDONLY).unwrap();
            let mut buffer = vec![0; self.length];
            let mut round = 0;
            // A writer that is finished has panicked: the scope tells.
            while !enough() && !writers.iter().any(|writer| writer.is_finished()) {
                assert!(begun.elapsed() < PATIENCE, "written: {written:?}");
                (self.read)(&one, handle, round, &mut buffer);
                let torn = buffer.iter().position(|&byte| byte != buffer[0]);
                assert_eq!(torn, None, "a read sees parts of two writes");
                round += 1;
            }
        });
    }
}

#[test]
fn a_handle_shared_by_threads_has_one_offset() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    let handle = one
        .open_at_root("file", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u8 {
            let one = &one;
            scope.spawn(move || {
                for _ in 0..2000 {
                    assert_eq!(one.write(handle, &[thread; 100], None), Ok(100));
                }
            });
        }
    });
    let content = one.get("file").unwrap();
    assert_eq!(content.len(), THREADS * 2000 * 100);
    let mut counts = [0; THREADS];
    for piece in content.chunks(100) {
        assert!(piece.iter().all(|&byte| byte == piece[0]), "a torn write");
        counts[piece[0] as usize] += 1;
    }
    assert_eq!(counts, [2000; THREADS]);
}

#[test]
fn a_page_is_read_as_it_was_written() {
    Contest {
        length: 4096,
        lasts: Duration::from_millis(1500),
        folded: true,
        write: |one: &FileSystem, handle, _, bytes: &[u8]| {
            assert_eq!(one.write(handle, bytes, Some(0)), Ok(bytes.len()));
        },
        read: |one: &FileSystem, handle, _, buffer: &mut [u8]| {
            assert_eq!(one.read(handle, buffer, Some(0)), Ok(buffer.len()));
        },
    }
    .is_never_torn();
}

/// Reads of up to 64 KiB, across pages.
#[test]
fn a_read_across_pages_sees_one_write() {
    const PLACE: u64 = 1000;
    Contest {
        length: 64 << 10,
        lasts: Duration::from_millis(1000),
        folded: false,
        write: |one: &FileSystem, handle, _, bytes: &[u8]| {
            assert_eq!(one.write(handle, bytes, Some(PLACE)), Ok(bytes.len()));
        },
        read: |one: &FileSystem, handle, _, buffer: &mut [u8]| {
            assert_eq!(one.read(handle, buffer, Some(PLACE)), Ok(buffer.len()));
        },
    }
    .is_never_torn();
}

/// Of several steps (5 MiB), or of several buffers.
#[test]
fn a_long_write_is_one_write() {
    const LENGTH: usize = 5 << 20;
    Contest {
        length: LENGTH,
        lasts: Duration::from_millis(1500),
        folded: false,
        write: |one: &FileSystem, handle, round, bytes: &[u8]| {
            let written = match round % 2 {
                0 => one.write(handle, bytes, Some(0)),
                _ => one.write_vector(handle, bytes.chunks(1 << 20), Some(0), None),
            };
            assert_eq!(written, Ok(LENGTH));
        },
        read: |one: &FileSystem, handle, round, buffer: &mut [u8]| {
            let read = match round % 2 {
                0 => one.read(handle, buffer, Some(0)),
                _ => one.read_vector(handle, buffer.chunks_mut(LENGTH / 3), Some(0)),
            };
            assert_eq!(read, Ok(LENGTH));
        },
    }
    .is_never_torn();
}

/// Appends of several steps, whole or of several buffers, from several threads, with a session
/// that reads and one that folds: nobody's bytes come between another's.
#[test]
fn long_appends_do_not_mix() {
    const LENGTH: usize = (5 << 20) + 1234;
    const APPENDS: usize = 4;
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("log", b"").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3u8)
            .map(|thread| {
                let one = &one;
                scope.spawn(move || {
                    let flags = libc::O_WRONLY | libc::O_APPEND;
                    let handle = one.open_at_root("log", flags).expect("open");
                    let bytes = vec![thread; LENGTH];
                    for _ in 0..APPENDS {
                        let written = match thread {
                            1 => one.write_vector(handle, bytes.chunks(LENGTH / 7 + 1), None, None),
                            _ => one.write(handle, &bytes, None),
                        };
                        assert_eq!(written, Ok(LENGTH));
                    }
                    one.close(handle);
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                two.stat(At::Root, b"log", 0).expect("stat");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
        done.store(true, Ordering::Relaxed);
    });
    let content = two.get("log").unwrap();
    assert_eq!(content.len(), 3 * APPENDS * LENGTH);
    for (place, piece) in content.chunks(LENGTH).enumerate() {
        let other = piece.iter().position(|&byte| byte != piece[0]);
        assert_eq!(other, None, "append {place} is mixed with another");
    }
}
