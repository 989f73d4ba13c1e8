//! Space: which segments there are, whose they are, and which pages are in use.
//!
//! # Invariants
//! * `used` (in private memory) holds every page that the verified state refers to, and those
//!   that the change being prepared has allocated; the shared bitmap follows at commit.
//! * A page freed by a change is allocated again only after that change is durable.
//! * Segments kept back for metadata are never granted for data: a full pool can still fold.
//! * A page of a class is allocated in a segment of that class, or in one of *nobody*.
//! * Where there are several users, a segment that goes to another user or class is empty, no
//!   session looks at it, and its file is another one: what was mapped before shows nothing new.
//!   One that nobody needs becomes free first ([`crate::freeing::give_back`]), which its entry remembers.
//!   What was given back while there was one user keeps its file, which nobody else has: it is emptied.
//! * A data segment that had an owner is given to another one, or used for metadata, only after
//!   a read lease has shown that no writable descriptor or mapping of it is left.

use crate::pool::files::{Pool, punched, resized};
use crate::pool::reach::is_out_of_reach;
use crate::space::granted::Granted;
use crate::space::writers::Writers;
use crate::threads::workers::Workers;
use arck_controller_state::segments::{
    CONTROLLER, STALE, SegmentEntry, SegmentKind, TOGETHER, UNSHARED,
};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{Geometry, PagePtr, SegmentNumber, cast};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// So long is waited for a segment to be made ready before it is given up for another: for as long
/// as no machine needs.
const PREPARE_PATIENCE: Duration = Duration::from_secs(1);

/// Label of what only root and the pool's user may read.
pub const NOBODY: u32 = 0;
/// Bytes that are kept back for metadata in small pools.
const RESERVE_MIN: u64 = 2 << 20;
/// Bytes that are kept back, where there are several users, for metadata of classes; at most an
/// eighth of the pool.
const CLASS_RESERVE: u64 = 4 << 20;

/// The part of a pool's segments that goes to classes of more than one condition at most, each of
/// which takes whole segments: a user can make as many of them as his groups have combinations.
const CONJUNCTIONS: u32 = 4;

/// The controller's own view of space.
pub struct Space {
    pub geometry: Geometry,
    pub(super) used: Vec<u64>,
    pub(super) used_count: u64,
    pub segments: Vec<SegmentEntry>,
    pub used_in: Vec<u32>,
    /// Where the search for a free metadata page goes on.
    cursor: u64,
    /// No segment below this one is free.
    first_free: SegmentNumber,
    pub(super) free_segments: u32,
    pub(super) granted: Granted,
    /// Free pages of metadata segments of *nobody*: those of a class are of use to it alone.
    pub(super) metadata_free: u64,
    /// Where pages of a class were last found.
    last_of: HashMap<(SegmentKind, u32), SegmentNumber>,
    /// The same of a file that sessions have mapped together.
    pub(super) last_together: Option<SegmentNumber>,
    /// Who was sent segments of such files to write.
    pub(super) writers: Writers,
    /// Of each segment, how many sessions were sent it read-only and are still there.
    pub sent: Vec<u32>,
    /// The session that gave a segment back last, as long as nobody has got it since.
    pub(super) given_back: HashMap<SegmentNumber, SessionNumber>,
    /// There are other users than root and the pool's: see [`crate::state::classes`].
    pub shared: bool,
    /// Segments with pages that cannot be emptied yet: they go to nobody.
    quarantined: BTreeSet<SegmentNumber>,
    /// Segments that are being made ready for somebody, and have kept that waiting: no more do.
    preparing: BTreeMap<SegmentNumber, Receiver<Result<(), Errno>>>,
    pub workers: Workers,
    /// Metadata pages that are to stay free for folds ([`crate::sessions::credits`]).
    pub kept: u64,
    /// Something may be empty that was not when [`Space::find_unused`] was called last.
    pub may_have_unused: bool,
    /// Labels may be on no segment that were on some.
    pub has_lost_labels: bool,
}

