//! Bytes: what is written, cut off, punched and allocated, beside a vector that has the same done to it.

use super::*;
use proptest::prelude::*;

const PAGE: u64 = 4096;
/// Where files of these tests end at most.
const END: u64 = 24 * PAGE;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, u8),
    Append(u64, u8),
    Truncate(u64),
    Punch(u64, u64),
    Zero(u64, u64),
    Allocate(u64, u64),
    Fold,
}

/// Places near the edges of pages oftener than others.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..END / PAGE, -3i64..=3).prop_map(|(page, off)| (page * PAGE).saturating_add_signed(off)),
        0..END,
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![1..16u64, 1..3 * PAGE, Just(PAGE)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (place(), length(), 1u8..).prop_map(|(at, length, byte)| Step::Write(at, length, byte)),
        2 => (length(), 1u8..).prop_map(|(length, byte)| Step::Append(length, byte)),
        2 => place().prop_map(Step::Truncate),
        1 => (place(), length()).prop_map(|(at, length)| Step::Punch(at, length)),
        1 => (place(), length()).prop_map(|(at, length)| Step::Zero(at, length)),
        1 => (place(), length()).prop_map(|(at, length)| Step::Allocate(at, length)),
        1 => Just(Step::Fold),
    ]
}

/// The same, done to a vector.
fn model(bytes: &mut Vec<u8>, step: &Step) {
    let fill = |bytes: &mut Vec<u8>, at: u64, length: u64, byte: Option<u8>, grows: bool| {
        let (at, mut end) = (at as usize, (at + length) as usize);
        if grows {
            bytes.resize(bytes.len().max(end), 0);
        }
        end = end.min(bytes.len());
        if let (Some(byte), Some(range)) = (byte, bytes.get_mut(at.min(end)..end)) {
            range.fill(byte);
        }
    };
    match *step {
        Step::Write(at, length, byte) => fill(bytes, at, length, Some(byte), true),
        Step::Append(length, byte) => fill(bytes, bytes.len() as u64, length, Some(byte), true),
        Step::Truncate(size) => bytes.resize(size as usize, 0),
        Step::Punch(at, length) => fill(bytes, at, length, Some(0), false),
        Step::Zero(at, length) => fill(bytes, at, length, Some(0), true),
        Step::Allocate(at, length) => fill(bytes, at, length, None, true),
        Step::Fold => {}
    }
}

fn perform(fs: &FileSystem, file: Handle, step: &Step) {
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    match *step {
        Step::Write(at, length, byte) => {
            let bytes = vec![byte; length as usize];
            assert_eq!(fs.write(file, &bytes, Some(at)), Ok(bytes.len()));
        }
        Step::Append(length, byte) => {
            let end = fs.stat_handle(file).expect("its status").size;
            let bytes = vec![byte; length as usize];
            assert_eq!(fs.write(file, &bytes, Some(end)), Ok(bytes.len()));
        }
        Step::Truncate(size) => fs.truncate_handle(file, size).expect("another size"),
        Step::Punch(at, length) => fs
            .allocate(file, libc::FALLOC_FL_PUNCH_HOLE | keep, at, length)
            .expect("a hole"),
        Step::Zero(at, length) => fs
            .allocate(file, libc::FALLOC_FL_ZERO_RANGE, at, length)
            .expect("zeroes"),
        Step::Allocate(at, length) => fs.allocate(file, 0, at, length).expect("space"),
        Step::Fold => fold(fs.session()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The bytes, and the size, are those of a vector.
    #[test]
    fn a_file_is_a_vector_of_bytes(steps in proptest::collection::vec(step(), 1..40)) {
        let world = World::new();
        let file = world.one.opened("file", libc::O_CREAT | libc::O_RDWR).unwrap();
        let mut bytes = Vec::new();
        for step in &steps {
            perform(&world.one, file, step);
            model(&mut bytes, step);
        }
        world.one.close(file);
        let told = world.told(|fs| fs.whole("file").expect("its bytes"));
        prop_assert!(told == bytes, "{} bytes, {} expected", told.len(), bytes.len());
    }
}

/// What a read is told at the end, behind it, and over holes.
#[test]
fn reads_end_with_the_file() {
    let world = World::new();
    let file = world
        .one
        .opened("file", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    world.one.write(file, b"begin", None).unwrap();
    world.one.write(file, b"end", Some(10 * PAGE)).unwrap();
    world.one.close(file);
    let size = 10 * PAGE + 3;
    for (at, length, expected) in [
        (0, 5, 5),
        (3, 10, 10),
        (PAGE, 100, 100),
        (size - 3, 3, 3),
        (size - 1, 100, 1),
        (size, 1, 0),
        (size + PAGE, 10, 0),
        (1 << 62, 10, 0),
        (0, 0, 0),
    ] {
        let told = world.told(|fs| {
            let file = fs.opened("file", libc::O_RDONLY).unwrap();
            let mut bytes = vec![9; length];
            let read = fs.read(file, &mut bytes, Some(at));
            fs.close(file);
            (read, bytes)
        });
        assert_eq!(told.0, Ok(expected), "{length} bytes at {at}");
        let behind = |place: u64| match place {
            0..5 => b"begin"[place as usize],
            place if (size - 3..size).contains(&place) => b"end"[(place + 3 - size) as usize],
            _ => 0,
        };
        let bytes = (at..).take(expected).map(behind);
        assert!(
            told.1[..expected].iter().copied().eq(bytes),
            "{length} bytes at {at}"
        );
        assert!(
            told.1[expected..].iter().all(|&byte| byte == 9),
            "beyond what was read"
        );
    }
}

/// The offset belongs to the opening, and goes with what is read and written there and nowhere else.
#[test]
fn each_opening_has_its_offset() {
    let world = World::new();
    let fs = &world.one;
    fs.made("file", b"0123456789");
    let flags = libc::O_RDWR;
    let (first, second) = (
        fs.opened("file", flags).unwrap(),
        fs.opened("file", flags).unwrap(),
    );
    let mut bytes = [0; 4];
    assert_eq!(fs.read(first, &mut bytes, None), Ok(4));
    assert_eq!(fs.read(first, &mut bytes, Some(8)), Ok(2));
    assert_eq!(fs.write(first, b"x", None), Ok(1));
    assert_eq!(fs.seek(first, 0, libc::SEEK_CUR), Ok(5));
    assert_eq!(fs.seek(second, 0, libc::SEEK_CUR), Ok(0));
    assert_eq!(fs.read(second, &mut bytes, None), Ok(4));
    assert_eq!(&bytes, b"0123");
    assert_eq!(fs.seek(second, -1, libc::SEEK_END), Ok(9));
    assert_eq!(fs.seek(second, -10, libc::SEEK_CUR), Err(Errno::INVAL));
    let appends = fs.opened("file", libc::O_WRONLY | libc::O_APPEND).unwrap();
    assert_eq!(fs.write(appends, b"a", None), Ok(1));
    assert_eq!(fs.write(second, b"b", None), Ok(1));
    assert_eq!(fs.write(appends, b"c", None), Ok(1));
    for handle in [first, second, appends] {
        fs.close(handle);
    }
    assert_eq!(world.told(|fs| fs.whole("file").unwrap()), b"0123x5678bac");
}
