//! fallocate and SEEK_DATA/SEEK_HOLE against a model of bytes and pages, with folds, a second
//! session that reads, and kills in between.

use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, FileSystem, Handle};

const PAGE: u64 = 4096;
const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;

/// What a file should be.
#[derive(Clone, Default)]
struct Model {
    bytes: Vec<u8>,
    /// Which pages are data.
    data: Vec<bool>,
}

impl Model {
    fn resize(&mut self, size: u64) {
        self.bytes.resize(size as usize, 0);
        self.data.resize(size.div_ceil(PAGE) as usize, false);
    }

    fn reach(&mut self, end: u64) {
        if end > self.bytes.len() as u64 {
            self.resize(end);
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        self.reach(end);
        self.bytes[at as usize..end as usize].copy_from_slice(data);
        self.data[(at / PAGE) as usize..end.div_ceil(PAGE) as usize].fill(true);
    }

    /// The part of a range that lies in the file.
    fn clamp(&self, at: u64, end: u64) -> std::ops::Range<usize> {
        let size = self.bytes.len() as u64;
        at.min(size) as usize..end.min(size) as usize
    }

    fn pages(&self, from: u64, end: u64) -> std::ops::Range<usize> {
        let end = (end as usize).min(self.data.len());
        (from as usize).min(end)..end
    }

    fn allocate(&mut self, mode: i32, at: u64, end: u64) {
        if mode & KEEP == 0 {
            self.reach(end);
        }
        if mode & !KEEP != 0 {
            let range = self.clamp(at, end);
            self.bytes[range].fill(0);
        }
        if mode == PUNCH {
            let pages = self.pages(at.div_ceil(PAGE), end / PAGE);
            self.data[pages].fill(false);
        } else {
            let pages = self.pages(at / PAGE, end.div_ceil(PAGE));
            self.data[pages].fill(true);
        }
    }

    fn seek(&self, from: u64, data: bool) -> Result<u64, Errno> {
        let size = self.bytes.len() as u64;
        if from >= size {
            return Err(Errno::NXIO);
        }
        let page =
            (from / PAGE..size.div_ceil(PAGE)).find(|&page| self.data[page as usize] == data);
        match page {
            Some(page) => Ok((page * PAGE).max(from)),
            None if data => Err(Errno::NXIO),
            None => Ok(size),
        }
    }
}

fn check(session: &FileSystem, model: &Model, what: &str) {
    let content = session.get("f").unwrap();
    assert_eq!(content.len(), model.bytes.len(), "{what}");
    let wrong = content.iter().zip(&model.bytes).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{what}");
    let handle = session.open_at_root("f", libc::O_RDONLY).unwrap();
    let size = model.bytes.len() as u64;
    for from in (0..size + PAGE).step_by(PAGE as usize / 2) {
        for (whence, data) in [(libc::SEEK_DATA, true), (libc::SEEK_HOLE, false)] {
            assert_eq!(
                session.seek(handle, from as i64, whence),
                model.seek(from, data),
                "{what}: {from} {data}"
            );
        }
    }
    let allocated = model.data.iter().filter(|&&data| data).count() as u64;
    assert_eq!(
        session.stat_handle(handle).unwrap().blocks,
        allocated * 8,
        "{what}"
    );
    session.close(handle);
}

fn open(session: &FileSystem) -> Handle {
    session
        .open_at_root("f", libc::O_RDWR | libc::O_CREAT)
        .unwrap()
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut pool = TestPool::new(32 << 20);
    let mut session = pool.session();
    let mut handle = open(&session);
    let mut model = Model::default();
    for step in 0..120 {
        let at = random.below(12) * PAGE + *random.pick(&[0, 0, 0, 1, 100, 4095]);
        let length = 1 + *random.pick(&[0, 99, PAGE - 1, 2 * PAGE, 3 * PAGE - 1, 7 * PAGE]);
        let end = at + length;
        let what = format!("seed {seed} step {step} at {at} length {length}");
        match random.below(12) {
            0..4 => {
                let data = random.bytes(length as usize);
                assert_eq!(session.write(handle, &data, Some(at)), Ok(data.len()));
                model.write(at, &data);
            }
            4 => {
                session.truncate_handle(handle, at).unwrap();
                model.resize(at);
            }
            5 => session.fold(random.percent(50)).unwrap(),
            6 => {
                let other = pool.session();
                check(&other, &model, &what);
                other.disconnect().unwrap();
            }
            7 if random.percent(30) => {
                pool.kill();
                pool.serve();
                session = pool.session();
                handle = open(&session);
            }
            _ => {
                let mode = *random.pick(&[PUNCH, PUNCH, PUNCH, 0, KEEP, ZERO, ZERO | KEEP]);
                session.allocate(handle, mode, at, length).unwrap();
                model.allocate(mode, at, end);
            }
        }
        check(&session, &model, &what);
    }
    assert_eq!(pool.violations(), "");
}

#[test]
fn agrees_with_a_model() {
    for seed in 0..30 {
        run(seed);
    }
}

#[test]
fn errors_in_the_order_of_the_manual_page() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    let file = open(&session);
    let size = 1 << 47;
    let unsupported = [
        libc::FALLOC_FL_COLLAPSE_RANGE,
        libc::FALLOC_FL_INSERT_RANGE,
        libc::FALLOC_FL_UNSHARE_RANGE,
        libc::FALLOC_FL_PUNCH_HOLE,
        PUNCH | ZERO,
        1 << 20,
    ];
    for mode in unsupported {
        assert_eq!(
            session.allocate(file, mode, 0, 1),
            Err(Errno::OPNOTSUPP),
            "{mode:#x}"
        );
        assert_eq!(
            session.allocate(file, mode, 0, 0),
            Err(Errno::INVAL),
            "{mode:#x}"
        );
    }
    for mode in [0, KEEP, ZERO, ZERO | KEEP, PUNCH] {
        assert_eq!(session.allocate(file, mode, 0, 0), Err(Errno::INVAL));
        assert_eq!(session.allocate(file, mode, 1, size), Err(Errno::FBIG));
        assert_eq!(session.allocate(file, mode, u64::MAX, 2), Err(Errno::FBIG));
        for flags in [libc::O_RDONLY, libc::O_PATH] {
            let read_only = session.open_at_root("f", flags).unwrap();
            assert_eq!(session.allocate(read_only, mode, 0, 1), Err(Errno::BADF));
            session.close(read_only);
        }
    }
    session.make_directory(At::Root, b"d", 0o755).unwrap();
    let directory = session.open_at_root("d", libc::O_RDONLY).unwrap();
    assert_eq!(session.allocate(directory, 0, 0, 1), Err(Errno::BADF));
}

