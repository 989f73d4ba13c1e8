//! What survivors have when a member has died inside the LibFS, and the auxiliary state was built anew.

use crate::{POOL, Process};
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, Errno, FileSystem, Handle, MapRequest, Subject};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// Of a process that is to die inside: goes in, and stays there until it is told something.
pub fn stay_inside(fs: &FileSystem) {
    let slot = fs.session().thread().expect("a thread").slot();
    // As every operation: not while the auxiliary state is built anew.
    let inside = loop {
        let inside = slot.pin();
        if !slot.region().is_damaged() {
            break inside;
        }
        drop(inside);
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    println!("inside");
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(inside);
    println!("outside");
}

/// A process of the group that is inside.
pub fn inside(pool: &TestPool, fs: &FileSystem) -> Process {
    let mut process = Process::start(pool, "inside");
    assert_eq!(process.says(), fs.session().number().to_string());
    assert_eq!(process.says(), "inside");
    process
}

/// A member dies inside, and the auxiliary state has been built anew.
fn one_dies_inside(pool: &TestPool, fs: &FileSystem) {
    let before = fs.session().region().build();
    inside(pool, fs).kill();
    while fs.session().region().build() == before || fs.session().region().is_damaged() {
        fs.stat(At::Root, b"/", 0).expect("the root");
    }
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    arck_testkit::Random::new(seed).bytes(length)
}

fn read_all(fs: &FileSystem, handle: Handle) -> Vec<u8> {
    let size = fs.stat_handle(handle).expect("stat").size as usize;
    let mut bytes = vec![0; size + 1];
    assert_eq!(fs.read(handle, &mut bytes, Some(0)), Ok(size));
    bytes.truncate(size);
    bytes
}

/// Files that the controller has never known of, since they were opened without a name, or lost it
/// before a fold: all of them, as they were, again and again; and one of them gets a name in the end.
pub fn open_files_without_names_go_on() {
    let pool = TestPool::new(POOL);
    let members: Vec<FileSystem> = (0..2).map(|_| connect_as(&pool.path(), b"g")).collect();
    let fs = &members[0];
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    fs.fold(false).expect("a fold");
    let tmpfile = libc::O_TMPFILE | libc::O_RDWR;
    let lengths = [0, 100, 4096, 100_000, 3 << 20];
    let open = |fs: &FileSystem, at: usize, length: usize| -> (Handle, Vec<u8>) {
        let handle = if at.is_multiple_of(2) {
            fs.open(At::Root, b"d", tmpfile, 0o640).expect("O_TMPFILE")
        } else {
            let name = format!("d/{at}");
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let handle = fs.open(At::Root, name.as_bytes(), flags, 0o640);
            fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
            handle.expect("a new file")
        };
        let bytes = content(at as u64, length);
        assert_eq!(fs.write(handle, &bytes, Some(0)), Ok(length));
        (handle, bytes)
    };
    let mut files = Vec::new();
    for (at, length) in lengths.into_iter().cycle().take(20).enumerate() {
        let member = &members[at / 2 % 2];
        let (handle, bytes) = open(member, at, length);
        files.push((member, handle, bytes));
    }
    // One with holes, other rights and an extended attribute.
    let (sparse, _) = open(fs, 100, 10);
    assert_eq!(fs.write(sparse, b"far", Some(5000 * PAGE)), Ok(3));
    fs.change_mode_handle(sparse, 0o604).expect("chmod");
    fs.set_extended(Subject::Handle(sparse), b"user.a", b"value", 0)
        .expect("an attribute");
    fs.make_directory(At::Root, b"d/gone", 0o700)
        .expect("mkdir");
    let gone = fs
        .open_at_root("d/gone", libc::O_RDONLY | libc::O_DIRECTORY)
        .expect("open");
    fs.unlink(At::Root, b"d/gone", libc::AT_REMOVEDIR)
        .expect("rmdir");
    let before: Vec<_> = files
        .iter()
        .map(|(fs, handle, _)| fs.stat_handle(*handle))
        .collect();
    let sparse_before = fs.stat_handle(sparse).expect("stat");
    let gone_before = fs.stat_handle(gone).expect("stat");

    for round in 0..3 {
        one_dies_inside(&pool, fs);
        // What is free now is used for others.
        for at in 0..30 {
            fs.put(&format!("d/other-{at}"), &content(at, 50_000))
                .expect("put");
        }
        for (at, (fs, handle, bytes)) in files.iter_mut().enumerate() {
            if round == 0 {
                assert_eq!(fs.stat_handle(*handle), before[at], "file {at}");
            }
            assert!(read_all(fs, *handle) == *bytes, "round {round}, file {at}");
            let more = content(at as u64 + round, 5000);
            let end = bytes.len() as u64;
            assert_eq!(fs.write(*handle, &more, Some(end)), Ok(5000));
            bytes.extend_from_slice(&more);
            bytes.truncate(bytes.len() - 100);
            fs.truncate_handle(*handle, bytes.len() as u64)
                .expect("truncate");
        }
        assert_eq!(fs.stat_handle(sparse), Ok(sparse_before));
        assert_eq!(fs.stat_handle(gone), Ok(gone_before));
        let mut far = [1; 8];
        assert_eq!(fs.read(sparse, &mut far, Some(5000 * PAGE - 5)), Ok(8));
        assert_eq!(&far, b"\0\0\0\0\0far");
        let mut value = [0; 16];
        let length = fs.get_extended(Subject::Handle(sparse), b"user.a", &mut value);
        assert_eq!(
            length.map(|length| value[..length].to_vec()),
            Ok(b"value".to_vec())
        );
        assert_eq!(fs.names_of(gone), Err(Errno::NOENT));
    }
    let (owner, handle, bytes) = &files[8];
    owner
        .link(
            At::Directory(*handle),
            b"",
            At::Root,
            b"d/linked",
            libc::AT_EMPTY_PATH,
        )
        .expect("a name");
    let reader = pool.session();
    assert_eq!(reader.get("d/linked").as_ref(), Ok(bytes));
    let uncommitted = crate::granted(fs);
    for (fs, handle, _) in files {
        fs.close(handle);
    }
    fs.close(sparse);
    fs.close(gone);
    one_dies_inside(&pool, fs);
    // Numbers and pages of what has ended are used again.
    for at in 0..uncommitted {
        fs.put(&format!("d/new-{at}"), b"new").expect("put");
    }
    for at in 0..uncommitted {
        assert_eq!(
            reader.get(&format!("d/new-{at}")).as_deref(),
            Ok(&b"new"[..])
        );
    }
    assert_eq!(pool.violations(), "");
}

/// The names in what a call has filled.
fn names_in(mut records: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(length) = records.get(16..18) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let name = records[19..length].split(|&byte| byte == 0).next();
        names.push(String::from_utf8_lossy(name.expect("a name")).into_owned());
        records = &records[length..];
    }
    names
}

