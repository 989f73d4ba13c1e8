//! Attacks that keep what others have given up from being used again, by saying that it is open, or
//! mapped.

use super::attacker::Attacker;
use super::process::{BOUND, Role, become_user, tell, told};
use super::table::{Attack, Scene, case};
use super::world::{VICTIM, VICTIM_USER};
use arck_core_state::InodeNumber;
use arck_core_state::header::HeaderKind;
use arck_protocol::control::{MAP_SLOTS, map_entry, open_entry};
use arck_testkit::{Shorthand, connect};
use arckfs::{At, Errno, Failure};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Files that are made at once, and bytes of each; some of them are what a stranger may keep.
const FILES: usize = 40;
const FILE_SIZE: usize = 200 << 10;
/// Inodes that a stranger may keep: less than are removed in all rounds.
const STRANGERS: usize = 256;
/// Bytes of the file that is written anew.
const REWRITTEN_SIZE: usize = 4 << 20;
/// Times that they are made: more than the pool can hold together.
const ROUNDS: usize = 20;
const BOUNDED: &str = "a bounded store";

/// The role: makes and removes files of its own, and writes one anew, as it is told.
pub fn rewriter(pool: &Path) {
    become_user();
    let fs = connect(pool);
    let closed = format!("{VICTIM}/inner/closed");
    let name = |number: usize| format!("{closed}/{number}");
    let rewritten = format!("{VICTIM}/inner/rewritten");
    let put = |name: &str, content: &[u8]| {
        let began = Instant::now();
        loop {
            match fs.put(name, content) {
                Ok(()) => return,
                // What is given up is free soon, not at once.
                Err(Failure::Errno(Errno::NOSPC)) if began.elapsed() < BOUND => {}
                Err(failure) => panic!("{name}: {failure:?}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    fs.make_directory(At::Root, closed.as_bytes(), 0o700)
        .expect("a directory");
    fs.fold(false).expect("folded");
    while let Some(order) = told() {
        match order.as_str() {
            "make" => (0..FILES).for_each(|number| put(&name(number), &[5; FILE_SIZE])),
            "remove" => (0..FILES).for_each(|number| {
                fs.unlink(At::Root, name(number).as_bytes(), 0)
                    .expect("no name");
            }),
            _ => put(&rewritten, &vec![6; REWRITTEN_SIZE]),
        }
        fs.fold(false).expect("folded");
        tell("done");
    }
    fs.unlink(At::Root, rewritten.as_bytes(), 0).ok();
    fs.unlink(At::Root, closed.as_bytes(), libc::AT_REMOVEDIR)
        .expect("no name");
    fs.disconnect().expect("a clean end");
}

/// Everything that is alive, with its generation.
fn alive(a: &Attacker) -> impl Iterator<Item = (InodeNumber, u32)> {
    (1..a.welcome.geometry.inode_count)
        .filter(|&number| a.is_alive(number))
        .map(|number| (number, a.header(number).generation()))
}

/// A second session that lists whatever is alive when it is asked, and says how much of it has no
/// name any more.
fn lists_all(
    a: &mut Attacker,
    list: impl Fn(&Attacker, usize, (InodeNumber, u32)) + Send + 'static,
) {
    let other = Attacker::connect(&a.pool);
    let mut listed = BTreeSet::new();
    a.when_asked = Some(Box::new(move || {
        let is_orphan = |&&(number, generation): &&(InodeNumber, u32)| {
            let header = other.header(number);
            header.kind() == HeaderKind::Orphan && header.generation() == generation
        };
        let kept = listed.iter().filter(is_orphan).count();
        for of in alive(&other) {
            let place = listed.len();
            if listed.insert(of) {
                list(&other, place, of);
            }
        }
        kept.to_string()
    }));
}

/// A victim that makes and removes more than there is space for, all of it listed.
fn removes(scene: &mut Scene, attacker: &mut Role) {
    let mut rewriter = Role::start("rewriter", VICTIM_USER, &[&scene.pool_text()]);
    for round in 0..ROUNDS {
        assert_eq!(rewriter.ask("make"), "done");
        let kept: usize = attacker.ask("list").parse().expect("a number");
        // Descriptors can be passed to who could not open the file: a little may stay, of all that others remove.
        assert!(
            kept <= STRANGERS && (round == 0 || kept > 0),
            "round {round}: {kept} kept"
        );
        assert_eq!(rewriter.ask("remove"), "done");
    }
    rewriter.end();
}

/// A victim that writes a file anew more often than there is space for.
fn rewrites(scene: &mut Scene, attacker: &mut Role) {
    let mut rewriter = Role::start("rewriter", VICTIM_USER, &[&scene.pool_text()]);
    for _ in 0..ROUNDS {
        assert_eq!(rewriter.ask("rewrite"), "done");
        attacker.ask("list");
    }
    rewriter.end();
}

pub const ATTACKS: &[Attack] = &[
    case(
        "hoard",
        "says that it has open whatever there is",
        BOUNDED,
        |a| {
            lists_all(a, |a, place, (number, generation)| {
                a.control().open[place].store(open_entry(number, generation), Ordering::SeqCst);
            });
            BOUNDED.into()
        },
    )
    .and(removes)
    .for_users(),
    case(
        "hoard",
        "says that it has maps of whatever there is",
        BOUNDED,
        |a| {
            lists_all(a, |a, place, (number, generation)| {
                let control = a.control();
                control
                    .header
                    .maps
                    .store(MAP_SLOTS as u32, Ordering::SeqCst);
                control.maps[place].store(map_entry(number, generation, false), Ordering::SeqCst);
            });
            BOUNDED.into()
        },
    )
    .and(rewrites)
    .for_users(),
];
