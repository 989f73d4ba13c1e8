//! Which files and directories are mediated by themselves: those over which ownership would go back and forth for nearly
//! nothing (DESIGN section 9).
//!
//! A file of which sessions want to write a little, by turns, waits for a lease at each turn. It becomes mediated when
//! that has happened some times in a row, and is nobody's then for what fits in a message. Where sessions have much to
//! write each, owners do that much faster: so a file is left to owners again when one session alone writes it, when
//! sessions queue up for it, and when what they do to it takes an owner as a rule. The same is so of names in a directory.
//!
//! An owner asks once for many changes, and a message is one of them. Where the controller has so much to do for others that
//! each message waits for longer than a lease, nothing is found, and what was found is left.
//!
//! # Invariants
//! * What is kept here decides how fast writes are, and nothing else. It is of [`FILES_MAX`] files at most, and none of
//!   it outlives the controller.
//! * A file that was left to owners, and comes back soon, needs twice as many turns the next time: what goes back and
//!   forth costs a part of the time that gets smaller and smaller.

use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use foldhash::HashMap;
use std::time::{Duration, Instant};

/// So many turns in a row, in each of which somebody waited for a lease.
const TURNS: u32 = 3;
/// An owner that has done no more than so many operations, of whatever kind, has done little: long writes are few, and
/// take their time.
const LITTLE: u64 = 16;
/// So many writes in a row by one session: it is alone.
const ALONE: u32 = 32;
/// Of so many writes most came when another had just been done.
const QUEUE: u32 = 256;
/// A file that comes back so soon was left to its owners for a reason.
const SOON: Duration = Duration::from_millis(200);
/// How often the turns are doubled at most that such a file needs.
const DOUBLED_MAX: u32 = 6;
/// A write that begins to be served so soon behind another has waited for that: who has seen what the other wrote
/// needs longer to say something.
const BEHIND: Duration = Duration::from_micros(4);
/// A message that has waited for so long has waited for longer than for a lease.
const LATE: Duration = Duration::from_millis(1);
/// So many late messages among [`QUEUE`]: owners wait less.
const LATE_MAX: u32 = 3;
/// Files of which something is kept; when there are more, all are looked at anew.
const FILES_MAX: usize = 4096;

/// See the module's head.
#[derive(Default)]
pub struct Mediating {
    files: HashMap<InodeNumber, File>,
    began: Option<Instant>,
    /// The looks at what sessions ask for, the last and the one before: what is served now came behind that.
    looked: Option<Instant>,
    looked_before: Option<Instant>,
    is_late: bool,
}

#[derive(Default)]
struct File {
    generation: u32,
    turns: u32,
    /// Who wrote last, and so often in a row.
    writer: SessionNumber,
    run: u32,
    /// Writes by message; how many had waited for another, and for how many an owner had to give the file up.
    writes: u32,
    queued: u32,
    owned: u32,
    late: u32,
    doubled: u32,
    served: Option<Instant>,
    left: Option<Instant>,
}

impl Mediating {
    /// A request begins to be served, of whatever kind.
    pub fn request_begins(&mut self, now: Instant) {
        self.began = Some(now);
        self.is_late = self.looked_before.is_some_and(|then| now - then > LATE);
    }

    /// It is looked what sessions ask for.
    pub fn looks(&mut self, now: Instant) {
        self.looked_before = self.looked.replace(now);
    }

    /// Nobody has asked for anything for a while.
    pub fn wakes(&mut self, now: Instant) {
        (self.looked_before, self.looked) = (Some(now), Some(now));
    }

    /// When the one began that is served now: before its bytes were copied.
    pub fn began(&self) -> Instant {
        self.began.unwrap_or_else(Instant::now)
    }

