//! Long files, reachable as far as they are in use.

#![cfg(not(miri))]

mod maps;

use arck_pm::long::Part;
use arck_pm::mapping::PAGE;
use arck_pm::{LongFile, MapOptions};
use maps::{memfd, readable, sees};
use std::sync::atomic::Ordering::Relaxed;

const LENGTH: usize = 1 << 40;
const SECOND: usize = 1 << 39;

fn parts() -> [Part; 2] {
    [(0, 2 * PAGE), (SECOND, SECOND + PAGE)].map(|(start, end)| Part { start, end })
}

#[test]
fn parts_are_reached_as_far_as_they_were_said_to_be() {
    let file = memfd(LENGTH);
    let long = LongFile::new(&file, LENGTH, &parts(), MapOptions::READ_WRITE).unwrap();
    let base = long.as_ptr() as usize;
    assert_eq!(readable(base, LENGTH), 3 * PAGE);
    let bytes = long.bytes();
    bytes.store_u64(PAGE, 1, Relaxed).unwrap();
    bytes.store_u64(SECOND, 2, Relaxed).unwrap();
    assert_eq!(long.reach(0, 3 * PAGE + 1).unwrap(), 4 * PAGE);
    assert_eq!(long.reach(0, PAGE).unwrap(), 4 * PAGE);
    assert_eq!(
        long.reach(SECOND, SECOND + 5 * PAGE).unwrap(),
        SECOND + 5 * PAGE
    );
    assert_eq!(readable(base, LENGTH), 9 * PAGE);
    bytes.store_u64(3 * PAGE, 3, Relaxed).unwrap();
    bytes.store_u64(SECOND + 4 * PAGE, 4, Relaxed).unwrap();
    assert_eq!(bytes.load_u64(PAGE, Relaxed), Some(1));
    assert_eq!(sees(&file, (SECOND + 4 * PAGE) as u64), 4);
    for (start, end) in [(PAGE, 2 * PAGE), (0, SECOND + PAGE), (SECOND, usize::MAX)] {
        assert!(long.reach(start, end).is_err(), "{start} {end}");
    }
    // Nothing of it is dumped, nor anything of what is not reached read by who reads all there is.
    assert!(maps::flags_of(base).iter().any(|flag| flag == "dd"));
    long.replace_by_zeroes().unwrap();
    assert_eq!(bytes.load_u64(PAGE, Relaxed), Some(0));
    bytes.store_u64(SECOND, 9, Relaxed).unwrap();
    assert_eq!(sees(&file, SECOND as u64), 2);
    assert_eq!(readable(base, LENGTH), 9 * PAGE);
    drop(long);
    assert_eq!(readable(base, LENGTH), 0);
}

#[test]
fn parts_that_are_none_are_refused() {
    let file = memfd(LENGTH);
    for [first, second] in [
        [(0, 1), (SECOND, SECOND + PAGE)],
        [(PAGE, PAGE), (SECOND, SECOND + PAGE)],
        [(SECOND, SECOND + PAGE), (0, PAGE)],
        [(0, 2 * PAGE), (PAGE, 3 * PAGE)],
        [(0, PAGE), (SECOND, LENGTH + PAGE)],
    ] {
        let parts = [first, second].map(|(start, end)| Part { start, end });
        assert!(LongFile::new(&file, LENGTH, &parts, MapOptions::READ_ONLY).is_err());
    }
}
