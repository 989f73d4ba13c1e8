//! Attacks on watching: what one may not read, what is nothing, by what is no inotify descriptor; hoarding; and what is told of
//! others' changes beyond what one could read.

use super::attacker::{Attacker, all_the_same, errno_name};
use super::holding::BOUNDED;
use super::table::{Attack, case};
use arck_core_state::InodeNumber;
use arck_protocol::socket::{Answer, Call, call_with};
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags};
use rustix::fs::{MemfdFlags, Mode, OFlags};

/// IN_ALL_EVENTS.
const ALL: u32 = 0xfff;
/// More descriptors than anybody needs.
const MANY: usize = 400;

fn inotify() -> OwnedFd {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("an inotify descriptor")
}

/// What asking for a watch comes to: its number; or why not.
fn watch(
    a: &Attacker,
    (inode, generation): (InodeNumber, u32),
    files: &[&OwnedFd],
    (mask, parent): (u32, InodeNumber),
) -> Result<u32, String> {
    let asked = Call::AddWatch {
        inode,
        generation,
        mask,
        parent,
    };
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    match call_with(&a.socket, &asked, &files).expect("an answer") {
        (Answer::Watched { watch }, none) => {
            assert!(none.is_empty(), "a descriptor of what is watched");
            Ok(watch)
        }
        (Answer::Error(errno, _), _) => Err(errno_name(errno)),
        (other, _) => Err(format!("{other:?}")),
    }
}

fn key(a: &Attacker, path: &str) -> (InodeNumber, u32) {
    let inode = a.find(path);
    (inode, a.header(inode).generation())
}

/// What an inode is told by a number, where no path leads to it.
fn numbers_beneath(a: &Attacker) -> Vec<(InodeNumber, u32)> {
    let all = 1..400;
    all.map(|inode| (inode, a.header(inode).generation()))
        .collect()
}

pub const ATTACKS: &[Attack] = &[
    case("watch", "watches what it may not read", "EACCES", |a| {
        let own = inotify();
        let said = ["victim/private", "victim/home"]
            .map(|path| watch(a, key(a, path), &[&own], (ALL, 0)).unwrap_err());
        all_the_same(said.to_vec())
    })
    .for_users(),
    case(
        "watch",
        "watches all numbers that there are",
        "nothing that it may not read",
        |a| {
            let own = inotify();
            let may_not: Vec<_> = ["victim/private", "victim/home"]
                .map(|path| a.find(path))
                .into();
            for (inode, generation) in numbers_beneath(a) {
                let told = watch(a, (inode, generation), &[&own], (ALL, inode));
                assert!(told.is_err() || !may_not.contains(&inode), "{inode}");
            }
            for (inode, generation) in [(u32::MAX, 1), (0, 0), (a.find("attacker"), 77)] {
                let told = watch(a, (inode, generation), &[&own], (ALL, u32::MAX));
                assert_eq!(told, Err("ESTALE".into()));
            }
            "nothing that it may not read".into()
        },
    )
    .for_users()
    .and(|scene, _| scene.third_works()),
    case(
        "watch",
        "has others than inotify descriptors watch",
        "EINVAL",
        |a| {
            let (end, other_end) = rustix::pipe::pipe().expect("a pipe");
            let memory = rustix::fs::memfd_create("inotify", MemfdFlags::CLOEXEC).expect("a file");
            let path = rustix::fs::open("/", OFlags::PATH, Mode::empty()).expect("the root");
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a set");
            let own = key(a, "attacker");
            let good = inotify();
            let mut said = Vec::new();
            for file in [&end, &other_end, &memory, &path, &set] {
                said.push(watch(a, own, &[file], (ALL, 0)));
            }
            said.push(watch(a, own, &[], (ALL, 0)));
            said.push(watch(a, own, &[&good, &good], (ALL, 0)));
            // No events, and two flags that exclude each other.
            said.push(watch(a, own, &[&good], (0, 0)));
            said.push(watch(a, own, &[&good], (0x3000_0002, 0)));
            all_the_same(said.into_iter().filter_map(Result::err).collect())
        },
    ),
    case(
        "watch",
        "watches by hundreds of descriptors",
        BOUNDED,
        |a| {
            let keys: Vec<_> = [
                "attacker",
                "attacker/one",
                "attacker/file",
                "common",
                "pipes",
            ]
            .map(|path| key(a, path))
            .into();
            // As many as the kernel gives, and each again and again, with what is asked in between taken back.
            let mut kept = Vec::new();
            while kept.len() < MANY
                && let Ok(own) = inotify::init(CreateFlags::CLOEXEC)
            {
                for &key in &keys {
                    if let Ok(number) = watch(a, key, &[&own], (ALL, u32::MAX))
                        && kept.len() % 2 == 0
                    {
                        let number = number.cast_signed();
                        inotify::remove_watch(&own, number).expect("its own");
                    }
                }
                kept.push(own);
            }
            assert!(kept.len() > 10);
            for _ in 0..2000 {
                watch(a, keys[0], &[&kept[0]], (ALL, 0)).expect("its own");
            }
            std::mem::forget(kept);
            BOUNDED.into()
        },
    )
    .and(|scene, _| scene.third_works()),
    case("watch", "comes to what is watched", "EACCES", |a| {
        let own = inotify();
        watch(a, key(a, "attacker"), &[&own], (ALL, 0)).expect("its own");
        let path = a.pool.join("watched");
        let listed = std::fs::read_dir(path).map(|_| "listed".to_owned());
        listed.unwrap_or_else(|error| errno_name(error.raw_os_error().unwrap_or(0)))
    })
    .for_users(),
];
