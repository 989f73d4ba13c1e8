//! Moves beside sessions that claim maps, or are in the middle of something.

use super::*;
use crate::access::emptying::tests::Stuck;
use crate::fold::folding::{After, Failure};
use crate::fold::pages::{Copier, contents};
use crate::fold::reply::Reply;
use crate::fold::touched::Touched;
use crate::state::apply::file::Setter;
use crate::state::change::{Change, Weight};
use crate::state::classes::{Class, Condition, NOBODY, Wish};
use crate::testing::{TestCore, file, new_inode};
use arck_controller_state::segments::{SegmentEntry, SegmentKind};
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::StoredBranch;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::FILE_SIZE_MAX;
use arck_core_state::header::HeaderKind;
use arck_core_state::{
    FileKind, HeaderCopy, IndexRoot, Inode, PAGE_SIZE, PagePtr, Pages, ROOT_INODE,
};
use arck_protocol::control::map_entry;
use arck_protocol::operation::LightBarrier;
use arck_verifier::VerifiedState;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

impl TestCore {
    /// A file of a user that everybody may read, of one page that the controller has moved there.
    pub(super) fn readable_file(&mut self, uid: u32) -> (InodeNumber, PagePtr) {
        let state = &mut self.core.sessions.state;
        let world = state.label(Some(&Class::world()));
        let mut change = Change::new(state);
        change.allocate_for_class(world);
        let page = change.new_data_page().unwrap();
        let inode = file(uid, 1, IndexRoot::new(page.0, 0), PAGE_SIZE, 1);
        let (number, _) = new_inode(&mut change, HeaderKind::Alive, inode);
        change.commit(Weight::Fold).unwrap();
        (number, page)
    }

    /// Makes a file its owner's alone; gives what was touched.
    pub(super) fn made_private(&mut self, number: InodeNumber) -> Touched {
        let before = *self.core.sessions.state.shadow(number).unwrap();
        let mut change = Change::new(&mut self.core.sessions.state);
        change.set_inode(Inode {
            mode: FileKind::File.mode_bits() | 0o600,
            ..before
        });
        change.commit(Weight::Fold).unwrap();
        Touched::attributes(number, Some(before), true)
    }

    fn header(&self, number: InodeNumber) -> HeaderCopy {
        self.core.sessions.state.header_copy(number).unwrap()
    }

    /// As the session that owns an inode would.
    fn store_branch(&self, owner: SessionNumber, header: &HeaderCopy, branch: &StoredBranch) {
        let arena = self.path().join(crate::sessions::arena::name(owner));
        let arena = std::fs::File::options().write(true).open(arena).unwrap();
        let at = branch_offset(header.branch_slot).unwrap();
        arena.write_all_at(branch.as_bytes(), at).unwrap();
    }

    pub(super) fn class_of(&self, page: PagePtr) -> Option<Class> {
        let label = self.core.sessions.state.space.label_of(page);
        self.core.sessions.state.classes.get(label).cloned()
    }

    fn page_of_file(&self, number: InodeNumber) -> PagePtr {
        self.core.sessions.state.data_page(number, 0)
    }
}

