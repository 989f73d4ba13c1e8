//! The controller's state, all of it, used by one thread: no locks. What a request's answer promises is
//! so when the answer is given; what it leaves to be tidied (orphans, pages to be emptied, the walk of a
//! closing) is done in slices after it, unless the answer waits for that (`service::held`).
//!
//! # Invariant
//! * While a pool is served, the thread waits for a session for [`Options::patience`] at most, at a fold;
//!   requests that have to wait for longer (`lease`, `take_up`, `grace`) are put off. Work takes what it
//!   takes, for all who ask meanwhile: a fold is bounded by the pages that a session may have in its
//!   arena, not by a time.

use crate::access::by_message::ByMessage;
use crate::access::relocate::closing::Closings;
use crate::access::relocate::emptying::Emptyings;
use crate::access::relocate::{NoRoom, Relabellings, Touched};
use crate::error::{Error, Result};
use crate::fold::meter::Meter;
use crate::fold::sweep::{Spent, Sweep};
use crate::freeing::orphans::{Charges, Doomed, Pace};
use crate::handed::descriptions::Descriptions;
use crate::handed::kept_locks::KeptLocks;
use crate::handed::lock_files::{self, LockFiles};
use crate::handed::watches::Watches;
use crate::pool::files::Pool;
use crate::pool::journal::Journal;
use crate::recovery::progress::{ProgressHook, Reporter, Step};
use crate::recovery::recover;
use crate::recovery::scan::{self, Division};
use crate::sessions::holdings::Counted;
use crate::sessions::lent::{Lent, Lookout};
use crate::sessions::memory::{Remains, TakenBack};
use crate::sessions::session::Session;
use crate::sessions::violations;
use crate::space::pages::Space;
use crate::state::classes::Classes;
use crate::state::tables::{CrashHook, State};
use crate::threads::workers::Workers;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_pm::{DurabilityMode, PersistOption};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long is waited, when a pool is opened and at its end, for pages that are being emptied.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// How a controller behaves.
#[derive(Clone)]
pub struct Options {
    /// Which stores are flushed.
    pub persist: PersistOption,
    /// An owner keeps an inode at least so long against other writers.
    pub lease: Duration,
    /// After a refusal, the owner may repair its delta for so long, unless another session wants
    /// to write the inode.
    pub grace: Duration,
    /// A fold waits at most so long for operations in flight.
    pub patience: Duration,
    /// After the last request the doorbells are polled for so long.
    pub polling: Duration,
    /// Delta pages that the arena of a session may have, and with them what it may have unfolded;
    /// no fewer than the 64 with which it begins.
    pub arena_pages: u32,
    /// After a start, requests that would need sessions which outlived another controller wait so
    /// long for them to come back.
    pub take_up: Duration,
    /// Serves all users; else root and the pool's user alone.
    pub shared: bool,
    /// Told how far the opening of a pool has come.
    pub progress: Option<ProgressHook>,
    /// The pool counts as one of this durability, whatever its file system offers; for tests, which shall
    /// not depend on where they run.
    #[doc(hidden)]
    pub durability: Option<DurabilityMode>,
    /// By how many threads headers and inodes are read when a pool is opened; for tests.
    #[doc(hidden)]
    pub division: Division,
    /// So many inodes are folded at once where all of a session's are; for tests that want each
    /// alone.
    #[doc(hidden)]
    pub slice: usize,
    /// Called at named points of every commit; for tests that want a crash there.
    #[doc(hidden)]
    pub crash_hook: Option<CrashHook>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            persist: PersistOption::Auto,
            lease: Duration::from_micros(500),
            grace: Duration::from_secs(2),
            patience: Duration::from_millis(2),
            polling: Duration::from_micros(100),
            arena_pages: u32::MAX,
            take_up: Duration::from_secs(2),
            shared: false,
            progress: None,
            durability: None,
            division: Division::default(),
            slice: 512,
            crash_hook: None,
        }
    }
}

/// See the module's head.
pub struct Core {
    pub state: State,
    pub sessions: BTreeMap<SessionNumber, Session>,
    /// Descriptions that several processes have open.
    pub watches: Watches,
    pub(crate) descriptions: Descriptions,
    pub lock_files: LockFiles,
    pub kept_locks: KeptLocks,
    pub options: Options,
    pub meter: Meter,
    /// When grace periods end: of which session's which inode. Those that ended otherwise stay
    /// until they are due.
    pub(crate) refusals: BTreeSet<(Instant, SessionNumber, InodeNumber)>,
    /// Sessions that are away: see [`crate::sessions::take_up`].
    pub(crate) away: usize,
    pub(crate) opened: Instant,
    /// Sessions that are gone, and whose arenas are still there.
    pub(crate) remains: BTreeMap<SessionNumber, Remains>,
    /// Does what a session could make last for ever.
    pub workers: Workers,
    /// What sessions were sent to write.
    pub lookout: Lookout,
    pub(crate) taken_back: BTreeMap<Lent, TakenBack>,
    pub(crate) counted: Counted,
    /// Pages that moved away, and that cannot be emptied yet.
    pub(crate) emptyings: Emptyings,
    pub(crate) relabelling: Relabellings,
    /// Orphans that stay at the expense of a user: see [`crate::freeing::orphans`].
    pub(crate) charged: Charges,
    /// Orphans that are being freed.
    pub(crate) doomed: Doomed,
    pub(crate) pace: Pace,
    pub published: Option<(u64, u64)>,
    /// While a pool is opened: what dead sessions left is not all known.
    pub recovering: bool,
    /// What refusals at the ends of sessions have cost of each user.
    pub(crate) spent: Spent,
    /// What sessions have asked to be folded, all of it, and by which request.
    pub(crate) sweeps: BTreeMap<SessionNumber, (u64, Sweep)>,
    /// Tells how far the opening is.
    pub(crate) progress: Reporter,
    /// What folds have changed that may tighten a class; looked at when the fold is done.
    pub(crate) touched: Vec<Touched>,
    /// What of that is not done yet.
    pub(crate) closings: Closings,
    /// What could not be moved to its readers.
    pub(crate) no_room: NoRoom,
    /// What is read by message, and by whom.
    pub(crate) by_message: ByMessage,
    /// When segments were given back last.
    pub(crate) gave_back: Option<Instant>,
    /// What was logged lately, to log no more than a few lines a second.
    pub(crate) violations_logged: violations::Windows,
}

