//! The model of [`super`], by hand-written traces and against a simple oracle.

use super::*;
use proptest::prelude::*;

const REGION: Region = Region::Memory { address: 0x1000 };

fn event(thread: u32, kind: EventKind) -> Event {
    Event {
        thread,
        site: std::panic::Location::caller(),
        kind,
    }
}

fn store(thread: u32, address: u64, bytes: &[u8]) -> Event {
    event(
        thread,
        EventKind::Store {
            address,
            bytes: bytes.to_vec(),
        },
    )
}

fn stream(thread: u32, address: u64, bytes: &[u8]) -> Event {
    event(
        thread,
        EventKind::Stream {
            address,
            bytes: bytes.to_vec(),
        },
    )
}

fn flush(thread: u32, line: u64) -> Event {
    event(thread, EventKind::Flush { line })
}

fn fence(thread: u32) -> Event {
    event(thread, EventKind::Fence)
}

fn replay(events: &[Event]) -> Replay {
    fence_points(events, REGION, vec![0; 256]).unwrap().1
}

#[test]
fn durable_after_flush_and_fence_only() {
    let events = [
        store(0, 0x1000, &[1]),
        fence(0),
        flush(0, 0x1000),
        store(0, 0x1001, &[2]),
        fence(0),
    ];
    let (points, end) = fence_points(&events, REGION, vec![0; 256]).unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(points[0].durable[0], 0);
    assert_eq!(points[0].in_flight.len(), 1);
    assert_eq!(points[1].durable[..2], [1, 0]);
    // Stored after the flush: the fence does not cover it.
    assert_eq!(points[1].in_flight[0].pieces[0].offset, 1);
    assert_eq!(end.visible_image()[..2], [1, 2]);
    assert_eq!(end.idle_fences(), [1]);
}

#[test]
fn a_fence_covers_its_own_thread_only() {
    let mut events = vec![store(0, 0x1000, &[1]), flush(0, 0x1000), fence(1)];
    assert_eq!(replay(&events).durable_image()[0], 0);
    events.push(fence(0));
    assert_eq!(replay(&events).durable_image()[0], 1);
    // But a flush writes back what other threads stored.
    let events = [store(0, 0x1000, &[1]), flush(1, 0x1000), fence(1)];
    assert_eq!(replay(&events).durable_image()[0], 1);
}

#[test]
fn streaming_needs_the_fence_of_its_thread() {
    let mut events = vec![stream(0, 0x1040, &[9; 64]), flush(1, 0x1040), fence(1)];
    let end = replay(&events);
    assert_eq!(end.in_flight()[0].pieces.len(), 8);
    assert!(
        end.in_flight()[0]
            .pieces
            .iter()
            .all(|piece| piece.streamed && piece.flushed)
    );
    events.push(fence(0));
    let end = replay(&events);
    assert_eq!(end.durable_image()[64..128], [9; 64]);
    assert!(end.in_flight().is_empty());
}

