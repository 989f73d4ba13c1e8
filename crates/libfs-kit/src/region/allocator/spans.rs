//! Spans: runs of pages cut into objects of one size class.
//!
//! Each class has a list of spans that have free objects. The class's lock protects the list and
//! the descriptors of its spans. A span's free objects are chained through their own first four
//! bytes by number (from 1); objects that were never handed out are not chained but counted.
//! Invariants: a span is in the list exactly if it has a free object; one without any object in
//! use goes back to the page pool unless it is the last in the list. A class's lock is taken
//! before the pool's.

use super::super::holder::Holder;
use super::super::sizes::{CLASSES, PAGE_SIZE, SIZES};
use super::super::structures::{CentralList, PageDescriptor};
use super::super::{Offset, OutOfMemory, Region};
use super::pages::{INTERIOR, SPAN};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

impl CentralList {
    /// As it is in a new region.
    pub fn reset(&self) {
        self.lock.reset();
        self.partial.store(0, Relaxed);
        self.out.store(0, Relaxed);
    }

    pub fn objects_out(&self) -> u64 {
        self.out.load(Relaxed)
    }
}

const fn span_pages(class: u8) -> u32 {
    if SIZES[class as usize] > 1024 { 8 } else { 4 }
}

const fn span_objects(class: u8) -> u32 {
    span_pages(class) * PAGE_SIZE as u32 / SIZES[class as usize]
}

impl Region {
    /// Hands at least one and up to `wanted` objects of `class` to `sink`.
    pub(super) fn take_objects(
        &self,
        holder: Holder,
        class: u8,
        wanted: u32,
        sink: &mut dyn FnMut(u64),
    ) -> Result<(), OutOfMemory> {
        let central = &self.auxiliary().classes[usize::from(class) % CLASSES];
        let _locked = self.enter(&central.lock, holder).ok_or(OutOfMemory)?;
        let mut taken = 0;
        while taken < wanted {
            let page = match central.partial.load(Relaxed) {
                0 if taken > 0 => break,
                0 => self.new_span(holder, central, class)?,
                page => page,
            };
            let span = self.descriptor(page);
            while taken < wanted
                && let Some(object) = self.pop_object(page, span, class)
            {
                // Counted first: a death between the two loses the object, and no more.
                central.out.fetch_add(1, Relaxed);
                sink(self.object(page, object, class));
                taken += 1;
            }
            if span.free.load(Relaxed) == 0 && span.fresh.load(Relaxed) >= span_objects(class) {
                self.unlink_span(central, span);
            }
        }
        Ok(())
    }

    /// Takes back what `source` yields, all objects of `class`.
    pub(super) fn give_objects(
        &self,
        holder: Holder,
        class: u8,
        source: &mut dyn FnMut() -> Option<u64>,
    ) {
        let central = &self.auxiliary().classes[usize::from(class) % CLASSES];
        let locked = self.enter(&central.lock, holder);
        while let Some(offset) = source() {
            if locked.is_none() {
                // Lost with the rest of this build.
                continue;
            }
            let Some(page) = self.span_of(offset, class) else {
                debug_assert!(
                    false,
                    "freed {offset:#x}, which is no object of class {class}"
                );
                continue;
            };
            let span = self.descriptor(page);
            let object =
                ((offset - self.page_offset(page)) / u64::from(SIZES[class as usize])) as u32;
            let was_full =
                span.free.load(Relaxed) == 0 && span.fresh.load(Relaxed) >= span_objects(class);
            let link = Offset::<AtomicU32>::from_raw(self.object(page, object, class));
            self.get(link).store(span.free.load(Relaxed), Relaxed);
            span.free.store(object + 1, Relaxed);
            let used = span.used.load(Relaxed).saturating_sub(1);
            span.used.store(used, Relaxed);
            central.out.fetch_sub(1, Relaxed);
            if was_full {
                self.link_span(central, page, span);
            }
            let alone = central.partial.load(Relaxed) == page && span.next.load(Relaxed) == 0;
            if used == 0 && !alone {
                self.unlink_span(central, span);
                self.give_pages(holder, self.page_offset(page));
            }
        }
    }

    fn new_span(
        &self,
        holder: Holder,
        central: &CentralList,
        class: u8,
    ) -> Result<u32, OutOfMemory> {
        let offset = self.take_span_pages(holder, span_pages(class))?;
        let page = self.page_of(offset).ok_or(OutOfMemory)?;
        for interior in 1..span_pages(class) {
            let descriptor = self.descriptor(page + interior);
            descriptor.start.store(page, Relaxed);
            descriptor.state.store(INTERIOR, Relaxed);
        }
        let span = self.descriptor(page);
        span.start.store(page, Relaxed);
        span.free.store(0, Relaxed);
        span.fresh.store(0, Relaxed);
        span.used.store(0, Relaxed);
        span.state.store(SPAN | u32::from(class) << 8, Relaxed);
        self.link_span(central, page, span);
        Ok(page)
    }

    fn pop_object(&self, page: u32, span: &PageDescriptor, class: u8) -> Option<u32> {
        let object = match span.free.load(Relaxed) {
            0 => {
                let fresh = span.fresh.load(Relaxed);
                if fresh >= span_objects(class) {
                    return None;
                }
                span.fresh.store(fresh + 1, Relaxed);
                fresh
            }
            first => {
                let object = first - 1;
                let link = Offset::<AtomicU32>::from_raw(self.object(page, object, class));
                let next = self.get(link).load(Relaxed);
                debug_assert!(
                    next <= span_objects(class),
                    "an object was written after its free"
                );
                // A link that was overwritten: give up the rest of the chain rather than follow it.
                let next = if next <= span_objects(class) { next } else { 0 };
                span.free.store(next, Relaxed);
                object
            }
        };
        span.used
            .store(span.used.load(Relaxed).wrapping_add(1), Relaxed);
        Some(object)
    }

    fn object(&self, page: u32, object: u32, class: u8) -> u64 {
        self.page_offset(page) + u64::from(object) * u64::from(SIZES[class as usize])
    }

    fn span_of(&self, offset: u64, class: u8) -> Option<u32> {
        let page = self.descriptor(self.page_of(offset)?).start.load(Relaxed);
        let in_heap = page < self.layout.heap_pages;
        let state = self.descriptor(page).state.load(Relaxed);
        (in_heap && offset >= self.page_offset(page) && state == SPAN | u32::from(class) << 8)
            .then_some(page)
    }

    fn link_span(&self, central: &CentralList, page: u32, span: &PageDescriptor) {
        let first = central.partial.load(Relaxed);
        span.next.store(first, Relaxed);
        span.previous.store(0, Relaxed);
        if first != 0 {
            self.descriptor(first).previous.store(page, Relaxed);
        }
        central.partial.store(page, Relaxed);
    }

    fn unlink_span(&self, central: &CentralList, span: &PageDescriptor) {
        let (next, previous) = (span.next.load(Relaxed), span.previous.load(Relaxed));
        match previous {
            0 => central.partial.store(next, Relaxed),
            _ => self.descriptor(previous).next.store(next, Relaxed),
        }
        if next != 0 {
            self.descriptor(next).previous.store(previous, Relaxed);
        }
    }
}