impl Space {
    /// Reads segment table and bitmap (after the journal's replay).
    pub fn load(pool: &Pool) -> Space {
        let geometry = pool.geometry();
        let words = usize::try_from(geometry.page_count().div_ceil(64)).unwrap_or(0);
        let bitmap = pool.bitmap();
        let used: Vec<u64> = (0..words)
            .map(|i| bitmap.load_u64(i * 8, Ordering::Relaxed).unwrap_or(0))
            .collect();
        let segments: Vec<SegmentEntry> = (0..geometry.segment_count)
            .map(|s| pool.segment_entry(s))
            .collect();
        let mut space = Space {
            geometry,
            used_count: used.iter().map(|w| u64::from(w.count_ones())).sum(),
            used,
            used_in: vec![0; segments.len()],
            cursor: 0,
            first_free: 0,
            free_segments: 0,
            granted: Granted::default(),
            metadata_free: 0,
            last_of: HashMap::new(),
            last_together: None,
            writers: Writers::of(&segments),
            sent: vec![0; segments.len()],
            given_back: HashMap::new(),
            shared: segments.iter().any(|entry| entry.class != NOBODY),
            kept: 0,
            may_have_unused: true,
            has_lost_labels: true,
            quarantined: BTreeSet::new(),
            preparing: BTreeMap::new(),
            workers: Workers::default(),
            segments,
        };
        for segment in 0..geometry.segment_count {
            let range = space.words_of(segment);
            let count: u32 = space.used[range].iter().map(|w| w.count_ones()).sum();
            space.used_in[segment as usize] = count;
            let entry = &space.segments[segment as usize];
            space
                .granted
                .add(entry, geometry.pages_per_segment() - u64::from(count));
            match space.kind(segment) {
                SegmentKind::Free => space.free_segments += 1,
                SegmentKind::Metadata if space.label(segment) == NOBODY => {
                    space.metadata_free += geometry.pages_per_segment() - u64::from(count);
                }
                SegmentKind::Metadata | SegmentKind::Data => {}
            }
        }
        space
    }

    fn words_of(&self, segment: SegmentNumber) -> std::ops::Range<usize> {
        let words = (self.geometry.pages_per_segment() / 64) as usize;
        let first = segment as usize * words;
        first..first + words
    }

    pub fn kind(&self, segment: SegmentNumber) -> SegmentKind {
        self.segments
            .get(segment as usize)
            .map_or(SegmentKind::Free, SegmentEntry::kind)
    }

    pub fn entry(&self, segment: SegmentNumber) -> Option<SegmentEntry> {
        self.segments.get(segment as usize).copied()
    }

    /// The read class of a segment.
    pub fn label(&self, segment: SegmentNumber) -> u32 {
        self.segments
            .get(segment as usize)
            .map_or(NOBODY, |entry| entry.class)
    }

    /// The read class of a page's segment.
    pub fn label_of(&self, page: PagePtr) -> u32 {
        if self.geometry.contains(page) {
            self.label(self.geometry.segment_of(page))
        } else {
            NOBODY
        }
    }

