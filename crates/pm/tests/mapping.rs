//! Mappings and reservations on real files.

use arck_pm::{Access, AddressSpace, Error, MapOptions, Mapping};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

fn memfd(len: usize, fill: u64) -> OwnedFd {
    let file = memfd_create("mapping", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, len as u64).unwrap();
    let mapping = Mapping::new(&file, 0, len, MapOptions::READ_WRITE).unwrap();
    for page in (0..len).step_by(PAGE) {
        mapping
            .bytes()
            .store_u64(page, fill + (page / PAGE) as u64, Relaxed)
            .unwrap();
    }
    file
}

#[test]
fn two_mappings_share_a_file() {
    let file = memfd(4 * PAGE, 0);
    let all = Mapping::new(&file, 0, 4 * PAGE, MapOptions::READ_WRITE).unwrap();
    let part = Mapping::new(
        &file,
        PAGE as u64,
        2 * PAGE,
        MapOptions::READ_ONLY.populate(true),
    )
    .unwrap();
    assert_eq!((part.len(), part.access()), (2 * PAGE, Access::ReadOnly));
    all.bytes().store_u64(PAGE + 8, 77, Relaxed).unwrap();
    assert_eq!(part.bytes().load_u64(8, Relaxed), Some(77));
    assert_eq!(part.bytes().load_u64(0, Relaxed), Some(1));
    part.populate(0, 2 * PAGE).unwrap();
    all.populate(100, 3 * PAGE).unwrap();
    all.write_back(5, PAGE).unwrap();
    assert!(matches!(
        all.populate(PAGE, 4 * PAGE),
        Err(Error::OutOfBounds { .. })
    ));
    assert_eq!(
        all.populate(PAGE, 4 * PAGE).unwrap_err().errno(),
        Errno::FAULT
    );
}

#[test]
fn errors_are_the_kernels() {
    let file = memfd(PAGE, 0);
    let errno = |offset, len, options| {
        Mapping::new(&file, offset, len, options)
            .map(|_| ())
            .unwrap_err()
            .errno()
    };
    assert_eq!(errno(0, 0, MapOptions::READ_ONLY), Errno::INVAL);
    assert_eq!(errno(17, PAGE, MapOptions::READ_ONLY), Errno::INVAL);
    assert_eq!(
        errno(0, PAGE, MapOptions::READ_WRITE.synchronous(true)),
        Errno::OPNOTSUPP
    );
    let read_only =
        rustix::fs::open("/proc/self/exe", rustix::fs::OFlags::RDONLY, 0.into()).unwrap();
    let error = Mapping::new(&read_only, 0, PAGE, MapOptions::READ_WRITE).unwrap_err();
    assert_eq!(error.errno(), Errno::ACCESS);
    // Populating what the file does not have.
    ftruncate(&file, 0).unwrap();
    let mapping = Mapping::new(&file, 0, PAGE, MapOptions::READ_ONLY).unwrap();
    assert_eq!(mapping.populate(0, PAGE).unwrap_err().errno(), Errno::FAULT);
}

#[test]
fn pieces_of_an_address_space_come_and_go() {
    let space = AddressSpace::reserve(10 * HUGE - 5).unwrap();
    assert_eq!(space.len(), 10 * HUGE);
    assert_eq!(space.base() as usize % HUGE, 0);
    let (first, second) = (memfd(HUGE, 1000), memfd(HUGE, 2000));
    space
        .map(0, HUGE, &first, 0, MapOptions::READ_WRITE)
        .unwrap();
    space
        .map(HUGE, PAGE, &second, PAGE as u64, MapOptions::READ_ONLY)
        .unwrap();
    let view = space.bytes();
    assert_eq!(view.load_u64(PAGE, Relaxed), Some(1001));
    assert_eq!(view.load_u64(HUGE, Relaxed), Some(2001));
    space.populate(0, HUGE, Access::ReadWrite).unwrap();
    let advice = space.advise_huge_pages(0, HUGE);
    assert!(matches!(
        advice,
        Ok(())
            | Err(Error::System {
                errno: Errno::INVAL,
                ..
            })
    ));
    // Replaced in place, under the same view.
    space
        .map(0, HUGE, &second, 0, MapOptions::READ_ONLY)
        .unwrap();
    assert_eq!(view.load_u64(PAGE, Relaxed), Some(2001));
    space.replace_by_zeroes(0, PAGE).unwrap();
    view.store_u64(0, 5, Relaxed).unwrap();
    assert_eq!(view.load_u64(PAGE, Relaxed), Some(2001));
    let check = Mapping::new(&second, 0, PAGE, MapOptions::READ_ONLY).unwrap();
    assert_eq!(check.bytes().load_u64(0, Relaxed), Some(2000));
    space.unmap(0, HUGE).unwrap();
    assert_eq!(
        space
            .populate(0, PAGE, Access::ReadOnly)
            .unwrap_err()
            .errno(),
        Errno::INVAL
    );
}

#[test]
fn an_address_space_refuses_what_is_not_its_own() {
    let space = AddressSpace::reserve(HUGE).unwrap();
    let file = memfd(2 * PAGE, 0);
    for (offset, len) in [
        (HUGE, PAGE),
        (HUGE - PAGE, 2 * PAGE),
        (1, PAGE),
        (0, 0),
        (0, 100),
    ] {
        let error = space
            .map(offset, len, &file, 0, MapOptions::READ_ONLY)
            .unwrap_err();
        assert_eq!(error.errno(), Errno::FAULT, "{offset} {len}");
        assert!(space.unmap(offset, len).is_err());
    }
    assert_eq!(
        AddressSpace::reserve(usize::MAX).unwrap_err().errno(),
        Errno::NOMEM
    );
    assert_eq!(
        AddressSpace::reserve(1 << 60).unwrap_err().errno(),
        Errno::NOMEM
    );
    assert_eq!(space.offset_of(space.base().wrapping_add(9)), Some(9));
    assert_eq!(space.offset_of(space.base().wrapping_sub(1)), None);
    assert_eq!(space.offset_of(space.base().wrapping_add(HUGE)), None);
}

#[test]
fn vacant_parts_cost_nothing_and_return_at_drop() {
    // Far beyond the machine's memory.
    let space = AddressSpace::reserve(1 << 40).unwrap();
    let file = memfd(PAGE, 3);
    space
        .map((1 << 40) - PAGE, PAGE, &file, 0, MapOptions::READ_ONLY)
        .unwrap();
    assert_eq!(space.bytes().load_u64((1 << 40) - PAGE, Relaxed), Some(3));
    let base = space.base() as usize;
    drop(space);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inside = |line: &str| {
        let start = line
            .split('-')
            .next()
            .and_then(|start| usize::from_str_radix(start, 16).ok());
        let file = line.contains("mapping");
        file && start.is_some_and(|start| start >= base && start < base + (1 << 40))
    };
    assert!(!maps.lines().any(inside));
}
