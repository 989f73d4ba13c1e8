//! Traces of real stores, and what replaying them finds.
#![allow(clippy::disallowed_methods)]

use arck_pm::record::{EventKind, FileId, Recording, mark};
use arck_pm::replay::{Region, Replay, fence_points};
use arck_pm::{Error, MapOptions, Mapping, PersistPolicy, SharedBytes, order};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Recording concerns the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAGE: usize = 4096;

fn file() -> (OwnedFd, Region) {
    let file = memfd_create("record", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, PAGE as u64).unwrap();
    let status = fstat(&file).unwrap();
    let id = FileId {
        device: status.st_dev,
        inode: status.st_ino,
    };
    (
        file,
        Region::File {
            file: id,
            offset: 0,
        },
    )
}

fn map(file: &OwnedFd) -> Mapping {
    Mapping::new(file, 0, PAGE, MapOptions::READ_WRITE).unwrap()
}

/// Writes a record and publishes it; forgets to flush the name if so asked (by going
/// around the tokens, which would not allow it).
fn create(page: SharedBytes<'_>, forget: bool) -> Option<()> {
    mark("create");
    let proof = if forget {
        page.copy_from(64, b"a name")?;
        page.stream(128, &[7; 64])?
    } else {
        page.write(64, b"a name")?
            .flush()
            .join(page.stream(128, &[7; 64])?)
    };
    let published = page.publish(0, 1, order::fence(proof))?;
    let _: order::Durable = order::fence(published.flush());
    Some(())
}

#[test]
fn a_missing_flush_shows() {
    let _alone = alone();
    for forget in [false, true] {
        let (file, region) = file();
        let recording = Recording::start().unwrap();
        let mapping = map(&file);
        create(mapping.bytes(), forget).unwrap();
        let events = recording.finish();
        let (points, end) = fence_points(&events, region, vec![0; PAGE]).unwrap();
        assert_eq!(points.len(), 2);
        let lost: Vec<u64> = end.in_flight().iter().map(|line| line.offset).collect();
        assert_eq!(lost, if forget { vec![64] } else { vec![] });
        // The crash that the missing flush allows: published, without a name.
        let image = &points[1].durable;
        assert_eq!(image[0], 1);
        assert_eq!(image[128..192], [7; 64]);
        assert_eq!(&image[64..70] == b"a name", !forget);
        // At the first fence nothing is published yet, not even possibly.
        assert_eq!(points[0].durable[0], 0);
        let marks = events
            .iter()
            .filter(|event| event.kind == EventKind::Mark("create".into()));
        assert_eq!(marks.count(), 1);
        assert!(end.idle_flushes().is_empty() && end.idle_fences().is_empty());
    }
}

#[test]
fn the_visible_image_is_what_memory_holds() {
    let _alone = alone();
    for policy in [PersistPolicy::Flush, PersistPolicy::NoFlush] {
        arck_pm::set_policy(policy);
        let (file, region) = file();
        let recording = Recording::start().unwrap();
        let (one, two) = (map(&file), map(&file));
        let (a, b) = (one.bytes(), two.bytes());
        a.store_u64(8, u64::MAX, Ordering::Release).unwrap();
        b.store_u32(12, 5, Ordering::Release).unwrap();
        assert_eq!(b.compare_exchange_u64(16, 0, 9), Some(Ok(())));
        assert_eq!(b.compare_exchange_u64(16, 0, 10), Some(Err(9)));
        a.fetch_add_u64(16, 1).unwrap();
        a.stream_u64(24, 3).unwrap();
        b.stream_from(61, &[4; 200]).unwrap();
        a.copy_from(1000, &[6; 600]).unwrap();
        b.fill_zero(1100, 100).unwrap();
        a.stream_zero(1300, 100).unwrap();
        b.copy_from_shared(2000, a.slice(60, 300).unwrap()).unwrap();
        a.stream_and_fence_from(3000, &[8; 100]).unwrap();
        b.try_copy_from(3200, &[9; 100], arck_pm::copy::Stores::Cached)
            .unwrap();
        a.try_copy_from(3401, &[9; 300], arck_pm::copy::Stores::Streaming)
            .unwrap();
        let _ = order::publish_exchange(a.atomic_u64(32).unwrap(), 0, 1, durable(a));
        let _ = order::publish_streaming(a.atomic_u64(40).unwrap(), 2, durable(a));
        let mut memory = vec![0; PAGE];
        a.copy_to(0, &mut memory).unwrap();
        drop((one, two));
        let (_, mut end) = fence_points(&recording.take(), region, vec![0; PAGE]).unwrap();
        assert!(end.visible_image() == memory);
        // With everything flushed and fenced, that is also what is durable.
        let again = map(&file);
        again.bytes().flush(0, PAGE).unwrap();
        arck_pm::fence();
        for event in recording.finish() {
            end.step(&event);
        }
        assert!(end.durable_image() == memory);
        assert!(end.in_flight().is_empty());
    }
    arck_pm::set_policy(PersistPolicy::Flush);
}

