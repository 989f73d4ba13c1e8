//! The public face: one session and its operations, one method per family of system calls.

mod copies;
mod data;
mod extended;
mod finding;
mod handing_on;
mod locks;
mod memory;
mod names;
mod opening;
mod pipes;
mod sockets;
mod space;
mod status;
mod syncing;
#[cfg(test)]
mod tests;
mod together;
mod watching;
mod whole;

use crate::attributes::credentials::Credentials;
use crate::data::write::Position;
use crate::descriptions::{Externals, Opened};
use crate::engine::Engine;
use crate::interface::*;
use crate::mappings::up_to_date::UpToDate;
use crate::names::changes::Renamed;
use crate::names::listing;
use crate::names::paths::cache::PathCache;
use crate::names::paths::resolver::Paths;
use crate::names::paths::table::FullPaths;
use crate::names::protected::Protected;
use crate::names::walk::{Last, Start};
use crate::names::{Context, Resolution};
use crate::state::AuxiliaryState;
use crate::state::at_hand::AtHand;
use arck_libfs_kit::engine::{Attempt, Need};
use arck_libfs_kit::format::Durability;
use arck_libfs_kit::format::PATH_MAX;
use arck_libfs_kit::format::{FileKind, InodeNumber, ROOT_INODE};
use arck_libfs_kit::memory::medium::{Curve, Delegated, Model};
use arck_libfs_kit::memory::{delegation, medium};
use arck_libfs_kit::messages::{InodeList, Request};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::session::SessionOptions;
use arck_libfs_kit::views::open::Listed;
use arck_libfs_kit::views::striping::Purpose;
use arck_libfs_kit::views::{CachedInode, Directory, flag};
use arck_libfs_kit::{Session, ownership};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use memory::{MapRequest, MoveRequest};

/// One session with a controller and everything this process knows of the pool.
pub struct FileSystem {
    engine: Engine,
    /// Who the process called itself when the session began.
    process: Credentials,
    externals: Externals,
    mount: Vec<u8>,
}

/// How many nodes there are, and what is delegated on each to so many threads.
fn delegated(threads: u32) -> (u32, Delegated) {
    let (nodes, said) = match medium::model() {
        Some(model) => (model.nodes, model.delegated),
        None => (1, Delegated::usual(&Curve::NONE)),
    };
    (nodes, Delegated { threads, ..said })
}

/// What so many threads do at once.
fn few(threads: u32) -> Delegated {
    let usual = || Delegated::usual_at_once(&Curve::NONE);
    let said = medium::model().map_or_else(usual, |model| model.at_once);
    Delegated { threads, ..said }
}

/// How many they are; `None` where nothing is said.
fn number(threads: Threads, said: fn(&Model) -> Delegated) -> Option<u32> {
    match (threads, medium::model()) {
        (Threads::Number(threads), _) => Some(threads),
        (Threads::Auto, Some(model)) => Some(said(model).threads),
        (Threads::Auto, None) | (Threads::Off, _) => None,
    }
}

/// Flags of the path-taking calls, with the kernel's own values (`AT_*`).
pub type AtFlags = i32;

/// Where nobody serves a pool for so long, it is said that it is waited for.
const WORTH_A_LINE: Duration = Duration::from_millis(500);
/// Attempts after which a write may be cut where pages run out.
const WHOLE_ATTEMPTS: u32 = 32;
/// In a description's flags, where it is told as nothing: the file was made when it was opened, which no flag that is kept
/// says otherwise.
const MADE: i32 = libc::O_EXCL;
/// Flags that `F_SETFL` may change.
const SETTABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT;

impl FileSystem {
    /// Opens a session. Blocks until the controller answers (bounded).
    pub fn connect(options: &ConnectOptions) -> Result<FileSystem, ConnectError> {
        FileSystem::connect_within(options, arck_libfs_kit::session::REGION_SIZE)
    }

    /// Has large reads and writes of this process done by `threads` of its own for each memory node of the medium that the pool is emulated on,
    /// or of the machine's memory, which is one node (OdinFS). How large, the medium says; where it does not, or there is none, 32 KiB and
    /// 256 bytes. A forked child has none. EINVAL: none, or too many; EBUSY: there are others; EAGAIN: they cannot be started.
    pub fn delegate(&self, threads: usize) -> Result<(), Errno> {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let (nodes, delegated) = delegated(threads);
        delegation::start(nodes, &delegated).map_err(|error| error.errno())
    }

    /// The same, with threads that are started when there is something for them to do, by a thread of which `may_start` says that it may:
    /// not where the handler of a signal may have interrupted libc while it held a lock. Where they cannot be started each thread does its
    /// own. EINVAL: too many.
    pub fn delegate_when_wanted(
        &self,
        delegates: Threads,
        may_start: fn() -> bool,
    ) -> Result<(), Errno> {
        let Some(threads) = number(delegates, |model| model.delegated) else {
            return Ok(());
        };
        let (nodes, delegated) = delegated(threads);
        let told = delegation::start_when_wanted(nodes, delegated, may_start);
        told.map_err(|error| error.errno())
    }

