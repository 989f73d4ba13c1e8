//! Places for inodes: 32 of 128 bytes in a page of a metadata segment.
//!
//! # Invariants
//! * `partial` holds the pages with at least one free and at least one taken place, by the label
//!   of their segment, which whoever calls knows; the mask says which are free. Full pages are nowhere, pages without any inode are free pages.
//! * A place freed by a change is free only after the change is durable.

use arck_core_state::inode::INODE_SIZE;
use arck_core_state::{PAGE_SIZE, PagePtr};
use std::collections::BTreeMap;

/// See the module's head.
#[derive(Default, Debug)]
pub struct InodeSlots {
    partial: BTreeMap<u32, BTreeMap<PagePtr, u32>>,
}

/// Page and number of the place at byte address `address`.
pub fn place(address: u64) -> (PagePtr, u32) {
    let slot = address % PAGE_SIZE / INODE_SIZE as u64;
    (PagePtr::of_address(address), slot as u32)
}

impl InodeSlots {
    /// A free place of a page that holds inodes already, taken.
    pub fn take(&mut self, label: u32) -> Option<u64> {
        let mut entry = self.partial.get_mut(&label)?.first_entry()?;
        debug_assert_ne!(*entry.get(), 0, "a page with a free place");
        let slot = entry.get().trailing_zeros();
        let page = *entry.key();
        *entry.get_mut() &= !(1 << slot);
        if *entry.get() == 0 {
            entry.remove();
        }
        Some(page.address() + u64::from(slot) * INODE_SIZE as u64)
    }

    /// A new page of places, of which the first is taken and given.
    pub fn add_page(&mut self, label: u32, page: PagePtr) -> u64 {
        self.partial.entry(label).or_default().insert(page, !1);
        page.address()
    }

    /// Frees a place. True if its page holds nothing any more: then it is forgotten here.
    pub fn free(&mut self, label: u32, address: u64) -> bool {
        let (page, slot) = place(address);
        let partial = self.partial.entry(label).or_default();
        let mask = partial.entry(page).or_insert(0);
        *mask |= 1 << slot;
        if *mask == u32::MAX {
            partial.remove(&page);
            return true;
        }
        false
    }

    /// Whether a page would hold nothing once the places in `mask` are free too.
    pub fn would_be_empty(&self, label: u32, page: PagePtr, mask: u32) -> bool {
        let partial = self.partial.get(&label);
        partial
            .and_then(|pages| pages.get(&page))
            .copied()
            .unwrap_or(0)
            | mask
            == u32::MAX
    }

    /// What a scan found: a page and its taken places.
    pub fn load(&mut self, label: u32, page: PagePtr, taken: u32) {
        if taken != u32::MAX {
            self.partial.entry(label).or_default().insert(page, !taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fills_and_empties() {
        let mut slots = InodeSlots::default();
        assert_eq!(slots.take(3), None);
        let mut taken = vec![slots.add_page(3, PagePtr(7))];
        assert_eq!(slots.take(0), None);
        while let Some(address) = slots.take(3) {
            taken.push(address);
        }
        assert_eq!(taken.len(), 32);
        assert!(taken.iter().all(|&a| place(a).0 == PagePtr(7)));
        let last = taken.pop().unwrap();
        for address in taken {
            assert!(!slots.free(3, address));
        }
        assert!(slots.would_be_empty(3, PagePtr(7), 1 << place(last).1));
        assert!(slots.free(3, last));
        assert_eq!(slots.take(3), None);
    }
}
