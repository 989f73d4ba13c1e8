//! The pool's classes and their numbers, in a file of the pool.
//!
//! # Invariant
//! * A number means the same class for as long as a segment is labelled with it, and to whoever has
//!   been told it until he has used it ([`Classes::forget_told`]); then it may become another's. A class
//!   is durable before its number is used.

use super::*;
use crate::error::{Error, Result};
use crate::state::classes::{Class, Condition, SIMPLE_CLASSES};
use arck_controller_state::classes::StoredClass;
use arck_core_state::{cast, layout};
use arck_pm::record::{self, FileChange, file_id};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

fn stored(number: u32, class: &Class) -> std::result::Result<StoredClass, Errno> {
    let triple = |condition: &Condition| [condition.uid, condition.gid, condition.passes];
    let conditions: Vec<_> = class.0.iter().map(triple).collect();
    // No class has more.
    StoredClass::new(number, &conditions).ok_or(Errno::NOSPC)
}

fn decoded(stored: &StoredClass, number: u32) -> Option<Class> {
    let of = |&[uid, gid, passes]: &[u32; 3]| Condition { uid, gid, passes };
    let conditions = stored.conditions(number)?;
    Some(Class(conditions.iter().map(of).collect()))
}

/// The pool's classes and their numbers.
pub struct Classes {
    file: OwnedFd,
    /// By number, less one. `None`: free, or damaged and on a segment.
    table: Vec<Option<Class>>,
    numbers: HashMap<Class, u32>,
    /// Free numbers within the table.
    free: Vec<u32>,
    /// Of classes of more than one condition.
    conjunctions: usize,
    /// Numbers told since [`Classes::forget_told`]: on a segment soon, perhaps.
    told: HashSet<u32>,
    /// There may be numbers that [`Classes::free_unused`] would free.
    may_free: bool,
}

impl Classes {
    /// Reads the pool's classes, those that are on a segment; the numbers of all others are free.
    /// What is damaged is nobody's for as long as it is on one.
    pub fn open(
        path: &Path,
        directory: &OwnedFd,
        is_used: impl Fn(u32) -> bool,
    ) -> Result<Classes> {
        let failed = |operation| Error::system(path.join(layout::CLASSES), operation);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(directory, layout::CLASSES, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed("open"))?;
        record::file(|| FileChange::Named {
            file: file_id(&file),
            name: layout::CLASSES.into(),
        });
        let mut classes = Classes {
            file,
            table: Vec::new(),
            numbers: HashMap::new(),
            free: Vec::new(),
            conjunctions: 0,
            told: HashSet::new(),
            may_free: false,
        };
        let mut stored = StoredClass::new_zeroed();
        while classes.table.len() < CLASSES_MAX {
            let at = classes.table.len() as u64 * size_of::<StoredClass>() as u64;
            let read = rustix::io::pread(&classes.file, stored.as_mut_bytes(), at)
                .map_err(failed("read"))?;
            if read != size_of::<StoredClass>() {
                break;
            }
            let number = cast::count(classes.table.len()) + 1;
            classes.table.push(None);
            match decoded(&stored, number) {
                _ if !is_used(number) => classes.free.push(number),
                Some(class) => classes.set(number, class),
                None => tracing::error!("read class {number} is damaged: it is nobody's"),
            }
        }
        // The lowest first.
        classes.free.reverse();
        Ok(classes)
    }

    fn set(&mut self, number: u32, class: Class) {
        self.conjunctions += usize::from(class.0.len() > 1);
        self.numbers.insert(class.clone(), number);
        self.table[number as usize - 1] = Some(class);
    }

    /// The class of a label; `None`: nobody.
    pub fn get(&self, label: u32) -> Option<&Class> {
        self.table.get((label as usize).checked_sub(1)?)?.as_ref()
    }

    /// Whether a label is of a class of more than one condition.
    pub fn is_conjunction(&self, label: u32) -> bool {
        self.get(label).is_some_and(|class| class.0.len() > 1)
    }

