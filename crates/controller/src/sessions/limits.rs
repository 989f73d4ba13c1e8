//! How many sessions and connections a user may have.
//!
//! # Invariants
//! * Nobody gets more than half of what others leave, so there is always some left, however many there
//!   are who want all. Root and the pool's user may have all of it.
//! * Of a pool that is served to all users, a fourth of each is kept for users who have none: a handful
//!   of users who halve what is left time and again reach the last one, too.

use crate::fair::{descriptors_max, may_have_another};
use crate::sessions::Sessions;
use arck_controller_state::sessions::SESSIONS_MAX;
use rustix::io::Errno;

/// Bytes of the pool's file system that a new session takes, or a little more.
const ARENA: u64 = 1 << 20;
/// Sessions of a user for which it is not asked how much memory all of his take.
const FEW: usize = 512;
/// Descriptors of a session at most; it takes more of them while it is opened.
const DESCRIPTORS: usize = 6;

/// Descriptors that a controller takes at least to serve a few programs: some twenty are for its own files, and
/// a fourth of what it may have is left alone.
pub const DESCRIPTORS_MIN: u64 = 48;

/// What there is of sessions, and who has them.
struct Taken {
    own: usize,
    others: usize,
    capacity: usize,
    reserve: usize,
    is_trusted: bool,
}

impl Taken {
    fn may_have_more(&self) -> bool {
        let Taken {
            own,
            others,
            capacity,
            reserve,
            is_trusted,
        } = *self;
        may_have_another(own, others, capacity, reserve, is_trusted)
    }
}

impl Sessions {
    /// Of so many sessions or connections, those that are kept for users who have none.
    pub fn reserve(&self, capacity: usize) -> usize {
        match self.options.shared {
            true => capacity / 4,
            // There is nobody else.
            false => 0,
        }
    }

    fn taken(&self, user: u32) -> Taken {
        let sessions = self.all.values();
        let own = sessions.filter(|session| session.credentials.uid == user);
        let own = own.count();
        let capacity = SESSIONS_MAX.min(descriptors_max() / DESCRIPTORS);
        Taken {
            own: own + self.count_remains(user),
            others: self.all.len() - own,
            capacity,
            reserve: self.reserve(capacity),
            is_trusted: self.is_trusted(user),
        }
    }

    /// Whether a user gets another session. EAGAIN; EMFILE if only descriptors are missing; ENOSPC if he has
    /// many, and the memory of all is what he may take.
    pub fn may_open_session(&mut self, user: u32) -> Result<(), Errno> {
        let has_memory =
            |sessions: &Sessions, taken: &Taken| taken.own < FEW || sessions.may_take(user, ARENA);
        let mut taken = self.taken(user);
        if !taken.may_have_more() || !has_memory(self, &taken) {
            // Of those that have just ended.
            self.remove_remains();
            taken = self.taken(user);
        }
        if taken.may_have_more() {
            return match has_memory(self, &taken) {
                true => Ok(()),
                false => Err(Errno::NOSPC),
            };
        }
        // Who may have all there is has them all.
        let lacks_descriptors = taken.is_trusted && taken.capacity < SESSIONS_MAX;
        Err(match lacks_descriptors {
            true => Errno::MFILE,
            false => Errno::AGAIN,
        })
    }

    /// Why a session could not be opened, in a line for whoever wanted it.
    pub fn why_no_session(&self, user: u32, errno: Errno) -> String {
        let taken = self.taken(user);
        let Taken {
            own,
            others,
            capacity,
            ..
        } = taken;
        if errno == Errno::NOSPC {
            return format!(
                "there is no memory for another session of user {user}, who has {own}: end some programs"
            );
        }
        if !matches!(errno, Errno::AGAIN | Errno::MFILE) || taken.may_have_more() {
            return format!("the session could not be opened: {errno}");
        }
        let advice = match capacity < SESSIONS_MAX {
            true => "give the controller more descriptors (ulimit -n), or end some programs",
            false => "end some programs, or start them in one arck run, whose programs share one",
        };
        format!(
            "user {user} gets no more sessions: {own} are his and {others} others', of {capacity}: \
             {advice}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Core;
    use crate::options::Options;
    use crate::pool::mkfs::{MkfsOptions, mkfs};
    use arck_controller_state::sessions::{TABLE_MIN, TABLE_SIZE};
    use arck_core_state::layout;

    #[test]
    fn a_pool_of_an_earlier_release_gets_room_for_more_sessions() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = folder.path().join("pool");
        let made = MkfsOptions {
            size: 16 << 20,
            mode: 0o755,
            force: false,
        };
        mkfs(&pool, &made, &mut |_, _| {}).unwrap();
        let table = std::fs::File::options()
            .write(true)
            .open(pool.join(layout::SESSION_TABLE))
            .unwrap();
        let length = || table.metadata().unwrap().len();
        assert_eq!(length(), TABLE_SIZE);
        table.set_len(TABLE_MIN).unwrap();
        Core::open(&pool, Options::default())
            .unwrap()
            .close()
            .unwrap();
        assert_eq!(length(), TABLE_SIZE);
        // What no release made is damage.
        table.set_len(TABLE_MIN - 1).unwrap();
        assert!(Core::open(&pool, Options::default()).is_err());
        assert_eq!(length(), TABLE_MIN - 1);
    }

    /// 11 users took all 1,024 sessions: each had half of what the others had left.
    #[test]
    fn users_who_want_all_leave_a_session_for_who_has_none() {
        let (capacity, reserve) = (1024, 256);
        let mut taken = 0;
        for _ in 0..40 {
            let mut own = 0;
            while may_have_another(own, taken, capacity, reserve, false) {
                own += 1;
            }
            assert!(own > 0, "{taken} are taken");
            taken += own;
        }
        assert!(taken < capacity - reserve / 2, "{taken}");
        // Who is trusted leaves what is kept for others, too.
        let mut own = 0;
        while may_have_another(own, 0, capacity, reserve, true) {
            own += 1;
        }
        assert_eq!(own, capacity - reserve);
        assert!(may_have_another(0, own, capacity, reserve, false));
        // Where there is nobody else, all.
        assert!(may_have_another(1023, 0, capacity, 0, true));
        assert!(!may_have_another(1024, 0, capacity, 0, true));
    }
}