/// However a page has come into a file, it is gone when the file was cut: what is read where it was is zeroes, and the
/// space is there again, for the file and after a fold.
#[test]
fn what_is_cut_is_gone_however_it_came() {
    type Way = fn(&FileSystem, Handle);
    fn write(session: &FileSystem, file: Handle, at: u64, length: usize) {
        let data = vec![7; length];
        assert_eq!(session.write(file, &data, Some(at)), Ok(length));
    }
    let ways: [(&str, Way); 7] = [
        ("the first page", |session, file| {
            write(session, file, 0, 100)
        }),
        ("three pages", |session, file| {
            write(session, file, 0, 3 * 4096);
        }),
        ("page by page", |session, file| {
            (0..20).for_each(|page| write(session, file, page * PAGE, 4096));
        }),
        ("far away", |session, file| {
            write(session, file, 600 * PAGE, 10)
        }),
        ("allocated", |session, file| {
            session.allocate(file, 0, 0, 5 * PAGE).unwrap();
        }),
        ("allocated behind the end", |session, file| {
            write(session, file, 0, 10);
            session.allocate(file, KEEP, 8 * PAGE, 5 * PAGE).unwrap();
        }),
        ("in a hole", |session, file| {
            write(session, file, 30 * PAGE, 10);
            session.allocate(file, PUNCH, 0, 31 * PAGE).unwrap();
            write(session, file, 3 * PAGE, 10);
        }),
    ];
    for folded in [false, true] {
        for (what, way) in ways {
            let pool = TestPool::new(64 << 20);
            let (session, other) = (pool.session(), pool.session());
            let file = open(&session);
            for left in [0, 10, 2 * PAGE] {
                way(&session, file);
                if folded {
                    session.fold(false).unwrap();
                }
                let whole = session.stat_handle(file).unwrap().size;
                session.truncate_handle(file, left).unwrap();
                let what = format!("{what}, folded {folded}, cut to {left}");
                let kept = session.get("f").unwrap();
                let blocks = session.stat_handle(file).unwrap().blocks;
                assert!(blocks <= left.div_ceil(PAGE) * 8, "{what}: {blocks} blocks");
                session.truncate_handle(file, whole.max(40 * PAGE)).unwrap();
                for (who, session) in [("it", &session), ("another", &other)] {
                    let now = session.get("f").unwrap();
                    let (head, tail) = now.split_at(kept.len());
                    assert!(head == kept, "{what}: {who} reads other bytes");
                    assert!(tail.iter().all(|&byte| byte == 0), "{what}: {who}");
                }
                assert_eq!(session.stat_handle(file).unwrap().blocks, blocks, "{what}");
                session.truncate_handle(file, 0).unwrap();
            }
            session.fold(false).unwrap();
            assert_eq!(session.stat_handle(file).unwrap().blocks, 0, "{what}");
            session.close(file);
            assert_eq!(pool.violations(), "", "{what}");
        }
    }
}

