//! Marks of headers: who published before one sees it, and who comes later sees it before he publishes
//! ([`arck_protocol::operation`]).

use crate::state::tables::State;
use arck_core_state::InodeNumber;
use arck_pm::record::stored;
use rustix::thread::MembarrierCommand;
use std::borrow::Borrow;
use std::sync::atomic::Ordering;

/// Makes every session's stores before this visible here, and our stores visible to them before
/// anything they do later; see [`arck_protocol::operation`].
pub fn heavy_barrier() {
    // Where it is missing, sessions fence themselves.
    let _ = rustix::thread::membarrier(MembarrierCommand::GlobalExpedited);
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Takes marks away that a commit has not taken away.
pub fn unmark(state: &State, set: impl IntoIterator<Item = impl Borrow<InodeNumber>>) {
    for number in set {
        if let Some(header) = state.pool.header(*number.borrow()) {
            let ownership = header.ownership();
            if ownership.is_marked() {
                header
                    .ownership
                    .store(ownership.unmarked().0, Ordering::Release);
                stored(&header.ownership);
            }
        }
    }
}
