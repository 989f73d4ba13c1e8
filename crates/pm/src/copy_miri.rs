//! Stand-ins for the assembly of [`crate::copy`], so that Miri can check everything
//! built on it. They are plain copies: tests under Miri must not race.

/// # Safety
/// As the assembly routine of the same name.
pub(crate) unsafe fn copy_bytes(destination: *mut u8, source: *const u8, len: usize) {
    // SAFETY: the contract is the same.
    unsafe { std::ptr::copy_nonoverlapping(source, destination, len) }
}

/// # Safety
/// As the assembly routine of the same name.
pub(crate) unsafe fn fill_bytes(destination: *mut u8, len: usize) {
    // SAFETY: the contract is the same.
    unsafe { std::ptr::write_bytes(destination, 0, len) }
}

/// # Safety
/// As the assembly routine of the same name.
pub(crate) unsafe fn stream_lines(destination: *mut u8, source: *const u8, len: usize) {
    assert!(len.is_multiple_of(64) && (destination as usize).is_multiple_of(64));
    // SAFETY: the contract is the same.
    unsafe { copy_bytes(destination, source, len) }
}

/// # Safety
/// As the assembly routine of the same name.
pub(crate) unsafe fn stream_word(destination: *mut u64, value: u64) {
    // SAFETY: aligned and writable by the contract.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(destination) }
        .store(value, std::sync::atomic::Ordering::Release);
}

/// As the assembly routine of the same name.
pub(crate) fn fetch_line(_: *const u8) {}
