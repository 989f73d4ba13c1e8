//! ArckFS's own auxiliary state, and its open files: what stands in the group's shared region beside the
//! kit's [views](arck_libfs_kit::views).
//!
//! # Invariant
//! Everything here can be rebuilt from the core state but session state, the open file descriptions, which
//! lies in the region's session part.
//!
//! Order of locks: an open description's; then those of the views.

pub mod at_hand;
pub mod full_paths;
pub mod levels;

use crate::interface::Resolver;
use arck_libfs_kit::Session;
use arck_libfs_kit::messages::MEMBERS;
use arck_libfs_kit::region::{
    AtomicOffset, Lock, Offset, Region, THREAD_SLOTS, ThreadSlot, fingerprint,
};
use arck_libfs_kit::region_shared;
use full_paths::FullPath;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Of the sources of what ArckFS keeps in the region.
pub(crate) const FINGERPRINT: u32 = fingerprint::of(&[
    include_bytes!("state.rs"),
    include_bytes!("state/full_paths.rs"),
    include_bytes!("state/levels.rs"),
]);

/// Description slots kept by a thread.
const KEPT: usize = 14;

region_shared! {
    /// What a thread keeps at hand ([`crate::at_hand`]). Two cache lines: processors fetch them in pairs.
    pub struct ThreadAtHand {
        pub count: AtomicU32,
        pub descriptions: [AtomicU32; KEPT],
        apart: [AtomicU32; 17],
    }

    /// Found by auxiliary root 1. What every operation reads and hardly any changes stands on a
    /// line of its own; what operations change stands behind it, each lock with what it protects.
    pub struct AuxiliaryState {
        /// Moves when what the path cache remembers may be wrong; see [`crate::paths`].
        pub paths: AtomicU64,
        /// What threads keep at hand, by their slots.
        pub at_hand: AtomicOffset<ThreadAtHand>,
        /// Moves when maps of other processes of the group do not show what they should.
        pub maps_moved: AtomicU64,
        /// How the machine was set when the session was opened, as `names::protected` says it; 0: nobody has looked yet.
        pub protected: AtomicU64,
        /// FPFS's table of full paths; null: the session is one of ArckFS's ([`Resolver`]).
        pub full_paths: AtomicOffset<FullPath>,
        pub paths_line: [AtomicU64; 3],

        pub descriptions_lock: Lock,
        /// First free description (its number), 0 = none.
        pub description_free: AtomicU32,
        /// Descriptions ever used.
        pub description_end: AtomicU32,
        pub descriptions_rest: AtomicU32,
        pub descriptions_line: [AtomicU64; 6],

        /// Members of the group that have live maps: one bit each.
        pub map_members: [AtomicU64; MEMBERS / 64],
        pub map_line: [AtomicU64; 8 - MEMBERS / 64],
    }

    /// An open file description: session state.
    pub struct Description {
        /// Number of references (low half; 0 = free), and how often the slot has been used
        /// before (high half), which is the high half of its handle too.
        pub references: AtomicU64,
        /// `O_*` flags.
        pub flags: AtomicU32,
        pub inode: AtomicU32,
        pub generation: AtomicU32,
        /// Held over a read or write at the offset.
        pub lock: Lock,
        pub offset: AtomicU64,
        /// Of a directory: snapshot of its names, made at the first read; bytes in it.
        pub listing: AtomicOffset<AtomicU8>,
        pub listing_end: AtomicU64,
        /// Where the last reading of it ended: a record begins there.
        pub listing_read: AtomicU64,
        /// Index into [`crate::FileSystem`]'s external descriptions plus one; 0 = none.
        pub external: AtomicU32,
        /// While free: the next free one. While in use: whose it is; see [`Description::member`].
        pub other: AtomicU32,
    }
}

const _: () = assert!(size_of::<ThreadAtHand>() == 128);

