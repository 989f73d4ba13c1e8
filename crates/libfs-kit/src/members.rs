//! Members of the trust group that are gone: what they leave in the shared memory. And whether one is
//! stopped that others wait for.
//!
//! The controller says which members have gone (`departed` in control memory), and gives their
//! numbers to nobody until their bits are taken. Whoever notices clears away: the kit the member's
//! thread slots, with what they had cached, the LibFS its open files.
//!
//! # Invariant
//! A member that was inside the LibFS when it died may have left anything half changed: the region
//! is damaged then, and stays so.

use crate::region::ThreadSlot;
use crate::session::Session;
use arck_protocol::control::MEMBERS;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Session {
    /// Whether a member has gone that nobody has cleared away yet.
    #[inline]
    pub fn any_departed(&self) -> bool {
        let departed = &self.control().header.departed;
        self.is_of_group()
            && departed
                .iter()
                .any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Those members.
    pub fn departed(&self) -> impl Iterator<Item = u16> {
        let departed = &self.control().header.departed;
        (1..MEMBERS as u16).filter(|&member| crate::region::departed::has(departed, member))
    }

    /// Frees the thread slots of a member that is gone; false if it has left the region damaged.
    pub fn clear_slots_of(&'static self, member: u16) -> bool {
        let Ok(thread) = self.thread() else {
            return false;
        };
        if self.region().has_inside(member) {
            self.region().begin_damage();
        }
        self.region().clear_member(thread.slot(), member);
        !self.region().is_damaged()
    }

    /// Whether a thread that keeps the auxiliary state from being built anew, `slot`'s not counted, is
    /// stopped: by a signal, or in a debugger. A thread of another process-id namespace is not seen to
    /// be.
    pub fn is_kept_by_stopped(&self, slot: &ThreadSlot<'_>) -> bool {
        let mut keepers = self.region().keepers(slot);
        keepers.any(|thread| is_stopped(thread).unwrap_or(false))
    }

    /// Nothing is left of a member: its number may be given to another process.
    pub fn forget_departed(&self, member: u16) {
        let departed = &self.control().header.departed;
        if let Some(word) = departed.get(usize::from(member) / 64) {
            word.fetch_and(!(1 << (member % 64)), Ordering::AcqRel);
        }
    }
}

/// Whether a thread is stopped, as the kernel tells by its thread id.
fn is_stopped(thread: u32) -> Result<bool, Errno> {
    let path = format!("/proc/{thread}/stat");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    // The number, the name in parentheses (which may have any bytes, 15 at most), the state.
    let mut text = [0; 64];
    let length = rustix::io::read(&file, &mut text)?;
    let text = &text[..length];
    let after_name = text.iter().rposition(|&byte| byte == b')');
    let state = after_name.and_then(|at| text.get(at + 2)).copied();
    Ok(matches!(state, Some(b'T' | b't')))
}
