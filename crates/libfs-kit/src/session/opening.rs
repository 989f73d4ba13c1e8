//! Opening a session: connecting, greeting, and mapping what the controller sends.
//!
//! # Invariants
//! * What is received is the session's in one step, so that a fork closes it as what was received or as what a
//!   session has, and never as neither ([`crate::forks`]).
//! * Nobody else sees a region that is not whole: who makes it says so when the LibFS's own part is there.
//! * A session that could not be prepared has ended when this says so.

use super::room::Raised;
use super::{REGION_SIZE, Session, State, reach, segments};
use crate::connection::{self, Connection};
use crate::forks;
use crate::membership::Membership;
use crate::region::{Region, RegionError};
use arck_core_state::arena::ARENA_SPAN;
use arck_core_state::layout;
use arck_core_state::superblock::Durability;
use arck_pm::mapping::{MapOptions, Mapping};
use arck_pm::{AddressSpace, LongFile};
use arck_protocol::control::CONTROL_SIZE;
use arck_protocol::operation::LightBarrier;
use arck_protocol::socket::{Answer, Call, Caller, Welcome};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::time::Duration;

/// Why a session could not be opened. `Display` is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{pool}: no such pool; make one with `arck mkfs {pool} --size 1G`")]
    NoPool { pool: String },
    #[error("{pool}: nobody serves this pool; start `arck serve {pool}` or use `arck run`")]
    NotServed { pool: String },
    #[error("{pool}: the controller refused: {reason}{}", reach::hint(*.errno))]
    Refused {
        pool: String,
        reason: String,
        errno: Errno,
    },
    #[error("{pool}: {what}: {errno}{}", reach::hint(*.errno))]
    System {
        pool: String,
        what: &'static str,
        errno: Errno,
    },
}

impl ConnectError {
    pub fn errno(&self) -> Errno {
        match self {
            ConnectError::NoPool { .. } => Errno::NOENT,
            ConnectError::NotServed { .. } => Errno::CONNREFUSED,
            ConnectError::Refused { errno, .. } | ConnectError::System { errno, .. } => *errno,
        }
    }
}

/// How a session is opened.
pub struct SessionOptions<'a> {
    /// Bytes of the group region: pages of 4096, a few MiB at least. Auxiliary state has half of it (what
    /// is built anew after a death the other); what does not fit is ENOMEM, or ENFILE for open files,
    /// which have a sixteenth of it. Of no effect for who joins a group.
    pub region_size: u64,
    /// How long to wait where nobody serves the pool: for a program whose like is on it already,
    /// while its controller is started again.
    pub patience: Duration,
    /// The trust group to be one of, at most [`arck_protocol::socket::GROUP_NAME_MAX`] bytes; empty: none.
    pub group: &'a [u8],
    /// Makes the LibFS's own part of a new region; others join when it is done.
    pub prepare: fn(&'static Session) -> Result<(), Errno>,
    /// A fingerprint of the structures in that part ([`crate::region::fingerprint`]): who has others does not join.
    pub structures: u32,
}

impl SessionOptions<'_> {
    /// Of all that stands in the region besides its own: the kit's, and the LibFS's.
    fn all_structures(&self) -> u32 {
        crate::state::FINGERPRINT ^ self.structures.rotate_left(16)
    }
}

impl Default for SessionOptions<'_> {
    fn default() -> Self {
        SessionOptions {
            region_size: REGION_SIZE,
            patience: Duration::ZERO,
            group: b"",
            prepare: |_| Ok(()),
            structures: 0,
        }
    }
}

