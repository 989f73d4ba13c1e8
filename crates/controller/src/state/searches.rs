//! Who may search a directory and all above it, remembered: a tree can be as deep as there are inodes,
//! and whatever is done in it would walk all the way up.
//!
//! # Invariants
//! * What is known of a directory is what a walk up to the root finds now: when a directory's owner, mode
//!   or parent changes, everything is forgotten, since it may be above any other.
//! * A walk ends at the first directory that is known, and all on the way are known afterwards.

use crate::state::classes::{Class, Condition, Wish};
use arck_core_state::{FileKind, Inode, InodeNumber, ROOT_INODE};
use foldhash::HashMap;
use std::cell::{Cell, RefCell};

/// Directories of which it is known; with more, all is forgotten before the next walk.
const KNOWN_MAX: usize = 1 << 18;
/// Directories above each other; beyond any path, a cycle would be damage.
const DEPTH_MAX: usize = 1 << 20;

/// See the module's head.
#[derive(Default)]
pub struct Searches {
    known: RefCell<HashMap<InodeNumber, Option<Class>>>,
    /// Directories that have been looked at.
    steps: Cell<u64>,
}

/// What of a directory decides who may search it.
fn rights(inode: &Inode) -> [u32; 4] {
    [inode.mode, inode.uid, inode.gid, inode.parent]
}

impl Searches {
    /// Who may search a directory and every directory above it; that is who may see the attributes of what
    /// has a name in it. `inode` gives shadow inodes. `None`: nobody, or a directory is missing.
    pub fn class<'a>(
        &self,
        inode: impl Fn(InodeNumber) -> Option<&'a Inode>,
        directory: InodeNumber,
    ) -> Option<Class> {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        climb(
            &mut known,
            |_| None,
            |at| {
                self.steps.set(self.steps.get() + 1);
                inode(at).map(rights_and_parent)
            },
            directory,
        )
    }

    /// An inode changes.
    pub fn note(&self, number: InodeNumber, old: Option<&Inode>, new: Option<&Inode>) {
        let Some(old) = old.filter(|old| old.kind() == Some(FileKind::Directory)) else {
            // What is new is above nothing yet.
            return;
        };
        match new {
            Some(new) if rights(new) == rights(old) => {}
            Some(_) => self.known.borrow_mut().clear(),
            // One that is freed is empty.
            None => drop(self.known.borrow_mut().remove(&number)),
        }
    }

    /// Directories that have been looked at, for tests.
    #[cfg(test)]
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }
}

/// The same within a change that is being prepared: what it makes, and what it gives other rights.
#[derive(Default)]
pub struct NewSearches {
    known: RefCell<HashMap<InodeNumber, Option<Class>>>,
    /// It gives some directory other rights: what is known of the verified state does not count.
    has_new_rights: bool,
}

impl NewSearches {
    /// An inode becomes `new`, in this change, from what it was in this change.
    pub fn note(&mut self, old: Option<&Inode>, new: &Inode) {
        if new.kind() == Some(FileKind::Directory)
            && old.is_some_and(|old| rights(old) != rights(new))
        {
            self.forget();
        }
    }

    /// Some directory has other rights.
    pub fn forget(&mut self) {
        self.has_new_rights = true;
        self.known.get_mut().clear();
    }

    /// As [`Searches::class`]. `inode` gives inodes as the change leaves them; `verified` what is
    /// known of a directory that it leaves as it is.
    pub fn class(
        &self,
        inode: impl Fn(InodeNumber) -> Option<Inode>,
        verified: impl Fn(InodeNumber) -> Option<Option<Class>>,
        directory: InodeNumber,
    ) -> Option<Class> {
        let verified = |at| match self.has_new_rights {
            true => None,
            false => verified(at),
        };
        let known = &mut self.known.borrow_mut();
        let above = |at| inode(at).as_ref().map(rights_and_parent);
        climb(known, verified, above, directory)
    }
}

fn rights_and_parent(inode: &Inode) -> (Condition, InodeNumber) {
    (Condition::of(inode, Wish::Search), inode.parent)
}

