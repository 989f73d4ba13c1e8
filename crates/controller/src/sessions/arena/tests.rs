//! Arenas that grow by themselves: what is asked for, what is there, and what may be.

use super::*;
use rustix::fs::MemfdFlags;

/// An arena of a few pages with nothing in it.
fn arena() -> Arena {
    let file = rustix::fs::memfd_create("arena", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, ARENA_SPAN).unwrap();
    let parts = parts(FIRST_BRANCH_PAGES, FIRST_DELTA_PAGES);
    let options = MapOptions::READ_ONLY;
    let mapping = LongFile::new(&file, ARENA_SPAN as usize, &parts, options).unwrap();
    Arena {
        file,
        mapping,
        branch_pages: FIRST_BRANCH_PAGES,
        delta_pages: FIRST_DELTA_PAGES,
        asked: (FIRST_BRANCH_PAGES, FIRST_DELTA_PAGES),
        free_slots: FreeSet::default(),
        next_slot: 0,
        growth: None,
        found: 0,
        overhead: 0,
        is_memory: true,
        huge_pages: Some(HugePages::default()),
        workers: Workers::default(),
        user: 7,
    }
}

/// Waits for what is under way.
fn finish_growth(arena: &mut Arena) {
    while arena.growth.is_some() {
        let (branch_pages, delta_pages) = arena.asked;
        let _ = arena.grow(branch_pages, delta_pages);
    }
}

fn allocated(arena: &Arena) -> u64 {
    rustix::fs::fstat(&arena.file).unwrap().st_blocks as u64 * 512
}

/// # Regression
/// Where the branch table was as long as it can be, and full, a session that owned many files was told that the pool was.
#[test]
fn a_table_that_cannot_grow_is_not_a_full_pool() {
    let mut arena = arena();
    let full = |arena: &mut Arena| arena.next_slot = arena.branch_pages * BRANCHES_PER_PAGE;
    full(&mut arena);
    assert_eq!(arena.take_slot(), Err(Errno::NOSPC));
    assert!(arena.pages_for_slots(1).is_some());
    arena.branch_pages = BRANCH_PAGES;
    full(&mut arena);
    assert_eq!(arena.take_slot(), Err(Errno::NOBUFS));
    assert_eq!(arena.pages_for_slots(1), None);
    arena.free_slot(9);
    assert_eq!(arena.take_slot(), Ok(9));
}

/// A session that created files as fast as it could asked for branches while delta pages were being
/// allocated. The worker then allocated the greater of each part; what the file might be was the
/// greater of the two sums. An honest session was closed for `27529216 allocated of at most 26091584`.
#[test]
fn what_grows_while_it_grows_is_within_its_bound() {
    const MORE: u32 = 1024;
    for (first, second) in [
        ((MORE, 0), (0, MORE)),
        ((0, MORE), (MORE, 0)),
        ((MORE, MORE), (2 * MORE, 0)),
    ] {
        let mut arena = arena();
        // The first is still under way when the second is asked for.
        let (sender, outcome) = std::sync::mpsc::channel();
        arena.asked = arena.asked_with(first).unwrap();
        let (branch_pages, delta_pages) = arena.asked;
        arena.growth = Some(Growth {
            branch_pages,
            delta_pages,
            outcome,
            patience: Duration::ZERO,
        });
        let allowed = arena.allowance(1, second).unwrap();
        allocate(&arena.file, 0, u64::from(1 + branch_pages) * PAGE_SIZE).unwrap();
        let delta = u64::from(DELTA_FIRST) * PAGE_SIZE;
        allocate(&arena.file, delta, u64::from(delta_pages) * PAGE_SIZE).unwrap();
        sender.send(Ok(())).unwrap();
        let grown = arena.grow(second.0, second.1);
        assert!(grown.is_ok(), "{first:?} {second:?}: {grown:?}");
        finish_growth(&mut arena);
        let bytes = allocated(&arena);
        assert!(
            bytes <= allowed.bytes,
            "{first:?}, then {second:?}: {bytes} of at most {}",
            allowed.bytes
        );
        assert_eq!(bytes, arena.granted(), "{first:?} {second:?}");
        // All of it is there to be folded, and nothing behind it.
        let (branch_pages, delta_pages) = arena.pages();
        for (first, pages) in [(1, branch_pages), (DELTA_FIRST, delta_pages)] {
            let end = u64::from(first + pages) * PAGE_SIZE;
            let copy = |offset| Reader(&arena).copy(offset, &mut [0; 8]).is_ok();
            assert_eq!([copy(end - 8), copy(end)], [true, false], "{first}");
        }
    }
}

/// What a worker began and could not end is in the file, and is not the session's doing.
#[test]
fn what_was_asked_of_a_worker_that_failed_may_be_there() {
    let mut arena = arena();
    arena.grow(0, 2048).unwrap();
    finish_growth(&mut arena);
    let (sender, outcome) = std::sync::mpsc::channel();
    arena.asked = arena.asked_with((0, 4096)).unwrap();
    arena.growth = Some(Growth {
        branch_pages: FIRST_BRANCH_PAGES,
        delta_pages: 4096,
        outcome,
        patience: Duration::ZERO,
    });
    let delta = u64::from(DELTA_FIRST) * PAGE_SIZE;
    allocate(&arena.file, delta, 4000 * PAGE_SIZE).unwrap();
    sender.send(Err(Errno::NOSPC)).unwrap();
    assert_eq!(arena.grow(0, 4096), Err(Errno::NOSPC));
    assert_eq!(arena.pages().1, 2048);
    let allowed = arena.allowance(1, arena.pages()).unwrap();
    assert!(allocated(&arena) <= allowed.bytes);
    assert_eq!(arena.grow(BRANCH_PAGES + 1, 0), Err(Errno::INVAL));
    assert_eq!(arena.asked.1, 4096);
}
