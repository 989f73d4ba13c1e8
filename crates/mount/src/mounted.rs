//! A mount from its beginning to its end.
//!
//! # Invariants
//! * When [`Mounted::new`] returns the mount is there, and requests are waited for; when it fails nothing is left.
//! * When [`Mounted::serve`] returns it is not there any more, and every session has ended: all that was done is folded.

use crate::helper;
use crate::options::MountOptions;
use crate::point::{self, KIND};
use crate::requests::Requests;
use crate::users::{IDLE, Users};
use arckfs::{ConnectOptions, Errno};
use fuser::{Config, Session, SessionACL};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Threads that serve, at least: a request may wait for a fold, and others are not to wait for it.
const THREADS_LEAST: usize = 4;
/// At most.
const THREADS_MOST: usize = 32;
/// For so long what is open is served after a mount was told to end.
const GRACE: Duration = Duration::from_millis(200);

/// See the module's head.
pub struct Mounted {
    session: Session<Requests>,
    users: Arc<Users>,
    /// Where it is, and which mount that is, if this process sees it there.
    path: PathBuf,
    here: Option<point::MountNumber>,
    tell: Sender<Word>,
    told: Receiver<Word>,
}

/// What whoever serves a mount is told.
enum Word {
    /// It was unmounted, or this went wrong.
    Served(io::Result<()>),
    /// It is to end.
    End,
}

impl Mounted {
    /// Opens the session of this process's user, and mounts. Blocks until the controller answers.
    ///
    /// # Errors
    /// One line that says what is wrong and what to do.
    pub fn new(options: &MountOptions) -> Result<Mounted, String> {
        allow_all();
        let users = Arc::new(Users::new(ConnectOptions {
            pool: options.pool.clone(),
            mount: options.point.path().as_os_str().as_bytes().to_vec(),
            group: Vec::new(),
            resolver: arckfs::Resolver::default(),
        })?);
        let requests = Requests::new(users.clone());
        let (device, acl) = match users.serves_others() {
            true => (by_root(options)?, SessionACL::All),
            false => {
                let at = options.point.path();
                let device = helper::mount(&options.pool, at, options.read_only, KIND)?;
                (device, SessionACL::Owner)
            }
        };
        let session = Session::from_fd(requests, device, acl, config()).map_err(|error| {
            // Nobody will serve it.
            let _ = point::detach(options.point.path());
            no_answer(&error)
        })?;
        let path = options.point.path();
        Ok(Mounted::of(session, users, path, point::number_at(path)))
    }

    /// What was mounted by another process, where this one need not see it: see [`beneath`](crate::beneath). Opens no
    /// session. Blocks until the kernel has answered.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn beneath(options: ConnectOptions, device: OwnedFd) -> Result<Mounted, String> {
        allow_all();
        let path = PathBuf::from(OsStr::from_bytes(&options.mount));
        let users = Arc::new(Users::waiting(options));
        let requests = Requests::new(users.clone());
        let (acl, here) = match users.serves_others() {
            true => (SessionACL::All, None),
            false => (SessionACL::Owner, point::number_at(&path)),
        };
        let session = Session::from_fd(requests, device, acl, config());
        let session = session.map_err(|error| no_answer(&error))?;
        Ok(Mounted::of(session, users, &path, here))
    }

    fn of(
        session: Session<Requests>,
        users: Arc<Users>,
        path: &Path,
        here: Option<point::MountNumber>,
    ) -> Mounted {
        let (tell, told) = channel();
        Mounted {
            session,
            users,
            path: path.to_path_buf(),
            here,
            tell,
            told,
        }
    }

    /// What ends it.
    pub fn ender(&self) -> Ender {
        Ender {
            path: self.path.clone(),
            here: self.here,
            tell: self.tell.clone(),
        }
    }

    /// Serves until it is unmounted or [ended](Ender::end). Blocks.
    ///
    /// # Errors
    /// One line.
    pub fn serve(self) -> Result<(), String> {
        let Mounted {
            session,
            users,
            path,
            here,
            tell,
            told,
        } = self;
        let path = &path;
        let failed = |error: io::Error| format!("the mount at {} ended: {error}", path.display());
        let run = move || {
            // Whoever waits for it may have gone.
            let _ = tell.send(Word::Served(session.run()));
        };
        let running = std::thread::Builder::new().spawn(run);
        running.map_err(|error| {
            let _ = point::detach_one(here);
            failed(error)
        })?;
        let word = loop {
            match told.recv_timeout(IDLE) {
                Err(RecvTimeoutError::Timeout) => users.end_idle(IDLE),
                word => break word,
            }
        };
        let served = match word {
            Ok(Word::Served(served)) => served,
            // Somebody may have something open there, for as long as he likes.
            Ok(Word::End) => match told.recv_timeout(GRACE) {
                Ok(Word::Served(served)) => served,
                _ => Ok(()),
            },
            Err(_) => Ok(()),
        };
        users.end();
        if here.is_some() {
            point::detach_if_dead(path);
        }
        served.map_err(failed)
    }
}

