//! Nobody gets more than half of what others leave, so there is always some left, however many there are who want
//! all.

use arck_core_state::cast;

/// Descriptors that this process may have, less some for itself: 64, or a quarter of few.
pub fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = limit.current.map_or(usize::MAX, cast::index);
    limit - (limit / 4).min(64)
}

/// Whether somebody who has `own` of something gets another one, of which there are `capacity`.
pub fn may_have_more(own: usize, others: usize, capacity: usize, is_trusted: bool) -> bool {
    let left = capacity.saturating_sub(others);
    own < if is_trusted { left } else { left / 2 }
}

/// The same of what so much is kept of for users who have none.
pub fn may_have_another(
    own: usize,
    others: usize,
    capacity: usize,
    reserve: usize,
    is_trusted: bool,
) -> bool {
    match own {
        0 => others < capacity,
        _ => may_have_more(own, others, capacity.saturating_sub(reserve), is_trusted),
    }
}
