//! Attacks that hold others up: sessions that stop, spin, never answer, or claim what is others'.
//!
//! # Invariant
//! * What the attacker owns is what a latecomer wants to write and the victim wants to read.

use super::attacker::{Attacker, all_the_same, errno_name};
use super::process::Role;
use super::raw::Client;
use super::table::{Attack, Scene, case};
use super::world::OPEN;
use arck_core_state::index::IndexRoot;
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr};
use arck_protocol::control::{MAP_SLOTS, map_entry};
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{Access, Answer, Call, HandedOn, call, receive_answer, send};
use arck_protocol::{InodeList, Request};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Of fcntl(2).
const F_SETSIG: libc::c_int = 10;
pub const BOUNDED: &str = "a bounded wait";
/// Folds with an operation in flight that never asks for a fold copy.
const STRADDLED_FOLDS: u64 = 300;
const FOLD_COPY_PAGES: u64 = 256;
/// Sessions that each have fold copies kept.
const FOLD_COPY_SESSIONS: usize = 6;
/// Sessions with an arena that is locked.
const LOCKED_SESSIONS: usize = 40;
/// Inodes of which each has to be folded with the next.
const CHAIN: usize = 6000;

/// Owns what others want, with something to fold in it.
pub fn owns_open(a: &mut Attacker) -> InodeNumber {
    let directory = a.own(OPEN);
    a.creation_with(directory, b"attackers", |_| {});
    directory
}

/// A stopped process holds what it owns no longer than others wait.
fn stopped(scene: &mut Scene, attacker: &mut Role) {
    attacker.signal(Signal::STOP);
    scene.victim_works();
    scene.third_works();
    scene.third_works();
    attacker.signal(Signal::CONT);
}

/// All descriptors that a session is sent, of a session that does nothing else.
pub fn received(a: &Attacker) -> (OwnedFd, Vec<OwnedFd>) {
    let socket = super::raw::dial(&a.pool);
    let (_, mut descriptors) = call(&socket, &Call::hello(b"")).expect("an answer");
    let (_, segment) = call(&socket, &Call::GrantSegment).expect("an answer");
    descriptors.extend(segment);
    (socket, descriptors)
}

