//! Open file descriptions that processes hand on: to forked children, executed programs, and whoever they
//! send them to, also of other users (DESIGN section 8: names cross a process boundary, rights do not).
//!
//! What crosses is a descriptor of an empty memory file of the controller's, opened so that it can be
//! neither read nor written: a program that knows nothing of pools is told EBADF. The file's *name*, which
//! `memfd_create` gave it and nobody can change, says pool, inode and access mode; its owner, whom no
//! other user can make a file of, says who made it. Its offset, O_APPEND and O_NONBLOCK are the
//! kernel's, of the open file, and are those of the description. So whoever has it can change these, as
//! whoever shares a description can, and nothing else.
//!
//! Who presents one ([`crate::core::Core::claim`]) is given that inode in that mode: where his own rights do not do,
//! as a right that is kept for his user as long as he has it open ([`crate::sessions::rights`]).
//!
//! # Invariants
//! * A description is made only for a session that may open the inode so, or has it open so with a right
//!   that is kept.
//! * Nothing of a descriptor that a session sends is believed but what the kernel says of it; and of that
//!   only what the kernel knows by itself is asked, which makes nobody wait.
//! * The file goes with the last descriptor of the description ([`crate::handed::watches`]). Until then what it
//!   stands for is not freed. Where it cannot be watched, that lasts for [`UNWATCHED`].

use crate::fair::may_have_more;
use arck_core_state::InodeNumber;
use arck_protocol::socket::HandedOn;
use foldhash::HashMap;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What all names begin with.
const PREFIX: &str = "arck-description:";
/// What the kernel puts around them.
const BEFORE: &str = "/memfd:";
const BEHIND: &str = " (deleted)";
/// Descriptions that are known at once. Each is an empty file, and a watch.
const KNOWN_MAX: usize = 1 << 16;
/// How long what a description stands for stays that cannot be watched, and that nobody claims.
pub const UNWATCHED: Duration = Duration::from_secs(60);
/// Flags that are kept: those that an open file can have, and O_EXCL, by which a LibFS may note that opening it made it.
pub const FLAGS: u32 = (libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_LARGEFILE
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_TMPFILE
    | libc::O_PATH
    | libc::O_EXCL) as u32;

/// What a descriptor that is handed on says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    pub of: HandedOn,
    /// Hard to guess: who knows it has the descriptor, or had it.
    pub name: u64,
}

impl Description {
    fn text(&self, pool: &[u8; 16]) -> String {
        let HandedOn {
            inode,
            generation,
            flags,
            parent,
        } = self.of;
        let pool = u128::from_be_bytes(*pool);
        let name = self.name;
        format!("{PREFIX}{pool:032x}:{inode}:{generation}:{flags:o}:{parent}:{name:016x}")
    }

    fn of_text(text: &str, pool: &[u8; 16]) -> Option<Description> {
        let mut parts = text.strip_prefix(PREFIX)?.split(':');
        let mut next = || parts.next();
        let of_pool = u128::from_str_radix(next()?, 16).ok()?;
        let description = Description {
            of: HandedOn {
                inode: next()?.parse().ok()?,
                generation: next()?.parse().ok()?,
                flags: u32::from_str_radix(next()?, 8).ok()?,
                parent: next()?.parse().ok()?,
            },
            name: u64::from_str_radix(next()?, 16).ok()?,
        };
        // Only what is written as it is written here.
        let is_it = of_pool == u128::from_be_bytes(*pool) && description.text(pool) == text;
        is_it.then_some(description)
    }

    /// The bits of a mode that it takes to open a file so: 4 = read, 2 = write.
    pub fn wanted(&self) -> u32 {
        let flags = self.of.flags.cast_signed();
        if flags & libc::O_PATH != 0 {
            return 0;
        }
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY => 4,
            libc::O_WRONLY => 2,
            libc::O_RDWR => 6,
            // Opened for neither.
            _ => 0,
        }
    }
}

/// Whether the kernel lets nobody change a file's size or content.
fn is_sealed(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(seals_wanted()))
}

fn seals_wanted() -> SealFlags {
    SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL
}

/// What a descriptor stands for, if this pool's controller made it.
pub fn look(descriptor: BorrowedFd<'_>, pool: &[u8; 16]) -> Option<Description> {
    // First, as no file but the kernel's own has seals: of others the kernel may ask somebody.
    if !is_sealed(descriptor) {
        return None;
    }
    let status = rustix::fs::fstat(descriptor).ok()?;
    let own = rustix::process::geteuid().as_raw();
    if status.st_uid != own || status.st_size != 0 || status.st_nlink != 0 {
        return None;
    }
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let link = rustix::fs::readlink(path, Vec::new()).ok()?;
    let text = link.to_str().ok()?;
    let text = text.strip_prefix(BEFORE)?.strip_suffix(BEHIND)?;
    Description::of_text(text, pool)
}

