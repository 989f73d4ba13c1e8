//! Moves beside sessions that claim maps, or are in the middle of something.

use super::*;
use crate::testing::{TestCore, file, new_inode};
use arck_controller_state::segments::SegmentKind;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::StoredBranch;
use arck_core_state::geometry::FILE_SIZE_MAX;
use arck_core_state::{HeaderCopy, IndexRoot, PAGE_SIZE, Pages};
use arck_protocol::control::map_entry;
use arck_protocol::operation::LightBarrier;
use std::os::unix::fs::FileExt;
use zerocopy::IntoBytes;

impl TestCore {
    /// A file of a user that everybody may read, of one page that the controller has moved there.
    fn readable_file(&mut self, uid: u32) -> (InodeNumber, PagePtr) {
        let state = &mut self.core.state;
        let world = state.label(Some(&Class::world()));
        let mut change = Change::new(state);
        change.allocate_for_class(world);
        let page = change.new_data_page().unwrap();
        let inode = file(uid, 1, IndexRoot::new(page.0, 0), PAGE_SIZE, 1);
        let (number, _) = new_inode(
            &mut change,
            HeaderKind::Alive,
            FileKind::File,
            |number, generation| Inode {
                number,
                generation,
                ..inode
            },
        );
        change.commit(Weight::Fold).unwrap();
        (number, page)
    }

    fn header(&self, number: InodeNumber) -> HeaderCopy {
        self.core.state.header_copy(number).unwrap()
    }

    /// As the session that owns an inode would.
    fn store_branch(&self, owner: SessionNumber, header: &HeaderCopy, branch: &StoredBranch) {
        let arena = self.path().join(crate::arena::name(owner));
        let arena = std::fs::File::options().write(true).open(arena).unwrap();
        let at = branch_offset(header.branch_slot).unwrap();
        arena.write_all_at(branch.as_bytes(), at).unwrap();
    }

    fn class_of(&self, page: PagePtr) -> Option<Class> {
        let label = self.core.state.space.label_of(page);
        self.core.state.classes.get(label).cloned()
    }

