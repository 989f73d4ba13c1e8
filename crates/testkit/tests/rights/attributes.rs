//! Extended attributes by descriptors whose right has gone: what the kernel does on a directory of the host, the pool does. The mode as it is
//! now counts there, and not the one when the descriptor was opened.

use super::Case;
use super::beside_host::{Both, Open, both, make_host};
use super::world::{ANN, EVE, World, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, Handle, Subject};
use rustix::fs::XattrFlags;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

pub const ALL: &[Case] = &[
    ("attributes_by_descriptor", attributes_by_descriptor),
    ("attributes_of_what_is_new", attributes_of_what_is_new),
    ("attributes_by_path", attributes_by_path),
];

/// Bytes that all attributes of an inode have in a pool.
const MOST: usize = 4096;

/// What the kernel says of the host's.
fn on_host<T>(done: rustix::io::Result<T>) -> Result<T, Errno> {
    done.map_err(|errno| Errno::from_raw_os_error(errno.raw_os_error()))
}

/// Everything that is done to attributes by a descriptor, on both: the answers have to be the same.
fn compare(open: &Open<'_>, random: &mut Random, what: &str) {
    let fs = &open.session.0;
    let subject = Subject::Handle(open.pool);
    for turn in 0..40 {
        let what = format!("{what}, turn {turn}");
        let name = format!("user.n{}", random.below(4));
        let set = random.below(2) == 0;
        if set {
            let length = random.below(300) as usize;
            let value = random.bytes(length);
            let both = libc::XATTR_CREATE | libc::XATTR_REPLACE;
            let flags = *random.pick(&[0, libc::XATTR_CREATE, libc::XATTR_REPLACE, both]);
            let pool = plain(fs.set_extended(subject, name.as_bytes(), &value, flags));
            let flags = XattrFlags::from_bits_retain(flags as u32);
            let host = on_host(rustix::fs::fsetxattr(&open.host, &*name, &value, flags));
            assert_eq!(pool, host, "{what}: setting {name}");
        } else {
            let pool = plain(fs.remove_extended(subject, name.as_bytes()));
            let host = on_host(rustix::fs::fremovexattr(&open.host, &*name));
            assert_eq!(pool, host, "{what}: removing {name}");
        }
        let (mut ours, mut theirs) = ([0; MOST], [0; MOST]);
        let pool = plain(fs.get_extended(subject, name.as_bytes(), &mut ours));
        let host = on_host(rustix::fs::fgetxattr(&open.host, &*name, &mut theirs));
        assert_eq!(pool, host, "{what}: getting {name}");
        assert!(ours == theirs, "{what}: {name} has another value");
        // Names are told to everybody.
        let pool = names(&mut ours, |buffer| plain(fs.list_extended(subject, buffer)));
        let host = names(&mut theirs, |buffer| {
            on_host(rustix::fs::flistxattr(&open.host, buffer))
        });
        assert_eq!(pool, host, "{what}: listing");
    }
}

