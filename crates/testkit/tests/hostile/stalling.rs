//! Attacks by what the kernel lets a process do to memory and descriptors that others hold as well: pages that
//! never come, pages that are kept in pipes, descriptors that take for ever to close, and other users'
//! processes taken apart.
//!
//! # Invariant
//! * What is stalled or taken apart is the attacker's own, or the attack fails.

use super::attacker::{Attacker, errno_name};
use super::endless::never_comes;
use super::exhausting::{ANSWERED, let_go, lingering};
use super::holding::BOUNDED;
use super::keeping::error_of;
use super::pinned::{PIPE, Piped};
use super::process::Role;
use super::races::file_in_segment;
use super::raw::{dial, try_dial};
use super::restarting::resume_of;
use super::table::{Attack, Scene, case};
use super::world::VICTIM_USER;
use arck_pm::{MapOptions, Mapping};
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::send;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstat, open};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

/// Controllers that are killed.
const KILLED: usize = 3;

/// What a process that means no harm has in its descriptors and its memory, to another user.
const APART: &str = "EPERM";

/// Punches all of a file that it can write, of which there is a mapping whose pages then never come, and has
/// a thread of its own wait for one of them.
fn stall(file: &OwnedFd) -> Result<(), String> {
    let length = fstat(file).expect("a status").st_size as usize;
    let map = Mapping::new(file, 0, length, MapOptions::READ_WRITE).expect("a map");
    never_comes(map.as_ptr(), length)?;
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, how, 0, length as u64).expect("a hole");
    std::thread::spawn(move || {
        let mut byte = [0];
        // It never returns.
        let _ = map.bytes().try_copy_to(0, &mut byte);
    });
    Ok(())
}

/// Both files of a session into which it writes, and what others ask for then.
fn stalls_its_memory(a: &mut Attacker) -> String {
    let segment = file_in_segment(a);
    let arena = a.arena_file.try_clone().expect("its arena");
    for file in [&segment, &arena] {
        if let Err(why) = stall(file) {
            return why;
        }
    }
    BOUNDED.into()
}

/// What a fresh reader finds where the pages were.
fn zeroes_are_read(scene: &mut Scene, _: &mut Role) {
    assert_eq!(scene.reads("attacker/file"), "Some(0)");
}

/// Offers what takes for ever to close to each controller that comes, as its control memory.
fn offers_slow_descriptors(a: &mut Attacker) -> String {
    let call = resume_of(&a.welcome);
    let pool = a.pool.clone();
    let offer = move || {
        let mut packet = [0; MESSAGE_MAX];
        let length = call.encode(&mut packet).expect("room");
        for _ in 0..8 {
            let (file, other) = lingering();
            // A controller may be about to come.
            if let Ok(socket) = try_dial(&pool) {
                let both = [file.as_fd(), file.as_fd()];
                let _ = send(socket.as_fd(), &packet[..length], &both);
                std::mem::forget(socket);
            }
            let_go(file);
            std::mem::forget(other);
        }
        ANSWERED.to_owned()
    };
    offer();
    a.when_asked = Some(Box::new(offer));
    ANSWERED.into()
}

fn controllers_die(scene: &mut Scene, attacker: &mut Role) {
    for _ in 0..KILLED {
        scene.restart_controller();
        assert_eq!(attacker.ask("offer"), ANSWERED);
        scene.victim_works();
        scene.third_works();
    }
}

/// Pages of a session's own files, kept in pipes when it has ended.
fn keeps_what_is_its_own(a: &mut Attacker) -> String {
    const FILL: u8 = 0xcc;
    let other = Attacker::connect(&a.pool);
    let mut pipes = Vec::new();
    for file in [&other.arena_file, &other.control_file] {
        let length = (fstat(file).expect("a status").st_size as usize).min(PIPE);
        let map = Mapping::new(file, 0, length, MapOptions::READ_WRITE).expect("a map");
        // What it was granted of it.
        let mut granted = 0;
        while granted < length && map.bytes().copy_from(granted, &[FILL; 4096]).is_some() {
            granted += 4096;
        }
        assert!(granted > 0, "nothing of it is its own");
        match Piped::new(map.as_ptr()) {
            Ok(pipe) => pipes.push(pipe),
            Err(why) => return format!("cannot be made here: {why}"),
        }
    }
    // With such control memory it may be closed before it says so.
    drop(other);
    drop(dial(&a.pool));
    let look = move || {
        let others = pipes
            .iter()
            .flat_map(Piped::look)
            .filter(|&byte| byte != FILL && byte != 0);
        let secret = super::world::SECRET;
        let seen: Vec<u8> = others.collect();
        match seen.windows(secret.len()).any(|bytes| bytes == secret) {
            true => "seen".to_owned(),
            false => "nothing seen".to_owned(),
        }
    };
    let seen = look();
    a.when_asked = Some(Box::new(look));
    seen
}

