//! Attacks around a controller that is killed, and another one that is started: it takes up the
//! sessions that are there, by what they say.
//!
//! # Invariant
//! * The victim's session outlives every controller, and is told nothing of it.

use super::attacker::{Attacker, all_the_same, errno_name};
use super::exhausting::{ANSWERED, garbage_for_ever};
use super::holding::{BOUNDED, owns_open};
use super::process::{ATTACK_BOUND, BOUND, Role};
use super::raw::try_dial;
use super::table::{Attack, Scene, case};
use arck_core_state::PagePtr;
use arck_protocol::control::{
    CONTROL_SIZE, ControlMemory, MAP_SLOTS, map_entry, open_entry, slot_state,
};
use arck_protocol::operation::LightBarrier;
use arck_protocol::socket::{Answer, Call, Caller, Welcome, call_with, send};
use arck_protocol::{PROTOCOL_VERSION, Request};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// Controllers that are killed in one attack.
const KILLED: usize = 3;
/// Threads of each attacker.
const THREADS: usize = 3;
/// Numbers of sessions that are guessed.
const SESSIONS: u32 = 24;
const CLAIMS: &str = "claims all sessions, with secrets that it guesses";
const GARBAGE: &str = "comes back with garbage in its control memory";
const CLAIMS_ALL: &str = "never comes back, and claims all that there is";
const FLOODED: &str = "floods of connections, with all of these at once";
const REFUSED: &str = "EACCES, ESTALE";

/// The call by which a session is gone on with.
pub fn resume_of(welcome: &Welcome) -> Call {
    Call::Resume {
        version: PROTOCOL_VERSION,
        session: welcome.session,
        secret: welcome.secret,
        member: welcome.member,
        caller: Caller::of_process(b""),
    }
}

/// What a controller says to a call, if there is one.
pub fn said_of(pool: &Path, call: &Call, file: &OwnedFd) -> Result<String, Errno> {
    let socket = try_dial(pool)?;
    Ok(match call_with(&socket, call, &[file.as_fd()])? {
        (Answer::Resumed, _) => {
            // The session is as it is for as long as there is this connection.
            std::mem::forget(socket);
            "resumed".into()
        }
        (Answer::Error(errno, _), _) => errno_name(errno),
        (other, _) => panic!("{other:?}"),
    })
}

/// Asks to go on with every session there may be, with secrets that are guessed; gives what is said.
fn claims_all(a: &Attacker, said: &Arc<Mutex<BTreeSet<String>>>) {
    for thread in 0..THREADS {
        let (pool, own, said) = (a.pool.clone(), a.welcome.clone(), said.clone());
        let control = a.control_file.try_clone().expect("its control memory");
        std::thread::spawn(move || {
            let secrets = [[0; 2], own.secret, [u64::MAX; 2]];
            loop {
                for session in (0..SESSIONS).filter(|&session| session != own.session) {
                    let call = Call::Resume {
                        version: PROTOCOL_VERSION,
                        session,
                        secret: secrets[thread],
                        member: 1,
                        caller: Caller::of_process(b""),
                    };
                    // There may be no controller for a while.
                    if let Ok(one) = said_of(&pool, &call, &control) {
                        said.lock().expect("nobody panics with it").insert(one);
                    }
                }
            }
        });
    }
}

/// Everybody works with one controller after another.
fn controllers_die(scene: &mut Scene, _: &mut Role) {
    for _ in 0..KILLED {
        scene.restart_controller();
        scene.victim_works();
        scene.third_works();
    }
}

fn claimed(scene: &mut Scene, attacker: &mut Role) {
    controllers_die(scene, attacker);
    assert_eq!(attacker.ask("said"), REFUSED);
}

/// Several attackers at once.
fn all_of_them(scene: &mut Scene, attacker: &mut Role) {
    let others = [
        (CLAIMS, REFUSED),
        (GARBAGE, ANSWERED),
        (CLAIMS_ALL, BOUNDED),
        (FLOODED, ANSWERED),
    ];
    let others = others.map(|(name, stop)| {
        let mut other = scene.start_attacker(name);
        assert_eq!(other.line(ATTACK_BOUND), stop);
        other
    });
    controllers_die(scene, attacker);
    others.into_iter().for_each(Role::kill);
}

/// Each controller takes the attacker up.
fn taken_up(scene: &mut Scene, attacker: &mut Role) {
    for _ in 0..KILLED {
        scene.restart_controller();
        assert_eq!(attacker.ask("come back"), "resumed");
        scene.victim_works();
        scene.third_works();
    }
}