    fn file(&mut self, (number, generation): (InodeNumber, u32)) -> &mut File {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&number) {
            self.files.clear();
        }
        let file = self.files.entry(number).or_default();
        if file.generation != generation {
            *file = File {
                generation,
                ..File::default()
            };
        }
        file
    }

    /// A file changes its owner. `waited`: for the lease of the one before, who has done so many `operations` meanwhile.
    /// Whether it is mediated from now on.
    pub fn changes_owner(
        &mut self,
        file: (InodeNumber, u32),
        waited: bool,
        operations: u64,
        now: Instant,
    ) -> bool {
        let is_late = self.is_late;
        let file = self.file(file);
        file.turns = match waited && operations <= LITTLE && !is_late {
            true => file.turns + 1,
            false => 0,
        };
        let is_back = file.left.is_some_and(|left| now - left < SOON);
        let needed = if is_back {
            TURNS << file.doubled
        } else {
            TURNS
        };
        if file.turns < needed {
            return false;
        }
        *file = File {
            generation: file.generation,
            doubled: match is_back {
                true => (file.doubled + 1).min(DOUBLED_MAX),
                false => 0,
            },
            ..File::default()
        };
        true
    }

    /// A session writes a file by message, which is mediated by itself; `owned`: somebody had to give it up for that.
    /// Whether it stays so.
    pub fn writes(
        &mut self,
        file: (InodeNumber, u32),
        session: SessionNumber,
        owned: bool,
        now: Instant,
    ) -> bool {
        let is_late = self.is_late;
        let file = self.file(file);
        file.run = match file.writer == session {
            true => file.run + 1,
            false => 0,
        };
        file.writer = session;
        file.writes += 1;
        file.owned += u32::from(owned);
        file.late += u32::from(is_late);
        let behind = file.served.is_some_and(|served| now - served < BEHIND);
        file.queued += u32::from(behind);
        let is_full = file.writes >= QUEUE;
        let is_left = file.run >= ALONE
            || file.late >= LATE_MAX
            || is_full && (file.queued > file.writes / 2 || file.owned > file.writes / 4);
        if is_left {
            file.left = Some(now);
        }
        if is_left || is_full {
            (file.writes, file.queued, file.owned) = (0, 0, 0);
            (file.late, file.turns) = (0, 0);
        }
        !is_left
    }

    /// Such a write has been done.
    pub fn served(&mut self, file: (InodeNumber, u32), now: Instant) {
        self.file(file).served = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: (InodeNumber, u32) = (7, 1);

    fn takes_turns(mediating: &mut Mediating, operations: u64, now: Instant) -> bool {
        (0..TURNS).any(|_| mediating.changes_owner(FILE, true, operations, now))
    }

    /// Writes so many times by two sessions in turn, or by one; how many until it is left.
    fn writes(mediating: &mut Mediating, sessions: u32, pause: Duration, most: u32) -> u32 {
        let mut now = Instant::now();
        for write in 0..most {
            now += pause;
            if !mediating.writes(FILE, 1 + write % sessions, false, now) {
                return write + 1;
            }
            mediating.served(FILE, now);
        }
        most
    }

    #[test]
    fn little_work_by_turns_is_mediated_and_much_is_not() {
        let now = Instant::now();
        assert!(takes_turns(&mut Mediating::default(), LITTLE, now));
        let mut much = Mediating::default();
        for _ in 0..10 {
            assert!(!takes_turns(&mut much, LITTLE + 1, now));
        }
        let mut unhurried = Mediating::default();
        for _ in 0..10 {
            assert!(!unhurried.changes_owner(FILE, false, 1, now));
        }
        // Not in a row.
        let mut both = Mediating::default();
        for turn in 0..30 {
            let operations = if turn % TURNS == 0 { 1000 } else { 1 };
            assert!(!both.changes_owner(FILE, true, operations, now));
        }
        // Of another file with the same number nothing is known.
        for generation in 0..10 {
            assert!(!both.changes_owner((9, generation), true, 1, now));
        }
    }

    #[test]
    fn who_takes_turns_stays_and_who_is_alone_or_in_a_queue_does_not() {
        let slow = Duration::from_micros(10);
        let mut turns = Mediating::default();
        assert_eq!(writes(&mut turns, 2, slow, 100_000), 100_000);
        assert_eq!(writes(&mut Mediating::default(), 1, slow, 1000), ALONE + 1);
        let fast = Duration::from_nanos(500);
        assert_eq!(writes(&mut Mediating::default(), 2, fast, 1000), QUEUE);
        let mut owned = Mediating::default();
        let left = (0..1000).find(|write| !owned.writes(FILE, write % 2, true, Instant::now()));
        assert_eq!(left, Some(QUEUE - 1));
    }

    /// What was looked at last a while ago has others served for so long: what waits for that is late, and not what comes after
    /// a sleep.
    #[test]
    fn where_messages_wait_for_others_owners_do_better() {
        let began = Instant::now();
        let at = |micros: u64| began + Duration::from_micros(micros);
        let looks = |mediating: &mut Mediating, slept: bool| {
            mediating.looks(at(0));
            if slept {
                mediating.wakes(at(4_999));
            }
            mediating.looks(at(5_000));
            mediating.request_begins(at(5_001));
        };
        let mut slow = Mediating::default();
        looks(&mut slow, false);
        for _ in 0..10 {
            assert!(!slow.changes_owner(FILE, true, 1, at(5_002)));
        }
        let mut slept = Mediating::default();
        looks(&mut slept, true);
        assert!(takes_turns(&mut slept, 1, at(5_002)));
        assert_eq!(writes(&mut slept, 2, Duration::from_micros(10), 1000), 1000);
        looks(&mut slept, false);
        let left = writes(&mut slept, 2, Duration::from_micros(10), 1000);
        assert_eq!(left, LATE_MAX);
        // Those before it in the same round count, too.
        let mut behind = Mediating::default();
        behind.wakes(at(0));
        behind.looks(at(0));
        behind.request_begins(at(5_000));
        assert!(!takes_turns(&mut behind, 1, at(5_001)));
    }

    #[test]
    fn who_comes_back_soon_has_to_take_more_turns() {
        let mut mediating = Mediating::default();
        let turns = |mediating: &mut Mediating, now| {
            let found = (1..1 << 20).find(|_| mediating.changes_owner(FILE, true, 1, now));
            found.expect("some time")
        };
        for time in 0..DOUBLED_MAX + 3 {
            let needed = TURNS << time.saturating_sub(1).min(DOUBLED_MAX);
            assert_eq!(turns(&mut mediating, Instant::now()), needed, "time {time}");
            let left = writes(&mut mediating, 1, Duration::from_micros(1), 1 << 20);
            assert_eq!(left, ALONE + 1);
        }
        // Later it is another matter.
        assert_eq!(turns(&mut mediating, Instant::now() + 2 * SOON), TURNS);
    }

    #[test]
    fn no_more_is_kept_than_of_so_many_files() {
        let mut mediating = Mediating::default();
        for number in 0..3 * cast(FILES_MAX) {
            mediating.changes_owner((number, 1), true, 1, Instant::now());
            assert!(mediating.files.len() <= FILES_MAX);
        }
    }

    fn cast(count: usize) -> u32 {
        u32::try_from(count).unwrap()
    }
}
