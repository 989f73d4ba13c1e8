//! What processes of a test count in memory that they share, and how long their calls take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

/// No call takes longer, in a debug build on a machine of two processors that others use as well. What it is made of: the
/// leases of seven others (0.5 ms each, 8 ms where folding takes that long), as many folds, and the kernel's turns of all
/// processes that want a processor. Whoever is passed over for ever waits as long as the others work, which is longer.
pub const LONGEST_CALL: Duration = Duration::from_secs(1);

/// How often it is tried whether all come to work.
const ROUNDS: usize = 5;

/// Zeroed memory for this process and those that are forked from it.
pub fn shared<T: FromZeros + Sync>() -> &'static T {
    assert!(align_of::<T>() <= 4096);
    // SAFETY: a new mapping, which nobody ends.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    // SAFETY: zeroed, of which a T may consist; aligned to a page, large enough, and there for ever.
    unsafe { &*memory.cast() }
}

/// What one process has done.
#[derive(FromZeros)]
#[repr(C)]
pub struct Worked {
    /// Operations that have ended, with whatever is allowed; of those, the ones that succeeded.
    pub ended: AtomicU64,
    pub succeeded: AtomicU64,
    /// The longest call, in nanoseconds, and which operation of this process it was in.
    longest: AtomicU64,
    longest_in: AtomicU64,
}

impl Worked {
    /// Does something as a call whose time counts.
    pub fn call<T>(&self, what: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = what();
        let took = began.elapsed().as_nanos() as u64;
        if took > self.longest.fetch_max(took, Ordering::SeqCst) {
            let which = self.ended.load(Ordering::SeqCst);
            self.longest_in.store(which, Ordering::SeqCst);
        }
        result
    }

    /// An operation has ended.
    pub fn end(&self, succeeded: bool) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.succeeded
            .fetch_add(u64::from(succeeded), Ordering::SeqCst);
    }

    fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::SeqCst))
    }
}

/// Tells what processes have done; whether nobody was kept from it, or who was.
fn judge(name: &str, all: &[Worked]) -> Result<(), String> {
    let ended = |worked: &Worked| worked.ended.load(Ordering::SeqCst);
    let total: u64 = all.iter().map(ended).sum();
    let fair = total / all.len() as u64;
    for worked in all {
        println!(
            "  {name}: {} of {total} operations, {} succeeded; longest call {:?}, in operation {}",
            ended(worked),
            worked.succeeded.load(Ordering::SeqCst),
            worked.longest(),
            worked.longest_in.load(Ordering::SeqCst),
        );
    }
    for (at, worked) in all.iter().enumerate() {
        let (ended, longest) = (ended(worked), worked.longest());
        if longest > LONGEST_CALL {
            return Err(format!("process {at}: a call of {longest:?}"));
        }
        if ended < fair / 2 {
            return Err(format!("process {at}: {ended} operations, {fair} are fair"));
        }
    }
    Ok(())
}

/// Does it until nobody was kept from work: who gets a processor is the kernel's to say, and where other programs want all of
/// them, an owner may not come to run before its lease is over. Fails where somebody is kept from it each time.
pub fn fairly<W: AsRef<[Worked]> + 'static>(name: &str, work: impl Fn() -> &'static W) {
    let mut kept = Vec::new();
    for _ in 0..ROUNDS {
        match judge(name, work().as_ref()) {
            Ok(()) => return,
            Err(why) => {
                println!("  {name}: {why}");
                kept.push(why);
            }
        }
    }
    panic!("{name}: not fair in any of {ROUNDS} rounds: {kept:?}");
}
