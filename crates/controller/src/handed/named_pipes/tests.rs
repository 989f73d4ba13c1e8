use super::*;
use rustix::io::{read, write};

const USER: u32 = 5;
const KEY: Key = (7, 1);

struct Pool {
    place: tempfile::TempDir,
    directory: OwnedFd,
    pipes: NamedPipes,
}

impl Pool {
    fn new() -> Pool {
        let place = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = rustix::fs::open(place.path(), flags, Mode::empty()).unwrap();
        let pipes = NamedPipes::open(&directory, |_| true).unwrap();
        Pool {
            place,
            directory,
            pipes,
        }
    }

    /// As another controller finds it.
    fn again(&mut self, is_there: impl Fn(Key) -> bool) {
        self.pipes = NamedPipes::open(&self.directory, is_there).unwrap();
    }

    fn open_for(
        &mut self,
        key: Key,
        access: Access,
        waits: bool,
        user: u32,
    ) -> Result<Opened, Errno> {
        let asked = (access, waits);
        self.pipes
            .open_one(&self.directory, key, asked, user, |_| true)
    }

    fn open(&mut self, access: Access, waits: bool) -> Result<Opened, Errno> {
        self.open_for(KEY, access, waits, USER)
    }

    fn now(&mut self, access: Access, waits: bool) -> OwnedFd {
        match self.open(access, waits) {
            Ok(Opened::Now(file)) => file,
            other => panic!("{access:?} {waits}: {other:?}"),
        }
    }

    fn later(&mut self, access: Access) -> OwnedFd {
        match self.open(access, true) {
            Ok(Opened::Later(ticket)) => ticket,
            other => panic!("{access:?}: {other:?}"),
        }
    }

    fn count(&self) -> usize {
        let listed = std::fs::read_dir(self.place.path().join(NAMED_PIPES));
        listed.map_or(0, |listed| listed.count())
    }
}

/// What has come by a ticket.
fn come(ticket: &OwnedFd) -> Option<OwnedFd> {
    rustix::fs::fcntl_setfl(ticket, OFlags::NONBLOCK).unwrap();
    let mut byte = [0; 2];
    let (length, mut files) = arck_protocol::socket::receive(ticket.as_fd(), &mut byte).ok()?;
    assert_eq!((&byte[..length], files.len()), (HERE, 1));
    let (length, none) = arck_protocol::socket::receive(ticket.as_fd(), &mut byte).unwrap();
    assert_eq!((&byte[..length], none.len()), (GO, 0));
    files.pop()
}

fn mode(file: &OwnedFd) -> OFlags {
    rustix::fs::fcntl_getfl(file).unwrap() & (OFlags::RWMODE | OFlags::NONBLOCK)
}

fn take(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut bytes = [0; 16];
    let length = read(file, &mut bytes)?;
    Ok(bytes[..length].to_vec())
}

#[test]
fn who_does_not_wait_is_told_who_is_there() {
    let mut pool = Pool::new();
    assert_eq!(pool.open(Access::Write, false).err(), Some(Errno::NXIO));
    let reader = pool.now(Access::Read, false);
    assert_eq!(take(&reader), Ok(vec![]));
    let writer = pool.now(Access::Write, false);
    assert_eq!(take(&reader), Err(Errno::AGAIN));
    write(&writer, b"told").unwrap();
    assert_eq!(take(&reader), Ok(b"told".to_vec()));
    drop(writer);
    let reads = OFlags::RDONLY | OFlags::NONBLOCK;
    assert_eq!(mode(&reader), reads);
    drop(reader);
    assert_eq!(pool.open(Access::Write, false).err(), Some(Errno::NXIO));
    let both = pool.now(Access::ReadWrite, true);
    assert_eq!(mode(&both), OFlags::RDWR);
}

