//! What is to be durable: `fsync`, `msync`, `sync`. What calls have stored is durable when they return, but in `paged`
//! mode, where the kernel writes back; what the program has stored through maps is flushed here.
//!
//! Invariant: where stores are not flushed (memory that does not survive the machine), nothing is done for maps.

use super::*;
use crate::mappings::{self, PAGE};
use arck_libfs_kit::engine::Stop;
use arck_libfs_kit::memory::durable;
use rustix::mm::MsyncFlags;
use std::ops::Range;

impl FileSystem {
    /// `fsync` and what is like it: all that was written to a file, by calls and through maps, in whatever process
    /// of the group, is durable when it returns. Blocks in `paged` mode, which folds and writes back. EBADF, EIO.
    pub fn sync(&self, handle: Handle) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let (number, generation) = self.engine.description(handle)?.identity()?;
        if self.engine.session.durability() == Durability::Paged {
            return self.write_back(number);
        }
        if !durable::is_flushing() {
            return Ok(());
        }
        let mut next = None;
        let mut flushed = self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            next = inode.has(flag::STORED).then_some(0);
            Ok(())
        });
        if next.is_none() {
            return match flushed {
                // Of what is gone nothing has to be durable.
                Err(Errno::STALE) => Ok(()),
                other => other,
            };
        }
        // A second one that comes meanwhile returns after this one's end.
        let _exclusive = self.engine.kit().take_exclusive(number, generation)?;
        let mut begun = false;
        while flushed.is_ok() && next.is_some() {
            flushed = self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                if !begun && !context.take_stored(inode) {
                    next = None;
                    return Ok(());
                }
                begun = true;
                let flushed = context.flush_stored(inode, &mut next);
                if let Err(Stop::Failure(_)) = flushed {
                    inode.set(flag::STORED, true);
                }
                flushed
            });
        }
        match flushed {
            // Of what is gone nothing has to be durable.
            Err(Errno::STALE) => Ok(()),
            other => other,
        }
    }

    /// `sync`: what this process has stored through its maps. As [`FileSystem::sync`] of each of their files.
    pub fn sync_all_maps(&self) -> Result<(), Errno> {
        if mappings::any() {
            self.flush_maps(&(0..usize::MAX), true)?;
        }
        Ok(())
    }

    /// `msync`: what was stored through writable maps is durable afterwards. ENOMEM if part of
    /// the range is not mapped, EINVAL.
    ///
    /// # Safety
    /// See the head of [`memory`](super::memory).
    pub unsafe fn sync_maps(&self, address: usize, length: usize, flags: i32) -> Result<(), Errno> {
        let kernels = MsyncFlags::from_bits_retain(flags as u32);
        // Which also says whether the arguments are any good. On DAX it flushes what was stored to: the kernel knows
        // which pages these are, and nobody else does.
        // SAFETY: changes no memory.
        unsafe { rustix::mm::msync(address as *mut std::ffi::c_void, length, kernels)? };
        if flags & (libc::MS_SYNC | libc::MS_ASYNC) == 0
            || self.engine.session.durability() == Durability::Dax && flags & libc::MS_SYNC != 0
        {
            return Ok(());
        }
        let range = address..address.saturating_add(length.next_multiple_of(PAGE));
        self.flush_maps(&range, flags & libc::MS_SYNC != 0)
    }

    fn flush_maps(&self, range: &Range<usize>, wait: bool) -> Result<(), Errno> {
        let is_paged = self.engine.session.durability() == Durability::Paged;
        if !is_paged && !durable::is_flushing() {
            return Ok(());
        }
        let inodes = self
            .engine
            .run_local(|context| Ok(context.stored_in(range, !is_paged)))?;
        match is_paged && wait {
            true => inodes
                .into_iter()
                .try_for_each(|number| self.write_back(number)),
            false => Ok(()),
        }
    }

    /// Has the controller fold a file and the kernel write it back.
    fn write_back(&self, number: InodeNumber) -> Result<(), Errno> {
        let inodes = InodeList::new(&[number]).ok_or(Errno::IO)?;
        self.engine.session.ask(&Request::Sync { inodes })
    }
}
