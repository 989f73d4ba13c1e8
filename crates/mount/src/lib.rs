//! A pool as a file system of the kernel's (FUSE): for whatever the preload library does not reach.
//!
//! The mount is one more untrusted client of the controller. Each request is served by a session of the user who sent
//! it ([`users`]), by a thread that is that user ([`identity`]), through ArckFS's public face; so what he may do is
//! decided where it is for every other program, and a mount process that is not root serves its own user only.
//!
//! From below: `nodes` and `listing`, what the kernel is told of inodes and directories; `identity`, `users`, `open`: who
//! asks, and by which session; `names`, `attributes`, `data`, `locks`: what is done for him; `requests`: the kernel's requests,
//! each to where it is done; `point`, `helper`: the directory to mount at, and how who is not root does; `mounted`: a mount from its beginning to its end.
//!
//! # Invariants
//! * Nothing is answered before it is done: what was acknowledged is in the session's delta, and the death of this
//!   process loses nothing of it.
//! * The kernel believes nothing of what it was told for longer than a request takes (attributes, names), and no contents
//!   from before an open: what other sessions change is seen at the next call.

mod attributes;
pub mod beneath;
mod data;
mod flags;
mod helper;
mod identity;
mod listing;
mod lives;
mod locks;
mod mounted;
mod names;
mod nodes;
mod open;
mod options;
mod point;
mod requests;
mod users;

pub use mounted::{Ender, Mounted};
pub use options::MountOptions;
pub use point::Point;

use arckfs::{Errno, Failure};

/// Why an operation on names did not succeed. No name that the kernel passes leads out of the pool.
fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Errno(errno) => errno,
        Failure::Outside(_) => Errno::XDEV,
    }
}
