//! Opening a pool, and closing it.

use crate::access::Places;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::fold::Folds;
use crate::fold::touched::Touched;
use crate::freeing::Freed;
use crate::handed::kept_locks::KeptLocks;
use crate::handed::lock_files::LockFiles;
use crate::handed::named_pipes::NamedPipes;
use crate::handed::sockets::Sockets;
use crate::handed::watching::{self, Looks, Watched};
use crate::options::Options;
use crate::ownership::Sweeps;
use crate::ownership::sweeps::Spent;
use crate::pool::files::Pool;
use crate::pool::journal::Journal;
use crate::pool::names::{LOCK_FILES, NAMED_PIPES, SOCKETS, WATCHED};
use crate::pool::progress::{Reporter, Step};
use crate::recovery::{recover, scan};
use crate::sessions::Sessions;
use crate::sessions::lent::Lookout;
use crate::sessions::rights::Rights;
use crate::space::pages::Space;
use crate::state::classes::Classes;
use crate::state::tables::State;
use crate::threads::workers::Workers;
use arck_core_state::geometry::SessionNumber;
use arck_pm::medium;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long is waited, when a pool is opened and at its end, for pages that are being emptied.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// From now on this process's memory is as slow as the medium that is wished for; the page of it is for sessions.
fn emulate(pool: &Pool, options: &Options) -> Result<Option<OwnedFd>> {
    let Some(model) = &options.medium else {
        return Ok(None);
    };
    let wrong = |what| Error::mapping(pool.path(), what);
    let page = medium::make_page(model).map_err(wrong("making the page of the medium"))?;
    medium::emulate(&page).map_err(wrong("mapping the page of the medium"))?;
    medium::note_pool(pool.space().as_ptr());
    Ok(Some(page))
}

impl Core {
    /// Opens a pool: locks it, replays its journal, rebuilds the tables, and folds what sessions
    /// left that died.
    pub fn open(path: &Path, options: Options) -> Result<Core> {
        arck_pm::guarded::install_guard();
        crate::fold::memory::keep();
        let mut progress = Reporter::new(options.progress.clone());
        let (mut pool, was_clean, same_boot) =
            Pool::open(path, options.persist(), options.durability)?;
        let medium = emulate(&pool, &options)?;
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
        let scanned = scan::scan(&mut state, options.division, &mut progress)?;
        let notice = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let lookout = notice
            .and_then(|notice| {
                let directory = rustix::io::fcntl_dupfd_cloexec(state.pool.directory(), 0)?;
                Ok(Lookout::new(directory, Arc::new(notice)))
            })
            .map_err(Error::system(path, "eventfd"))?;
        let may_be_there = same_boot && !was_clean;
        let lock_files = LockFiles::open(state.pool.directory())
            .map_err(Error::system(path.join(LOCK_FILES), "open"))?;
        // Of an inode that recovery makes, an earlier controller has left none.
        let is_there = |(number, generation)| state.header_of(number, generation).is_ok();
        let named_pipes = NamedPipes::open(state.pool.directory(), is_there)
            .map_err(Error::system(path.join(NAMED_PIPES), "open"))?;
        let sockets = Sockets::open(state.pool.directory(), is_there)
            .map_err(Error::system(path.join(SOCKETS), "open"))?;
        // Those who watch what an earlier controller has left are told that it is gone.
        watching::remove_all(state.pool.directory())
            .map_err(Error::system(path.join(WATCHED), "remove"))?;
        let rights = Rights::open(&state.pool, may_be_there);
        let mut sessions = Sessions::new(state, options, workers, lookout, rights);
        sessions.medium = medium;
        let mut core = Core {
            sessions,
            freed: Freed::default(),
            folds: Folds::new(progress),
            places: Places::default(),
            sweeps: Sweeps::default(),
            lock_files,
            kept_locks: KeptLocks::default(),
            named_pipes,
            sockets,
            watched: Watched::default(),
            looks: Looks::default(),
        };
        recover::recover(&mut core, scanned, same_boot || was_clean)?;
        core.sessions.state.pool.mark_opened()?;
        core.sessions.recovering = false;
        core.access().free_orphans(None);
        core.freeing().free_doomed();
        core.sweeps.spent = Spent::default();
        core.sessions.forget_kept();
        core.sessions.opened = Instant::now();
        if !was_clean {
            // What moves that were cut off have left, and then what was about to move.
            core.access().clear_leftovers();
            let numbers = u64::from(scan::numbers_end(&core.sessions.state.pool));
            let all = if core.sessions.state.space.shared {
                numbers
            } else {
                0
            };
            core.folds.progress.begin(Step::Rights, all);
            core.access().tighten(vec![Touched::all()]);
        }
        core.access().finish_closing();
        // Before anybody is served; but not for as long as somebody holds his segments.
        core.access().finish_emptying(CLOSE_PATIENCE);
        core.folds.progress.end();
        // What has been applied so far was flushed by this thread; changes from now on, and their
        // fences, may be another's.
        core.sessions.state.journal.make_durable();
        tracing::info!(
            "opened in {:.3} s",
            core.folds.progress.elapsed().as_secs_f64()
        );
        Ok(core)
    }

    /// Ends all sessions and closes the pool cleanly.
    pub fn close(mut self) -> Result<()> {
        let numbers: Vec<SessionNumber> = self.sessions.all.keys().copied().collect();
        self.sweeps.spent = Spent::default();
        for number in numbers {
            self.owners().end_session(number, libc::ESHUTDOWN);
        }
        self.access().finish_closing();
        self.access().forget_relabelling(true);
        self.access().finish_emptying(CLOSE_PATIENCE);
        self.access().free_orphans(None);
        self.freeing().free_doomed();
        self.sessions.remove_remains();
        self.sessions.finish_log();
        if self.sessions.state.pool.is_paged() {
            self.sync_files().map_err(|errno| Error::System {
                path: self.sessions.state.pool.path().into(),
                operation: "fsync",
                errno,
            })?;
        }
        self.tidy_meeting(usize::MAX);
        self.lock_files.close(self.sessions.state.pool.directory());
        self.named_pipes.close(self.sessions.state.pool.directory());
        self.sockets.close(self.sessions.state.pool.directory());
        self.watched.close(self.sessions.state.pool.directory());
        if !self.places.emptyings.is_empty() {
            // The next start finds what should have been emptied.
            tracing::warn!("some pages could not be emptied: the pool is not marked as clean");
            return Ok(());
        }
        self.sessions.state.pool.mark_clean()
    }

    fn sync_files(&self) -> std::result::Result<(), Errno> {
        let directory = self.sessions.state.pool.directory();
        rustix::fs::syncfs(directory)
    }
}
