//! Read classes: who may be sent a segment (DESIGN section 3).
//!
//! A *condition* is the permission check of one inode: user, group, and for the owner, the group
//! and all others whether they pass. A *class* is a conjunction of conditions: search permission of
//! every directory above a file, and for what stands in the file its read permission. A segment is
//! labelled with the number of a class; number 0 is *nobody*: root and the pool's user alone, who
//! pass every class.
//!
//! # Invariants
//! * Conditions are normal: one that everybody meets is dropped, one that nobody meets makes the
//!   class *nobody*, what the others imply is dropped where that is plain. So the files of most
//!   pools have few classes: everybody, and one for each user.
//! * What is simplified means the same: the tests compare it with plain permission checks.
//! * A number means the same class for as long as a segment is labelled with it, and to whoever has
//!   been told it until he has used it ([`Classes::settle`]); then it may become another's. A class
//!   is durable before its number is used.

use crate::error::{Error, Result};
use crate::files::{CLASS_WORDS, StoredClass};
use arck_core_state::{Inode, InodeNumber, layout};
use arck_pm::record::{self, FileChange, file_id};
use arck_verifier::Credentials;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use zerocopy::IntoBytes;

/// Label of what only root and the pool's user may read.
pub const NOBODY: u32 = 0;
/// Classes that a pool can have; what would need another one is *nobody*.
pub const CLASSES_MAX: usize = 4096;
/// Of them, those that are kept for classes of one condition at most: a user who makes directories
/// of all combinations of his groups uses up the others, but not what each user needs for his own.
const SIMPLE_CLASSES: usize = CLASSES_MAX / 4;
/// Conditions that a class can have; with more it is *nobody*.
pub const CONDITIONS_MAX: usize = CLASS_WORDS / 3;

const OWNER: u32 = 4;
const GROUP: u32 = 2;
const OTHERS: u32 = 1;
const ALL: u32 = OWNER | GROUP | OTHERS;

/// What is wanted of an inode: bits of a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Read = 4,
    Search = 1,
}

/// One permission check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Condition {
    uid: u32,
    /// 0 where the group makes no difference.
    gid: u32,
    /// Who passes: 4 = user `uid`; 2 = others of group `gid`; 1 = everybody else.
    passes: u32,
}

impl Condition {
    /// The check of an inode.
    pub fn of(inode: &Inode, wish: Wish) -> Condition {
        let bit = |shift: u32| inode.mode >> shift & wish as u32 != 0;
        let passes = u32::from(bit(6)) * OWNER + u32::from(bit(3)) * GROUP + u32::from(bit(0));
        Condition {
            uid: inode.uid,
            gid: inode.gid,
            passes,
        }
        .normal()
    }

    /// Being this user.
    pub fn only(uid: u32) -> Condition {
        Condition {
            uid,
            gid: 0,
            passes: OWNER,
        }
    }

    fn normal(mut self) -> Condition {
        if (self.passes & GROUP != 0) == (self.passes & OTHERS != 0) {
            self.gid = 0;
        }
        self
    }

    fn is_met(&self, who: &Credentials) -> bool {
        let bit = if who.uid == self.uid {
            OWNER
        } else if self.has_group() && who.in_group(self.gid) {
            GROUP
        } else {
            OTHERS
        };
        self.passes & bit != 0
    }

    fn has_group(&self) -> bool {
        (self.passes & GROUP != 0) != (self.passes & OTHERS != 0)
    }

    /// Whether one user meets it, where that follows from who he is.
    fn is_met_by_user(&self, uid: u32) -> Option<bool> {
        if self.uid == uid {
            Some(self.passes & OWNER != 0)
        } else if self.has_group() {
            None
        } else {
            Some(self.passes & OTHERS != 0)
        }
    }

    fn implies(&self, other: &Condition) -> bool {
        (self.uid, self.gid, self.has_group()) == (other.uid, other.gid, other.has_group())
            && self.passes & !other.passes == 0
    }
}

/// A conjunction of conditions, in order; none: everybody.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Class(Vec<Condition>);

impl Class {
    /// Everybody.
    pub fn world() -> Class {
        Class::default()
    }

    /// One user.
    pub fn only(uid: u32) -> Class {
        Class(vec![Condition::only(uid)])
    }

    /// The one user whom it names, if it does.
    fn user(&self) -> Option<u32> {
        let only = |condition: &&Condition| condition.passes == OWNER;
        self.0.iter().find(only).map(|condition| condition.uid)
    }

