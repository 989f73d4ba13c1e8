//! Handing open descriptions on to other processes, and taking over what was handed on: what crosses is a
//! descriptor that the controller has made ([`Call::HandOn`](arck_libfs_kit::messages::Call::HandOn)), and it is
//! the controller who says what it stands for.
//!
//! # Invariant
//! * What is handed on is created: the controller knows it, and keeps it for who was handed it.

use super::*;
use arck_libfs_kit::forks::Received;
use arck_libfs_kit::messages::HandedOn;
use arck_libfs_kit::views::Directory;
use std::os::fd::BorrowedFd;

impl FileSystem {
    /// The descriptor that stands for a description wherever it is handed on, which has its offset and flags
    /// from now on. It is the description's, and closed with it ([`release`](Self::release)). Blocks.
    pub fn hand_on(&self, handle: Handle) -> Result<i32, Errno> {
        let description = self.engine.description(handle)?;
        let external = description.external.load(Ordering::Acquire);
        if let Some(known) = self.externals.file(external) {
            return Ok(known);
        }
        // Where it fails, the controller says whether it knows the inode.
        let _ = self.let_be_created(description);
        let (inode, generation) = description.identity()?;
        let parent = self.engine.kit().known(inode);
        let made = self.engine.session.hand_on(HandedOn {
            inode,
            generation,
            flags: description.flags.load(Ordering::Acquire),
            parent: parent.map_or(0, |inode| inode.holder.load(Ordering::Relaxed)),
        })?;
        self.engine.share_offset(description, &self.externals, made)
    }

    /// Takes over a description by a descriptor that was handed on to this process, or another one of the
    /// same file, to be kept. Gives its lock file too, if the caller has none (`has_lock`) and the controller keeps
    /// one (see [`keep_lock`](Self::keep_lock)). `was_sent`: the descriptor came in a message. EBADF if it is none of this pool's, ESTALE if the inode is
    /// gone. Blocks.
    pub fn take_over(
        &self,
        descriptor: OwnedFd,
        was_sent: bool,
        has_lock: bool,
    ) -> Result<(Handle, Option<Received>), Errno> {
        let session = self.engine.session;
        let (of, lock) = session.claim(descriptor.as_fd(), was_sent, has_lock)?;
        let listed = self.engine.run_local(|context| {
            let inode = context.view(of.inode, of.generation)?;
            if !inode.is_directory() && inode.holder.load(Ordering::Relaxed) == 0 {
                // Whoever asks for its path finds out whether it has a name there.
                inode.holder.store(of.parent, Ordering::Relaxed);
            }
            context.list_open(inode)
        })?;
        let handle = self
            .engine
            .new_description(listed, of.flags.cast_signed())?;
        let description = self.engine.description(handle)?;
        let external = self.externals.add(descriptor);
        description.external.store(external, Ordering::Release);
        Ok((handle, lock))
    }

    /// Before a description that was handed on is sent: the controller keeps its lock file until whoever gets it
    /// takes it over, so that both lock by one. Blocks. EBADF if it was not handed on.
    pub fn keep_lock(&self, handle: Handle, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let descriptor = self.stands_for(handle)?;
        self.engine.session.keep_lock(descriptor, file)
    }

    /// A description that is open here already, with its lock file, came in a message: nobody claims what was
    /// kept for that. Blocks.
    pub fn received_again(&self, handle: Handle) -> Result<(), Errno> {
        let descriptor = self.stands_for(handle)?;
        self.engine.session.claim(descriptor, true, true).map(drop)
    }

    fn stands_for(&self, handle: Handle) -> Result<BorrowedFd<'_>, Errno> {
        let number = self.handed_on(handle).ok_or(Errno::BADF)?;
        // SAFETY: the description's own, which is open as long as that is; should it be closed meanwhile, the
        // controller finds that it is another file.
        Ok(unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// The descriptor that stands for a description that was handed on.
    pub fn handed_on(&self, handle: Handle) -> Option<i32> {
        let description = self.engine.description(handle).ok()?;
        self.externals
            .file(description.external.load(Ordering::Acquire))
    }

    /// An inode of which the controller does not know yet is unknown to other sessions too, and is gone if
    /// its last name goes and this one closes it. A file that has no name is created by one that it has for a
    /// moment, in the directory that it was made in, or the root if that is gone; from then on it
    /// lives as long as it is open anywhere.
    pub(super) fn let_be_created(&self, description: Opened) -> Result<(), Errno> {
        let (number, generation) = description.identity()?;
        let name = format!(".arck-nameless-{number}-{generation}").into_bytes();
        let given = |anywhere: bool| {
            self.engine.run_local(|context| {
                let inode = context.view(number, generation)?;
                let has_name = !inode.has(flag::UNLINKED);
                if !inode.has(flag::UNCOMMITTED) || !has_name && inode.is_directory() {
                    return Ok(None);
                }
                let directory = if anywhere {
                    context.root()?
                } else {
                    context.parent(inode)?
                };
                if !has_name {
                    inode.set(flag::LINKABLE, true);
                    context.add_link(inode, directory, &name)?;
                }
                Ok(Some((directory.number(), directory.generation(), has_name)))
            })
        };
        let (directory, generation, has_name) = match given(false).or_else(|_| given(true))? {
            Some(place) => place,
            None => return Ok(()),
        };
        let created = ownership::commit(self.engine.session, &[directory], false);
        if has_name {
            return created;
        }
        self.engine.run_local(|context| {
            let directory = context.view(directory, generation)?;
            context.unlink_name(Directory::of(directory)?, &name)
        })?;
        created?;
        ownership::commit(self.engine.session, &[directory], false)
    }
}
