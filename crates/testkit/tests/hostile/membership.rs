//! Attacks from within a trust group: a process of the same user that joins the group of others, and writes all
//! over what they share. There is no boundary between them; what they lose is theirs, and nobody else's.
//!
//! # Invariant
//! * The members that are attacked are of the attacker's user, and so is all that they do.

use super::attacker::Attacker;
use super::exhausting::garbage_for_ever;
use super::holding::BOUNDED;
use super::process::{ATTACK_BOUND, Role, become_user, tell, told};
use super::raw::{Client, dial};
use super::table::{Attack, Scene, case};
use super::world::{ATTACKER, ATTACKER_USER};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::PROTOCOL_VERSION;
use arck_protocol::socket::{Answer, Call, Caller, call};
use arck_testkit::{Random, Shorthand, connect_as};
use arckfs::At;
use rustix::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

const GROUP: &[u8] = b"members";
/// Bytes of the region that are written all over: what is in use lies at its beginning.
const PART: usize = 4 << 20;
/// So long it goes on beside others that work.
const ROUNDS: u64 = 6;

/// The role: works in a group, whatever becomes of that.
pub fn member(pool: &Path) {
    become_user();
    // What it panics over is none of the table.
    std::panic::set_hook(Box::new(|_| {}));
    let fs = connect_as(pool, GROUP);
    let name = |round: usize| format!("{ATTACKER}/full/{}", round % 8);
    let work = |round: usize| {
        fs.put(&name(round), &vec![round as u8; 20_000])?;
        let _ = fs.get(&name(round + 1));
        fs.unlink(At::Root, name(round + 2).as_bytes(), 0)
    };
    let _ = work(0);
    tell("working");
    std::thread::spawn(|| {
        // To go, whatever the others are at.
        while told().is_some() {}
        std::process::exit(0);
    });
    for round in 1.. {
        // Its own memory may be nonsense by now.
        let _ = catch_unwind(AssertUnwindSafe(|| work(round)));
    }
}

/// As a member that there is already: what the controller sends it, and the region.
fn join(pool: &Path, group: &[u8]) -> (Client, OwnedFd) {
    let socket = dial(pool);
    let hello = Call::Hello {
        version: PROTOCOL_VERSION,
        caller: Caller::of_process(group),
    };
    let (answer, descriptors) = call(&socket, &hello).expect("an answer");
    let Answer::Welcome(welcome) = answer else {
        panic!("{answer:?}");
    };
    assert!(!welcome.makes_region, "the group of others");
    let region = descriptors[4].try_clone().expect("the region");
    (Client::of(socket, welcome, descriptors), region)
}

fn scribbles(a: &mut Attacker) -> String {
    scribbles_in(a, GROUP)
}

/// When it is asked, it joins a group, and writes all over what its members share from then on.
pub fn scribbles_in(a: &mut Attacker, group: &'static [u8]) -> String {
    let pool = a.pool.clone();
    a.when_asked = Some(Box::new(move || {
        let (member, region) = join(&pool, group);
        let member = Attacker::of(member, &pool);
        let map = Mapping::new(region.as_fd(), 0, PART, MapOptions::READ_WRITE).expect("a map");
        let arena = member.arena_again();
        garbage_for_ever(&member, [u64::MAX, 0, 1 << 31, 0x1_0000_0001]);
        // It stays a member.
        std::mem::forget(member);
        std::thread::spawn(move || {
            let mut random = Random::new(0x5c21_bb1e);
            loop {
                let value = random.next_word().to_le_bytes();
                let at = random.below(PART as u64 / 8) as usize * 8;
                map.bytes().copy_from(at, &value).expect("in it");
                let at = random.below(16 * 512) as usize * 8;
                arena.bytes().copy_from(at, &value).expect("in its arena");
            }
        });
        BOUNDED.into()
    }));
    BOUNDED.into()
}

fn others_work(scene: &mut Scene, attacker: &mut Role) {
    let pool = scene.pool_text();
    let mut members: Vec<Role> = (0..2)
        .map(|_| Role::start("member", ATTACKER_USER, &[&pool]))
        .collect();
    for member in &mut members {
        assert_eq!(member.line(ATTACK_BOUND), "working");
    }
    assert_eq!(attacker.ask("scribble"), BOUNDED);
    for _ in 0..ROUNDS {
        scene.victim_works();
        scene.third_works();
        std::thread::sleep(Duration::from_millis(100));
    }
    members.into_iter().for_each(Role::kill);
    scene.victim_works();
    scene.third_works();
}

pub const ATTACKS: &[Attack] = &[case(
    "member",
    "joins a group, and writes all over what its members share",
    BOUNDED,
    scribbles,
)
.and(others_work)];