/// Who says that he has a writable map of his file, and closes it, keeps others from nothing: where
/// he cannot have it mapped writable it moves as any other, and what is beside it stays.
#[test]
fn a_map_hides_nothing_of_others() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let (anns, old) = test.readable_file(1001);
    let (bobs, beside) = test.readable_file(1002);
    let geometry = test.core.sessions.state.pool.geometry();
    assert_eq!(geometry.segment_of(old), geometry.segment_of(beside));
    let control = test.core.sessions.all[&ann]
        .live
        .as_ref()
        .unwrap()
        .control();
    let entry = map_entry(anns, test.header(anns).generation, true);
    control.maps[0].store(entry, std::sync::atomic::Ordering::SeqCst);
    let used = &control.header.maps;
    used.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(test.core.sessions.refuse_moving(anns), Err(Errno::BUSY));

    let closed = test.made_private(anns);
    test.core.access().tighten(vec![closed]);
    test.core.access().finish_closing();

    assert_eq!(test.page_of_file(bobs), beside);
    assert_eq!(test.class_of(beside), Some(Class::world()));
    let now = test.page_of_file(anns);
    assert_ne!(now, old);
    assert_eq!(test.class_of(now), Some(Class::only(1001)));
    assert!(!test.core.sessions.state.space.is_used(old));
    let eve = test.session(1003, &[1003]);
    let segment = geometry.segment_of(beside);
    assert_eq!(
        test.core.sessions.state.space.kind(segment),
        SegmentKind::Data
    );
    test.core
        .sessions
        .map_segments(eve, &[segment], true)
        .unwrap();
}