    /// The number of a class, if it has one.
    pub fn number(&self, class: &Class) -> Option<u32> {
        self.numbers.get(class).copied()
    }

    /// Whoever has been told a number has used it, or forgotten it.
    pub fn forget_told(&mut self) {
        self.may_free |= !self.told.is_empty();
        self.told.clear();
    }

    /// Whether numbers may have come to be on no segment since this was asked last; `lost`: labels
    /// have been taken off segments.
    pub fn take_may_free(&mut self, lost: bool) -> bool {
        std::mem::take(&mut self.may_free) || lost
    }

    /// The numbers that are on no segment, `used` being those that are, become free.
    pub fn free_unused(&mut self, used: &HashSet<u32>) {
        for (place, entry) in self.table.iter_mut().enumerate() {
            let number = cast::count(place) + 1;
            if used.contains(&number) || self.told.contains(&number) {
                continue;
            }
            if let Some(class) = entry.take() {
                self.conjunctions -= usize::from(class.0.len() > 1);
                self.numbers.remove(&class);
                self.free.push(number);
            }
        }
    }

    /// Whether a class has no number, and can have none before others are free.
    pub fn is_full_for(&self, class: &Class) -> bool {
        let is_conjunction = class.0.len() > 1;
        !self.numbers.contains_key(class)
            && (self.free.is_empty() && self.table.len() >= CLASSES_MAX
                || is_conjunction && self.conjunctions >= CLASSES_MAX - SIMPLE_CLASSES)
    }

    /// Whether somebody who is neither root nor the pool's user may read what has this label.
    pub fn admits(&self, label: u32, who: &Credentials) -> bool {
        self.get(label).is_some_and(|class| class.admits(who))
    }