/// A descriptor that stands for a description; and one of its file, to be closed.
pub fn make(description: &Description, pool: &[u8; 16]) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(description.text(pool), flags)?;
    rustix::fs::fcntl_add_seals(&file, seals_wanted())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // Access mode 3: for neither reading nor writing.
    let neither = OFlags::RWMODE | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(path, neither, Mode::empty())?;
    Ok((descriptor, file))
}

/// A description that somebody has, as far as is known.
pub struct Known {
    pub inode: InodeNumber,
    pub generation: u32,
    /// Whose session handed it on, or claimed it first.
    pub user: u32,
    /// He could open the inode so himself.
    pub has_right: bool,
    /// It is not watched.
    pub until: Option<Instant>,
}

/// All that are known, by their names.
#[derive(Default)]
pub struct Descriptions {
    pub known: HashMap<u64, Known>,
    /// How many there are of each user.
    of_users: HashMap<u32, usize>,
    /// The names of those of each inode, of that generation.
    of_inodes: HashMap<(InodeNumber, u32), BTreeSet<u64>>,
    /// Of all: which of them stay no longer than for a time.
    unwatched: BTreeSet<(Instant, u64)>,
}

impl Descriptions {
    pub fn is_known(&self, name: u64) -> bool {
        self.known.contains_key(&name)
    }

    /// Whether a user may have another one.
    pub fn may_have_more(&self, user: u32, is_trusted: bool) -> bool {
        let own = self.of_users.get(&user).copied().unwrap_or(0);
        may_have_more(own, self.known.len() - own, KNOWN_MAX, is_trusted)
    }

    pub fn add(&mut self, name: u64, known: Known) {
        self.remove(name);
        *self.of_users.entry(known.user).or_default() += 1;
        let inode = (known.inode, known.generation);
        self.of_inodes.entry(inode).or_default().insert(name);
        if let Some(until) = known.until {
            self.unwatched.insert((until, name));
        }
        self.known.insert(name, known);
    }

