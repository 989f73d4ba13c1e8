//! A session for each user who comes.
//!
//! # Invariants
//! * A session is used for requests of one user, group and set of further groups only, as the kernel has told them of
//!   the request, and was opened by a thread that was that user: what it may do the controller has decided.
//! * What is kept of a process (which groups it has) is kept for [`KNOWN`], and used only for the ids that came with the
//!   request.
//! * A session that its controller has ended is followed by another one, for what is asked for from then on; what was
//!   open in it stays with it.
//! * A process that is not root has one session, its own user's, and serves nobody else.
//! * A session that nobody has used for [`IDLE`], and by which nothing is open, ends, but for that of the process's own
//!   user: who has left keeps neither memory here nor inodes from others.

use crate::identity::{self, Who};
use arckfs::{ConnectOptions, Errno, FileSystem};
use std::collections::HashMap;
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// For so long the groups of a process are not asked for again.
const KNOWN: Duration = Duration::from_secs(1);
/// A session that nobody has used for so long is of somebody who has left.
pub const IDLE: Duration = Duration::from_secs(60);
/// Processes that are known at most; then those of long ago are forgotten.
const KNOWN_MAX: usize = 4096;
/// Groups of a user that are asked of the user database.
const GROUPS_MAX: usize = 1 << 16;

/// A user's session.
pub struct Session {
    pub fs: FileSystem,
    pub who: Arc<Who>,
    /// Whether threads have to become him.
    is_to_be_become: bool,
    gate: Arc<Gate>,
    /// When it was last asked for, in milliseconds since the mount began.
    used: AtomicU64,
}

/// Whether requests are still served: held by each while it is at work.
type Gate = RwLock<bool>;

/// A session's file system, this thread being its user, until this is dropped. None is entered while another one is:
/// whoever ends them all may be waiting in between.
pub struct Entered<'s> {
    fs: &'s FileSystem,
    _at_work: RwLockReadGuard<'s, bool>,
}

impl Deref for Entered<'_> {
    type Target = FileSystem;
    fn deref(&self) -> &FileSystem {
        self.fs
    }
}

impl Session {
    /// This thread is the session's user from now on, until it is somebody else. ENOTCONN when the mount has ended.
    pub fn enter(&self) -> Result<Entered<'_>, Errno> {
        let at_work = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if !*at_work {
            return Err(Errno::NOTCONN);
        }
        if self.is_to_be_become {
            identity::become_user(&self.who)?;
        }
        Ok(Entered {
            fs: &self.fs,
            _at_work: at_work,
        })
    }
}

/// Which process, thread in fact, and the ids that its request came with.
type Caller = (u32, u32, u32);

/// See the module's head.
pub struct Users {
    options: ConnectOptions,
    own: Arc<Who>,
    is_root: bool,
    began: Instant,
    /// One place for each user, in which his session is made by one thread while others wait.
    sessions: Mutex<HashMap<Arc<Who>, Place>>,
    known: Mutex<HashMap<Caller, (Instant, Arc<Session>)>>,
    gate: Arc<Gate>,
}

