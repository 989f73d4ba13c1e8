//! A storm of creates on a busy machine: 100,000 files in one directory by one program of a trust group, as
//! fast as it can, while the processors have other things to do.
//!
//! It grows the arena in both its parts while the controller's workers are still allocating what was asked
//! for before. In 5 of 29 such runs an honest session was convicted (`27529216 allocated of at most
//! 26091584`), and its program got EBUSY or EIO.
//!
//!     make storms COUNT=1000
//!     ARCK_STORMS=1000 cargo test --release -p arck-testkit --test creates -- --nocapture
//!
//! for so many, several at once, each on a pool of its own: those keep the machine busy for one another, and in
//! some bursts threads that do nothing else do, too. Without that: a few, one after the other, all beside such
//! threads.

use arck_testkit::{StopAtEnd, TestPool, connect_as};
use arckfs::At;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

const FILES: u32 = 100_000;

/// Storms when nobody says how many.
const FEW: u32 = 3;

/// Storms at once when somebody does.
const TOGETHER: u32 = 6;

/// One burst of so many is beside threads that spin: they make a storm several times as long.
const SPINNING: u32 = 4;

/// Keeps processors busy meanwhile.
fn busy(body: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
    std::thread::scope(|scope| {
        let _over = StopAtEnd(&is_over);
        for _ in 0..3 * processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        body();
    });
}

/// One storm, by its number.
fn storm(run: u32) {
    // Its end asks whether anything was refused.
    let pool = TestPool::new(1 << 30);
    let fs = connect_as(&pool.path(), b"storm");
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
    let last = format!("d/{}", FILES - 1);
    assert!(fs.stat(At::Root, last.as_bytes(), 0).is_ok(), "run {run}");
    fs.disconnect().expect("all is folded");
}

/// These storms, at once.
fn burst(runs: Range<u32>) {
    std::thread::scope(|scope| {
        for run in runs {
            scope.spawn(move || storm(run));
        }
    });
}

#[test]
fn an_honest_storm_of_creates_is_served() {
    let asked = std::env::var("ARCK_STORMS").ok();
    let asked = asked.map(|runs| runs.parse().expect("ARCK_STORMS is a number"));
    let (runs, together, spinning): (u32, u32, u32) = match asked {
        None => (FEW, 1, 1),
        Some(runs) => (runs, TOGETHER, SPINNING),
    };
    for (number, first) in (0..runs).step_by(together as usize).enumerate() {
        let storms = first..runs.min(first + together);
        let storms = || burst(storms);
        match number as u32 % spinning {
            0 => busy(storms),
            _ => storms(),
        }
        if first % 20 < together {
            println!(
                "{} of {runs} storms of creates have been served",
                runs.min(first + together)
            );
        }
    }
}