#[test]
fn whoever_comes_brings_in_all_who_wait_and_finds_them_there() {
    for (first, second) in [
        (Access::Read, Access::Write),
        (Access::Read, Access::ReadWrite),
        (Access::Write, Access::Read),
        (Access::Write, Access::ReadWrite),
    ] {
        for waits in [false, true] {
            let mut pool = Pool::new();
            let tickets = [(); 3].map(|()| pool.later(first));
            assert!(tickets.iter().all(|ticket| come(ticket).is_none()));
            let other = pool.now(second, waits);
            let ends = tickets.map(|ticket| come(&ticket).expect("it has come"));
            let expected = match first {
                Access::Read => OFlags::RDONLY,
                _ => OFlags::WRONLY,
            };
            assert!(ends.iter().all(|end| mode(end) == expected));
            match first {
                Access::Read => write(&other, b"x").map(drop).unwrap(),
                _ => ends
                    .iter()
                    .for_each(|end| write(end, b"x").map(drop).unwrap()),
            }
            assert!(pool.pipes.waiting.is_empty());
        }
    }
}

#[test]
fn who_waits_no_more_is_not_there() {
    let mut pool = Pool::new();
    drop(pool.later(Access::Read));
    assert_eq!(pool.open(Access::Write, false).err(), Some(Errno::NXIO));
    drop(pool.later(Access::Write));
    let reader = pool.now(Access::Read, false);
    assert_eq!(take(&reader), Ok(vec![]));
    drop(reader);
    // One of two.
    let gone = pool.later(Access::Read);
    let stays = pool.later(Access::Read);
    drop(gone);
    let writer = pool.now(Access::Write, false);
    let reader = come(&stays).unwrap();
    write(&writer, b"x").unwrap();
    assert_eq!(take(&reader), Ok(b"x".to_vec()));
}

/// A writer that is gone has left bytes for another reader, which are neither taken nor taken for the writer.
#[test]
fn bytes_are_no_writer() {
    let mut pool = Pool::new();
    let reader = pool.now(Access::Read, false);
    let writer = pool.now(Access::Write, true);
    write(&writer, b"left").unwrap();
    let other = pool.now(Access::Read, true);
    drop(writer);
    let ticket = pool.later(Access::Read);
    drop(other);
    assert!(come(&ticket).is_none());
    assert_eq!(take(&reader), Ok(b"left".to_vec()));
    assert_eq!(take(&reader), Ok(vec![]));
    let _writer = pool.now(Access::Write, false);
    assert!(come(&ticket).is_some());
}

/// Nobody else is told of a writer by what the controller does to find one.
#[test]
fn asking_is_not_seen() {
    let mut pool = Pool::new();
    let reader = pool.now(Access::Read, false);
    let _ticket = pool.later(Access::Read);
    assert!(pool.open(Access::Read, true).is_ok());
    let mut asked = [PollFd::new(&reader, PollFlags::IN)];
    assert_eq!(poll(&mut asked, Some(&Timespec::default())), Ok(0));
}

/// Who has one end cannot open the other by it, unless the controller is his.
#[test]
fn a_descriptor_grants_no_more_than_it_says() {
    let mut pool = Pool::new();
    let reader = pool.now(Access::Read, false);
    let status = rustix::fs::fstat(&reader).unwrap();
    assert_eq!(status.st_mode & 0o7777, 0o600);
    // SAFETY: no arguments.
    assert_eq!(status.st_uid, unsafe { libc::geteuid() });
    assert_eq!(write(&reader, b"x"), Err(Errno::BADF));
}

#[test]
fn what_is_open_is_met_under_another_controller() {
    let mut pool = Pool::new();
    let reader = pool.now(Access::Read, false);
    let ticket = pool.open_for((8, 1), Access::Read, true, USER);
    let Ok(Opened::Later(waiting)) = ticket else {
        panic!("{ticket:?}")
    };
    pool.again(|_| true);
    // Who waited is told that there is nobody any more who would tell him.
    let told = arck_protocol::socket::receive(waiting.as_fd(), &mut [0; 2]).unwrap();
    assert_eq!((told.0, told.1.len()), (0, 0));
    let writer = pool.now(Access::Write, false);
    write(&writer, b"met").unwrap();
    assert_eq!(take(&reader), Ok(b"met".to_vec()));
    // Those of inodes that are gone are removed.
    assert_eq!(pool.count(), 2);
    pool.again(|key| key != (8, 1));
    assert_eq!(pool.count(), 1);
    pool.pipes.close(&pool.directory);
    assert_eq!(pool.count(), 1, "it is open");
    drop((reader, writer));
    pool.again(|_| true);
    pool.pipes.close(&pool.directory);
    assert!(!pool.place.path().join(NAMED_PIPES).exists());
}

