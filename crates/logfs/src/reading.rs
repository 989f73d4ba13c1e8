//! Reading a log by positions.
//!
//! # Invariants
//! * Bytes below a section's size never change, so no lock is taken; what was read counts if the verified state did not move
//!   meanwhile (KucoFS's versioned read), not even a failure does otherwise.
//! * Sections lie one behind the other. Where one is full and none begins at its end, the log ends; where others do, somebody
//!   has written or removed its files by other means.

use crate::error::TURNS;
use crate::sections::{Section, SectionFile};
use crate::{Error, Here, Log, lock};
use arck_libfs_kit::engine::{Attempt, Context, Need};
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::views::File;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};

/// What a look at a section found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// So many bytes, from one on.
    Read(usize),
    /// It ends there, so many bytes from its first.
    End { size: u64 },
    /// The position is so far behind its end.
    Behind { size: u64 },
}

/// Reads a section, from `within` on; its end, if there is nothing.
pub fn look(
    context: &Context<'_>,
    section: SectionFile,
    within: u64,
    buffer: &mut [u8],
) -> Attempt<Looked> {
    let file = section.view(context)?;
    let seen = context.seen(&file);
    let read = copy(context, file, within, buffer);
    fence(Ordering::Acquire);
    context.unmoved_since(&file, seen)?;
    if context.seen(&file) != seen {
        return Err(Need::Again.into());
    }
    let (size, copied) = read?;
    Ok(match within.cmp(&size) {
        std::cmp::Ordering::Less => Looked::Read(copied),
        std::cmp::Ordering::Greater => Looked::Behind { size },
        std::cmp::Ordering::Equal => Looked::End { size },
    })
}

/// Copies what there is; gives the size, and how much it was.
fn copy(
    context: &Context<'_>,
    file: File,
    within: u64,
    buffer: &mut [u8],
) -> Attempt<(u64, usize)> {
    let size = file.size.load(Ordering::Acquire);
    let left = usize::try_from(size.saturating_sub(within)).unwrap_or(usize::MAX);
    let length = left.min(buffer.len());
    let mut done = 0;
    while done < length {
        let at = within + done as u64;
        let begin = (at % PAGE_SIZE) as usize;
        let part = (PAGE_SIZE as usize - begin).min(length - done);
        let target = &mut buffer[done..done + part];
        let page = context.data_page(file, at / PAGE_SIZE)?;
        if page.is_null() {
            target.fill(0);
        } else {
            let bytes = context.session.page_bytes(page);
            let bytes = bytes.ok_or_else(|| context.lost(&file))?;
            let copied = bytes.try_copy_to(begin, target);
            copied.map_err(|error| error.errno())?;
        }
        done += part;
    }
    Ok((size, length))
}

impl Here {
    pub(crate) fn look(
        &self,
        section: Section,
        position: u64,
        buffer: &mut [u8],
    ) -> Result<Looked, Errno> {
        let within = position - section.begin;
        self.engine()
            .run_local(|context| look(context, section.file, within, buffer))
    }

    /// The section in which a position lies, as far as is known, or by its name.
    pub(crate) fn section_with(&self, position: u64) -> Result<Section, Error> {
        if let Some(found) = lock(&self.known).with(position) {
            return Ok(found);
        }
        let all = self.list()?;
        let begin = all.first().ok_or(Errno::NOENT)?.begin;
        let known = lock(&self.known);
        known.with(position).ok_or(Error::Cut { position, begin })
    }

    /// The section that begins where a full one ends, if it has been made. EBADMSG: there are others instead.
    pub(crate) fn after(&self, end: u64) -> Result<Option<Section>, Error> {
        if let Some(known) = lock(&self.known).with(end).filter(|one| one.begin == end) {
            return Ok(Some(known));
        }
        let next = self.in_directory().find(end)?;
        if let Some(next) = next {
            self.note(next);
        }
        Ok(next)
    }

    /// Whether the log has others than a full section that ends at `end`. Where there is none behind it, it is looked whether
    /// that one is there: it may have been cut off, and so were those that were made after it.
    fn goes_on_after(&self, section: Section, end: u64) -> Result<bool, Error> {
        if self.after(end)?.is_some() {
            return Ok(true);
        }
        if self.in_directory().find(section.begin)? == Some(section) {
            return Ok(false);
        }
        self.list()?;
        Ok(true)
    }