    /// Whether all who may read what is labelled `label` are in `class`.
    pub fn is_within(&self, label: u32, class: Option<&Class>) -> bool {
        match (self.get(label), class) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(class)) => own.implies(class),
        }
    }

    /// The label of a class, to be used or forgotten before [`Classes::forget_told`]; [`NOBODY`] for
    /// nobody, and where there are too many or a new one cannot be stored.
    pub fn label(&mut self, class: Option<&Class>) -> u32 {
        let Some(class) = class else { return NOBODY };
        if let Some(&number) = self.numbers.get(class) {
            self.told.insert(number);
            return number;
        }
        if self.is_full_for(class) {
            return NOBODY;
        }
        let next = cast::count(self.table.len()) + 1;
        let number = self.free.last().copied().unwrap_or(next);
        if let Err(errno) = self.store(number, class) {
            tracing::warn!("a read class cannot be stored: {errno}");
            return NOBODY;
        }
        match number == next {
            true => self.table.push(None),
            false => drop(self.free.pop()),
        }
        self.set(number, class.clone());
        self.told.insert(number);
        number
    }

    fn store(&self, number: u32, class: &Class) -> std::result::Result<(), Errno> {
        let stored = stored(number, class)?;
        let at = u64::from(number - 1) * size_of::<StoredClass>() as u64;
        let written = rustix::io::pwrite(&self.file, stored.as_bytes(), at)?;
        if written != size_of::<StoredClass>() {
            return Err(Errno::NOSPC);
        }
        record::file(|| FileChange::Written {
            file: file_id(&self.file),
            offset: at,
            bytes: stored.as_bytes().to_vec(),
        });
        rustix::fs::fdatasync(&self.file)?;
        record::file(|| FileChange::Synced {
            file: file_id(&self.file),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_found_again_and_a_torn_record_is_not() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = crate::pool::files::open_directory(folder.path()).unwrap();
        let open = || Classes::open(folder.path(), &directory, |_| true).unwrap();
        let mut classes = open();
        let group = Class::world().and(Condition {
            uid: 1001,
            gid: 5,
            passes: OWNER | GROUP,
        });
        let labels = [
            classes.label(Some(&Class::world())),
            classes.label(group.as_ref()),
            classes.label(Some(&Class::only(7))),
        ];
        assert_eq!(labels, [1, 2, 3]);
        assert_eq!(classes.label(None), NOBODY);
        assert_eq!(classes.label(group.as_ref()), 2);
        drop(classes);
        let mut classes = open();
        assert_eq!(classes.get(2), group.as_ref());
        assert_eq!(classes.label(Some(&Class::only(7))), 3);
        assert!(classes.get(4).is_none() && classes.get(NOBODY).is_none());
        drop(classes);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(folder.path().join(layout::CLASSES))
            .unwrap();
        file.set_len(3 * 256 - 1).unwrap();
        let mut classes = open();
        assert!(classes.get(3).is_none());
        assert_eq!(classes.label(Some(&Class::only(8))), 3);
    }

    /// However many conjunctions somebody makes, there are classes left for single users.
    #[test]
    fn conjunctions_leave_room_for_users() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = crate::pool::files::open_directory(folder.path()).unwrap();
        let mut classes = Classes::open(folder.path(), &directory, |_| true).unwrap();
        let member = |gid| Condition {
            uid: 1,
            gid,
            passes: OWNER | GROUP,
        };
        let all = (0..CLASSES_MAX as u32).map(|i| {
            let of_one = Class::world().and(member(1 + i / 64));
            of_one.unwrap().and(member(1000 + i % 64)).unwrap()
        });
        let refused = all.filter(|class| classes.label(Some(class)) == NOBODY);
        assert_eq!(refused.count(), SIMPLE_CLASSES);
        for uid in 2..100 {
            assert_ne!(classes.label(Some(&Class::only(uid))), NOBODY);
        }
        assert_ne!(classes.label(Some(&Class::world())), NOBODY);
    }

    /// Numbers that are on no segment become other classes; those that are, or have just been told,
    /// mean what they meant, also for who opens the pool again.
    #[test]
    fn numbers_are_used_again() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = crate::pool::files::open_directory(folder.path()).unwrap();
        let open = |used: &HashSet<u32>| {
            Classes::open(folder.path(), &directory, |number| used.contains(&number)).unwrap()
        };
        let mut classes = open(&HashSet::new());
        let user = |uid| Class::only(uid);
        for uid in 1..=CLASSES_MAX as u32 {
            assert_eq!(classes.label(Some(&user(uid))), uid);
        }
        let (used, late) = (HashSet::from([7, 4096]), user(10_000));
        // All have just been told.
        classes.free_unused(&used);
        assert_eq!(classes.label(Some(&late)), NOBODY);
        classes.forget_told();
        assert!(classes.take_may_free(false));
        assert_eq!(classes.label(Some(&user(9))), 9);
        classes.free_unused(&used);
        let told: HashSet<u32> = (0..CLASSES_MAX as u32 - 3)
            .map(|i| classes.label(Some(&user(10_000 + i))))
            .collect();
        assert_eq!(told.len(), CLASSES_MAX - 3);
        assert!([NOBODY, 7, 9, 4096].iter().all(|n| !told.contains(n)));
        for uid in [7, 9, 4096] {
            assert_eq!(classes.get(uid), Some(&user(uid)));
        }
        assert_eq!(classes.label(Some(&user(1))), NOBODY);
        let number = classes.number(&late).unwrap();
        drop(classes);
        let classes = open(&HashSet::from([7, number, 9]));
        assert_eq!(classes.get(7), Some(&user(7)));
        assert_eq!(classes.number(&late), Some(number));
        assert_eq!(classes.get(4096), None);
        drop(classes);
        // A record that was not written whole.
        let damage = (number as usize - 1) * 256 + 40;
        let path = folder.path().join(layout::CLASSES);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[damage] ^= 1;
        std::fs::write(path, bytes).unwrap();
        let mut classes = open(&HashSet::from([7, number, 9]));
        assert_eq!(classes.get(number), None);
        assert_eq!(classes.get(9), Some(&user(9)));
        assert_ne!(classes.label(Some(&late)), number);
    }
}
