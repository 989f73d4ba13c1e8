//! Mappings of a process whose address space is limited, as by `ulimit -v`. All of this runs in one process
//! of its own, whose limit it sets.

#![cfg(not(miri))]

mod maps;

use arck_pm::long::Part;
use arck_pm::mapping::{HUGE_PAGE, PAGE};
use arck_pm::{AddressSpace, LongFile, MapOptions};
use maps::{memfd, readable, sees, status};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::atomic::Ordering::Relaxed;

const ROOM: usize = 64 << 20;
const LENGTH: usize = 1 << 40;

#[test]
fn what_is_mapped_is_all_that_counts() {
    // What is there already gives up what it does not need.
    let file = memfd(LENGTH);
    let parts = [(0, PAGE), (LENGTH / 2, LENGTH / 2 + PAGE)];
    let parts = parts.map(|(start, end)| Part { start, end });
    let long = LongFile::new(&file, LENGTH, &parts, MapOptions::READ_WRITE).unwrap();
    let space = AddressSpace::reserve(LENGTH).unwrap();
    space
        .map(HUGE_PAGE, HUGE_PAGE, &file, 0, MapOptions::READ_WRITE)
        .unwrap();
    assert!(status("VmSize") > 2 * LENGTH);
    long.bytes().store_u64(LENGTH / 2, 3, Relaxed).unwrap();
    long.give_up_reservation();
    space.give_up_reservation();
    assert!(status("VmSize") < ROOM * 16);

    let mut limit = getrlimit(Resource::As);
    limit.current = Some((status("VmSize") + ROOM) as u64);
    setrlimit(Resource::As, limit).unwrap();
    assert_eq!(long.bytes().load_u64(LENGTH / 2, Relaxed), Some(3));
    long.reach(LENGTH / 2, LENGTH / 2 + 2 * HUGE_PAGE).unwrap();
    let last = LENGTH / 2 + 2 * HUGE_PAGE - 8;
    long.bytes().store_u64(last, 4, Relaxed).unwrap();
    assert_eq!(sees(&file, last as u64), 4);
    let words = space.bytes();
    words.store_u64(HUGE_PAGE, 5, Relaxed).unwrap();
    space
        .map(8 * HUGE_PAGE, HUGE_PAGE, &file, 0, MapOptions::READ_ONLY)
        .unwrap();
    assert_eq!(words.load_u64(8 * HUGE_PAGE, Relaxed), Some(5));
    space.replace_by_zeroes(HUGE_PAGE, HUGE_PAGE).unwrap();
    assert_eq!(words.load_u64(HUGE_PAGE, Relaxed), Some(0));
    drop((long, space));
    a_long_file();
    an_address_space();
}

fn a_long_file() {
    let file = memfd(LENGTH);
    let second = LENGTH / 2;
    let parts = [(0, PAGE), (second, second + PAGE)].map(|(start, end)| Part { start, end });
    let before = status("VmSize");
    let long = LongFile::new(&file, LENGTH, &parts, MapOptions::READ_WRITE).unwrap();
    let base = long.as_ptr() as usize;
    assert!(status("VmSize") - before < 1 << 20);
    let bytes = long.bytes();
    long.reach(second, second + ROOM / 4).unwrap();
    long.reach(0, ROOM / 4).unwrap();
    bytes.store_u64(second + ROOM / 4 - 8, 5, Relaxed).unwrap();
    bytes.store_u64(ROOM / 4 - 8, 6, Relaxed).unwrap();
    assert_eq!(sees(&file, (second + ROOM / 4 - 8) as u64), 5);
    assert_eq!(sees(&file, (ROOM / 4 - 8) as u64), 6);
    assert_eq!(readable(base, LENGTH), ROOM / 2);
    assert!(maps::flags_of(base).iter().any(|flag| flag == "dd"));
    // More than the limit allows is refused, and changes nothing.
    let refused = long.reach(0, 2 * ROOM).unwrap_err();
    assert_eq!(refused.errno(), Errno::NOMEM);
    assert_eq!(readable(base, LENGTH), ROOM / 2);
    long.replace_by_zeroes().unwrap();
    assert_eq!(bytes.load_u64(ROOM / 4 - 8, Relaxed), Some(0));
    drop(long);
    assert_eq!(readable(base, LENGTH), 0);
}

fn an_address_space() {
    let before = status("VmSize");
    let space = AddressSpace::reserve(LENGTH).unwrap();
    assert!(status("VmSize") - before < 1 << 20);
    let file = memfd(HUGE_PAGE);
    rustix::io::pwrite(&file, &7u64.to_le_bytes(), 0).unwrap();
    let far = LENGTH - HUGE_PAGE;
    for offset in [0, far] {
        space
            .map(offset, HUGE_PAGE, &file, 0, MapOptions::READ_ONLY)
            .unwrap();
        assert_eq!(space.bytes().load_u64(offset, Relaxed), Some(7));
    }
    // In place of itself, by zeroes, and again; nothing is left of what was there.
    space.replace_by_zeroes(far, HUGE_PAGE).unwrap();
    assert_eq!(space.bytes().load_u64(far, Relaxed), Some(0));
    space
        .map(far, HUGE_PAGE, &file, 0, MapOptions::READ_WRITE)
        .unwrap();
    space.bytes().store_u64(far, 8, Relaxed).unwrap();
    assert_eq!(sees(&file, 0), 8);
    let base = space.base() as usize;
    assert_eq!(readable(base, LENGTH), 2 * HUGE_PAGE);
    space.replace_all_by_zeroes().unwrap();
    assert_eq!(space.bytes().load_u64(0, Relaxed), Some(0));
    assert_eq!(space.bytes().load_u64(far, Relaxed), Some(0));
    // What somebody else has mapped between is not ours to replace.
    let strange = base + 16 * HUGE_PAGE;
    // SAFETY: nothing is replaced; it is not touched.
    let theirs = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::without_provenance_mut(strange),
            PAGE,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED_NOREPLACE,
        )
    };
    assert!(theirs.is_ok());
    let refused = space
        .map(16 * HUGE_PAGE, HUGE_PAGE, &file, 0, MapOptions::READ_ONLY)
        .unwrap_err();
    assert_eq!(refused.errno(), Errno::EXIST);
    space.unmap(0, HUGE_PAGE).unwrap();
    assert_eq!(readable(base, LENGTH), HUGE_PAGE + PAGE);
    drop(space);
    assert_eq!(readable(base, LENGTH), PAGE);
}