/// Processes of the victim's user.
fn victims() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let of_user =
        |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|m| m.uid() == VICTIM_USER.0);
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter(of_user).filter_map(number).collect()
}

/// The result of a system call, as an error's name.
fn said(result: libc::c_long) -> String {
    match result {
        -1 => errno_name(
            std::io::Error::last_os_error()
                .raw_os_error()
                .expect("an error"),
        ),
        _ => "allowed".into(),
    }
}

/// Everything by which one process can get what another one has.
fn takes_apart(_: &mut Attacker) -> String {
    let mut told = BTreeSet::new();
    let processes = victims();
    assert!(!processes.is_empty(), "no process of the victim's");
    for process in processes {
        // SAFETY: system calls with integers, and vectors that live; a new descriptor is nobody else's.
        unsafe {
            let pidfd = libc::syscall(libc::SYS_pidfd_open, process, 0);
            let Ok(pidfd) = RawFd::try_from(pidfd) else {
                panic!("no descriptor");
            };
            if pidfd < 0 {
                // It has ended meanwhile.
                continue;
            }
            let pidfd = OwnedFd::from_raw_fd(pidfd);
            for number in 0..40 {
                told.insert(said(libc::syscall(
                    libc::SYS_pidfd_getfd,
                    pidfd.as_raw_fd(),
                    number,
                    0,
                )));
            }
            told.insert(said(libc::ptrace(libc::PTRACE_SEIZE, process, 0, 0)));
            told.insert(said(libc::ptrace(libc::PTRACE_ATTACH, process, 0, 0)));
            let mut byte = 0u8;
            let here = libc::iovec {
                iov_base: (&raw mut byte).cast(),
                iov_len: 1,
            };
            let there = libc::iovec {
                iov_base: 0x40_0000 as *mut libc::c_void,
                iov_len: 1,
            };
            told.insert(said(
                libc::process_vm_readv(process, &here, 1, &there, 1, 0) as libc::c_long,
            ));
            told.insert(said(
                libc::process_vm_writev(process, &here, 1, &there, 1, 0) as libc::c_long,
            ));
            told.insert(said(libc::c_long::from(libc::kill(process, libc::SIGSTOP))));
        }
        for name in ["mem", "fd", "map_files", "environ", "maps", "fd/3"] {
            let path = format!("/proc/{process}/{name}");
            told.insert(error_of(open(path, OFlags::RDONLY, Mode::empty())));
        }
    }
    // Of what stands in /proc it is EACCES (of a descriptor's link ENOENT, if it has ended).
    told.retain(|word| !["EACCES", "ENOENT", "ESRCH"].contains(&word.as_str()));
    told.into_iter().collect::<Vec<_>>().join(", ")
}

pub const ATTACKS: &[Attack] = &[
    case(
        "stall",
        "arena and segment are pages that never come, in its mappings",
        BOUNDED,
        stalls_its_memory,
    )
    .and(zeroes_are_read)
    .with_privilege(),
    case(
        "stall",
        "comes back with descriptors whose closing takes for ever",
        ANSWERED,
        offers_slow_descriptors,
    )
    .and(controllers_die),
    case(
        "stall",
        "keeps pages of its arena and control memory in pipes",
        "nothing seen",
        keeps_what_is_its_own,
    )
    .and(super::reading::looks_again)
    .for_users(),
    case(
        "stall",
        "takes a victim's process apart: pidfd_getfd, ptrace, /proc",
        APART,
        takes_apart,
    )
    .for_users(),
];