    /// With one more condition. `None`: nobody meets it, or it has too many.
    pub fn and(mut self, condition: Condition) -> Option<Class> {
        if condition.passes == ALL {
            return Some(self);
        }
        self.0.push(condition);
        if let Some(uid) = self.user() {
            let mut nobody = false;
            self.0.retain(|condition| {
                let met = condition.is_met_by_user(uid);
                nobody |= met == Some(false);
                condition.passes == OWNER || met.is_none()
            });
            if nobody {
                return None;
            }
        }
        self.0.sort_unstable();
        self.0.dedup();
        let all = self.0.clone();
        self.0.retain(|condition| {
            !all.iter()
                .any(|other| other != condition && other.implies(condition))
        });
        let nobody = self.0.iter().any(|condition| condition.passes == 0);
        (!nobody && self.0.len() <= CONDITIONS_MAX).then_some(self)
    }

    /// Whether somebody who is neither root nor the pool's user is in it.
    pub fn admits(&self, who: &Credentials) -> bool {
        self.0.iter().all(|condition| condition.is_met(who))
    }

    /// Whether everybody in it is in `other`. False where that is not plain.
    pub fn implies(&self, other: &Class) -> bool {
        let user = self.user();
        other.0.iter().all(|wanted| {
            self.0.iter().any(|own| own.implies(wanted))
                || user.and_then(|uid| wanted.is_met_by_user(uid)) == Some(true)
        })
    }

    /// Who may search a directory, and with it every directory above; that is who may see the
    /// attributes of what has a name in it. `inode` gives shadow inodes. `None`: nobody, or a
    /// directory is missing.
    pub fn of_search(
        inode: impl Fn(InodeNumber) -> Option<Inode>,
        directory: InodeNumber,
    ) -> Option<Class> {
        let mut class = Class::world();
        let mut at = directory;
        // Beyond any path; a cycle would be damage.
        for _ in 0..1 << 20 {
            let found = inode(at)?;
            class = class.and(Condition::of(&found, Wish::Search))?;
            if at == arck_core_state::ROOT_INODE {
                return Some(class);
            }
            at = found.parent;
        }
        None
    }
}