    /// A session was sent a segment read-only, or has ended.
    pub fn note_sent(&mut self, segment: SegmentNumber, sent: bool) {
        if let Some(count) = self.sent.get_mut(segment as usize) {
            *count = if sent {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            self.may_have_unused |= *count == 0;
        }
    }

    pub fn is_used(&self, page: PagePtr) -> bool {
        self.used
            .get((page.0 / 64) as usize)
            .is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
    }

    /// The word of the bitmap that holds a page's bit, as it is now.
    pub fn word(&self, index: u64) -> u64 {
        self.used.get(cast::index(index)).copied().unwrap_or(0)
    }

    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Pages that the verified state does not use, beyond the reserve.
    pub fn pages_unused(&self) -> u64 {
        let kept = u64::from(self.kept_from_data()) * self.geometry.pages_per_segment();
        (self.geometry.page_count() - self.used_count).saturating_sub(kept)
    }

    /// Segments kept back for metadata: a part of the pool, and at least [`RESERVE_MIN`].
    fn reserve(&self) -> u32 {
        let least = RESERVE_MIN.div_ceil(self.geometry.segment_size);
        (self.geometry.segment_count / 32).max(cast::low(least))
    }

    /// Segments that are given to no session: those for metadata of *nobody*, and of classes.
    fn kept_from_data(&self) -> u32 {
        let most = CLASS_RESERVE / self.geometry.segment_size;
        let for_classes = cast::low(most).min(self.geometry.segment_count / 8);
        self.reserve() + if self.shared { for_classes } else { 0 }
    }

    /// Metadata pages that could still be allocated.
    pub fn metadata_headroom(&self) -> u64 {
        self.metadata_free + u64::from(self.free_segments) * self.geometry.pages_per_segment()
    }

    /// Allocates a page of a segment of a class that is there already, and that no session
    /// owns. `None`: a new segment is needed.
    pub fn allocate_labelled(&mut self, kind: SegmentKind, label: u32) -> Option<PagePtr> {
        let pages = self.geometry.pages_per_segment();
        let fits = |space: &Space, segment: SegmentNumber| {
            let entry = &space.segments[segment as usize];
            (entry.kind(), entry.class, entry.owner) == (kind, label, 0)
                && (kind == SegmentKind::Metadata || entry.uid == CONTROLLER)
                && u64::from(space.used_in[segment as usize]) < pages
        };
        let last = self.last_of.get(&(kind, label)).copied();
        let segment = last
            .filter(|&segment| fits(self, segment))
            .or_else(|| (0..self.geometry.segment_count).find(|&segment| fits(self, segment)))?;
        self.last_of.insert((kind, label), segment);
        self.allocate_in(segment)
    }

    /// A page of a segment that is not in use, if there is one.
    pub(super) fn allocate_in(&mut self, segment: SegmentNumber) -> Option<PagePtr> {
        let word = self
            .words_of(segment)
            .find(|&word| self.used[word] != u64::MAX)?;
        let page = PagePtr(word as u64 * 64 + u64::from(self.used[word].trailing_ones()));
        self.set_used(page, true);
        Some(page)
    }

    /// Whether there is no segment for a class's metadata yet, and plenty of space for one.
    pub fn lacks(&self, label: u32) -> bool {
        let is_of =
            |entry: &SegmentEntry| (entry.kind(), entry.class) == (SegmentKind::Metadata, label);
        self.has_segment_for_class()
            && self.free_segments > self.geometry.segment_count / 4
            && !self.segments.iter().any(is_of)
    }

    /// Whether a segment may be used for a class: none of those kept for metadata of *nobody*, or
    /// for folds.
    pub fn has_segment_for_class(&self) -> bool {
        let left = self
            .metadata_headroom()
            .saturating_sub(self.geometry.pages_per_segment());
        self.free_segments > self.reserve() && left >= self.kept
    }

    /// Whether there may be one more segment of the classes that `is_conjunction` says labels are of.
    pub fn has_segment_for_conjunction(&self, is_conjunction: impl Fn(u32) -> bool) -> bool {
        let labels = self.segments.iter().map(|entry| entry.class);
        let taken = labels.filter(|&label| is_conjunction(label)).count();
        taken < (self.geometry.segment_count / CONJUNCTIONS) as usize
    }

    /// Allocates a metadata page of *nobody*, of a segment that is there already; `None`: a new
    /// segment is needed.
    pub fn allocate_metadata(&mut self) -> Option<PagePtr> {
        if self.metadata_free == 0 {
            return None;
        }
        let per_segment = (self.geometry.pages_per_segment() / 64) as usize;
        let mut word = cast::index(self.cursor);
        let end = self.used.len();
        // One round, segment by segment, from the cursor on.
        let mut left = end + per_segment;
        while left > 0 {
            if word >= end {
                word = 0;
            }
            let segment = word / per_segment;
            let full = u64::from(self.used_in[segment]) == self.geometry.pages_per_segment();
            let entry = &self.segments[segment];
            if entry.kind() != SegmentKind::Metadata || entry.class != NOBODY || full {
                let skip = per_segment - word % per_segment;
                word += skip;
                left = left.saturating_sub(skip);
                continue;
            }
            if self.used[word] != u64::MAX {
                let page = PagePtr(word as u64 * 64 + u64::from(self.used[word].trailing_ones()));
                self.cursor = word as u64;
                self.set_used(page, true);
                return Some(page);
            }
            word += 1;
            left -= 1;
        }
        None
    }

    /// Replaces an entry of the private segment table; the stored one follows at commit.
    pub fn set_entry(&mut self, segment: SegmentNumber, entry: SegmentEntry) {
        let free = self.geometry.pages_per_segment()
            - u64::from(self.used_in.get(segment as usize).copied().unwrap_or(0));
        let Some(place) = self.segments.get_mut(segment as usize) else {
            return;
        };
        match place.kind() {
            SegmentKind::Free => self.free_segments -= 1,
            SegmentKind::Metadata if place.class == NOBODY => self.metadata_free -= free,
            SegmentKind::Metadata | SegmentKind::Data => {}
        }
        self.granted.take(place, free);
        self.granted.add(&entry, free);
        self.has_lost_labels |= place.class != NOBODY && place.class != entry.class;
        self.may_have_unused |= entry.owner == 0;
        if entry.flags & TOGETHER == 0 {
            self.writers.forget(segment);
        }
        if entry.owner != 0 || entry.kind() != SegmentKind::Data {
            self.given_back.remove(&segment);
        }
        *place = entry;
        match entry.kind() {
            SegmentKind::Free => {
                self.free_segments += 1;
                self.first_free = self.first_free.min(segment);
            }
            SegmentKind::Metadata if entry.class == NOBODY => {
                self.metadata_free += free;
                self.cursor = segment as u64 * (self.geometry.pages_per_segment() / 64);
            }
            SegmentKind::Metadata | SegmentKind::Data => {}
        }
    }

    /// Pages of segments in nobody's use, beyond the reserve.
    pub fn grantable(&self) -> u64 {
        u64::from(self.free_segments.saturating_sub(self.kept_from_data()))
            * self.geometry.pages_per_segment()
    }

    /// Pages of a segment that are not in use.
    pub fn unused_in(&self, segment: SegmentNumber) -> u64 {
        let used = self.used_in.get(segment as usize).copied().unwrap_or(0);
        self.geometry.pages_per_segment() - u64::from(used)
    }

    /// Whether a segment in nobody's use is there beyond the reserve.
    pub fn has_segment_for_data(&self) -> bool {
        self.free_segments > self.kept_from_data()
    }

    /// A free segment with its backing allocated: for metadata any, for data only beyond the
    /// reserve, and if `kept` pages are left for metadata. An ownerless data segment with nothing
    /// in it counts as free once nobody can write it any more. ENOSPC.
    pub fn find_segment(
        &mut self,
        pool: &Pool,
        kind: SegmentKind,
        kept: u64,
    ) -> Result<SegmentNumber, Errno> {
        let may_take_free = kind == SegmentKind::Metadata || self.may_take_for_data(kept);
        if may_take_free && let Some(segment) = self.take_free(pool)? {
            return Ok(segment);
        }
        if kind == SegmentKind::Metadata {
            for segment in 0..self.geometry.segment_count {
                if self.is_adoptable(segment)
                    && self.used_in[segment as usize] == 0
                    && self.may_be_renewed(segment)
                    && is_out_of_reach(pool, segment)
                    && self.make_ready(pool, segment, 0, false).is_ok()
                {
                    return Ok(segment);
                }
            }
        }
        Err(Errno::NOSPC)
    }

    /// Whether a free segment may be taken for data, so that `kept` pages are left for metadata.
    fn may_take_for_data(&self, kept: u64) -> bool {
        let headroom = self.metadata_headroom();
        let left = headroom.saturating_sub(self.geometry.pages_per_segment());
        self.has_segment_for_data() && left >= kept
    }

    fn next_free(&self) -> Option<SegmentNumber> {
        (self.first_free..self.geometry.segment_count)
            .filter(|segment| !self.preparing.contains_key(segment))
            .find(|&segment| self.kind(segment) == SegmentKind::Free)
    }

    /// The free segment that [`Space::find_segment`] would take for data.
    pub(super) fn next_free_for_data(&self, kept: u64) -> Option<SegmentNumber> {
        self.may_take_for_data(kept).then(|| self.next_free())?
    }

    /// A free segment with its backing allocated, if there is one. ENOSPC.
    fn take_free(&mut self, pool: &Pool) -> Result<Option<SegmentNumber>, Errno> {
        let Some(segment) = self.next_free() else {
            return Ok(None);
        };
        if self.preparing.is_empty() {
            self.first_free = segment;
        }
        match self.segments[segment as usize].flags & STALE {
            0 => pool.allocate_segment(segment)?,
            _ => match self.make_ready(pool, segment, 0, false) {
                // Somebody pinned its pages: the next one is another.
                Err(Errno::AGAIN) => return Ok(None),
                other => other?,
            },
        }
        // Without this one.
        pool.order_spares(self.free_segments.saturating_sub(1));
        Ok(Some(segment))
    }

    pub fn is_adoptable(&self, segment: SegmentNumber) -> bool {
        let is_nobodys =
            |entry: SegmentEntry| entry.kind() == SegmentKind::Data && entry.owner == 0;
        self.entry(segment).is_some_and(is_nobodys)
            && !self.quarantined.contains(&segment)
            && !self.preparing.contains_key(&segment)
    }

    /// A session has given an empty segment back.
    pub fn note_given_back(&mut self, segment: SegmentNumber, session: SessionNumber) {
        self.given_back.insert(segment, session);
    }

    /// From now on these segments go to nobody, whoever gives them up.
    pub fn quarantine(&mut self, segments: impl IntoIterator<Item = SegmentNumber>) {
        self.quarantined.extend(segments);
    }

    /// Of those in quarantine, all others may be given again.
    pub fn keep_in_quarantine(&mut self, segments: &BTreeSet<SegmentNumber>) {
        self.quarantined
            .retain(|segment| segments.contains(segment));
    }

    /// Whether an empty segment can become another's: where there are several users, if no session looks at it, since
    /// its file becomes another one then.
    pub(super) fn may_be_renewed(&self, segment: SegmentNumber) -> bool {
        !self.shared || self.sent[segment as usize] == 0
    }

    /// Makes an empty segment's file anew, where there are several users: who kept a mapping of
    /// the old one keeps what was in it, and sees nothing of what comes.
    fn renew(&self, pool: &Pool, segment: SegmentNumber) -> Result<(), Errno> {
        match self.shared {
            true => pool.replace_segment(segment),
            false => pool.allocate_segment(segment),
        }
    }

    /// Makes a segment whole that had an owner and is out of reach: of its length and allocated,
    /// whatever the owner did to the file. Where it goes to another user or class (it is not the
    /// `same`), leftovers, and what pinned pages (which leases say nothing of) might still write,
    /// are gone first.
    pub(super) fn make_ready(
        &mut self,
        pool: &Pool,
        segment: SegmentNumber,
        used: u32,
        is_same: bool,
    ) -> Result<(), Errno> {
        pool.with_room(|| self.try_make_ready(pool, segment, used, is_same))
    }

    fn try_make_ready(
        &mut self,
        pool: &Pool,
        segment: SegmentNumber,
        used: u32,
        is_same: bool,
    ) -> Result<(), Errno> {
        let changes = used == 0 && !is_same;
        let entry = self.entry(segment).unwrap_or_default();
        let is_seen_by_others = match entry.kind() {
            SegmentKind::Free => entry.flags & UNSHARED == 0,
            SegmentKind::Metadata | SegmentKind::Data => self.shared,
        };
        if (changes && is_seen_by_others) || (used == 0 && !pool.has_segment(segment)) {
            return pool.replace_segment(segment);
        }
        let file = pool.open_segment(segment, OFlags::RDWR)?;
        let size = self.geometry.segment_size;
        let user = entry.uid;
        let work = move || {
            rustix::fs::ftruncate(&file, size)?;
            resized(&file);
            if changes {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, punch, 0, size)?;
                punched(&file, 0, size);
            }
            crate::pool::files::allocate(&file, 0, size)
        };
        let worker = self.workers.start(user, work)?;
        match worker.recv_timeout(PREPARE_PATIENCE) {
            Ok(prepared) => prepared,
            Err(RecvTimeoutError::Timeout) => {
                self.preparing.insert(segment, worker);
                Err(Errno::AGAIN)
            }
            Err(RecvTimeoutError::Disconnected) => Err(Errno::IO),
        }
    }

    /// What kept somebody waiting may have been made ready since.
    pub fn forget_finished(&mut self) {
        self.preparing
            .retain(|_, worker| worker.try_recv() == Err(TryRecvError::Empty));
    }

    /// A segment for metadata of a class, or for data that the controller moves to one: a new one,
    /// or an empty one that nobody has. ENOSPC.
    pub fn find_class_segment(
        &mut self,
        pool: &Pool,
        kind: SegmentKind,
    ) -> Result<SegmentNumber, Errno> {
        if self.has_segment_for_class()
            && (kind == SegmentKind::Metadata || self.has_segment_for_data())
            && let Some(segment) = self.take_free(pool)?
        {
            return Ok(segment);
        }
        let empty = (0..self.geometry.segment_count).find(|&segment| {
            self.is_adoptable(segment)
                && self.used_in[segment as usize] == 0
                && self.may_be_renewed(segment)
                && is_out_of_reach(pool, segment)
        });
        let segment = empty.ok_or(Errno::NOSPC)?;
        self.renew(pool, segment)?;
        Ok(segment)
    }
}