    /// Reads what there is at a position, from one section; nothing at the end of the log. Tells the section.
    pub(crate) fn read_at(
        &self,
        position: u64,
        buffer: &mut [u8],
    ) -> Result<(Section, Looked), Error> {
        for turn in 0..TURNS {
            let section = self.section_with(position)?;
            // Asked before the look: a later one that is made behind it says nothing of what the look finds.
            let is_last = !self.knows_later(section);
            let looked = match self.look(section, position, buffer) {
                // It has been cut off, perhaps.
                Err(Errno::STALE) => {
                    self.list()?;
                    continue;
                }
                looked => looked?,
            };
            let (Looked::End { size } | Looked::Behind { size }) = looked else {
                return Ok((section, looked));
            };
            let end = section.begin.saturating_add(size);
            // What is full ends where the next one begins, which may be there, and not known yet.
            if size >= self.limit && self.goes_on_after(section, end)? {
                if turn > 1 {
                    // Others are far ahead.
                    self.list()?;
                }
                continue;
            }
            if !is_last {
                self.expect_no_later(section, size)?;
            } else if end == position {
                return Ok((section, looked));
            } else {
                return Err(self.beyond(position));
            }
        }
        Err(Errno::AGAIN.into())
    }

    fn beyond(&self, position: u64) -> Error {
        match self.end() {
            Ok(end) => Error::Beyond { position, end },
            Err(error) => error,
        }
    }

    /// EBADMSG where a section of `size` bytes is there before others and none of them begins where it ends, as they do if it is full.
    /// Sections are cut off from the first one on, so what stood behind this one was not while this was not.
    fn expect_no_later(&self, section: Section, size: u64) -> Result<(), Error> {
        let end = section.begin.saturating_add(size);
        let all = self.list()?;
        let at = all.iter().position(|&one| one == section);
        match at.and_then(|at| all.get(at + 1)) {
            Some(next) if next.begin != end || size < self.limit => {
                let text = format!("bytes from position {end} on are missing");
                Err(Error::Malformed(text))
            }
            _ => Ok(()),
        }
    }

    fn knows_later(&self, section: Section) -> bool {
        let last = lock(&self.known).with(u64::MAX);
        last.is_some_and(|last| last.begin > section.begin)
    }

    fn size(&self, section: Section) -> Result<u64, Errno> {
        self.engine().run_local(|context| {
            let file = section.file.view(context)?;
            Ok(file.size.load(Ordering::Acquire))
        })
    }

    pub(crate) fn end(&self) -> Result<u64, Error> {
        for turn in 0..TURNS {
            let last = lock(&self.known).with(u64::MAX);
            let last = match last {
                // Where the next one was full, too, others are far ahead.
                Some(last) if turn < 2 => last,
                _ => self.last()?,
            };
            let size = match self.size(last) {
                Err(Errno::STALE) => {
                    self.list()?;
                    continue;
                }
                size => size?,
            };
            let end = last.begin.saturating_add(size);
            if size < self.limit || !self.goes_on_after(last, end)? {
                return Ok(end);
            }
        }
        Err(Errno::AGAIN.into())
    }
}

impl Log {
    /// The first position that has not been cut off. Takes the time of a look at all names of sections. EACCES, EIO.
    pub fn begin(&self) -> Result<u64, Error> {
        let all = self.here()?.list()?;
        Ok(all.first().ok_or(Errno::NOENT)?.begin)
    }

    /// The position behind all that has been appended. EACCES, EIO.
    pub fn end(&self) -> Result<u64, Error> {
        self.here()?.end()
    }

    /// Reads from a position on until the buffer is full or the log ends; gives how many bytes it was, 0 at its end. Takes no
    /// lock, and waits for the controller where another session has the log. ENODATA: that was cut off. EINVAL: the
    /// log ends before. EBADMSG, EACCES, EIO.
    pub fn read_at(&self, position: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let here = self.here()?;
        let mut done = 0;
        while done < buffer.len() {
            let at = position.saturating_add(done as u64);
            match here.read_at(at, &mut buffer[done..])? {
                (_, Looked::Read(read)) => done += read,
                _ => break,
            }
        }
        Ok(done)
    }
}
