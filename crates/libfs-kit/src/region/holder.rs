//! Who holds a lock.

/// Who holds a lock: the member (process) and its thread slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The member slot that the controller gave the process.
    pub member: u16,
    /// The index of the thread's slot in the region; below 16383.
    pub thread: u16,
}

impl Holder {
    /// The nonzero 30-bit word that names this holder: thread + 1 above, member below.
    pub(super) fn word(self) -> u32 {
        ((u32::from(self.thread) + 1) & 0x3fff) << 16 | u32::from(self.member)
    }

    pub(super) fn from_word(word: u32) -> Option<Self> {
        let thread = (word >> 16) & 0x3fff;
        // Both casts keep all bits that are left: 14 and 16.
        (thread != 0).then(|| Self {
            member: word as u16,
            thread: (thread - 1) as u16,
        })
    }
}