impl StoredClass {
    fn new(number: u32, class: &Class) -> StoredClass {
        let mut stored = StoredClass {
            checksum: 0,
            number,
            count: class.0.len() as u32,
            reserved: 0,
            conditions: [0; CLASS_WORDS],
        };
        let (places, _) = stored.conditions.as_chunks_mut::<3>();
        for (place, condition) in places.iter_mut().zip(&class.0) {
            *place = [condition.uid, condition.gid, condition.passes];
        }
        stored.checksum = stored.sum();
        stored
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[4..])
    }

    fn decode(&self, number: u32) -> Option<Class> {
        let (conditions, _) = self.conditions.as_chunks::<3>();
        let conditions = conditions.get(..self.count as usize)?;
        let of = |&[uid, gid, passes]: &[u32; 3]| Condition { uid, gid, passes };
        let class = Class(conditions.iter().map(of).collect());
        (self.checksum == self.sum() && self.number == number).then_some(class)
    }
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
    /// Numbers told since [`Classes::settle`]: on a segment soon, perhaps.
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
        let mut stored = StoredClass::new(0, &Class::world());
        while classes.table.len() < CLASSES_MAX {
            let at = classes.table.len() as u64 * size_of::<StoredClass>() as u64;
            let read = rustix::io::pread(&classes.file, stored.as_mut_bytes(), at)
                .map_err(failed("read"))?;
            if read != size_of::<StoredClass>() {
                break;
            }
            let number = classes.table.len() as u32 + 1;
            classes.table.push(None);
            match stored.decode(number) {
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

    /// The number of a class, if it has one.
    pub fn number(&self, class: &Class) -> Option<u32> {
        self.numbers.get(class).copied()
    }

    /// Whoever has been told a number has used it, or forgotten it.
    pub fn settle(&mut self) {
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
            let number = place as u32 + 1;
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

    /// The label of a class, to be used or forgotten before [`Classes::settle`]; [`NOBODY`] for
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
        let next = self.table.len() as u32 + 1;
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
        let stored = StoredClass::new(number, class);
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
    use arck_core_state::{FileKind, IndexRoot, PagePtr, ROOT_INODE};
    use proptest::prelude::*;

    /// Directory `number`; each holds the next.
    fn directory(number: u32, (uid, gid, mode): (u32, u32, u32)) -> Inode {
        Inode {
            number,
            generation: 1,
            mode: FileKind::Directory.mode_bits() | mode,
            links: 2,
            uid,
            gid,
            size: 4096,
            root: IndexRoot::EMPTY,
            accessed: 0,
            modified: 0,
            changed: 0,
            created: 0,
            pages: 0,
            parent: if number == ROOT_INODE {
                number
            } else {
                number - 1
            },
            entries: 0,
            class: 0,
            reserved0: 0,
            attributes: PagePtr::NULL,
            reserved: [0; 3],
        }
    }

    type Owned = (u32, u32, u32);

    fn owned() -> impl Strategy<Value = Owned> {
        let mode = prop_oneof![
            Just(0o755),
            Just(0o700),
            Just(0o750),
            Just(0o711),
            Just(0o644),
            Just(0o640),
            Just(0o600),
            0u32..0o1000
        ];
        (1u32..4, 1u32..5, mode)
    }

    fn who() -> impl Strategy<Value = Credentials> {
        let groups = proptest::collection::vec(1u32..5, 0..3);
        (1u32..5, 1u32..5, groups).prop_map(|(uid, gid, groups)| Credentials {
            session: 1,
            uid,
            gid,
            groups,
        })
    }

    /// POSIX, said once more: the first of owner, group, others that fits decides.
    fn oracle(who: &Credentials, &(uid, gid, mode): &Owned, wish: u32) -> bool {
        let digit = if who.uid == uid {
            mode / 64
        } else if who.gid == gid || who.groups.contains(&gid) {
            mode / 8
        } else {
            mode
        };
        (digit % 8) & wish == wish
    }

    fn class_of(above: &[Owned], file: Owned) -> Option<Class> {
        let get = |number: u32| {
            above
                .get((number - ROOT_INODE) as usize)
                .map(|&owned| directory(number, owned))
        };
        let inode = directory(100, file);
        Class::of_search(get, ROOT_INODE + above.len() as u32 - 1)?
            .and(Condition::of(&inode, Wish::Read))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// A class admits exactly those whom the checks of every directory and of the file admit.
        #[test]
        fn a_class_is_the_checks_of_a_path(
            above in proptest::collection::vec(owned(), 1..7),
            file in owned(),
            who in who(),
        ) {
            let plain = above.iter().all(|inode| oracle(&who, inode, 1)) && oracle(&who, &file, 4);
            let class = class_of(&above, file);
            prop_assert_eq!(
                class.as_ref().is_some_and(|class| class.admits(&who)),
                plain,
                "{:?}", class
            );
        }

        /// What is said to be narrower admits nobody whom the other does not.
        #[test]
        fn a_narrower_class_admits_no_others(
            one in proptest::collection::vec(owned(), 1..4),
            two in proptest::collection::vec(owned(), 1..4),
            file in owned(),
            who in proptest::collection::vec(who(), 20),
        ) {
            let (Some(one), Some(two)) = (class_of(&one, file), class_of(&two, file)) else {
                return Ok(());
            };
            prop_assert!(one.implies(&one));
            if one.implies(&two) {
                for who in &who {
                    prop_assert!(!one.admits(who) || two.admits(who), "{:?} {:?}", one, two);
                }
            }
        }

        /// A directory more makes a class narrower, and is seen to.
        #[test]
        fn more_conditions_are_narrower(
            above in proptest::collection::vec(owned(), 1..5),
            more in owned(),
            file in owned(),
        ) {
            let wide = class_of(&above, file);
            let mut longer = above.clone();
            longer.push(more);
            if let (Some(wide), Some(narrow)) = (wide, class_of(&longer, file)) {
                prop_assert!(narrow.implies(&wide), "{:?} {:?}", narrow, wide);
            }
        }
    }

    #[test]
    fn common_paths_reduce_to_everybody_and_one_user() {
        let root = (0, 0, 0o755);
        let home = |mode| (1001, 1001, mode);
        let world = Some(Class::world());
        let user = Some(Class::only(1001));
        assert_eq!(class_of(&[root, home(0o755)], home(0o644)), world);
        assert_eq!(class_of(&[root, (0, 0, 0o1777)], home(0o444)), world);
        assert_eq!(class_of(&[root, home(0o700)], home(0o644)), user);
        assert_eq!(class_of(&[root, home(0o755)], home(0o600)), user);
        assert_eq!(
            class_of(&[root, home(0o700), home(0o750)], home(0o640)),
            user
        );
        assert_eq!(class_of(&[root, home(0o700)], home(0o200)), None);
        assert_eq!(
            class_of(&[root, home(0o700), (1002, 7, 0o700)], home(0o644)),
            None
        );
    }

    #[test]
    fn classes_are_found_again_and_a_torn_record_is_not() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = crate::pool::open_directory(folder.path()).unwrap();
        let open = || Classes::open(folder.path(), &directory, |_| true).unwrap();
        let mut classes = open();
        let group = class_of(&[(0, 0, 0o755)], (1001, 5, 0o640));
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
        let directory = crate::pool::open_directory(folder.path()).unwrap();
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
        let directory = crate::pool::open_directory(folder.path()).unwrap();
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
        classes.settle();
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
