//! A trust group of several processes: what is left of [members](members) that are gone, and the auxiliary state
//! [built anew](rebuild) when one has died inside it.

mod members;
mod rebuild;

use crate::engine::Engine;
use crate::interface::Errno;
use arck_libfs_kit::engine::LibFs;
use arck_libfs_kit::region::ThreadSlot;

impl LibFs for Engine {
    fn close_all_of(&self, member: u16) -> Result<(), Errno> {
        self.close_open_files_of(member)
    }

    fn begin_again(&self, slot: &'static ThreadSlot<'static>, gone: &[u16]) -> Result<(), Errno> {
        self.begin_state_again(slot, gone)
    }
}
