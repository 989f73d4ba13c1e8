//! Reading by message: what a session may read and cannot map. Who may is in [`crate::sessions::rights`].

use crate::core::Core;
use crate::fold::folding::After;
use crate::fold::pages::Copier;
use crate::fold::reply::Reply;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, HeaderCopy, Inode, InodeNumber, PAGE_BYTES, PAGE_SIZE, cast};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::Response;
use arck_protocol::message::READ_MAX;
use arck_protocol::socket::{PIECE_MAX, PIECE_OFFSET};
use arck_verifier::VerifiedState;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Where a connection's pieces are told: a sealed memory file that it may read. It costs what one is long,
/// however many are asked for and kept.
pub struct Piece {
    file: OwnedFd,
    mapping: Mapping,
    number: u64,
}

impl Piece {
    pub fn new() -> Result<Piece, Errno> {
        let file = rustix::fs::memfd_create(
            "arck-piece",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let length = PIECE_OFFSET + PIECE_MAX;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::new(&file, 0, length, MapOptions::READ_WRITE);
        Ok(Piece {
            file,
            mapping: mapping.map_err(|error| error.errno())?,
            number: 0,
        })
    }

    /// From now on nothing in it is right.
    fn begin(&mut self) {
        self.number += 1;
        self.store_number(0);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    fn put(&self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        let copied = self.mapping.bytes().copy_from(PIECE_OFFSET + at, bytes);
        copied.ok_or(Errno::INVAL)
    }

    fn end(&mut self) {
        self.store_number(self.number);
    }

    fn store_number(&self, number: u64) {
        // In range: its first word.
        let _ = self.mapping.bytes().store_u64(0, number, Ordering::Release);
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// To be sent: a descriptor of its own, that can only be read.
    pub fn descriptor(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, flags, Mode::empty())
    }
}

impl Core {
    /// See [`arck_protocol::Request::Inspect`].
    pub fn inspect(&mut self, session: SessionNumber, number: InodeNumber) -> Reply {
        let told = self
            .sessions
            .may_be_told(session, number, 0)
            .and_then(|inode| {
                let header = self
                    .sessions
                    .state
                    .header_copy(number)
                    .ok_or(Errno::STALE)?;
                let mut bytes = header.sequence.to_le_bytes().to_vec();
                bytes.extend_from_slice(inode.as_bytes());
                Ok(bytes)
            });
        match told {
            Ok(bytes) => Reply::Now(Response::Bytes(bytes)),
            Err(errno) => errno.into(),
        }
    }

    /// See [`arck_protocol::Request::Read`].
    pub fn read(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        generation: u32,
        position: u64,
        length: u32,
    ) -> Reply {
        match self.try_read(session, number, generation, position, length as usize) {
            Ok(bytes) => Reply::Now(Response::Bytes(bytes)),
            Err(errno) => errno.into(),
        }
    }

    fn try_read(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        generation: u32,
        position: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        if length > READ_MAX {
            return Err(Errno::INVAL);
        }
        let inode = self.may_read_out(session, number, generation)?;
        let length = cast::index(inode.size.saturating_sub(position).min(length as u64));
        let mut bytes = vec![0; length];
        self.read_out(number, position, length, |done, part| {
            bytes[done..done + part.len()].copy_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// The file of which a session is to be told what is in it, as it is now. ESTALE, EACCES, EISDIR.
    fn may_read_out(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        generation: u32,
    ) -> Result<Inode, Errno> {
        let header = self.sessions.state.header_of(number, generation)?;
        self.sessions.may_be_told(session, number, 4)?;
        self.fold_own(session, number, &header)?;
        let inode = self.sessions.may_be_told(session, number, 4)?;
        match inode.kind() {
            Some(FileKind::File | FileKind::Link) => Ok(inode),
            _ => Err(Errno::ISDIR),
        }
    }

    /// What a session itself has changed of an inode is to be in what it is told of it; what others have, it has had recalled.
    pub(super) fn fold_own(
        &mut self,
        session: SessionNumber,
        number: InodeNumber,
        header: &HeaderCopy,
    ) -> Result<(), Errno> {
        let own = self.sessions.all.get(&session).ok_or(Errno::NOENT)?;
        if header.ownership.session() == session && own.has_branch(number, header) {
            // Refused: the verified state is what there is.
            let _ = self.access().fold(session, &[number], After::Keep);
        }
        Ok(())
    }

    /// Tells what is in a file, a part of a page at a time with its place among the bytes.
    fn read_out(
        &self,
        number: InodeNumber,
        position: u64,
        length: usize,
        mut tell: impl FnMut(usize, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut copier = Copier::default();
        let mut content = [0; PAGE_BYTES];
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_BYTES - within).min(length - done);
            let page = self.sessions.state.data_page(number, at / PAGE_SIZE);
            match page.is_null() {
                true => content.fill(0),
                // EIO: its session has cut its file off, or somebody has removed it.
                false => copier.read(&self.sessions.state, page, &mut content)?,
            }
            tell(done, &content[within..within + part])?;
            done += part;
        }
        Ok(())
    }

    /// See [`Call::ReadPiece`](arck_protocol::socket::Call::ReadPiece); gives the bytes there are.
    pub fn read_piece(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        position: u64,
        length: u32,
        piece: &mut Piece,
    ) -> Result<u32, Errno> {
        if length as usize > PIECE_MAX {
            return Err(Errno::INVAL);
        }
        let inode = self.may_read_out(session, number, generation)?;
        let length = cast::low(inode.size.saturating_sub(position).min(u64::from(length)));
        piece.begin();
        self.read_out(number, position, length as usize, |at, part| {
            piece.put(at, part)
        })?;
        piece.end();
        Ok(length)
    }
}
