//! Attacks by what processes hand on: a descriptor that stands for a file of somebody else's, what looks like
//! one, and what a forked child and an executed program have of a session.
//!
//! # Invariant
//! * Who takes something has nothing else of the giver's: what he gets for it he asks for by his own session.

use super::attacker::{Attacker, all_the_same, errno_name, said};
use super::keeping::error_of;
use super::process::{ATTACK_BOUND, Role, User, become_user, tell, told};
use super::raw::{Client, seqpacket};
use super::restarting::{resume_of, said_of};
use super::table::{Attack, Scene, case};
use super::world::{ATTACKER_USER, ROOT_USER, SECRET, VICTIM_USER};
use arck_core_state::InodeNumber;
use arck_protocol::Request;
use arck_protocol::socket::{Answer, Call, HandedOn, call, call_with, receive, send};
use arck_testkit::{Shorthand, connect as open_session};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::net::{SocketAddrUnix, accept, bind, connect, listen};
use std::collections::BTreeSet;
use std::path::Path;

const MORE: &str = "is handed a file to read, and wants more of it";
const WANTS_MORE: &str = "EACCES, EBADF, EINVAL, EPERM";
const AGAIN: &str = "keeps it, and presents it to the next controller";
const NOTHING: &str = "nothing";
/// The user that a child becomes.
const USER: &str = "ARCK_HOSTILE_USER";
/// Names the role of a process of this program.
const ROLE: &str = "ARCK_HOSTILE_ROLE";

/// Where something is given to whoever asks for it: nobody's file, of one scene.
fn address(pool: &Path) -> SocketAddrUnix {
    let name = format!("arck-given {}", pool.display());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name")
}

/// What stands for an inode, as the caller's session may have it.
fn handed_on(a: &Client, of: HandedOn) -> Result<OwnedFd, String> {
    match call(&a.socket, &Call::HandOn(of)).expect("an answer") {
        (Answer::Described(told), mut descriptors) => {
            assert_eq!(told.inode, of.inode);
            Ok(descriptors.remove(0))
        }
        (Answer::Error(errno, _), _) => Err(errno_name(errno)),
        (other, _) => panic!("{other:?}"),
    }
}

/// What the controller says that a descriptor stands for.
fn claimed(a: &Client, descriptors: &[BorrowedFd<'_>]) -> Result<HandedOn, String> {
    let claim = Call::Claim {
        was_sent: true,
        has_lock: false,
    };
    match call_with(&a.socket, &claim, descriptors).expect("an answer") {
        (Answer::Described(of), _) => Ok(of),
        (Answer::Error(errno, _), _) => Err(errno_name(errno)),
        (other, _) => panic!("{other:?}"),
    }
}

fn opened(a: &Attacker, number: InodeNumber, flags: i32) -> HandedOn {
    HandedOn {
        inode: number,
        generation: a.header(number).generation(),
        flags: flags.cast_unsigned(),
        parent: 0,
    }
}

/// The role: gives a descriptor of its own private file, to be read, to whoever asks for it.
pub fn giver(pool: &Path, path: &str) {
    become_user();
    let a = Attacker::connect(pool);
    let given = handed_on(&a, opened(&a, a.find(path), libc::O_RDONLY)).expect("its own");
    let listener = seqpacket();
    bind(&listener, &address(pool)).expect("its name");
    listen(&listener, 1).expect("listening");
    tell("ready");
    let taker = accept(&listener).expect("somebody");
    send(taker.as_fd(), b"given", &[given.as_fd()]).expect("given");
    // Its session stays, and its descriptor.
    let _ = told();
}

fn taken(pool: &Path) -> OwnedFd {
    let from = seqpacket();
    connect(&from, &address(pool)).expect("the giver");
    let (_, mut files) = receive(from.as_fd(), &mut [0; 16]).expect("what is given");
    files.remove(0)
}

/// Everything that the kernel lets one ask of a descriptor.
fn tampered(descriptor: &OwnedFd) -> BTreeSet<String> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let mut told: BTreeSet<String> = BTreeSet::new();
    for access in [
        OFlags::RDONLY,
        OFlags::WRONLY,
        OFlags::RDWR,
        OFlags::RDWR | OFlags::TRUNC,
    ] {
        told.insert(error_of(rustix::fs::open(&path, access, Mode::empty())));
    }
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    told.insert(error_of(rustix::fs::fchmod(descriptor, all)));
    told.insert(error_of(rustix::fs::chmod(&path, all)));
    let own = Some(rustix::process::geteuid());
    told.insert(error_of(rustix::fs::fchown(descriptor, own, None)));
    for size in [0, 4096] {
        told.insert(error_of(rustix::fs::ftruncate(descriptor, size)));
    }
    let seals = SealFlags::FUTURE_WRITE;
    told.insert(error_of(rustix::fs::fcntl_add_seals(descriptor, seals)));
    told.insert(error_of(rustix::io::write(descriptor, b"x")));
    told.insert(error_of(rustix::io::pwrite(descriptor, b"x", 0)));
    told.insert(error_of(rustix::io::read(descriptor, &mut [0; 8])));
    told
}