type Place = Arc<Mutex<Option<Arc<Session>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Users {
    /// Opens the session of the process's own user; where that fails nobody can be served. Blocks until the controller
    /// answers.
    pub fn new(options: ConnectOptions) -> Result<Users, String> {
        let users = Users::waiting(options);
        let own = users.own.clone();
        let fs = FileSystem::connect_waiting(&users.options).map_err(|error| error.to_string())?;
        let session = Arc::new(Session {
            fs,
            who: own.clone(),
            is_to_be_become: users.is_root,
            gate: users.gate.clone(),
            used: AtomicU64::new(0),
        });
        lock(&users.sessions).insert(own, Arc::new(Mutex::new(Some(session))));
        Ok(users)
    }

    /// Opens no session before somebody comes.
    pub fn waiting(options: ConnectOptions) -> Users {
        let own = Arc::new(Who::of_process());
        Users {
            options,
            is_root: own.uid == 0,
            began: Instant::now(),
            sessions: Mutex::default(),
            known: Mutex::default(),
            own,
            gate: Arc::new(RwLock::new(true)),
        }
    }

    /// Whether others than the process's own user are served.
    pub fn serves_others(&self) -> bool {
        self.is_root
    }

    /// The session of whoever has sent a request. EACCES where the controller lets him not in; what else `connect` says.
    /// Blocks where it has to be opened.
    pub fn session(&self, pid: u32, uid: u32, gid: u32) -> Result<Arc<Session>, Errno> {
        if !self.is_root {
            return match uid == self.own.uid {
                true => self.session_of(&self.own),
                false => Err(Errno::ACCESS),
            };
        }
        let caller = (pid, uid, gid);
        let now = Instant::now();
        if let Some((until, session)) = lock(&self.known).get(&caller)
            && now < *until
            && !session.fs.is_lost()
        {
            self.note_used(session);
            return Ok(session.clone());
        }
        identity::become_root()?;
        let groups = groups_of_process(pid, uid, gid).unwrap_or_else(|| groups_of_user(uid, gid));
        let session = self.session_of(&Arc::new(Who::new(uid, gid, groups)))?;
        let mut known = lock(&self.known);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, (until, _)| now < *until);
        }
        known.insert(caller, (now + KNOWN, session.clone()));
        Ok(session)
    }

    fn session_of(&self, who: &Arc<Who>) -> Result<Arc<Session>, Errno> {
        let place = lock(&self.sessions).entry(who.clone()).or_default().clone();
        let mut place = lock(&place);
        // A controller that ended in order has ended its sessions; the next one makes others.
        if let Some(session) = place.as_ref().filter(|session| !session.fs.is_lost()) {
            self.note_used(session);
            return Ok(session.clone());
        }
        if self.is_root {
            identity::become_user(who)?;
        }
        let fs = FileSystem::connect(&self.options).map_err(|error| match error.errno {
            // He is told of his rights. That nobody serves the pool is no answer to him.
            Errno::ACCESS | Errno::PERM => Errno::ACCESS,
            Errno::CONNREFUSED | Errno::NOENT => Errno::IO,
            errno => errno,
        })?;
        let session = Arc::new(Session {
            fs,
            who: who.clone(),
            is_to_be_become: self.is_root,
            gate: self.gate.clone(),
            used: AtomicU64::new(self.now()),
        });
        *place = Some(session.clone());
        Ok(session)
    }

    /// Milliseconds since the mount began.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn note_used(&self, session: &Session) {
        session.used.store(self.now(), Ordering::Relaxed);
    }

    /// Ends the sessions that nobody has used for so long, and by which nothing is open: what they have done is folded.
    /// Blocks for that; who comes back meanwhile waits for it, and has a new session then.
    pub fn end_idle(&self, idle: Duration) {
        let now = Instant::now();
        lock(&self.known).retain(|_, (until, _)| now < *until);
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let places: Vec<(Arc<Who>, Place)> = lock(&self.sessions)
            .iter()
            .filter(|(who, _)| **who != self.own)
            .map(|(who, place)| (who.clone(), place.clone()))
            .collect();
        for (who, place) in places {
            let mut of_user = lock(&place);
            // What is open has it, and who is being served. Nobody gets it but from this place.
            let is_idle = |session: &Arc<Session>| {
                Arc::strong_count(session) == 1
                    && self
                        .now()
                        .saturating_sub(session.used.load(Ordering::Relaxed))
                        >= idle
            };
            if let Some(session) = of_user.take_if(|session| is_idle(session)) {
                session.fs.end();
                let mut sessions = lock(&self.sessions);
                // Who has come meanwhile waits for this place, and fills it.
                if Arc::strong_count(&place) == 2 {
                    sessions.remove(&who);
                }
            }
        }
    }

    /// Ends all sessions, when no request is at work any more: what they have done is folded. Blocks.
    pub fn end(&self) {
        *self.gate.write().unwrap_or_else(PoisonError::into_inner) = false;
        let places: Vec<Place> = lock(&self.sessions)
            .drain()
            .map(|(_, place)| place)
            .collect();
        for place in places {
            if let Some(session) = lock(&place).take() {
                session.fs.end();
            }
        }
    }
}

