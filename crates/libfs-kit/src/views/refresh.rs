//! The table of cached inodes, and bringing a view up to date.
//!
//! # Invariants
//! * There is at most one cached inode for a number; it is never freed, only made the view of
//!   another generation when the number is used again, which cannot happen while it is open, nor before
//!   everybody has left who may have looked it up.
//! * [`Viewing::view`] returns only when the view agrees with the header that it was compared
//!   with: owned by this session and synchronous with ownership and fold number, or read from
//!   the verified state at an even sequence that has not changed.

use crate::Session;
use crate::delta::Branch;
use crate::need::{Attempt, Need, Stop};
use crate::ownership::{self, Owner};
use crate::region::{AtomicOffset, Offset};
use crate::views::{CachedInode, Directory, InodeLeaf, LEAF, Viewing, begun, flag};
use arck_core_state::branch::{UNCHANGED_TIME, offset};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, LiveHeader, Ownership};
use arck_protocol::operation::Expected;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// The cached inode of a number, if there is one, in a table that begins there.
#[inline]
pub fn known_in(
    session: &'static Session,
    table: Offset<AtomicOffset<InodeLeaf>>,
    number: InodeNumber,
) -> Option<&'static CachedInode> {
    let place = leaf_place(session, table, number)?;
    let region = session.region();
    let leaf = region.try_get(place.load(Ordering::Acquire))?;
    region.try_get(entry_in(leaf, number).load(Ordering::Acquire))
}

/// Where the leaf of a number hangs; `None` for numbers that the pool does not have.
#[inline]
fn leaf_place(
    session: &'static Session,
    leaves: Offset<AtomicOffset<InodeLeaf>>,
    number: InodeNumber,
) -> Option<&'static AtomicOffset<InodeLeaf>> {
    if number == 0 || number >= session.geometry().inode_count {
        return None;
    }
    let place = number as usize / LEAF * size_of::<AtomicOffset<InodeLeaf>>();
    let place = Offset::<AtomicOffset<InodeLeaf>>::from_raw(leaves.raw() + place as u64);
    Some(session.region().get(place))
}

#[inline]
fn entry_in(leaf: &InodeLeaf, number: InodeNumber) -> &AtomicOffset<CachedInode> {
    &leaf.entries[number as usize % LEAF]
}

