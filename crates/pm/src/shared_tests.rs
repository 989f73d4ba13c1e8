//! Bounds, alignment and contents of views; asm-free under Miri.

use super::*;
use proptest::prelude::*;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn contents(view: SharedBytes<'_>) -> Vec<u8> {
    let mut bytes = vec![0; view.len()];
    view.copy_to(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn refuses_what_lies_outside_or_askew() {
    let memory = words(8);
    let view = SharedBytes::from_words(&memory);
    assert_eq!(view.len(), 64);
    let relaxed = Ordering::Relaxed;
    assert_eq!(view.load_u64(56, relaxed), Some(0));
    for offset in [57, 60, 64, 65, usize::MAX, usize::MAX - 7] {
        assert_eq!(view.load_u64(offset, relaxed), None, "{offset}");
        assert_eq!(view.store_u64(offset, 1, relaxed), None);
        assert!(view.atomic_u64(offset).is_none());
        assert_eq!(view.stream_u64(offset, 1), None);
        assert!(view.compare_exchange_u64(offset, 0, 1).is_none());
        assert!(view.write_u64(offset, 1).is_none());
    }
    assert_eq!(view.load_u64(4, relaxed), None);
    assert_eq!(view.load_u32(4, relaxed), Some(0));
    assert_eq!(view.load_u32(60, relaxed), Some(0));
    assert_eq!(view.load_u32(62, relaxed), None);
    assert!(view.slice(64, 0).is_some_and(|empty| empty.is_empty()));
    assert!(view.slice(65, 0).is_none());
    assert!(view.slice(1, usize::MAX).is_none());
    assert!(view.slice(32, 33).is_none());
    assert_eq!(view.copy_from(60, &[1; 5]), None);
    assert_eq!(view.stream_from(60, &[1; 5]), None);
    assert_eq!(view.copy_to(60, &mut [1; 5]), None);
    assert_eq!(view.fill_zero(60, 5), None);
    assert_eq!(view.flush(60, 5), None);
    assert!(view.stream(60, &[1; 5]).is_none());
    assert!(view.dirty(60, 5).is_none());
    assert!(matches!(
        view.try_copy_to(60, &mut [1; 5]),
        Err(Error::OutOfBounds { .. })
    ));
    assert_eq!(contents(view), [0; 64]);
    // A part checks its own bounds, and alignment by address.
    let part = view.slice(4, 16).unwrap();
    assert_eq!(part.load_u64(0, relaxed), None);
    assert_eq!(part.load_u64(4, relaxed), Some(0));
    assert_eq!(part.load_u64(12, relaxed), None);
}

#[test]
fn words_are_stored_exchanged_and_added() {
    let memory = words(8);
    let view = SharedBytes::from_words(&memory);
    view.store_u64(8, 7, Ordering::Release).unwrap();
    assert_eq!(view.compare_exchange_u64(8, 6, 9), Some(Err(7)));
    assert_eq!(view.compare_exchange_u64(8, 7, 9), Some(Ok(())));
    assert_eq!(view.fetch_add_u64(8, u64::MAX), Some(9));
    assert_eq!(memory[1].load(Ordering::Relaxed), 8);
    view.store_u32(4, 1, Ordering::Relaxed).unwrap();
    assert_eq!(view.fetch_add_u32(4, 2), Some(1));
    assert_eq!(view.compare_exchange_u32(4, 3, 4), Some(Ok(())));
    assert_eq!(memory[0].load(Ordering::Relaxed), 4 << 32);
    view.stream_u64(16, 5).unwrap();
    assert_eq!(memory[2].load(Ordering::Relaxed), 5);
}

#[test]
fn views_copy_from_views_unless_they_overlap() {
    let memory = words(8);
    let view = SharedBytes::from_words(&memory);
    view.copy_from(0, &[1, 2, 3, 4]).unwrap();
    view.copy_from_shared(32, view.slice(0, 4).unwrap())
        .unwrap();
    assert_eq!(contents(view)[32..36], [1, 2, 3, 4]);
    assert_eq!(view.copy_from_shared(2, view.slice(0, 4).unwrap()), None);
    assert_eq!(view.copy_from_shared(62, view.slice(0, 4).unwrap()), None);
}

#[test]
fn dirty_ranges_merge_if_no_line_lies_between() {
    let memory = words(64);
    // 64-byte lines counted from an aligned start.
    let view = SharedBytes::from_words(&memory);
    let skip = view.as_ptr() as usize % 64;
    let view = view.slice((64 - skip) % 64, 320).unwrap();
    let dirty = |offset, len| view.dirty(offset, len).unwrap();
    assert!(dirty(0, 8).merge(dirty(32, 8)).is_ok());
    assert!(dirty(64, 8).merge(dirty(0, 8)).is_ok());
    assert!(dirty(0, 8).merge(dirty(128, 8)).is_err());
    assert!(dirty(0, 64).merge(dirty(64, 8)).is_ok());
    assert!(dirty(0, 64).merge(dirty(128, 8)).is_err());
    assert!(dirty(0, 200).merge(dirty(64, 8)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_store_stores_its_range_and_nothing_else(
        offset in 0usize..130,
        bytes in prop::collection::vec(any::<u8>(), 0..1000),
        source_skew in 0usize..16,
        how in 0..6,
    ) {
        let memory = words(160);
        let view = SharedBytes::from_words(&memory);
        let background = vec![0xeeu8; view.len()];
        view.copy_from(0, &background).unwrap();
        let mut skewed = vec![0; source_skew];
        skewed.extend_from_slice(&bytes);
        let source = &skewed[source_skew..];
        let mut expected = background;
        expected[offset..offset + bytes.len()].copy_from_slice(source);
        match how {
            0 => view.copy_from(offset, source).unwrap(),
            1 => view.stream_from(offset, source).unwrap(),
            2 => view.stream_and_fence_from(offset, source).unwrap(),
            3 => view.try_copy_from(offset, source, Stores::Cached).unwrap(),
            4 => view.try_copy_from(offset, source, Stores::Streaming).unwrap(),
            _ => {
                expected[offset..offset + bytes.len()].fill(0);
                if source_skew % 2 == 0 {
                    view.fill_zero(offset, bytes.len()).unwrap();
                } else {
                    view.stream_zero(offset, bytes.len()).unwrap();
                }
            }
        }
        crate::fence();
        prop_assert_eq!(contents(view), expected.clone());
        let mut out = vec![0; bytes.len()];
        view.try_copy_to(offset, &mut out).unwrap();
        prop_assert_eq!(out.as_slice(), &expected[offset..offset + bytes.len()]);
    }
}
