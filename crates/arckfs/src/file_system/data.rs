//! Data: reading, writing, seeking, truncating, syncing. A `None` position means the
//! description's offset, which then advances.

use super::*;
use crate::data::write::ONE_STEP;
use crate::data::{readable, size_limit};
use crate::descriptions::OffsetCell;
use crate::engine::by_message::gathered;
use arck_libfs_kit::engine::{Need, Stop};
use arck_libfs_kit::messages::ATTACHED_MAX;
use arck_libfs_kit::views::File;
use arck_libfs_kit::views::exclusive::Exclusive;
use std::cell::Cell;

/// That no position of a transfer is beyond the largest there is. EINVAL.
#[inline(always)]
fn in_range(position: u64, length: usize) -> Result<(), Errno> {
    match position.checked_add(length as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// The length of several buffers.
fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}

impl FileSystem {
    /// Reads; EISDIR for a directory, EBADF if not open for reading. What other threads of the
    /// session write meanwhile is in it as a whole or not at all.
    pub fn read(
        &self,
        handle: Handle,
        buffer: &mut [u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let (description, _) = self.usable(handle, false)?;
        match position {
            Some(position) => self.read_piece(description, buffer, position),
            None => {
                let cell = self.engine.offset_cell(description, &self.externals)?;
                let length = self.length_to_take(description, &cell, buffer.len())?;
                let from = cell.take(length)?;
                let read = self.read_piece(description, &mut buffer[..length], from);
                cell.use_of(from, length, *read.as_ref().unwrap_or(&0));
                read
            }
        }
    }

    /// How much a read of `wanted` bytes takes of an offset: all of that, or, where other processes may move
    /// it too, no more than there is.
    #[inline(always)]
    fn length_to_take(
        &self,
        description: Opened,
        cell: &OffsetCell<'_>,
        wanted: usize,
    ) -> Result<usize, Errno> {
        match cell.is_shared() {
            true => self.length_left(description, cell.get()?, wanted),
            false => Ok(wanted),
        }
    }

    #[cold]
    fn length_left(&self, description: Opened, offset: u64, wanted: usize) -> Result<usize, Errno> {
        let (number, generation) = description.identity()?;
        let size = self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            Ok(inode.size.load(Ordering::Acquire))
        })?;
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        Ok(left.min(wanted))
    }

    /// As one [`read`](Self::read) into several buffers, one after the other.
    pub fn read_vector<'b>(
        &self,
        handle: Handle,
        buffers: impl IntoIterator<Item = &'b mut [u8]>,
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let (description, _) = self.usable(handle, false)?;
        let cell = match position {
            Some(_) => None,
            None => Some(self.engine.offset_cell(description, &self.externals)?),
        };
        let mut buffers = buffers.into_iter();
        // What is taken of a shared offset is known before.
        let mut known = Vec::new();
        let mut taken = usize::MAX;
        let from = match (position, &cell) {
            (None, Some(cell)) => {
                if cell.is_shared() {
                    known = buffers.by_ref().collect();
                    let length = total(known.iter().map(|buffer| buffer.len()));
                    taken = self.length_to_take(description, cell, length)?;
                }
                cell.take(if cell.is_shared() { taken } else { 0 })?
            }
            (position, _) => position.unwrap_or(0),
        };
        let read = || {
            let (number, generation) = description.identity()?;
            let _exclusive = self.engine.kit().take_exclusive(number, generation)?;
            let mut done = 0;
            // As on Linux, who asks for nothing is not told that it is a directory.
            let all = known.into_iter().chain(buffers);
            for buffer in all.filter(|buffer| !buffer.is_empty()) {
                let wanted = buffer.len().min(taken - done);
                let at = from + done as u64;
                match self.read_piece(description, &mut buffer[..wanted], at) {
                    Ok(read) => {
                        done += read;
                        if read < buffer.len() {
                            break;
                        }
                    }
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => break,
                }
            }
            Ok(done)
        };
        let read = read();
        if let Some(cell) = cell {
            cell.use_of(from, taken, *read.as_ref().unwrap_or(&0));
        }
        read
    }

    #[inline(always)]
    fn read_piece(
        &self,
        description: Opened,
        buffer: &mut [u8],
        position: u64,
    ) -> Result<usize, Errno> {
        in_range(position, buffer.len())?;
        let (number, generation) = description.identity()?;
        let read = self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            if inode.is_directory() {
                return Err(Errno::ISDIR.into());
            }
            context.read_at(File::of(inode)?, buffer, position)
        });
        match read {
            Err(denied @ (Errno::ACCESS | Errno::BUSY | Errno::NOSPC)) => self
                .engine
                .read_by_message((number, generation), buffer, position, denied),
            read => read,
        }
    }

    /// Writes; short only if the pool is full, the file at its largest, or not all of the buffer
    /// can be read (ENOSPC, EFBIG, EFAULT if nothing could be written). Durable on return in
    /// `dax` and `volatile` mode. However long, it is one write to all threads of the session:
    /// nobody's bytes come between its own, and no read sees a part of it. (Of one that is longer
    /// than 2 MiB another session may see a part, and append to it.)
    pub fn write(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        self.write_as(handle, buffer, position, None)
    }

    /// The same; `append` is in place of O_APPEND if it is given.
    pub fn write_as(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
        append: Option<bool>,
    ) -> Result<usize, Errno> {
        let (description, flags) = self.usable(handle, true)?;
        let append = append.unwrap_or(flags & libc::O_APPEND != 0);
        let mut stale_maps = false;
        let written = match position {
            // pwrite on a descriptor with O_APPEND appends, as on Linux.
            Some(position) => {
                in_range(position, buffer.len())?;
                let place = if append {
                    Position::End
                } else {
                    Position::At(position)
                };
                let _exclusive = self.exclusive_for(description, buffer)?;
                self.write_piece(description, buffer, place, &mut stale_maps, false)
                    .map(|(written, _)| written)
            }
            None => {
                let cell = self.engine.offset_cell(description, &self.externals)?;
                let _exclusive = self.exclusive_for(description, buffer)?;
                if append {
                    let (written, end) = self.write_piece(
                        description,
                        buffer,
                        Position::End,
                        &mut stale_maps,
                        false,
                    )?;
                    if written != 0 {
                        cell.set(end)?;
                    }
                    Ok(written)
                } else {
                    let from = cell.take(buffer.len())?;
                    let place = Position::At(from);
                    let written =
                        self.write_piece(description, buffer, place, &mut stale_maps, false);
                    let written = written.map(|(written, _)| written);
                    cell.use_of(from, buffer.len(), *written.as_ref().unwrap_or(&0));
                    written
                }
            }
        };
        if stale_maps {
            let (number, generation) = description.identity()?;
            self.refresh_maps(number, generation);
        }
        written
    }

    /// Writes at the file's end, whatever the description's flags and offset are, which stay; gives the bytes written and
    /// the position behind them. Otherwise as [`write`](Self::write).
    pub fn append(&self, handle: Handle, buffer: &[u8]) -> Result<(usize, u64), Errno> {
        let (description, _) = self.usable(handle, true)?;
        if buffer.is_empty() {
            return Ok((0, self.size_seen(description.identity()?)?));
        }
        let mut stale_maps = false;
        let exclusive = self.exclusive_for(description, buffer)?;
        let place = Position::End;
        let written = self.write_piece(description, buffer, place, &mut stale_maps, false);
        drop(exclusive);
        if stale_maps {
            let (number, generation) = description.identity()?;
            self.refresh_maps(number, generation);
        }
        written
    }

    /// As one [`write_as`](Self::write_as) of several buffers, one after the other.
    pub fn write_vector<'b>(
        &self,
        handle: Handle,
        buffers: impl IntoIterator<Item = &'b [u8]>,
        position: Option<u64>,
        append: Option<bool>,
    ) -> Result<usize, Errno> {
        let (description, flags) = self.usable(handle, true)?;
        let append = append.unwrap_or(flags & libc::O_APPEND != 0);
        let (number, generation) = description.identity()?;
        let cell = match position {
            Some(_) => None,
            None => Some(self.engine.offset_cell(description, &self.externals)?),
        };
        let mut buffers = buffers.into_iter();
        let mut known = Vec::new();
        let mut taken = 0;
        let from = match (append, position, &cell) {
            (false, None, Some(cell)) => {
                if cell.is_shared() {
                    known = buffers.by_ref().collect();
                    taken = total(known.iter().map(|buffer| buffer.len()));
                }
                cell.take(taken)?
            }
            (_, position, _) => position.unwrap_or(0),
        };
        let mut end = from;
        let mut stale_maps = false;
        // What goes by message is seen whole by other sessions, too, if it is one.
        let gathered = match self.engine.is_mediated(number) {
            false => None,
            true => {
                known.extend(buffers.by_ref());
                gathered(known.iter().copied())
            }
        };
        let write = || {
            if let Some(whole) = &gathered {
                let place = match append {
                    true => Position::End,
                    false => Position::At(end),
                };
                let (written, at) =
                    self.write_piece(description, whole, place, &mut stale_maps, false)?;
                end = at;
                return Ok(written);
            }
            let _exclusive = self.engine.kit().take_exclusive(number, generation)?;
            let mut done = 0;
            for buffer in known.into_iter().chain(buffers) {
                let place = match append {
                    true => Position::End,
                    false => Position::At(end),
                };
                match self.write_piece(description, buffer, place, &mut stale_maps, true) {
                    Ok((written, at)) => {
                        done += written;
                        if written != 0 {
                            end = at;
                        }
                        if written < buffer.len() {
                            break;
                        }
                    }
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => break,
                }
            }
            Ok(done)
        };
        let written = write();
        let done = *written.as_ref().unwrap_or(&0);
        if let Some(cell) = cell {
            match append {
                false => cell.use_of(from, taken, done),
                true if done != 0 => cell.set(end)?,
                true => {}
            }
        }
        if stale_maps {
            self.refresh_maps(number, generation);
        }
        written
    }

    /// What is longer than a step is written in exclusive I/O.
    #[inline(always)]
    fn exclusive_for(
        &self,
        description: Opened,
        buffer: &[u8],
    ) -> Result<Option<Exclusive>, Errno> {
        if buffer.len() <= ONE_STEP {
            return Ok(None);
        }
        let (number, generation) = description.identity()?;
        self.engine
            .kit()
            .take_exclusive(number, generation)
            .map(Some)
    }

    /// Writes all of a buffer, if it can be; gives the bytes written and the position behind
    /// them. `stale_maps` is set if maps of the file are to be brought up to date. What `is_part` of a
    /// longer write, in this thread's exclusive I/O, goes by no message: others would come between.
    #[inline(always)]
    fn write_piece(
        &self,
        description: Opened,
        buffer: &[u8],
        position: Position,
        stale_maps: &mut bool,
        is_part: bool,
    ) -> Result<(usize, u64), Errno> {
        if let Position::At(at) = position {
            in_range(at, buffer.len())?;
        }
        let (number, generation) = description.identity()?;
        let append = position == Position::End;
        // What can be read of it, once something was found not to be.
        let mut readable = buffer;
        let mut done = 0;
        let mut place = position;
        let mut end = match position {
            Position::At(at) => at,
            Position::End => 0,
        };
        let mut in_parts = false;
        let limit = size_limit::known();
        // What has to end somewhere is not for one message.
        let fits = (1..=ATTACHED_MAX).contains(&buffer.len());
        let mut may_mediate = fits && !is_part && limit == u64::MAX;
        loop {
            // A step is made whole if it can be: only a pool that is full, or about full and
            // slow to give pages, cuts it, and ends the write there.
            let mut attempts = 0;
            let mut size = u64::MAX;
            let mut is_mediated = false;
            let mut is_together = false;
            let mut step = self.engine.run_local(|context| {
                attempts += 1;
                in_parts |= attempts > WHOLE_ATTEMPTS;
                let viewed = match readable.len() > done {
                    true => context.view_to_change(number, generation),
                    false => context.view(number, generation),
                };
                is_mediated = may_mediate
                    && match &viewed {
                        // What it has mapped it writes as its owner.
                        Ok(inode) => inode.has(flag::MEDIATED) && !inode.has(flag::MAPPED),
                        // Another session has it, for something else.
                        Err(Stop::Need(Need::TakeOver(_))) => self.engine.is_mediated(number),
                        Err(_) => false,
                    };
                // What sessions have mapped together none of them writes but so.
                is_together = match &viewed {
                    Ok(inode) => inode.has(flag::TOGETHER),
                    Err(_) => false,
                };
                if is_mediated || is_together {
                    return Ok((0, 0));
                }
                let inode = viewed?;
                size = inode.size.load(Ordering::Relaxed);
                let written = context.write_at(
                    File::of(inode)?,
                    &readable[done..],
                    place,
                    in_parts,
                    limit,
                )?;
                *stale_maps = inode.has(flag::STALE_MAPS);
                Ok(written)
            });
            if is_together && step.is_ok() && !readable.is_empty() {
                let _exclusive = match is_part {
                    true => None,
                    false => Some(self.engine.kit().take_exclusive(number, generation)?),
                };
                let at = match place {
                    Position::At(at) => Some(at),
                    Position::End => None,
                };
                let written =
                    self.write_together((number, generation), &readable[done..], at, limit);
                if written == Err(Errno::BUSY) {
                    // It is together no longer, and is written by its owner, since a session has it mapped.
                    self.engine.is_no_more_together(number);
                    may_mediate = false;
                    continue;
                }
                *stale_maps = true;
                step = written.map(|(count, end)| (count, end.saturating_sub(count as u64)));
            } else if is_mediated && step.is_ok() {
                let rest = &readable[done..];
                let at = match place {
                    Position::At(at) => Some(at),
                    Position::End => None,
                };
                // Nor does it come between two steps of another thread's longer write.
                let _exclusive = self.engine.kit().take_exclusive(number, generation)?;
                let written = self.engine.write_mediated((number, generation), rest, at);
                if let Err(Errno::BUSY | Errno::NOSPC) = written {
                    // Its owner keeps the pages that are mapped; and has some of his own where there are no others.
                    may_mediate = false;
                    continue;
                }
                *stale_maps = crate::mappings::any();
                step = written.map(|end| (rest.len(), end.saturating_sub(rest.len() as u64)));
            }
            match step {
                Ok((written, at)) => {
                    let is_cut = in_parts && written < ONE_STEP;
                    done += written;
                    end = at + written as u64;
                    size_limit::may_have_grown(size, end);
                    if done == readable.len() || written == 0 || is_cut {
                        return Ok((done, end));
                    }
                    if !append {
                        place = Position::At(end);
                    }
                }
                Err(Errno::NOSPC) if !in_parts => in_parts = true,
                Err(Errno::FAULT) if readable.len() == buffer.len() => {
                    readable = &buffer[..readable::length(buffer)];
                    if readable.len() > done && readable.len() < buffer.len() {
                        continue;
                    }
                    return if done == 0 {
                        Err(Errno::FAULT)
                    } else {
                        Ok((done, end))
                    };
                }
                Err(Errno::ACCESS) if readable.len() > done => {
                    let at = (!append).then_some(end);
                    let file = (number, generation);
                    let room = match limit {
                        u64::MAX => u64::MAX,
                        _ => limit.saturating_sub(at.map_or_else(|| self.size_seen(file), Ok)?),
                    };
                    let rest = readable.len() - done;
                    let rest = &readable[done..][..rest.min(usize::try_from(room).unwrap_or(rest))];
                    if rest.is_empty() {
                        return match done {
                            0 => Err(Errno::FBIG),
                            _ => Ok((done, end)),
                        };
                    }
                    let written = self.engine.write_by_message(file, rest, at, Errno::ACCESS);
                    return match written {
                        Ok((more, end)) => Ok((done + more, end)),
                        Err(errno) if done == 0 => Err(errno),
                        Err(_) => Ok((done, end)),
                    };
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok((done, end)),
            }
        }
    }

    /// `whence` as the kernel's, with SEEK_DATA and SEEK_HOLE.
    pub fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<u64, Errno> {
        let description = self.engine.description(handle)?;
        if Engine::is_path_only(description) {
            return Err(Errno::BADF);
        }
        // The positions of a directory are nothing but what a listing has told.
        let of_file = || {
            self.on_handle(handle, |_, inode| match inode.is_directory() {
                true => Err(Errno::INVAL.into()),
                false => Ok(inode.size.load(Ordering::Acquire)),
            })
        };
        let cell = self.engine.offset_cell(description, &self.externals)?;
        let target = match whence {
            libc::SEEK_SET => {
                let target = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
                cell.set(target)?;
                target
            }
            libc::SEEK_CUR => cell.move_by(offset)?,
            libc::SEEK_END => {
                let target = of_file()?.checked_add_signed(offset);
                let target = target.filter(|&at| i64::try_from(at).is_ok());
                let target = target.ok_or(Errno::INVAL)?;
                cell.set(target)?;
                target
            }
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                of_file()?;
                let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let found = self.on_handle(handle, |context, inode| {
                    context.seek_data(File::of(inode)?, from, whence == libc::SEEK_DATA)
                })?;
                cell.set(found)?;
                return Ok(found);
            }
            _ => return Err(Errno::INVAL),
        };
        if target == 0 {
            self.engine.drop_listing(description)?;
        }
        Ok(target)
    }

    /// ftruncate: EINVAL if not open for writing.
    pub fn truncate_handle(&self, handle: Handle, size: u64) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        self.usable(handle, true).map_err(|_| Errno::INVAL)?;
        let file = self.engine.description(handle)?.identity()?;
        self.resize_open(file, size)
    }

    /// The same of a file that is listed as open, whatever has become of the right to it and of the path by
    /// which it was reached.
    pub(super) fn resize_open(&self, file: (u32, u32), size: u64) -> Result<(), Errno> {
        let cut = |may_mediate| {
            self.engine.run_local(|context| {
                let inode = context.view(file.0, file.1)?;
                context.expect_cut_here(inode, may_mediate)?;
                context.resize(File::of(inode)?, size)
            })
        };
        let tail = match cut(true) {
            Err(denied @ Errno::ACCESS) => {
                self.cut_by_message_or(file, size, denied, || cut(false))?
            }
            cut => cut?,
        };
        self.replace_tail(file, tail);
        if crate::mappings::any() {
            self.refresh_maps(file.0, file.1);
        }
        self.engine.kit().give_back();
        Ok(())
    }

    /// Puts a page of this session's own in the place of one in which bytes are left behind the file's
    /// end, by a cut that is done: whether there is room for it makes no difference to that. Where
    /// there is none the controller keeps them from whoever could not read them before.
    pub(super) fn replace_tail(&self, (number, generation): (u32, u32), page: Option<u64>) {
        if let Some(page) = page {
            let _ = self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                context.own_step(File::of(inode)?, page, page + 1)
            });
        }
    }

    /// As [`Engine::resize_by_message`](crate::engine::Engine), within the limit on sizes.
    #[cold]
    pub(super) fn resize_by_message(
        &self,
        file: (u32, u32),
        size: u64,
        denied: Errno,
    ) -> Result<(), Errno> {
        match self.cut_by_message(file, size, denied) {
            Err(Errno::BUSY) => Err(denied),
            cut => cut,
        }
    }

    /// The same; EBUSY: a session has the file mapped, and does not share it.
    fn cut_by_message(&self, file: (u32, u32), size: u64, denied: Errno) -> Result<(), Errno> {
        if size_limit::forbids(size) && size > self.size_seen(file)? {
            return Err(Errno::FBIG);
        }
        // Nor does it come between two steps of another thread's longer write.
        let _exclusive = self.engine.kit().take_exclusive(file.0, file.1)?;
        self.engine.resize_by_message(file, size, denied)
    }

    /// The same; as its owner where another session has the file mapped, and where there is no room but in an owner's own segments. Gives
    /// what [`FileSystem::replace_tail`] is told.
    fn cut_by_message_or<E: From<Errno>>(
        &self,
        file: (u32, u32),
        size: u64,
        denied: Errno,
        owned: impl FnOnce() -> Result<Option<u64>, E>,
    ) -> Result<Option<u64>, E> {
        match self.cut_by_message(file, size, denied) {
            Ok(()) => Ok(None),
            Err(Errno::BUSY) => owned(),
            Err(Errno::NOSPC) => owned().map_err(|_| Errno::NOSPC.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn size_seen(&self, (number, generation): (u32, u32)) -> Result<u64, Errno> {
        self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            Ok(inode.size.load(Ordering::Acquire))
        })
    }

    /// After a change of size: see [`FileSystem::refresh_maps`].
    pub(super) fn refresh_maps_of(&self, handle: Handle) -> Result<(), Errno> {
        if crate::mappings::any() {
            let (number, generation) = self.engine.description(handle)?.identity()?;
            self.refresh_maps(number, generation);
        }
        Ok(())
    }

    pub fn truncate(&self, at: At, path: &[u8], size: u64) -> Result<(), Failure> {
        let reached = Cell::new(None);
        let cut = |may_mediate| {
            self.on_path(at, path, 0, |context, inode| {
                let identity = (inode.number(), inode.generation());
                match inode.kind() {
                    Some(FileKind::File) => {}
                    Some(FileKind::Directory) => return Err(Errno::ISDIR.into()),
                    _ => return Err(Errno::INVAL.into()),
                }
                context.credentials.check(inode, 2)?;
                reached.set(Some(identity));
                if inode.size.load(Ordering::Acquire) == size {
                    // Unlike ftruncate, this leaves the times alone.
                    return Ok((identity, None));
                }
                context.expect_cut_here(inode, may_mediate)?;
                let cut = context.resize(File::of(inode)?, size)?;
                Ok((identity, cut))
            })
        };
        let ((number, generation), left) = match (cut(true), reached.get()) {
            // It may be written and not read, or is mediated.
            (Err(Failure::Errno(denied @ Errno::ACCESS)), Some(file)) => {
                let owned = || Ok::<_, Failure>(cut(false)?.1);
                (file, self.cut_by_message_or(file, size, denied, owned)?)
            }
            (cut, _) => cut?,
        };
        self.replace_tail((number, generation), left);
        if crate::mappings::any() {
            self.refresh_maps(number, generation);
        }
        self.engine.kit().give_back();
        Ok(())
    }
}