/// What a cut frees can be used at once, however often: more is written than the pool has room for.
#[test]
fn what_is_cut_is_room_at_once() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    let file = open(&session);
    for (what, length) in [("the first page", 100), ("three pages", 3 * 4096)] {
        let data = vec![7; length];
        for _ in 0..12_000 {
            assert_eq!(session.write(file, &data, Some(0)), Ok(length), "{what}");
            session.truncate_handle(file, 0).unwrap();
        }
    }
    session.close(file);
    assert_eq!(pool.violations(), "");
}

/// A range that the pool has no room for is refused before anything changes.
#[test]
fn no_space_changes_nothing() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    let file = open(&session);
    let data = vec![7; 3 * PAGE as usize];
    session.write(file, &data, Some(PAGE)).unwrap();
    let before = session.stat_handle(file).unwrap();
    for mode in [0, KEEP, ZERO, ZERO | KEEP] {
        for length in [31 << 20, 33 << 20, 1 << 40, 1 << 46] {
            let refused = session.allocate(file, mode, 0, length);
            assert_eq!(refused, Err(Errno::NOSPC), "{mode:#x} {length}");
        }
    }
    assert_eq!(session.stat_handle(file).unwrap(), before);
    // There is room for what fits, again and again: nothing of the refused was kept.
    for _ in 0..3 {
        session.allocate(file, 0, 0, 16 << 20).unwrap();
        let stat = session.stat_handle(file).unwrap();
        assert_eq!((stat.size, stat.blocks), (16 << 20, (16 << 20) / 512));
        session.allocate(file, PUNCH, 0, 16 << 20).unwrap();
        let stat = session.stat_handle(file).unwrap();
        assert_eq!((stat.size, stat.blocks), (16 << 20, 0));
        session.fold(false).unwrap();
    }
    // What was allocated is there when the rest is full.
    session.allocate(file, 0, 0, 1 << 20).unwrap();
    let other = session
        .open_at_root("g", libc::O_RDWR | libc::O_CREAT)
        .unwrap();
    let piece = vec![1; 1 << 20];
    while session.write(other, &piece, None) == Ok(piece.len()) {}
    assert_eq!(session.write(file, &piece, Some(0)), Ok(piece.len()));
    assert_eq!(pool.violations(), "");
}

/// A sparse file costs what its data costs, not what its size is.
#[test]
fn sparse_files() {
    let pool = TestPool::new(32 << 20);
    let session = pool.session();
    let file = open(&session);
    let end: u64 = 16 << 40;
    session.write(file, b"x", Some(end - 1)).unwrap();
    session.write(file, b"x", Some(end / 2)).unwrap();
    for fold in [false, true] {
        if fold {
            session.fold(false).unwrap();
        }
        assert_eq!(session.seek(file, 0, libc::SEEK_DATA), Ok(end / 2));
        let hole = end / 2 + PAGE;
        assert_eq!(
            session.seek(file, end as i64 / 2, libc::SEEK_HOLE),
            Ok(hole)
        );
        assert_eq!(
            session.seek(file, hole as i64, libc::SEEK_DATA),
            Ok(end - PAGE)
        );
        assert_eq!(session.seek(file, end as i64 - 1, libc::SEEK_HOLE), Ok(end));
    }
    session.allocate(file, PUNCH, 0, end).unwrap();
    assert_eq!(session.seek(file, 0, libc::SEEK_DATA), Err(Errno::NXIO));
    assert_eq!(session.stat_handle(file).unwrap().blocks, 0);
    assert_eq!(pool.violations(), "");
}
