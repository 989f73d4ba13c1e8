//! A raw client: speaks the protocol and stores deltas by hand, through the format's own encode
//! functions. It has no policy and no caches: what it does is exactly what the test says.
#![allow(dead_code)]

pub mod check;
mod deltas;
mod verified;

use arck_controller::{Controller, MkfsOptions, Options, RunningController, mkfs};
use arck_core_state::arena::{ARENA_SPAN, DELTA_FIRST};
use arck_core_state::directory::Dentry;
use arck_core_state::record::RecordRef;
use arck_core_state::{InodeNumber, PAGE_SIZE, PagePtr, PageWords, Pages};
use arck_pm::{AddressSpace, MapOptions, Mapping};
use arck_protocol::control::{CONTROL_SIZE, ControlMemory, open_entry, slot_state};
use arck_protocol::operation::{LightBarrier, OperationSlot};
use arck_protocol::socket::{Answer, Call, Caller, Welcome, call, call_with};
use arck_protocol::{InodeList, PROTOCOL_VERSION, Request, Response, ring};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const ROOT: InodeNumber = 1;
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A pool in memory, gone when dropped.
pub struct TestPool {
    pub directory: tempfile::TempDir,
}

impl TestPool {
    pub fn new(size: u64) -> TestPool {
        let directory = tempfile::Builder::new()
            .prefix("arck-controller-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let options = MkfsOptions {
            size,
            mode: 0o755,
            force: false,
        };
        mkfs(&directory.path().join("pool"), &options, &mut |_, _| {}).unwrap();
        TestPool { directory }
    }
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }
    pub fn serve(&self) -> RunningController {
        self.serve_with(Options::default())
    }
    pub fn serve_with(&self, options: Options) -> RunningController {
        Controller::open(&self.path(), options)
            .unwrap()
            .spawn()
            .unwrap()
    }
}

/// Where a name leads, and the record that says so; `None` = a verified name.
pub type Entry = (Dentry, Option<RecordRef>);

/// A session.
pub struct Client {
    pub socket: OwnedFd,
    pub welcome: Welcome,
    control: Mapping,
    headers: Mapping,
    bitmap: Mapping,
    arena: Mapping,
    pub arena_file: OwnedFd,
    pub control_file: OwnedFd,
    wake: OwnedFd,
    space: AddressSpace,
    mapped: RefCell<Vec<bool>>,
    stock: Vec<InodeNumber>,
    next_page: u32,
    delta_pages: u32,
    tails: HashMap<(InodeNumber, u64), (u32, usize)>,
    sequence: u32,
    segments: Vec<u32>,
    next_data: Vec<PagePtr>,
    /// Where this session's changed names lead now, until they are folded.
    pub overlay: BTreeMap<(InodeNumber, Vec<u8>), Option<Entry>>,
    creations: HashMap<InodeNumber, u32>,
}

impl Pages for Client {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        let geometry = self.welcome.geometry;
        if !geometry.contains(pointer) {
            return None;
        }
        let segment = geometry.segment_of(pointer);
        self.map(segment)?;
        let page = self
            .space
            .bytes()
            .slice(pointer.address() as usize, PAGE_SIZE as usize)?;
        // SAFETY: mapped just now and until `self` is dropped; 512 aligned atomic words.
        Some(unsafe { &*page.as_ptr().cast::<PageWords>() })
    }
}

/// A socket like the controller's.
pub fn seqpacket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// A connection, if there is a controller.
pub fn try_dial(pool: &Path) -> Result<OwnedFd, Errno> {
    let socket = seqpacket();
    connect(&socket, &SocketAddrUnix::new(pool.join("socket"))?)?;
    Ok(socket)
}

pub fn dial(pool: &Path) -> OwnedFd {
    try_dial(pool).unwrap()
}

impl Client {
    pub fn connect(pool: &Path) -> Client {
        Client::connect_as(pool, Caller::of_process(b""))
    }

    /// As one of a trust group, perhaps.
    pub fn connect_as(pool: &Path, caller: Caller) -> Client {
        let socket = dial(pool);
        let hello = Call::Hello {
            version: PROTOCOL_VERSION,
            caller,
        };
        let (answer, descriptors) = call(&socket, &hello).unwrap();
        let Answer::Welcome(welcome) = answer else {
            panic!("{answer:?}");
        };
        if welcome.makes_region {
            let made = call(&socket, &Call::RegionMade).unwrap();
            assert_eq!(made.0, Answer::Done);
        }
        Client::of(socket, welcome, descriptors)
    }

