//! The protocol of a spool: records, marks and replays, without queues.

use super::*;

const OPERATIONS: usize = 40;

#[derive(Clone, Debug)]
pub struct Operation {
    pub file: usize,
    pub position: Option<u64>,
    pub bytes: Vec<u8>,
}

impl Operation {
    fn drawn(random: &mut Random, number: usize) -> Operation {
        // Some are long, so that the ring comes round.
        let most = if random.below(3) == 0 { 12_000 } else { 200 };
        let appends = random.below(4) == 0;
        let length = 1 + random.below(if appends { 200 } else { most }) as usize;
        Operation {
            file: random.below(FILES as u64) as usize,
            position: (!appends).then(|| random.below(64)),
            // Not the same bytes in two: a part of one is not the other.
            bytes: (0..length)
                .map(|at| (number * 7 + at % 3 + 1) as u8)
                .collect(),
        }
    }

    fn apply(&self, files: &mut [Vec<u8>]) {
        let file = &mut files[self.file];
        let at = self
            .position
            .map_or(file.len(), |position| position as usize);
        store(file, at, &self.bytes);
    }

    pub fn keep(&self, spool: &Spool) -> Result<Spooled, Errno> {
        spool.begin().keep(&Kept {
            position: self.position,
            bytes: &self.bytes,
            file: FileIdentity {
                device: 1,
                inode: (1 + self.file) as u64,
            },
            name: format!("file {}", self.file).as_bytes(),
        })
    }

    fn run(&self, spool: &Spool, record: Spooled, target: &dyn Target) -> Result<(), Errno> {
        match self.position {
            Some(position) => _ = target.write(&self.bytes, position)?,
            None => {
                spool.begins(record, target.size()?)?;
                target.append(&self.bytes)?;
            }
        }
        spool.done(record, target)
    }
}

struct Run {
    machine: Arc<Mutex<Machine>>,
    /// What was acknowledged, in its order, and what was in flight.
    kept: Vec<Operation>,
    in_flight: Option<Operation>,
    /// Whether there was a spool.
    is_made: bool,
}

/// Spools, and does in order what was spooled, some later, until the machine fails after so many stores.
fn run(seed: u64, memory: Memory, steps: u64) -> Run {
    let mut random = Random::new(seed);
    let machine = Machine::new(seed ^ steps << 20, memory);
    machine.lock().unwrap().left = steps;
    let mut run = Run {
        machine: Arc::clone(&machine),
        kept: Vec::new(),
        in_flight: None,
        is_made: false,
    };
    let Ok(spool) = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN) else {
        return run;
    };
    run.is_made = true;
    let mut waiting: Vec<(Operation, Spooled)> = Vec::new();
    for number in 0..OPERATIONS {
        let operation = Operation::drawn(&mut random, number);
        run.in_flight = Some(operation.clone());
        loop {
            match operation.keep(&spool) {
                Ok(record) => {
                    run.kept.push(operation.clone());
                    run.in_flight = None;
                    waiting.push((operation, record));
                    break;
                }
                Err(Errno::AGAIN) if !waiting.is_empty() => {}
                Err(_) => return run,
            }
            let (first, record) = waiting.remove(0);
            if first
                .run(&spool, record, &*target(&machine, 1 + first.file))
                .is_err()
            {
                return run;
            }
        }
        while !waiting.is_empty() && random.below(3) == 0 {
            // Any file may be first, each in its order.
            let file = random.below(FILES as u64) as usize;
            let Some(at) = waiting.iter().position(|(one, _)| one.file == file) else {
                continue;
            };
            let (first, record) = waiting.remove(at);
            if first
                .run(&spool, record, &*target(&machine, 1 + first.file))
                .is_err()
            {
                return run;
            }
        }
    }
    run
}

pub fn replay(machine: &Arc<Mutex<Machine>>) -> Result<crate::Replayed, Errno> {
    let spool = Spool::open(target(machine, SPOOL))?;
    let left = spool.left()?;
    let replayed = spool.replay(|left| {
        let file = left.file.inode as usize;
        assert_eq!(left.name, format!("file {}", file - 1).as_bytes());
        Ok(Some(target(machine, file)))
    })?;
    assert_eq!(replayed.requests as usize, left.len());
    assert!(spool.is_empty());
    Ok(replayed)
}