impl Core {
    /// Opens a pool: locks it, replays its journal, rebuilds the tables, and folds what sessions
    /// left that died.
    pub fn open(path: &Path, options: Options) -> Result<Core> {
        arck_pm::guarded::install_guard();
        let mut progress = Reporter::new(options.progress.clone());
        let (mut pool, was_clean, same_boot) =
            Pool::open(path, options.persist, options.durability)?;
        let mut journal = Journal::open(&pool)?;
        recover::replay(&mut pool, &mut journal)?;
        let mut space = Space::load(&pool);
        recover::look_for_data(&pool, &space)?;
        space.shared |= options.shared;
        let labels = space.labels();
        let classes = Classes::open(pool.path(), pool.directory(), |n| labels.contains(&n))?;
        let workers = Workers::default();
        space.workers = workers.clone();
        let mut state = State::new(pool, journal, space, classes, options.crash_hook.clone());
        let held = scan::scan(&mut state, options.division, &mut progress)?;
        let notice = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let lookout = notice
            .and_then(|notice| {
                let directory = rustix::io::fcntl_dupfd_cloexec(state.pool.directory(), 0)?;
                Ok(Lookout::new(directory, Arc::new(notice)))
            })
            .map_err(Error::system(path, "eventfd"))?;
        let may_be_there = same_boot && !was_clean;
        let lock_files = LockFiles::open(state.pool.directory())
            .map_err(Error::system(path.join(lock_files::FOLDER), "open"))?;
        let by_message = ByMessage::open(&state.pool, may_be_there);
        let mut core = Core {
            state,
            sessions: BTreeMap::new(),
            watches: Watches::default(),
            descriptions: Descriptions::default(),
            lock_files,
            kept_locks: KeptLocks::default(),
            options,
            meter: Meter::default(),
            refusals: BTreeSet::new(),
            away: 0,
            opened: Instant::now(),
            remains: BTreeMap::new(),
            workers,
            lookout,
            taken_back: BTreeMap::new(),
            counted: Counted::default(),
            charged: Charges::default(),
            doomed: Doomed::default(),
            pace: Pace::default(),
            emptyings: Emptyings::default(),
            relabelling: Relabellings::default(),
            published: None,
            recovering: true,
            spent: Spent::default(),
            sweeps: BTreeMap::new(),
            progress,
            touched: Vec::new(),
            no_room: NoRoom::default(),
            by_message,
            closings: Closings::default(),
            gave_back: None,
            violations_logged: violations::Windows::new(),
        };
        recover::recover(&mut core, held, same_boot || was_clean)?;
        core.state.pool.mark_opened()?;
        core.recovering = false;
        core.spent = Spent::default();
        core.forget_kept();
        core.opened = Instant::now();
        if !was_clean {
            // What moves that were cut off have left, and then what was about to move.
            core.clear_leftovers();
            let numbers = u64::from(scan::numbers_end(&core.state.pool));
            let all = if core.state.space.shared { numbers } else { 0 };
            core.progress.begin(Step::Rights, all);
            core.tighten(vec![Touched::all()]);
        }
        core.finish_closing();
        // Before anybody is served; but not for as long as somebody holds his segments.
        core.finish_emptying(CLOSE_PATIENCE);
        core.progress.end();
        // What has been applied so far was flushed by this thread; changes from now on, and their
        // fences, may be another's.
        core.state.journal.settle();
        tracing::info!("opened in {:.3} s", core.progress.elapsed().as_secs_f64());
        Ok(core)
    }

    /// Ends all sessions and closes the pool cleanly.
    pub fn close(mut self) -> Result<()> {
        let numbers: Vec<SessionNumber> = self.sessions.keys().copied().collect();
        self.spent = Spent::default();
        for number in numbers {
            self.end_session(number, libc::ESHUTDOWN);
        }
        self.finish_closing();
        self.forget_relabelling(true);
        self.finish_emptying(CLOSE_PATIENCE);
        self.free_orphans(None);
        self.free_doomed();
        self.remove_remains();
        self.finish_log();
        if self.state.pool.is_paged() {
            self.sync_files().map_err(|errno| Error::System {
                path: self.state.pool.path().into(),
                operation: "fsync",
                errno,
            })?;
        }
        self.lock_files.close(self.state.pool.directory());
        if !self.emptyings.is_empty() {
            // The next start finds what should have been emptied.
            tracing::warn!("some pages could not be emptied: the pool is not marked as clean");
            return Ok(());
        }
        self.state.pool.mark_clean()
    }

    fn sync_files(&self) -> std::result::Result<(), Errno> {
        let directory = self.state.pool.directory();
        rustix::fs::syncfs(directory)
    }
}