/// Reads what it was handed, and asks for all that it was not.
fn wants_more(a: &Attacker, descriptor: &OwnedFd) -> String {
    // Somebody may have it twice.
    let of = claimed(a, &[descriptor.as_fd()]).expect("what it stands for");
    assert_eq!(claimed(a, &[descriptor.as_fd()]), Ok(of));
    let HandedOn {
        inode,
        generation,
        parent,
        ..
    } = of;
    let read = |inode, generation| Request::Read {
        inode,
        generation,
        position: 0,
        length: 1000,
    };
    // That much is his by right.
    let response = a.ask(&read(inode, generation));
    assert_eq!(response, arck_protocol::Response::Bytes(SECRET.to_vec()));
    let mut told = tampered(descriptor);
    let write = |position, append| Request::Write {
        inode,
        generation,
        position,
        append,
        bytes: b"forged".to_vec(),
    };
    let own = rustix::process::geteuid().as_raw();
    for request in [
        write(0, false),
        write(0, true),
        Request::Resize {
            inode,
            generation,
            size: 0,
        },
        Request::SetOwner {
            inode,
            uid: own,
            gid: own,
        },
        Request::WriteAttached {
            inode,
            generation,
            position: 0,
            append: true,
            length: 6,
        },
        Request::SetMediation {
            inode,
            generation,
            mediation: 1,
        },
        Request::DropSetId { inode },
        Request::Admit {
            inode,
            contents: true,
        },
    ] {
        told.insert(said(&a.ask(&request)));
    }
    told.insert(a.acquisition(inode));
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR | libc::O_APPEND] {
        let wider = HandedOn {
            flags: flags.cast_unsigned(),
            ..of
        };
        told.extend(handed_on(a, wider).map(|_| "handed on".to_owned()).err());
    }
    // What it may hand on is what it was handed.
    let again = handed_on(a, of).expect("the same");
    assert_eq!(claimed(a, &[again.as_fd()]).map(|of| of.inode), Ok(inode));
    // What lies beside it, and above.
    let beside = a.find("victim/home");
    told.insert(said(&a.ask(&read(beside, a.header(beside).generation()))));
    for number in [parent, beside].into_iter().filter(|&number| number != 0) {
        told.insert(a.acquisition(number));
    }
    // With others, or none, it is no claim.
    told.extend(claimed(a, &[]).err());
    told.extend(claimed(a, &[descriptor.as_fd(), descriptor.as_fd()]).err());
    told.into_iter().collect::<Vec<_>>().join(", ")
}

/// Takes what is given when it is told to.
fn takes(a: &mut Attacker) -> String {
    let pool = a.pool.clone();
    let mut has: Option<OwnedFd> = None;
    a.when_asked = Some(Box::new(move || {
        let descriptor = has.get_or_insert_with(|| taken(&pool));
        wants_more(&Attacker::connect(&pool), descriptor)
    }));
    "ready".into()
}

fn gives(scene: &Scene, user: User) -> Role {
    let mut giver = Role::start("giver", user, &[&scene.pool_text(), "victim/private"]);
    assert_eq!(giver.line(ATTACK_BOUND), "ready");
    giver
}

fn more_is_refused(scene: &mut Scene, attacker: &mut Role) {
    let giver = gives(scene, VICTIM_USER);
    assert_eq!(attacker.ask("take"), WANTS_MORE);
    scene.victim_works();
    // What was handed on is worth as much when who has handed it on is gone.
    giver.kill();
    assert_eq!(attacker.ask("take"), WANTS_MORE);
    assert_eq!(scene.reads("victim/private"), "EACCES");
}

