//! The memory by which the sessions of one user are few at a time at large accesses (`arck_pm::delegation::at_once`).
//!
//! # Invariants
//! * Nobody gets another user's. What is in it the controller neither reads nor writes.
//! * A user has one while he has a session, so there are no more than sessions.

use arck_pm::delegation::make_gates;
use foldhash::HashMap;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::hash_map::Entry;

/// Memory files by user.
#[derive(Default)]
pub struct Gates(HashMap<u32, OwnedFd>);

impl Gates {
    /// A user's. ENFILE, ENOMEM.
    pub fn of(&mut self, user: u32) -> Result<&OwnedFd, Errno> {
        match self.0.entry(user) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(place) => {
                let made = make_gates().map_err(|error| error.errno())?;
                Ok(place.insert(made))
            }
        }
    }

    /// A session of a user has gone; `has_one`: he has another.
    pub fn left(&mut self, user: u32, has_one: impl FnOnce() -> bool) {
        if !self.0.is_empty() && !has_one() {
            self.0.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestCore;
    use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

    #[test]
    fn each_user_has_its_own_while_he_has_a_session() {
        let mut test = TestCore::new();
        let one = test.session(1001, &[1001]);
        let same = test.session(1001, &[1001, 50]);
        let other = test.session(1002, &[1002, 1001]);
        let sessions = &mut test.core.sessions;
        let of = |sessions: &mut crate::sessions::Sessions, session| {
            let file = sessions.gates_of(session).expect("gates");
            let seals = fcntl_get_seals(&file).expect("seals");
            assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
            fstat(&file).expect("a file").st_ino
        };
        let first = of(sessions, one);
        assert_eq!(of(sessions, same), first);
        assert_ne!(of(sessions, other), first);
        assert_eq!(sessions.gates_of(77).err(), Some(rustix::io::Errno::STALE));
        sessions.all.remove(&one);
        sessions.forget_gates(1001);
        assert_eq!(of(sessions, same), first);
        sessions.all.remove(&same);
        sessions.forget_gates(1001);
        assert!(!sessions.gates.0.contains_key(&1001) && sessions.gates.0.contains_key(&1002));
    }
}