#[test]
fn what_nobody_has_open_counts_to_nobody_in_the_end() {
    let mut pool = Pool::new();
    let kept = pool.now(Access::ReadWrite, false);
    for number in 100..100 + USER_MAX as u32 + 50 {
        pool.open_for((number, 1), Access::ReadWrite, false, USER)
            .unwrap_or_else(|errno| panic!("{number}: {errno}"));
    }
    assert!(pool.count() <= USER_MAX);
    // The one that is open is still the one.
    write(&kept, b"x").unwrap();
    assert_eq!(take(&pool.now(Access::Read, false)), Ok(b"x".to_vec()));
}

#[test]
fn one_user_leaves_others_theirs() {
    let mut pool = Pool::new();
    pool.pipes.nodes.count_as_made(USER, USER_MAX);
    let opened = pool.open(Access::ReadWrite, false);
    assert_eq!(opened.err(), Some(Errno::NFILE));
    let other = pool.open_for(KEY, Access::ReadWrite, false, USER + 1);
    assert!(other.is_ok());
    drop(other);
    // It is there: at nobody's new expense.
    pool.now(Access::ReadWrite, false);
    // Tickets.
    let waiting = (0..WAITING_MAX as u32).map(|number| {
        let opened = pool.open_for(KEY, Access::Read, true, 100 + number % 2);
        let Ok(Opened::Later(ticket)) = opened else {
            panic!("{number}: {opened:?}")
        };
        ticket
    });
    let waiting: Vec<OwnedFd> = waiting.collect();
    let more: Vec<Opened> = (0..WAITING_MAX / 2)
        .map(|_| pool.open_for(KEY, Access::Read, true, 100).unwrap())
        .collect();
    let too_many = pool.open_for(KEY, Access::Read, true, 100);
    assert_eq!(too_many.err(), Some(Errno::NFILE));
    assert!(pool.open_for(KEY, Access::Read, true, 101).is_ok());
    drop((waiting, more));
    assert!(pool.open_for(KEY, Access::Read, true, 100).is_ok());
}

/// Whoever holds a FIFO's lock keeps nobody waiting for longer than some time, and only those who want that one.
#[test]
fn a_fifo_that_is_held_up_is_busy() {
    let mut pool = Pool::new();
    let (hold, wait) = std::sync::mpsc::channel::<()>();
    let held = pool
        .pipes
        .careful
        .has_done(KEY, USER, move || wait.recv().is_err());
    assert_eq!(held, None);
    assert!(
        pool.open_for((8, 1), Access::ReadWrite, false, USER)
            .is_ok()
    );
    let reader = pool.open(Access::Read, false);
    assert_eq!(reader.err(), Some(Errno::BUSY));
    drop(hold);
    let since = std::time::Instant::now();
    while pool.open(Access::Read, false).is_err() {
        assert!(since.elapsed() < std::time::Duration::from_secs(20));
        std::thread::yield_now();
    }
}

#[test]
fn only_its_own_fifo_is_an_inodes() {
    let mut pool = Pool::new();
    let own = pool.now(Access::Read, false);
    let Ok(Opened::Now(other)) = pool.open_for((8, 1), Access::Read, false, USER) else {
        panic!()
    };
    let (end, _) = rustix::pipe::pipe().unwrap();
    let is_of = |file: &OwnedFd| pool.pipes.is_of(KEY, file.as_fd());
    assert!(is_of(&own) && !is_of(&other) && !is_of(&end));
}