/// Names that are there all along are listed once, however often the auxiliary state is built anew while
/// the directory is read.
pub fn a_listing_goes_on_where_it_was() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    let stays = |at: u64| format!("stays-{at}");
    for at in 0..200 {
        if at == 100 {
            fs.fold(true).expect("a fold");
        }
        fs.put(&format!("d/{}", stays(at)), b"").expect("put");
        fs.put(&format!("d/goes-{at}"), b"").expect("put");
    }
    let handle = fs
        .open_at_root("d", libc::O_RDONLY | libc::O_DIRECTORY)
        .expect("open");
    let mut seen = Vec::new();
    let mut buffer = [0; 1000];
    for round in 0.. {
        let used = fs.read_directory(handle, &mut buffer).expect("a part");
        if used == 0 {
            break;
        }
        seen.extend(names_in(&buffer[..used]));
        if round < 5 {
            one_dies_inside(&pool, &fs);
            let name = format!("d/goes-{}", 190 - round);
            fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
            fs.put(&format!("d/comes-{round}"), b"").expect("put");
        }
    }
    let all: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(all.len(), seen.len(), "a name was listed twice");
    for at in 0..200 {
        assert!(all.contains(&stays(at)), "{} was not listed", stays(at));
    }
    fs.seek(handle, 0, libc::SEEK_SET).expect("rewinddir");
    assert_eq!(fs.names_of(handle), fs.names("d").map_err(|_| Errno::IO));
    fs.close(handle);
}

