//! Attacks by doing much at once that costs little alone: requests that take long, in all slots of many
//! sessions; a thousand operations in flight at each of thousands of folds; full tables of many sessions.
//!
//! # Invariant
//! * All sessions are of one user, who may have them all.

use super::attacker::Attacker;
use super::holding::BOUNDED;
use super::process::{ATTACK_BOUND, Role};
use super::raw::Client;
use super::table::{Attack, Scene, case};
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::control::{REQUEST_SLOTS, THREAD_SLOTS};
use arck_protocol::{Request, Response, ring};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Sessions that ask for refusals, and refused deltas of each.
const ASKING: usize = 4;
const REFUSED: usize = 1200;
/// Inodes that are taken and given up again.
const GIVEN_UP: usize = 4000;
/// Sessions with full open tables.
const LISTING: usize = 48;

/// Names of what attackers make, which differ from session to session.
fn name_of(session: u32, at: usize) -> &'static [u8] {
    format!("s{session}-{at}").leak().as_bytes()
}

/// Files of a session, each with a delta that is refused.
fn has_refused(a: &mut Attacker) {
    let session = a.welcome.session;
    let directory = a.number();
    let parent = a.own("attacker");
    a.edit_branch(directory, |b| b.parent = parent);
    let name = name_of(session, usize::MAX);
    a.record_with(parent, (directory, FileKind::Directory), name, |r| {
        r.source = b"";
        r.mode = 0o755;
    });
    assert_eq!(a.commit_of(parent), "accepted");
    let numbers: Vec<InodeNumber> = (0..REFUSED)
        .map(|at| {
            let number = a.number();
            a.edit_branch(number, |b| b.parent = directory);
            let name = name_of(session, at);
            a.record_with(directory, (number, FileKind::File), name, |r| {
                r.source = b"";
            });
            number
        })
        .collect();
    assert_eq!(a.commit_of(directory), "accepted");
    for number in numbers {
        a.edit_branch(number, |b| b.size = u64::MAX - 1);
    }
}

/// A session of its own thread that asks in all slots for all it has to be folded, over and over.
fn asks_for_ever(pool: PathBuf) {
    let (sender, ready) = channel();
    std::thread::spawn(move || {
        let mut a = Attacker::connect(&pool);
        has_refused(&mut a);
        sender.send(()).expect("somebody who waits");
        let mut asked = Vec::new();
        loop {
            while asked.len() < REQUEST_SLOTS {
                let request = Request::CommitAll { release: false };
                asked.push(a.submit(&request).expect("a slot"));
            }
            asked.retain(|&slot| {
                let is_answered = ring::is_answered(a.control(), slot);
                if is_answered {
                    a.finish(slot);
                }
                !is_answered
            });
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    ready.recv_timeout(ATTACK_BOUND).expect("it is ready");
}

/// As often as somebody who comes and goes.
fn others_work(scene: &mut Scene, _: &mut Role) {
    for _ in 0..2 {
        scene.victim_works();
        scene.third_works();
    }
}

pub const ATTACKS: &[Attack] = &[
    case(
        "crowd",
        "thousands of refusals, asked for in all slots of some sessions",
        BOUNDED,
        |a| {
            for _ in 0..ASKING {
                asks_for_ever(a.pool.clone());
            }
            BOUNDED.into()
        },
    )
    .and(others_work)
    .for_users(),
    case(
        "crowd",
        "gives up what it owns with every thread in an operation",
        "a bounded store",
        |a| {
            let file = a.find("attacker/second");
            (0..THREAD_SLOTS).for_each(|thread| a.enter(thread));
            for _ in 0..GIVEN_UP {
                a.acquire(&[file]);
                let said = a.ask(&Client::commit_request(&[file], true));
                assert_eq!(said, Response::Done);
            }
            "a bounded store".into()
        },
    )
    .and(|scene, _| scene.controller_has_less_memory(128 << 20)),
    case(
        "crowd",
        "loses a right of what it has open, in sessions with full tables",
        "a bounded store",
        |a| {
            for session in 0..LISTING as u64 {
                let client = Client::connect(&a.pool);
                for (place, entry) in (1u64..).zip(&client.control().open) {
                    entry.store(session << 32 | place << 8 | 0xff, Ordering::Relaxed);
                }
                std::mem::forget(client);
            }
            let file = a.own("attacker/file");
            a.list_open(0, file);
            for mode in [0o600, 0, 0o200, 0].into_iter().cycle().take(8) {
                assert_eq!(a.forge(file, |b| b.mode = mode), "accepted");
            }
            "a bounded store".into()
        },
    )
    .and(|scene, _| {
        scene.victim_works();
        // Once a second it is looked at what is still open.
        std::thread::sleep(Duration::from_millis(2500));
        scene.controller_has_less_memory(192 << 20);
    })
    .for_users(),
];
