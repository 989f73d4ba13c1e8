//! Attacks with what a session was sent: more than it grants, and longer than it lasts.

use super::attacker::{Attacker, all_the_same, errno_name};
use super::holding::received;
use super::pinned::{Pinned, Piped};
use super::table::{Attack, case};
use arck_core_state::layout;
use arck_pm::{MapOptions, Mapping};
use arck_protocol::socket::{Answer, Call, call, receive, send};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Places of what a session is sent.
const HEADERS: usize = 0;
const BITMAP: usize = 1;
const CONTROL: usize = 2;
/// The segment comes after it.
pub const ARENA: usize = 5;
/// Segments that an attacker keeps.
const KEPT: usize = 4;

pub fn error_of<T>(result: Result<T, rustix::io::Errno>) -> String {
    match result {
        Ok(_) => "allowed".into(),
        Err(errno) => errno_name(errno.raw_os_error()),
    }
}

fn reopen(descriptor: &OwnedFd) -> String {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    error_of(rustix::fs::open(path, OFlags::RDWR, Mode::empty()))
}

/// Segments of a session that has ended, with their descriptors.
fn segments_of_ended(a: &Attacker) -> Vec<OwnedFd> {
    let other = Attacker::connect(&a.pool);
    let files = (0..KEPT).map(|_| {
        let (answer, files) = call(&other.socket, &Call::GrantSegment).expect("an answer");
        assert!(matches!(answer, Answer::Segments(_)), "{answer:?}");
        files.into_iter().next().expect("a descriptor")
    });
    let files = files.collect();
    assert_eq!(
        call(&other.socket, &Call::Goodbye).expect("an answer").0,
        Answer::Done
    );
    files
}

/// What is made of each of such segments; else why it cannot be made on this machine.
fn made_of_ended<T>(
    a: &Attacker,
    make: impl Fn(&OwnedFd) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let made: Result<Vec<T>, String> = segments_of_ended(a).iter().map(make).collect();
    made.map_err(|why| format!("cannot be made here: {why}"))
}

/// Writes to segments for as long as the process lives.
pub fn scribble_for_ever(a: &Attacker, files: Vec<OwnedFd>) {
    let size = a.welcome.geometry.segment_size as usize;
    let bytes = vec![0xbb; 1 << 16];
    std::thread::spawn(move || {
        loop {
            for file in &files {
                for at in (0..size).step_by(bytes.len()) {
                    rustix::io::pwrite(file, &bytes, at as u64).expect("its own segment");
                }
            }
        }
    });
}

const NEVER_GRANTED: &str = "not granted again";

