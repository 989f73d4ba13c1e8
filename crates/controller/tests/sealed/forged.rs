//! Headers that say of a sealed delta what cannot be: by a damaged medium, or whoever can write it. The pool of a
//! controller that was killed behind a seal is opened, or checked and mended.
//!
//! What must hold: nobody crashes; the verified state is there, and no mixture; what is not taken is told; other
//! sessions are unharmed; what the format excludes, `arck check` finds and `--repair` mends.

use crate::common::check::check;
use crate::common::{Client, PATIENCE, ROOT, TestPool};
use crate::scene::{
    BEFORE, BOTH, Gate, Scene, begin, commit, edit_sealed_branch, go_on, options, set_aside,
};
use arck_check::{Options as CheckOptions, Rule};
use arck_controller::{Controller, read_log};
use arck_core_state::arena::{BRANCH_SLOTS, branch_offset};
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::header::{COUNTED_MAX, OWNERSHIP_OFFSET, SEALED_OFFSET, STATE_OFFSET};
use arck_core_state::index::IndexRoot;
use arck_core_state::{FileKind, HeaderCopy, InodeNumber};
use arck_protocol::Response;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes;

/// The directories and files of a pool whose controller was killed behind the seal of `d`.
#[derive(Clone, Copy)]
struct Scenery {
    d: InodeNumber,
    /// A directory of the same session, with an active delta.
    e: InodeNumber,
    /// A file of the same session.
    v3: InodeNumber,
    /// A directory of another session, with an active delta.
    o: InodeNumber,
}

/// The headers of a pool that nobody serves, or of one whose sessions live on.
struct Headers {
    file: File,
    scenery: Scenery,
}

impl Headers {
    fn of(pool: &Path, scenery: Scenery) -> Headers {
        let mut options = File::options();
        let file = options.read(true).write(true).open(pool.join("headers"));
        let file = file.unwrap();
        // The seal stands in the journal, too, which would be laid over what is forged.
        let journal = File::options().write(true).open(pool.join("journal"));
        journal.unwrap().write_all_at(&[0; 8], 0).unwrap();
        Headers { file, scenery }
    }

