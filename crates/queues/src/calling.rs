//! Calls of targets: which thread is in one, and what comes of one that panics.
//!
//! # Invariants
//! * A target is called by this module and by `underway` alone, without the lock. A panic of it ends the request, and nothing else.

use crate::caught::caught;
use crate::engine::{Outcome, Work};
use crate::outstanding::Job;
use rustix::io::Errno;
use std::sync::Arc;

thread_local! {
    static IN_TARGET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this thread is in a call of a target. (The model's threads are one; none of its targets ends anything.)
pub fn is_in_target() -> bool {
    !cfg!(shuttle) && IN_TARGET.try_with(std::cell::Cell::get) == Ok(true)
}

/// Calls a target.
pub fn in_target<T>(work: impl FnOnce() -> T) -> T {
    // A target may wait for a queue of another file, and do that one's requests.
    let before = IN_TARGET.try_with(|inside| inside.replace(true));
    let done = work();
    let _ = IN_TARGET.try_with(|inside| inside.set(before == Ok(true)));
    done
}

/// Does a request.
pub fn run(work: Work) -> Outcome {
    in_target(|| call(work))
}

fn call(work: Work) -> Outcome {
    let Work {
        target,
        job,
        from,
        spooled,
        ..
    } = work;
    let mut kept = Vec::new();
    let kept_buffer = &mut kept;
    let (called, record) = (Arc::clone(&target), spooled.clone());
    let done = caught(move || match job {
        Job::Read {
            position,
            mut buffer,
        } => {
            std::mem::swap(kept_buffer, &mut buffer);
            let read = target.read(kept_buffer, position);
            let most = kept_buffer.len();
            read.map(|length| (length.min(most), None))
        }
        Job::Write { position, bytes } => {
            let rest = &bytes[(from - position) as usize..];
            let written = target.write(rest, from);
            written.map(|length| (length.min(rest.len()), None))
        }
        Job::Append { bytes } => {
            *kept_buffer = bytes;
            if let Some((spool, record)) = record {
                spool.begins(record, target.size()?)?;
            }
            let appended = target.append(kept_buffer);
            let most = kept_buffer.len();
            appended.map(|(length, end)| (length.min(most), Some(end)))
        }
        Job::Sync { data_only } => target.sync(data_only).map(|()| (0, None)),
    });
    let panicked = done.is_none();
    let mut done = done.unwrap_or(Err(Errno::IO));
    if let Some((spool, record)) = spooled {
        // Whatever came of it: its completion says so, and it is not done again. Where it is not durable, or cannot be marked, it
        // will be: nobody is told that it is done.
        let marked = spool.done(record, &*called);
        done = done.and_then(|done| marked.map(|()| done));
    }
    Outcome {
        result: done.map(|(length, _)| length),
        buffer: kept,
        end: done.ok().and_then(|(_, end)| end),
        panicked,
    }
}