    /// With what a session was sent when it was opened, in whichever process.
    pub fn of(socket: OwnedFd, welcome: Welcome, descriptors: Vec<OwnedFd>) -> Client {
        let [headers, bitmap, control, wake, _group, arena]: [OwnedFd; 6] =
            descriptors.try_into().unwrap();
        let geometry = welcome.geometry;
        let map = |file: &OwnedFd, size: u64, options| {
            Mapping::new(file, 0, size as usize, options).unwrap()
        };
        Client {
            control: map(&control, CONTROL_SIZE as u64, MapOptions::READ_WRITE),
            headers: map(
                &headers,
                geometry.header_table_size(),
                MapOptions::READ_ONLY,
            ),
            bitmap: map(&bitmap, geometry.page_bitmap_size(), MapOptions::READ_ONLY),
            arena: map(&arena, ARENA_SPAN, MapOptions::READ_WRITE),
            arena_file: arena,
            control_file: control,
            space: AddressSpace::reserve(geometry.span() as usize).unwrap(),
            mapped: RefCell::new(vec![false; geometry.segment_count as usize]),
            delta_pages: welcome.delta_pages,
            socket,
            welcome,
            wake,
            stock: Vec::new(),
            next_page: DELTA_FIRST,
            tails: HashMap::new(),
            sequence: 0,
            segments: Vec::new(),
            next_data: Vec::new(),
            overlay: BTreeMap::new(),
            creations: HashMap::new(),
        }
    }

    /// Goes on with the session at a controller that was started meanwhile.
    pub fn resume(&mut self, pool: &Path) {
        let socket = dial(pool);
        let (answer, mut descriptors) = self.resume_as(&socket, self.welcome.secret).unwrap();
        assert_eq!(answer, Answer::Resumed);
        self.wake = descriptors.pop().unwrap();
        self.socket = socket;
    }

    pub fn resume_as(
        &self,
        socket: &OwnedFd,
        secret: [u64; 2],
    ) -> Result<(Answer, Vec<OwnedFd>), Errno> {
        let resume = Call::Resume {
            version: PROTOCOL_VERSION,
            session: self.welcome.session,
            secret,
            member: self.welcome.member,
            caller: Caller::of_process(b""),
        };
        call_with(socket, &resume, &[self.control_file.as_fd()])
    }

    pub fn finish(&self, slot: usize) -> Response {
        ring::finish(self.control(), slot, PATIENCE).unwrap()
    }

    // ---- messages

    pub fn control(&self) -> &ControlMemory {
        // SAFETY: page-aligned, mapped writable for CONTROL_SIZE bytes as long as `self` lives.
        unsafe { ControlMemory::from_pointer(self.control.as_ptr()) }
    }

    pub fn ask(&self, request: &Request) -> Response {
        ring::request(
            self.control(),
            self.welcome.member,
            self.wake.as_fd(),
            request,
            PATIENCE,
        )
        .unwrap()
    }