/// From a directory up to one of which it is known, or `told`, who may search it and all above it; of those
/// on the way it is known then. `above` gives who may search a directory, and its parent.
fn climb(
    known: &mut HashMap<InodeNumber, Option<Class>>,
    told: impl Fn(InodeNumber) -> Option<Option<Class>>,
    above: impl Fn(InodeNumber) -> Option<(Condition, InodeNumber)>,
    directory: InodeNumber,
) -> Option<Class> {
    let mut passed: Vec<(InodeNumber, Condition)> = Vec::new();
    let mut at = directory;
    let mut class = loop {
        if let Some(class) = known.get(&at).cloned().or_else(|| told(at)) {
            break class;
        }
        let (condition, parent) = above(at).filter(|_| passed.len() < DEPTH_MAX)?;
        passed.push((at, condition));
        if at == ROOT_INODE {
            break Some(Class::world());
        }
        at = parent;
    };
    for (number, condition) in passed.into_iter().rev() {
        class = class.and_then(|class| class.and(condition));
        known.insert(number, class.clone());
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::touched::Touched;
    use crate::state::change::{Change, Weight};
    use crate::testing::{TestCore, new_inode};
    use arck_core_state::header::HeaderKind;
    use arck_core_state::{IndexRoot, PAGE_SIZE, PagePtr};

    fn directory(number: InodeNumber, parent: InodeNumber, mode: u32, uid: u32) -> Inode {
        Inode {
            number,
            generation: 1,
            mode: FileKind::Directory.mode_bits() | mode,
            links: 2,
            uid,
            gid: uid,
            size: PAGE_SIZE,
            root: IndexRoot::EMPTY,
            accessed: 0,
            modified: 0,
            changed: 0,
            created: 0,
            pages: 0,
            parent,
            entries: 0,
            mediation: 0,
            reserved0: 0,
            attributes: PagePtr::NULL,
            reserved: [0; 3],
        }
    }

    /// What is remembered is what a walk finds, whatever changes in between.
    #[test]
    fn what_is_known_is_what_a_walk_finds() {
        let seed = 0x5ea2_c4e5_u64;
        let mut word = seed;
        // Below a bound: xorshift.
        let mut random = |bound: u32| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            (word >> 33) as u32 % bound
        };
        let searches = Searches::default();
        let mut inodes: Vec<Option<Inode>> = vec![None; 40];
        inodes[1] = Some(directory(1, 1, 0o755, 0));
        let set = |inodes: &mut Vec<Option<Inode>>, number: u32, new: Option<Inode>| {
            searches.note(number, inodes[number as usize].as_ref(), new.as_ref());
            inodes[number as usize] = new;
        };
        for step in 0..20_000 {
            let number = 2 + random(38);
            let mode = [0o755, 0o700, 0o750, 0o711, 0o000][random(5) as usize];
            let uid = 1 + random(3);
            // Parents have smaller numbers, so that there is no cycle.
            let parent = 1 + random(number - 1);
            let has_children = inodes
                .iter()
                .flatten()
                .any(|inode| inode.parent == number && inode.number != 1);
            match random(10) {
                0 if !has_children => set(&mut inodes, number, None),
                1 | 2 if inodes[parent as usize].is_some() => {
                    set(
                        &mut inodes,
                        number,
                        Some(directory(number, parent, mode, uid)),
                    );
                }
                _ => {}
            }
            let asked = 1 + random(39);
            let plain = Class::of_search(|n| inodes.get(n as usize).copied().flatten(), asked);
            let found = searches.class(|n| inodes.get(n as usize)?.as_ref(), asked);
            assert_eq!(
                found, plain,
                "seed {seed:#x}, step {step}, directory {asked}"
            );
        }
    }

    /// Directories within each other below the root, none of which anybody else owns; the first.
    fn chain(test: &mut TestCore, depth: usize) -> InodeNumber {
        let state = &mut test.core.sessions.state;
        let mut parent = ROOT_INODE;
        let mut first = 0;
        for _ in 0..depth.div_ceil(500) {
            let mut change = Change::new(state);
            let label = change.state.label(Some(&Class::world()));
            change.allocate_for_class(label);
            for _ in 0..500 {
                let inode = directory(0, parent, 0o755, 1001);
                let (number, generation) = new_inode(&mut change, HeaderKind::Alive, inode);
                let mut above = change.inode(parent).unwrap();
                let dentry = arck_core_state::directory::Dentry {
                    inode: number,
                    generation,
                    kind: FileKind::Directory,
                };
                crate::state::apply::directory::add(&mut change, &mut above, b"d", dentry).unwrap();
                above.links += 1;
                change.set_inode(above);
                if first == 0 {
                    first = number;
                }
                parent = number;
            }
            change.commit(Weight::Fold).unwrap();
        }
        first
    }

    /// Closing a tree of 60,000 directories within each other took 20 s and more, since each slice of
    /// 64 of them walked up to the root again.
    #[test]
    fn a_deep_tree_is_closed_in_steps_of_bounded_depth() {
        const DEPTH: usize = 2000;
        let mut test = TestCore::new();
        test.session(1002, &[1002]);
        let first = chain(&mut test, DEPTH);
        let before = *test.core.sessions.state.shadow(first).unwrap();
        let mut change = Change::new(&mut test.core.sessions.state);
        change.set_inode(Inode {
            mode: FileKind::Directory.mode_bits() | 0o700,
            ..before
        });
        change.commit(Weight::Fold).unwrap();
        let steps = test.core.sessions.state.searches.steps();
        test.core
            .access()
            .tighten(vec![Touched::attributes(first, Some(before), true)]);
        test.core.access().finish_closing();
        let steps = test.core.sessions.state.searches.steps() - steps;
        assert!(
            steps < 3 * DEPTH as u64,
            "{steps} directories looked at for {DEPTH}"
        );
        // And it is closed.
        let mut at = first;
        for _ in 1..DEPTH {
            let label = test.core.sessions.state.label_of_inode(at);
            let class = test.core.sessions.state.classes.get(label).cloned();
            // What finds no room in its class is nobody's.
            let is_closed = class.is_none() || class == Some(Class::only(1001));
            assert_eq!(is_closed, at != first, "inode {at}: {class:?}");
            at = arck_verifier::VerifiedState::lookup(&test.core.sessions.state, at, b"d")
                .unwrap()
                .inode;
        }
    }
}
