//! A raw client: speaks the protocol and stores deltas by hand, through the format's own encode
//! functions. It has no policy and no caches: what it does is exactly what the test says.
#![allow(dead_code)]

pub mod check;

use arck_controller::{Controller, MkfsOptions, Options, RunningController, mkfs};
use arck_core_state::arena::{ARENA_SPAN, DELTA_FIRST, branch_offset};
use arck_core_state::branch::{BRANCH_SIZE, PARTNERS, StoredBranch, UNCHANGED_SIZE};
use arck_core_state::directory::{self, Dentry};
use arck_core_state::index::{self, HOLE, IndexRoot, capacity, slot};
use arck_core_state::record::{
    DeltaPageHeader, NEXT_OFFSET, RECORD_UNIT, RECORD_UNITS_MAX, Record, RecordRef, Seed,
    UNITS_PER_PAGE, effect,
};
use arck_core_state::{
    FileKind, Inode, InodeNumber, LiveHeader, PAGE_SIZE, PagePtr, PageWords, Pages,
};
use arck_pm::{AddressSpace, MapOptions, Mapping};
use arck_protocol::control::{CONTROL_SIZE, ControlMemory, open_entry};
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
use zerocopy::IntoBytes;

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
    births: HashMap<InodeNumber, u32>,
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
            births: HashMap::new(),
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

    // ---- verified state

    pub fn header(&self, number: InodeNumber) -> &LiveHeader {
        assert!(number < self.welcome.geometry.inode_count);
        // SAFETY: inside the mapping, aligned to 64, nothing but atomics, lives with `self`.
        unsafe {
            &*self
                .headers
                .as_ptr()
                .cast::<LiveHeader>()
                .add(number as usize)
        }
    }

    pub fn is_alive(&self, number: InodeNumber) -> bool {
        self.header(number).kind() == arck_core_state::header::HeaderKind::Alive
    }

    /// A versioned read.
    fn read<T>(&self, number: InodeNumber, read: impl Fn(&Inode) -> Option<T>) -> Option<T> {
        let header = self.header(number);
        for _ in 0..1000 {
            let sequence = header.read_begin().unwrap();
            let inode = Inode::read(self, header.inode.load(Ordering::Acquire));
            let value = inode.as_ref().and_then(&read);
            if header.read_end(sequence) {
                return value;
            }
        }
        panic!("inode {number} never rests");
    }

    pub fn inode(&self, number: InodeNumber) -> Inode {
        self.read(number, |inode| Some(*inode))
            .unwrap_or_else(|| panic!("inode {number}"))
    }

    pub fn verified(&self, directory: InodeNumber, name: &[u8]) -> Option<Dentry> {
        let hash = directory::hash_name(self.welcome.hash_seed, name);
        self.read(directory, |inode| {
            let buckets = inode.size / PAGE_SIZE;
            directory::lookup(self, inode.root, buckets, hash, name).ok()
        })
        .unwrap()
        .map(|found| found.dentry)
    }

    /// All verified names.
    pub fn names(&self, directory: InodeNumber) -> BTreeMap<Vec<u8>, InodeNumber> {
        self.read(directory, |inode| {
            let mut names = BTreeMap::new();
            for bucket in 0..inode.size / PAGE_SIZE {
                directory::for_each_in_bucket(self, inode.root, bucket, |dentry, _, name, _, _| {
                    names.insert(name.as_bytes().to_vec(), dentry.inode);
                })
                .ok()?;
            }
            Some(names)
        })
        .unwrap()
    }

    /// First byte of a verified page of a file; `None` = a hole.
    pub fn verified_byte(&self, number: InodeNumber, page: u64) -> Option<u8> {
        let pointer = self
            .read(number, |inode| index::lookup(self, inode.root, page))
            .unwrap();
        if pointer.is_null() {
            return None;
        }
        Some(self.page(pointer).unwrap()[0].load(Ordering::Relaxed) as u8)
    }

    // ---- deltas

    pub fn store(&self, offset: u64, bytes: &[u8]) {
        self.arena
            .bytes()
            .copy_from(offset as usize, bytes)
            .unwrap();
    }

    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.arena.bytes().copy_to(offset as usize, bytes).unwrap();
    }

    pub fn slot_offset(&self, number: InodeNumber) -> u64 {
        branch_offset(self.header(number).branch_slot()).unwrap()
    }

    pub fn branch(&self, number: InodeNumber) -> StoredBranch {
        let header = self.header(number);
        let mut bytes = [0; BRANCH_SIZE];
        self.load(self.slot_offset(number), &mut bytes);
        let (generation, epoch) = (header.generation(), header.ownership().epoch());
        StoredBranch::decode(&bytes, number, generation, epoch, header.fold())
            .unwrap_or_else(|| StoredBranch::unchanged(number, generation, epoch, header.fold()))
    }

    pub fn edit_branch(&self, number: InodeNumber, edit: impl FnOnce(&mut StoredBranch)) {
        assert_eq!(
            self.header(number).ownership().session(),
            self.welcome.session,
            "inode {number} is not owned"
        );
        let mut branch = self.branch(number);
        edit(&mut branch);
        self.store(self.slot_offset(number), branch.as_bytes());
    }

    /// A delta page.
    pub fn allocate(&mut self) -> u32 {
        if self.next_page == DELTA_FIRST + self.delta_pages {
            self.delta_pages *= 2;
            self.done(&Request::GrowArena {
                branch_pages: 0,
                delta_pages: self.delta_pages,
            });
        }
        self.next_page += 1;
        self.store(u64::from(self.next_page - 1) * PAGE_SIZE, &[0; 4096]);
        self.next_page - 1
    }

    pub fn append(&mut self, directory: InodeNumber, record: &Record<'_>) -> RecordRef {
        let fold = self.header(directory).fold();
        let place = self.tails.get(&(directory, fold)).copied();
        let (page, unit) = match place {
            Some((page, unit)) if unit + record.units() <= UNITS_PER_PAGE => (page, unit),
            _ => {
                let page = self.allocate();
                let header = DeltaPageHeader {
                    directory,
                    next: 0,
                    fold,
                    reserved: [0; 6],
                };
                self.store(u64::from(page) * PAGE_SIZE, header.as_bytes());
                match place {
                    Some((last, _)) => self.store(
                        u64::from(last) * PAGE_SIZE + NEXT_OFFSET,
                        &page.to_le_bytes(),
                    ),
                    None => self.edit_branch(directory, |branch| branch.tails[0] = page),
                }
                (page, 1)
            }
        };
        let first = page * UNITS_PER_PAGE as u32 + unit as u32;
        let mut buffer = [0; RECORD_UNITS_MAX * RECORD_UNIT];
        let seed = Seed {
            directory,
            fold,
            unit: first,
        };
        let length = record.encode(seed, &mut buffer).unwrap();
        self.store(u64::from(first) * RECORD_UNIT as u64, &buffer[..length]);
        self.tails
            .insert((directory, fold), (page, unit + record.units()));
        RecordRef {
            unit: first,
            sequence: record.sequence,
        }
    }

    pub fn record<'a>(&mut self, dentry: Dentry, name: &'a [u8], source: &'a [u8]) -> Record<'a> {
        self.sequence += 1;
        Record {
            state: 0,
            sequence: self.sequence,
            kind: dentry.kind,
            inode: dentry.inode,
            generation: dentry.generation,
            source_directory: 0,
            mode: self.births.get(&dentry.inode).copied().unwrap_or(0),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            created: 1_700_000_000_000_000_000,
            kills: [RecordRef::default(); 2],
            name,
            source,
        }
    }

    /// A granted number.
    pub fn number(&mut self) -> InodeNumber {
        if self.stock.is_empty() {
            match self.ask(&Request::GrantInodes { count: 256 }) {
                Response::Inodes(numbers) => self.stock = numbers,
                other => panic!("{other:?}"),
            }
        }
        self.stock.pop().unwrap()
    }

    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Option<Entry> {
        match self.overlay.get(&(directory, name.to_vec())) {
            Some(entry) => *entry,
            None if self.is_alive(directory) => {
                self.verified(directory, name).map(|dentry| (dentry, None))
            }
            None => None,
        }
    }

    pub fn create(&mut self, directory: InodeNumber, name: &[u8], kind: FileKind) -> InodeNumber {
        let number = self.number();
        self.create_as(directory, name, kind, number);
        number
    }

    pub fn create_as(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        kind: FileKind,
        number: InodeNumber,
    ) {
        self.edit_branch(number, |branch| branch.parent = directory);
        let dentry = Dentry {
            inode: number,
            generation: self.header(number).generation(),
            kind,
        };
        let mode = if kind == FileKind::Directory {
            0o755
        } else {
            0o644
        };
        self.births.insert(number, mode);
        let record = Record {
            state: effect::ADD,
            ..self.record(dentry, name, b"")
        };
        let place = self.append(directory, &record);
        self.overlay
            .insert((directory, name.to_vec()), Some((dentry, Some(place))));
    }

    fn clear(&self, record: RecordRef, bits: u32) {
        let at = u64::from(record.unit) * RECORD_UNIT as u64 + 4;
        let mut state = [0; 4];
        self.load(at, &mut state);
        let state = u32::from_le_bytes(state) & !bits;
        self.store(at, &state.to_le_bytes());
    }

    pub fn remove(&mut self, directory: InodeNumber, name: &[u8]) {
        let (dentry, place) = self.lookup(directory, name).unwrap();
        match place {
            Some(place) => self.clear(place, effect::ADD),
            None => {
                let record = Record {
                    state: effect::REMOVE_SOURCE,
                    ..self.record(dentry, b"", name)
                };
                self.append(directory, &record);
            }
        }
        self.overlay.insert((directory, name.to_vec()), None);
    }

    pub fn add_partner(&self, number: InodeNumber, partner: InodeNumber) {
        self.edit_branch(number, |branch| {
            if !branch.partners.contains(&partner) {
                let free = (0..PARTNERS).find(|&at| branch.partners[at] == 0).unwrap();
                branch.partners[free] = partner;
            }
        });
    }

    pub fn link(
        &mut self,
        number: InodeNumber,
        kind: FileKind,
        directory: InodeNumber,
        name: &[u8],
    ) {
        self.add_partner(number, directory);
        let dentry = Dentry {
            inode: number,
            generation: self.header(number).generation(),
            kind,
        };
        let record = Record {
            state: effect::ADD,
            ..self.record(dentry, name, b"")
        };
        let place = self.append(directory, &record);
        self.overlay
            .insert((directory, name.to_vec()), Some((dentry, Some(place))));
    }

    /// Renames; directories only within one parent.
    pub fn rename(&mut self, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8])) {
        let (dentry, source) = self.lookup(from.0, from.1).unwrap();
        let target = self.lookup(to.0, to.1);
        if from.0 != to.0 {
            self.add_partner(from.0, to.0);
            self.add_partner(to.0, from.0);
        }
        let mut record = self.record(dentry, to.1, b"");
        record.state = effect::ADD;
        record.source_directory = if from.0 == to.0 { 0 } else { from.0 };
        match source {
            None => {
                record.state |= effect::REMOVE_SOURCE;
                record.source = from.1;
            }
            Some(place) => {
                record.state |= effect::KILL_SOURCE;
                record.kills[0] = place;
            }
        }
        match target {
            Some((_, None)) => record.state |= effect::REPLACE,
            Some((_, Some(place))) => {
                record.state |= effect::KILL_TARGET;
                record.kills[1] = place;
            }
            None => {}
        }
        let place = self.append(to.0, &record);
        self.overlay.insert((from.0, from.1.to_vec()), None);
        self.overlay
            .insert((to.0, to.1.to_vec()), Some((dentry, Some(place))));
    }

    /// Puts a page into a file; the file reaches to its end at least.
    pub fn write(&mut self, number: InodeNumber, page: u64, pointer: PagePtr) {
        self.set_entry(number, page, pointer.0);
        let verified = if self.is_alive(number) {
            self.inode(number).size
        } else {
            0
        };
        self.edit_branch(number, |branch| {
            let size = match branch.size {
                UNCHANGED_SIZE => verified,
                size => size,
            };
            branch.size = size.max((page + 1) * PAGE_SIZE);
        });
    }

    /// Sets the size; `reach`: pages beyond the new end that the delta may have set.
    pub fn truncate(&mut self, number: InodeNumber, size: u64, reach: u64) {
        let end = size.div_ceil(PAGE_SIZE);
        self.edit_branch(number, |branch| {
            branch.size = size;
            branch.limit = branch.limit.min(end);
        });
        for page in end..end.max(reach) {
            self.set_entry(number, page, HOLE);
        }
    }

    pub fn set_entry(&mut self, number: InodeNumber, page: u64, entry: u64) {
        let mut root = self.branch(number).root;
        while page >= capacity(root.height()) {
            let above = if root == IndexRoot::EMPTY {
                0
            } else {
                let first = if root.height() == 0 {
                    root.leaf()
                } else {
                    root.pointer()
                };
                let above = self.allocate();
                self.store(u64::from(above) * PAGE_SIZE, &first.to_le_bytes());
                above
            };
            root = IndexRoot::new(u64::from(above), root.height() + 1);
        }
        if root.height() == 0 {
            root = IndexRoot::new(entry, 0);
        } else {
            let mut pointer = root.pointer();
            if pointer == 0 {
                pointer = u64::from(self.allocate());
                root = IndexRoot::new(pointer, root.height());
            }
            for level in (1..=root.height()).rev() {
                let at = pointer * PAGE_SIZE + 8 * slot(page, level) as u64;
                if level == 1 {
                    self.store(at, &entry.to_le_bytes());
                    break;
                }
                let mut bytes = [0; 8];
                self.load(at, &mut bytes);
                pointer = u64::from_le_bytes(bytes);
                if pointer == 0 {
                    pointer = u64::from(self.allocate());
                    self.store(at, &pointer.to_le_bytes());
                }
            }
        }
        self.edit_branch(number, |branch| branch.root = root);
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