/// What an owner has just written of a file that somebody says is mapped moves in the step that folds
/// it: the pages that it leaves at once are kept, and free when nobody has a map any more.
#[test]
fn what_is_folded_and_moved_at_once_leaks_nothing() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let bob = test.session(1002, &[1002]);
    let (file, old) = test.readable_file(1001);
    while !matches!(test.core.owners().acquire(ann, &[file]), Reply::Now(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let header = test.header(file);
    let (segment, _) = test.core.grant_segment(ann, false).unwrap();
    let written = test.core.sessions.state.pool.geometry().first_page(segment);
    let ownership_epoch = header.ownership.epoch();
    let mut branch = StoredBranch::unchanged(file, header.generation, ownership_epoch, header.fold);
    branch.root = IndexRoot::new(written.0, 0);
    test.store_branch(ann, &header, &branch);
    let control = test.core.sessions.all[&bob]
        .live
        .as_ref()
        .unwrap()
        .control();
    let entry = map_entry(file, header.generation, false);
    control.maps[0].store(entry, std::sync::atomic::Ordering::SeqCst);
    let used = &control.header.maps;
    used.store(1, std::sync::atomic::Ordering::SeqCst);

    test.core
        .access()
        .move_contents(file, None, &|_, _| false)
        .unwrap();
    let now = test.page_of_file(file);
    assert!(now != written && now != old);
    let is_used = |test: &TestCore, page| test.core.sessions.state.space.is_used(page);
    assert!(is_used(&test, old), "bob may have it mapped");
    test.core.owners().end_session(bob, libc::ESHUTDOWN);
    test.core.owners().end_session(ann, libc::ESHUTDOWN);
    assert_eq!(test.page_of_file(file), now);
    assert!(is_used(&test, now) && !is_used(&test, old) && !is_used(&test, written));
}

/// A file was made in a directory that everybody may search, was empty there as far as the controller
/// knew, and got a name where only its owner may look. What a session had stored in it was folded in the
/// step that moved the inode, into pages for those who could read it before, and stayed there: whether
/// anything had to move had been looked up before that fold.
#[test]
fn what_is_folded_with_a_move_is_within_the_class_too() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let (file, page) = test.readable_file(1002);
    let mut change = Change::new(&mut test.core.sessions.state);
    let empty = Inode {
        mode: FileKind::File.mode_bits() | 0o666,
        size: 0,
        root: IndexRoot::EMPTY,
        pages: 0,
        ..change.inode(file).unwrap()
    };
    change.set_inode(empty);
    change.set_data_page_used(page, false);
    change.commit(Weight::Fold).unwrap();
    while !matches!(test.core.owners().acquire(ann, &[file]), Reply::Now(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let header = test.header(file);
    assert_eq!(header.ownership.session(), ann);
    let (segment, _) = test.core.grant_segment(ann, false).unwrap();
    let written = test.core.sessions.state.pool.geometry().first_page(segment);
    let ownership_epoch = header.ownership.epoch();
    let mut branch = StoredBranch::unchanged(file, header.generation, ownership_epoch, header.fold);
    branch.root = IndexRoot::new(written.0, 0);
    branch.size = PAGE_SIZE;
    test.store_branch(ann, &header, &branch);

    // It is its owner's alone from now on.
    test.core.access().tighten(vec![Touched::unlinked(file)]);
    test.core.access().finish_closing();
    let now = test.page_of_file(file);
    assert!(!now.is_null() && now != written);
    assert_eq!(test.class_of(now), Some(Class::only(1002)));
}

/// An owner in the middle of an operation that does not come to an end: when what is in the file
/// moves he is told, and what he has changed is set aside, not kept as if nothing had happened.
#[test]
fn an_owner_who_does_not_quiesce_is_told() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let (file, _) = test.readable_file(1001);
    while !matches!(test.core.owners().acquire(ann, &[file]), Reply::Now(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let header = test.header(file);
    assert_eq!(header.ownership.session(), ann);
    let control = test.core.sessions.all[&ann]
        .live
        .as_ref()
        .unwrap()
        .control();
    control.threads[0].enter(LightBarrier::Fence);
    // Half of something.
    let ownership_epoch = header.ownership.epoch();
    let mut branch = StoredBranch::unchanged(file, header.generation, ownership_epoch, header.fold);
    branch.size = FILE_SIZE_MAX + PAGE_SIZE;
    test.store_branch(ann, &header, &branch);

    let folded = test.core.access().fold(ann, &[file], After::Keep);
    assert!(matches!(folded, Err(Failure::Quiescing(_))), "{folded:?}");
    test.core
        .access()
        .change_inode(file, |change| {
            change.allocate_for_class(NOBODY);
            change.move_inode(file)
        })
        .unwrap();
    let now = test.header(file);
    assert_ne!(now.inode, header.inode);
    assert_ne!(
        now.fold, header.fold,
        "the operation would find all as it was"
    );
    assert!(!now.ownership.is_marked());
    let live = test.core.sessions.state.pool.header(file).unwrap();
    let evicted = live.evicted.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(evicted, header.fold);
}

/// Whoever held a segment of a file kept everybody waiting when somebody was let in to it; and what nothing
/// refers to in it is shown to nobody, however long its emptying takes.
#[test]
fn readers_wait_in_turns_for_what_they_are_let_in_to() {
    let mut test = TestCore::new();
    let bob = test.session(1002, &[1002]);
    let (file, page) = test.readable_file(1001);
    let world = test.core.sessions.state.label_of_inode(file);
    let segment = test.core.sessions.state.pool.geometry().segment_of(page);
    let beside = PagePtr(page.0 + 1);
    let secret = [7; PAGE_SIZE as usize];
    // Nobody has it mapped after that.
    let written = Copier::default().write(&test.core.sessions.state, beside, &secret);
    written.unwrap();
    // As its owner's session has written and left it.
    let label = test.core.sessions.state.label(Some(&Class::only(1001)));
    let mut change = Change::new(&mut test.core.sessions.state);
    let entry = SegmentEntry {
        kind: SegmentKind::Data as u32,
        class: label,
        uid: 1001,
        ..SegmentEntry::default()
    };
    change.set_segment(segment, entry);
    change.commit(Weight::Fold).unwrap();

    let stuck = Stuck::new(&test.core, 1001);
    for _ in 0..10 {
        let began = Instant::now();
        let reply = test.core.admit(bob, file, true);
        assert!(matches!(reply, Reply::Later(_)), "{reply:?}");
        assert!(began.elapsed() < Duration::from_millis(250));
        assert_eq!(test.class_of(page), Some(Class::only(1001)));
        assert!(
            !test.core.sessions.state.space.is_adoptable(segment),
            "given to others"
        );
    }
    drop(stuck);
    while matches!(test.core.admit(bob, file, true), Reply::Later(_)) {}
    assert_eq!(test.core.sessions.state.space.label_of(page), world);
    assert_eq!(test.page_of_file(file), page, "it need not move");
    let mut shown = [1; PAGE_SIZE as usize];
    let read = Copier::default().read(&test.core.sessions.state, beside, &mut shown);
    read.unwrap();
    assert!(shown == [0; PAGE_SIZE as usize]);
    assert!(!test.core.sessions.state.space.is_used(beside));
}

/// Whoever makes classes of all combinations of his groups gets a part of the pool for them; the
/// classes of everybody and of single users find room all the same.
#[test]
fn conjunctions_leave_segments_to_others() {
    let mut test = TestCore::new();
    let state = &mut test.core.sessions.state;
    let segments = state.pool.geometry().segment_count;
    let root = *state.shadow(ROOT_INODE).unwrap();
    let class_of_groups = |groups: &[u32]| {
        let condition = |class: Class, &gid: &u32| {
            let directory = Inode {
                mode: FileKind::Directory.mode_bits() | 0o710,
                uid: 1001,
                gid,
                ..root
            };
            class.and(Condition::of(&directory, Wish::Search))
        };
        groups.iter().try_fold(Class::world(), condition).unwrap()
    };
    let mut made = 0;
    let mut refused = 0;
    for first in 0..40 {
        for second in first + 1..40 {
            let class = class_of_groups(&[2000 + first, 2000 + second]);
            let label = state.label(Some(&class));
            assert_ne!(label, NOBODY);
            let mut change = Change::new(state);
            change.allocate_for_class(label);
            match change.new_data_page() {
                Ok(_) => made += 1,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    refused += 1;
                }
            }
            change.commit(Weight::Fold).unwrap();
        }
    }
    assert_eq!(made, segments / 4, "{refused} refused");
    for class in [Class::world(), Class::only(1002), class_of_groups(&[2000])] {
        let label = state.label(Some(&class));
        let mut change = Change::new(state);
        change.allocate_for_class(label);
        change.new_data_page().unwrap();
        change.commit(Weight::Fold).unwrap();
    }
}

/// Closing a file of 600 MiB was one step of two seconds, for which everybody waited.
#[test]
fn what_is_large_is_closed_part_by_part() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let world = test.core.sessions.state.label(Some(&Class::world()));
    // In a row, and wide apart: pages of an index are moved with what they lead to.
    let wide = [
        600,
        5000,
        1 << 18,
        (1 << 18) + 1,
        1 << 27,
        (1 << 27) + (3 << 18),
    ];
    let places: Vec<u64> = (0..590).chain(wide).collect();
    let mut change = Change::new(&mut test.core.sessions.state);
    change.allocate_for_class(world);
    let mut setter = Setter::new(IndexRoot::EMPTY);
    let mut copier = Copier::default();
    for &place in &places {
        let page = change.new_data_page().unwrap();
        setter.set(&mut change, place, page).unwrap();
        let mut bytes = [0; PAGE_SIZE as usize];
        bytes[..8].copy_from_slice(&(place + 1).to_le_bytes());
        copier.write(change.state, page, &bytes).unwrap();
    }
    let inode = file(1001, 1, setter.root(), FILE_SIZE_MAX, places.len() as u64);
    let (number, _) = new_inode(&mut change, HeaderKind::Alive, inode);
    change.commit(Weight::Fold).unwrap();
    let pages = |test: &TestCore| {
        let inode = *test.core.sessions.state.shadow(number).unwrap();
        contents(&test.core.sessions.state, &inode).unwrap()
    };
    let before = pages(&test);
    assert!(
        before
            .iter()
            .all(|&page| test.class_of(page) == Some(Class::world()))
    );

    let closed = test.made_private(number);
    let moved = |test: &TestCore| {
        let is_own = |page: &PagePtr| test.class_of(*page) == Some(Class::only(1001));
        pages(test).iter().filter(|page| is_own(page)).count()
    };
    let mut known = moved(&test);
    test.core.access().tighten(vec![closed]);
    let mut steps = 0;
    loop {
        let now = moved(&test);
        steps += u32::from(now != known);
        // The pages of an index that lead to one, with it.
        assert!(
            now - known <= parts::PART as usize + 4,
            "{known}, then {now}"
        );
        known = now;
        if steps == 2 {
            // Its owner goes on.
            assert!(matches!(
                test.core.owners().acquire(ann, &[number]),
                Reply::Now(_)
            ));
        }
        if !test.core.access().close_slice() {
            break;
        }
    }
    // The first part with the change, the others one by one.
    assert_eq!(steps, 3);
    let after = pages(&test);
    assert_eq!((known, after.len()), (after.len(), before.len()));
    assert!(
        before
            .iter()
            .all(|&page| !test.core.sessions.state.space.is_used(page))
    );
    let mut copier = Copier::default();
    for &place in &places {
        let mut bytes = [0; PAGE_SIZE as usize];
        let page = test.core.sessions.state.data_page(number, place);
        copier
            .read(&test.core.sessions.state, page, &mut bytes)
            .unwrap();
        assert_eq!(bytes[..8], (place + 1).to_le_bytes(), "page {place}");
    }
}

/// Names were closed, and could be read all the same: buckets that had been split, or had become empty,
/// were free, and showed what had stood there to whoever can map pages of their old class.
#[test]
fn names_that_are_not_there_any_more_are_not_shown() {
    let mut test = TestCore::new();
    let world = test.core.sessions.state.label(Some(&Class::world()));
    let before = Inode {
        mode: FileKind::Directory.mode_bits() | 0o755,
        links: 2,
        parent: ROOT_INODE,
        ..file(1001, 2, IndexRoot::EMPTY, PAGE_SIZE, 0)
    };
    let mut change = Change::new(&mut test.core.sessions.state);
    change.allocate_for_class(world);
    let (number, _) = new_inode(&mut change, HeaderKind::Alive, before);
    change.commit(Weight::Fold).unwrap();
    let dentry = Dentry {
        inode: number,
        generation: 1,
        kind: FileKind::File,
    };
    let name = |at: u32| format!("a-name-in-a-directory-{at}").into_bytes();
    let shown = |test: &TestCore| {
        let geometry = test.core.sessions.state.pool.geometry();
        let is_free = |page: &PagePtr| !test.core.sessions.state.space.is_used(*page);
        let text = |page: PagePtr| {
            let words = test.core.sessions.state.pool.page(page)?;
            let bytes = words.iter().flat_map(|word| {
                word.load(std::sync::atomic::Ordering::Relaxed)
                    .to_le_bytes()
            });
            Some(bytes.collect::<Vec<u8>>())
        };
        let shows = |page: PagePtr| {
            text(page).is_some_and(|text| text.windows(14).any(|part| part == b"a-name-in-a-di"))
        };
        let pages = (1..geometry.page_count()).map(PagePtr);
        pages.filter(is_free).filter(|&page| shows(page)).count()
    };
    for step in [0..500, 500..2000] {
        let mut change = Change::new(&mut test.core.sessions.state);
        let mut inode = change.inode(number).unwrap();
        for at in step {
            crate::state::apply::directory::add(&mut change, &mut inode, &name(at), dentry)
                .unwrap();
        }
        change.set_inode(inode);
        change.commit(Weight::Fold).unwrap();
        assert_eq!(shown(&test), 0, "after splits");
    }
    let mut change = Change::new(&mut test.core.sessions.state);
    let mut inode = change.inode(number).unwrap();
    for at in 0..2000 {
        crate::state::apply::directory::remove(&mut change, &mut inode, &name(at)).unwrap();
    }
    change.set_inode(inode);
    change.commit(Weight::Fold).unwrap();
    assert_eq!(shown(&test), 0, "after all have been removed");
}