fn last_errno() -> String {
    errno_name(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// The lock file of an inode, or why there is none.
pub fn lock_file(a: &Attacker, inode: InodeNumber, access: Access) -> Result<OwnedFd, String> {
    let asked = Call::LockFile {
        inode,
        generation: a.header(inode).generation(),
        access,
    };
    match call(&a.socket, &asked).expect("an answer") {
        (Answer::Done, mut files) => files.pop().ok_or_else(|| "no descriptor".into()),
        (Answer::Error(errno, _), _) => Err(errno_name(errno)),
        (other, _) => Err(format!("{other:?}")),
    }
}

/// Has a lock file of its own so that whoever opens it, closes it, or asks its size waits for ever, and then asks
/// for all by which a controller would: the same file again, in each mode; others, so that this one is looked at;
/// and that it be kept, or a pipe that is none of the pool's.
fn sticks_lock_files(a: &mut Attacker) -> String {
    let number = a.find("attacker/file");
    let modes = [Access::Read, Access::Write, Access::ReadWrite];
    let files = modes.map(|access| lock_file(a, number, access).expect("its own"));
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    for held in [&files[2], &writer] {
        let stuck = super::endless::unserved()
            .and_then(|source| super::endless::hold_pipe(held.as_raw_fd(), source));
        if let Err(why) = stuck {
            return format!("cannot be made here: {why}");
        }
    }
    let others: Vec<InodeNumber> = ["attacker/second", "attacker/full/inner", "attacker"]
        .map(|path| a.find(path))
        .into();
    for access in modes {
        let pool = a.pool.clone();
        std::thread::spawn(move || lock_file(&Attacker::connect(&pool), number, access));
    }
    let pool = a.pool.clone();
    std::thread::spawn(move || {
        let other = Attacker::connect(&pool);
        for inode in others {
            let _ = lock_file(&other, inode, Access::Read);
        }
    });
    let on = Call::HandOn(HandedOn {
        inode: number,
        generation: a.header(number).generation(),
        flags: libc::O_RDWR as u32,
        parent: 0,
    });
    for kept in [&files[2], &writer] {
        let kept = kept.try_clone().expect("a descriptor");
        let (pool, on) = (a.pool.clone(), on.clone());
        std::thread::spawn(move || {
            let other = Attacker::connect(&pool);
            let (_, handed) = call(&other.socket, &on).expect("an answer");
            let mut packet = [0; MESSAGE_MAX];
            let length = Call::KeepLock.encode(&mut packet).expect("room");
            let both = [handed[0].as_fd(), kept.as_fd()];
            send(other.socket.as_fd(), &packet[..length], &both).expect("room for it");
            // The description is closed for good, with what is kept of it.
            let _ = receive_answer(other.socket.as_fd());
        });
    }
    std::mem::forget((files, reader, writer));
    // All of it has come to the controller.
    std::thread::sleep(Duration::from_millis(300));
    BOUNDED.into()
}

/// Everything that might make more of a lock file than it was opened for.
fn misuse_lock_file(file: &OwnedFd) {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    for mode in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let again = rustix::fs::open(&path, mode | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(again.err(), Some(Errno::ACCESS), "reopened");
    }
    assert!(rustix::fs::fchmod(file, Mode::from_raw_mode(0o777)).is_err());
    assert!(rustix::fs::ftruncate(file, 1 << 30).is_err());
    let number = file.as_raw_fd();
    // SAFETY: fcntl with integer arguments on a descriptor that lives.
    unsafe {
        assert_ne!(libc::fcntl(number, libc::F_SETLEASE, libc::F_RDLCK), 0);
        libc::fcntl(number, libc::F_SETPIPE_SZ, 1 << 20);
        libc::fcntl(number, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK);
    }
    let mut filled = 0;
    while let Ok(more) = rustix::io::write(file, &[7; 4096]) {
        filled += more;
    }
    assert!(filled <= 1 << 20, "{filled} bytes");
}

/// Claims to have a map of an inode.
fn claims_map(a: &Attacker, place: usize, number: InodeNumber) {
    let entry = map_entry(number, a.header(number).generation(), true);
    let control = a.control();
    control.maps[place].store(entry, Ordering::SeqCst);
    control
        .header
        .maps
        .store(MAP_SLOTS as u32, Ordering::SeqCst);
}

/// Has so many fold copies kept for an operation that never asks for them.
fn keeps_fold_copies(a: &mut Attacker, folds: u64) {
    // An index of many pages with nothing in them, so that each fold copy is large.
    let root = a.allocate();
    for place in 0..FOLD_COPY_PAGES {
        let page = a.allocate();
        a.scribble(root, 8 * place, &u64::from(page).to_le_bytes());
    }
    a.enter(0);
    for round in 0..folds {
        let file = a.own("attacker/second");
        let said = a.forge(file, |b| {
            b.size = 4096 + round % 2;
            b.root = IndexRoot::new(u64::from(root), 2);
        });
        assert_eq!(said, "accepted");
    }
}

/// Locks a session's arena for as long as the process lives.
fn lock_arena(a: &Attacker) -> Result<(), String> {
    super::endless::unserved()
        .and_then(|source| super::endless::hold_inode_lock(a.arena_file.as_raw_fd(), source))
        .map_err(|why| format!("cannot be made here: {why}"))
}

/// A request that makes the arena much larger.
const MUCH: Request = Request::GrowArena {
    branch_pages: 64,
    delta_pages: 1024,
};

/// Nobody waits for what stays locked.
fn others_work(scene: &mut Scene, _: &mut Role) {
    for _ in 0..3 {
        scene.victim_works();
        scene.third_works();
    }
}

/// Few of the controller's threads wait for it: those that stay. What others have just asked for is done soon, and was
/// counted once.
fn few_workers(scene: &mut Scene, attacker: &mut Role) {
    others_work(scene, attacker);
    let looks = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        scene.controller_threads("arck-worker")
    });
    let workers = looks.min().unwrap_or(0);
    assert!((1..=8).contains(&workers), "{workers} workers");
}

