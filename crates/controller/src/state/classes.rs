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

mod table;

pub use crate::space::pages::NOBODY;
use arck_controller_state::classes::{CLASSES_MAX, CONDITIONS_MAX};
use arck_core_state::Inode;
use arck_verifier::Credentials;
pub use table::Classes;

/// Of them, those that are kept for classes of one condition at most: a user who makes directories
/// of all combinations of his groups uses up the others, but not what each user needs for his own.
pub const SIMPLE_CLASSES: usize = CLASSES_MAX / 4;

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
    /// directory is missing. What [`searches`](crate::state::searches) remembers, without remembering it.
    #[cfg(test)]
    pub fn of_search(inode: impl Fn(u32) -> Option<Inode>, directory: u32) -> Option<Class> {
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
            mediation: 0,
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
}
