//! Attacks that use up what there is, and packets and requests that are none.
//!
//! # Invariant
//! * What an attacker cannot get more of it has got all of, and what it held the controller has
//!   back when the attacker is gone.

use super::attacker::{Attacker, errno_name, said};
use super::holding::lock_file;
use super::process::Role;
use super::raw::dial;
use super::table::{Attack, Scene, case};
use arck_core_state::arena::{ARENA_PAGES, ArenaHeader};
use arck_protocol::control::slot_state;
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{Access, Answer, Call, call, call_with, receive, send};
use arck_protocol::{Request, Response};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// More than there can be of anything that is limited.
const MANY: usize = 1 << 17;
/// Descriptors that the controller has at most for a few sessions.
const FEW_DESCRIPTORS: usize = 100;
/// Packets sent before any answer is read: few enough for the socket.
const MANY_AT_ONCE: usize = 12;
const GIVEN_BACK: &str = "all is given back";
const CLOSED: &str = "connection closed";
pub const ANSWERED: &str = "everybody is answered";

/// The controller has as many descriptors as ever.
fn few_descriptors(scene: &mut Scene, _: &mut Role) {
    scene.controller_has_at_most(FEW_DESCRIPTORS);
}

/// Whether a connection has ended, after whatever was still said on it.
pub fn is_closed(socket: &OwnedFd) -> bool {
    let mut buffer = [0; MESSAGE_MAX];
    loop {
        match receive(socket.as_fd(), &mut buffer) {
            Ok((0, _)) | Err(_) => return true,
            Ok((length, _)) => match Answer::decode(&buffer[..length]) {
                Ok(Answer::Error(errno, _)) => assert_eq!(errno, Errno::PROTO.raw_os_error()),
                other => panic!("{other:?}"),
            },
        }
    }
}

/// Packets that are none, each on a connection of its own.
fn packets(a: &Attacker, packets: &[&[u8]], has_session: bool) -> String {
    for packet in packets {
        let socket = dial(&a.pool);
        if has_session {
            call(&socket, &Call::hello(b"")).expect("a session");
        }
        send(socket.as_fd(), packet, &[]).expect("sent");
        assert!(is_closed(&socket), "{packet:?}");
    }
    CLOSED.into()
}

/// A descriptor whose last closing takes ten minutes: of a connection with data that nobody takes.
/// The other end has to live.
pub fn lingering() -> (OwnedFd, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let socket =
        TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
    let (other, _) = listener.accept().expect("accepted");
    socket.set_nonblocking(true).expect("not to wait here");
    let data = [0; 1 << 16];
    while std::io::Write::write(&mut &socket, &data).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 600,
    };
    // SAFETY: an option of the structure that it takes, which lives during the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    (socket.into(), (listener, other))
}

/// Closes a descriptor, which takes for ever if the controller has closed its own by now.
pub fn let_go(file: OwnedFd) {
    std::thread::spawn(move || drop(file));
}

/// Asks until it is refused, and says how.
fn until_refused(ask: impl Fn() -> Response) -> String {
    for _ in 0..MANY {
        let response = ask();
        if let Response::Error(errno) = response {
            return errno_name(errno);
        }
    }
    "never refused".into()
}

/// Everything in a session's own control memory that the controller looks at, over and over.
pub fn garbage_for_ever(a: &Attacker, words: [u64; 4]) {
    let control = a.control_again();
    std::thread::spawn(move || {
        let control = control();
        loop {
            for word in words {
                let header = &control.header;
                header.maps.store(word as u32, Ordering::SeqCst);
                header.delta_used.store(word, Ordering::SeqCst);
                header.delta_credits.store(word, Ordering::SeqCst);
                header.pages_free.store(word, Ordering::SeqCst);
                header.awake.store(word as u32, Ordering::SeqCst);
                header.closed.store(word as u32, Ordering::SeqCst);
                for entry in control.open.iter().chain(&control.maps).step_by(64) {
                    entry.store(word, Ordering::Relaxed);
                }
                for slot in &control.threads {
                    slot.clear();
                }
            }
        }
    });
}

