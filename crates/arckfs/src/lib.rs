//! ArckFS: the general-purpose LibFS of Arck.
//!
//! This crate is the *policy* on top of `arck-libfs-kit`: path resolution, open file descriptions,
//! maps, what POSIX asks of names, data and attributes. Its public face is [`FileSystem`], whose methods mirror the
//! system calls they serve. The preload library is built on it, and has a good deal of its own
//! (descriptors, signals, processes); so are tests and measurements.
//!
//! From below:
//!
//! * `interface`: what is asked of a file system, and answered. `state`: what of the auxiliary state is ArckFS's own,
//!   in the group's shared region.
//! * `mappings`: the program's maps of files.
//! * `attributes`: status, credentials, extended attributes. `data`: reading, writing, space.
//! * `names`: paths, what they lead to, and changes of names.
//! * `engine`: the kit's attempts, with who the process is and where its paths led.
//! * `descriptions`: open files. `group`: members of a group that are gone.
//! * `file_system`: the public face.
//!
//! # Invariants
//! * Every method either returns after its effect is durable (see `docs/crash-consistency.md`),
//!   or returns an error and leaves everything as it was.
//! * No method makes a system call once the inodes it touches are owned by this session.
//! * No method allocates from the process heap on the hot path (open, stat, read, write, close,
//!   create, unlink), so it may be called from any place a system call may be called from, except
//!   that a signal handler must not re-enter it (callers defer: see the preload crate).

mod attributes;
mod data;
mod descriptions;
mod engine;
mod file_system;
mod group;
mod interface;
mod mappings;
mod names;
mod state;

pub use arck_libfs_kit::connection::{keep_descriptors_from, note_wait};
pub use arck_libfs_kit::forks;
pub use arck_libfs_kit::format::Mediation;
/// For who handles a program's signals, its memory and its locks of that: faults of guarded copies, pages that
/// are locked, and what the loader knows of the processor.
pub use arck_libfs_kit::memory::{
    Locking, guarded, know_leaf_7, lock_pages, locking_to_come, note_locking_to_come,
};
pub use arck_libfs_kit::session::reach::{give_up_reservations, side_of};
pub use arck_libfs_kit::session::with_room;
pub use arck_libfs_kit::session::{OpenedPipe, receive_pipe};
pub use arck_libfs_kit::views::striping::Purpose;
pub use attributes::umask::masked;
pub use data::size_limit;
pub use file_system::*;
pub use interface::*;
pub use mappings::{
    any as any_maps, hold as hold_maps, leave as leave_maps, let_go as let_go_of_maps,
    overlaps as has_maps,
};