/// A file that is mapped and open stays open when the map goes.
pub fn maps_are_not_descriptors() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    for is_known in [false, true] {
        fs.put("file", b"here").expect("put");
        let handle = fs.open_at_root("file", libc::O_RDWR).expect("open");
        if is_known {
            fs.fold(false).expect("a fold");
        }
        fs.unlink(At::Root, b"file", 0).expect("unlink");
        let request = MapRequest {
            address: 0,
            length: 4096,
            protection: libc::PROT_READ | libc::PROT_WRITE,
            flags: libc::MAP_SHARED,
            offset: 0,
        };
        // SAFETY: where the kernel likes.
        let address = unsafe { fs.map(handle, &request).expect("a map") };
        one_dies_inside(&pool, &fs);
        assert_eq!(fs.write(handle, b"HE", Some(0)), Ok(2));
        // SAFETY: mapped above.
        assert_eq!(unsafe { *(address as *const [u8; 4]) }, *b"HEre");
        // SAFETY: nobody uses it any more.
        unsafe { fs.unmap(address, 4096).expect("unmap") };
        fs.fold(false).expect("a fold");
        // Whatever was freed is used.
        for at in 0..100 {
            fs.put(&format!("other-{at}"), b"other").expect("put");
        }
        fs.fold(false).expect("a fold");
        assert_eq!(read_all(&fs, handle), b"HEre", "known: {is_known}");
        fs.close(handle);
    }
}

/// Threads that write at one offset, while members die inside: each write has its place.
pub fn an_offset_is_one_threads_at_a_time() {
    const WRITES: usize = 4000;
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    let handle = fs
        .open_at_root("file", libc::O_RDWR | libc::O_CREAT)
        .expect("open");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    for at in 0..WRITES as u64 {
                        let word = (thread << 32 | at).to_le_bytes();
                        assert_eq!(fs.write(handle, &word, None), Ok(8));
                        // Whoever waits for the lock of the description is a while behind.
                        if at % 64 == 0 {
                            std::thread::sleep(std::time::Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        // Also when a writer has failed.
        let over = crate::TellOver(&is_over);
        let killer = scope.spawn(|| {
            let mut killed = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let mut one = inside(&pool, &fs);
                let mut two = inside(&pool, &fs);
                one.kill();
                // The others wait for this one, for longer than a wait for a lock takes to look.
                std::thread::sleep(std::time::Duration::from_millis(120));
                two.kill();
                killed += 1;
            }
            killed
        });
        writers
            .into_iter()
            .for_each(|thread| thread.join().expect("a writer"));
        drop(over);
        assert!(killer.join().expect("a killer") > 0);
    });
    let bytes = read_all(&fs, handle);
    let words: BTreeSet<[u8; 8]> = bytes.as_chunks::<8>().0.iter().copied().collect();
    assert_eq!((bytes.len(), words.len()), (3 * WRITES * 8, 3 * WRITES));
}

/// Bytes of memory behind the group's region.
pub fn region_memory(fs: &FileSystem) -> u64 {
    let size = fs.session().region().size();
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("descriptors");
    let files = descriptors.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
    let mut regions = files.filter(|file| file.len() == size);
    regions.next().expect("the region's file").blocks() * 512
}

