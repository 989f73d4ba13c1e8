//! fallocate: space given to a file, and taken from it.

use super::*;
use crate::data::size_limit;
use crate::data::space::Reserve;
use arck_libfs_kit::format::FILE_SIZE_MAX;
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::messages::allocation;
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::entries::pages_of;
use std::ops::Range;

/// What a mode of fallocate(2) asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allocate,
    Zero,
    Punch,
}

impl FileSystem {
    /// `mode` as fallocate(2)'s: 0, FALLOC_FL_ZERO_RANGE, each also with FALLOC_FL_KEEP_SIZE, and
    /// FALLOC_FL_PUNCH_HOLE with it; EOPNOTSUPP for others. ENOSPC leaves the file as it was.
    ///
    /// With FALLOC_FL_KEEP_SIZE, space behind the end of the file is looked for and not kept:
    /// the format has no pages beyond a file's size.
    pub fn allocate(
        &self,
        handle: Handle,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        if length == 0 {
            return Err(Errno::INVAL);
        }
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Kind::Allocate,
            libc::FALLOC_FL_ZERO_RANGE => Kind::Zero,
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Kind::Punch,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.usable(handle, true)?;
        self.on_handle(handle, |context, inode| match inode.kind() {
            Some(FileKind::File) => context.expect_no_set_id(inode),
            Some(FileKind::Directory) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::NODEV.into()),
        })?;
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= FILE_SIZE_MAX)
            .ok_or(Errno::FBIG)?;
        let file = self.engine.description(handle)?.identity()?;
        let range = offset..end;
        let done = match kind {
            _ if self.fill_together(file, offset..end, kind != Kind::Allocate, keep_size)? => {
                Ok(())
            }
            Kind::Punch => self.punch(handle, offset, end),
            _ => self.fill(handle, offset, end, kind == Kind::Zero, keep_size),
        };
        let done = match done {
            // The right to it went since it was opened.
            Err(Errno::ACCESS) => self.allocate_by_message(file, kind, range, keep_size),
            done => done,
        };
        self.refresh_maps_of(handle)?;
        done
    }

    /// The same by message.
    #[cold]
    fn allocate_by_message(
        &self,
        file: (u32, u32),
        kind: Kind,
        range: Range<u64>,
        keep_size: bool,
    ) -> Result<(), Errno> {
        let how = match kind {
            Kind::Allocate => allocation::FILL,
            Kind::Zero => allocation::ZERO,
            Kind::Punch => allocation::PUNCH,
        };
        let size = self.size_seen(file)?;
        if kind != Kind::Punch && size_limit::forbids(range.end) && range.end > size {
            return Err(Errno::FBIG);
        }
        let grows = range.end > size && !keep_size;
        if grows {
            self.resize_by_message(file, range.end, Errno::ACCESS)?;
        }
        let end = range.end;
        let done = {
            // Nor does it come between two steps of another thread's longer write.
            let _exclusive = self.engine.kit().take_exclusive(file.0, file.1)?;
            self.engine.allocate_by_message(file, range, how)
        };
        if done.is_err() && grows && self.size_seen(file)? == end {
            // As before, but for what somebody else has written behind it meanwhile.
            let _ = self.resize_by_message(file, size, Errno::ACCESS);
        }
        done
    }

    fn punch(&self, handle: Handle, offset: u64, end: u64) -> Result<(), Errno> {
        let (first, last) = self.zero_edges(handle, offset, end)?;
        self.punch_pages(self.engine.description(handle)?.identity()?, first..last)
    }

    /// Makes a hole of pages that a map shows (MADV_REMOVE). The map gets new ones if it is to be written.
    pub(super) fn punch_mapped(
        &self,
        (number, generation): (InodeNumber, u32),
        pages: Range<u64>,
    ) -> Result<(), Errno> {
        self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            context.expect_no_set_id(inode)
        })?;
        let bytes = pages.start * PAGE_SIZE..pages.end.saturating_mul(PAGE_SIZE);
        let done = match self.fill_together((number, generation), bytes, true, true)? {
            true => Ok(()),
            false => self.punch_pages((number, generation), pages),
        };
        self.refresh_maps(number, generation);
        done
    }

    fn punch_pages(
        &self,
        (number, generation): (InodeNumber, u32),
        pages: Range<u64>,
    ) -> Result<(), Errno> {
        let session = self.engine.session;
        let freed = Reserve::new(session, session.thread()?.slot());
        let (mut at, last) = (pages.start, pages.end);
        while at < last {
            let step = self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                context.punch_step(File::of(inode)?, at, last, &freed)
            });
            match step {
                Ok(reached) => at = reached,
                Err(errno) => {
                    // A fold may be at work on what was set free: not to be used again.
                    freed.forget();
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Zeroes the parts of pages at the ends of `[offset, end)`; gives the whole pages between.
    fn zero_edges(&self, handle: Handle, offset: u64, end: u64) -> Result<(u64, u64), Errno> {
        let (first, last) = (offset.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
        let zero_part = |from: u64, end: u64| {
            if from >= end {
                return Ok(());
            }
            self.on_handle(handle, |context, inode| {
                context.zero_part(File::of(inode)?, from, end)
            })
        };
        if first > last {
            zero_part(offset, end)?;
        } else {
            zero_part(offset, first * PAGE_SIZE)?;
            zero_part(last * PAGE_SIZE, end)?;
        }
        Ok((first, last))
    }

    fn fill(
        &self,
        handle: Handle,
        offset: u64,
        end: u64,
        zeroing: bool,
        keep_size: bool,
    ) -> Result<(), Errno> {
        let (from, last) = (offset / PAGE_SIZE, pages_of(end));
        let size_now = || self.on_handle(handle, |_, inode| Ok(inode.size.load(Ordering::Acquire)));
        if size_limit::forbids(end) && end > size_now()? {
            // Before space is looked for; as on tmpfs, also where the size is to be kept.
            return Err(Errno::FBIG);
        }
        let reserve = self.reserve(handle, from, last, zeroing)?;
        let size = size_now()?;
        let grows = end > size && !keep_size;
        if grows {
            self.on_handle(handle, |context, inode| {
                if inode.size.load(Ordering::Acquire) >= end {
                    return Ok(None);
                }
                context.resize(File::of(inode)?, end)
            })?;
        }
        let filled = self.fill_pages(handle, offset..end, from..last, zeroing, &reserve);
        if filled.is_err() && grows {
            // In spite of the reserve, which folds for other sessions may have used up.
            let cut = self.on_handle(handle, |context, inode| {
                if inode.size.load(Ordering::Acquire) != end {
                    return Ok(None);
                }
                context.resize(File::of(inode)?, size)
            })?;
            self.replace_tail(self.engine.description(handle)?.identity()?, cut);
        }
        filled
    }

    fn fill_pages(
        &self,
        handle: Handle,
        bytes: Range<u64>,
        pages: Range<u64>,
        zeroing: bool,
        reserve: &Reserve,
    ) -> Result<(), Errno> {
        let fill = |from: u64, last: u64, zeroing: bool| -> Result<(), Errno> {
            let mut at = from;
            while at < last {
                at = self.on_handle(handle, |context, inode| {
                    context.fill_step(File::of(inode)?, at, last, zeroing, reserve)
                })?;
            }
            Ok(())
        };
        if zeroing {
            // An edge may need a page of its own.
            reserve.give_back(2);
            let (_, edges) = self.index_pages(handle, pages.start, pages.end)?;
            reserve.give_back_index(edges);
            let (first, last) = self.zero_edges(handle, bytes.start, bytes.end)?;
            fill(first, last, true)?;
        }
        fill(pages.start, pages.end, false)
    }

    /// Arena pages for the entries of the file pages `[from, end)`, and those for its ends alone.
    fn index_pages(&self, handle: Handle, from: u64, end: u64) -> Result<(usize, usize), Errno> {
        self.on_handle(handle, |context, inode| {
            let file = File::of(inode)?;
            let over = |from, end| context.index_pages_over(file, from, end);
            let edges = over(from, from + 1) + over(end - 1, end);
            Ok((over(from, end), edges))
        })
    }

    /// Sets aside the data pages, and arena pages for their entries, that filling the file pages
    /// `[from, end)` will take. ENOSPC.
    fn reserve(
        &self,
        handle: Handle,
        from: u64,
        end: u64,
        zeroing: bool,
    ) -> Result<Reserve, Errno> {
        let session = self.engine.session;
        let lacking = self.on_handle(handle, |context, inode| {
            context.pages_lacking(File::of(inode)?, from, end, zeroing)
        })?;
        let free = || session.control().header.pages_free.load(Ordering::Acquire);
        if lacking > free() {
            // What has been deleted is free after a fold, and told with the next answer.
            self.engine.kit().fold_all()?;
            self.engine.kit().fold_all()?;
            if lacking > free() {
                return Err(Errno::NOSPC);
            }
        }
        let thread = session.thread()?;
        let reserve = Reserve::new(session, thread.slot());
        while !reserve.fill(lacking) {
            self.engine.kit().meet(thread, Need::DataPages(1))?;
        }
        let (over, edges) = self.index_pages(handle, from, end)?;
        let needed = match lacking {
            _ if zeroing => over + edges,
            0 => 0,
            _ => over,
        };
        while let Err(need) = reserve.fill_index(needed) {
            self.engine.kit().meet(thread, need)?;
        }
        Ok(reserve)
    }
}
