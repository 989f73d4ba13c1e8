//! Nobody gets more than half of what others leave, so there is always some left, however many there are who want
//! all.

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
