//! Data: reading, writing, seeking, truncating, syncing. A `None` position means the
//! description's offset, which then advances.

use super::*;
use arck_core_state::PAGE_SIZE;
use arck_pm::guarded::guarded_copy;

/// How many bytes of a program's buffer can be read, up to the first that cannot.
#[cold]
#[inline(never)]
fn readable_length(buffer: &[u8]) -> usize {
    let mut byte = 0u8;
    let mut length = 0;
    while length < buffer.len() {
        // SAFETY: a byte of our own, and one of a slice.
        let read = unsafe { guarded_copy(&raw mut byte, buffer[length..].as_ptr(), 1) };
        if read.is_err() {
            break;
        }
        // On to the next page.
        let next = (buffer.as_ptr() as usize + length + 1).next_multiple_of(PAGE_SIZE as usize);
        length = next - buffer.as_ptr() as usize;
    }
    length.min(buffer.len())
}

impl FileSystem {
    /// Reads; EISDIR for a directory, EBADF if not open for reading.
    pub fn read(
        &self,
        handle: Handle,
        buffer: &mut [u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let (description, _) = self.usable(handle, false)?;
        let (number, generation) = identity(description);
        let mut read_at = |position| {
            self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                if inode.is_directory() {
                    return Err(Errno::ISDIR.into());
                }
                context.read_at(inode, buffer, position)
            })
        };
        match position {
            Some(position) => read_at(position),
            None => {
                let cell = self.engine.offset_cell(description, &self.externals)?;
                let offset = cell.get();
                let read = read_at(offset)?;
                cell.set(offset + read as u64);
                Ok(read)
            }
        }
    }

    /// Writes; short only if the pool is full, the file at its largest, or not all of the buffer
    /// can be read (ENOSPC, EFBIG, EFAULT if nothing could be written). Durable on return in `dax` and `volatile` mode.
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
        let (number, generation) = identity(description);
        let append = append.unwrap_or(flags & libc::O_APPEND != 0);
        let unsettled = std::cell::Cell::new(false);
        // What can be read of it, once something was found not to be.
        let readable = std::cell::Cell::new(buffer);
        let write_all = |position: Position| -> Result<(usize, u64), Errno> {
            let mut done = 0;
            let mut place = position;
            let mut end = match position {
                Position::At(at) => at,
                Position::End => 0,
            };
            loop {
                // An append is made whole if it can be: only a pool that is about full gives
                // pages so slowly.
                let mut attempts = 0;
                let step = self.engine.run_local(|context| {
                    attempts += 1;
                    let in_parts = !append || attempts > WHOLE_APPEND_ATTEMPTS;
                    let inode = context.view(number, generation)?;
                    let data = &readable.get()[done..];
                    let written = context.write_at(inode, data, place, in_parts)?;
                    unsettled.set(inode.has(flag::UNSETTLED));
                    Ok(written)
                });
                match step {
                    Ok((written, at)) => {
                        done += written;
                        end = at + written as u64;
                        if done == readable.get().len() || written == 0 {
                            return Ok((done, end));
                        }
                        place = match position {
                            Position::At(_) => Position::At(end),
                            Position::End => Position::End,
                        };
                    }
                    Err(Errno::FAULT) if readable.get().len() == buffer.len() => {
                        readable.set(&buffer[..readable_length(buffer)]);
                        if readable.get().len() > done && readable.get().len() < buffer.len() {
                            continue;
                        }
                        return if done == 0 {
                            Err(Errno::FAULT)
                        } else {
                            Ok((done, end))
                        };
                    }
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => return Ok((done, end)),
                }
            }
        };
        let written = match position {
            // pwrite on a descriptor with O_APPEND appends, as on Linux.
            Some(position) => {
                let place = if append {
                    Position::End
                } else {
                    Position::At(position)
                };
                write_all(place).map(|(written, _)| written)
            }
            None => {
                let cell = self.engine.offset_cell(description, &self.externals)?;
                let place = if append {
                    Position::End
                } else {
                    Position::At(cell.get())
                };
                let (written, end) = write_all(place)?;
                if written != 0 {
                    cell.set(end);
                }
                Ok(written)
            }
        };
        if unsettled.get() {
            self.settle_maps(number, generation);
        }
        written
    }

    /// `whence` as the kernel's, with SEEK_DATA and SEEK_HOLE.
    pub fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<u64, Errno> {
        let description = self.engine.description(handle)?;
        if self.engine.flags_of(description, &self.externals) & libc::O_PATH != 0 {
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
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => cell.get() as i64,
            libc::SEEK_END => of_file()? as i64,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                of_file()?;
                let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let found = self.on_handle(handle, |context, inode| {
                    context.seek_data(inode, from, whence == libc::SEEK_DATA)
                })?;
                cell.set(found);
                return Ok(found);
            }
            _ => return Err(Errno::INVAL),
        };
        let target = base
            .checked_add(offset)
            .filter(|&at| at >= 0)
            .ok_or(Errno::INVAL)?;
        cell.set(target as u64);
        if target == 0 {
            self.engine.drop_listing(description)?;
        }
        Ok(target as u64)
    }

    /// ftruncate: EINVAL if not open for writing.
    pub fn truncate_handle(&self, handle: Handle, size: u64) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        self.usable(handle, true).map_err(|_| Errno::INVAL)?;
        self.on_handle(handle, |context, inode| context.resize(inode, size))?;
        self.settle_handle(handle)
    }

    /// After a change of size: see [`FileSystem::settle_maps`].
    pub(super) fn settle_handle(&self, handle: Handle) -> Result<(), Errno> {
        if crate::mappings::any() {
            let (number, generation) = identity(self.engine.description(handle)?);
            self.settle_maps(number, generation);
        }
        Ok(())
    }

    pub fn truncate(&self, at: At, path: &[u8], size: u64) -> Result<(), Failure> {
        let (number, generation) = self.on_path(at, path, 0, |context, inode| {
            let identity = (inode.number(), inode.generation());
            match inode.kind() {
                Some(FileKind::File) => {}
                Some(FileKind::Directory) => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            }
            context.credentials.check(inode, 2)?;
            if inode.size.load(Ordering::Acquire) == size {
                // Unlike ftruncate, this leaves the times alone.
                return Ok(identity);
            }
            context.resize(inode, size)?;
            Ok(identity)
        })?;
        if crate::mappings::any() {
            self.settle_maps(number, generation);
        }
        Ok(())
    }

    /// Durable already in `dax` and `volatile` mode; in `paged` mode folds and writes back.
    pub fn sync(&self, handle: Handle) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let (number, _) = identity(self.engine.description(handle)?);
        if self.engine.session.durability() != Durability::Paged {
            return Ok(());
        }
        let inodes = InodeList::new(&[number]).ok_or(Errno::IO)?;
        self.engine.session.ask(&Request::Sync { inodes })
    }
}