/// Requests in all slots that change while they are read, over and over.
fn flood_for_ever(a: &Attacker, kinds: &'static [u64]) {
    let control = a.control_again();
    std::thread::spawn(move || {
        let control = control();
        for round in 0u64.. {
            for (at, slot) in control.requests.iter().enumerate() {
                let kind = kinds[(round as usize + at) % kinds.len()];
                slot.length.store((round % 2048) as u32, Ordering::Relaxed);
                for (place, word) in slot.payload.iter().take(8).enumerate() {
                    let value = kind | round.wrapping_mul(0x9e37_79b9) << (8 + place);
                    word.store(value, Ordering::Relaxed);
                }
                slot.state.store(slot_state::SUBMITTED, Ordering::SeqCst);
            }
            control.header.doorbell.store(u64::MAX, Ordering::SeqCst);
        }
    });
}

pub const ATTACKS: &[Attack] = &[
    case("exhaust", "connects a thousand times", GIVEN_BACK, |a| {
        for round in 0..1000 {
            let socket = dial(&a.pool);
            if round % 4 == 0 {
                call(&socket, &Call::hello(b"")).expect("a session");
            }
        }
        GIVEN_BACK.into()
    })
    .and(few_descriptors),
    case(
        "exhaust",
        "opens as many sessions as it gets",
        "EAGAIN",
        |a| {
            let mut sockets = Vec::new();
            loop {
                let socket = dial(&a.pool);
                match call(&socket, &Call::hello(b"")).expect("an answer").0 {
                    Answer::Welcome(_) => sockets.push(socket),
                    Answer::Error(errno, _) => {
                        std::mem::forget(sockets);
                        return errno_name(errno);
                    }
                    other => panic!("{other:?}"),
                }
            }
        },
    )
    .for_users(),
    case(
        "exhaust",
        "opens as many connections as it gets",
        "EAGAIN",
        |a| {
            let mut sockets = Vec::new();
            loop {
                let socket = dial(&a.pool);
                // Nothing is said on one that is welcome.
                let mut ready = [rustix::event::PollFd::new(
                    &socket,
                    rustix::event::PollFlags::IN,
                )];
                let little = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: 2_000_000,
                };
                let is_told =
                    rustix::event::poll(&mut ready, Some(&little)).expect("an answer") == 1;
                sockets.push(socket);
                if is_told {
                    let mut buffer = [0; MESSAGE_MAX];
                    let (length, _) =
                        receive(sockets[sockets.len() - 1].as_fd(), &mut buffer).expect("said");
                    std::mem::forget(sockets);
                    match Answer::decode(&buffer[..length]) {
                        Ok(Answer::Error(errno, _)) => return errno_name(errno),
                        other => panic!("{other:?}"),
                    }
                }
                assert!(sockets.len() < MANY);
            }
        },
    )
    .for_users(),
    case("exhaust", "takes all inode numbers", "ENOSPC", |a| {
        until_refused(|| a.ask(&Request::GrantInodes { count: 256 }))
    })
    .when_full(),
    case("exhaust", "takes all segments", "ENOSPC", |a| {
        loop {
            let (answer, files) = call(&a.socket, &Call::GrantSegment).expect("an answer");
            std::mem::forget(files);
            if let Answer::Error(errno, _) = answer {
                return errno_name(errno);
            }
        }
    })
    .when_full(),
    case(
        "exhaust",
        "asks for segments without waiting for any",
        ANSWERED,
        |a| {
            let mut packet = [0; MESSAGE_MAX];
            let length = Call::GrantSegment.encode(&mut packet).expect("room");
            for _ in 0..MANY_AT_ONCE {
                send(a.socket.as_fd(), &packet[..length], &[]).expect("sent");
            }
            for _ in 0..MANY_AT_ONCE {
                let (length, files) =
                    receive(a.socket.as_fd(), &mut packet).expect("an answer to each");
                match Answer::decode(&packet[..length]) {
                    Ok(Answer::Segments(granted)) => {
                        assert_eq!((granted.len(), files.len()), (1, 1));
                    }
                    // One waits, and this one came meanwhile; or there are no more.
                    Ok(Answer::Error(libc::EALREADY | libc::ENOSPC, _)) => {}
                    other => panic!("{other:?}"),
                }
            }
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "grows its arena beyond its span",
        "EINVAL",
        |a| {
            said(&a.ask(&Request::GrowArena {
                branch_pages: 0,
                delta_pages: ARENA_PAGES,
            }))
        },
    ),
    case(
        "exhaust",
        "asks for room for all delta pages there are",
        "ENOSPC",
        |a| {
            for _ in 0..200 {
                let request = Request::MoreCredits {
                    pages: u32::MAX,
                    pressing: true,
                };
                assert_eq!(said(&a.ask(&request)), "ENOSPC");
            }
            "ENOSPC".into()
        },
    ),
    case(
        "exhaust",
        "takes as many lock files as it gets",
        "descriptors of its own",
        |a| {
            let inodes = ["attacker/file", "victim/inner", "common"].map(|path| a.find(path));
            let began = Instant::now();
            let mut taken = 0;
            loop {
                // Without room for the descriptor, there is none in the answer.
                match lock_file(a, inodes[taken % 3], Access::Read) {
                    Ok(file) => std::mem::forget(file),
                    Err(why) if why == "no descriptor" => break,
                    Err(why) => return why,
                }
                taken += 1;
                assert!(taken < MANY);
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{taken}");
            "descriptors of its own".into()
        },
    )
    .and(|scene, _| {
        scene.controller_has_less_memory(256 << 20);
    }),
    case(
        "exhaust",
        "thousands of refusals",
        "a log of bounded length",
        |a| {
            let file = a.own("attacker/file");
            for round in 0..3000 {
                let said = a.forge(file, |b| b.size = u64::MAX - 1 - round % 7);
                if said != "I1 Size" {
                    // Taken away after a grace period, on a slow machine.
                    assert!(matches!(said.as_str(), "accepted" | "ESTALE"), "{said}");
                    a.acquire(&[file]);
                }
            }
            "a log of bounded length".into()
        },
    )
    .and(|scene, _| {
        let length = |name: &str| {
            std::fs::metadata(scene.pool().join(name)).map_or(0, |status| status.len())
        };
        let names = [
            arck_controller::VIOLATIONS_LOG,
            arck_controller::VIOLATIONS_LOG_OLD,
        ];
        let bytes: u64 = names.into_iter().map(length).sum();
        assert!(bytes < 10 << 20, "{bytes} bytes of log");
    }),
    // ---- packets
    case("exhaust", "packets that are none", CLOSED, |a| {
        packets(
            a,
            &[
                b"x",
                &[0xff; MESSAGE_MAX],
                &[0xff; 2 * MESSAGE_MAX],
                &[1],
                &[2, 255, 255],
                &[0; 100],
            ],
            true,
        )
    }),
    case(
        "exhaust",
        "packets that are none before any greeting",
        CLOSED,
        |a| packets(a, &[b"x", &[0; MESSAGE_MAX], &[9; 3], &[6; 20]], false),
    ),
    case("exhaust", "half packets, and more than one", CLOSED, |a| {
        let mut whole = [0; MESSAGE_MAX];
        let length = Call::hello(b"").encode(&mut whole).expect("room");
        let twice = [&whole[..length], &whole[..length]].concat();
        packets(
            a,
            &[
                &whole[..length - 1],
                &whole[..1],
                &whole[..length + 1],
                &twice,
                b"",
            ],
            false,
        )
    })
    .and(few_descriptors),
    case(
        "exhaust",
        "packets with descriptors attached",
        CLOSED,
        |a| {
            let file =
                rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("a file");
            for count in [1, 2, 16] {
                let files: Vec<BorrowedFd<'_>> = (0..count).map(|_| file.as_fd()).collect();
                for _ in 0..50 {
                    let socket = dial(&a.pool);
                    // Told what is wrong, or not even that.
                    let _ = call_with(&socket, &Call::hello(b""), &files);
                    assert!(is_closed(&socket));
                }
            }
            CLOSED.into()
        },
    )
    .and(few_descriptors),
    case(
        "exhaust",
        "descriptors attached whose closing takes for ever",
        ANSWERED,
        |a| {
            let mut kept = Vec::new();
            for round in 0..12 {
                let (file, other) = lingering();
                let socket = dial(&a.pool);
                let bytes = if round % 2 == 0 {
                    &[1u8][..]
                } else {
                    &[1, 4, 0, 0, 0]
                };
                send(socket.as_fd(), bytes, &[file.as_fd()]).expect("sent");
                let_go(file);
                kept.push((socket, other));
            }
            std::mem::forget(kept);
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "such descriptors in packets that nobody reads",
        ANSWERED,
        |a| {
            let mut kept = Vec::new();
            for _ in 0..12 {
                let socket = dial(&a.pool);
                send(socket.as_fd(), b"none", &[]).expect("sent");
                for _ in 0..4 {
                    let (file, other) = lingering();
                    // The connection may be closed by now.
                    let _ = send(socket.as_fd(), b"more", &[file.as_fd()]);
                    let_go(file);
                    kept.push(other);
                }
            }
            std::mem::forget(kept);
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "asks on and on, and reads no answer",
        CLOSED,
        |a| {
            let socket = dial(&a.pool);
            call(&socket, &Call::hello(b"")).expect("a session");
            let mut packet = [0; MESSAGE_MAX];
            let segments = vec![0];
            let length = Call::MapSegments { segments }
                .encode(&mut packet)
                .expect("room");
            for _ in 0..MANY {
                if send(socket.as_fd(), &packet[..length], &[]).is_err() {
                    return CLOSED.into();
                }
            }
            "never closed".into()
        },
    )
    .and(few_descriptors),
    // ---- requests
    case(
        "exhaust",
        "requests without end that change while they are read",
        ANSWERED,
        |a| {
            flood_for_ever(
                a,
                &[2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
            );
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "requests without end that are none",
        ANSWERED,
        |a| {
            flood_for_ever(a, &[0, 99, 200, 255]);
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "folds without end of all it owns",
        ANSWERED,
        |a| {
            for _ in 0..2000 {
                a.number();
            }
            a.for_ever(|client| {
                let _ = client.try_ask(&Request::CommitAll { release: true });
            });
            flood_for_ever(a, &[4]);
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "garbage all over its control memory",
        ANSWERED,
        |a| {
            garbage_for_ever(a, [u64::MAX, 0, 1 << 31, 0x1_0000_0001]);
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "says in its arena that it is another session",
        ANSWERED,
        |a| {
            for session in 0..a.welcome.session {
                let header = ArenaHeader {
                    magic: arck_core_state::arena::MAGIC,
                    session,
                    reserved: 0,
                };
                a.store(0, header.as_bytes());
                let directory = a.own("attacker");
                let name: &'static [u8] = format!("as-{session}").leak().as_bytes();
                a.creation_with(directory, name, |_| {});
                assert_eq!(a.commit_of(directory), "accepted");
                let number = a.verified(directory, name).expect("the new name").inode;
                assert_eq!(a.inode(number).uid, rustix::process::geteuid().as_raw());
            }
            ANSWERED.into()
        },
    ),
    case(
        "exhaust",
        "says on its socket that it is another user",
        "EPERM",
        |a| {
            let socket = dial(&a.pool);
            let result = send_as(&socket, 0);
            errno_name(result.expect_err("the kernel knows better").raw_os_error())
        },
    )
    .for_users(),
];

/// Sends a greeting with other credentials.
fn send_as(socket: &OwnedFd, uid: u32) -> Result<(), Errno> {
    let mut packet = [0u8; MESSAGE_MAX];
    let length = Call::hello(b"").encode(&mut packet).expect("room");
    let mut vector = libc::iovec {
        iov_base: packet.as_mut_ptr().cast(),
        iov_len: length,
    };
    let credentials = libc::ucred {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        uid,
        gid: uid,
    };
    let mut space = [0u64; 8];
    // SAFETY: a message of one vector and one piece of control data, laid out by the kernel's own
    // rules in space that is large enough and aligned; all of it lives during the call.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize;
        let control = libc::CMSG_FIRSTHDR(&raw const message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_CREDENTIALS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize;
        libc::CMSG_DATA(control)
            .cast::<libc::ucred>()
            .write_unaligned(credentials);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(errno) if sent < 0 => Err(errno),
        _ => Ok(()),
    }
}
