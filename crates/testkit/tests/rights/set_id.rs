//! Set-id bits that writing and chown take away, and who may chown to nothing: each compared with the
//! kernel on a directory of the host.

use super::Case;
use super::world::{ANN, BOB, EVE, ROOT, Session, User, World, plain};
use arck_testkit::Shorthand;
use arckfs::{At, Errno};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub const ALL: &[Case] = &[("set_id_bits", set_id_bits)];

const MODES: [u32; 7] = [0o6777, 0o4777, 0o2777, 0o2767, 0o4766, 0o6767, 0o1777];
/// One in which Bob is, and one in which he is not.
const GROUPS: [u32; 2] = [1001, 2000];
const USERS: [User; 4] = [ANN, BOB, EVE, ROOT];
const OPERATIONS: [&str; 8] = [
    "write",
    "write-nothing",
    "append",
    "truncate",
    "open-truncating",
    "fallocate",
    "chown-to-nothing",
    "chown-to-the-same",
];

fn combinations() -> impl Iterator<Item = (u32, u32, &'static str)> {
    MODES.into_iter().flat_map(|mode| {
        GROUPS
            .into_iter()
            .flat_map(move |gid| OPERATIONS.map(|operation| (mode, gid, operation)))
    })
}

fn name(user: User, (mode, gid, operation): (u32, u32, &str)) -> String {
    format!("{}-{mode:o}-{gid}-{operation}", user.0)
}

fn on_pool(session: &Session, path: &str, operation: &str) -> Result<(), Errno> {
    let fs = &session.0;
    let opened = |flags| plain(fs.open_at_root(path, flags));
    match operation {
        "write" | "write-nothing" | "append" | "fallocate" => {
            let append = if operation == "append" {
                libc::O_APPEND
            } else {
                0
            };
            let handle = opened(libc::O_WRONLY | append)?;
            let done = match operation {
                "fallocate" => fs.allocate(handle, 0, 0, 5000),
                "write-nothing" => fs.write(handle, b"", Some(0)).map(drop),
                _ => fs.write(handle, b"text", None).map(drop),
            };
            fs.close(handle);
            done
        }
        "truncate" => plain(fs.truncate(At::Root, path.as_bytes(), 3)),
        "open-truncating" => opened(libc::O_WRONLY | libc::O_TRUNC).map(|handle| fs.close(handle)),
        "chown-to-nothing" => session.try_chown(path, u32::MAX, u32::MAX),
        _ => {
            let stat = session.stat(path)?;
            session.try_chown(path, stat.uid, stat.gid)
        }
    }
}

fn on_host(path: &Path, operation: &str) -> Result<(), Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).expect("an errno");
    let open = |append| {
        let file = File::options().write(true).append(append).open(path);
        file.map_err(errno)
    };
    match operation {
        "write" | "append" => {
            let mut file = open(operation == "append")?;
            std::io::Write::write(&mut file, b"text")
                .map(drop)
                .map_err(errno)
        }
        "write-nothing" => open(false)?.write_at(b"", 0).map(drop).map_err(errno),
        "fallocate" => rustix::fs::fallocate(open(false)?, FallocateFlags::empty(), 0, 5000),
        "truncate" => open(false).and_then(|file| file.set_len(3).map_err(errno)),
        "open-truncating" => {
            let file = File::options().write(true).truncate(true).open(path);
            file.map(drop).map_err(errno)
        }
        "chown-to-nothing" => std::os::unix::fs::chown(path, None, None).map_err(errno),
        _ => {
            let stat = std::fs::metadata(path).map_err(errno)?;
            std::os::unix::fs::chown(path, Some(stat.uid()), Some(stat.gid())).map_err(errno)
        }
    }
}

fn set_id_bits(_seed: u64) {
    let world = World::new(128 << 20);
    let host: PathBuf = world.pool().with_file_name("host");
    std::fs::create_dir(&host).expect("mkdir");
    std::fs::set_permissions(&host, PermissionsExt::from_mode(0o777)).expect("chmod");
    world.as_user(ANN, |ann| {
        for user in USERS {
            for what @ (mode, gid, _) in combinations() {
                let name = name(user, what);
                let path = format!("/{name}");
                ann.put(&path, b"some text", 0o600);
                ann.try_chown(&path, u32::MAX, gid)
                    .expect("a group of mine");
                ann.chmod(&path, mode);
                let file = host.join(name);
                std::fs::write(&file, b"some text").expect("written");
                std::os::unix::fs::chown(&file, None, Some(gid)).expect("a group of mine");
                std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("chmod");
            }
        }
    });
    let modes = |session: &Session, name: &str| {
        let pool = session.stat(&format!("/{name}")).expect("there").mode;
        let host = std::fs::metadata(host.join(name)).expect("there").mode();
        (pool, host)
    };
    for user in USERS {
        world.as_user(user, |session| {
            for what @ (_, _, operation) in combinations() {
                let name = name(user, what);
                let path = format!("/{name}");
                let before = session.stat(&path).expect("there").changed;
                let pool = on_pool(session, &path, operation);
                let host = on_host(&host.join(&name), operation);
                assert_eq!(pool, host, "{name}");
                let (pool, host) = modes(session, &name);
                assert_eq!(format!("{pool:o}"), format!("{host:o}"), "{name}");
                if operation == "chown-to-nothing" && user.0 != ANN.0 && user.0 != 0 {
                    let moved = session.stat(&path).expect("there").changed > before;
                    assert_eq!(
                        moved,
                        on_host(&path_of(&name, &world), operation).is_ok(),
                        "{name}"
                    );
                }
            }
        });
    }
    // When all is folded, too.
    world.as_user(ROOT, |root| {
        for user in USERS {
            for what in combinations() {
                let name = name(user, what);
                let (pool, host) = modes(root, &name);
                assert_eq!(format!("{pool:o}"), format!("{host:o}"), "{name}, folded");
            }
        }
    });
    assert_eq!(world.violations(), "");
}

fn path_of(name: &str, world: &World) -> PathBuf {
    world.pool().with_file_name("host").join(name)
}