/// Descriptors that every session is sent.
const RECEIVED: usize = 6;

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
enum NoRegion {
    #[error("the group's shared memory: {0}")]
    Region(#[from] RegionError),
    #[error("the group's shared memory: {0}")]
    System(#[from] Errno),
}

impl NoRegion {
    fn errno(&self) -> Errno {
        match self {
            NoRegion::Region(RegionError::Incompatible { .. }) => Errno::PROTONOSUPPORT,
            NoRegion::Region(_) => Errno::NOMEM,
            NoRegion::System(errno) => *errno,
        }
    }
}

/// Maps the region, and makes it if this process is to. Its file is the controller's to make, to size and
/// to give to somebody else: what fails here is this process's error, and nobody else's.
fn find_region(
    file: &OwnedFd,
    welcome: &Welcome,
    options: &SessionOptions<'_>,
) -> Result<Region, NoRegion> {
    if welcome.makes_region {
        let size = rustix::fs::fstat(file)?.st_size;
        let region = Region::create(file, u64::try_from(size).unwrap_or(0))?;
        return Ok(region);
    }
    let region = Region::open(file)?;
    region.expect_ready(options.all_structures())?;
    Ok(region)
}

impl Session {
    /// Connects and maps. Blocks until the controller answers.
    pub fn connect(pool: &Path) -> Result<&'static Session, ConnectError> {
        Session::connect_with(pool, &SessionOptions::default())
    }

    /// The same, as `options` say.
    pub fn connect_with(
        pool: &Path,
        options: &SessionOptions<'_>,
    ) -> Result<&'static Session, ConnectError> {
        let name = || pool.display().to_string();
        let system = |what: &'static str| {
            move |errno: Errno| ConnectError::System {
                pool: name(),
                what,
                errno,
            }
        };
        let mapped = |what: &'static str| {
            move |error: arck_pm::Error| ConnectError::System {
                pool: name(),
                what,
                errno: error.errno(),
            }
        };
        forks::watch();
        let mut deadline = None;
        // Until the session's descriptors are where they are kept.
        let mut raised = None;
        let mut is_tried = false;
        let mut makes_room = || {
            let is_first = !std::mem::replace(&mut is_tried, true);
            if is_first {
                raised = Raised::new();
            }
            is_first
        };
        // There is a controller, which may have much to do.
        let greeting = options.patience.max(connection::PATIENCE);
        let (socket, made_by, answer, descriptors) = loop {
            let made_by = connection::Sender::now();
            let socket = connection::connect_patiently(pool, &mut deadline, options.patience);
            let socket = match socket {
                Err(Errno::MFILE) if makes_room() => continue,
                socket => socket.map_err(|errno| match errno {
                    Errno::NOENT if !pool.join(layout::SUPERBLOCK).exists() => {
                        ConnectError::NoPool { pool: name() }
                    }
                    Errno::NOENT | Errno::CONNREFUSED => ConnectError::NotServed { pool: name() },
                    errno => system("cannot reach the controller")(errno),
                })?,
            };
            let caller = Caller::of_process(options.group).with_region(options.region_size);
            match connection::greet(&socket, caller, greeting) {
                Ok((answer, descriptors)) => break (socket, made_by, answer, descriptors),
                // It ended before it had answered: as if it had ended before.
                Err(Errno::CONNRESET | Errno::PIPE)
                    if !connection::is_over(&mut deadline, options.patience) =>
                {
                    arck_protocol::wait::sleep(connection::PAUSE);
                }
                Err(Errno::MFILE) if makes_room() => {}
                Err(Errno::MFILE) => {
                    let what = "a session takes seven descriptors, and the limit (`ulimit -n`) leaves fewer";
                    return Err(system(what)(Errno::MFILE));
                }
                Err(errno) => return Err(system("the controller did not answer")(errno)),
            }
        };
        let welcome = match answer {
            Answer::Welcome(welcome) => welcome,
            Answer::Error(errno, reason) => {
                return Err(ConnectError::Refused {
                    pool: name(),
                    reason,
                    errno: Errno::from_raw_os_error(errno),
                });
            }
            _ => return Err(system("the controller answered nonsense")(Errno::PROTO)),
        };
        let wrong = || system("the controller sent the wrong descriptors")(Errno::PROTO);
        let [headers, bitmap, control, _, region, arena, medium @ ..] = &*descriptors else {
            return Err(wrong());
        };
        let geometry = welcome.geometry;
        let durability = Durability::from_u32(welcome.durability)
            .ok_or_else(|| system("unknown durability mode")(Errno::PROTO))?;
        arck_pm::set_policy(if welcome.flush == 1 {
            arck_pm::PersistPolicy::Flush
        } else {
            arck_pm::PersistPolicy::NoFlush
        });
        match medium {
            [] => arck_pm::medium::stop(),
            [page] => {
                match arck_pm::medium::emulate(page) {
                    // Another session can have written to it: then there is no medium for this one.
                    Err(arck_pm::Error::Medium(_)) => arck_pm::medium::stop(),
                    emulated => emulated.map_err(mapped("mapping the page of the medium"))?,
                }
            }
            _ => return Err(wrong()),
        }
        arck_pm::guarded::install_guard();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let read_only = MapOptions::READ_ONLY;
        let read_write = MapOptions::READ_WRITE;
        let sync = read_write
            .synchronous(durability == Durability::Dax)
            .memory(durability != Durability::Paged);
        let mapped_region =
            find_region(region, &welcome, options).map_err(|error| ConnectError::Refused {
                pool: name(),
                reason: error.to_string(),
                errno: error.errno(),
            })?;
        let arena_parts = reach::arena_parts(welcome.branch_pages, welcome.delta_pages);
        let control_mapping = Mapping::new(control, 0, CONTROL_SIZE, read_write)
            .map_err(mapped("mapping control memory"))?;
        let header_table =
            reach::headers(headers, &geometry).map_err(mapped("mapping the inode headers"))?;
        let bitmap = Mapping::new(bitmap, 0, size(geometry.page_bitmap_size()), read_only)
            .map_err(mapped("mapping the page bitmap"))?;
        let arena = LongFile::new(arena, size(ARENA_SPAN), &arena_parts, sync)
            .map_err(mapped("mapping the arena"))?;
        let address_space = AddressSpace::reserve(size(geometry.span()))
            .map_err(mapped("reserving address space for the pool"))?;
        arck_pm::medium::note_pool(address_space.base());
        let barrier = register_barrier();
        let session = descriptors.and(socket).into_session(
            |files| -> Result<&'static Session, ConnectError> {
                // The last is the socket; before it may be the page of a medium, which is mapped.
                let mut files = files;
                let socket = files.pop().ok_or_else(wrong)?;
                files.truncate(RECEIVED);
                let [_, _, control, wake, region, _]: [OwnedFd; RECEIVED] =
                    files.try_into().map_err(|_| wrong())?;
                let group = (!options.group.is_empty()).then_some((options.group, region));
                let patience = connection::patience();
                let session = Session {
                    number: welcome.session,
                    durability,
                    connection: Connection::new(
                        pool,
                        patience,
                        &welcome,
                        (socket, made_by),
                        wake,
                        control,
                        group,
                    ),
                    headers: header_table,
                    headers_reached: AtomicU32::new(reach::first_headers(&geometry)),
                    bitmap,
                    arena,
                    arena_reached: arena_parts.map(|part| AtomicUsize::new(part.end)),
                    pool: address_space,
                    access: (0..geometry.segment_count)
                        .map(|_| AtomicU8::new(segments::UNMAPPED))
                        .collect(),
                    withdrawals_seen: AtomicU64::new(0),
                    has_together: AtomicBool::new(false),
                    is_of_group: !options.group.is_empty(),
                    membership: Membership {
                        member: welcome.member,
                        region: mapped_region,
                        control_mapping,
                        barrier,
                        ended: AtomicBool::new(false),
                    },
                    state: std::sync::OnceLock::new(),
                    gates: std::sync::OnceLock::new(),
                    opened_before: AtomicPtr::default(),
                    welcome,
                };
                let session = Box::leak(Box::new(session));
                forks::note(session);
                Ok(session)
            },
        )?;
        session.note_addresses();
        let prepared = match session.welcome.makes_region {
            false => session.find_state(),
            true => session.make_state(options),
        };
        if session.is_of_group && prepared.is_ok() {
            // Nothing is mapped yet that may have been given back before.
            let withdrawals = session.state().data.withdrawals();
            session
                .withdrawals_seen
                .store(withdrawals, Ordering::Release);
        }
        if session.is_of_group {
            session
                .membership
                .region
                .watch(&session.control().header.departed);
        }
        if prepared.is_err() {
            session.end();
        }
        prepared.map_err(system("preparing the group region"))?;
        Ok(session)
    }

    /// Makes the kit's own part of a new region.
    fn create_state(&'static self) -> Result<(), Errno> {
        let thread = self.thread()?;
        let region = self.region();
        let state = region
            .allocate_zeroed::<State>(thread.slot(), 1)
            .map_err(|_| Errno::NOMEM)?;
        region
            .get(state)
            .arena
            .begin(region, thread.slot(), self.welcome())?;
        let inode_count = self.geometry().inode_count;
        region
            .get(state)
            .views
            .begin(region, inode_count, thread.slot())?;
        if let Some(root) = region.auxiliary_root(0) {
            root.store(state.raw(), Ordering::Release);
        }
        // The session is new: nobody else has set it.
        let _ = self.state.set(self.region().get(state));
        Ok(())
    }

    /// What another member has made.
    fn find_state(&'static self) -> Result<(), Errno> {
        let root = self.region().auxiliary_root(0).ok_or(Errno::IO)?;
        let state = crate::region::Offset::from_raw(root.load(Ordering::Acquire));
        let _ = self.state.set(self.region().get(state));
        Ok(())
    }

    /// Makes what is to be in a new region, and tells that it is whole.
    fn make_state(&'static self, options: &SessionOptions<'_>) -> Result<(), Errno> {
        self.create_state()?;
        (options.prepare)(self)?;
        self.membership.region.set_ready(options.all_structures());
        // From now on others find it as it is.
        match self.is_of_group {
            true => self.call(&Call::RegionMade).map(drop),
            false => Ok(()),
        }
    }
}

/// Registers the process for the controller's barrier.
fn register_barrier() -> LightBarrier {
    const REGISTER_GLOBAL_EXPEDITED: i32 = 4;
    // SAFETY: membarrier takes two integers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_GLOBAL_EXPEDITED, 0, 0) };
    if answer == 0 {
        LightBarrier::Registered
    } else {
        LightBarrier::Fence
    }
}
