//! Persistence: the only crate of Arck that issues cache-line flushes, fences
//! and streaming stores, that maps files, and that copies to and from memory
//! which other processes may write at the same time.
//!
//! | module | idea |
//! | --- | --- |
//! | [`flush`] | flush, fence and the process-wide [`PersistPolicy`] |
//! | [`copy`] | raw copies, cached and streaming, of memory others may change |
//! | [`shared`] | [`SharedBytes`], the checked view every other crate uses |
//! | [`order`] | order of persistence in types: dirty, flushed, durable, published |
//! | [`mapping`], [`address_space`] | mapped files and fixed reservations |
//! | [`long`], `far` | long files, reachable as far as they are in use |
//! | [`placing`] | pieces of mappings at addresses that a program chose |
//! | [`guarded`] | copies that turn SIGBUS into an error |
//! | [`durability`] | which durability a directory offers, and what to flush |
//! | [`delegation`] | large copies by a fixed set of threads for each memory node |
//! | [`medium`] | an emulated medium: the time that flushes, fences and bulk copies take |
//! | [`record`] | a trace of all of it, and what a crash may leave |
//!
//! Invariants of the crate:
//!
//! * Mapped memory is never seen as `&T` or `&mut T` of plain data: only as
//!   atomics, or through copies written in assembly.
//! * Every store, flush and fence made through the crate (except through a
//!   `&AtomicU64` handed out by [`SharedBytes::atomic_u64`]) reaches the trace
//!   while one is being recorded.
//! * Unless a trace is being recorded or a medium emulated, nothing here allocates, locks or calls an
//!   interposable libc function on the data path, so all of it may run inside a
//!   preload library.

#![deny(unsafe_op_in_unsafe_fn)]
// The stores, flushes and fences that give no token are what those with tokens are made of.
#![allow(clippy::disallowed_methods)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("arck-pm is written for x86-64 Linux: it uses clwb, sfence and movnt in assembly");

pub mod address_space;
mod control;
pub mod copy;
pub mod delegation;
pub mod durability;
mod error;
mod far;
pub mod flush;
pub mod forks;
pub mod guarded;
pub mod huge_pages;
mod lines;
pub mod long;
pub mod mapping;
pub mod medium;
pub mod order;
pub mod placing;
pub mod record;
pub mod replay;
#[cfg(not(miri))]
#[path = "copy_assembly.rs"]
mod routines;
#[cfg(miri)]
#[path = "copy_miri.rs"]
mod routines;
pub mod shared;
pub mod traced_maps;
mod untraced;

pub use address_space::AddressSpace;
pub use durability::{DurabilityMode, PersistOption};
pub use error::{Error, Fault, Result};
pub use flush::{CACHE_LINE, PersistPolicy, fence, flush_range, policy, set_policy};
pub use huge_pages::HugePages;
pub use long::LongFile;
pub use mapping::{Access, MapOptions, Mapping};
pub use order::{Dirty, Durable, Flushed, Published};
pub use shared::SharedBytes;