fn next_controller_knows_no_more(scene: &mut Scene, attacker: &mut Role) {
    let giver = gives(scene, VICTIM_USER);
    for _ in 0..2 {
        assert_eq!(attacker.ask("take"), WANTS_MORE);
        scene.restart_controller();
        scene.victim_works();
    }
    assert_eq!(attacker.ask("take"), WANTS_MORE);
    giver.kill();
}

/// Asks for descriptors of what it may not open so.
fn hands_on_others(a: &mut Attacker) -> String {
    let mut told = BTreeSet::new();
    let all = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR];
    let (private, home) = (a.find("victim/private"), a.find("victim/home"));
    for flags in all {
        told.extend(handed_on(a, opened(a, private, flags)).err());
        let locked = opened(a, a.find("locked/theirs"), flags);
        told.extend(
            handed_on(a, locked)
                .err()
                .filter(|_| flags != libc::O_RDONLY),
        );
    }
    told.insert(
        handed_on(a, opened(a, home, libc::O_RDONLY))
            .err()
            .unwrap_or_default(),
    );
    // What lies in it cannot be reached, whatever is asked of it.
    for number in 2..64 {
        let Some(inode) = (number < a.welcome.geometry.inode_count).then(|| a.header(number))
        else {
            continue;
        };
        let of = HandedOn {
            inode: number,
            generation: inode.generation(),
            flags: libc::O_RDWR.cast_unsigned(),
            parent: home,
        };
        if let Ok(descriptor) = handed_on(a, of) {
            // Its own, and what anybody may write.
            let found = claimed(a, &[descriptor.as_fd()]).expect("what it stands for");
            let write = Request::Admit {
                inode: found.inode,
                contents: true,
            };
            assert_eq!(said(&a.ask(&write)), "accepted", "inode {number}");
        }
    }
    let own = a.find("attacker/file");
    for wrong in [
        HandedOn {
            generation: 99,
            ..opened(a, own, 0)
        },
        HandedOn {
            inode: a.free_number(),
            ..opened(a, own, 0)
        },
        HandedOn {
            inode: u32::MAX,
            ..opened(a, own, 0)
        },
        HandedOn {
            inode: 0,
            ..opened(a, own, 0)
        },
    ] {
        told.insert(handed_on(a, wrong).err().unwrap_or_default());
    }
    told.into_iter().collect::<Vec<_>>().join(", ")
}

/// A memory file of its own, made as the controller makes them.
fn forged(name: &str, seals: SealFlags, is_open: bool) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).expect("a file");
    rustix::fs::fcntl_add_seals(&file, seals).expect("its seals");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let neither = OFlags::RWMODE | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(path, neither, Mode::empty()).expect("a descriptor");
    rustix::fs::fchmod(&file, Mode::empty()).expect("its mode");
    if is_open { file } else { descriptor }
}

/// Makes what looks like a descriptor of a file that it may not open.
fn forges(a: &mut Attacker) -> String {
    let own = a.find("attacker/file");
    let real = handed_on(a, opened(a, own, libc::O_RDWR)).expect("its own");
    let path = format!("/proc/self/fd/{}", real.as_raw_fd());
    let name = std::fs::read_link(path).expect("its name");
    let name = name.to_str().and_then(|name| name.strip_prefix("/memfd:"));
    let name = name.and_then(|name| name.strip_suffix(" (deleted)"));
    let name = name.expect("as all are called");
    let private = a.find("victim/private");
    let others = name.replacen(&format!(":{own}:"), &format!(":{private}:"), 1);
    assert_ne!(name, others);
    let all = SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL;
    let mut forgeries: Vec<OwnedFd> = Vec::new();
    for text in [name, &others] {
        for seals in [all, all | SealFlags::FUTURE_WRITE, all - SealFlags::WRITE] {
            forgeries.extend([false, true].map(|is_open| forged(text, seals, is_open)));
        }
    }
    // A file of that name, with all that comes before and behind it.
    let folder = tempfile::tempdir().expect("a folder");
    let named = folder.path().join(format!("memfd:{others} (deleted)"));
    forgeries.push(std::fs::File::create(&named).expect("a file").into());
    std::fs::remove_file(&named).expect("no name");
    let kinds = [
        "/",
        "/dev/null",
        "/proc/self/exe",
        "/proc/self/fd",
        "/dev/shm",
    ];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    forgeries.extend(kinds.map(|path| rustix::fs::open(path, flags, Mode::empty()).expect(path)));
    let path_alone = OFlags::PATH | OFlags::CLOEXEC;
    forgeries.push(rustix::fs::open("/", path_alone, Mode::empty()).expect("the root"));
    forgeries.push(a.control_file.try_clone().expect("its control memory"));
    forgeries.push(a.arena_file.try_clone().expect("its arena"));
    forgeries.push(a.socket.try_clone().expect("its connection"));
    forgeries.extend(<[OwnedFd; 2]>::from(rustix::pipe::pipe().expect("a pipe")));
    let said = forgeries
        .iter()
        .map(|forgery| match claimed(a, &[forgery.as_fd()]) {
            Ok(of) => format!("{of:?}"),
            Err(error) => error,
        });
    all_the_same(said.collect())
}

