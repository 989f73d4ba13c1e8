//! Attacks on what meets in the kernel: ends of named pipes that one may not open, more than was opened, pipes that are
//! none, waiting for ever and with thousands, and holding up those who would open and close; sockets that are none, or
//! bound to the names of others.

use super::attacker::{Attacker, all_the_same, errno_name};
use super::holding::{BOUNDED, lock_file};
use super::table::{Attack, case};
use super::world::PIPES;
use arck_core_state::InodeNumber;
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{Access, Answer, Call, call, call_with, send};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::time::Duration;

const MODES: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];
/// More tickets than anybody gets.
const MANY: usize = 5_000;

/// What asking for a pipe comes to: the pipe, or the ticket; or why not.
fn open(a: &Attacker, inode: InodeNumber, access: Access, waits: bool) -> Result<OwnedFd, String> {
    let asked = Call::OpenPipe {
        inode,
        generation: a.header(inode).generation(),
        access,
        waits,
    };
    match call(&a.socket, &asked).expect("an answer") {
        (Answer::Done | Answer::Waits, mut files) => files.pop().ok_or("no descriptor".into()),
        (Answer::Error(errno, _), _) => Err(errno_name(errno)),
        (other, _) => Err(format!("{other:?}")),
    }
}

fn socket(family: AddressFamily) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None).expect("a socket")
}

/// What binding a socket comes to.
fn bind(a: &Attacker, inode: InodeNumber, socket: &OwnedFd, path: &[u8]) -> Result<(), String> {
    let asked = Call::BindSocket {
        inode,
        generation: a.header(inode).generation(),
        path: path.to_vec(),
    };
    match call_with(&a.socket, &asked, &[socket.as_fd()]).expect("an answer") {
        (Answer::Done, _) => Ok(()),
        (Answer::Error(errno, _), _) => Err(errno_name(errno)),
        (other, _) => Err(format!("{other:?}")),
    }
}

fn find(a: &Attacker, name: &str) -> InodeNumber {
    a.find(&format!("{PIPES}/{name}"))
}

/// Everything that might make more of an end than it was opened for.
fn misuse(file: &OwnedFd, mode: OFlags) {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    for other in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let again = rustix::fs::open(&path, other | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(again.err(), Some(Errno::ACCESS), "reopened");
    }
    let by_path = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).expect("a name");
    assert!(rustix::fs::fchmod(file, Mode::from_raw_mode(0o777)).is_err());
    let everybody = Mode::from_raw_mode(0o777);
    assert!(rustix::fs::chmod(&path, everybody).is_err());
    assert!(rustix::fs::fchmod(&by_path, everybody).is_err());
    // SAFETY: fcntl with integer arguments on a descriptor that lives.
    unsafe {
        let flags = libc::O_RDWR | libc::O_ASYNC | libc::O_NONBLOCK;
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags);
    }
    let is_written = rustix::io::write(file, b"x").is_ok();
    assert_eq!(is_written, mode != OFlags::RDONLY);
}

/// Has its own pipe so that whoever opens or closes it waits for ever, and asks for it in each way.
fn sticks_pipe(a: &mut Attacker) -> String {
    let own = find(a, "own");
    let file = open(a, own, Access::ReadWrite, false).expect("its own");
    let stuck = super::endless::unserved()
        .and_then(|source| super::endless::hold_pipe(file.as_raw_fd(), source));
    if let Err(why) = stuck {
        return format!("cannot be made here: {why}");
    }
    for access in MODES {
        for waits in [false, true] {
            let pool = a.pool.clone();
            std::thread::spawn(move || open(&Attacker::connect(&pool), own, access, waits));
        }
    }
    // What comes with a call is closed by the controller, too.
    let (pool, copy) = (a.pool.clone(), file.try_clone().expect("a descriptor"));
    let is_pipe = Call::IsPipe {
        inode: own,
        generation: a.header(own).generation(),
    };
    std::thread::spawn(move || {
        let other = Attacker::connect(&pool);
        let mut packet = [0; MESSAGE_MAX];
        let length = is_pipe.encode(&mut packet).expect("room");
        send(other.socket.as_fd(), &packet[..length], &[copy.as_fd()]).expect("room for it");
    });
    std::mem::forget(file);
    // All of it has come to the controller.
    std::thread::sleep(Duration::from_millis(300));
    BOUNDED.into()
}