impl Viewing<'_> {
    /// The cached inode of a number that the header table has, made if there is none.
    #[inline(always)]
    pub fn cached(&self, number: InodeNumber) -> Attempt<&'static CachedInode> {
        let region = self.session.region();
        let place = leaf_place(
            self.session,
            self.views.inodes.load(Ordering::Acquire),
            number,
        )
        .ok_or(Errno::STALE)?;
        let leaf = match region.try_get(place.load(Ordering::Acquire)) {
            Some(leaf) => leaf,
            None => self.new_leaf(place)?,
        };
        let entry = entry_in(leaf, number);
        if let Some(inode) = region.try_get(entry.load(Ordering::Acquire)) {
            return Ok(inode);
        }
        self.new_inode(entry, number)
    }

    #[cold]
    fn new_leaf(&self, place: &AtomicOffset<InodeLeaf>) -> Attempt<&'static InodeLeaf> {
        let region = self.session.region();
        let _locked = self.views.inodes_lock.lock(self.slot().holder());
        if let Some(leaf) = region.try_get(place.load(Ordering::Acquire)) {
            return Ok(leaf);
        }
        let leaf = region
            .allocate_zeroed::<InodeLeaf>(self.slot(), 1)
            .map_err(|_| self.no_memory())?;
        place.store(leaf, Ordering::Release);
        Ok(region.get(leaf))
    }

    #[cold]
    fn new_inode(
        &self,
        entry: &AtomicOffset<CachedInode>,
        number: InodeNumber,
    ) -> Attempt<&'static CachedInode> {
        let region = self.session.region();
        let generation = self.header(number)?.generation();
        let inode = region
            .allocate_zeroed::<CachedInode>(self.slot(), 1)
            .map_err(|_| self.no_memory())?;
        region.get(inode).begin(number, generation);
        match entry.compare_exchange(Offset::NULL, inode, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(region.get(inode)),
            Err(other) => {
                region.free(self.slot(), inode);
                Ok(region.get(other))
            }
        }
    }

    /// The view of an inode that a dentry (or an open description) names, up to date. ESTALE if
    /// the number belongs to another generation by now, or is not alive.
    #[inline]
    pub fn view(&self, number: InodeNumber, generation: u32) -> Attempt<&'static CachedInode> {
        let inode = self.cached(number)?;
        let header = self.header(number)?;
        let sequence = header.sequence.load(Ordering::Acquire);
        if inode.generation() == generation && inode.sequence.load(Ordering::Acquire) == sequence {
            let ownership = header.ownership();
            if ownership == inode.expected().ownership
                && header.fold() == inode.expected().fold
                && (ownership.session() == self.session.number() || ownership.session() == 0)
            {
                return Ok(inode);
            }
        }
        self.refresh(inode, header, generation)?;
        Ok(inode)
    }

    /// Whether nothing but a mark is between the view and its header: a fold looks at what this session has changed,
    /// and nothing has come of it yet. Who only looks may go on, as one who has looked at the header a moment before
    /// the mark came; who changes anything finds the mark when the change begins
    /// ([`Changing::begin_change`](crate::changing::Changing::begin_change)).
    fn is_only_marked(&self, inode: &CachedInode, header: &LiveHeader, generation: u32) -> bool {
        let expected = inode.expected();
        // Before the mark and the fold number, which a fold stores behind the sequence.
        let sequence = header.sequence.load(Ordering::Acquire);
        let ownership = header.ownership();
        inode.generation() == generation
            && inode.sequence.load(Ordering::Acquire) == sequence
            && ownership.is_marked()
            && !ownership.is_refused()
            && ownership.bare() == expected.ownership
            && ownership.session() == self.session.number()
            && header.fold() == expected.fold
    }

    /// As [`Viewing::view`], of an inode that is going to be changed: if another session owns it, one
    /// message brings its changes and the ownership.
    #[inline]
    pub fn view_to_change(
        &self,
        number: InodeNumber,
        generation: u32,
    ) -> Attempt<&'static CachedInode> {
        self.view(number, generation).map_err(|stop| match stop {
            Stop::Need(Need::Recall(number)) => Need::TakeOver(number).into(),
            other => other,
        })
    }

    /// Brings a view up to date, or says what has to happen first. Where its delta was folded, so are those of all whose
    /// deltas were: one fold takes many along.
    #[cold]
    #[inline(never)]
    pub fn refresh(
        &self,
        inode: &'static CachedInode,
        header: &'static LiveHeader,
        generation: u32,
    ) -> Attempt<()> {
        match self.is_only_marked(inode, header, generation) {
            true => Ok(()),
            false => self.refresh_with(inode, header, generation, true),
        }
    }

    /// The same; the others only if it is asked `with_others`.
    #[cold]
    pub(super) fn refresh_with(
        &self,
        inode: &'static CachedInode,
        header: &'static LiveHeader,
        generation: u32,
        with_others: bool,
    ) -> Attempt<()> {
        // Its links are to be of a state of which no directory's delta is counted twice.
        let is_directory = inode.is_directory();
        let shares_counts = !is_directory && inode.has(flag::COUNTED);
        let of = shares_counts.then(|| header.sequence.load(Ordering::Acquire));
        if of.is_some() {
            self.cut_counts()?;
        }
        let had_delta = is_directory && inode.directory.is_overlaid();
        // What is folded ahead is the directory's own, and there may be thousands of others with deltas.
        let is_alone = had_delta && (!with_others || self.is_of_seal(inode, header));
        self.note_lost(inode, header);
        // Others find the view up to date before all is given back that its delta used.
        let refreshing = had_delta.then_some(&self.views.refreshing);
        if let Some(refreshing) = refreshing {
            refreshing.fetch_add(1, Ordering::AcqRel);
        }
        let refreshed = self.refresh_view(inode, header, generation, of);
        if let Some(refreshing) = refreshing {
            refreshing.fetch_sub(1, Ordering::AcqRel);
        }
        if had_delta && !is_alone && refreshed.is_ok() {
            // The fold took more along, as a rule: what it ended gives its pages back.
            let _ = self.refresh_dirty();
        }
        if !matches!(refreshed, Err(Stop::Need(_))) && inode.take(flag::LOST) {
            // Once, by whatever operation comes first; then it starts from the verified state.
            return Err(Errno::IO.into());
        }
        refreshed
    }

    /// Notes that what the view shows of this session's changes was set aside.
    pub fn note_lost(&self, inode: &CachedInode, header: &LiveHeader) {
        let expected = inode.expected();
        let evicted = header.evicted();
        if expected.fold != 0
            && (expected.fold == evicted || evicted != 0 && self.sealed(inode) == evicted)
            && expected.ownership.session() == self.session.number()
            && !expected.still_holds(header)
        {
            inode.set(flag::LOST, true);
        }
    }

    /// `of`: the only sequence of the header that the view may be made from.
    fn refresh_view(
        &self,
        inode: &'static CachedInode,
        header: &'static LiveHeader,
        generation: u32,
        of: Option<u64>,
    ) -> Attempt<()> {
        let number = inode.number();
        if header.generation() != generation {
            return Err(Errno::STALE.into());
        }
        match ownership::owner(self.session, header) {
            Owner::Us(_) if header.ownership().is_marked() => Err(Need::Wait(number).into()),
            Owner::Us(expected) if header.ownership().is_refused() => {
                // What lies beneath a directory can still be reached, by the names as they were.
                if inode.is_directory() && inode.expected() == expected {
                    match self.has_sealed_no_more(inode, header) {
                        true => self.refresh_owned(inode, header, generation, expected, of),
                        false => Ok(()),
                    }
                } else {
                    Err(Errno::IO.into())
                }
            }
            Owner::Us(expected) => self.refresh_owned(inode, header, generation, expected, of),
            Owner::Nobody => self.refresh_shared(inode, header, generation, of),
            Owner::Other => {
                // Its completed writes are to be seen at this call: one recall per call. The
                // sequence of the view moves whenever a fold changed anything.
                if self.may_recall(number) {
                    return Err(Need::Recall(number).into());
                }
                self.refresh_shared(inode, header, generation, of)
            }
            Owner::Gone => Err(Errno::STALE.into()),
        }
    }

    fn refresh_owned(
        &self,
        inode: &'static CachedInode,
        header: &'static LiveHeader,
        generation: u32,
        expected: Expected,
        of: Option<u64>,
    ) -> Attempt<()> {
        let _locked = self.lock_now(inode)?;
        if inode.generation() == generation
            && let Ok(directory) = Directory::of(inode)
        {
            self.follow_seal(directory, header, &expected)?;
        }
        if inode.generation() == generation && inode.expected() == expected {
            let sealed = self.sealed(inode);
            // The same delta on top of a verified state that moved under it: this inode was
            // created, changed hands (chown), or gained or lost links elsewhere.
            if inode.has(flag::UNCOMMITTED) && header.kind() == HeaderKind::Granted {
                inode
                    .sequence
                    .store(header.sequence.load(Ordering::Acquire), Ordering::Release);
                return Ok(());
            }
            if inode.branch.load(Ordering::Acquire) == begun::NOT && sealed == 0 {
                // No delta: the controller's change is all there is to know.
                self.discard_delta(inode);
                self.load_verified(inode, generation, of)?;
                inode.expect(expected);
                return Ok(());
            }
            let Some((copy, verified, told)) = self.verified_or_told(inode.number())? else {
                return Err(Errno::STALE.into());
            };
            if of.is_some_and(|of| of != copy.sequence) || copy.sealed != sealed {
                return Err(Need::Again.into());
            }
            inode.set(flag::UNCOMMITTED, false);
            inode.set(flag::TOLD, told);
            inode.uid.store(verified.uid, Ordering::Relaxed);
            inode.gid.store(verified.gid, Ordering::Relaxed);
            inode.base_links.store(verified.links, Ordering::Relaxed);
            if sealed == 0
                && let Some(slot) = expected.branch_slot(header)
                && let Ok(branch) = Branch::at(self.session, slot)
                // What the delta says nothing of (it stores no time that was the verified one).
                && branch.load(offset::MODIFIED) == UNCHANGED_TIME as u64
            {
                inode
                    .modified
                    .store(verified.modified as u64, Ordering::Relaxed);
            }
            // Its names may have changed since, by another session or the controller.
            inode.changed_at(verified.changed);
            if inode.is_directory() {
                // The controller moves directories, whatever their owner does meanwhile.
                inode.holder.store(verified.parent, Ordering::Release);
                self.note_above(inode, &verified, copy.sequence);
                // What was sealed is there now.
                inode.base_root.store(verified.root.0, Ordering::Release);
                inode.base_size.store(verified.size, Ordering::Relaxed);
                inode.load_part(&verified);
            }
            inode.sequence.store(copy.sequence, Ordering::Release);
            return Ok(());
        }
        if inode.generation() == generation && !self.has_ended(inode, header)? {
            // `expected` is what was seen before the lock: another thread has brought the view
            // up to a later fold, and may have begun a delta on it.
            return Err(Need::Again.into());
        }
        self.discard_ended(inode);
        if inode.generation() == generation && self.stays_for_openings(inode, header) {
            inode.expect(expected);
            let sequence = header.sequence.load(Ordering::Acquire);
            inode.sequence.store(sequence, Ordering::Release);
            return Ok(());
        }
        self.load_verified(inode, generation, of)?;
        inode.expect(expected);
        Ok(())
    }

    /// Whether a directory that was removed before it was created is kept by those alone who have it open: a fold took
    /// the records that it had, and created nothing. The view is all that there is of it. Under its lock: the last close
    /// looks at it afterwards, and finds no records that count.
    fn stays_for_openings(&self, inode: &CachedInode, header: &LiveHeader) -> bool {
        inode.is_directory()
            && inode.has(flag::UNCOMMITTED)
            && inode.has(flag::UNLINKED)
            && inode.is_open()
            && header.kind() == HeaderKind::Granted
    }

    fn refresh_shared(
        &self,
        inode: &'static CachedInode,
        header: &'static LiveHeader,
        generation: u32,
        of: Option<u64>,
    ) -> Attempt<()> {
        let _locked = self.lock_now(inode)?;
        if let Owner::Us(_) = ownership::owner(self.session, header) {
            // Another thread has become the owner, and may have begun a delta.
            return Err(Need::Again.into());
        }
        self.discard_ended(inode);
        self.load_verified(inode, generation, of)
    }

    /// Forgets a delta, and, if it was set aside, the fold number that says so. Under the inode's
    /// lock as a whole.
    fn discard_ended(&self, inode: &'static CachedInode) {
        self.discard_delta(inode);
        if inode.has(flag::LOST) {
            inode.expect(Expected {
                ownership: Ownership::SHARED,
                fold: 0,
            });
        }
    }

    /// Whether what the view was made for is over, and its delta, if it has one, with it. Under
    /// the inode's lock: whatever was decided before it was taken may not be so any more.
    pub fn has_ended(&self, inode: &CachedInode, header: &LiveHeader) -> Attempt<bool> {
        let (expected, ownership) = (inode.expected(), header.ownership());
        if ownership.is_marked() {
            // Nobody knows yet.
            return Err(Need::Wait(inode.number()).into());
        }
        // What has ended never comes back. What is sealed has not yet: that is loaded behind the fold number, which is
        // stored behind it.
        let holds = ownership == expected.ownership && header.fold() == expected.fold;
        let sealed = header.sealed();
        let is_sealed = sealed != 0 && sealed == expected.fold;
        Ok(!holds && !is_sealed)
    }

    /// Reads the verified inode into the view. Under the inode's lock.
    fn load_verified(
        &self,
        inode: &'static CachedInode,
        generation: u32,
        of: Option<u64>,
    ) -> Attempt<()> {
        let number = inode.number();
        let Some((copy, verified, told)) = self.verified_or_told(number)? else {
            // Granted and not committed: a number that was given back and is nobody's inode now.
            return Err(Errno::STALE.into());
        };
        if copy.generation != generation {
            return Err(Errno::STALE.into());
        }
        if of.is_some_and(|of| of != copy.sequence) {
            return Err(Need::Again.into());
        }
        let goes_on = inode.generation() == generation && !inode.has(flag::LOST);
        let seen = inode.changed.load(Ordering::Relaxed) as i64;
        if inode.generation() != generation {
            self.expect_unseen(inode)?;
            inode.generation.store(generation, Ordering::Release);
            inode.forget_the_one_before();
        }
        if inode.is_directory() && verified.kind() != Some(FileKind::Directory) {
            inode.file.forget_delta();
        }
        store_verified(inode, &verified);
        self.note_above(inode, &verified, copy.sequence);
        if goes_on {
            // Records of directories that are not folded yet may have moved it.
            inode.changed_at(seen);
        }
        inode.set(flag::UNCOMMITTED, false);
        inode.set(flag::TOLD, told);
        inode.expect(Expected {
            ownership: copy.ownership.bare(),
            fold: copy.fold,
        });
        inode.sequence.store(copy.sequence, Ordering::Release);
        if inode.has(flag::MAPPED) {
            self.dependents.view_moved(self, inode);
            // What was looked up belongs to one state.
            self.unmoved(inode)?;
        }
        Ok(())
    }

    /// From now on nobody finds the view to be that of now. Under its lock.
    pub(super) fn show_nobody(&self, inode: &CachedInode) {
        if inode.sequence.swap(u64::MAX, Ordering::SeqCst) != u64::MAX {
            let epoch = self.session.region().epoch();
            inode.reuse_epoch.store(epoch, Ordering::Release);
        }
    }

    /// That nobody looks any more at the inode whose view it was, before it becomes another one's: who looked it up
    /// a moment ago would find what he never looked for. Some milliseconds are waited for that. Under its lock.
    fn expect_unseen(&self, inode: &CachedInode) -> Attempt<()> {
        self.show_nobody(inode);
        let epoch = inode.reuse_epoch.load(Ordering::Relaxed);
        match self.session.region().is_over(epoch) {
            true => Ok(()),
            // Whoever stays inside for longer than is waited for does not keep the others.
            false => self.wait_for_unseen(epoch).map_or(Ok(()), Err),
        }
    }

    /// The offset of a cached inode, for links in the region.
    pub fn offset_of(&self, number: InodeNumber) -> Offset<CachedInode> {
        let leaf = leaf_place(
            self.session,
            self.views.inodes.load(Ordering::Acquire),
            number,
        )
        .and_then(|place| self.session.region().try_get(place.load(Ordering::Acquire)));
        leaf.map_or(Offset::NULL, |leaf| {
            entry_in(leaf, number).load(Ordering::Acquire)
        })
    }
}

fn store_verified(inode: &CachedInode, verified: &Inode) {
    let relaxed = Ordering::Relaxed;
    inode.mode.store(verified.mode, relaxed);
    inode.uid.store(verified.uid, relaxed);
    inode.gid.store(verified.gid, relaxed);
    inode.base_links.store(verified.links, relaxed);
    inode.size.store(verified.size, relaxed);
    inode.accessed.store(verified.accessed as u64, relaxed);
    inode.modified.store(verified.modified as u64, relaxed);
    inode.changed.store(verified.changed as u64, relaxed);
    inode.created.store(verified.created as u64, relaxed);
    inode.base_root.store(verified.root.0, Ordering::Release);
    inode.base_size.store(verified.size, relaxed);
    inode.load_part(verified);
    if verified.kind() == Some(FileKind::Directory) {
        inode.holder.store(verified.parent, relaxed);
    }
    inode.set(flag::UNLINKED, verified.links == 0);
    for (bit, is_so) in [
        (flag::MEDIATED, verified.goes_by_message()),
        (flag::TOGETHER, verified.is_together()),
    ] {
        if inode.has(bit) != is_so {
            inode.set(bit, is_so);
        }
    }
}