/// What a list of names says.
fn names(
    buffer: &mut [u8; MOST],
    list: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<BTreeSet<Vec<u8>>, Errno> {
    let length = list(buffer)?;
    let names = buffer[..length].split(|&byte| byte == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// A file or a directory that is open on both.
fn open<'s>(eve: &Both<'s>, path: &str) -> Open<'s> {
    let flags = libc::O_RDONLY;
    let pool: Handle = plain(eve.session.0.open_at_root(path, flags)).expect("opened");
    let host = File::options()
        .read(true)
        .custom_flags(flags)
        .open(eve.at(path));
    Open {
        session: eve.session,
        pool,
        host: host.expect("opened"),
    }
}

fn attributes_by_descriptor(seed: u64) {
    /// How the right goes, the mode before, and that after.
    const WAYS: [(&str, u32, u32); 8] = [
        ("above", 0o666, 0o666),
        ("moved", 0o666, 0o666),
        ("last", 0o666, 0o666),
        ("read", 0o666, 0o604),
        ("written", 0o666, 0o602),
        ("neither", 0o666, 0o600),
        // Closed above, and then opened wider than it was when its descriptor was opened.
        ("wider", 0o644, 0o666),
        ("wider-moved", 0o604, 0o646),
    ];
    let world = World::new(64 << 20);
    let host = make_host(&world);
    let path = |way: &str| format!("/{way}/within/it");
    let other = |way: &str| format!("/{way}/within/directory");
    world.together(
        ANN,
        |ann, turns| {
            let ann = both(ann, &host);
            ann.mkdir("/closed", 0o700);
            for (way, before, _) in WAYS {
                ann.mkdir(&format!("/{way}"), 0o755);
                ann.mkdir(&format!("/{way}/within"), 0o755);
                ann.put(&path(way), b"what is in it", before);
                ann.mkdir(&other(way), before | 0o111);
            }
            turns.next();
            ann.chmod("/above", 0o700);
            ann.chmod("/wider", 0o700);
            ann.rename("/wider-moved/within", "/closed/wider-moved");
            ann.rename("/moved/within", "/closed/moved");
            ann.unlink(&path("last"));
            for (way, before, after) in WAYS {
                if before != after {
                    let place = if way == "wider-moved" {
                        "/closed/wider-moved"
                    } else {
                        &format!("/{way}/within")
                    };
                    ann.chmod(&format!("{place}/it"), after);
                    ann.chmod(&format!("{place}/directory"), after | 0o111);
                }
            }
            turns.pass();
        },
        EVE,
        |eve, turns| {
            let eve = both(eve, &host);
            let mut random = Random::new(seed);
            let opened =
                WAYS.map(|(way, ..)| (way, open(&eve, &path(way)), open(&eve, &other(way))));
            for (way, file, directory) in &opened {
                compare(file, &mut random, way);
                compare(directory, &mut random, way);
            }
            turns.next();
            for (way, file, directory) in &opened {
                compare(file, &mut random, &format!("{way}, closed"));
                compare(
                    directory,
                    &mut random,
                    &format!("{way}, closed, a directory"),
                );
            }
        },
    );
    assert_eq!(world.violations(), "");
}

/// What only its session knows yet: its mode counts, and nobody is asked.
fn attributes_of_what_is_new(seed: u64) {
    let world = World::new(64 << 20);
    let host = make_host(&world);
    world.as_user(ANN, |ann| both(ann, &host).mkdir("/open", 0o777));
    world.as_user(EVE, |eve| {
        let eve = both(eve, &host);
        let mut random = Random::new(seed);
        for mode in [0o600, 0o200, 0o400, 0o444, 0] {
            let path = format!("/open/new-{mode:o}");
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
            let pool = plain(eve.session.0.open(At::Root, path.as_bytes(), flags, mode));
            let host = File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_CREAT | libc::O_EXCL)
                .mode(mode)
                .open(eve.at(&path));
            let new = Open {
                session: eve.session,
                pool: pool.expect("made"),
                host: host.expect("made"),
            };
            compare(&new, &mut random, &path);
            // And what is not new, of which only its session knows the mode.
            eve.session.fold();
            for mode in [0o200, 0o400, 0o600, 0o200] {
                eve.session.chmod(&path, mode);
                eve.set(&path, mode);
                compare(&new, &mut random, &format!("{path}, {mode:o}"));
            }
        }
    });
    assert_eq!(world.violations(), "");
}

/// What may be written and not read, or not searched, by its path.
fn attributes_by_path(_seed: u64) {
    let world = World::new(64 << 20);
    let host = make_host(&world);
    let modes = [0o602, 0o604, 0o606, 0o600, 0o702, 0o703, 0o706, 0o1707];
    let path = |kind: &str, mode: u32| format!("/{kind}-{mode:o}");
    world.as_user(ANN, |ann| {
        let ann = both(ann, &host);
        for mode in modes {
            ann.put(&path("file", mode), b"hers", mode);
            ann.mkdir(&path("directory", mode), mode);
        }
    });
    world.as_user(EVE, |eve| {
        let eve = both(eve, &host);
        for (kind, mode) in modes
            .iter()
            .flat_map(|&mode| [("file", mode), ("directory", mode)])
        {
            let path = path(kind, mode);
            let at_host = eve.at(&path);
            let subject = Subject::Path(At::Root, path.as_bytes(), 0);
            for name in ["user.a", "user.b"] {
                let set = plain(
                    eve.session
                        .0
                        .set_extended(subject, name.as_bytes(), b"v", 0),
                );
                let expected = rustix::fs::setxattr(&at_host, name, b"v", XattrFlags::empty());
                assert_eq!(set, on_host(expected), "{path}, setting {name}");
                let (mut ours, mut theirs) = ([0; MOST], [0; MOST]);
                let got = plain(
                    eve.session
                        .0
                        .get_extended(subject, name.as_bytes(), &mut ours),
                );
                let expected = rustix::fs::getxattr(&at_host, name, &mut theirs);
                assert_eq!(got, on_host(expected), "{path}, getting {name}");
                let listed = names(&mut ours, |buffer| {
                    plain(eve.session.0.list_extended(subject, buffer))
                });
                let expected = names(&mut theirs, |buffer| {
                    on_host(rustix::fs::listxattr(&at_host, buffer))
                });
                assert_eq!(listed, expected, "{path}, listing");
            }
        }
    });
    assert_eq!(world.violations(), "");
}