pub const ATTACKS: &[Attack] = &[
    case("hold", "stopped inside an operation", BOUNDED, |a| {
        owns_open(a);
        a.enter(0);
        BOUNDED.into()
    })
    .and(stopped),
    case(
        "hold",
        "stopped with every thread inside an operation",
        BOUNDED,
        |a| {
            owns_open(a);
            (0..arck_protocol::control::THREAD_SLOTS).for_each(|thread| a.enter(thread));
            BOUNDED.into()
        },
    )
    .and(stopped),
    case(
        "hold",
        "never answers, and keeps what it owns",
        BOUNDED,
        |a| {
            owns_open(a);
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "enters and leaves operations without end",
        BOUNDED,
        |a| {
            owns_open(a);
            let control = a.control_again();
            std::thread::spawn(move || {
                loop {
                    for thread in 0..64 {
                        control().threads[thread]
                            .enter(arck_protocol::operation::LightBarrier::Fence);
                    }
                    for thread in 0..64 {
                        control().threads[thread].leave();
                    }
                }
            });
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "takes back what others take, without end",
        BOUNDED,
        |a| {
            let wanted = [a.find(OPEN), a.find("common"), a.find("common/both")];
            a.for_ever(move |client| {
                let inodes = InodeList::new(&wanted).expect("three");
                // Told no, or not in time: once more.
                let _ = client.try_ask(&Request::Acquire { inodes });
            });
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "recalls all that the victim writes, without end",
        BOUNDED,
        |a| {
            let victim = a.find("victim");
            a.for_ever(move |client| {
                let mut numbers: Vec<_> = client.names(victim).into_values().collect();
                numbers.push(victim);
                let inodes = InodeList::new(&numbers).expect("a few");
                let _ = client.try_ask(&Request::Recall { inodes });
            });
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "never fetches a fold copy",
        "a bounded store of fold copies",
        |a| {
            keeps_fold_copies(a, STRADDLED_FOLDS);
            "a bounded store of fold copies".into()
        },
    )
    .and(|scene, _| {
        scene.controller_has_less_memory(512 << 20);
    }),
    case(
        "hold",
        "never fetches a fold copy, in many sessions",
        "a bounded store of fold copies",
        |a| {
            let mut sessions = Vec::new();
            for _ in 0..FOLD_COPY_SESSIONS {
                let mut session = Attacker::connect(&a.pool);
                keeps_fold_copies(&mut session, 80);
                sessions.push(session);
            }
            std::mem::forget(sessions);
            "a bounded store of fold copies".into()
        },
    )
    .and(|scene, _| {
        // Eighty mebibytes each would be more.
        scene.controller_has_less_memory(384 << 20);
    })
    .for_users(),
    case(
        "hold",
        "a fold that draws in thousands, one after another",
        BOUNDED,
        |a| {
            let numbers: Vec<InodeNumber> = (0..CHAIN).map(|_| a.number()).collect();
            for pair in numbers.windows(2) {
                a.edit_branch(pair[0], |b| b.partners[0] = pair[1]);
            }
            let control = a.control_again();
            std::thread::spawn(move || {
                loop {
                    control().threads[0].enter(arck_protocol::operation::LightBarrier::Fence);
                    control().threads[0].leave();
                }
            });
            a.commit_of(numbers[0]);
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "thousands of new directories in each other",
        BOUNDED,
        |a| {
            let one = a.own("attacker/one");
            let mut parent = one;
            let numbers: Vec<InodeNumber> = (0..CHAIN / 2).map(|_| a.number()).collect();
            for (at, &number) in numbers.iter().enumerate() {
                a.edit_branch(number, |b| b.parent = parent);
                let name: &'static [u8] = format!("d{at}").leak().as_bytes();
                a.record_with(parent, (number, FileKind::Directory), name, |r| {
                    r.source = b"";
                    r.mode = 0o755;
                });
                // Not so deep that a path could not name it.
                parent = if at % 600 == 599 { one } else { number };
            }
            assert_eq!(a.commit_of(numbers[0]), "accepted");
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "dies with thousands of new directories in each other, refused",
        BOUNDED,
        |a| {
            let mut parent = a.own("attacker/one");
            for _ in 0..CHAIN / 2 {
                let number = a.number();
                a.edit_branch(number, |b| b.parent = parent);
                for _ in 0..2 {
                    a.record_with(parent, (number, FileKind::Directory), b"d", |r| {
                        r.source = b"";
                    });
                }
                parent = number;
            }
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "dies with thousands of deltas that are refused",
        BOUNDED,
        |a| {
            let directory = a.own("attacker/one");
            let numbers: Vec<InodeNumber> = (0..CHAIN / 2)
                .map(|at| {
                    let number = a.number();
                    a.edit_branch(number, |b| b.parent = directory);
                    let name: &'static [u8] = format!("f{at}").leak().as_bytes();
                    a.record_with(directory, (number, FileKind::File), name, |r| {
                        r.source = b""
                    });
                    number
                })
                .collect();
            assert_eq!(a.commit_of(directory), "accepted");
            for number in numbers {
                a.edit_branch(number, |b| b.size = u64::MAX - 1);
            }
            BOUNDED.into()
        },
    ),
    case(
        "hold",
        "claims a writable map of a victim's file",
        "no right to write it",
        |a| {
            claims_map(a, 0, a.find("open/theirs"));
            "no right to write it".into()
        },
    )
    .and(|scene, _| assert_eq!(scene.writes("open/theirs"), "written"))
    .for_users(),
    case("hold", "claims a map of a directory", "no file", |a| {
        claims_map(a, 0, a.find(OPEN));
        claims_map(a, MAP_SLOTS - 1, a.find("common"));
        "no file".into()
    }),
    case(
        "hold",
        "locks a victim's file that it may not open",
        "EACCES",
        |a| {
            let modes = [Access::Read, Access::Write, Access::ReadWrite];
            let inner = a.find("victim/inner");
            let readable = lock_file(a, inner, Access::Read).expect("anybody may open it");
            rustix::fs::flock(&readable, FlockOperation::NonBlockingLockExclusive)
                .expect("as anybody may who can read");
            std::mem::forget(readable);
            let private = a.find("victim/private");
            let said = modes.map(|access| lock_file(a, private, access));
            let said: Vec<String> = said.into_iter().filter_map(Result::err).collect();
            assert_eq!(said.len(), 3, "{said:?}");
            // Who may only read has no lock that says that he writes.
            for access in [Access::Write, Access::ReadWrite] {
                assert_eq!(lock_file(a, inner, access).err(), Some("EACCES".into()));
            }
            all_the_same(said)
        },
    )
    .for_users(),
    case(
        "hold",
        "makes more of lock files than they are opened for",
        "EACCES",
        |a| {
            let theirs = lock_file(a, a.find("victim/inner"), Access::Read);
            misuse_lock_file(&theirs.expect("anybody may open it"));
            let own = lock_file(a, a.find("attacker/file"), Access::ReadWrite);
            misuse_lock_file(&own.expect("its own"));
            let path = a.pool.join("lock-files");
            let listed = std::fs::read_dir(path).map(|_| "listed".to_owned());
            listed.unwrap_or_else(|error| errno_name(error.raw_os_error().unwrap_or(0)))
        },
    )
    .for_users(),
    case(
        "hold",
        "a lock file that nobody can open or close any more",
        BOUNDED,
        sticks_lock_files,
    )
    .and(|scene, _| scene.third_works())
    .with_privilege(),
    case(
        "hold",
        "flags, locks and leases of what it was sent",
        "descriptors of its own",
        |a| {
            let (_socket, descriptors) = received(a);
            for descriptor in &descriptors {
                let number = descriptor.as_raw_fd();
                // SAFETY: fcntl and flock with integer arguments, on descriptors that live. What they
                // say differs from one to the next, and does not matter: others must not notice.
                unsafe {
                    libc::fcntl(number, libc::F_SETFL, libc::O_APPEND | libc::O_ASYNC);
                    libc::flock(number, libc::LOCK_EX | libc::LOCK_NB);
                    libc::fcntl(number, F_SETSIG, libc::SIGURG);
                    for lease in [libc::F_WRLCK, libc::F_RDLCK] {
                        libc::fcntl(number, libc::F_SETLEASE, lease);
                    }
                }
            }
            std::mem::forget(descriptors);
            std::mem::forget(_socket);
            "descriptors of its own".into()
        },
    )
    .for_users(),
    case(
        "hold",
        "a lease on what the controller opens",
        "EACCES",
        |a| {
            let (_socket, descriptors) = received(a);
            let mut said = Vec::new();
            for descriptor in &descriptors {
                let file = descriptor.as_raw_fd();
                // SAFETY: fcntl with integer arguments on a descriptor that lives.
                let leased = unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) };
                said.push(if leased == 0 {
                    "leased".to_owned()
                } else {
                    last_errno()
                });
            }
            // The wake descriptor is no file.
            said.retain(|said| said != "EINVAL" && said != "EAGAIN");
            assert!(
                said.len() >= 4 && said.iter().all(|one| *one == said[0]),
                "{said:?}"
            );
            said[0].clone()
        },
    )
    .for_users(),
    case(
        "hold",
        "its arena locked by a write whose source never comes",
        BOUNDED,
        |a| {
            if let Err(why) = lock_arena(a) {
                return why;
            }
            let pool = a.pool.clone();
            // Its own requests may wait for ever.
            let client = std::mem::replace(&mut **a, Client::connect(&pool));
            std::thread::spawn(move || {
                let _ = client.try_ask(&MUCH);
                for _ in 0..64 {
                    let _ = client.try_ask(&Request::GrantInodes { count: 256 });
                }
            });
            BOUNDED.into()
        },
    )
    .and(others_work)
    .with_privilege(),
    case(
        "hold",
        "its arena locked for ever when it ends",
        BOUNDED,
        |a| {
            if let Err(why) = lock_arena(a) {
                return why;
            }
            let pool = a.pool.clone();
            let client = std::mem::replace(&mut **a, Client::connect(&pool));
            std::thread::spawn(move || client.goodbye());
            BOUNDED.into()
        },
    )
    .and(others_work)
    .with_privilege(),
    case(
        "hold",
        "the arenas of many sessions locked for ever, grown and ended",
        BOUNDED,
        |a| {
            for round in 0..LOCKED_SESSIONS {
                let session = Attacker::connect(&a.pool);
                if let Err(why) = lock_arena(&session) {
                    return why;
                }
                std::thread::spawn(move || {
                    if round % 2 == 0 {
                        let _ = session.try_ask(&MUCH);
                    } else {
                        // Asked, and gone before it is answered.
                        let asked = session.submit(&MUCH);
                        assert!(asked.is_ok(), "{asked:?}");
                        session.end();
                    }
                });
            }
            BOUNDED.into()
        },
    )
    .and(few_workers)
    .with_privilege(),
    case(
        "hold",
        "its segment locked for ever, when a file in it is closed",
        BOUNDED,
        |a| {
            // Anybody may write it, until its owner closes it.
            let theirs = a.own("sticky/theirs");
            let (answer, files) = call(&a.socket, &Call::GrantSegment).expect("an answer");
            let Answer::Segments(segments) = answer else {
                panic!("{answer:?}");
            };
            let geometry = a.welcome.geometry;
            let first = geometry.first_page(segments[0]);
            let pages = (0..geometry.pages_per_segment()).map(|at| PagePtr(first.0 + at));
            let page = pages
                .into_iter()
                .find(|&page| !a.is_used(page))
                .expect("a free page");
            let at = page.address() % geometry.segment_size;
            rustix::io::pwrite(&files[0], &[8; PAGE_SIZE as usize], at).expect("its own segment");
            a.set_entry(theirs, 0, page.0);
            assert_eq!(a.commit_of(theirs), "accepted");
            let locked = super::endless::unserved()
                .and_then(|source| super::endless::hold_inode_lock(files[0].as_raw_fd(), source));
            std::mem::forget(files);
            match locked {
                Ok(()) => BOUNDED.into(),
                Err(why) => format!("cannot be made here: {why}"),
            }
        },
    )
    .and(|scene, attacker| {
        assert_eq!(scene.closes("sticky/theirs"), "closed");
        assert_eq!(scene.reads("sticky/theirs"), "EACCES");
        few_workers(scene, attacker);
    })
    .with_privilege(),
    case(
        "hold",
        "its arena locked by a write from a FUSE file that nobody serves",
        BOUNDED,
        |a| {
            let locked = super::unanswered::unanswered().and_then(|source| {
                super::endless::hold_inode_lock(a.arena_file.as_raw_fd(), source)
            });
            if let Err(why) = locked {
                return format!("cannot be made here: {why}");
            }
            let pool = a.pool.clone();
            let client = std::mem::replace(&mut **a, Client::connect(&pool));
            std::thread::spawn(move || {
                let _ = client.try_ask(&MUCH);
                client.goodbye();
            });
            BOUNDED.into()
        },
    )
    .and(few_workers)
    .with_privilege(),
];
