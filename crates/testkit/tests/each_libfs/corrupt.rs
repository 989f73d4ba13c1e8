//! What a LibFS has in its arena is damaged, as by a stray store of the program that it is in: it is refused, nobody
//! else loses anything, and all go on. (What a LibFS that means harm can do is in `hostile`.)

use arck_controller::Options;
use arck_core_state::InodeNumber;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::offset::TAILS;
use arck_libfs_kit::Session;
use arck_testkit::TestPool;
use arck_testkit::under_test::{Files, LIBFSES, LibFs};
use arckfs::{At, Errno};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A directory in which a session has changed names that are not folded.
struct Delta {
    session: &'static Session,
    directory: InodeNumber,
    /// Byte offset of its branch in the arena.
    branch: u64,
    /// The tails: the first pages of records.
    tails: [u32; 4],
    /// One that is there.
    tail: usize,
}

impl Delta {
    fn of(session: &'static Session, directory: InodeNumber) -> Delta {
        let header = session.header(directory).expect("a header");
        let branch = branch_offset(header.branch_slot()).expect("a branch");
        let word = |at: u64| {
            let bytes = session.arena_at(at as usize);
            bytes
                .load_u64(at as usize, Ordering::SeqCst)
                .expect("within the arena")
        };
        let (first, second) = (word(branch + TAILS), word(branch + TAILS + 8));
        let tails = [
            first as u32,
            (first >> 32) as u32,
            second as u32,
            (second >> 32) as u32,
        ];
        let tail = tails.iter().position(|&page| page != 0);
        Delta {
            session,
            directory,
            branch,
            tails,
            tail: tail.expect("records"),
        }
    }

    fn store(&self, at: u64, value: u64) {
        let bytes = self.session.arena_at(at as usize);
        let _ = bytes
            .write_u64(at as usize, value)
            .expect("within the arena");
    }

    fn page(&self) -> u32 {
        self.tails[self.tail]
    }

    /// The first words of the first page: whose it is and what comes next, and of which fold.
    fn store_head(&self, directory: u32, next: u32) {
        let at = u64::from(self.page()) * 4096;
        self.store(at, u64::from(directory) | u64::from(next) << 32);
    }

    fn store_tails(&self, tails: [u32; 4]) {
        for (at, pair) in tails.chunks(2).enumerate() {
            let word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            self.store(self.branch + TAILS + 8 * at as u64, word);
        }
    }
}

/// What is damaged, the rule that finds it, and how.
type Damage = (&'static str, &'static str, fn(&Delta));

const DAMAGES: &[Damage] = &[
    (
        "records that go on in the same page",
        "PageVisitedOnce",
        |d| {
            d.store_head(d.directory, d.page());
        },
    ),
    (
        "records that go on among the branches",
        "PageInArena",
        |d| {
            d.store_head(d.directory, 2);
        },
    ),
    (
        "records that go on outside of the arena",
        "PageInArena",
        |d| {
            d.store_head(d.directory, u32::MAX);
        },
    ),
    ("a page of another directory", "PageHeader", |d| {
        d.store_head(d.directory + 1, 0);
    }),
    ("a page of an earlier fold", "PageHeader", |d| {
        d.store(u64::from(d.page()) * 4096 + 8, 0);
    }),
    ("one page as two tails", "PageVisitedOnce", |d| {
        let mut tails = d.tails;
        tails[(d.tail + 1) % 4] = d.page();
        d.store_tails(tails);
    }),
    ("a tail outside of the arena", "PageInArena", |d| {
        let mut tails = d.tails;
        tails[d.tail] = u32::MAX;
        d.store_tails(tails);
    }),
];

const FIRST: &[u8] = b"first";

fn assert_has(files: &dyn Files, expected: &[(&str, &[u8])], of: &str) {
    let names = expected.iter().map(|(name, _)| (*name).to_owned());
    assert_eq!(files.list(), Ok(names.collect::<Vec<_>>()), "{of}");
    for (name, content) in expected {
        assert_eq!(files.get(name), Ok(Some(content.to_vec())), "{of}: {name}");
    }
}

fn run(damaged: &dyn LibFs, other: &dyn LibFs, (what, rule, damage): &Damage) {
    let of = format!("{what}, in {}, beside {}", damaged.name(), other.name());
    let pool = TestPool::with_options(
        64 << 20,
        Options {
            grace: Duration::from_millis(30),
            ..Options::default()
        },
    );
    pool.has_refusals("an arena is damaged");
    let theirs = other.open(&pool.path(), "theirs");
    let own = damaged.open(&pool.path(), "own");
    let late = vec![7; 20_000];
    theirs.put("folded", FIRST).expect(&of);
    theirs.fold(false).expect(&of);
    theirs.put("late", &late).expect(&of);
    own.put("kept", FIRST).expect(&of);
    own.fold(false).expect(&of);
    let found = pool.session().stat(At::Root, b"own", 0).expect(&of);
    own.put("lost", &late).expect(&of);

    damage(&Delta::of(own.session(), found.inode as InodeNumber));
    assert_eq!(own.fold(false), Err(Errno::IO), "{of}");
    let log = pool.violations();
    assert!(log.contains(rule), "{of}: {log:?}");

    // Who comes has what was verified, at once; the others have all that they did, and go on.
    let mut expected = vec![("folded", FIRST), ("late", &late)];
    assert_has(&*theirs, &expected, &of);
    theirs.put("after", FIRST).expect(&of);
    expected.insert(0, ("after", FIRST));
    for reader in LIBFSES {
        let of = format!("{of}: read by {}", reader.name());
        assert_has(&*reader.open(&pool.path(), "theirs"), &expected, &of);
        assert_has(&*reader.open(&pool.path(), "own"), &[("kept", FIRST)], &of);
    }
    // So does another session of the same LibFS, where this one was.
    drop(own);
    let again = damaged.open(&pool.path(), "own");
    again.put("lost", FIRST).expect(&of);
    again.fold(true).expect(&of);
    let expected = [("kept", FIRST), ("lost", FIRST)];
    assert_has(&*other.open(&pool.path(), "own"), &expected, &of);
}

#[test]
fn what_is_damaged_is_refused_and_takes_nothing_from_others() {
    for damaged in LIBFSES {
        for other in LIBFSES {
            for damage in DAMAGES {
                run(damaged, other, damage);
            }
        }
    }
}