pub fn contents(machine: &Arc<Mutex<Machine>>) -> Vec<Vec<u8>> {
    let machine = machine.lock().unwrap();
    machine.files[1..]
        .iter()
        .map(|file| file.seen.clone())
        .collect()
}

/// Whether the files have what was acknowledged, in its order, and of the rest one as a whole or nothing.
fn check(run: &Run, told: &str) {
    let mut expected = vec![Vec::new(); FILES];
    run.kept.iter().for_each(|one| one.apply(&mut expected));
    let there = contents(&run.machine);
    if there == expected {
        return;
    }
    if let Some(one) = &run.in_flight {
        one.apply(&mut expected);
    }
    let differs = (0..FILES).find(|&file| there[file] != expected[file]);
    let at = differs.map(|file| {
        let at = there[file]
            .iter()
            .zip(&expected[file])
            .position(|(one, other)| one != other);
        (file, at, there[file].len(), expected[file].len())
    });
    assert_eq!(at, None, "{told}: {} kept", run.kept.len());
}

fn whole(seed: u64, memory: Memory) -> u64 {
    let machine = run(seed, memory, u64::MAX).machine;
    let left = machine.lock().unwrap().left;
    u64::MAX - left
}

#[test]
fn what_was_acknowledged_survives_in_order() {
    let (mut states, mut replayed, mut made) = (0, 0, 0);
    for (seed, memory) in (1..=8).flat_map(|seed| [(seed, Memory::Durable), (seed, Memory::Cached)])
    {
        for steps in 0..=whole(seed, memory) {
            let told = format!("seed {seed}, {memory:?}, {steps} steps");
            let run = run(seed, memory, steps);
            restart(&run.machine, u64::MAX);
            states += 1;
            if !run.is_made {
                // There is none, or an empty one.
                match replay(&run.machine) {
                    Ok(done) => assert_eq!(done.requests, 0, "{told}"),
                    Err(errno) => assert_eq!(errno, Errno::BADMSG, "{told}"),
                }
                continue;
            }
            made += 1;
            let done = replay(&run.machine).unwrap_or_else(|errno| panic!("{told}: {errno}"));
            replayed += done.requests;
            check(&run, &told);
            // Nothing is done twice.
            restart(&run.machine, u64::MAX);
            assert_eq!(replay(&run.machine).unwrap().requests, 0, "{told}");
            check(&run, &told);
        }
    }
    assert!(made > 1000 && replayed > 1000, "{states} {made} {replayed}");
}

#[test]
fn a_replay_that_is_cut_off_is_repeated() {
    let mut cut_off = 0;
    for (seed, memory) in (1..=6).flat_map(|seed| [(seed, Memory::Durable), (seed, Memory::Cached)])
    {
        let all = whole(seed, memory);
        let mut random = Random::new(seed);
        for _ in 0..60 {
            let steps = random.below(all);
            let run = run(seed, memory, steps);
            if !run.is_made {
                continue;
            }
            let told = format!("seed {seed}, {memory:?}, {steps} steps");
            loop {
                restart(&run.machine, random.below(12));
                match replay(&run.machine) {
                    Ok(_) => break,
                    Err(errno) => assert_eq!(errno, Errno::IO, "{told}"),
                }
                cut_off += 1;
                assert!(cut_off < 1_000_000, "{told}");
                if random.below(20) == 0 {
                    restart(&run.machine, u64::MAX);
                    replay(&run.machine).unwrap_or_else(|errno| panic!("{told}: {errno}"));
                    break;
                }
            }
            check(&run, &told);
        }
    }
    assert!(cut_off > 300, "{cut_off}");
}

/// What is left of an opening before is not taken for what was written in this one, whatever lies behind it.
#[test]
fn what_an_earlier_opening_left_is_not_read() {
    let machine = Machine::new(1, Memory::Durable);
    let of = |text: &[u8]| Operation {
        file: 0,
        position: Some(0),
        bytes: text.to_vec(),
    };
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let first = of(b"first").keep(&spool).unwrap();
    of(b"second").keep(&spool).unwrap();
    drop(spool);
    // The first was never whole.
    let offset = crate::spool::layout::RING as usize + first.0 as usize;
    machine.lock().unwrap().files[SPOOL].seen[offset + 40] ^= 1;
    let spool = Spool::open(target(&machine, SPOOL)).unwrap();
    assert!(spool.is_empty());
    of(b"third").keep(&spool).unwrap();
    drop(spool);
    let spool = Spool::open(target(&machine, SPOOL)).unwrap();
    assert_eq!(
        spool
            .left()
            .unwrap()
            .iter()
            .map(|left| left.length)
            .collect::<Vec<_>>(),
        [5]
    );
}