fn durable(view: SharedBytes<'_>) -> order::Durable {
    order::fence(view.dirty(0, 8).unwrap().flush())
}

#[test]
fn a_faulting_store_is_traced_as_far_as_it_came() {
    let _alone = alone();
    let (file, region) = file();
    let recording = Recording::start().unwrap();
    let mapping = Mapping::new(&file, 0, 2 * PAGE, MapOptions::READ_WRITE).unwrap();
    let error = mapping
        .bytes()
        .try_copy_from(PAGE - 64, &[3; 128], arck_pm::copy::Stores::Streaming)
        .unwrap_err();
    assert!(matches!(error, Error::Fault(fault) if fault.copied == 64));
    let end = fence_points(&recording.finish(), region, vec![0; PAGE])
        .unwrap()
        .1;
    assert_eq!(end.visible_image()[PAGE - 64..], [3; 64]);
}

#[test]
fn one_recording_at_a_time() {
    let _alone = alone();
    let first = Recording::start().unwrap();
    assert_eq!(Recording::start().unwrap_err(), Error::AlreadyRecording);
    arck_pm::fence();
    assert_eq!(first.take().len(), 1);
    assert_eq!(first.finish(), []);
    arck_pm::fence();
    assert_eq!(Recording::start().unwrap().finish(), []);
}

#[test]
fn threads_are_told_apart() {
    let _alone = alone();
    let (file, region) = file();
    let recording = Recording::start().unwrap();
    let mapping = map(&file);
    mapping.bytes().stream_u64(0, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(arck_pm::fence);
    });
    let (points, _) = fence_points(&recording.take(), region, vec![0; PAGE]).unwrap();
    assert_eq!(points[0].durable[0], 0);
    assert_eq!(points[0].in_flight.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the range, a streaming copy is durable after one fence, and leaves the
    /// same trace of bytes as memory.
    #[test]
    fn a_streamed_range_is_durable_after_one_fence(offset in 0usize..200, len in 0usize..600) {
        let _alone = alone();
        let (file, region) = file();
        let recording = Recording::start().unwrap();
        let mapping = map(&file);
        let bytes: Vec<u8> = (0..len).map(|index| index as u8 | 1).collect();
        mapping.bytes().stream_from(offset, &bytes).unwrap();
        let before = recording.take();
        let mut replay = Replay::new(region, vec![0; PAGE]).unwrap();
        before.iter().for_each(|event| replay.step(event));
        prop_assert!(replay.durable_image().iter().all(|byte| *byte == 0));
        arck_pm::fence();
        recording.finish().iter().for_each(|event| replay.step(event));
        prop_assert_eq!(&replay.durable_image()[offset..offset + len], bytes.as_slice());
        prop_assert!(replay.in_flight().is_empty());
    }
}