pub const ATTACKS: &[Attack] = &[
    case("meet", "opens ends that it may not open", "EACCES", |a| {
        let talk = find(a, "talk");
        open(a, talk, Access::Read, false).expect("anybody may read it");
        let mut said = Vec::new();
        for waits in [false, true] {
            said.extend([Access::Write, Access::ReadWrite].map(|mode| open(a, talk, mode, waits)));
            said.extend(MODES.map(|mode| open(a, find(a, "whisper"), mode, waits)));
        }
        all_the_same(said.into_iter().filter_map(Result::err).collect())
    })
    .for_users(),
    case(
        "meet",
        "makes more of an end than it is opened for",
        "EACCES",
        |a| {
            let talk = open(a, find(a, "talk"), Access::Read, false).expect("anybody may read it");
            misuse(&talk, OFlags::RDONLY);
            let own = open(a, find(a, "own"), Access::ReadWrite, false).expect("its own");
            misuse(&own, OFlags::RDWR);
            let path = a.pool.join("named-pipes");
            let listed = std::fs::read_dir(path).map(|_| "listed".to_owned());
            listed.unwrap_or_else(|error| errno_name(error.raw_os_error().unwrap_or(0)))
        },
    )
    .for_users(),
    case("meet", "opens what is no pipe, or gone", "ESTALE", |a| {
        let mut said = Vec::new();
        for inode in ["attacker/file", "attacker", "common/both"].map(|path| a.find(path)) {
            said.extend(MODES.map(|mode| open(a, inode, mode, true)));
        }
        for (inode, generation) in [(find(a, "own"), 77), (u32::MAX, 1), (0, 0)] {
            let asked = Call::OpenPipe {
                inode,
                generation,
                access: Access::Read,
                waits: true,
            };
            match call(&a.socket, &asked).expect("an answer") {
                (Answer::Error(errno, _), _) => said.push(Err(errno_name(errno))),
                (other, _) => said.push(Err(format!("{other:?}"))),
            }
        }
        all_the_same(said.into_iter().filter_map(Result::err).collect())
    }),
    case(
        "meet",
        "says of other files that they are pipes",
        "EBADF",
        |a| {
            let own = find(a, "own");
            let (end, other_end) = rustix::pipe::pipe().expect("a pipe");
            let memory = rustix::fs::memfd_create("none", MemfdFlags::CLOEXEC).expect("a file");
            let lock = lock_file(a, a.find("attacker/file"), Access::Read).expect("its own");
            let path = rustix::fs::open("/", OFlags::PATH, Mode::empty()).expect("the root");
            let files = [end, other_end, memory, lock, path];
            let said = files.iter().map(|file| {
                let is_pipe = Call::IsPipe {
                    inode: own,
                    generation: a.header(own).generation(),
                };
                match call_with(&a.socket, &is_pipe, &[file.as_fd()]).expect("an answer") {
                    (Answer::Error(errno, _), _) => errno_name(errno),
                    (other, _) => format!("{other:?}"),
                }
            });
            all_the_same(said.collect())
        },
    ),
    case("meet", "waits with thousands", "ENFILE", |a| {
        let own = find(a, "own");
        let mut tickets = Vec::new();
        let why = loop {
            match open(a, own, Access::Read, true) {
                Ok(ticket) => tickets.push(ticket),
                Err(why) => break why,
            }
            assert!(tickets.len() < MANY);
        };
        std::mem::forget(tickets);
        why
    })
    .and(|scene, _| scene.third_works()),
    case(
        "meet",
        "a pipe that nobody can open or close any more",
        BOUNDED,
        sticks_pipe,
    )
    .and(|scene, _| scene.third_works())
    .with_privilege(),
    case("meet", "binds a socket to a victim's name", "EACCES", |a| {
        let said = ["door", "talk", "whisper"].map(|name| {
            let socket = socket(AddressFamily::UNIX);
            bind(a, find(a, name), &socket, b"door").unwrap_err()
        });
        // What is no socket's name is that to its owner, too.
        assert_eq!(said[1..], ["ESTALE", "ESTALE"]);
        said[0].clone()
    })
    .for_users(),
    case("meet", "connects to what it may not write", "EACCES", |a| {
        let said = ["door", "shut"].map(|name| {
            let inode = find(a, name);
            let asked = Call::FindSocket {
                inode,
                generation: a.header(inode).generation(),
            };
            match call(&a.socket, &asked).expect("an answer") {
                (Answer::Error(errno, _), _) => errno_name(errno),
                (other, _) => format!("{other:?}"),
            }
        });
        // Nothing was ever bound to the one that anybody may write.
        assert_eq!(said[0], "ECONNREFUSED");
        said[1].clone()
    })
    .for_users(),
    case("meet", "binds what is no socket", "no name taken", |a| {
        let own = find(a, "post");
        let (end, _) = rustix::pipe::pipe().expect("a pipe");
        let memory = rustix::fs::memfd_create("none", MemfdFlags::CLOEXEC).expect("a file");
        let path = rustix::fs::open("/", OFlags::PATH, Mode::empty()).expect("the root");
        let bound = socket(AddressFamily::UNIX);
        let unnamed = rustix::net::SocketAddrUnix::new_unnamed();
        rustix::net::bind(&bound, &unnamed).expect("a name of the kernel's");
        for file in [end, memory, path, socket(AddressFamily::INET), bound] {
            bind(a, own, &file, b"post").unwrap_err();
        }
        for name in [b"".as_slice(), b".", b"..", b"a\0b"] {
            let socket = socket(AddressFamily::UNIX);
            assert_eq!(bind(a, own, &socket, name).err(), Some("EINVAL".into()));
        }
        // Names that the controller has for its own.
        let socket = socket(AddressFamily::UNIX);
        bind(a, own, &socket, b"../sockets/00000001-00000001").expect("its own");
        let again = super::meeting::socket(AddressFamily::UNIX);
        assert_eq!(
            bind(a, own, &again, b"post").err(),
            Some("EADDRINUSE".into())
        );
        assert!(!a.pool.join("sockets").join("00000001-00000001").exists());
        "no name taken".into()
    }),
];