#[test]
fn what_is_refused() {
    let machine = Machine::new(1, Memory::Durable);
    for size in [0, Spool::SIZE_MIN - 1, Spool::SIZE_MAX + 128] {
        let made = Spool::make(target(&machine, SPOOL), size);
        assert_eq!(made.err(), Some(Errno::INVAL), "{size}");
    }
    assert_eq!(
        Spool::open(target(&machine, SPOOL)).err(),
        Some(Errno::BADMSG)
    );
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let of = |length: u64| Operation {
        file: 0,
        position: Some(0),
        bytes: vec![1; length as usize],
    };
    assert_eq!(of(Spool::SIZE_MIN / 2).keep(&spool), Err(Errno::MSGSIZE));
    let half = Spool::SIZE_MIN / 2 - 256;
    let first = of(half).keep(&spool).unwrap();
    of(half).keep(&spool).unwrap();
    assert_eq!(of(1000).keep(&spool), Err(Errno::AGAIN));
    of(1).run(&spool, first, &*target(&machine, 1)).unwrap();
    of(1000).keep(&spool).unwrap();
    let long = vec![b'a'; Spool::NAME_MAX + 1];
    let named = spool.begin().keep(&Kept {
        position: None,
        bytes: b"a",
        file: FileIdentity {
            device: 0,
            inode: 0,
        },
        name: &long,
    });
    assert_eq!(named, Err(Errno::MSGSIZE));
    // A file that is gone is dropped, one that cannot be opened is not.
    drop(spool);
    let spool = Spool::open(target(&machine, SPOOL)).unwrap();
    assert_eq!(spool.replay(|_| Err(Errno::ACCESS)), Err(Errno::ACCESS));
    let replayed = spool.replay(|_| Ok(None)).unwrap();
    assert_eq!((replayed.requests, replayed.dropped), (0, 2));
}

/// Where one cannot be marked, none is that comes later: what is replayed is whole.
#[test]
fn nothing_is_marked_behind_what_could_not_be() {
    let machine = Machine::new(1, Memory::Durable);
    let of = |text: &[u8]| Operation {
        file: 0,
        position: Some(0),
        bytes: text.to_vec(),
    };
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let file = target(&machine, 1);
    let [first, second] = [b"first", b"later"].map(|text| of(text).keep(&spool).unwrap());
    file.write(b"first", 0).unwrap();
    machine.lock().unwrap().has_failed = true;
    assert_eq!(spool.done(first, &*file), Err(Errno::IO));
    machine.lock().unwrap().has_failed = false;
    file.write(b"later", 0).unwrap();
    assert_eq!(spool.done(second, &*file), Err(Errno::IO));
    assert_eq!(of(b"last").keep(&spool), Err(Errno::IO));
    drop(spool);
    assert_eq!(replay(&machine).unwrap().requests, 2);
    assert_eq!(contents(&machine)[0], b"later");
}

/// A spool that has failed refuses, and what stands in it stays: also where the next record would lie on the first, in a ring that is full
/// to its last byte. It fails by a file's sync, or by its own when it says where it begins.
#[test]
fn what_stands_in_a_full_ring_stays() {
    const RECORDS: u64 = Spool::SIZE_MIN / 256;
    let of = |number: u64| Operation {
        file: 0,
        position: Some(number * 122),
        bytes: vec![number as u8; 122],
    };
    for is_own in [false, true] {
        let machine = Machine::new(1, Memory::Cached);
        let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
        let kept: Vec<_> = (0..RECORDS)
            .map(|at| of(at).keep(&spool).unwrap())
            .collect();
        assert_eq!(of(0).keep(&spool), Err(Errno::AGAIN));
        let file = target(&machine, 1);
        let fails = |file| machine.lock().unwrap().fails_once = Some((file, Failure::Fails));
        if is_own {
            of(0).run(&spool, kept[0], &*file).unwrap();
            fails(SPOOL);
        } else {
            file.write(&of(0).bytes, 0).unwrap();
            fails(1);
            assert_eq!(spool.done(kept[0], &*file), Err(Errno::IO));
        }
        for _ in 0..2 {
            assert_eq!(of(0).keep(&spool), Err(Errno::IO));
        }
        drop(spool);
        let left = RECORDS - u64::from(is_own);
        assert_eq!(replay(&machine).unwrap().requests, left, "{is_own}");
        let expected: Vec<u8> = (0..RECORDS).flat_map(|at| of(at).bytes).collect();
        assert_eq!(contents(&machine)[0], expected, "{is_own}");
    }
}