/// Ends a mount from another thread.
#[derive(Clone)]
pub struct Ender {
    path: PathBuf,
    here: Option<point::MountNumber>,
    tell: Sender<Word>,
}

impl Ender {
    /// Detaches the mount and has [`Mounted::serve`] return: what is open there is served no longer than a moment more.
    ///
    /// # Errors
    /// One line: it is still mounted, and is served no more.
    pub fn end(&self) -> Result<(), String> {
        let detached = point::detach_one(self.here);
        // It may have ended by itself.
        let _ = self.tell.send(Word::End);
        detached.map_err(|why| format!("{} cannot be detached: {why}", self.path.display()))
    }
}

fn no_answer(error: &io::Error) -> String {
    format!("the kernel's FUSE does not answer: {error}")
}

/// What is limited for this process's programs is not for what it does for others: the kernel has looked at the limits of
/// whoever writes.
fn allow_all() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for resource in [Resource::Fsize, Resource::Nofile] {
        let limit = getrlimit(resource);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Then there is less of it.
        let _ = setrlimit(resource, raised);
    }
}

fn config() -> Config {
    let mut config = Config::default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some((2 * processors).clamp(THREADS_LEAST, THREADS_MOST));
    config
}

/// Mounts by the system call, which is root's; the device.
fn by_root(options: &MountOptions) -> Result<OwnedFd, String> {
    let path = options.point.path();
    let device = point::device()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mounted = rustix::fs::open(path, flags, Mode::empty())
        .and_then(|point| mount_on(&options.pool, path, &point, options.read_only, &device));
    mounted.map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => format!(
            "mounting at {} is not allowed here: it takes the right to mount (CAP_SYS_ADMIN), which a container has to \
             be given",
            path.display()
        ),
        Errno::NODEV => point::no_device(Errno::NODEV),
        errno => format!("mounting at {} failed: {errno}", path.display()),
    })?;
    Ok(device)
}

/// Mounts a pool at a directory that is open, and is what the path says without links: whoever may write a directory on
/// the way could have put a link there since it was looked at. ELOOP.
pub fn mount_on(
    pool: &Path,
    path: &Path,
    point: &OwnedFd,
    read_only: bool,
    device: &OwnedFd,
) -> Result<(), Errno> {
    // Of this thread, which may have a mount namespace of its own.
    let link = format!("/proc/thread-self/fd/{}", point.as_raw_fd());
    let is = rustix::fs::readlink(&*link, Vec::new())?;
    if is.as_bytes() != path.as_os_str().as_bytes() {
        return Err(Errno::LOOP);
    }
    mount(pool, Path::new(&link), read_only, device)
}

/// Mounts a pool at a directory, by the system call.
pub fn mount(pool: &Path, path: &Path, read_only: bool, device: &OwnedFd) -> Result<(), Errno> {
    let invalid = |_| Errno::INVAL;
    let source = CString::new(point::source_of(pool)).map_err(invalid)?;
    let target = CString::new(path.as_os_str().as_bytes()).map_err(invalid)?;
    let kind = CString::new(KIND).map_err(invalid)?;
    let how = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        crate::data::REQUEST_MAX
    );
    let how = CString::new(how).map_err(invalid)?;
    let flags = libc::MS_NOSUID
        | libc::MS_NODEV
        | match read_only {
            true => libc::MS_RDONLY,
            false => 0,
        };
    // SAFETY: strings that outlive the call.
    let done = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            how.as_ptr().cast(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
