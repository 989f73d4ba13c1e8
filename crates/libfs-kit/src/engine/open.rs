//! Inodes that are not open any more, and exclusive I/O on what is, taken before an operation.

use super::Engine;
use crate::attempt::whole::Exclusive;
use crate::views::flag;
use crate::views::open::{Listed, close_once};
use arck_core_state::InodeNumber;
use arck_core_state::header::HeaderKind;
use arck_protocol::Request;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Engine<'_> {
    /// One opening of an inode less; the last one takes it off the open table, and what has no
    /// name any more ends.
    #[inline]
    pub fn unlist_open(&self, opened: Listed) -> Result<(), Errno> {
        let number = opened.number;
        let slot = self.session.thread()?.slot();
        let inside = self.inside()?;
        if opened.counted_in != self.session.region().build() {
            // It has gone with those that counted it.
            return Ok(());
        }
        let Some(inode) = self.known(number) else {
            return Ok(());
        };
        let was_last = close_once(self.session, self.views, slot, inode);
        drop(inside);
        if !was_last {
            return Ok(());
        }
        if inode.has(flag::UNLINKED) {
            let pages = inode.file.pages.load(Ordering::Relaxed);
            self.session.state().data.note_dropped(pages);
            self.run_local(|context| {
                // What is built anew has disposed of it.
                if opened.counted_in == context.session.region().build() {
                    context.dispose(inode);
                }
                Ok(())
            })?;
        }
        let header = self.session.header(number);
        if header.is_some_and(|header| header.kind() == HeaderKind::Orphan) {
            // An answer is not needed: at worst the controller frees it when it looks next.
            let _ = self.session.ask(&Request::Forget { inode: number });
        }
        Ok(())
    }

    /// Takes the exclusive I/O on the data of an inode that is open. Blocks; outside of operations.
    pub fn take_exclusive(&self, number: InodeNumber, generation: u32) -> Result<Exclusive, Errno> {
        let inode = self.run_local(|context| context.view(number, generation))?;
        let thread = self.session.thread()?;
        Ok(Exclusive::on(self.session, inode, thread.slot().holder()))
    }
}