#[test]
fn a_later_durable_piece_wins() {
    let events = [
        store(0, 0x1000, &[1; 8]),
        store(0, 0x1008, &[1; 8]),
        stream(1, 0x1000, &[2; 8]),
        fence(1),
        flush(0, 0x1000),
        fence(0),
    ];
    let middle = replay(&events[..4]);
    assert_eq!(
        middle.durable_image()[..16],
        [2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(middle.in_flight()[0].pieces.len(), 1);
    let end = replay(&events);
    assert_eq!(end.durable_image()[..8], [2; 8]);
    assert_eq!(end.durable_image()[8..16], [1; 8]);
}

#[test]
fn pieces_never_tear_words() {
    let end = replay(&[store(0, 0x1005, &[1; 12])]);
    let sizes: Vec<_> = end.in_flight()[0]
        .pieces
        .iter()
        .map(|piece| (piece.offset, piece.bytes.len()))
        .collect();
    assert_eq!(sizes, [(5, 3), (8, 8), (16, 1)]);
    let image = end.image_with(|piece| piece.offset == 8);
    assert_eq!(image[5..17], [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn outside_is_ignored() {
    let events = [
        store(0, 0xff8, &[1; 16]),
        store(0, 0x10fc, &[1; 8]),
        flush(0, 0x1100),
        store(0, 0, &[1]),
    ];
    let end = replay(&events);
    let visible = end.visible_image();
    assert_eq!(visible[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!(visible[251..], [0, 1, 1, 1, 1]);
    assert!(end.idle_flushes().is_empty());
}

#[test]
fn idle_flushes_are_found() {
    let events = [
        store(0, 0x1000, &[1]),
        flush(0, 0x1000),
        flush(0, 0x1000),
        flush(0, 0x1040),
    ];
    assert_eq!(replay(&events).idle_flushes(), [2, 3]);
}

#[test]
fn file_regions_follow_the_maps() {
    let file = FileId {
        device: 1,
        inode: 2,
    };
    let map = |address, len, offset| {
        event(
            0,
            EventKind::Map {
                address,
                len,
                file,
                offset,
            },
        )
    };
    let events = [
        map(0x10000, 0x2000, 0),
        map(0x90000, 0x1000, 0x1000),
        store(0, 0x11000, &[1]),
        flush(1, 0x90000),
        fence(1),
        event(
            0,
            EventKind::Unmap {
                address: 0x10000,
                len: 0x1000,
            },
        ),
        store(0, 0x10000, &[7]),
        store(0, 0x11001, &[2]),
        map(0x11000, 0x1000, 0),
        store(0, 0x11002, &[3]),
    ];
    let region = Region::File { file, offset: 0 };
    let end = fence_points(&events, region, vec![0; 0x2000]).unwrap().1;
    // Stored through one mapping, flushed through the other.
    assert_eq!(end.durable_image()[0x1000], 1);
    assert_eq!(end.visible_image()[..3], [0, 0, 3]);
    assert_eq!(end.visible_image()[0x1000..0x1003], [1, 2, 0]);
    assert!(Replay::new(Region::File { file, offset: 8 }, vec![0; 64]).is_err());
}

/// One step of a random program of two threads on two lines.
#[derive(Debug, Clone)]
enum Step {
    Store(u32, u64, u8),
    Stream(u32, u64, u8),
    Flush(u32, u64),
    Fence(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2u32, 0..16u64, any::<u8>()).prop_map(|(t, word, value)| Step::Store(t, word, value)),
        (0..2u32, 0..16u64, any::<u8>()).prop_map(|(t, word, value)| Step::Stream(t, word, value)),
        (0..2u32, 0..2u64).prop_map(|(t, line)| Step::Flush(t, line)),
        (0..2u32).prop_map(Step::Fence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// An oracle that looks back over the whole history for every word: the durable
    /// value is that of the last store proven durable by a later flush and fence.
    #[test]
    fn agrees_with_looking_back(steps in prop::collection::vec(step(), 0..60)) {
        let events: Vec<Event> = steps
            .iter()
            .map(|step| match *step {
                Step::Store(t, word, value) => store(t, 0x1000 + word * 8, &[value; 8]),
                Step::Stream(t, word, value) => stream(t, 0x1000 + word * 8, &[value; 8]),
                Step::Flush(t, line) => flush(t, 0x1000 + line * 64),
                Step::Fence(t) => fence(t),
            })
            .collect();
        let end = fence_points(&events, REGION, vec![0; 128]).unwrap().1;
        let durable = end.durable_image();
        for word in 0..16u64 {
            let fenced_after = |index: usize, thread: u32| {
                steps[index..].iter().any(|s| matches!(s, Step::Fence(t) if *t == thread))
            };
            let proven = |index: usize| match steps[index] {
                Step::Stream(thread, ..) => fenced_after(index, thread),
                _ => (index..steps.len()).any(|later| match steps[later] {
                    Step::Flush(thread, line) => line == word / 8 && fenced_after(later, thread),
                    _ => false,
                }),
            };
            let stores = steps.iter().enumerate().filter_map(|(index, s)| match *s {
                Step::Store(_, w, value) | Step::Stream(_, w, value) if w == word => {
                    Some((index, value))
                }
                _ => None,
            });
            let stores: Vec<_> = stores.collect();
            let last = stores.iter().rposition(|&(index, _)| proven(index));
            let expected = last.map_or(0, |last| stores[last].1);
            prop_assert_eq!(durable[word as usize * 8], expected);
            // In flight: exactly the stores after it.
            let in_flight: Vec<usize> = end
                .in_flight()
                .iter()
                .flat_map(|line| &line.pieces)
                .filter(|piece| piece.offset == word * 8)
                .map(|piece| piece.event)
                .collect();
            let after: Vec<usize> =
                stores[last.map_or(0, |last| last + 1)..].iter().map(|s| s.0).collect();
            prop_assert_eq!(in_flight, after);
        }
        let everything = end.image_with(|_| true);
        prop_assert_eq!(everything.as_slice(), end.visible_image());
    }
}
