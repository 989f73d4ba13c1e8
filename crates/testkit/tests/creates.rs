//! A storm of creates on a busy machine: 100,000 files in one directory by one program of a trust group, as
//! fast as it can, while the processors have other things to do.
//!
//! It grows the arena in both its parts while the controller's workers are still allocating what was asked
//! for before. In 5 of 29 such runs an honest session was convicted (`27529216 allocated of at most
//! 26091584`), and its program got EBUSY or EIO.
//!
//!     make storms COUNT=1000
//!     ARCK_STORMS=1000 cargo test -p arck-testkit --test creates -- --nocapture
//!
//! for so many runs (default: 3).

use arck_testkit::{TestPool, connect_as};
use arckfs::At;
use std::sync::atomic::{AtomicBool, Ordering};

const FILES: u32 = 100_000;

fn runs() -> u32 {
    let asked = std::env::var("ARCK_STORMS").ok();
    asked.map_or(3, |runs| runs.parse().expect("ARCK_STORMS is a number"))
}

/// Keeps processors busy until told to stop.
fn busy<T>(body: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..3 * processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = body();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn an_honest_storm_of_creates_is_served() {
    let runs = runs();
    for run in 0..runs {
        if run % 20 == 0 {
            println!("{run} of {runs} storms of creates have been served");
        }
        // Its end asks whether anything was refused.
        let pool = TestPool::new(1 << 30);
        let fs = connect_as(&pool.path(), b"storm");
        busy(|| {
            fs.make_directory(At::Root, b"d", 0o755).expect("mkdir");
            for file in 0..FILES {
                let path = format!("d/{file}");
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                let handle = fs.open(At::Root, path.as_bytes(), flags, 0o644);
                let handle = handle.unwrap_or_else(|error| {
                    panic!("run {run}, file {file}: {error:?}\n{}", pool.violations())
                });
                fs.close(handle);
            }
        });
        let last = format!("d/{}", FILES - 1);
        assert!(fs.stat(At::Root, last.as_bytes(), 0).is_ok(), "run {run}");
        fs.disconnect().expect("all is folded");
    }
}