/// However often the auxiliary state is built anew, the group's memory holds no more than two of it.
pub fn memory_of_what_was_comes_back() {
    const FILES: usize = 4000;
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    for at in 0..FILES {
        fs.put(&format!("d/file-with-a-name-{at}"), b"")
            .expect("put");
    }
    let mut after = Vec::new();
    for _ in 0..40 {
        for at in 0..FILES {
            let name = format!("d/file-with-a-name-{at}");
            fs.change_mode(At::Root, name.as_bytes(), 0o600, 0)
                .expect("chmod");
        }
        after.push(region_memory(&fs));
        one_dies_inside(&pool, &fs);
    }
    let (early, late) = (after[4], after[after.len() - 1]);
    println!(
        "{} KiB after 5 times, {} KiB after 40",
        early >> 10,
        late >> 10
    );
    assert!(late < early + early / 4, "{after:?}");
    assert_eq!(fs.names("d").map(|names| names.len()), Ok(FILES));
}

/// Buffers for a read that are there only when they are wanted; until then the read holds what it has.
struct Late<'t> {
    /// 1 = it is waited for; 2 = they are wanted.
    turn: &'t AtomicU32,
    buffers: [Vec<u8>; 1],
}

impl<'t> Late<'t> {
    fn read(fs: &FileSystem, handle: Handle, turn: &'t AtomicU32) -> Result<usize, Errno> {
        let mut late = Late {
            turn,
            buffers: [vec![0; 16]],
        };
        let buffers = late.buffers.iter_mut().map(|buffer| {
            late.turn.store(1, Ordering::SeqCst);
            while late.turn.load(Ordering::SeqCst) != 2 {
                std::thread::sleep(Duration::from_micros(50));
            }
            buffer.as_mut_slice()
        });
        fs.read_vector(handle, buffers, None)
    }
}

/// Two threads close a descriptor each of a file, while a third is reading at its offset: whoever waits
/// for that one keeps nobody from building the auxiliary state anew, for which the reader may have to wait.
pub fn who_closes_waits_outside() {
    const ROUNDS: usize = 600;
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.put("file", b"here").expect("put");
    let slot = fs.session().thread().expect("a thread").slot();
    let region = fs.session().region();
    let until = |what: &str, round: usize, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !is_so() {
            assert!(Instant::now() < deadline, "round {round}: {what}");
            std::thread::sleep(Duration::from_micros(20));
        }
    };
    for round in 0..ROUNDS {
        let handle = fs.open_at_root("file", libc::O_RDWR).expect("open");
        fs.retain(handle).expect("one more");
        let (turn, begun, ended) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| Late::read(&fs, handle, &turn));
            until("no reader", round, &|| turn.load(Ordering::SeqCst) == 1);
            // Also when something has failed.
            let _goes_on = GoesOn(&turn);
            for _ in 0..2 {
                scope.spawn(|| {
                    // A place in the session first.
                    fs.stat(At::Root, b"/", 0).expect("the root");
                    begun.fetch_add(1, Ordering::SeqCst);
                    while begun.load(Ordering::SeqCst) != 2 {
                        std::hint::spin_loop();
                    }
                    fs.close(handle);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            until("none has closed", round, &|| {
                ended.load(Ordering::SeqCst) == 1
            });
            until("who waits is inside", round, &|| {
                region.is_left_by_all_but(slot)
            });
            if round % 100 == 0 {
                // The reader has to wait for that, the other who closes for the reader.
                inside(&pool, &fs).kill();
                until("nobody tells", round, &|| fs.session().any_departed());
            }
            turn.store(2, Ordering::SeqCst);
            until("it is still being closed", round, &|| {
                ended.load(Ordering::SeqCst) == 2
            });
            // Closed before it has read, or after.
            let read = reader.join().expect("a reader");
            assert!(matches!(read, Ok(4) | Err(Errno::BADF)), "{read:?}");
        });
        assert_eq!(fs.stat_handle(handle), Err(Errno::BADF));
    }
    assert_eq!(pool.violations(), "");
}

/// Lets the reader go on.
struct GoesOn<'a>(&'a AtomicU32);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.store(2, Ordering::SeqCst);
    }
}
