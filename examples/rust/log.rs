//! A log: one thread appends, another follows, and what is not needed any more is cut off.
//!
//!     ARCK_POOL=/dev/shm/my-pool cargo run -p arck-rust --example log

use arck::Pool;
use arck::log::{Error, Follower, Log, Options};
use std::time::Duration;

/// Takes what comes until it is the end; gives how many lines it was.
fn follow(mut follower: Follower<'_>) -> Result<usize, Error> {
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    while !seen.ends_with(b"the end\n") {
        let read = follower.next(&mut bytes, Duration::from_secs(60))?;
        if read == 0 {
            break;
        }
        seen.extend_from_slice(&bytes[..read]);
    }
    Ok(seen.iter().filter(|&&byte| byte == b'\n').count())
}

fn main() -> std::io::Result<()> {
    let pool = Pool::from_environment()?;
    let mut options = Options::new(pool.directory());
    // Small files, so that there is something to cut off.
    (options.make, options.section) = (true, 4096);
    let log = Log::open(options, "example-log")?;

    let lines = std::thread::scope(|scope| {
        let follower = log.follow(log.end()?)?;
        let following = scope.spawn(|| follow(follower));
        // Durable when it returns.
        log.append(b"the beginning\n")?;
        // Several that become durable with one wait.
        let mut last = log.enqueue(b"event 0\n")?;
        for number in 1..1000 {
            last = log.enqueue(format!("event {number}\n").as_bytes())?;
        }
        let position = log.commit(&last)?;
        log.append_all(&[b"nearly\n", b"the end\n"])?;
        let lines = following.join().expect("no panic")?;
        log.cut(position)?;
        Ok::<usize, Error>(lines)
    });
    println!("{} lines followed", lines?);
    println!(
        "the log begins at {} and ends at {}",
        log.begin()?,
        log.end()?
    );
    Ok(log.close()?)
}