impl ThreadAtHand {
    /// Room for all threads' in a new region. ENOMEM.
    pub fn create(region: &Region, slot: &ThreadSlot<'_>) -> Result<Offset<ThreadAtHand>, Errno> {
        // More than a page, and so at the beginning of one.
        region
            .allocate_zeroed::<ThreadAtHand>(slot, THREAD_SLOTS)
            .map_err(|_| Errno::NOMEM)
    }
}

impl AuxiliaryState {
    /// To be called before and after this session takes a directory away from where it was, or
    /// changes who may search it: whatever is remembered counts no more.
    pub fn paths_change(&self) {
        self.paths.fetch_add(1, Ordering::AcqRel);
    }

    /// Says whether a member has live maps.
    pub fn set_has_maps(&self, member: u16, has: bool) {
        if let Some(word) = self.map_members.get(usize::from(member) / 64) {
            let bit = 1 << (member % 64);
            match has {
                true => word.fetch_or(bit, Ordering::SeqCst),
                false => word.fetch_and(!bit, Ordering::SeqCst),
            };
        }
    }

    /// Whether any member has.
    pub fn has_any_maps(&self) -> bool {
        let mut words = self.map_members.iter();
        words.any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// As in a new region, but for what goes on: `paths` and `maps_moved`, by which others see that
    /// something has changed, who has maps, and how many descriptions there have been. Nobody else is
    /// inside. ENOMEM.
    pub fn begin_again(&self, session: &'static Session) -> Result<(), Errno> {
        self.paths.fetch_add(1 << 32, Ordering::AcqRel);
        self.descriptions_lock.reset();
        self.description_free.store(0, Ordering::Relaxed);
        self.begin(session, self.resolver())
    }

    /// What a state that is all zero leads to. ENOMEM.
    fn begin(&self, session: &'static Session, resolver: Resolver) -> Result<(), Errno> {
        let (region, thread) = (session.region(), session.thread()?);
        let at_hand = ThreadAtHand::create(region, thread.slot())?;
        self.at_hand.store(at_hand, Ordering::Release);
        if resolver == Resolver::FullPaths {
            let table = FullPath::create(region, thread.slot())?;
            self.full_paths.store(table, Ordering::Release);
        }
        Ok(())
    }

    /// Which file system the session is one of.
    pub fn resolver(&self) -> Resolver {
        match self.full_paths.load(Ordering::Acquire).raw() {
            0 => Resolver::Tree,
            _ => Resolver::FullPaths,
        }
    }

    /// What makes the auxiliary state of a new session. ENOMEM.
    pub fn creator(resolver: Resolver) -> fn(&'static Session) -> Result<(), Errno> {
        match resolver {
            Resolver::Tree => |session| AuxiliaryState::create(session, Resolver::Tree),
            Resolver::FullPaths => |session| AuxiliaryState::create(session, Resolver::FullPaths),
        }
    }

    fn create(session: &'static Session, resolver: Resolver) -> Result<(), Errno> {
        let region = session.region();
        let state = region
            .allocate_zeroed::<AuxiliaryState>(session.thread()?.slot(), 1)
            .map_err(|_| Errno::NOMEM)?;
        region.get(state).begin(session, resolver)?;
        if let Some(root) = region.auxiliary_root(1) {
            root.store(state.raw(), Ordering::Release);
        }
        Ok(())
    }

    /// The state that [`AuxiliaryState::creator`]'s has made, in this process or another member of its group.
    pub fn find(session: &'static Session) -> Result<&'static AuxiliaryState, Errno> {
        let region = session.region();
        let root = region.auxiliary_root(1).ok_or(Errno::IO)?;
        let state = Offset::from_raw(root.load(Ordering::Acquire));
        region.try_get(state).ok_or(Errno::IO)
    }
}

impl Description {
    /// Of one in use: the member of the group that has it, from 1.
    pub fn member(&self) -> u16 {
        (self.other.load(Ordering::Relaxed) >> 16) as u16
    }
    /// Takes it for a member.
    pub fn begin(&self, member: u16) {
        self.other.store(u32::from(member) << 16, Ordering::Relaxed);
    }
}
