//! Several users in the smallest pool: each has segments of his own, and so have the classes.

use super::cases::big;
use super::world::{ANN, BOB, EVE, Session, Turns, User, World};
use arckfs::Errno;
use std::collections::BTreeSet;

const USERS: [User; 5] = [ANN, BOB, EVE, User(1004, &[1004]), User(1005, &[1005])];
/// Files of each user that he keeps to himself, and that all may read: of 50,000 bytes.
const OWN: u8 = 20;
const SHARED: u8 = 10;

fn own(user: u32, file: u8) -> (String, Vec<u8>) {
    let content = big((user as u8).wrapping_mul(31) ^ file);
    (format!("/home-{user}/{file}"), content)
}

fn shared(user: u32, file: u8) -> (String, Vec<u8>) {
    let content = big((user as u8).wrapping_mul(31) ^ 0x80 ^ file);
    (format!("/shared-{user}/{file}"), content)
}

/// Kinds of segments, in the segment table.
const METADATA: u32 = 1;
const DATA: u32 = 2;

/// The classes of segments of a kind, as the segment table says.
fn classes(world: &World, kind: u32) -> BTreeSet<u32> {
    let table = std::fs::read(world.pool().join("segment-table")).unwrap();
    let (entries, _) = table.as_chunks::<32>();
    let word = |entry: &[u8], at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
    let of_kind = entries.iter().filter(|entry| word(*entry, 0) == kind);
    let classes = of_kind.map(|entry| word(entry, 4));
    classes.filter(|&class| class != 0).collect()
}

fn user(session: &Session, turns: &mut Turns, uid: u32) {
    let others = || USERS.iter().map(|user| user.0).filter(move |&o| o != uid);
    turns.wait();
    session.mkdir(&format!("/home-{uid}"), 0o700);
    session.mkdir(&format!("/shared-{uid}"), 0o755);
    for (path, content) in (0..OWN).map(|file| own(uid, file)) {
        session.put(&path, &content, 0o644);
    }
    for (path, content) in (0..SHARED).map(|file| shared(uid, file)) {
        session.put(&path, &content, 0o644);
    }
    turns.next();
    for other in others() {
        assert_eq!(session.names(&format!("/home-{other}")), Err(Errno::ACCESS));
        assert_eq!(session.get(&own(other, 0).0), Err(Errno::ACCESS));
        for (path, content) in (0..SHARED).map(|file| shared(other, file)) {
            assert_eq!(session.get(&path), Ok(content), "{path}, read by {uid}");
            assert_eq!(session.try_write(&path, b"x"), Err(Errno::ACCESS), "{path}");
        }
    }
    turns.next();
    // Each closes one file, writes another anew, and removes a third.
    session.chmod(&shared(uid, 0).0, 0o600);
    session.try_write(&shared(uid, 1).0, b"again").unwrap();
    session.unlink(&shared(uid, 2).0).unwrap();
    turns.next();
    for other in others() {
        assert_eq!(session.get(&shared(other, 0).0), Err(Errno::ACCESS));
        assert_eq!(session.get(&shared(other, 1).0).unwrap()[..5], *b"again");
        assert_eq!(session.get(&shared(other, 2).0), Err(Errno::NOENT));
    }
    for (path, content) in (0..OWN).map(|file| own(uid, file)) {
        assert_eq!(session.get(&path), Ok(content), "{path}");
    }
    turns.pass();
}

/// Five users with a pool of 16 MiB, all at once: each with files of his own, and others that all
/// read; for none is there a class without a segment.
pub fn five_users_in_a_small_pool() {
    let world = World::new(16 << 20);
    let start = |who: User| world.beside(who, |session, turns| user(session, turns, who.0));
    let mut users: Vec<_> = USERS.iter().map(|&who| start(who)).collect();
    for phase in 0..4 {
        for (_, turns) in &mut users {
            turns.next();
        }
        if phase == 1 {
            // Everybody's, and each user's.
            let metadata = classes(&world, METADATA).len();
            assert!(metadata > USERS.len(), "{metadata} classes of metadata");
            let data = classes(&world, DATA).len();
            assert!(data > USERS.len(), "{data} classes of data");
        }
    }
    for ((child, _), who) in users.into_iter().zip(USERS) {
        child.ended(&format!("user {}", who.0));
    }
    assert_eq!(world.violations(), "");
}