    /// Asks what no encoder makes.
    pub fn ask_bytes(&self, bytes: &[u8]) -> Response {
        let control = self.control();
        let claimed = ring::Ring::of(control, self.welcome.member).try_claim();
        let index = claimed.expect("a slot");
        let slot = &control.requests[index];
        for (word, part) in slot.payload.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        slot.length.store(bytes.len() as u32, Ordering::Relaxed);
        slot.state.store(slot_state::SUBMITTED, Ordering::Release);
        ring::ring_again(control, 1 << index);
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).unwrap();
        self.finish(index)
    }

    /// Asks to move a name that is too long for a message.
    pub fn ask_with_long_name(&self, directory: InodeNumber) -> Response {
        let name = [&256u16.to_le_bytes()[..], &[b'x'; 256]].concat();
        let directory = directory.to_le_bytes();
        let parts = [&[6][..], &directory, &name, &directory, &name, &[0; 4]];
        self.ask_bytes(&parts.concat())
    }

    pub fn try_ask(&self, request: &Request) -> Result<Response, Errno> {
        ring::request(
            self.control(),
            self.welcome.member,
            self.wake.as_fd(),
            request,
            PATIENCE,
        )
    }

    /// Asks, and does not wait for the answer.
    pub fn submit(&self, request: &Request) -> Result<usize, Errno> {
        ring::submit(
            self.control(),
            self.welcome.member,
            self.wake.as_fd(),
            request,
        )
    }

    pub fn done(&self, request: &Request) {
        assert_eq!(self.ask(request), Response::Done, "{request:?}");
    }

    pub fn errno(&self, request: &Request) -> Errno {
        match self.ask(request) {
            Response::Error(errno) => Errno::from_raw_os_error(errno),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    pub fn acquire(&self, inodes: &[InodeNumber]) {
        self.done(&Request::Acquire {
            inodes: InodeList::new(inodes).unwrap(),
        });
    }

    pub fn commit_request(inodes: &[InodeNumber], release: bool) -> Request {
        Request::Commit {
            inodes: InodeList::new(inodes).unwrap(),
            release,
        }
    }

    /// Folds; the overlay of what was folded goes.
    pub fn commit(&mut self, inodes: &[InodeNumber], release: bool) {
        self.done(&Client::commit_request(inodes, release));
        self.forget_overlay();
    }

    pub fn commit_all(&mut self, release: bool) {
        self.done(&Request::CommitAll { release });
        self.overlay.clear();
    }

    /// Drops what is verified now from the overlay.
    pub fn forget_overlay(&mut self) {
        let overlay = std::mem::take(&mut self.overlay);
        for ((directory, name), entry) in overlay {
            let wanted = entry.map(|(dentry, _)| dentry.inode);
            let verified = self
                .is_alive(directory)
                .then(|| self.verified(directory, &name))
                .flatten()
                .map(|dentry| dentry.inode);
            if wanted != verified {
                self.overlay.insert((directory, name), entry);
            }
        }
    }

    /// A fold that keeps the overlay: nothing was changed since the last.
    pub fn recall_own(&self, inodes: &[InodeNumber]) {
        self.done(&Client::commit_request(inodes, false));
    }

    pub fn recall(&self, inodes: &[InodeNumber]) {
        self.done(&Request::Recall {
            inodes: InodeList::new(inodes).unwrap(),
        });
    }

    fn map(&self, segment: u32) -> Option<()> {
        if self.mapped.borrow()[segment as usize] {
            return Some(());
        }
        let segments = vec![segment];
        let (answer, descriptors) = call(&self.socket, &Call::MapSegments { segments }).unwrap();
        if !matches!(answer, Answer::Segments(_)) {
            return None;
        }
        self.map_file(segment, &descriptors[0], MapOptions::READ_ONLY);
        Some(())
    }

    fn map_file(&self, segment: u32, file: &OwnedFd, options: MapOptions) {
        let size = self.welcome.geometry.segment_size as usize;
        self.space
            .map(segment as usize * size, size, file, 0, options)
            .unwrap();
        self.mapped.borrow_mut()[segment as usize] = true;
    }

    pub fn goodbye(self) {
        assert!(matches!(
            call(&self.socket, &Call::Goodbye).unwrap().0,
            Answer::Done
        ));
    }

    /// A data segment of its own; ENOSPC.
    pub fn grant_segment(&mut self) -> Result<u32, Errno> {
        let (answer, descriptors) = call(&self.socket, &Call::GrantSegment).unwrap();
        match answer {
            Answer::Segments(segments) => {
                self.map_file(segments[0], &descriptors[0], MapOptions::READ_WRITE);
                self.segments.push(segments[0]);
                Ok(segments[0])
            }
            Answer::Error(errno, _) => Err(Errno::from_raw_os_error(errno)),
            other => panic!("{other:?}"),
        }
    }

    /// A free data page, filled with a byte; ENOSPC.
    pub fn data_page(&mut self, fill: u8) -> Result<PagePtr, Errno> {
        let geometry = self.welcome.geometry;
        while self.next_data.is_empty() {
            let segment = self.grant_segment()?;
            let first = geometry.first_page(segment);
            let free = (0..geometry.pages_per_segment())
                .map(|i| PagePtr(first.0 + i))
                .filter(|page| !self.is_used(*page))
                .rev();
            self.next_data = free.collect();
        }
        let page = self.next_data.pop().unwrap();
        let bytes = [fill; PAGE_SIZE as usize];
        self.space
            .bytes()
            .copy_from(page.address() as usize, &bytes)
            .unwrap();
        Ok(page)
    }

    pub fn is_used(&self, page: PagePtr) -> bool {
        let word = self
            .bitmap
            .bytes()
            .load_u64((page.0 / 64 * 8) as usize, Ordering::Acquire)
            .unwrap();
        word >> (page.0 % 64) & 1 == 1
    }

    // ---- operations in flight, open table

    pub fn operation(&self, thread: usize) -> &OperationSlot {
        &self.control().threads[thread]
    }

    pub fn enter(&self, thread: usize) {
        self.operation(thread).enter(LightBarrier::Fence);
    }

    pub fn list_open(&self, place: usize, number: InodeNumber) {
        let entry = open_entry(number, self.header(number).generation());
        self.control().open[place].store(entry, Ordering::SeqCst);
    }

    pub fn unlist(&self, place: usize) {
        self.control().open[place].store(0, Ordering::SeqCst);
    }
}
