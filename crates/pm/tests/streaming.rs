//! The streaming copy at every alignment and length, against a plain copy, under
//! both policies.
#![allow(clippy::disallowed_methods)]

use arck_pm::{Access, MapOptions, Mapping, PersistPolicy, SharedBytes};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

fn check(view: SharedBytes<'_>, source: &[u8], offset: usize, len: usize, skew: usize) {
    let source = &source[skew..skew + len];
    let end = offset + len;
    // Guard bytes on both sides show stores outside the range.
    view.copy_from(offset - 64, &[0x55; 64]).unwrap();
    view.copy_from(end, &[0x55; 64]).unwrap();
    view.stream_from(offset, source).unwrap();
    arck_pm::fence();
    let mut seen = vec![0; len + 128];
    view.copy_to(offset - 64, &mut seen).unwrap();
    assert!(
        seen[..64]
            .iter()
            .chain(&seen[64 + len..])
            .all(|byte| *byte == 0x55)
    );
    assert!(
        &seen[64..64 + len] == source,
        "offset {offset} len {len} skew {skew}"
    );
}

#[test]
fn every_alignment_and_length() {
    let file = memfd_create("streaming", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 1 << 20).unwrap();
    let mapping = Mapping::new(&file, 0, 1 << 20, MapOptions::READ_WRITE).unwrap();
    assert_eq!(mapping.access(), Access::ReadWrite);
    let view = mapping.bytes();
    let source: Vec<u8> = (0..1u32 << 20)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for policy in [PersistPolicy::Flush, PersistPolicy::NoFlush] {
        arck_pm::set_policy(policy);
        for start in 0..64 {
            for len in (0..=260).chain([767, 768, 769, 1024, 4095, 4096, 4097]) {
                for skew in [0, 1, 8, 15] {
                    check(view, &source, 4096 + start, len, skew);
                }
            }
        }
        for len in [65536, 100_001] {
            check(view, &source, 4096 + 7, len, 3);
        }
    }
}