/// Comes back, with all sorts of things, and then with what it should; says what was said.
fn comes_back(scene: &mut Scene, attacker: &mut Role) {
    for _ in 0..KILLED {
        scene.restart_controller();
        assert_eq!(attacker.ask("come back"), "EINVAL");
        scene.victim_works();
        scene.third_works();
    }
}

fn memory(size: usize, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("control", flags).expect("a file");
    ftruncate(&file, size as u64).expect("its size");
    fcntl_add_seals(&file, seals).expect("its seals");
    file
}

/// What is no control memory.
fn others_than_control(a: &Attacker) -> Vec<OwnedFd> {
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    let sealed = memory(CONTROL_SIZE, all | SealFlags::WRITE);
    vec![
        memory(CONTROL_SIZE, SealFlags::empty()),
        memory(CONTROL_SIZE, SealFlags::SHRINK | SealFlags::GROW),
        memory(CONTROL_SIZE, SealFlags::GROW | SealFlags::SEAL),
        memory(CONTROL_SIZE - 4096, all),
        memory(CONTROL_SIZE + 4096, all),
        memory(0, all),
        sealed,
        a.arena_file.try_clone().expect("its arena"),
        read,
        write,
        try_dial(&a.pool).expect("a connection"),
    ]
}

/// Control memory that says the worst of everything.
fn garbage(control: &ControlMemory) {
    let header = &control.header;
    header.maps.store(u32::MAX, Ordering::SeqCst);
    header.doorbell.store(!0, Ordering::SeqCst);
    for entry in control.open.iter().chain(&control.maps) {
        entry.store(!0, Ordering::Relaxed);
    }
    for slot in &control.requests {
        slot.count.store(u64::MAX, Ordering::Relaxed);
        slot.state.store(slot_state::SUBMITTED, Ordering::SeqCst);
    }
}

/// The first of a trust group: all that it was sent, and the calls by which others join it and it goes
/// on.
fn greets_as_group(a: &Attacker) -> (OwnedFd, Vec<OwnedFd>, Call, Call) {
    let socket = try_dial(&a.pool).expect("a connection");
    let hello = Call::hello(b"thieves");
    let (answer, files) = call_with(&socket, &hello, &[]).expect("an answer");
    let Answer::Welcome(welcome) = answer else {
        panic!("{answer:?}");
    };
    let (answer, _) = call_with(&socket, &Call::RegionMade, &[]).expect("an answer");
    assert_eq!(answer, Answer::Done);
    let resume = Call::Resume {
        version: PROTOCOL_VERSION,
        session: welcome.session,
        secret: welcome.secret,
        member: welcome.member,
        caller: Caller::of_process(b"thieves"),
    };
    (socket, files, hello, resume)
}

