//! How ArckFS's operations run: the kit's [engine](arck_libfs_kit::engine), with who the process is, where
//! paths led, and what a call has to remember beside.
//!
//! Invariant: what the kit asks of ArckFS while it runs an operation ([`LibFs`](kit::LibFs), [`Dependents`]) runs no operation that is
//! not inside already.

pub(crate) mod by_message;
mod extended_by_message;
mod names_by_message;
pub(crate) mod patience;
mod together;

use crate::attributes::Attributing;
use crate::attributes::credentials::Credentials;
use crate::data::{Data, Written};
use crate::interface::{Errno, Failure};
use crate::mappings::placing::Placing;
use crate::mappings::up_to_date::UpToDate;
use crate::mappings::{Mapping, table as mappings};
use crate::names::listing::scratch::Scratch;
use crate::names::{Context, Resolution};
use crate::state::AuxiliaryState;
use crate::state::at_hand::AtHand;
use arck_libfs_kit::Session;
use arck_libfs_kit::engine::{self as kit, Attempt, Way};
use arck_libfs_kit::region::ThreadSlot;
use arck_libfs_kit::views::{CachedInode, Dependents, Viewing, Views};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// What a call has to remember from one attempt to the next.
#[derive(Default)]
struct Call {
    written: Cell<Option<Written>>,
    outside: RefCell<Option<Vec<u8>>>,
}

/// What every operation needs; the public face is [`crate::FileSystem`].
pub struct Engine {
    pub session: &'static Session,
    /// The session's, found once.
    pub views: &'static Views,
    pub state: &'static AuxiliaryState,
    pub credentials: Credentials,
    pub resolution: Resolution,
    pub at_hand: AtHand,
    pub listing: Scratch,
    pub up_to_date: UpToDate,
}

thread_local! {
    /// This thread brings maps up to date.
    static CATCHING_UP: Cell<bool> = const { Cell::new(false) };
}

impl Engine {
    /// The kit's engine, of this session.
    #[inline(always)]
    pub fn kit(&self) -> kit::Engine<'_> {
        kit::Engine {
            session: self.session,
            views: self.views,
            libfs: self,
        }
    }

    #[inline(always)]
    fn context<'a>(&'a self, kit: &'a kit::Context<'a>, call: &'a Call) -> Context<'a> {
        let mapping = Mapping {
            changing: kit,
            state: self.state,
            up_to_date: &self.up_to_date,
        };
        let attributing = Attributing {
            mapping,
            credentials: &self.credentials,
        };
        let data = Data {
            attributing,
            written: &call.written,
        };
        Context {
            data,
            kit,
            resolution: &self.resolution,
            outside: &call.outside,
        }
    }

    /// Runs attempts until one succeeds or fails for good. What a name led to may be gone before
    /// it is looked at: then the path is walked again from its start, as if it never had been. ENOENT
    /// if it leads time and again to what is gone by then.
    #[inline]
    pub fn run<T>(
        &self,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Failure> {
        let call = Call::default();
        self.be_up_to_date()?;
        let ran = self
            .kit()
            .run(Way::Names, |context| attempt(&self.context(context, &call)));
        self.complete_maps();
        ran.map_err(|errno| match call.outside.take() {
            Some(path) if errno == Errno::XDEV => Failure::Outside(path),
            _ => Failure::Errno(errno),
        })
    }

    /// As [`Engine::run`], for operations that take no path.
    #[inline]
    pub fn run_local<T>(
        &self,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let call = Call::default();
        self.be_up_to_date()?;
        let ran = self
            .kit()
            .run_local(|context| attempt(&self.context(context, &call)));
        self.complete_maps();
        ran
    }

    /// One attempt, of the thread that builds the auxiliary state anew: what it needs it does not get.
    pub fn run_inside<T>(
        &self,
        slot: &'static ThreadSlot<'static>,
        mut attempt: impl FnMut(&Context<'_>) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let call = Call::default();
        self.kit()
            .run_inside(slot, |context| attempt(&self.context(context, &call)))
    }

    /// Before a call in a group of several processes: the maps of this one show what others have changed.
    #[inline(always)]
    fn be_up_to_date(&self) -> Result<(), Errno> {
        if self.session.is_of_group()
            && mappings::any()
            && !self.session.thread()?.slot().is_pinned()
            && self
                .up_to_date
                .take_moved(self.state.maps_moved.load(Ordering::Acquire))
        {
            self.catch_up_with_maps();
        }
        Ok(())
    }

    /// After a call that has seen what another session wrote to a file: maps of the file show it before the call
    /// returns, as they would follow its size.
    #[inline(always)]
    fn complete_maps(&self) {
        if self.up_to_date.are_lacking()
            && self
                .session
                .thread()
                .is_ok_and(|thread| !thread.slot().is_pinned())
            && self.up_to_date.take_lacking()
        {
            self.catch_up_with_maps();
        }
    }

    /// Brings the process's maps up to date with what others have changed.
    #[cold]
    fn catch_up_with_maps(&self) {
        // What is asked for below are calls that see what others have written, too.
        if CATCHING_UP.replace(true) {
            return;
        }
        self.catch_up();
        CATCHING_UP.set(false);
    }

    fn catch_up(&self) {
        let listings: Vec<_> = mappings::lock()
            .iter()
            .map(|map| map.listing.clone())
            .filter(|listing| listing.is_of(self.session))
            .collect();
        for listing in listings {
            self.complete_together((listing.number, listing.generation));
            // What is gone shows what it shows.
            let _ = self.run_local(|context| {
                let inode = context.view(listing.number, listing.generation)?;
                context.refresh_maps(inode)
            });
        }
    }
}

impl Dependents for Engine {
    #[cold]
    fn view_moved(&self, viewing: &Viewing<'_>, inode: &'static CachedInode) {
        let placing = Placing {
            viewing,
            state: self.state,
            up_to_date: &self.up_to_date,
            refused: Cell::new(None),
        };
        placing.remap(inode, 0, u64::MAX);
    }

    fn tree_changes(&self) {
        self.state.paths_change();
    }
}
