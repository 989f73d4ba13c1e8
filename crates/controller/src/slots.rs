//! Places for inodes: 32 of 128 bytes in a page of a metadata segment.
//!
//! # Invariants
//! * `partial` holds the pages with at least one free and at least one taken place; the mask
//!   says which are free. Full pages are nowhere, pages without any inode are free pages.
//! * A place freed by a change is free only after the change is durable.

use arck_core_state::inode::INODE_SIZE;
use arck_core_state::{PAGE_SIZE, PagePtr};
use std::collections::BTreeMap;

/// See the module's head.
#[derive(Default, Debug)]
pub struct InodeSlots {
    partial: BTreeMap<PagePtr, u32>,
}

/// Page and number of the place at byte address `address`.
pub fn place(address: u64) -> (PagePtr, u32) {
    let slot = address % PAGE_SIZE / INODE_SIZE as u64;
    (PagePtr::of_address(address), slot as u32)
}

impl InodeSlots {
    /// A free place of a page that holds inodes already, taken.
    pub fn take(&mut self) -> Option<u64> {
        let mut entry = self.partial.first_entry()?;
        let slot = entry.get().trailing_zeros();
        let page = *entry.key();
        *entry.get_mut() &= !(1 << slot);
        if *entry.get() == 0 {
            entry.remove();
        }
        Some(page.address() + u64::from(slot) * INODE_SIZE as u64)
    }

    /// A new page of places, of which the first is taken and given.
    pub fn add_page(&mut self, page: PagePtr) -> u64 {
        self.partial.insert(page, !1);
        page.address()
    }

    /// Frees a place. True if its page holds nothing any more: then it is forgotten here.
    pub fn free(&mut self, address: u64) -> bool {
        let (page, slot) = place(address);
        let mask = self.partial.entry(page).or_insert(0);
        *mask |= 1 << slot;
        if *mask == u32::MAX {
            self.partial.remove(&page);
            return true;
        }
        false
    }

    /// Whether a page would hold nothing once the places in `mask` are free too.
    pub fn would_be_empty(&self, page: PagePtr, mask: u32) -> bool {
        self.partial.get(&page).copied().unwrap_or(0) | mask == u32::MAX
    }

    /// What a scan found: a page and its taken places.
    pub fn load(&mut self, page: PagePtr, taken: u32) {
        if taken != u32::MAX {
            self.partial.insert(page, !taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fills_and_empties() {
        let mut slots = InodeSlots::default();
        assert_eq!(slots.take(), None);
        let mut taken = vec![slots.add_page(PagePtr(7))];
        while let Some(address) = slots.take() {
            taken.push(address);
        }
        assert_eq!(taken.len(), 32);
        assert!(taken.iter().all(|&a| place(a).0 == PagePtr(7)));
        let last = taken.pop().unwrap();
        for address in taken {
            assert!(!slots.free(address));
        }
        assert!(slots.would_be_empty(PagePtr(7), 1 << place(last).1));
        assert!(slots.free(last));
        assert_eq!(slots.take(), None);
    }
}
