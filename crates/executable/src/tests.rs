use super::*;

fn of(bytes: &[u8]) -> Kind {
    Kind::of(&bytes[..bytes.len().min(START)], reading(bytes))
}

/// Reads a file that is in memory.
pub fn reading(bytes: &[u8]) -> impl FnMut(&mut [u8], u64) -> bool {
    |buffer, offset| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        match bytes.get(from..from.saturating_add(buffer.len())) {
            Some(part) => {
                buffer.copy_from_slice(part);
                true
            }
            None => false,
        }
    }
}

/// A file with these segments.
fn elf(segments: &[(u64, &[u8])]) -> Vec<u8> {
    let mut file = vec![0; HEADER + segments.len() * SEGMENT];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[18] = 62;
    file[32] = HEADER as u8;
    file[54] = SEGMENT as u8;
    file[56] = segments.len() as u8;
    for (index, (kind, content)) in segments.iter().enumerate() {
        let entry = HEADER + index * SEGMENT;
        let place = file.len() as u64;
        file[entry..entry + 4].copy_from_slice(&kind.to_le_bytes()[..4]);
        file[entry + 8..entry + 16].copy_from_slice(&place.to_le_bytes());
        file[entry + 32..entry + 40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        file.extend_from_slice(content);
    }
    file
}

/// Its type, and what is in it.
type Segment = (u64, &'static [u8]);

const GLIBC: Segment = (PT_INTERP, b"/lib64/ld-linux-x86-64.so.2\0");
const GO: Segment = (PT_NOTE, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
const GNU: Segment = (PT_NOTE, b"\x04\0\0\0\x04\0\0\0\x01\0\0\0GNU\0abcd");
const TWO_NOTES: Segment = (
    PT_NOTE,
    b"\x04\0\0\0\x04\0\0\0\x01\0\0\0GNU\0abcd\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd",
);
const NEEDS: Segment = (
    PT_DYNAMIC,
    &[1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
);
/// DT_HASH, and the end before a DT_NEEDED.
const NEEDS_NONE: Segment = (
    PT_DYNAMIC,
    &[
        4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
);
const FAR: Segment = (1, &[0x90; 3 * START]);

#[test]
fn kinds_are_told_apart() {
    let musl: Segment = (PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0");
    let table: &[(&[Segment], Kind)] = &[
        (&[(1, b"x")], Kind::Static),
        (&[NEEDS], Kind::Static),
        (&[GNU], Kind::Static),
        (&[GO], Kind::Go),
        (&[FAR, GO], Kind::Go),
        (&[TWO_NOTES], Kind::Go),
        // With a linker, and nothing for it to do.
        (&[GLIBC, GO, NEEDS_NONE], Kind::Go),
        (&[GLIBC, GO], Kind::Go),
        (&[musl, NEEDS], Kind::OtherLibc),
    ];
    for (segments, expected) in table {
        let got = of(&elf(segments));
        assert_eq!(got, *expected, "{segments:?}");
        assert!(got.why_unreached().is_some());
    }
    for segments in [&[GLIBC][..], &[FAR, GNU, GLIBC, NEEDS], &[GLIBC, GO, NEEDS]] {
        let got = of(&elf(segments));
        assert!(matches!(got, Kind::Dynamic { length: 28, .. }), "{got:?}");
        assert_eq!(got.why_unreached(), None);
    }
    let mut other = elf(&[GLIBC]);
    other[18] = 3;
    assert_eq!(of(&other), Kind::OtherMachine);
    // A dynamic linker.
    let soname: Segment = (
        PT_DYNAMIC,
        &[14, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
    );
    assert_eq!(of(&elf(&[soname])), Kind::Unknown);
    assert_eq!(of(b"#!/bin/sh\n"), Kind::Unknown);
    assert_eq!(of(b""), Kind::Unknown);
}

#[test]
fn the_linkers_path_is_where_it_is_said_to_be() {
    let file = elf(&[FAR, GLIBC]);
    let Kind::Dynamic { place, length } = of(&file) else {
        panic!("{:?}", of(&file));
    };
    assert_eq!(&file[place as usize..][..length], GLIBC.1);
}

#[test]
fn this_test_is_dynamic() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(of(&own), Kind::Dynamic { .. }));
}

/// Each byte of a small file at its worst, and each cut, ends, and without a panic.
#[test]
fn damaged_files_are_looked_at_in_bounded_time() {
    let whole = elf(&[FAR, GLIBC, GO, GNU, NEEDS]);
    for length in (0..whole.len()).step_by(3) {
        let _ = of(&whole[..length]);
    }
    for at in (0..HEADER + 5 * SEGMENT).chain(whole.len() - 120..whole.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            let mut reads = 0;
            let _ = Kind::of(&damaged[..START], |_, _| {
                reads += 1;
                true
            });
            assert!(reads < 1000, "{at} {value}: {reads}");
        }
    }
    assert_eq!(of(&whole[..60]), Kind::Unknown);
}
