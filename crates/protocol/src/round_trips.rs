//! What holds for every message, by the examples and by any values that there can be.

use crate::message::listed::Listed;
use crate::message::{MESSAGE_MAX, Request, Response};
use crate::socket::{Answer, Call};
use crate::wire::{self, Coding, Draw, Malformed, WireError};
use proptest::prelude::*;
use std::fmt::Debug;

trait Message: Coding<Value = Self> + PartialEq + Debug {}
impl<M: Coding<Value = M> + PartialEq + Debug> Message for M {}

/// What stands after a message's end is another one's, if that is so of messages of its kind.
fn survives<M: Message>(message: &M, has_end: bool) {
    let mut buffer = [0; MESSAGE_MAX + 1];
    let used = wire::encode::<M>(message, &mut buffer).unwrap();
    assert!((M::LEAST..=M::MOST).contains(&used), "{used}: {message:?}");
    assert_eq!(wire::decode::<M>(&buffer[..used]).as_ref(), Ok(message));
    if has_end {
        for shorter in 0..used {
            let part = wire::decode::<M>(&buffer[..shorter]);
            assert_eq!(part, Err(Malformed), "{shorter}: {message:?}");
        }
        let longer = wire::decode::<M>(&buffer[..used + 1]);
        assert_eq!(longer, Err(Malformed), "{message:?}");
    }
    for room in 0..used {
        let encoded = wire::encode::<M>(message, &mut buffer[..room]);
        assert_eq!(encoded, Err(Malformed), "{room}: {message:?}");
    }
}

/// Whatever the bytes: what decodes is encoded to the same, but for text that was mended.
fn is_total<M: Message>(bytes: &[u8]) {
    let Ok(message) = wire::decode::<M>(bytes) else {
        return;
    };
    let mut buffer = [0; MESSAGE_MAX];
    let used = wire::encode::<M>(&message, &mut buffer).unwrap();
    if buffer[..used] != *bytes {
        let again = wire::decode::<M>(&buffer[..used]).unwrap();
        assert!(format!("{again:?}").starts_with("Error("), "{message:?}");
    }
}

/// A message of each kind, with some of its bytes changed.
fn damaged<M: Message>(message: &M, damage: &[(usize, u8)]) -> Vec<u8> {
    let mut buffer = [0; MESSAGE_MAX];
    let used = wire::encode::<M>(message, &mut buffer).unwrap();
    for (at, byte) in damage {
        buffer[at % used] ^= byte;
    }
    buffer[..used].to_vec()
}

/// All kinds of messages; whether what stands behind one makes it malformed.
macro_rules! each {
    ($test:ident $of:expr) => {
        $test::<Request>(true, $of);
        $test::<Response>(true, $of);
        $test::<Call>(true, $of);
        $test::<Answer>(true, $of);
        $test::<Listed>(false, $of);
    };
}

fn any_value<M: Message>(has_end: bool, (numbers, damage): (&[u64], &[(usize, u8)])) {
    let message = M::drawn(&mut Draw::new(numbers.to_vec()));
    survives(&message, has_end);
    is_total::<M>(&damaged(&message, damage));
}

fn any_bytes<M: Message>(_: bool, bytes: &[u8]) {
    is_total::<M>(bytes);
}

#[test]
fn the_shortest_and_the_longest_of_each_kind_survive() {
    Request::examples().iter().for_each(|m| survives(m, true));
    Response::examples().iter().for_each(|m| survives(m, true));
    Call::examples().iter().for_each(|m| survives(m, true));
    Answer::examples().iter().for_each(|m| survives(m, true));
    for numbers in [0, u64::MAX] {
        each!(any_value(&[numbers], &[]));
    }
}

proptest! {
    #[test]
    fn all_messages_survive_and_no_damage_panics(
        numbers in prop::collection::vec(any::<u64>(), 1..60),
        damage in prop::collection::vec((0..MESSAGE_MAX, any::<u8>()), 0..4),
    ) {
        each!(any_value (&numbers, &damage));
    }

    #[test]
    fn decoding_is_total(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        each!(any_bytes &bytes);
    }
}

/// A greeting of another version is told from one that is malformed, whatever follows.
#[test]
fn another_version_is_known_by_its_first_bytes() {
    for kind in [1, 9] {
        for (rest, is_one) in [(&[99, 0, 0, 0, 7, 7][..], true), (&[99, 0, 0][..], false)] {
            let bytes = [&[kind], rest].concat();
            let expected = if is_one {
                WireError::OtherVersion(99)
            } else {
                Malformed
            };
            assert_eq!(Call::decode(&bytes), Err(expected), "{bytes:?}");
        }
    }
}

/// Text that is too long is cut where a character ends, numbers that are too many are refused.
#[test]
fn what_is_longer_than_its_bound() {
    let mut buffer = [0; MESSAGE_MAX];
    let reason = Response::Violation("ß".repeat(400));
    let used = reason.encode(&mut buffer).unwrap();
    let cut = Response::Violation("ß".repeat(256));
    assert_eq!(Response::decode(&buffer[..used]), Ok(cut));
    for (bound, name) in [(255, vec![7; 255]), (256, vec![7; 256])] {
        let request = Request::LookUp { directory: 1, name };
        assert_eq!(request.encode(&mut buffer).is_ok(), bound == 255);
        // The same by hand: number, directory, length, bytes.
        let length = u16::to_le_bytes(bound);
        let bytes = [&[18, 1, 0, 0, 0], &length[..], &vec![7; usize::from(bound)]].concat();
        assert_eq!(Request::decode(&bytes).is_ok(), bound == 255);
    }
}