/// The further groups of a process, if it still has these ids.
fn groups_of_process(pid: u32, uid: u32, gid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = |name: &str| {
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace()
            .map(|word| word.parse::<u32>().ok())
            .collect::<Option<Vec<_>>>()
    };
    // Real, effective, saved, and that of access to files.
    let is_his = line("Uid:")?.get(3) == Some(&uid) && line("Gid:")?.get(3) == Some(&gid);
    is_his.then(|| line("Groups:"))?
}

/// The further groups of a user by the user database: where the process cannot be looked at, as one of another
/// namespace of processes.
fn groups_of_user(uid: u32, gid: u32) -> Vec<u32> {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0; 1 << 16];
    let mut found = std::ptr::null_mut();
    // SAFETY: an entry and a buffer of this function, which lives as long as the entry is used.
    let failed = unsafe {
        libc::getpwuid_r(
            uid,
            entry.as_mut_ptr(),
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    if failed != 0 || found.is_null() {
        return Vec::new();
    }
    // SAFETY: libc has filled the entry, whose name it has put into `text`.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    let mut groups = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: a string, and as many numbers as are said, which libc writes.
        let got =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let needed = usize::try_from(count).unwrap_or(0);
        if got >= 0 {
            groups.truncate(needed);
            return groups;
        }
        if needed <= groups.len() || needed > GROUPS_MAX {
            return Vec::new();
        }
        groups.resize(needed, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_controller::Options;
    use arck_test_pool::TestPool;
    use arckfs::At;

    /// As root: of three users one has left, one has a file open, and one is the mount's own.
    #[test]
    fn who_has_left_has_no_session() {
        let options = Options {
            shared: true,
            ..Options::default()
        };
        let pool = TestPool::with_options(64 << 20, options);
        let users = Users::waiting(ConnectOptions {
            pool: pool.path(),
            mount: b"/arck".to_vec(),
            group: Vec::new(),
            resolver: arckfs::Resolver::default(),
        });
        assert!(users.serves_others(), "this test is root's");
        let of = |uid| users.session_of(&Arc::new(Who::new(uid, uid, vec![uid])));
        let count = || lock(&users.sessions).len();
        let own = users.session_of(&users.own).map(drop);
        own.expect("its own session");
        let staying = of(1001).expect("a session");
        for uid in [1002, 1003] {
            let session = of(uid).expect("a session");
            let entered = session.enter().expect("his file system");
            entered.stat(At::Root, b"", 0).expect("the root");
        }
        assert_eq!(count(), 4);
        users.end_idle(IDLE);
        assert_eq!(count(), 4, "they have just been here");
        users.end_idle(Duration::ZERO);
        assert_eq!(count(), 2, "of who has left nothing is left");
        staying.enter().expect("his file system");
        // Whoever comes back is served.
        let again = of(1002).expect("a session");
        let entered = again.enter().expect("his file system");
        entered.stat(At::Root, b"", 0).expect("the root");
        drop(entered);
        drop((staying, again));
        users.end_idle(Duration::ZERO);
        assert_eq!(count(), 1);
        identity::become_root().expect("root again");
        users.end();
    }

    #[test]
    fn groups_are_told_only_of_who_has_the_ids() {
        let own = Who::of_process();
        let pid = std::process::id();
        let told = groups_of_process(pid, own.uid, own.gid)
            .map(|groups| Who::new(own.uid, own.gid, groups));
        assert_eq!(told, Some(own.clone()));
        assert_eq!(groups_of_process(pid, own.uid + 1, own.gid), None);
        assert_eq!(groups_of_process(pid, own.uid, own.gid + 1), None);
        assert_eq!(groups_of_process(0, own.uid, own.gid), None);
    }

    #[test]
    fn the_user_database_knows_root_and_not_everybody() {
        assert!(groups_of_user(0, 0).contains(&0));
        assert_eq!(groups_of_user(u32::MAX - 77, 5), Vec::<u32>::new());
    }
}
