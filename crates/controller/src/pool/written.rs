//! The data segment to which the controller has written by messages last, mapped: the next message goes to it too, most
//! likely, and to map it takes longer than to write a page.
//!
//! # Invariants
//! * It is a class's: no session can write it, or cut its file off.
//! * It is let go of before anybody asks who can write a file ([`crate::pool::reach`]), and before a segment gets another
//!   file.

use crate::pool::files::Pool;
use arck_core_state::superblock::Durability;
use arck_core_state::{PagePtr, cast};
use arck_pm::{MapOptions, Mapping};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::{Arc, PoisonError};

impl Pool {
    /// The segment of a page that is to be written, and where in it the page lies. EIO.
    pub fn to_write(&self, page: PagePtr) -> Result<(Arc<Mapping>, usize), Errno> {
        let geometry = self.geometry();
        let segment = geometry.segment_of(page);
        let within = cast::index(page.address() % geometry.segment_size);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, mapping)) = &*written
            && *known == segment
        {
            return Ok((mapping.clone(), within));
        }
        let file = self.open_segment(segment, OFlags::RDWR)?;
        let length = usize::try_from(geometry.segment_size).map_err(|_| Errno::NOMEM)?;
        let options = MapOptions::READ_WRITE.synchronous(self.durability() == Durability::Dax);
        let mapping = Mapping::new(&file, 0, length, options).map_err(|error| error.errno())?;
        let mapping = Arc::new(mapping);
        *written = Some((segment, mapping.clone()));
        Ok((mapping, within))
    }

    /// The same, if it is the one that was written last.
    pub fn written(&self, page: PagePtr) -> Option<(Arc<Mapping>, usize)> {
        let geometry = self.geometry();
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (segment, mapping) = written.as_ref()?;
        let is_it = *segment == geometry.segment_of(page);
        let within = cast::index(page.address() % geometry.segment_size);
        is_it.then(|| (mapping.clone(), within))
    }

    pub fn forget_written(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
