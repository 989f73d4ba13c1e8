//! Directories and files that threads have waited for, so that they are striped.

use crate::Shorthand;
use arckfs::{At, FileSystem};
use std::time::{Duration, Instant};

const THREADS: u64 = 4;

/// Makes threads wait for each other in the directory `d` until it is striped.
pub fn striped_directory(session: &FileSystem) {
    session
        .make_directory(At::Root, b"d", 0o755)
        .expect("mkdir");
    let end = Instant::now() + Duration::from_secs(120);
    let before = session.striped_inodes();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let name = format!("d/first-{thread}");
                while session.striped_inodes() == before && Instant::now() < end {
                    session.put(&name, b"").expect("put");
                    session
                        .unlink(At::Root, name.as_bytes(), 0)
                        .expect("unlink");
                }
            });
        }
    });
    assert!(session.striped_inodes() > before, "threads never waited");
}

/// Makes threads wait for each other to overwrite a file until it is striped.
pub fn striped_file(session: &FileSystem, name: &str, size: usize) {
    session.put(name, &vec![0; size]).expect("put");
    let end = Instant::now() + Duration::from_secs(120);
    let before = session.striped_inodes();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let handle = session.open_at_root(name, libc::O_WRONLY).expect("open");
                while session.striped_inodes() == before && Instant::now() < end {
                    let done = session.write(handle, &[0; 30_000], Some(0));
                    assert_eq!(done, Ok(30_000));
                }
                session.close(handle);
            });
        }
    });
    assert!(session.striped_inodes() > before, "threads never waited");
}
