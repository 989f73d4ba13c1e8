//! The log beside a model that is a vector of bytes, with ArckFS on the same files in between.
//!
//! Invariant: a seed gives the same steps; what fails names it.

mod common;

use arck_logfs::Log;
use arck_testkit::{DurabilityMode, Random, TestPool};
use arckfs::FileSystem;
use common::{all, as_files, open};
use std::time::Duration;

/// Longer than a follower pauses before it looks again at what another session has.
const PAUSE: Duration = Duration::from_millis(30);

/// What a log holds: where it begins, its bytes, where its sections begin.
struct Model {
    begin: u64,
    bytes: Vec<u8>,
    sections: Vec<u64>,
    limit: u64,
}

impl Model {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    fn append(&mut self, record: &[u8]) -> u64 {
        let (end, last) = (self.end(), *self.sections.last().expect("a section"));
        if end - last >= self.limit {
            self.sections.push(end);
        }
        self.bytes.extend_from_slice(record);
        end
    }

    fn cut(&mut self, position: u64) {
        while let [_, next, ..] = self.sections[..]
            && next <= position
        {
            self.sections.remove(0);
        }
        // A last section that is full is the last all the same, until there is another.
        let begin = self.sections[0];
        self.bytes.drain(..(begin - self.begin) as usize);
        self.begin = begin;
    }
}

fn length(random: &mut Random) -> usize {
    match random.below(10) {
        0 => 1,
        1 => 4096,
        2 => 4095 + random.below(3) as usize,
        3 => 1 + random.below(60_000) as usize,
        _ => 1 + random.below(300) as usize,
    }
}

/// Seeded steps on a log of small sections, by one session and by several in turns, in pools of each durability: each does what the
/// model does, at once, after it was opened again, and for who reads files.
#[test]
fn a_log_does_what_a_vector_does() {
    // The third one is not to be had of memory: MAP_SYNC.
    for mode in [DurabilityMode::Volatile, DurabilityMode::Paged] {
        for (seed, section, sessions) in [
            (1, 1, 1),
            (2, 100, 1),
            (3, 4096, 1),
            (4, 10_000, 1),
            (5, 1 << 20, 1),
            (6, 5000, 2),
            (7, 100, 3),
            (8, 20_000, 3),
        ] {
            println!("{mode:?}, seed {seed}, sections of {section}, {sessions} sessions");
            let mut compared = Compared::new(mode, seed, section, sessions);
            for step in 0..250 {
                compared.step(&format!(
                    "{mode:?}, seed {seed}, sections of {section}, step {step}"
                ));
            }
            compared.end(&format!("{mode:?}, seed {seed}"));
        }
    }
}

/// A log beside its model.
struct Compared {
    pool: TestPool,
    random: Random,
    /// Each in a session of its own.
    logs: Vec<Log>,
    other: FileSystem,
    model: Model,
    followed: u64,
}

impl Compared {
    fn new(mode: DurabilityMode, seed: u64, section: u64, sessions: usize) -> Compared {
        let pool = TestPool::counting_as(mode, 128 << 20);
        Compared {
            random: Random::new(seed),
            logs: (0..sessions).map(|_| open(&pool, section)).collect(),
            other: pool.session(),
            model: Model {
                begin: 0,
                bytes: Vec::new(),
                sections: vec![0],
                limit: section,
            },
            followed: 0,
            pool,
        }
    }

    fn record(&mut self) -> Vec<u8> {
        let length = length(&mut self.random);
        self.random.bytes(length)
    }

    fn step(&mut self, of: &str) {
        let who = self.random.below(self.logs.len() as u64) as usize;
        match self.random.below(20) {
            0..8 => {
                let record = self.record();
                let position = self.logs[who].append(&record).expect(of);
                assert_eq!(position, self.model.append(&record), "{of}");
            }
            8..10 => {
                let records: Vec<_> = (0..1 + self.random.below(5))
                    .map(|_| self.record())
                    .collect();
                let parts: Vec<&[u8]> = records.iter().map(|one| &one[..]).collect();
                let position = self.logs[who].append_all(&parts).expect(of);
                assert_eq!(position, self.model.append(&records.concat()), "{of}");
            }
            10 => self.enqueue(who, of),
            11..14 => {
                let model = &self.model;
                let at = self.random.below(model.bytes.len() as u64 + 1);
                let mut buffer = vec![0; self.random.below(20_000) as usize];
                let read = self.logs[who].read_at(model.begin + at, &mut buffer);
                let read = read.expect(of);
                let expected = &model.bytes[at as usize..];
                let expected = &expected[..expected.len().min(buffer.len())];
                assert!(buffer[..read] == *expected, "{of}: {read} bytes at {at}");
            }
            14 => {
                let length = self.model.bytes.len() as u64 + 1;
                let position = self.model.begin + self.random.below(length);
                self.logs[who].cut(position).expect(of);
                self.model.cut(position);
                for log in &self.logs {
                    assert_eq!(log.begin().expect(of), self.model.begin, "{of}");
                }
            }
            15..17 => self.follow(who, of),
            17 => {
                let (begin, bytes) = as_files(&self.other, "log");
                let model = &self.model;
                assert!(begin == model.begin && bytes == model.bytes, "{of}");
            }
            18 => {
                self.logs.remove(who).close().expect(of);
                // Whoever opens it again has another limit in mind, which counts for nothing.
                let section = 1 + self.random.below(100);
                self.logs.push(open(&self.pool, section));
            }
            _ => {
                for log in &self.logs {
                    assert_eq!(log.end().expect(of), self.model.end(), "{of}");
                }
            }
        }
    }

    /// Records that are enqueued, and committed by the last, are one behind the other.
    fn enqueue(&mut self, who: usize, of: &str) {
        let records: Vec<_> = (0..1 + self.random.below(5))
            .map(|_| self.record())
            .collect();
        let log = &self.logs[who];
        let enqueued: Vec<_> = records
            .iter()
            .map(|record| log.enqueue(record).expect(of))
            .collect();
        let last = enqueued.last().expect("at least one");
        log.commit(last).expect(of);
        let mut position = self.model.append(&records.concat());
        for (record, one) in records.iter().zip(&enqueued) {
            assert_eq!(log.commit(one).expect(of), position, "{of}");
            position += record.len() as u64;
        }
    }

    fn follow(&mut self, who: usize, of: &str) {
        let model = &self.model;
        self.followed = model.begin.max(self.followed);
        let mut follower = self.logs[who].follow(self.followed).expect(of);
        let mut buffer = vec![0; 1 + self.random.below(9000) as usize];
        loop {
            // Another session's is looked at again after a pause.
            let read = follower.next(&mut buffer, PAUSE).expect(of);
            if read == 0 {
                break;
            }
            let at = (self.followed - model.begin) as usize;
            assert!(buffer[..read] == model.bytes[at..][..read], "{of}");
            self.followed += read as u64;
        }
        let found = (self.followed, follower.position());
        assert_eq!(found, (model.end(), self.followed), "{of}");
    }

    fn end(self, of: &str) {
        let expected = (self.model.begin, self.model.bytes);
        for log in &self.logs {
            assert!(all(log) == expected, "{of}");
        }
        drop(self.logs);
        assert!(as_files(&self.other, "log") == expected, "{of}");
        assert_eq!(self.pool.violations(), "");
    }
}
