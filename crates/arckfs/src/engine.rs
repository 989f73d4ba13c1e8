//! How ArckFS's operations run: the kit's [engine](arck_libfs_kit::engine), with who the process is, where
//! paths led, and what a call has to remember beside.
//!
//! Invariant: what the kit asks of ArckFS while it runs an operation ([`LibFs`], [`Dependents`]) runs no operation that is
//! not inside already.

use crate::at_hand::AtHand;
use crate::credentials::Credentials;
use crate::interface::{Errno, Failure};
use crate::listing::scratch::Scratch;
use crate::mappings::placing::Placing;
use crate::mappings::table as mappings;
use crate::paths::cache::PathCache;
use crate::protected::Protected;
use crate::state::AuxiliaryState;
use arck_libfs_kit::Session;
use arck_libfs_kit::engine::{self as kit, LibFs, Way};
use arck_libfs_kit::region::ThreadSlot;
use arck_libfs_kit::views::{CachedInode, Dependents, Viewing, Views};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::atomic::Ordering;

pub use arck_libfs_kit::engine::{Attempt, Need, Published, Stop};

/// What a call has to remember from one attempt to the next.
#[derive(Default)]
pub struct Call {
    /// A write whose bytes stand, and which is still to be stamped.
    written: Cell<Option<Written>>,
    /// Where the path leads that is not in the pool; the attempt has failed with EXDEV.
    outside: RefCell<Option<Vec<u8>>>,
}

/// See [`Call`].
#[derive(Clone, Copy)]
pub struct Written {
    /// Where, and how many bytes of how many.
    pub at: u64,
    pub asked: usize,
    pub done: usize,
}

/// One attempt: what the kit knows of it, and what ArckFS does.
pub struct Context<'a> {
    kit: &'a kit::Context<'a>,
    pub state: &'static AuxiliaryState,
    pub credentials: &'a Credentials,
    pub protected: Protected,
    pub paths: &'a PathCache,
    call: &'a Call,
}

impl<'a> Deref for Context<'a> {
    type Target = kit::Context<'a>;
    #[inline(always)]
    fn deref(&self) -> &kit::Context<'a> {
        self.kit
    }
}

impl Context<'_> {
    /// Notes a write that is done but for its times, for the next attempt.
    pub fn note_written(&self, written: Written) {
        self.call.written.set(Some(written));
    }

    /// The write that an attempt before this one has noted.
    pub fn written(&self) -> Option<Written> {
        self.call.written.get()
    }

    /// The path leaves the pool, to this absolute path of the host.
    #[cold]
    pub fn leads_outside(&self, path: Vec<u8>) -> Stop {
        *self.call.outside.borrow_mut() = Some(path);
        Errno::XDEV.into()
    }
}

/// What every operation needs; the public face is [`crate::FileSystem`].
pub struct Engine {
    pub session: &'static Session,
    /// The session's, found once.
    pub views: &'static Views,
    pub state: &'static AuxiliaryState,
    pub credentials: Credentials,
    pub protected: Protected,
    pub paths: PathCache,
    pub at_hand: AtHand,
    pub listing: Scratch,
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
        Context {
            kit,
            state: self.state,
            credentials: &self.credentials,
            protected: self.protected,
            paths: &self.paths,
            call,
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
        self.kit()
            .run_local(|context| attempt(&self.context(context, &call)))
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
            && mappings::take_moved(self.state.maps_moved.load(Ordering::Acquire))
        {
            self.catch_up_with_maps();
        }
        Ok(())
    }
}

impl Dependents for Engine {
    #[cold]
    fn view_moved(&self, viewing: &Viewing<'_>, inode: &'static CachedInode) {
        let placing = Placing {
            viewing,
            state: self.state,
        };
        placing.remap(inode, 0, u64::MAX);
    }

    fn tree_changes(&self) {
        self.state.paths_change();
    }
}

impl LibFs for Engine {
    fn close_all_of(&self, member: u16) -> Result<(), Errno> {
        self.close_open_files_of(member)
    }

    fn begin_again(&self, slot: &'static ThreadSlot<'static>, gone: &[u16]) -> Result<(), Errno> {
        self.begin_state_again(slot, gone)
    }
}