pub const ATTACKS: &[Attack] = &[
    case(
        "keep",
        "reopens for writing what it may only read",
        "EACCES",
        |a| {
            let (_socket, files) = received(a);
            // One of a class that it is in; segment 0 is nobody's.
            let sent = (0..a.welcome.geometry.segment_count).find_map(|segment| {
                let segments = vec![segment];
                let (_, mut sent) =
                    call(&_socket, &Call::MapSegments { segments }).expect("an answer");
                sent.pop()
            });
            let segment = sent.expect("what everybody may read");
            let read_only = [&files[HEADERS], &files[BITMAP], &segment];
            all_the_same(read_only.into_iter().map(reopen).collect())
        },
    )
    .for_users(),
    case("keep", "reopens control memory and arena", "EACCES", |a| {
        let (_socket, files) = received(a);
        all_the_same(
            [CONTROL, ARENA]
                .into_iter()
                .map(|at| reopen(&files[at]))
                .collect(),
        )
    })
    .for_users(),
    case(
        "keep",
        "opens the pool's files by their names",
        "EACCES",
        |a| {
            let names = [
                layout::HEADERS,
                layout::SUPERBLOCK,
                layout::SESSION_TABLE,
                layout::SEGMENTS,
                arck_controller::VIOLATIONS_LOG,
                arck_controller::ASIDE,
            ];
            // So that there is something in the log, and set aside.
            let file = a.own("attacker/file");
            assert_eq!(
                a.forge(file, |branch| branch.size = u64::MAX - 1),
                "I1 Size"
            );
            let aside = a.pool.join(arck_controller::ASIDE);
            let since = std::time::Instant::now();
            while !aside.exists() && since.elapsed() < super::process::BOUND {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let open = |name: &str| {
                error_of(rustix::fs::open(
                    a.pool.join(name),
                    OFlags::RDONLY,
                    Mode::empty(),
                ))
            };
            all_the_same(names.into_iter().map(open).collect())
        },
    )
    .for_users(),
    case(
        "keep",
        "maps for writing what it may only read",
        "EACCES",
        |a| {
            let (_socket, files) = received(a);
            let said = [HEADERS, BITMAP].map(|at| {
                let file = files[at].as_raw_fd();
                let map = |protection| {
                    // SAFETY: a new map at a place of the kernel's choice; nothing refers to it.
                    unsafe {
                        libc::mmap(
                            std::ptr::null_mut(),
                            4096,
                            protection,
                            libc::MAP_SHARED,
                            file,
                            0,
                        )
                    }
                };
                assert_eq!(map(libc::PROT_READ | libc::PROT_WRITE), libc::MAP_FAILED);
                let readable = map(libc::PROT_READ);
                assert_ne!(readable, libc::MAP_FAILED);
                let both = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: of the map just made.
                let changed = unsafe { libc::mprotect(readable, 4096, both) };
                assert_eq!(changed, -1);
                errno_name(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
            });
            all_the_same(said.to_vec())
        },
    ),
    case(
        "keep",
        "cuts, extends and seals control memory",
        "EPERM",
        |a| {
            let (_socket, files) = received(a);
            let control = &files[CONTROL];
            all_the_same(vec![
                error_of(ftruncate(control, 0)),
                error_of(ftruncate(control, 1 << 30)),
                error_of(fcntl_add_seals(control, SealFlags::WRITE)),
            ])
        },
    ),
    case("keep", "signals and reads the controller", "EPERM", |a| {
        let controller = rustix::net::sockopt::socket_peercred(&a.socket)
            .expect("a process")
            .pid;
        let path = format!("/proc/{}/mem", controller.as_raw_nonzero());
        let read = error_of(rustix::fs::open(path, OFlags::RDWR, Mode::empty()));
        assert_eq!(read, "EACCES");
        error_of(rustix::process::kill_process(
            controller,
            rustix::process::Signal::KILL,
        ))
    })
    .for_users(),
    case(
        "keep",
        "keeps descriptors of segments and writes to them",
        NEVER_GRANTED,
        |a| {
            let files = segments_of_ended(a);
            scribble_for_ever(a, files);
            NEVER_GRANTED.into()
        },
    ),
    case(
        "keep",
        "keeps maps of segments and writes to them",
        NEVER_GRANTED,
        |a| {
            let size = a.welcome.geometry.segment_size as usize;
            let files = segments_of_ended(a);
            let maps: Vec<Mapping> = files
                .iter()
                .map(|file| Mapping::new(file, 0, size, MapOptions::READ_WRITE).expect("a map"))
                .collect();
            drop(files);
            std::thread::spawn(move || {
                let bytes = vec![0xcc; 1 << 16];
                loop {
                    for map in &maps {
                        for at in (0..size).step_by(bytes.len()) {
                            map.bytes().copy_from(at, &bytes).expect("in the map");
                        }
                    }
                }
            });
            NEVER_GRANTED.into()
        },
    ),
    case(
        "keep",
        "leaves descriptors in flight, and takes them out later",
        NEVER_GRANTED,
        |a| {
            let files = segments_of_ended(a);
            let pair = socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            );
            let (one, other) = pair.expect("a pair of sockets");
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            send(one.as_fd(), b"later", &borrowed).expect("sent");
            drop(files);
            // Others have taken what they need by then.
            for _ in 0..KEPT {
                Attacker::connect(&a.pool);
            }
            let (_, files) = receive(other.as_fd(), &mut [0; 16]).expect("received");
            assert_eq!(files.len(), KEPT);
            scribble_for_ever(a, files);
            NEVER_GRANTED.into()
        },
    ),
    case(
        "keep",
        "has the kernel write to pinned pages of segments",
        "punched before the grant",
        |a| {
            let size = a.welcome.geometry.segment_size as usize;
            let pin = |file: &OwnedFd| {
                let map = Mapping::new(file, 0, size, MapOptions::READ_WRITE).expect("a map");
                // A buffer is a gibibyte at most, and pinned memory is limited: half of each.
                Pinned::new(map.as_ptr(), size / 2)
            };
            let pins = match made_of_ended(a, pin) {
                Ok(pins) => pins,
                Err(why) => return why,
            };
            let source = memfd_create("junk", MemfdFlags::CLOEXEC).expect("a file");
            rustix::io::pwrite(&source, &vec![0xdd; size], 0).expect("junk");
            for pin in &pins {
                assert_eq!(pin.fill(&source), Ok((size / 2) as u32));
            }
            std::thread::spawn(move || {
                loop {
                    for pin in &pins {
                        pin.fill(&source).expect("its own buffer");
                    }
                }
            });
            "punched before the grant".into()
        },
    )
    .for_users(),
    case(
        "keep",
        "keeps pages of segments in pipes, and looks at them",
        "nothing seen",
        |a| {
            let size = a.welcome.geometry.segment_size as usize;
            let put = |file: &OwnedFd| {
                rustix::io::pwrite(file, &vec![0xcc; size], 0).expect("its own segment");
                let map = Mapping::new(file, 0, size, MapOptions::READ_WRITE).expect("a map");
                Piped::new(map.as_ptr())
            };
            let pipes = match made_of_ended(a, put) {
                Ok(pipes) => pipes,
                Err(why) => return why,
            };
            let look = move || {
                let is_own = |pipe: &Piped| pipe.look().iter().all(|&byte| byte == 0xcc);
                match pipes.iter().all(is_own) {
                    true => "nothing seen".to_owned(),
                    false => "seen".to_owned(),
                }
            };
            let seen = look();
            a.when_asked = Some(Box::new(look));
            seen
        },
    )
    .and(super::reading::looks_again)
    .for_users(),
];