    fn word(&self, number: InodeNumber, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        let at = u64::from(number) * 64 + offset;
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn set(&self, number: InodeNumber, offset: u64, word: u64) {
        let at = u64::from(number) * 64 + offset;
        self.file.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    fn slot(&self, number: InodeNumber) -> u32 {
        (self.word(number, 32) >> 32) as u32
    }

    fn set_sealed(&self, number: InodeNumber, sealed: u64) {
        self.set(number, SEALED_OFFSET, sealed);
    }

    fn set_sealed_slot(&self, number: InodeNumber, slot: u32) {
        let state = self.word(number, STATE_OFFSET) & 0xffff_ffff;
        self.set(number, STATE_OFFSET, state | u64::from(slot) << 32);
    }

    /// As if something of what is not sealed was.
    fn forge(&self, number: InodeNumber, slot: u32) {
        self.set_sealed(number, self.word(number, 16) - 1);
        self.set_sealed_slot(number, slot);
    }
}

/// A slot of every arena, in which nothing is.
const EMPTY: u32 = 100;
/// One that the arenas do not have, and others may.
const BEYOND: u32 = BRANCH_SLOTS - 1;

/// What has to come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// All is there that was acknowledged: what is said is harmless, or says nothing.
    Whole,
    /// As the format says a header can be, so a check finds nothing; but there is no such delta. What came on top of
    /// it is refused, and set aside.
    SetAside,
    /// The same of another directory, whose one new name is this. All else is there.
    SetAsideElsewhere(&'static str),
    /// No header is so. The pool is not served, and the check finds it and mends it; afterwards as `SetAside`.
    Damaged,
    /// The same; but what came on top does not need what is missing.
    DamagedElsewhere,
    /// Served; the check finds it all the same, and mends it.
    Found,
}
use Outcome::*;

const NOBODYS: &str = "of what nobody owns";
const NO_SESSIONS: &str = "of a session that there is not";

type Case = (&'static str, fn(&Headers), Outcome);

const CASES: &[Case] = &[
    ("nothing", |_| {}, Whole),
    (
        "a slot that there is not",
        |h| h.set_sealed_slot(h.scenery.d, BRANCH_SLOTS),
        Damaged,
    ),
    (
        "the greatest slot",
        |h| h.set_sealed_slot(h.scenery.d, u32::MAX),
        Damaged,
    ),
    (
        "a slot beyond the arena's end",
        |h| h.set_sealed_slot(h.scenery.d, BEYOND),
        SetAside,
    ),
    (
        "the slot of the active delta",
        |h| h.set_sealed_slot(h.scenery.d, h.slot(h.scenery.d)),
        Damaged,
    ),
    (
        "the slot of another inode",
        |h| h.set_sealed_slot(h.scenery.d, h.slot(h.scenery.e)),
        SetAside,
    ),
    (
        "a slot with nothing in it",
        |h| h.set_sealed_slot(h.scenery.d, EMPTY),
        SetAside,
    ),
    (
        "the active number",
        |h| h.set_sealed(h.scenery.d, h.word(h.scenery.d, 16)),
        Damaged,
    ),
    (
        "the active number, in the active slot",
        |h| {
            h.set_sealed(h.scenery.d, h.word(h.scenery.d, 16));
            h.set_sealed_slot(h.scenery.d, h.slot(h.scenery.d));
        },
        Damaged,
    ),
    (
        "the next number",
        |h| h.set_sealed(h.scenery.d, h.word(h.scenery.d, 16) + 1),
        Damaged,
    ),
    (
        "a number of the far future",
        |h| h.set_sealed(h.scenery.d, COUNTED_MAX),
        Damaged,
    ),
    (
        "a number beyond all",
        |h| h.set_sealed(h.scenery.d, u64::MAX),
        Damaged,
    ),
    (
        "a number of the past",
        |h| {
            let sealed = h.word(h.scenery.d, SEALED_OFFSET);
            h.set_sealed(h.scenery.d, sealed - 1);
        },
        SetAside,
    ),
    (
        "that nothing is sealed",
        |h| {
            h.set_sealed(h.scenery.d, 0);
            h.set_sealed_slot(h.scenery.d, 0);
        },
        SetAside,
    ),
    (
        "that nothing is sealed, in a slot",
        |h| h.set_sealed(h.scenery.d, 0),
        Found,
    ),
    (
        "bits that mean nothing",
        |h| {
            let state = h.word(h.scenery.d, STATE_OFFSET);
            h.set(h.scenery.d, STATE_OFFSET, state | 0xa5a5_0000);
        },
        Found,
    ),
    (
        "of a directory that is not sealed, an empty slot",
        |h| h.forge(h.scenery.e, EMPTY),
        Whole,
    ),
    (
        "of a directory that is not sealed, no slot of the arena",
        |h| h.forge(h.scenery.e, BEYOND),
        SetAsideElsewhere("/e/unhurt"),
    ),
    (
        "of another session's, that is not sealed",
        |h| h.forge(h.scenery.o, BEYOND),
        SetAsideElsewhere("/o/of another session"),
    ),
    (
        "of two directories, the same slot",
        |h| {
            let slot = h.word(h.scenery.d, STATE_OFFSET) >> 32;
            h.forge(h.scenery.e, slot as u32);
        },
        Whole,
    ),
    (
        "of a file",
        |h| h.forge(h.scenery.v3, EMPTY),
        DamagedElsewhere,
    ),
    (
        NOBODYS,
        |h| {
            h.forge(h.scenery.d, EMPTY);
            h.set(h.scenery.d, OWNERSHIP_OFFSET, 0);
        },
        Damaged,
    ),
    (
        NO_SESSIONS,
        |h| {
            let epoch = h.word(h.scenery.d, OWNERSHIP_OFFSET) & 0xffff_ffff;
            h.set(h.scenery.d, OWNERSHIP_OFFSET, 0x7777 << 32 | epoch);
        },
        SetAside,
    ),
    (
        "of a number that was granted",
        |h| h.forge(h.scenery.v3 + 1, EMPTY),
        DamagedElsewhere,
    ),
];

/// A pool whose controller was killed behind the seal of `d`, beside which its owner went on; with what else
/// sessions have done that no fold has seen.
fn killed_behind_a_seal() -> (Scene, Scenery, Client, Client, usize) {
    let (gate, options) = Gate::new(Some(("sealed", 0)));
    let scene = Scene::new(options);
    let mut other = scene.client();
    other.acquire(&[ROOT]);
    let o = other.create(ROOT, b"o", FileKind::Directory);
    other.create(o, b"verified", FileKind::File);
    other.commit_all(false);
    other.commit(&[ROOT], true);
    other.create(o, b"of another session", FileKind::File);
    let mut client = scene.client();
    let [d, e] = begin(&mut client);
    let v3 = client.verified(d, b"v3").unwrap().inode;
    let number = client.number();
    client.create(e, b"unhurt", FileKind::File);
    gate.armed.store(true, Ordering::SeqCst);
    let slot = client.submit(&commit(&[d])).unwrap();
    gate.sealed.recv_timeout(PATIENCE).unwrap();
    go_on(&mut client, d, number);
    gate.goes_on.send(()).unwrap();
    assert!(scene.dies(&client, slot));
    (scene, Scenery { d, e, v3, o }, client, other, slot)
}

fn copied(pool: &Path) -> TestPool {
    let mut directory = tempfile::Builder::new();
    let directory = directory.prefix("arck-forged-").tempdir_in("/dev/shm");
    let directory = directory.unwrap();
    let mut copy = Command::new("cp");
    copy.args(["-a", "--sparse=always"]).arg(pool);
    assert!(copy.arg(directory.path()).status().unwrap().success());
    TestPool { directory }
}

/// Names of the other directories, and of `d`.
fn others_and_of_d(pool: &Path) -> (Vec<String>, Vec<String>) {
    let paths = check(pool).paths.into_keys();
    paths.partition(|path| path.starts_with("/o") || path.starts_with("/e/"))
}

/// What must be there whatever becomes of `d`.
const OTHERS: [&str; 4] = ["/e/unhurt", "/o", "/o/of another session", "/o/verified"];

/// As [`split`], with what was made since.
fn split_with(pool: &Path, what: &str, more: &[&str]) -> Vec<String> {
    let (others, of_d) = others_and_of_d(pool);
    for path in OTHERS.iter().chain(more) {
        assert!(others.iter().any(|other| other == path), "{what}: {path}");
    }
    of_d
}

/// Names of `d`; the others are those that must be there.
fn split(pool: &Path, what: &str, outcome: Outcome) -> Vec<String> {
    let (others, of_d) = others_and_of_d(pool);
    let mut expected = OTHERS.to_vec();
    if let SetAsideElsewhere(gone) = outcome {
        expected.retain(|path| *path != gone);
    }
    assert_eq!(others, expected, "{what}");
    of_d
}

/// Opens a pool, and ends its controller in order.
fn serve(pool: &TestPool) -> Result<(), String> {
    let opened = Controller::open(&pool.path(), options()).map_err(|error| error.to_string());
    opened?.spawn().unwrap().stop().unwrap();
    Ok(())
}

/// What was not taken: entries of the log, and files set aside.
fn told(pool: &TestPool) -> (usize, usize) {
    let (log, unreadable) = read_log(&pool.path()).unwrap();
    assert_eq!(unreadable, 0);
    (log.len(), set_aside(&pool.path()))
}

#[test]
fn what_a_header_says_of_a_seal_costs_no_verified_state() {
    let (mut scene, scenery, client, other, _) = killed_behind_a_seal();
    drop((client, other));
    scene.controller.take().unwrap().kill();
    for (what, forge, outcome) in CASES {
        let pool = copied(&scene.pool.path());
        forge(&Headers::of(&pool.path(), scenery));
        let served = serve(&pool);
        match outcome {
            Damaged | DamagedElsewhere => {
                let error = served.expect_err(what);
                assert!(error.contains("sealed"), "{what}: {error}");
                // It has changed nothing that a repair would need.
                arck_check::repair(&pool.path(), &CheckOptions::default()).unwrap();
                serve(&pool).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            _ => served.unwrap_or_else(|error| panic!("{what}: {error}")),
        }
        if *outcome == Found {
            arck_check::repair(&pool.path(), &CheckOptions::default()).unwrap();
        }
        let of_d = split(&pool.path(), what, *outcome);
        let (log, aside) = told(&pool);
        // Nothing is lost in silence.
        let is_refused = of_d != BOTH || matches!(outcome, SetAsideElsewhere(_));
        let is_told = log > 0 && aside > 0;
        match *what {
            // Nobody's delta is looked for.
            NOBODYS | NO_SESSIONS => assert_eq!(of_d, BEFORE, "{what}"),
            _ => assert_eq!(is_told, is_refused, "{what}: {log} {aside}"),
        }
        match outcome {
            Whole | DamagedElsewhere | SetAsideElsewhere(_) => assert_eq!(of_d, BOTH, "{what}"),
            SetAside | Damaged => assert_eq!(of_d, BEFORE, "{what}"),
            Found => assert!(of_d == BEFORE || of_d == BOTH, "{what}: {of_d:?}"),
        }
    }
}

#[test]
fn what_no_header_says_of_a_seal_is_found_and_mended() {
    let (mut scene, scenery, client, other, _) = killed_behind_a_seal();
    drop((client, other));
    scene.controller.take().unwrap().kill();
    let mut found = 0;
    for (what, forge, outcome) in CASES {
        let pool = copied(&scene.pool.path());
        forge(&Headers::of(&pool.path(), scenery));
        let is_wrong = matches!(outcome, Damaged | DamagedElsewhere | Found);
        let report = arck_check::check(&pool.path(), &CheckOptions::default()).unwrap();
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        let rules: Vec<Rule> = report.findings.iter().map(|f| f.rule).collect();
        let expected: &[Rule] = if is_wrong { &[Rule::Header] } else { &[] };
        assert_eq!(rules, expected, "{what}: {lines:?}");
        found += rules.len();
        let mended = arck_check::repair(&pool.path(), &CheckOptions::default()).unwrap();
        assert!(mended.after.is_clean(), "{what}: {:?}", mended.after);
        let again = arck_check::check(&pool.path(), &CheckOptions::default()).unwrap();
        assert!(again.is_clean(), "{what}: {:?}", again.findings);
        serve(&pool).unwrap_or_else(|error| panic!("{what}: {error}"));
        split(&pool.path(), what, *outcome);
        // It is a pool like any other.
        let controller = pool.serve_with(options());
        let mut client = Client::connect(&pool.path());
        client.acquire(&[scenery.d]);
        client.create(scenery.d, b"afterwards", FileKind::File);
        client.commit_all(true);
        client.goodbye();
        controller.stop().unwrap();
        let tree = check(&pool.path());
        assert!(tree.paths.contains_key("/d/afterwards"), "{what}");
    }
    assert!(found >= 12, "{found}");
}

/// The session lives on while its controller is dead and the headers are forged: it is taken up, and what it does
/// goes on to be folded, or is refused; the other session loses nothing.
#[test]
fn what_a_header_says_of_a_living_session_harms_nobody() {
    let mut taken_up = 0;
    for (what, forge, outcome) in CASES {
        if matches!(outcome, Damaged | DamagedElsewhere) {
            continue;
        }
        let (mut scene, scenery, mut client, mut other, slot) = killed_behind_a_seal();
        forge(&Headers::of(&scene.pool.path(), scenery));
        scene.restart();
        client.resume(&scene.pool.path());
        other.resume(&scene.pool.path());
        // Done, or it needs what is not there.
        let answer = client.finish(slot);
        let is_answered = matches!(answer, Response::Done | Response::Violation(_));
        assert!(is_answered, "{what}: {answer:?}");
        let header: HeaderCopy = client.header(scenery.d).copy();
        assert_eq!(
            (header.sealed, header.ownership.is_marked()),
            (0, false),
            "{what}"
        );
        // Whoever wants the directory gets it, whatever came of the delta.
        other.acquire(&[scenery.o]);
        other.create(scenery.o, b"later", FileKind::File);
        let answer = other.ask(&arck_protocol::Request::Acquire {
            inodes: arck_protocol::InodeList::new(&[scenery.d]).unwrap(),
        });
        assert_eq!(answer, Response::Done, "{what}");
        other.create(scenery.d, b"by the other", FileKind::File);
        other.commit_all(true);
        client.commit_all(false);
        // The slots that came free are given once: what comes next has its own.
        client.overlay.clear();
        client.acquire(&[scenery.e]);
        let directories: Vec<InodeNumber> = (0..90)
            .map(|n| client.create(scenery.e, format!("s{n}").as_bytes(), FileKind::Directory))
            .collect();
        for (n, &directory) in directories.iter().enumerate() {
            client.create(directory, format!("f{n}").as_bytes(), FileKind::File);
        }
        let all = (1..client.welcome.geometry.inode_count).map(|n| client.header(n).copy());
        let owned = all.filter(|header| header.ownership.session() == client.welcome.session);
        let mut slots: Vec<u32> = owned.map(|header| header.branch_slot).collect();
        let count = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert!(count > 90 && slots.len() == count, "{what}: slots twice");
        client.commit_all(true);
        client.goodbye();
        other.goodbye();
        if *outcome == Found {
            scene.controller.take().unwrap().stop().unwrap();
            arck_check::repair(&scene.pool.path(), &CheckOptions::default()).unwrap();
            scene.controller = Some(scene.pool.serve());
        }
        let tree = scene.end();
        for path in [
            "/d/by the other",
            "/d/v3",
            "/e/s39/f39",
            "/e/unhurt",
            "/o/later",
            "/o/of another session",
        ] {
            if matches!(outcome, SetAsideElsewhere(gone) if *gone == path) {
                continue;
            }
            assert!(tree.paths.contains_key(path), "{what}: {path}");
        }
        taken_up += 1;
    }
    assert!(taken_up >= 8, "{taken_up}");
}

/// What a session stores in its own arena behind the seal, where the next controller reads what is sealed: given its
/// header as it was sealed, and as it is.
type Stores = fn(&Client, Scenery, &HeaderCopy, &HeaderCopy);

fn edit(client: &Client, sealed: &HeaderCopy, edit: impl FnOnce(&mut StoredBranch)) {
    edit_sealed_branch(client, sealed, edit);
}

fn copy_branch(client: &Client, from: u32, to: u32) {
    let mut bytes = [0; BRANCH_SIZE];
    client.load(branch_offset(from).unwrap(), &mut bytes);
    client.store(branch_offset(to).unwrap(), &bytes);
}

const STORES: &[(&str, Stores)] = &[
    ("nothing", |_, _, _, _| {}),
    ("no branch", |client, _, sealed, _| {
        let offset = branch_offset(sealed.branch_slot).unwrap();
        client.store(offset, &[0; BRANCH_SIZE]);
    }),
    ("nothing but ones", |client, _, sealed, _| {
        let offset = branch_offset(sealed.branch_slot).unwrap();
        client.store(offset, &[0xff; BRANCH_SIZE]);
    }),
    ("the active branch", |client, _, sealed, now| {
        copy_branch(client, now.branch_slot, sealed.branch_slot);
    }),
    (
        "another directory's branch",
        |client, scenery, sealed, _| {
            let e = client.header(scenery.e).branch_slot();
            copy_branch(client, e, sealed.branch_slot);
        },
    ),
    ("the active delta's pages", |client, _, sealed, now| {
        let mut bytes = [0; BRANCH_SIZE];
        client.load(branch_offset(now.branch_slot).unwrap(), &mut bytes);
        let active = StoredBranch::read_from_bytes(&bytes).unwrap();
        edit(client, sealed, |branch| branch.tails = active.tails);
    }),
    ("its own pages twice", |client, _, sealed, _| {
        edit(client, sealed, |branch| branch.tails[1] = branch.tails[0]);
    }),
    ("no pages", |client, _, sealed, _| {
        edit(client, sealed, |branch| branch.tails = Default::default());
    }),
    ("a page far out", |client, _, sealed, _| {
        edit(client, sealed, |branch| branch.tails[0] = u32::MAX / 2);
    }),
    ("partners of all kinds", |client, scenery, sealed, _| {
        edit(client, sealed, |branch| {
            let all = [ROOT, scenery.d, scenery.e, scenery.o, scenery.v3, u32::MAX];
            branch
                .partners
                .iter_mut()
                .zip(all)
                .for_each(|(partner, number)| *partner = number);
        });
    }),
    ("a parent of another's", |client, scenery, sealed, _| {
        edit(client, sealed, |branch| branch.parent = scenery.o);
    }),
    ("a size, a root and a limit", |client, _, sealed, _| {
        edit(client, sealed, |branch| {
            (branch.size, branch.limit) = (1 << 40, 3);
            branch.root = IndexRoot::new(7, 0);
        });
    }),
    ("attributes in a page of its own", |client, _, sealed, _| {
        edit(client, sealed, |branch| branch.attributes = 1);
    }),
    ("times of the far future", |client, _, sealed, _| {
        edit(client, sealed, |branch| {
            (branch.modified, branch.changed) = (i64::MAX, i64::MIN);
        });
    }),
];

/// Whatever the session stores, the next controller serves; what it takes is what was done, or it says what it refused;
/// and the other session has all it had.
#[test]
fn what_a_session_stores_behind_its_seal_harms_nobody() {
    let mut refused = 0;
    for lives in [true, false] {
        for (what, stores) in STORES {
            let what = format!("{what}, lives {lives}");
            let (mut scene, scenery, mut client, mut other, slot) = killed_behind_a_seal();
            let now = client.header(scenery.d).copy();
            stores(&client, scenery, &now.of_sealed().unwrap(), &now);
            let client = match lives {
                true => Some(&mut client),
                false => {
                    drop(client);
                    None
                }
            };
            scene.restart();
            if let Some(client) = client {
                client.resume(&scene.pool.path());
                let answer = client.finish(slot);
                let is_answered = matches!(answer, Response::Done | Response::Violation(_));
                assert!(is_answered, "{what}: {answer:?}");
            }
            other.resume(&scene.pool.path());
            other.acquire(&[scenery.d]);
            let header = other.header(scenery.d).copy();
            assert_eq!((header.sealed, header.sealed_slot), (0, 0), "{what}");
            other.create(scenery.d, b"by the other", FileKind::File);
            other.create(scenery.o, b"later", FileKind::File);
            other.commit_all(true);
            other.goodbye();
            scene.controller.take().unwrap().stop().unwrap();
            let (log, aside) = told(&scene.pool);
            let of_d = split_with(&scene.pool.path(), &what, &["/o/later"]);
            let of_d: Vec<&str> = of_d.iter().map(String::as_str).collect();
            let with = |names: &[&'static str]| {
                let mut names = names.to_vec();
                names.push("/d/by the other");
                names.sort_unstable();
                names
            };
            if of_d == with(BOTH) {
                assert_eq!((log, aside), (0, 0), "{what}");
            } else {
                assert_eq!(of_d, with(BEFORE), "{what}");
                assert!(log > 0 && aside > 0, "{what}: {log} {aside}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 14, "{refused}");
}
