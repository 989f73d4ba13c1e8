//! How much of a range one message gives space to: what does it knows, and who answers for it after a restart.
//!
//! Invariant: a message that was done has come at least as far as [`end_of_part`] says.

use arck_core_state::PAGE_SIZE;

/// Pages that one message does, so that nobody waits long behind it; where each is written back at once, few.
pub fn pages(is_paged: bool) -> u64 {
    if is_paged { 16 } else { 256 }
}

/// Up to where one message comes at least, of a valid range.
pub fn end_of_part(position: u64, length: u64, is_paged: bool) -> u64 {
    let last = (position / PAGE_SIZE).saturating_add(pages(is_paged));
    let end = position.saturating_add(length);
    end.min(last.saturating_mul(PAGE_SIZE))
}