/// What a process has of any session: descriptors and maps that are the controller's, or of a pool's.
fn leftovers(pool: &Path) -> Vec<String> {
    let pool = pool.to_str().expect("plain text");
    let is_of_session = |name: &str| {
        name.contains(pool)
            || name.contains("memfd:arck")
            || name.contains("[eventfd]")
            || name.contains("[eventpoll]")
            || name.starts_with("socket:")
    };
    let entries = std::fs::read_dir("/proc/self/fd").expect("its descriptors");
    let links = entries
        .flatten()
        .map(|entry| std::fs::read_link(entry.path()));
    let links = links
        .flatten()
        .map(|link| link.to_string_lossy().into_owned());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("its maps");
    let maps = maps.lines().map(str::to_owned);
    links
        .chain(maps)
        .filter(|name| is_of_session(name))
        .collect()
}

fn tell_leftovers(pool: &Path) {
    match leftovers(pool).as_slice() {
        [] => tell(NOTHING),
        found => tell(&found.join("; ")),
    }
}

/// The role: an executed program, of another user.
pub fn heir(pool: &Path) {
    become_user();
    tell_leftovers(pool);
}

/// The role: root's program, that has a session and files of others open, and forks: a child becomes another
/// user and looks at what it has, and another executes a program as that user.
pub fn parent(pool: &Path) {
    let fs = open_session(pool);
    for path in ["victim/private", "victim/home/secret"] {
        assert_eq!(fs.get(path).expect("a file of the victim's"), SECRET);
    }
    fs.put("root's own", SECRET).expect("a new file");
    assert!(!leftovers(pool).is_empty(), "a session");
    let welcome = fs.session().welcome();
    for executes in [false, true] {
        // SAFETY: the child has this one thread, and ends itself, or is replaced.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a child");
        if child == 0 {
            if executes {
                let mut program = std::process::Command::new("/proc/self/exe");
                program.arg(pool).env(ROLE, "heir");
                program.env(USER, ATTACKER_USER.0.to_string());
                panic!("{}", std::os::unix::process::CommandExt::exec(&mut program));
            }
            tell_leftovers(pool);
            // SAFETY: the first thing that the program itself does.
            unsafe { std::env::set_var(USER, ATTACKER_USER.0.to_string()) };
            become_user();
            tell_leftovers(pool);
            // In its copy of the memory stands by what the session proves itself.
            let memory = rustix::fs::memfd_create("control", MemfdFlags::CLOEXEC).expect("a file");
            tell(&said_of(pool, &resume_of(welcome), &memory).expect("an answer"));
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child");
    }
    // It has lost nothing by that.
    assert_eq!(fs.get("root's own").expect("its file"), SECRET);
    fs.disconnect().expect("a clean end");
    tell("well");
}

fn child_has_nothing(scene: &mut Scene, _: &mut Role) {
    let mut parent = Role::start("parent", ROOT_USER, &[&scene.pool_text()]);
    for expected in [NOTHING, NOTHING, "EACCES", NOTHING, "well"] {
        assert_eq!(parent.line(ATTACK_BOUND), expected);
    }
    parent.end();
}

pub const ATTACKS: &[Attack] = &[
    case("hand", MORE, "ready", takes)
        .and(more_is_refused)
        .for_users(),
    case("hand", AGAIN, "ready", takes)
        .and(next_controller_knows_no_more)
        .for_users(),
    case(
        "hand",
        "hands on what it may not open, or not so",
        "EACCES, ESTALE",
        hands_on_others,
    )
    .for_users(),
    case(
        "hand",
        "makes descriptors that look like a victim's file",
        "EBADF",
        forges,
    )
    .for_users(),
    case(
        "hand",
        "a child of root's becomes another user, and another executes",
        NOTHING,
        |_| NOTHING.into(),
    )
    .and(child_has_nothing)
    .for_users(),
];
