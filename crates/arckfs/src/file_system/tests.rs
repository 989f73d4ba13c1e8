//! What one session does, as it looks to itself, after a fold, and to another session: each in milliseconds, on
//! a pool of its own under the real controller ([`arck_test_pool`]).

mod attributes;
mod data;
mod names;

use super::*;
use arck_libfs_kit::Session;
use arck_test_pool::TestPool;

/// A small pool with two sessions.
struct World {
    // First, so that the sessions end before their pool.
    one: FileSystem,
    two: FileSystem,
    _pool: TestPool,
}

fn fold(session: &Session) {
    let all = arck_libfs_kit::messages::Request::CommitAll { release: false };
    session.ask(&all).expect("a fold");
}

impl World {
    fn new() -> World {
        let pool = TestPool::new(32 << 20);
        let connect = || {
            FileSystem::connect(&ConnectOptions {
                pool: pool.path(),
                mount: b"/arck".to_vec(),
                group: Vec::new(),
                resolver: Resolver::default(),
            })
            .expect("a session")
        };
        let (one, two) = (connect(), connect());
        World {
            one,
            two,
            _pool: pool,
        }
    }

    /// Whatever is told is told by the session that has done it, by the same when all is folded, and by
    /// another one.
    fn told<T: PartialEq + std::fmt::Debug>(&self, tell: impl Fn(&FileSystem) -> T) -> T {
        let own = tell(&self.one);
        fold(self.one.session());
        assert_eq!(tell(&self.one), own, "after a fold");
        assert_eq!(tell(&self.two), own, "told by another session");
        assert_eq!(tell(&self.one), own, "after that");
        own
    }
}

impl FileSystem {
    fn opened(&self, path: &str, flags: i32) -> Result<Handle, Failure> {
        self.open(At::Root, path.as_bytes(), flags, 0o644)
    }

    fn made(&self, path: &str, bytes: &[u8]) {
        let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY;
        let file = self.opened(path, flags).expect("a file");
        assert_eq!(self.write(file, bytes, None), Ok(bytes.len()));
        self.close(file);
    }

    fn whole(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let file = self.opened(path, libc::O_RDONLY)?;
        let mut bytes = vec![0; self.stat_handle(file)?.size as usize + 1];
        let read = self.read(file, &mut bytes, None);
        self.close(file);
        bytes.truncate(read?);
        Ok(bytes)
    }

    fn listed(&self, path: &str) -> Result<Vec<String>, Failure> {
        let directory = self.opened(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let mut names = Vec::new();
        // So small that it takes several calls.
        let mut buffer = [0; 256];
        loop {
            let used = self.read_directory(directory, &mut buffer)?;
            let mut entries = &buffer[..used];
            while let Some(length) = entries.get(16..18) {
                let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
                let name = entries[19..length].split(|&byte| byte == 0).next();
                names.push(String::from_utf8(name.expect("a name").to_vec()).expect("UTF-8"));
                entries = &entries[length..];
            }
            if used == 0 {
                break;
            }
        }
        self.close(directory);
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}