pub const ATTACKS: &[Attack] = &[
    case(
        "restart",
        "comes back with what it may only read as its group's region",
        "EINVAL",
        |a| {
            let (socket, files, hello, resume) = greets_as_group(a);
            let mut sockets = vec![socket];
            let (_, segments) = {
                let inode = a.header(a.find("attacker")).copy().inode;
                let segment = a.welcome.geometry.segment_of(PagePtr::of_address(inode));
                let map = Call::MapSegments {
                    segments: vec![segment],
                };
                call_with(&a.socket, &map, &[]).expect("an answer")
            };
            let pool = a.pool.clone();
            a.when_asked = Some(Box::new(move || {
                // Headers, bitmap, its arena; metadata; a file of its own that others could find shorter.
                let own = tempfile::tempfile_in("/dev/shm").expect("a file");
                own.set_len(1 << 30).expect("a size");
                let own = OwnedFd::from(own);
                let region = std::os::fd::AsRawFd::as_raw_fd(&files[4]);
                // The controller's file, which nobody opens again by what he was sent.
                let again = std::fs::File::open(format!("/proc/self/fd/{region}"));
                let denied = std::io::ErrorKind::PermissionDenied;
                assert_eq!(again.map_err(|error| error.kind()).err(), Some(denied));
                let others = files[..2].iter().chain(&files[5..]).chain(&segments);
                let mut said = Vec::new();
                for file in others.chain([&own]) {
                    let other = try_dial(&pool).expect("a connection");
                    let handed_in = [files[2].as_fd(), file.as_fd()];
                    match call_with(&other, &resume, &handed_in).expect("an answer") {
                        (Answer::Error(errno, _), _) => said.push(errno_name(errno)),
                        (answer, _) => said.push(format!("{answer:?}")),
                    }
                }
                let socket = try_dial(&pool).expect("a connection");
                let handed_in = [files[2].as_fd(), files[4].as_fd()];
                let (answer, _) = call_with(&socket, &resume, &handed_in).expect("an answer");
                assert_eq!(answer, Answer::Resumed);
                sockets.push(socket);
                let second = try_dial(&pool).expect("a connection");
                let (answer, _) = call_with(&second, &hello, &[]).expect("an answer");
                assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
                all_the_same(said)
            }));
            "EINVAL".into()
        },
    )
    .and(comes_back),
    case("restart", CLAIMS, REFUSED, |a| {
        let said = Arc::new(Mutex::new(BTreeSet::new()));
        claims_all(a, &said);
        a.when_asked = Some(Box::new(move || {
            let said = said.lock().expect("nobody panics with it");
            said.iter().cloned().collect::<Vec<_>>().join(", ")
        }));
        REFUSED.into()
    })
    .and(claimed),
    case(
        "restart",
        "comes back with control memory that is none",
        "EINVAL",
        |a| {
            let files = others_than_control(a);
            let own = a.control_file.try_clone().expect("its control memory");
            let (pool, call) = (a.pool.clone(), resume_of(&a.welcome));
            // While it is there, nobody can come back as it.
            let said = said_of(&pool, &call, &own).expect("an answer");
            assert_eq!(said, "EBUSY");
            a.when_asked = Some(Box::new(move || {
                let said = |file: &OwnedFd| said_of(&pool, &call, file).expect("an answer");
                let refused = all_the_same(files.iter().map(said).collect());
                assert_eq!(said_of(&pool, &call, &own).expect("an answer"), "resumed");
                assert_eq!(said_of(&pool, &call, &own).expect("an answer"), "EBUSY");
                refused
            }));
            "EINVAL".into()
        },
    )
    .and(comes_back),
    case("restart", GARBAGE, ANSWERED, |a| {
        owns_open(a);
        let control = a.control_again();
        let own = a.control_file.try_clone().expect("its control memory");
        let (pool, call) = (a.pool.clone(), resume_of(&a.welcome));
        garbage_for_ever(a, [u64::MAX, 0, 1 << 31, 0x1_0000_0001]);
        let (sender, resumed) = channel();
        std::thread::spawn(move || {
            loop {
                garbage(control());
                // There may be no controller, or it is there still.
                if said_of(&pool, &call, &own).is_ok_and(|said| said == "resumed")
                    && sender.send(()).is_err()
                {
                    return;
                }
            }
        });
        a.when_asked = Some(Box::new(move || match resumed.recv_timeout(BOUND) {
            Ok(()) => "resumed".into(),
            Err(error) => error.to_string(),
        }));
        ANSWERED.into()
    })
    .and(taken_up),
    case("restart", CLAIMS_ALL, BOUNDED, |a| {
        owns_open(a);
        let control = a.control();
        for thread in &control.threads {
            thread.enter(LightBarrier::Fence);
        }
        let alive = (1..a.welcome.geometry.inode_count).filter(|&one| a.is_alive(one));
        control
            .header
            .maps
            .store(MAP_SLOTS as u32, Ordering::SeqCst);
        for (place, number) in alive.enumerate() {
            let generation = a.header(number).generation();
            control.open[place].store(open_entry(number, generation), Ordering::SeqCst);
            control.maps[place].store(map_entry(number, generation, true), Ordering::SeqCst);
        }
        BOUNDED.into()
    })
    .and(controllers_die),
    case("restart", FLOODED, ANSWERED, |a| {
        // Asked for, and never waited for.
        let _ = a.submit(&Request::CommitAll { release: true });
        for thread in 0..THREADS {
            let pool = a.pool.clone();
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                loop {
                    let Ok(socket) = try_dial(&pool) else {
                        kept.clear();
                        continue;
                    };
                    // A session, packets that are none, or nothing at all.
                    match thread {
                        0 => drop(call_with(&socket, &Call::hello(b""), &[])),
                        1 => drop(send(socket.as_fd(), &[0xff; 100], &[socket.as_fd()])),
                        _ => kept.push(socket),
                    }
                    if kept.len() > 100 {
                        kept.clear();
                    }
                }
            });
        }
        ANSWERED.into()
    })
    .and(all_of_them),
];