    /// One is closed for good. Gives its inode.
    pub fn remove(&mut self, name: u64) -> Option<InodeNumber> {
        let known = self.known.remove(&name)?;
        if let Some(count) = self.of_users.get_mut(&known.user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&known.user);
            }
        }
        let inode = (known.inode, known.generation);
        if let Some(names) = self.of_inodes.get_mut(&inode) {
            names.remove(&name);
            if names.is_empty() {
                self.of_inodes.remove(&inode);
            }
        }
        if let Some(until) = known.until {
            self.unwatched.remove(&(until, name));
        }
        Some(known.inode)
    }

    /// Whether any stands for an inode.
    pub fn hold(&self, inode: InodeNumber, generation: u32) -> bool {
        self.of_inodes.contains_key(&(inode, generation))
    }

    /// Users who could open an inode themselves when they handed it on.
    pub fn users(&self, inode: InodeNumber, generation: u32) -> impl Iterator<Item = u32> {
        let names = self
            .of_inodes
            .get(&(inode, generation))
            .into_iter()
            .flatten();
        let known = names.filter_map(|name| self.known.get(name));
        known
            .filter(|known| known.has_right)
            .map(|known| known.user)
    }

    /// Names of those that stay no longer.
    pub fn due(&self, now: Instant) -> Vec<u64> {
        let due = self.unwatched.range(..=(now, u64::MAX));
        due.map(|&(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use arck_core_state::ROOT_INODE;
    use rustix::fd::AsFd;

    const POOL: [u8; 16] = *b"0123456789abcdef";

    fn of(flags: i32) -> HandedOn {
        HandedOn {
            inode: ROOT_INODE,
            generation: 1,
            flags: flags as u32,
            parent: 0,
        }
    }

    fn own(flags: i32) -> Description {
        Description {
            of: of(flags),
            name: 0xdead_beef,
        }
    }

    /// One that is as it is to be, but for what a test makes of it.
    fn forge(name: &str, seals: SealFlags, size: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).unwrap();
        rustix::fs::ftruncate(&file, size).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn what_is_made_here_is_known_again() {
        let description = own(libc::O_RDWR | libc::O_APPEND);
        let (descriptor, file) = make(&description, &POOL).unwrap();
        assert_eq!(look(descriptor.as_fd(), &POOL), Some(description));
        assert_eq!(look(file.as_fd(), &POOL), Some(description));
        assert_eq!(look(descriptor.as_fd(), b"another pool's  "), None);
        // Nobody reads or writes it, nor makes it longer; its offset moves.
        let neither = |result: Result<usize, Errno>| assert_eq!(result, Err(Errno::BADF));
        neither(rustix::io::read(&descriptor, &mut [0; 1]));
        neither(rustix::io::write(&descriptor, b"x"));
        assert_eq!(rustix::io::write(&file, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 1), Err(Errno::PERM));
        let seek = rustix::fs::SeekFrom::Current(5);
        assert_eq!(rustix::fs::seek(&descriptor, seek), Ok(5));
    }

    #[test]
    fn what_only_looks_like_one_is_none() {
        let text = own(libc::O_RDONLY).text(&POOL);
        let all = seals_wanted();
        let is_one =
            |name: &str, seals, size| look(forge(name, seals, size).as_fd(), &POOL).is_some();
        // By this process, whose files they are.
        assert!(is_one(&text, all, 0));
        assert!(!is_one(&text, all, 1));
        for seal in [
            SealFlags::GROW,
            SealFlags::SHRINK,
            SealFlags::WRITE,
            SealFlags::SEAL,
        ] {
            assert!(!is_one(&text, all - seal, 0), "{seal:?}");
        }
        for wrong in [
            text.replace("arck-", "ark-"),
            text.replace(":1:", ":01:"),
            text.replace(":1:", ":+1:"),
            text.replace(":1:", ":99999999999:"),
            text.replace("dead", "DEAD"),
            format!("{text}:"),
            format!("{text} (deleted)"),
            text[..text.len() - 1].to_owned(),
            PREFIX.to_owned(),
        ] {
            assert_ne!(wrong, text);
            assert!(!is_one(&wrong, all, 0), "{wrong}");
        }
        // Of another user's, as this one cannot make it but as root.
        let theirs = forge(&text, all, 0);
        let user = Some(rustix::fs::Uid::from_raw(1234));
        rustix::fs::fchown(&theirs, user, None)
            .expect("this test gives a file away: run it as root");
        assert_eq!(look(theirs.as_fd(), &POOL), None);
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(look(other.as_fd(), &POOL), None);
    }

    #[test]
    fn whoever_has_one_is_given_what_it_stands_for() {
        let mut test = TestCore::new();
        let (one, two) = (test.session(1001, &[1001]), test.session(1002, &[1002]));
        let core = &mut test.core;
        let (made, descriptor) = core.hand_on(one, of(libc::O_RDONLY)).unwrap();
        assert_eq!(core.claim(two, descriptor.as_fd()), Ok(made));
        assert!(core.sessions.is_handed_on(ROOT_INODE));
        // Nothing is kept for who may do so anyway.
        assert!(!core.sessions.rights.keeps_any());
        let wrong = HandedOn {
            generation: 2,
            ..of(libc::O_RDONLY)
        };
        assert_eq!(core.hand_on(one, wrong).err(), Some(Errno::STALE));
        let pool = core.sessions.state.pool.superblock().uuid;
        let old = Description {
            of: wrong,
            ..own(0)
        };
        let (forged, _file) = make(&old, &pool).unwrap();
        assert_eq!(core.claim(two, forged.as_fd()).err(), Some(Errno::STALE));
        // Closed by all that have it.
        let copy = descriptor.try_clone().unwrap();
        drop(descriptor);
        core.forget_closed();
        assert!(core.sessions.is_handed_on(ROOT_INODE));
        drop(copy);
        core.forget_closed();
        assert!(!core.sessions.is_handed_on(ROOT_INODE));
        // A controller that is started again knows nothing of one, until it is claimed.
        let (_, descriptor) = core.hand_on(one, of(libc::O_RDONLY)).unwrap();
        core.sessions.descriptions = Descriptions::default();
        core.sessions.watches = crate::handed::watches::Watches::default();
        core.claim(two, descriptor.as_fd()).unwrap();
        assert!(core.sessions.is_handed_on(ROOT_INODE));
        drop(descriptor);
        core.forget_closed();
        assert!(!core.sessions.is_handed_on(ROOT_INODE));
    }

    #[test]
    fn a_user_has_no_more_than_half_of_what_others_leave() {
        let mut descriptions = Descriptions::default();
        let known = |user, until| Known {
            inode: 7,
            generation: 1,
            user,
            has_right: user == 5,
            until,
        };
        for name in 0..KNOWN_MAX as u64 / 2 {
            assert!(descriptions.may_have_more(5, false));
            descriptions.add(name, known(5, None));
        }
        assert!(!descriptions.may_have_more(5, false));
        assert!(descriptions.may_have_more(6, false) && descriptions.may_have_more(0, true));
        let now = Instant::now();
        descriptions.add(1 << 40, known(6, Some(now)));
        assert_eq!(descriptions.due(now), [1 << 40]);
        assert!(descriptions.users(7, 1).all(|user| user == 5));
        for name in (0..KNOWN_MAX as u64 / 2).chain([1 << 40]) {
            assert!(descriptions.hold(7, 1) && !descriptions.hold(7, 2));
            assert_eq!(descriptions.remove(name), Some(7));
        }
        assert!(!descriptions.hold(7, 1) && descriptions.of_users.is_empty());
        assert!(descriptions.unwatched.is_empty());
    }
}