    /// Has large reads and writes of this process done by who asks for them, but so many at once at each memory node, of all programs of its
    /// user on the pool that have said the same (concurrency restriction: Dice and Kogan, Euro-Par 2019). How large, the medium says; where it does not, or
    /// there is none, writes of 4 KiB and more. Instead of threads
    /// that do it for others. A forked child has said nothing. Blocks, once. EINVAL: too many; ENFILE, EMFILE, ENOMEM.
    pub fn at_once(&self, threads: Threads) -> Result<(), Errno> {
        let Some(threads) = number(threads, |model| model.at_once) else {
            return Ok(());
        };
        let gates = self.engine.session.gates()?;
        let told = delegation::at_once(gates, &few(threads));
        told.map_err(|error| error.errno())
    }

    /// The same with a region of `memory` bytes: see [`SessionOptions`].
    pub fn connect_within(
        options: &ConnectOptions,
        memory: u64,
    ) -> Result<FileSystem, ConnectError> {
        FileSystem::connect_patiently(options, memory, Duration::ZERO)
    }

    /// As [`FileSystem::connect`], waiting for a controller where there is none, as long as requests
    /// wait for one: for a program whose like is on the pool already. Says so on standard error.
    pub fn connect_waiting(options: &ConnectOptions) -> Result<FileSystem, ConnectError> {
        let memory = arck_libfs_kit::session::REGION_SIZE;
        let patience = arck_libfs_kit::connection::patience();
        let is_nobody = |error: &ConnectError| error.errno == Errno::CONNREFUSED;
        // One that is started again at once is not worth a line.
        let moment = patience.min(WORTH_A_LINE);
        match FileSystem::connect_patiently(options, memory, moment) {
            Err(error) if is_nobody(&error) && moment < patience => {}
            other => return other,
        }
        let pool = options.pool.display();
        let seconds = patience.as_secs_f64();
        let line = format!(
            "arck: nobody serves the pool {pool}; waiting for it, at most {seconds} s ({})\n",
            arck_libfs_kit::connection::serving(&options.pool)
        );
        // SAFETY: a number, for two calls that touch no memory by it.
        let standard_error = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
        // A daemon may have closed it, and have something else under that number: a line for people goes
        // to terminals, pipes and logs. Nobody may be listening.
        let is_for_people = rustix::fs::fstat(standard_error).is_ok_and(|status| {
            use rustix::fs::FileType;
            let kind = FileType::from_raw_mode(status.st_mode);
            let appends = rustix::fs::fcntl_getfl(standard_error)
                .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND));
            matches!(kind, FileType::CharacterDevice | FileType::Fifo)
                || kind == FileType::RegularFile && appends
        });
        if is_for_people {
            arck_libfs_kit::telling::tell(line.as_bytes());
        }
        FileSystem::connect_patiently(options, memory, patience - moment).map_err(|error| {
            match is_nobody(&error) {
                true => ConnectError {
                    message: format!(
                        "{pool}: nobody has served this pool for {seconds} s; what is on it cannot be \
                         reached until this program is started again, after `arck serve {pool}`"
                    ),
                    errno: error.errno,
                },
                false => error,
            }
        })
    }

    fn connect_patiently(
        options: &ConnectOptions,
        memory: u64,
        patience: Duration,
    ) -> Result<FileSystem, ConnectError> {
        crate::data::size_limit::refresh();
        let failed = |error: arck_libfs_kit::ConnectError| {
            let mut message = error.to_string();
            if let arck_libfs_kit::ConnectError::System {
                errno: Errno::ACCESS | Errno::PERM,
                ..
            } = error
            {
                let pool = options.pool.display();
                message += &format!(
                    "; its owner lets programs of all users in by: arck serve --shared {pool}"
                );
            }
            ConnectError {
                message,
                errno: error.errno(),
            }
        };
        let wish = SessionOptions {
            region_size: memory,
            patience,
            group: &options.group,
            prepare: AuxiliaryState::creator(options.resolver),
            structures: crate::state::FINGERPRINT,
        };
        // The controller has seen who this thread was when it connected. Another thread may be making the
        // process somebody else meanwhile: a session of who it was is not for who it is.
        let (session, process) = loop {
            let process = Credentials::of_process();
            let session = Session::connect_with(&options.pool, &wish).map_err(failed)?;
            if Credentials::of_process() == process {
                break (session, process);
            }
            session.end();
        };
        let state = AuxiliaryState::find(session).map_err(|errno| ConnectError {
            message: format!("{}: preparing the session: {errno}", options.pool.display()),
            errno,
        })?;
        let resolver = state.resolver();
        if resolver != options.resolver {
            session.end();
            let (pool, group) = (&options.pool, String::from_utf8_lossy(&options.group));
            let (theirs, ours) = (resolver.name(), options.resolver.name());
            return Err(ConnectError {
                message: format!(
                    "{}: the programs of group {group} have {theirs}, and this one is to have {ours}: a group has one \
                     file system; end them, or be of another group: arck run --own-group --fs {ours}",
                    pool.display()
                ),
                errno: Errno::BUSY,
            });
        }
        let welcome = session.welcome();
        let user = (welcome.user, welcome.user_group);
        let credentials = Credentials::of_session(&process, user);
        let paths = match resolver {
            Resolver::Tree => Paths::Threads(PathCache::default()),
            Resolver::FullPaths => Paths::Table(FullPaths {
                who: credentials.searcher(),
                region: session.region(),
                table: &state.full_paths,
            }),
        };
        // Who opens the session looks, for all who join it.
        let protected = Protected::of_group(state.protected.load(Ordering::Acquire));
        state.protected.store(protected.packed(), Ordering::Release);
        let file_system = FileSystem {
            engine: Engine {
                session,
                views: &session.state().views,
                state,
                credentials,
                resolution: Resolution { protected, paths },
                at_hand: AtHand::of_state(session.region(), state),
                listing: listing::scratch::Scratch::default(),
                up_to_date: UpToDate::default(),
            },
            process,
            externals: Externals::default(),
            mount: options.mount.clone(),
        };
        file_system.adopt_maps();
        Ok(file_system)
    }

    /// Ends the session: all its work is folded when this returns, or this says why not. Dropping
    /// it ends it too, and says nothing.
    pub fn disconnect(self) -> Result<(), Errno> {
        self.engine.session.goodbye()
    }

    /// Ends the session as dropping it does, where others may hold references to this.
    pub fn end(&self) {
        self.engine.session.end();
    }

    /// Whether the controller has ended the session, or does not know it any more: what needs the controller is EIO
    /// from now on, and who goes on connects again.
    pub fn is_lost(&self) -> bool {
        let header = &self.engine.session.control().header;
        header.closed.load(Ordering::Acquire) != 0
    }

    /// Whether the process is still who it was when the session began. Else it has to leave it: what a
    /// session may do it may do to its end.
    pub fn is_of_process(&self) -> bool {
        self.process == Credentials::of_process()
    }

    /// Whether a thread of this process is inside the LibFS.
    pub fn has_inside(&self) -> bool {
        let session = self.engine.session;
        session.region().has_inside(session.member())
    }

    /// The pool's uuid as two words.
    pub fn pool_identity(&self) -> [u64; 2] {
        let uuid = u128::from_le_bytes(self.engine.session.welcome().uuid);
        [uuid as u64, (uuid >> 64) as u64]
    }

    /// The descriptors that the session keeps in this process; the program must not close them. From
    /// which number on they are, [`keep_descriptors_from`](crate::keep_descriptors_from) says.
    pub fn descriptors(&self) -> Vec<i32> {
        self.engine.session.descriptors()
    }

    /// The session underneath, for benchmarks and tests.
    pub fn session(&self) -> &'static Session {
        self.engine.session
    }

    #[inline(always)]
    fn start<'p>(&'p self, at: At) -> Result<Start<'p>, Errno> {
        let directory = match at {
            At::Root => {
                let header = self.engine.session.header(ROOT_INODE).ok_or(Errno::IO)?;
                (ROOT_INODE, header.generation())
            }
            At::Directory(handle) => {
                let description = self.engine.description(handle)?;
                description.identity()?
            }
            At::Inode(number, generation) => (number, generation),
        };
        Ok(Start {
            directory,
            mount: &self.mount,
            creating: false,
            resolve: 0,
        })
    }

    /// As [`FileSystem::start`], for calls to which an empty path is nothing: ENOENT. At the root
    /// it is the mount point itself.
    fn start_of<'p>(&'p self, at: At, path: &[u8]) -> Result<Start<'p>, Errno> {
        if path.is_empty() && !at.names_itself() {
            return Err(Errno::NOENT);
        }
        self.start(at)
    }

    /// Runs attempts on the inode of a handle.
    fn on_handle<T>(
        &self,
        handle: Handle,
        mut attempt: impl FnMut(&Context<'_>, &'static CachedInode) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let (number, generation) = self.engine.description(handle)?.identity()?;
        self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            attempt(context, inode)
        })
    }

    /// EBADF for a handle opened with O_PATH.
    fn not_path_only(&self, handle: Handle) -> Result<(), Errno> {
        let description = self.engine.description(handle)?;
        if Engine::is_path_only(description) {
            return Err(Errno::BADF);
        }
        Ok(())
    }

    /// Runs attempts on the inode that a path leads to (or a handle, for AT_EMPTY_PATH).
    fn on_path<T>(
        &self,
        at: At,
        path: &[u8],
        flags: AtFlags,
        mut attempt: impl FnMut(&Context<'_>, &'static CachedInode) -> Attempt<T>,
    ) -> Result<T, Failure> {
        let start = self.start(at)?;
        let empty = path.is_empty();
        if empty && flags & libc::AT_EMPTY_PATH == 0 && !at.names_itself() {
            return Err(Errno::NOENT.into());
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        self.engine.run(|context| {
            let inode = if empty {
                context.view(start.directory.0, start.directory.1)?
            } else {
                context.resolve(start, path, follow)?
            };
            attempt(context, inode)
        })
    }

    /// One more reference (`dup`). EBADF.
    pub fn retain(&self, handle: Handle) -> Result<(), Errno> {
        self.engine.description(handle)?.refer()
    }

    /// One reference less; the last one closes.
    pub fn close(&self, handle: Handle) {
        drop(self.release(handle));
    }

    /// As [`close`](Self::close): what is left of the description, if it was the last.
    pub fn release(&self, handle: Handle) -> Option<Closed> {
        let released = self.engine.release_description(handle, &self.externals);
        let (listed, handed_on) = released.ok()??;
        // Fails only where the session itself is lost; then the controller cleans up.
        let _ = self.engine.kit().unlist_open(listed);
        self.engine.kit().give_back();
        Some(Closed { handed_on })
    }

    /// Whether this session owns what a path leads to, without following a last symbolic link; for
    /// diagnosis and tests.
    pub fn owns(&self, at: At, path: &[u8]) -> Result<bool, Failure> {
        let number = self.stat(at, path, libc::AT_SYMLINK_NOFOLLOW)?.inode as InodeNumber;
        let header = self.engine.session.header(number).ok_or(Errno::STALE)?;
        Ok(header.ownership().session() == self.engine.session.number())
    }

    /// What the stripes of a file are for, if it has some, without following a last symbolic link; for diagnosis and tests.
    pub fn stripes_are_for(&self, at: At, path: &[u8]) -> Result<Option<Purpose>, Failure> {
        self.on_path(at, path, libc::AT_SYMLINK_NOFOLLOW, |context, inode| {
            Ok(context.stripes_are_for(inode))
        })
    }

    /// How many directories and files of the session have been given stripes, because threads waited
    /// for each other there; for diagnosis and tests.
    pub fn striped_inodes(&self) -> u32 {
        self.engine.kit().views.striped.load(Ordering::Relaxed)
    }

    /// As `F_GETFL`. EBADF.
    pub fn flags(&self, handle: Handle) -> Result<i32, Errno> {
        let description = self.engine.description(handle)?;
        let flags = self.engine.flags_of(description, &self.externals) & !MADE;
        description.still()?;
        Ok(flags)
    }

    /// As `F_CREATED_QUERY`: whether opening it has made the file. EBADF.
    pub fn is_made_by(&self, handle: Handle) -> Result<bool, Errno> {
        let description = self.engine.description(handle)?;
        Ok(description.flags.load(Ordering::Acquire).cast_signed() & MADE != 0)
    }

    /// As `F_SETFL`: O_APPEND, O_NONBLOCK, O_NOATIME, O_DIRECT; others are ignored.
    pub fn set_flags(&self, handle: Handle, flags: i32) -> Result<(), Errno> {
        self.not_path_only(handle)?;
        let description = self.engine.description(handle)?;
        let old = self.engine.flags_of(description, &self.externals);
        let new = old & !SETTABLE | flags & SETTABLE;
        self.engine.store_flags(description, &self.externals, new);
        Ok(())
    }

    /// Its flags too; of one that is to be read they may not be the last that another process has set.
    fn usable(&self, handle: Handle, write: bool) -> Result<(Opened, i32), Errno> {
        let description = self.engine.description(handle)?;
        let flags = match write {
            true => self.engine.flags_of(description, &self.externals),
            false => description.flags.load(Ordering::Acquire).cast_signed(),
        };
        let wrong = if write {
            libc::O_RDONLY
        } else {
            libc::O_WRONLY
        };
        let mode = flags & ACCESS_MODE;
        if flags & libc::O_PATH != 0 || mode == wrong || mode == ACCESS_MODE {
            return Err(Errno::BADF);
        }
        Ok((description, flags))
    }
}

impl Drop for FileSystem {
    /// Ends the session; blocks as [`FileSystem::disconnect`].
    fn drop(&mut self) {
        self.engine.session.end();
    }
}

fn trim_end(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    if end == 0 {
        &path[..path.len().min(1)]
    } else {
        &path[..end]
    }
}
