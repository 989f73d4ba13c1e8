//! Attacks by a second process that was handed all that a session has: its socket, and every
//! descriptor that it was sent; of the same user and of another, beside the first and after its death.
//!
//! # Invariant
//! * The second process has nothing but what it was handed, and the numbers of inodes: it asks for nothing
//!   else of its own.

use super::attacker::{Attacker, all_the_same, errno_name, said};
use super::exhausting::garbage_for_ever;
use super::holding::BOUNDED;
use super::keeping::scribble_for_ever;
use super::process::{ATTACK_BOUND, Role, User, become_user};
use super::raw::{Client, dial, seqpacket};
use super::table::{Attack, Scene, case};
use super::world::{ATTACKER_USER, OPEN, THIRD_USER, VICTIM_USER};
use arck_core_state::InodeNumber;
use arck_protocol::Request;
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::operation::LightBarrier;
use arck_protocol::socket::{Answer, Call, DESCRIPTORS_MAX, call, receive, send};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketAddrUnix, accept, bind, connect, listen};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// Segments that are handed on.
const SEGMENTS: usize = 4;
/// What a session's greeting brought.
const GREETING: usize = 6;

const USED_BY_OTHERS: &str = "used by a process of the victim's user";
const GOES_ON: &str = "dies, and a process of the same user goes on";
const GOES_ON_AS_ANOTHER: &str = "dies, and a process of another user goes on";
const ENDED: &str = "used by another user's process when it has ended";
const TAKEN_UP: &str = "taken up by another user's process";
const ASKED: &str = "EACCES";
/// From a process that is not the one that connected nothing is heard: the wait for an answer ends.
const UNHEARD: &str = "EAGAIN";
const SILENCE: Duration = Duration::from_secs(2);

/// Where a process hands on what it has: nobody's file, and gone with the process.
fn address(process: u32) -> SocketAddrUnix {
    let name = format!("arck-hostile-{process}");
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name")
}

/// A session with segments, given to the first process that asks for it.
fn hand_on(a: &Attacker, has_ended: bool) {
    let socket = dial(&a.pool);
    let (answer, mut files) = call(&socket, &Call::hello(b"")).expect("an answer");
    assert_eq!(files.len(), GREETING, "{answer:?}");
    files.extend((0..SEGMENTS).flat_map(|_| {
        let (_, segment) = call(&socket, &Call::GrantSegment).expect("an answer");
        segment
    }));
    if has_ended {
        let (said, _) = call(&socket, &Call::Goodbye).expect("an answer");
        assert_eq!(said, Answer::Done);
    }
    give(&answer, socket, files);
}

fn give(answer: &Answer, socket: OwnedFd, files: Vec<OwnedFd>) {
    let listener = seqpacket();
    bind(&listener, &address(std::process::id())).expect("its name");
    listen(&listener, 1).expect("listening");
    let mut packet = [0; MESSAGE_MAX];
    let length = answer.encode(&mut packet).expect("room");
    std::thread::spawn(move || {
        let second = accept(&listener).expect("the second process");
        let all = std::iter::once(&socket).chain(&files);
        let all: Vec<_> = all.map(AsFd::as_fd).collect();
        send(second.as_fd(), &packet[..length], &all).expect("handed on");
        // The first has them all the same.
        loop {
            std::thread::park();
        }
    });
}

/// The role: gets what another process hands on, does its part, says what stopped it, and stays.
pub fn second(pool: &Path, attack: &str, first: &str) {
    become_user();
    let from = seqpacket();
    let first = first.parse().expect("a process");
    connect(&from, &address(first)).expect("the first process");
    let mut packet = [0; MESSAGE_MAX];
    let (length, mut files) = receive(from.as_fd(), &mut packet).expect("what is handed on");
    let Ok(Answer::Welcome(welcome)) = Answer::decode(&packet[..length]) else {
        panic!("no session");
    };
    let socket = files.remove(0);
    set_socket_timeout(&socket, Timeout::Recv, Some(SILENCE)).expect("a time-out");
    let segments = files.split_off(GREETING);
    let mut a = Attacker::of(Client::of(socket, welcome, files), pool);
    let stopped = match attack {
        USED_BY_OTHERS => looks_around(&a, pool),
        GOES_ON | GOES_ON_AS_ANOTHER => {
            // First of all while the other is there.
            let open = number_of(pool, OPEN);
            a.acquire(&[open]);
            a.creation_with(open, b"attackers", |_| {});
            a.when_asked = Some(Box::new(goes_on(&a, segments)));
            BOUNDED.into()
        }
        ENDED => {
            let said = call(&a.socket, &Call::GrantSegment).expect_err("silence");
            writes_for_ever(&a, segments);
            errno_name(said.raw_os_error())
        }
        TAKEN_UP => {
            let control = a.control_file.try_clone().expect("its control memory");
            let (pool, call) = (a.pool.clone(), super::restarting::resume_of(&a.welcome));
            a.when_asked = Some(Box::new(move || {
                super::restarting::said_of(&pool, &call, &control).expect("an answer")
            }));
            ASKED.into()
        }
        other => panic!("no attack {other}"),
    };
    a.stays(&stopped);
}

