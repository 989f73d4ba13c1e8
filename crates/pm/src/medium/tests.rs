//! The process-wide part, with the machine's clock. Nothing is expected to take less than a time.

pub(crate) use super::model::tests::model;
use super::*;
use crate::{SharedBytes, fence};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What is emulated belongs to the process.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A medium of 10 MB/s and of a latency of 300 microseconds.
fn slow() -> Model {
    let mut model = model();
    let by_threads = Curve::new(&[(1, 10)]).unwrap();
    for direction in [&mut model.read, &mut model.write] {
        direction.by_threads = by_threads;
        direction.by_size = Curve::NONE;
        direction.latency = 300_000;
    }
    model
}

fn memory(bytes: usize) -> Vec<AtomicU64> {
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn what_is_emulated_takes_its_time_and_nothing_else_does() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let words = memory(1 << 16);
    let bytes = SharedBytes::from_words(&words);
    let mut buffer = vec![7; 20_000];
    let page = make_page(&slow()).unwrap();
    emulate(&page).unwrap();
    note_pool(bytes.as_ptr());
    assert_eq!(super::model(), Some(&slow()));
    // What the last wait took too long is credited to those who come back soon.
    let begin = || {
        std::thread::sleep(Duration::from_millis(3));
        Instant::now()
    };
    let least = |nanoseconds: u64, begun: Instant| {
        let elapsed = begun.elapsed();
        assert!(
            elapsed >= Duration::from_nanos(nanoseconds),
            "{elapsed:?} of {nanoseconds}"
        );
    };
    let begun = begin();
    bytes.flush(0, 64).unwrap();
    fence();
    least(300_000, begun);
    let begun = begin();
    bytes.stream_from(0, &buffer).unwrap();
    fence();
    least(1_900_000, begun);
    let begun = begin();
    bytes.stream_u64(8, 1).unwrap();
    fence();
    least(300_000, begun);
    let begun = begin();
    bytes.copy_to(0, &mut buffer).unwrap();
    least(1_900_000, begun);
    let begun = begin();
    bytes.try_copy_to(0, &mut buffer).unwrap();
    least(1_900_000, begun);
    assert_eq!(&buffer[..16], &[[7; 8], 1u64.to_ne_bytes()].concat()[..]);

    stop();
    assert_eq!(super::model(), None);
    let busy = || {
        let words = emulated().unwrap().words;
        words[512..].iter().map(|word| word.load(Ordering::Relaxed))
    };
    let before: Vec<u64> = busy().collect();
    bytes.stream_from(0, &buffer).unwrap();
    bytes.flush(0, 64).unwrap();
    fence();
    bytes.copy_to(0, &mut buffer).unwrap();
    // Nobody has as much as looked at the page.
    assert!(busy().eq(before));
}

#[test]
fn what_is_no_page_is_refused() {
    let file = memfd_create("none", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(emulate(&file), Err(Error::Medium(ModelError::Page)));
    ftruncate(&file, PAGE_BYTES as u64).unwrap();
    assert_eq!(emulate(&file), Err(Error::Medium(ModelError::Page)));
    let nothing = Model {
        nodes: 0,
        ..model()
    };
    assert_eq!(make_page(&nothing).err(), Some(ModelError::Nodes(0).into()));
}

#[test]
fn the_size_of_a_page_stays() {
    let page = make_page(&model()).unwrap();
    assert_eq!(ftruncate(&page, 0), Err(Errno::PERM));
}
