//! Free delta pages of the arena, as they stand in the region; see [`crate::arena_pages`].

use crate::region::{AtomicOffset, Lock, Region, ThreadSlot};
use crate::region_shared;
use arck_core_state::arena::{ARENA_PAGES, DELTA_FIRST};
use arck_protocol::socket::Welcome;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of a bit for each delta page.
pub(crate) const WORDS: usize = ((ARENA_PAGES - DELTA_FIRST) as usize).div_ceil(64);

region_shared! {
    /// In the auxiliary state.
    pub struct ArenaPages {
        pub(crate) lock: Lock,
        /// Delta pages allocated in the file.
        pub(crate) delta_pages: AtomicU32,
        /// Pages of the branch table allocated in the file.
        pub(crate) branch_pages: AtomicU32,
        pub(crate) hint: AtomicU32,
        /// Pages handed out.
        pub(crate) used: AtomicU64,
        /// One bit per delta page, `WORDS` words; set while it is handed out.
        pub(crate) taken: AtomicOffset<AtomicU64>,
        /// The same; set while nothing is known to stand behind the first line.
        pub(crate) clean: AtomicOffset<AtomicU64>,
    }
}

impl ArenaPages {
    /// Notes what the controller had allocated at the greeting. ENOMEM.
    pub fn begin(
        &self,
        region: &Region,
        slot: &ThreadSlot<'_>,
        welcome: &Welcome,
    ) -> Result<(), Errno> {
        for bits in [&self.taken, &self.clean] {
            let words = region.allocate_zeroed::<AtomicU64>(slot, WORDS);
            bits.store(words.map_err(|_| Errno::NOMEM)?, Ordering::Release);
        }
        self.delta_pages
            .store(welcome.delta_pages, Ordering::Relaxed);
        self.branch_pages
            .store(welcome.branch_pages, Ordering::Relaxed);
        Ok(())
    }
}
