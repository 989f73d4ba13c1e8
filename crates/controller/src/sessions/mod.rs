//! Who is there, what they hold and were lent, and how much of everything they may have.
//!
//! Beneath it are `state`, `threads` and what lies under them.
//!
//! # Invariants
//! * What a session can write is looked at by atomic loads and guarded copies, each word once.
//! * Nobody has more of anything than half of what others leave, or a little.

pub mod allocating;
pub mod arena;
pub mod credits;
pub mod flights;
pub mod fold_copies;
pub mod free_counts;
pub mod gates;
pub mod group;
pub mod holdings;
pub mod kept;
pub mod leaving;
pub mod lent;
pub mod limits;
pub mod log;
pub mod maps;
pub mod mediating;
pub mod members;
pub mod memory;
pub mod owned;
pub mod permission;
pub mod rights;
pub mod sent;
pub mod session;
pub mod take_up;
pub mod telling;
pub mod turns;
pub mod violations;

use crate::handed::descriptions::Descriptions;
use crate::handed::watches::Watches;
use crate::options::Options;
use crate::sessions::leaving::Leaving;
use crate::sessions::lent::{Lent, Lookout};
use crate::sessions::log::Windows;
use crate::sessions::mediating::Mediating;
use crate::sessions::rights::Rights;
use crate::sessions::session::Session;
use crate::state::tables::State;
use crate::threads::workers::Workers;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use foldhash::HashMap;
use gates::Gates;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// All sessions, with the verified state that they share.
pub struct Sessions {
    pub state: State,
    pub all: BTreeMap<SessionNumber, Session>,
    pub options: Options,
    /// The page of the emulated medium, if there is one.
    pub medium: Option<OwnedFd>,
    /// What the sessions of each user have to be few at a time, of those that have asked for it.
    pub gates: Gates,
    /// Descriptions that several processes have open.
    pub watches: Watches,
    pub descriptions: Descriptions,
    /// What is read by message, and by whom.
    pub rights: Rights,
    /// Sessions that are away: see [`take_up`].
    pub away: usize,
    pub opened: Instant,
    /// While a pool is opened: what dead sessions left is not all known.
    pub recovering: bool,
    /// Sessions that are gone, and whose arenas are still there.
    pub remains: BTreeMap<SessionNumber, Remains>,
    /// Does what a session could make last for ever.
    pub workers: Workers,
    /// What sessions were sent to write.
    pub lookout: Lookout,
    pub taken_back: BTreeMap<Lent, TakenBack>,
    /// Which files are written by messages.
    pub mediating: Mediating,
    /// Files that were mapped together, and are on their way to their owners.
    pub leaving: HashMap<InodeNumber, Leaving>,
    /// When each user's numbers may be counted again.
    pub counted: HashMap<u32, Instant>,
    /// The counts of free pages that were told last.
    pub published: Option<(u64, u64)>,
    /// What was logged lately, to log no more than a few lines a second.
    pub violations_logged: Windows,
    /// Deltas that were refused, logged or not.
    pub violations: u64,
}

/// The arena of a session that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Remains {
    /// Whose it was; `None`: of before the controller was started.
    pub user: Option<u32>,
    /// What was allocated for it.
    pub bytes: u64,
}

/// A file that had outgrown what it may be, and has been told of; and the worker who is at it.
pub struct TakenBack(pub Option<Receiver<()>>);

impl Sessions {
    /// Nobody is there yet; what they left is to be looked at.
    pub fn new(
        state: State,
        options: Options,
        workers: Workers,
        lookout: Lookout,
        rights: Rights,
    ) -> Sessions {
        Sessions {
            state,
            all: BTreeMap::new(),
            options,
            watches: Watches::default(),
            descriptions: Descriptions::default(),
            rights,
            away: 0,
            opened: Instant::now(),
            recovering: true,
            remains: BTreeMap::new(),
            workers,
            lookout,
            taken_back: BTreeMap::new(),
            counted: HashMap::default(),
            mediating: Mediating::default(),
            leaving: HashMap::default(),
            published: None,
            violations_logged: Windows::new(),
            medium: None,
            gates: Gates::default(),
            violations: 0,
        }
    }
}