/// The number of an inode, as this process's own user may know it: of what it was handed it cannot have
/// anything mapped that was not mapped there.
fn number_of(pool: &Path, path: &str) -> InodeNumber {
    let own = Attacker::connect(pool);
    let number = own.find(path);
    own.end();
    number
}

/// Asks for what the session's user may not have, and its own user may.
fn looks_around(a: &Attacker, pool: &Path) -> String {
    let private = number_of(pool, "victim/private");
    let admit = Request::Admit {
        inode: private,
        contents: true,
    };
    let said = vec![said(&a.ask(&admit)), a.acquisition(private)];
    let all = 0..a.welcome.geometry.segment_count;
    let segments = all.take(DESCRIPTORS_MAX).collect();
    let mapped = call(&a.socket, &Call::MapSegments { segments });
    assert_eq!(mapped.expect_err("silence"), Errno::AGAIN);
    all_the_same(said)
}

/// Everything that can be written is.
fn writes_for_ever(a: &Attacker, segments: Vec<OwnedFd>) {
    scribble_for_ever(a, segments);
    garbage_for_ever(a, [u64::MAX, 0, 1 << 31, 0x1_0000_0001]);
    let arena = a.arena_again();
    let granted = (u64::from(a.welcome.branch_pages) + 1) * arck_core_state::PAGE_SIZE;
    std::thread::spawn(move || {
        let bytes = [0xee; 64];
        loop {
            for at in (0..granted as usize).step_by(4096) {
                arena.bytes().copy_from(at, &bytes).expect("in its arena");
            }
        }
    });
}

/// What it does when it is alone with the session: it is in an operation for ever, and writes all over
/// what it has.
fn goes_on(a: &Attacker, segments: Vec<OwnedFd>) -> impl FnMut() -> String + Send + 'static {
    let control = a.control_again();
    let arena = a.arena_again();
    let size = a.welcome.geometry.segment_size as usize;
    let mut segments = Some(segments);
    move || {
        for thread in &control().threads {
            thread.enter(LightBarrier::Fence);
        }
        let first = arck_core_state::arena::branch_offset(1).expect("a branch") as usize;
        arena.bytes().copy_from(first, &[0x55; 64]).expect("in it");
        for segment in segments.take().into_iter().flatten() {
            rustix::io::pwrite(&segment, &vec![0xbb; size], 0).expect("its own segment");
            std::mem::forget(segment);
        }
        BOUNDED.into()
    }
}

fn start_second(scene: &Scene, first: &Role, attack: &str, user: User) -> Role {
    let first = first.id().to_string();
    Role::start("second", user, &[&scene.pool_text(), attack, &first])
}

fn other_looks(scene: &mut Scene, first: &mut Role) {
    let mut second = start_second(scene, first, USED_BY_OTHERS, VICTIM_USER);
    assert_eq!(second.line(ATTACK_BOUND), ASKED);
    scene.victim_works();
    second.kill();
}

fn first_dies(scene: &mut Scene, first: &mut Role, attack: &str, user: User) {
    let mut second = start_second(scene, first, attack, user);
    assert_eq!(second.line(ATTACK_BOUND), BOUNDED);
    scene.victim_works();
    first.signal(Signal::KILL);
    assert_eq!(second.ask("alone"), BOUNDED);
    scene.victim_works();
    // Its directory is wanted by others.
    scene.third_works();
    scene.victim_works();
    second.kill();
}

fn ended_and_used(scene: &mut Scene, first: &mut Role) {
    let mut second = start_second(scene, first, ENDED, THIRD_USER);
    assert_eq!(second.line(ATTACK_BOUND), UNHEARD);
    first.signal(Signal::KILL);
    for _ in 0..3 {
        scene.victim_works();
        scene.third_works();
    }
    second.kill();
}

fn restarted_and_taken_up(scene: &mut Scene, first: &mut Role) {
    let mut second = start_second(scene, first, TAKEN_UP, THIRD_USER);
    assert_eq!(second.line(ATTACK_BOUND), ASKED);
    scene.restart_controller();
    assert_eq!(second.ask("take up"), ASKED);
    scene.victim_works();
    assert_eq!(second.ask("take up"), ASKED);
    second.kill();
}

pub const ATTACKS: &[Attack] = &[
    case("pass", USED_BY_OTHERS, ASKED, |a| {
        hand_on(a, false);
        ASKED.into()
    })
    .and(other_looks)
    .for_users(),
    case("pass", GOES_ON, BOUNDED, |a| {
        hand_on(a, false);
        BOUNDED.into()
    })
    .and(|scene, first| first_dies(scene, first, GOES_ON, ATTACKER_USER)),
    case("pass", GOES_ON_AS_ANOTHER, BOUNDED, |a| {
        hand_on(a, false);
        BOUNDED.into()
    })
    .and(|scene, first| first_dies(scene, first, GOES_ON_AS_ANOTHER, THIRD_USER))
    .for_users(),
    case("pass", ENDED, UNHEARD, |a| {
        hand_on(a, true);
        UNHEARD.into()
    })
    .and(ended_and_used)
    .for_users(),
    case("pass", TAKEN_UP, ASKED, |a| {
        hand_on(a, false);
        ASKED.into()
    })
    .and(restarted_and_taken_up)
    .for_users(),
];
