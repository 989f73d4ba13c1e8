//! Which inotify descriptors of programs live still, though the controller holds none of them.
//!
//! A set of the kernel's (epoll) keeps nothing alive that is in it, and tells what is: whatever was closed for good, in
//! whichever process, is in it no more.
//!
//! # Invariants
//! * A descriptor is known by the open file that it is of, and its watches count to who sent it first.
//! * Nothing is waited for here, and nothing of a descriptor is read but what the kernel says of it.

use arck_core_state::InodeNumber;
use foldhash::{HashMap, HashSet};
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, Errno};

/// Of which instance something is.
pub type Instance = u64;

/// What the kernel calls the files of inotify descriptors.
const KIND: &[u8] = b"anon_inode:inotify";
/// With more watches than this, and twice as many as when it was looked last, it is looked which of them are left.
const LOOK_AGAIN: usize = 64;

/// One inotify instance of a program's.
#[derive(Debug)]
pub struct Known {
    pub user: u32,
    /// What it watches, or has watched.
    pub watched: HashSet<InodeNumber>,
    /// With so many it is looked which of them are left.
    pub look_at: usize,
}

/// The kernel's set.
#[derive(Debug)]
struct Set {
    epoll: OwnedFd,
    /// A number that each descriptor has for as long as it is put into the set: by number and file the set tells what
    /// is in it already.
    number: OwnedFd,
    nothing: OwnedFd,
}

impl Set {
    fn new() -> Result<Set, Errno> {
        let nothing =
            rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Set {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            number: rustix::io::fcntl_dupfd_cloexec(&nothing, 0)?,
            nothing,
        })
    }

    /// Puts a file in under a new name; false if it was in before, under another one that this takes the place of.
    fn put(&mut self, file: BorrowedFd<'_>, name: Instance) -> Result<bool, Errno> {
        rustix::io::dup3(file, &mut self.number, DupFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(name);
        // Of no events: only that it is there.
        let put = match epoll::add(&self.epoll, &self.number, data, epoll::EventFlags::empty()) {
            Err(Errno::EXIST) => {
                let nothing = epoll::EventFlags::empty();
                epoll::modify(&self.epoll, &self.number, data, nothing).map(|()| false)
            }
            put => put.map(|()| true),
        };
        // Else it would live as long as this.
        rustix::io::dup3(&self.nothing, &mut self.number, DupFlags::CLOEXEC)?;
        put
    }

    /// The names of what is in it.
    fn names(&self) -> Result<HashSet<Instance>, Errno> {
        let told = information(self.epoll.as_fd())?;
        let name = |line: &str| {
            let data = line.split("data:").nth(1)?.split_whitespace().next()?;
            Instance::from_str_radix(data, 16).ok()
        };
        let lines = told.lines().filter(|line| line.starts_with("tfd:"));
        Ok(lines.filter_map(name).collect())
    }
}

/// What the kernel says of a descriptor of this process.
fn information(descriptor: BorrowedFd<'_>) -> Result<String, Errno> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    std::fs::read_to_string(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The numbers of the host's inodes that an inotify descriptor watches.
pub fn watched_by(inotify: BorrowedFd<'_>) -> Result<HashSet<u64>, Errno> {
    let told = information(inotify)?;
    let lines = told.lines().filter(|line| line.starts_with("inotify wd:"));
    let number = |line: &str| {
        let number = line.split("ino:").nth(1)?.split_whitespace().next()?;
        u64::from_str_radix(number, 16).ok()
    };
    Ok(lines.filter_map(number).collect())
}

/// All instances that watch something.
#[derive(Default, Debug)]
pub struct Instances {
    set: Option<Set>,
    last: Instance,
    all: HashMap<Instance, Known>,
}

impl Instances {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get_mut(&mut self, instance: Instance) -> Option<&mut Known> {
        self.all.get_mut(&instance)
    }

    /// How many watches a user has.
    pub fn watches_of(&self, user: u32) -> usize {
        let known = self.all.values().filter(|known| known.user == user);
        known.map(|known| known.watched.len()).sum()
    }

    /// What is known of a descriptor that a user has sent: which instance it is now, and which ones it was before, if
    /// that has changed. EINVAL if it is none of inotify's.
    pub fn know(
        &mut self,
        inotify: BorrowedFd<'_>,
        user: u32,
    ) -> Result<(Instance, Vec<Instance>), Errno> {
        let path = format!("/proc/self/fd/{}", inotify.as_raw_fd());
        if rustix::fs::readlink(path, Vec::new())?.as_bytes() != KIND {
            return Err(Errno::INVAL);
        }
        let set = match self.set.take() {
            Some(set) => set,
            None => Set::new()?,
        };
        let set = self.set.insert(set);
        let before = set.names()?;
        self.last += 1;
        let name = self.last;
        let mut known = Known {
            user,
            watched: HashSet::default(),
            look_at: LOOK_AGAIN,
        };
        let mut former = Vec::new();
        if !set.put(inotify, name)? {
            // Another may have been closed just now: then these two are one, until both are gone.
            let now = set.names()?;
            former.extend(before.difference(&now).copied());
            // As a rule no other one has: then it stays what it was, and what it watches is not touched.
            if let &[only] = former.as_slice()
                && self.all.contains_key(&only)
                && set.put(inotify, only).is_ok()
            {
                return Ok((only, Vec::new()));
            }
            for other in former.iter().filter_map(|former| self.all.remove(former)) {
                known.user = other.user;
                known.look_at = known.look_at.max(other.look_at);
                known.watched.extend(other.watched);
            }
        }
        self.all.insert(name, known);
        Ok((name, former))
    }

    /// Those that nobody has open any more, forgotten.
    pub fn take_ended(&mut self) -> Vec<(Instance, Known)> {
        let Some(set) = &self.set else {
            return Vec::new();
        };
        let left = match set.names() {
            Ok(left) => left,
            Err(errno) => {
                tracing::warn!("who watches is not told: {errno}");
                return Vec::new();
            }
        };
        self.all
            .extract_if(|name, _| !left.contains(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify::{self, CreateFlags};

    #[test]
    fn an_instance_ends_with_its_last_descriptor() {
        let mut instances = Instances::default();
        let [one, other] = [(); 2].map(|()| inotify::init(CreateFlags::CLOEXEC).unwrap());
        let (first, former) = instances.know(one.as_fd(), 5).unwrap();
        assert!(former.is_empty());
        instances.get_mut(first).unwrap().watched.insert(7);
        let (second, former) = instances.know(other.as_fd(), 6).unwrap();
        assert!(former.is_empty());
        // The same file by another number, and of somebody else.
        let copy = one.try_clone().unwrap();
        let (again, former) = instances.know(copy.as_fd(), 6).unwrap();
        assert!(former.is_empty());
        assert_eq!(again, first);
        let known = instances.get_mut(again).unwrap();
        assert_eq!((known.user, known.watched.len()), (5, 1));
        drop(one);
        assert!(instances.take_ended().is_empty());
        drop(copy);
        let ended = instances.take_ended();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, again);
        drop(other);
        assert_eq!(instances.take_ended()[0].0, second);
        assert!(instances.is_empty());
    }

    #[test]
    fn only_inotify_descriptors_are_known() {
        let mut instances = Instances::default();
        for path in ["/dev/null", "/proc/self/exe", "/"] {
            let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
            assert_eq!(
                instances.know(file.as_fd(), 0).err(),
                Some(Errno::INVAL),
                "{path}"
            );
        }
        assert!(instances.is_empty());
    }
}
