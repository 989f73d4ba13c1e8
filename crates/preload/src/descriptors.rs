//! The process's table from descriptor numbers to open file descriptions.
//!
//! Every number given to the program is an open kernel descriptor, a *placeholder*, so nothing
//! else can take the number and the kernel's own rules (poll, fork, exec, limits) hold. It is a
//! memory file reopened with access mode 3, which grants neither reading nor writing: a `read`
//! or `write` that gets past this library fails with EBADF instead of quietly doing the wrong
//! thing.
//!
//! Two kinds: *plain* placeholders are duplicates of one empty template, close-on-exec, all the
//! same (see `stock`); *external* ones stand for a description in every process that has it (see
//! `handover`).
//!
//! Invariants:
//! * `entry(fd)`: 0 = the kernel's, RESERVED = not open to the program (stock, or our own),
//!   INHERITED = a description of another process still to be adopted, else a `Handle`.
//! * `notes(fd)` is meaningful only for handles and INHERITED.
//!
//! No locks: each entry is one atomic word, and taking it out (`swap`) decides who closes. Who
//! looks a number up may find it replaced when it uses what it found: see `replacements`.

mod closing;
mod duplicating;
pub mod hole;
pub mod mounted;
mod opening;
pub mod pipes;
pub mod placeholders;
pub mod references;
pub mod replacements;
mod stock;
pub mod table;

use crate::backend::Handle;
use crate::{handover, raw};
pub use closing::{close, close_range};
pub use duplicating::{duplicate, duplicate_onto};
pub use hole::{kernel_closed, most_descriptors, unknown};
pub use opening::{open, open_within};
pub use references::{give_up, let_go, retain};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
pub use stock::{
    before_kernel_opens, before_kernel_opens_from, before_kernel_opens_two, kernel_opened, unstock,
};
use table::INHERITED;
pub use table::{
    Descriptor, RESERVED, TABLE_SIZE, close_on_exec, entry, file_of, is_free, is_pool, is_reserved,
    notes, pool_descriptors, put, set_close_on_exec,
};

/// Looks a descriptor up, as given in a register (an `int`).
#[inline(always)]
pub fn lookup(descriptor: usize) -> Descriptor {
    let descriptor = descriptor as u32 as usize;
    if descriptor >= TABLE_SIZE {
        return Descriptor::Kernel;
    }
    match NonZeroU64::new(entry(descriptor).load(Ordering::Acquire)) {
        None => Descriptor::Kernel,
        Some(value) if value.get() < RESERVED => Descriptor::Pool(Handle(value)),
        Some(value) => lookup_special(descriptor, value.get()),
    }
}

#[cold]
fn lookup_special(descriptor: usize, value: u64) -> Descriptor {
    if crate::thread::inside() {
        return Descriptor::Kernel;
    }
    if value == RESERVED {
        return Descriptor::Error(raw::error(libc::EBADF));
    }
    handover::adopt(descriptor)
}

/// In a forked child: every description belongs to the parent's session and must be taken over.
pub fn forked() {
    mounted::forget();
    for descriptor in pool_descriptors() {
        entry(descriptor).store(INHERITED, Ordering::Release);
    }
}