/// What is passed over at the ring's end is passed over when it is read, whatever is written after it, and where.
#[test]
fn what_comes_behind_the_rings_end_is_found() {
    let machine = Machine::new(1, Memory::Durable);
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let of = |position: u64, length: usize| Operation {
        file: 0,
        position: Some(position),
        bytes: vec![1; length],
    };
    // Up to a line before the end.
    let first = of(0, 200).keep(&spool).unwrap();
    let rest = (Spool::SIZE_MIN - 128 - 384) / 256;
    let rest: Vec<_> = (0..rest)
        .map(|_| of(0, 100).keep(&spool).unwrap())
        .collect();
    let file = target(&machine, 1);
    of(0, 200).run(&spool, first, &*file).unwrap();
    of(0, 100).run(&spool, rest[0], &*file).unwrap();
    let before = spool.left().unwrap().len();
    of(i64::MAX as u64 - 5, 5).keep(&spool).unwrap();
    of(7, 1).keep(&spool).unwrap();
    drop(spool);
    let spool = Spool::open(target(&machine, SPOOL)).unwrap();
    let left = spool.left().unwrap();
    let positions: Vec<_> = left.iter().skip(before).map(|left| left.position).collect();
    assert_eq!(positions, [Some(i64::MAX as u64 - 5), Some(7)]);
}

/// A file that takes a few bytes at once gets them all.
#[test]
fn what_is_written_in_parts_is_whole() {
    let machine = Machine::new(1, Memory::Durable);
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    for (position, bytes) in [(Some(2), &b"in the middle"[..]), (None, b", at the end")] {
        let bytes = bytes.to_vec();
        let kept = Operation {
            file: 0,
            position,
            bytes,
        };
        kept.keep(&spool).unwrap();
    }
    drop(spool);
    let spool = Spool::open(target(&machine, SPOOL)).unwrap();
    let replayed = spool.replay(|_| Ok(Some(Arc::new(Few(OnMachine(Arc::clone(&machine), 1))))));
    assert_eq!(replayed.unwrap().requests, 2);
    assert_eq!(contents(&machine)[0], b"\0\0in the middle, at the end");
}

/// Takes three bytes at once.
struct Few(OnMachine);

impl Target for Few {
    fn identity(&self) -> FileIdentity {
        self.0.identity()
    }
    fn size(&self) -> Result<u64, Errno> {
        self.0.size()
    }
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        self.0.read(buffer, position)
    }
    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        self.0.write(&bytes[..bytes.len().min(3)], position)
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.0.append(&bytes[..bytes.len().min(3)])
    }
    fn sync(&self, data_only: bool) -> Result<(), Errno> {
        self.0.sync(data_only)
    }
    fn is_durable(&self) -> bool {
        self.0.is_durable()
    }
}

/// Whatever stands in the file, opening it and doing what it says ends, and writes nothing outside of the ring.
#[test]
fn a_spool_that_somebody_has_written_is_read() {
    let mut opened = 0;
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let run = run(1 + seed % 4, Memory::Durable, 120 + seed % 60);
        restart(&run.machine, u64::MAX);
        {
            let mut machine = run.machine.lock().unwrap();
            let bytes = &mut machine.files[SPOOL].seen;
            let length = bytes.len() as u64;
            for _ in 0..1 + random.below(20) {
                let at = match random.below(3) {
                    0 => random.below(512),
                    1 => 4096 + random.below(4096),
                    _ => random.below(length),
                };
                bytes[at as usize] = random.below(256) as u8;
            }
            if random.below(10) == 0 {
                bytes.truncate(random.below(length) as usize);
            }
        }
        let Ok(spool) = Spool::open(target(&run.machine, SPOOL)) else {
            continue;
        };
        opened += 1;
        let told = format!("seed {seed}");
        let of = |left: &crate::Left| (1..=FILES as u64).contains(&left.file.inode);
        let replayed = spool
            .replay(|left| Ok(of(left).then(|| target(&run.machine, left.file.inode as usize))));
        assert!(replayed.is_ok(), "{told}: {replayed:?}");
    }
    assert!(opened > 500, "{opened}");
}