    fn page_of_file(&self, number: InodeNumber) -> PagePtr {
        self.core.state.data_page(number, 0)
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
    let geometry = test.core.state.pool.geometry();
    assert_eq!(geometry.segment_of(old), geometry.segment_of(beside));
    let control = test.core.sessions[&ann].live.as_ref().unwrap().control();
    let entry = map_entry(anns, test.header(anns).generation, true);
    control.maps[0].store(entry, std::sync::atomic::Ordering::SeqCst);
    let used = &control.header.maps;
    used.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(test.core.refuse_moving(anns), Err(Errno::BUSY));

    let before = *test.core.state.shadow(anns).unwrap();
    let mut change = Change::new(&mut test.core.state);
    change.set_inode(Inode {
        mode: FileKind::File.mode_bits() | 0o600,
        ..before
    });
    change.commit(Weight::Fold).unwrap();
    let closed = Touched::attributes(anns, Some(before), true);
    test.core.tighten(vec![closed]);
    test.core.finish_closing();

    assert_eq!(test.page_of_file(bobs), beside);
    assert_eq!(test.class_of(beside), Some(Class::world()));
    let now = test.page_of_file(anns);
    assert_ne!(now, old);
    assert_eq!(test.class_of(now), Some(Class::only(1001)));
    assert!(!test.core.state.space.is_used(old));
    let eve = test.session(1003, &[1003]);
    let segment = geometry.segment_of(beside);
    assert_eq!(test.core.state.space.kind(segment), SegmentKind::Data);
    test.core.map_segments(eve, &[segment], true).unwrap();
}

/// What an owner has just written of a file that somebody says is mapped moves in the step that folds
/// it: the pages that it leaves at once are kept, and free when nobody has a map any more.
#[test]
fn what_is_folded_and_moved_at_once_leaks_nothing() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let bob = test.session(1002, &[1002]);
    let (file, old) = test.readable_file(1001);
    while !matches!(test.core.acquire(ann, &[file]), Reply::Now(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let header = test.header(file);
    let (segment, _) = test.core.grant_segment(ann).unwrap();
    let written = test.core.state.pool.geometry().first_page(segment);
    let epoch = header.ownership.epoch();
    let mut branch = StoredBranch::unchanged(file, header.generation, epoch, header.fold);
    branch.root = IndexRoot::new(written.0, 0);
    test.store_branch(ann, &header, &branch);
    let control = test.core.sessions[&bob].live.as_ref().unwrap().control();
    let entry = map_entry(file, header.generation, false);
    control.maps[0].store(entry, std::sync::atomic::Ordering::SeqCst);
    let used = &control.header.maps;
    used.store(1, std::sync::atomic::Ordering::SeqCst);

    test.core.move_contents(file, None, &|_, _| false).unwrap();
    let now = test.page_of_file(file);
    assert!(now != written && now != old);
    let is_used = |test: &TestCore, page| test.core.state.space.is_used(page);
    assert!(is_used(&test, old), "bob may have it mapped");
    test.core.end_session(bob, libc::ESHUTDOWN);
    test.core.end_session(ann, libc::ESHUTDOWN);
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
    let mut change = Change::new(&mut test.core.state);
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
    while !matches!(test.core.acquire(ann, &[file]), Reply::Now(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let header = test.header(file);
    assert_eq!(header.ownership.session(), ann);
    let (segment, _) = test.core.grant_segment(ann).unwrap();
    let written = test.core.state.pool.geometry().first_page(segment);
    let epoch = header.ownership.epoch();
    let mut branch = StoredBranch::unchanged(file, header.generation, epoch, header.fold);
    branch.root = IndexRoot::new(written.0, 0);
    branch.size = PAGE_SIZE;
    test.store_branch(ann, &header, &branch);

    // It is its owner's alone from now on.
    test.core.tighten(vec![Touched::unlinked(file)]);
    test.core.finish_closing();
    let now = test.page_of_file(file);
    assert!(!now.is_null() && now != written);
    assert_eq!(test.class_of(now), Some(Class::only(1002)));
}

/// An owner in the middle of an operation that does not come to an end: when what is in the file
/// moves he is told, and what he has changed is set aside, not kept as if nothing had happened.
#[test]
fn an_owner_who_does_not_settle_is_told() {
    let mut test = TestCore::new();
    let ann = test.session(1001, &[1001]);
    let (file, _) = test.readable_file(1001);
    while !matches!(test.core.acquire(ann, &[file]), Reply::Now(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let header = test.header(file);
    assert_eq!(header.ownership.session(), ann);
    let control = test.core.sessions[&ann].live.as_ref().unwrap().control();
    control.threads[0].enter(LightBarrier::Fence);
    // Half of something.
    let epoch = header.ownership.epoch();
    let mut branch = StoredBranch::unchanged(file, header.generation, epoch, header.fold);
    branch.size = FILE_SIZE_MAX + PAGE_SIZE;
    test.store_branch(ann, &header, &branch);

    let folded = test.core.fold(ann, &[file], After::Keep);
    assert!(matches!(folded, Err(Failure::Unsettled(_))), "{folded:?}");
    test.core
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
    let live = test.core.state.pool.header(file).unwrap();
    let evicted = live.evicted.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(evicted, header.fold);
}

/// Whoever makes classes of all combinations of his groups gets a part of the pool for them; the
/// classes of everybody and of single users find room all the same.
#[test]
fn conjunctions_leave_segments_to_others() {
    let mut test = TestCore::new();
    let state = &mut test.core.state;
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

/// Names were closed, and could be read all the same: buckets that had been split, or had become empty,
/// were free, and showed what had stood there to whoever can map pages of their old class.
#[test]
fn names_that_are_not_there_any_more_are_not_shown() {
    let mut test = TestCore::new();
    let world = test.core.state.label(Some(&Class::world()));
    let before = Inode {
        mode: FileKind::Directory.mode_bits() | 0o755,
        links: 2,
        parent: ROOT_INODE,
        ..file(1001, 2, IndexRoot::EMPTY, PAGE_SIZE, 0)
    };
    let mut change = Change::new(&mut test.core.state);
    change.allocate_for_class(world);
    let (number, _) = new_inode(
        &mut change,
        HeaderKind::Alive,
        FileKind::Directory,
        |number, generation| Inode {
            number,
            generation,
            ..before
        },
    );
    change.commit(Weight::Fold).unwrap();
    let dentry = Dentry {
        inode: number,
        generation: 1,
        kind: FileKind::File,
    };
    let name = |at: u32| format!("a-name-in-a-directory-{at}").into_bytes();
    let shown = |test: &TestCore| {
        let geometry = test.core.state.pool.geometry();
        let is_free = |page: &PagePtr| !test.core.state.space.is_used(*page);
        let text = |page: PagePtr| {
            let words = test.core.state.pool.page(page)?;
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
        let mut change = Change::new(&mut test.core.state);
        let mut inode = change.inode(number).unwrap();
        for at in step {
            crate::apply::directory::add(&mut change, &mut inode, &name(at), dentry).unwrap();
        }
        change.set_inode(inode);
        change.commit(Weight::Fold).unwrap();
        assert_eq!(shown(&test), 0, "after splits");
    }
    let mut change = Change::new(&mut test.core.state);
    let mut inode = change.inode(number).unwrap();
    for at in 0..2000 {
        crate::apply::directory::remove(&mut change, &mut inode, &name(at)).unwrap();
    }
    change.set_inode(inode);
    change.commit(Weight::Fold).unwrap();
    assert_eq!(shown(&test), 0, "after all have been removed");
}
