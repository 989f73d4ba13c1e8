//! A session: this process's connection with the controller of a pool, and all that it was sent.
//!
//! # Invariants
//! * What is mapped is exactly what the controller sent: header table, page bitmap and other
//!   sessions' segments read-only; the arena, the control memory, the group region and this
//!   session's data segments read-write.
//! * What is long and mostly unused (arena, header table, region) is mapped as far as it is in use:
//!   see [`reach`].
//! * No pointer into the pool is followed unless its segment is mapped: `access` says so for
//!   each segment, and [`Session::page`] maps on first use.
//! * A session lives as long as the process (it is leaked on purpose): references to it and to
//!   its mappings never dangle. [`Session::end`] gives up the files behind the mappings and leaves
//!   zeroes in their place, so that whoever comes late does no harm, and the controller can grant
//!   again what the session had.
//!
//! Locks: the connection's, and never while another lock of this module is taken.

pub mod reach;
mod segments;

use crate::arena_pages::ArenaPages;
use crate::carried::Carried;
use crate::connection::{self, Answered, Connection, PATIENCE};
use crate::data_pages::DataPages;
use crate::forks::{self, Received};
use crate::numbers::Numbers;
use crate::region::{Region, RegionError};
use crate::region_shared;
use crate::thread::ThreadContext;
use crate::views::Views;
use arck_core_state::arena::ARENA_SPAN;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::superblock::Durability;
use arck_core_state::{Geometry, HeaderCopy, Inode, InodeNumber, LiveHeader, layout};
use arck_pm::mapping::{MapOptions, Mapping};
use arck_pm::{AddressSpace, LongFile};
use arck_protocol::control::{CONTROL_SIZE, ControlMemory};
use arck_protocol::operation::LightBarrier;
use arck_protocol::ring::Ring;
use arck_protocol::socket::{Access, Answer, Call, Caller, HandedOn, Welcome};
use arck_protocol::{Request, Response, ring, socket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use crate::connection::connect_socket;

/// Address space of the group region, in bytes, if nothing else is said; memory is used as it
/// fills. A generation of the auxiliary state can have half of it.
pub use arck_protocol::socket::REGION_SIZE;

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

region_shared! {
    /// What the kit keeps in the auxiliary state; found by auxiliary root 0.
    pub struct State {
        pub views: Views,
        pub numbers: Numbers,
        pub data: DataPages,
        pub arena: ArenaPages,
    }
}

impl State {
    fn create(session: &'static Session) -> Result<(), Errno> {
        let thread = session.thread()?;
        let region = session.region();
        let state = region
            .allocate_zeroed::<State>(thread.slot(), 1)
            .map_err(|_| Errno::NOMEM)?;
        region.get(state).arena.begin(session, thread.slot())?;
        region.get(state).views.begin(session, thread.slot())?;
        if let Some(root) = region.auxiliary_root(0) {
            root.store(state.raw(), Ordering::Release);
        }
        // The session is new: nobody else has set it.
        let _ = session.state.set(state);
        Ok(())
    }

    /// In a new generation of the auxiliary state, with nothing unfolded but what is `carried`. Where
    /// `keeping`, no page is free that was taken. ENOMEM.
    pub fn begin_again(
        &self,
        session: &'static Session,
        keeping: bool,
        carried: &Carried,
    ) -> Result<(), Errno> {
        let slot = session.thread()?.slot();
        let segments = self.data.look_at_old(session)?;
        self.arena.begin_again(session, slot, carried)?;
        self.data
            .begin_again(session, slot, segments, keeping, carried)?;
        self.numbers.begin_again(session, slot, carried);
        self.views.begin_again(session, slot)
    }

    /// What another member has made.
    fn find(session: &'static Session) -> Result<(), Errno> {
        let root = session.region().auxiliary_root(0).ok_or(Errno::IO)?;
        let state = crate::region::Offset::from_raw(root.load(Ordering::Acquire));
        let _ = session.state.set(state);
        Ok(())
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
    /// The trust group to be one of, at most [`socket::GROUP_NAME_MAX`] bytes; empty: none.
    pub group: &'a [u8],
    /// Makes the LibFS's own part of a new region; others join when it is done.
    pub prepare: fn(&'static Session) -> Result<(), Errno>,
}

impl Default for SessionOptions<'_> {
    fn default() -> Self {
        SessionOptions {
            region_size: REGION_SIZE,
            patience: Duration::ZERO,
            group: b"",
            prepare: |_| Ok(()),
        }
    }
}

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
fn find_region(file: &OwnedFd, welcome: &Welcome) -> Result<Region, NoRegion> {
    let region = match welcome.makes_region {
        true => {
            let size = rustix::fs::fstat(file)?.st_size;
            Region::create(file, u64::try_from(size).unwrap_or(0))?
        }
        false => Region::open(file)?,
    };
    match welcome.makes_region || region.is_ready() {
        true => Ok(region),
        false => Err(RegionError::NotARegion.into()),
    }
}

/// See the module's head.
pub struct Session {
    number: SessionNumber,
    welcome: Welcome,
    durability: Durability,
    connection: Connection,
    control_mapping: Mapping,
    headers: LongFile,
    /// Headers that can be reached: see [`reach`].
    headers_reached: AtomicU32,
    bitmap: Mapping,
    arena: LongFile,
    /// Bytes from the arena's beginning to where its two parts can be reached.
    arena_reached: [AtomicUsize; 2],
    pool: AddressSpace,
    access: Box<[AtomicU8]>,
    /// How many times segments had been given back when this process last dropped its mappings.
    withdrawals_seen: AtomicU64,
    is_of_group: bool,
    region: Region,
    state: std::sync::OnceLock<crate::region::Offset<State>>,
    barrier: LightBarrier,
    ended: AtomicBool,
    opened_before: forks::Before,
}

/// What a later controller is told of a description: its lock file does not come from there.
const CLAIM_AGAIN: Call = Call::Claim {
    was_sent: false,
    has_lock: true,
};

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
        // There is a controller, which may have much to do.
        let greeting = options.patience.max(connection::PATIENCE);
        let (socket, made_by, answer, descriptors) = loop {
            let made_by = connection::Sender::now();
            let socket = connection::connect_patiently(pool, &mut deadline, options.patience)
                .map_err(|errno| match errno {
                    Errno::NOENT if !pool.join(layout::SUPERBLOCK).exists() => {
                        ConnectError::NoPool { pool: name() }
                    }
                    Errno::NOENT | Errno::CONNREFUSED => ConnectError::NotServed { pool: name() },
                    errno => system("cannot reach the controller")(errno),
                })?;
            let caller = Caller::of_process(options.group).with_region(options.region_size);
            match connection::greet(&socket, caller, greeting) {
                Ok((answer, descriptors)) => break (socket, made_by, answer, descriptors),
                // It ended before it had answered: as if it had ended before.
                Err(Errno::CONNRESET | Errno::PIPE)
                    if !connection::is_over(&mut deadline, options.patience) =>
                {
                    arck_protocol::wait::sleep(connection::PAUSE);
                }
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
        let [headers, bitmap, control, _, region, arena] = &*descriptors else {
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
        arck_pm::guarded::install_guard();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let read_only = MapOptions::READ_ONLY;
        let read_write = MapOptions::READ_WRITE;
        let sync = read_write
            .synchronous(durability == Durability::Dax)
            .memory(durability != Durability::Paged);
        let mapped_region =
            find_region(region, &welcome).map_err(|error| ConnectError::Refused {
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
        let barrier = register_barrier();
        let session = descriptors.and(socket).into_session(|files| {
            let [_, _, control, wake, region, _, socket]: [OwnedFd; 7] =
                files.try_into().map_err(|_| wrong())?;
            let group = (!options.group.is_empty()).then_some((options.group, region));
            let patience = connection::patience();
            let session = Session {
                number: welcome.session,
                durability,
                control_mapping,
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
                is_of_group: !options.group.is_empty(),
                region: mapped_region,
                state: std::sync::OnceLock::new(),
                barrier,
                ended: AtomicBool::new(false),
                opened_before: forks::Before::default(),
                welcome,
            };
            Ok(Box::leak(Box::new(session)))
        })?;
        session.note_addresses();
        let prepared = match session.welcome.makes_region {
            false => State::find(session),
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
            session.region.watch(&session.control().header.departed);
        }
        if prepared.is_err() {
            session.end();
        }
        prepared.map_err(system("preparing the group region"))?;
        Ok(session)
    }

    /// Makes what is to be in a new region, and tells that it is whole.
    fn make_state(&'static self, options: &SessionOptions<'_>) -> Result<(), Errno> {
        State::create(self)?;
        (options.prepare)(self)?;
        self.region.set_ready();
        // From now on others find it as it is.
        match self.is_of_group {
            true => self.call(&Call::RegionMade).map(drop),
            false => Ok(()),
        }
    }

    /// The descriptors that this process keeps for the session.
    pub fn descriptors(&self) -> Vec<i32> {
        self.connection.descriptors()
    }

    /// Which member of the session this process is.
    pub fn member(&self) -> u16 {
        self.welcome.member
    }

    /// Whether other processes may have the session too.
    #[inline]
    pub fn is_of_group(&self) -> bool {
        self.is_of_group
    }

    pub fn number(&self) -> SessionNumber {
        self.number
    }
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }
    pub fn geometry(&self) -> &Geometry {
        &self.welcome.geometry
    }
    pub fn durability(&self) -> Durability {
        self.durability
    }
    pub fn region(&self) -> &Region {
        &self.region
    }
    /// The kit's own part of the auxiliary state.
    #[inline]
    pub fn state(&self) -> &State {
        // Set before `connect` gave anybody the session.
        self.region
            .get(self.state.get().copied().unwrap_or_default())
    }
    pub(crate) fn barrier(&self) -> LightBarrier {
        self.barrier
    }
    pub fn control(&self) -> &ControlMemory {
        // SAFETY: the mapping is page aligned, CONTROL_SIZE bytes long, read-write, and lives as
        // long as `self`.
        unsafe { ControlMemory::from_pointer(self.control_mapping.as_ptr()) }
    }

    /// The header of an inode number; `None` for 0 and beyond the table.
    #[inline]
    pub fn header(&self, number: InodeNumber) -> Option<&LiveHeader> {
        let is_reached = number < self.headers_reached.load(Ordering::Acquire);
        if number == 0 || !(is_reached || self.reach_header(number)) {
            return None;
        }
        // SAFETY: inside the part of the table that can be reached, aligned to 64 as the table
        // starts at a page; a header consists of atomics.
        Some(unsafe {
            &*self
                .headers
                .as_ptr()
                .cast::<LiveHeader>()
                .add(number as usize)
        })
    }

    /// One word (64 pages) of the page bitmap: a set bit is a page that the verified state uses.
    #[inline]
    pub fn bitmap_word(&self, word: usize) -> u64 {
        self.bitmap
            .bytes()
            .load_u64(word * 8, Ordering::Acquire)
            .unwrap_or(u64::MAX)
    }

    /// Whether this thread has met a segment that the controller did not let it map, since it last
    /// asked: then a page that cannot be reached is there, and [`Request::Admit`] may help.
    #[cold]
    pub fn take_denied(&self) -> bool {
        segments::DENIED.replace(false)
    }

    /// A header and its verified inode as one consistent state. `None`: the number is not alive.
    /// EAGAIN if the controller keeps changing it. EACCES if it lies where this session may not
    /// look: [`Request::Admit`], or for what is no directory [`Request::LookUp`], may help. What
    /// [`ThreadContext::unreached`] says if it could not be reached.
    pub fn verified(&self, number: InodeNumber) -> Result<Option<(HeaderCopy, Inode)>, Errno> {
        let header = self.header(number).ok_or(Errno::STALE)?;
        let mut since = None;
        for round in 0u32.. {
            if round > 1_000 {
                self.pause(*since.get_or_insert_with(Instant::now))?;
            }
            let Some(sequence) = header.read_begin() else {
                continue;
            };
            let copy = header.copy();
            if copy.inode == 0 {
                if header.read_end(sequence) {
                    return Ok(None);
                }
                continue;
            }
            let inode = Inode::read(self, copy.inode);
            if header.read_end(sequence) {
                if inode.is_none() {
                    if self.take_denied() {
                        return Err(Errno::ACCESS);
                    }
                    if let Some(errno) = crate::thread::unreached(self) {
                        return Err(errno);
                    }
                }
                return Ok(inode.map(|inode| (HeaderCopy { sequence, ..copy }, inode)));
            }
        }
        Err(Errno::AGAIN)
    }

    /// Waits, for no more than some time, for a controller that was in the middle of something
    /// when it was looked at; `since` when. EAGAIN if that is too long, EIO if the controller is
    /// gone and does not come back.
    pub(crate) fn pause(&self, since: Instant) -> Result<(), Errno> {
        let waited = since.elapsed();
        if waited > Duration::from_millis(50) && self.connection.is_cut() {
            self.connection.restore(self.control())?;
        } else if waited > PATIENCE.max(self.connection.patience()) {
            return Err(Errno::AGAIN);
        }
        arck_protocol::wait::sleep(Duration::from_micros(if waited.as_millis() < 10 {
            20
        } else {
            1000
        }));
        Ok(())
    }

    /// How long others are waited for (`ARCK_WAIT`).
    pub fn patience(&self) -> Duration {
        self.connection.patience()
    }

    /// Asks the controller. Blocks; must not be called inside an operation, since a fold waits
    /// for operations.
    pub fn request(&self, request: &Request) -> Result<Response, Errno> {
        if self.has_ended() {
            return Err(Errno::IO);
        }
        let patience = self.connection.patience();
        let (control, wake) = (self.control(), self.connection.wake());
        let index = ring::submit_within(control, self.member(), wake, request, patience)?;
        match self.connection.finish(control, index)? {
            Response::Error(errno) => Err(Errno::from_raw_os_error(errno)),
            response => Ok(response),
        }
    }

    /// Submits a request without waiting; its answer is fetched by [`Session::finish`], by any
    /// member of the group.
    pub fn submit(&self, request: &Request) -> Result<usize, Errno> {
        ring::submit(self.control(), ring::ALL, self.connection.wake(), request)
    }

    /// Ends all requests that were so submitted, whatever their answers are. While no other thread
    /// submits or finishes any. Blocks.
    pub(crate) fn finish_all_submitted(&self) {
        let submitted = Ring::of(self.control(), ring::ALL).leave();
        for index in (0..u32::BITS).filter(|index| submitted & 1 << index != 0) {
            let _ = self.finish(index as usize, true);
        }
    }

    /// The answer to a submitted request: `wait` as long as for any other, or ETIMEDOUT if there
    /// is none yet.
    pub fn finish(&self, index: usize, wait: bool) -> Result<Response, Errno> {
        if !wait && !ring::is_answered(self.control(), index) {
            return Err(Errno::TIMEDOUT);
        }
        match self.connection.finish(self.control(), index)? {
            Response::Error(errno) => Err(Errno::from_raw_os_error(errno)),
            response => Ok(response),
        }
    }

    /// As [`Session::request`], for requests answered by `Done`. A violation is EIO.
    pub fn ask(&self, request: &Request) -> Result<(), Errno> {
        match self.request(request)? {
            Response::Done => Ok(()),
            Response::Violation(_) => Err(Errno::IO),
            _ => Err(Errno::PROTO),
        }
    }

    fn call(&self, call: &Call) -> Result<(Answer, Received), Errno> {
        self.call_with(call, &[])
    }

    fn call_with(
        &self,
        call: &Call,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Received), Errno> {
        self.call_for_any(call, descriptors)?.whole()
    }

    /// The same, also where the process may not have all the descriptors that come with the answer. ENFILE if
    /// it is the controller that has none.
    fn call_for_any(&self, call: &Call, descriptors: &[BorrowedFd<'_>]) -> Result<Answered, Errno> {
        const MFILE: i32 = Errno::MFILE.raw_os_error();
        const NFILE: i32 = Errno::NFILE.raw_os_error();
        let began = Instant::now();
        loop {
            let control = Some(self.control());
            let answered = self.connection.call(call, descriptors, control)?;
            match answered.answer {
                // It has no descriptors left: others give theirs back some time.
                Answer::Error(MFILE | NFILE, _) => {
                    if began.elapsed() >= self.connection.patience() {
                        return Err(Errno::NFILE);
                    }
                    arck_protocol::wait::sleep(Duration::from_millis(5));
                }
                Answer::Error(errno, _) => return Err(Errno::from_raw_os_error(errno)),
                _ => return Ok(answered),
            }
        }
    }

    /// Bytes of a file that this session may read and cannot map, as the controller reads them out: no
    /// more than [`PIECE_MAX`](socket::PIECE_MAX), and fewer where the file ends. `copy` takes them from a
    /// descriptor and the position in it. Blocks.
    pub fn read_piece(
        &self,
        (inode, generation): (InodeNumber, u32),
        position: u64,
        length: usize,
        mut copy: impl FnMut(BorrowedFd<'_>, u64, usize) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let call = Call::ReadPiece {
            inode,
            generation,
            position,
            length: length.min(socket::PIECE_MAX) as u32,
        };
        loop {
            let (
                Answer::Piece {
                    number,
                    length: told,
                },
                descriptors,
            ) = self.call(&call)?
            else {
                return Err(Errno::PROTO);
            };
            let ([file], true) = (&*descriptors, told as usize <= length) else {
                return Err(Errno::PROTO);
            };
            copy(file.as_fd(), socket::PIECE_OFFSET as u64, told as usize)?;
            let mut word = [0; 8];
            if rustix::io::pread(file, &mut word, 0)? == 8 && u64::from_le_bytes(word) == number {
                return Ok(told as usize);
            }
            // Another thread has asked for a piece meanwhile, which is in the same place.
        }
    }

    /// A descriptor that stands for something that the session has open, wherever it is handed on
    /// ([`Call::HandOn`]). Blocks.
    pub fn hand_on(&self, of: HandedOn) -> Result<OwnedFd, Errno> {
        match self.call(&Call::HandOn(of))? {
            (Answer::Described(_), descriptors) => {
                let descriptors = descriptors.give_to_children();
                let descriptor = descriptors.into_iter().next().ok_or(Errno::PROTO)?;
                let descriptor = connection::placed(descriptor);
                self.connection.note_told(descriptor.as_fd(), &CLAIM_AGAIN);
                Ok(descriptor)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// What a descriptor stands for that was handed on to this process, which may use it so from now on
    /// ([`Call::Claim`]), as long as it keeps that descriptor; and its lock file, if one is kept and
    /// the caller has none (`has_lock`). `was_sent`: the descriptor came in a message. Blocks.
    pub fn claim(
        &self,
        descriptor: BorrowedFd<'_>,
        was_sent: bool,
        has_lock: bool,
    ) -> Result<(HandedOn, Option<Received>), Errno> {
        let call = Call::Claim { was_sent, has_lock };
        let (answer, received) = self.call_with(&call, &[descriptor])?;
        let Answer::Described(of) = answer else {
            return Err(Errno::PROTO);
        };
        self.connection.note_told(descriptor, &CLAIM_AGAIN);
        Ok((of, (received.len() == 1).then_some(received)))
    }

    /// Has the controller keep the lock file of a description that was handed on, for one message in which
    /// ([`Call::KeepLock`]). Blocks.
    pub fn keep_lock(&self, descriptor: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.call_with(&Call::KeepLock, &[descriptor, file])
            .map(drop)
    }

    /// The lock file of an inode, freshly opened in a mode in which the session may open the inode, or has
    /// it open ([`Call::LockFile`]): one descriptor. Blocks. ESTALE, EACCES, ENOLCK.
    pub fn lock_file(
        &self,
        inode: InodeNumber,
        generation: u32,
        access: Access,
    ) -> Result<Received, Errno> {
        let call = Call::LockFile {
            inode,
            generation,
            access,
        };
        match self.call_with(&call, &[])? {
            (Answer::Done, received) if received.len() == 1 => Ok(received),
            _ => Err(Errno::PROTO),
        }
    }

    /// Ends the session: the controller folds and releases everything before this returns.
    pub fn goodbye(&self) -> Result<(), Errno> {
        if !self.connection.is_of_process() {
            // It learns of the end when the connection is closed.
            return Err(Errno::PERM);
        }
        // A controller that is gone recovers the session when it is started again.
        match self.connection.call(&Call::Goodbye, &[], None)?.answer {
            Answer::Error(errno, _) => Err(Errno::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }

    /// Ends the session for this process, if that has not been done, and lets go of all that it has of
    /// files and shared memory; of a group others go on with that. To be called when no thread is
    /// inside an operation and none will begin one; a thread that does sees zeroes, and its stores
    /// reach nobody. Blocks as [`Session::goodbye`] does, unless the controller is gone.
    pub fn end(&'static self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        // All of it first: from the goodbye on this process's places are cleared away by others, and
        // may be theirs.
        crate::thread::leave(self);
        // Where the kernel has no memory for another mapping the old one just stays.
        let _ = self.pool.replace_all_by_zeroes();
        for file in [&self.arena, &self.headers] {
            let _ = file.replace_by_zeroes();
        }
        for mapping in [&self.bitmap, &self.control_mapping] {
            let _ = mapping.replace_by_zeroes();
        }
        self.region.let_go();
        // A controller that is gone, or was told already, ends the session by itself.
        let _ = self.goodbye();
        self.connection.close();
    }

    /// Whether the session has ended for this process ([`Session::end`]).
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Looks from now on as if this process had ended without a word, to a controller that is started
    /// later: for tests. Nothing of the session may be used any more.
    pub fn vanish(&self) {
        // Where the kernel has no memory for another mapping the old one just stays.
        let _ = self.arena.replace_by_zeroes();
    }

    pub(crate) fn opened_before(&self) -> &forks::Before {
        &self.opened_before
    }

    /// In a forked child, of a session of its parent's: it has ended here, and what it had open is closed.
    /// Nothing of it is mapped here.
    pub(crate) fn is_parents(&self) {
        let had_ended = self.ended.swap(true, Ordering::AcqRel);
        self.connection.close_in_child(had_ended);
    }

    /// This thread's place in the session.
    #[inline]
    pub fn thread(&'static self) -> Result<&'static ThreadContext, Errno> {
        crate::thread::context(self)
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
