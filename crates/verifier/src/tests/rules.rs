//! Every rule fires, and fires as itself.

use super::*;
use crate::{ArenaSource, PageBudget, Rule, Violation, copy_delta, verify};
use arck_core_state::DEVICE_MAX;
use arck_core_state::arena::DELTA_FIRST;
use arck_core_state::branch::{StoredBranch, UNCHANGED_TIME};
use arck_core_state::directory::Dentry;
use arck_core_state::extended;
use arck_core_state::geometry::{FILE_SIZE_MAX, LINKS_MAX, PATH_MAX};
use arck_core_state::header::HeaderKind;
use arck_core_state::index::IndexRoot;
use arck_core_state::record::{Record, RecordRef, effect};
use std::collections::HashSet;

/// An attack on the world.
pub(super) struct Attack {
    state: MemoryState,
    owner: Owner,
}

impl Attack {
    /// A record in a directory's delta, changed at will.
    fn record(
        &mut self,
        directory: InodeNumber,
        inode: InodeNumber,
        kind: FileKind,
        name: &[u8],
        edit: impl FnOnce(&mut Record<'_>),
    ) -> RecordRef {
        let generation = self.state.headers.get(&inode).map_or(1, |h| h.generation);
        let dentry = Dentry {
            inode,
            generation,
            kind,
        };
        let mut record = self.owner.record(dentry, name, name);
        record.state = effect::ADD;
        record.mode = 0o644;
        edit(&mut record);
        self.owner.publish(&self.state, directory, &record)
    }

    /// A new file in `HOME`.
    fn creation(&mut self, edit: impl FnOnce(&mut Record<'_>)) {
        self.record(HOME, NEW, FileKind::File, b"new", edit);
    }

    /// A new device in `HOME`.
    fn device(&mut self, kind: FileKind, number: u64) {
        let user = self.owner.who.uid;
        self.record(HOME, NEW, kind, b"new", |r| r.uid = user);
        self.branch(NEW, |b| (b.parent, b.size) = (HOME, number));
    }

    fn branch(&mut self, number: InodeNumber, edit: impl FnOnce(&mut StoredBranch)) {
        let header = self.state.headers[&number];
        self.owner.arena.edit_branch(number, &header, edit);
    }

    /// A set-up operation that must succeed.
    fn honest<T>(
        &mut self,
        operation: impl FnOnce(&mut Owner, &MemoryState) -> Result<T, crate::testing::Refused>,
    ) {
        assert!(operation(&mut self.owner, &self.state).is_ok());
    }
}

pub(super) type Case = (Rule, InodeNumber, fn(&mut Attack));

/// The rule that is broken, the inode whose fold is asked for, and how it is broken.
pub(super) const CASES: &[Case] = &[
    (Rule::ArenaReadable, HOME, |a| {
        a.creation(|_| {});
        a.owner.arena.end = u64::from(DELTA_FIRST) * PAGE_SIZE + 100;
    }),
    (Rule::ArenaReadable, HOME, |a| a.owner.arena.end = 4096),
    (Rule::PageInArena, HOME, |a| {
        a.branch(HOME, |b| b.tails[2] = DELTA_FIRST - 1);
    }),
    (Rule::PageInArena, HOME, |a| {
        a.branch(HOME, |b| b.tails[0] = u32::MAX)
    }),
    (Rule::PageInArena, OLD, |a| {
        a.branch(OLD, |b| b.root = IndexRoot::new(1 << 40, 1));
    }),
    (Rule::PageInArena, OLD, |a| {
        let page = a.owner.arena.allocate();
        a.owner
            .arena
            .store(u64::from(page) * PAGE_SIZE + 8, &[0xff; 8]);
        a.branch(OLD, |b| b.root = IndexRoot::new(u64::from(page), 2));
    }),
    (Rule::PageVisitedOnce, HOME, |a| {
        a.creation(|_| {});
        let page = a.state.headers[&HOME];
        let page = a.owner.arena.branch(HOME, &page).tails[0];
        a.owner
            .arena
            .store(u64::from(page) * PAGE_SIZE + 4, &page.to_le_bytes());
    }),
    (Rule::PageVisitedOnce, OLD, |a| {
        let page = a.owner.arena.allocate();
        let start = u64::from(page) * PAGE_SIZE;
        a.owner.arena.store(start, &u64::from(page).to_le_bytes());
        a.branch(OLD, |b| b.root = IndexRoot::new(u64::from(page), 3));
    }),
    (Rule::PageVisitedOnce, OLD, |a| {
        // The index of one file and the records of a directory in one page.
        a.creation(|_| {});
        let page = a.state.headers[&HOME];
        let page = a.owner.arena.branch(HOME, &page).tails[0];
        a.branch(OLD, |b| {
            b.root = IndexRoot::new(u64::from(page), 1);
            b.partners[0] = HOME;
        });
    }),
    (Rule::PageHeader, HOME, |a| {
        a.creation(|_| {});
        let start = u64::from(DELTA_FIRST) * PAGE_SIZE;
        a.owner.arena.store(start, &WORK.to_le_bytes());
    }),
    (Rule::PageHeader, HOME, |a| {
        a.creation(|_| {});
        let start = u64::from(DELTA_FIRST) * PAGE_SIZE;
        a.owner.arena.store(start + 8, &[0xff; 8]);
    }),
    (Rule::Name, HOME, |a| a.creation(|r| r.name = b"")),
    (Rule::Name, HOME, |a| a.creation(|r| r.name = b".")),
    (Rule::Name, HOME, |a| a.creation(|r| r.name = b"..")),
    (Rule::Name, HOME, |a| a.creation(|r| r.name = b"a/b")),
    (Rule::Name, HOME, |a| a.creation(|r| r.name = b"a\0b\n")),
    (Rule::Name, HOME, |a| {
        a.creation(|r| {
            r.state |= effect::REMOVE_SOURCE;
            r.source = b"";
        });
    }),
    (Rule::StateBits, HOME, |a| a.creation(|r| r.state |= 32)),
    (Rule::Sequence, HOME, |a| {
        a.creation(|r| r.sequence = 9);
        a.record(HOME, NEW + 1, FileKind::File, b"m", |r| r.sequence = 9);
    }),
    (Rule::KillReference, HOME, |a| {
        a.creation(|r| r.state |= effect::KILL_TARGET)
    }),
    (Rule::KillReference, HOME, |a| {
        a.creation(|r| {
            r.state |= effect::KILL_SOURCE;
            r.kills[0].unit = DELTA_FIRST * 64;
        });
    }),
    (Rule::Time, HOME, |a| {
        a.creation(|r| r.created = UNCHANGED_TIME)
    }),
    (Rule::Size, OLD, |a| {
        a.branch(OLD, |b| b.size = FILE_SIZE_MAX + 1)
    }),
    (Rule::Size, NEW, |a| {
        a.record(HOME, NEW, FileKind::Link, b"l", |_| {});
        a.branch(NEW, |b| {
            b.parent = HOME;
            b.size = PATH_MAX as u64 + 1;
        });
    }),
    (Rule::Mode, HOME, |a| a.creation(|r| r.mode = 0o10_000)),
    (Rule::Mode, OLD, |a| a.branch(OLD, |b| b.mode = 1 << 32)),
    (Rule::Limit, OLD, |a| {
        a.branch(OLD, |b| b.limit = FILE_SIZE_MAX / PAGE_SIZE + 1);
    }),
    (Rule::IndexHeight, OLD, |a| {
        a.branch(OLD, |b| b.root = IndexRoot::new(u64::from(DELTA_FIRST), 5));
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.branch(NEW, |b| {
            b.tails[0] = DELTA_FIRST;
            b.root = IndexRoot::new(u64::from(DELTA_FIRST) + 1, 1);
        });
    }),
    (Rule::FieldsOfKind, OLD, |a| {
        a.branch(OLD, |b| b.tails[0] = DELTA_FIRST)
    }),
    (Rule::FieldsOfKind, HOME, |a| {
        a.branch(HOME, |b| b.root = IndexRoot::new(PAGES, 0))
    }),
    (Rule::FieldsOfKind, HOME, |a| {
        a.branch(HOME, |b| b.size = 4096)
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.record(HOME, NEW, FileKind::Pipe, b"p", |_| {});
        a.branch(NEW, |b| {
            b.parent = HOME;
            b.root = IndexRoot::new(PAGES + 5, 0);
        });
    }),
    // A device keeps its number, also where root would change it, and has nothing else there.
    (Rule::FieldsOfKind, OLD, |a| {
        a.owner.who.uid = 0;
        a.state
            .change(OLD, |inode| (inode.mode, inode.size) = (0o20_666, 0x103));
        a.branch(OLD, |b| b.size = 0x105);
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.owner.who.uid = 0;
        a.device(FileKind::BlockDevice, 0x801);
        a.branch(NEW, |b| b.root = IndexRoot::new(PAGES + 5, 0));
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.owner.who.uid = 0;
        a.device(FileKind::CharacterDevice, 0x103);
        a.branch(NEW, |b| b.limit = 0);
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.owner.who.uid = 0;
        a.device(FileKind::CharacterDevice, 0x103);
        a.branch(NEW, |b| b.attributes = PAGES as u32 + 5);
    }),
    (Rule::Size, NEW, |a| {
        a.owner.who.uid = 0;
        a.device(FileKind::CharacterDevice, DEVICE_MAX + 1);
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.record(HOME, NEW, FileKind::Pipe, b"p", |_| {});
        a.branch(NEW, |b| {
            b.parent = HOME;
            b.attributes = PAGES as u32 + 5;
        });
    }),
    (Rule::FieldsOfKind, NEW, |a| {
        a.creation(|_| {});
        a.record(NEW, NEW + 1, FileKind::File, b"x", |r| r.state = 0);
        a.branch(NEW, |b| b.parent = HOME);
    }),
    (Rule::NameUnique, HOME, |a| a.creation(|r| r.name = b"old")),
    (Rule::NameUnique, HOME, |a| {
        a.creation(|_| {});
        a.record(HOME, NEW + 1, FileKind::File, b"new", |_| {});
    }),
    (Rule::NumberGranted, HOME, |a| a.creation(|r| r.inode = 0)),
    (Rule::NumberGranted, HOME, |a| {
        a.creation(|r| r.inode = u32::MAX)
    }),
    (Rule::NumberGranted, HOME, |a| {
        a.state.grant(NEW, OTHER_SESSION);
        a.creation(|_| {});
    }),
    (Rule::NumberGranted, HOME, |a| {
        a.state.change_header(NEW, |h| h.kind = HeaderKind::Free);
        a.creation(|_| {});
    }),
    (Rule::Generation, HOME, |a| {
        a.creation(|r| r.generation += 1)
    }),
    (Rule::Generation, HOME, |a| {
        a.record(HOME, OLD, FileKind::File, b"l", |r| r.generation += 1);
    }),
    (Rule::Owned, HOME, |a| {
        a.record(HOME, SHARED, FileKind::File, b"l", |_| {});
    }),
    (Rule::Owned, HOME, |a| {
        a.state.set_owner(EMPTY, OTHER_SESSION);
        a.honest(|o, s| o.remove(s, HOME, b"empty"));
    }),
    (Rule::InFoldSet, HOME, |a| {
        a.state.set_owner(WORK, OTHER_SESSION);
        a.creation(|r| {
            r.state |= effect::REMOVE_SOURCE;
            r.source_directory = WORK;
        });
    }),
    (Rule::DataPageOwned, OLD, |a| {
        a.owner.write(&a.state, OLD, 0, PagePtr(PAGES + 1500));
    }),
    (Rule::DataPageOwned, OLD, |a| {
        a.owner.write(&a.state, OLD, 3, PagePtr(1 << 50))
    }),
    (Rule::DataPageOwned, SECOND, |a| {
        a.owner.write(&a.state, SECOND, 0, PagePtr(1))
    }),
    (Rule::DataPageFree, SECOND, |a| {
        a.owner.write(&a.state, SECOND, 0, PagePtr(PAGES))
    }),
    (Rule::DataPageFree, OLD, |a| {
        a.owner.write(&a.state, OLD, 1, PagePtr(PAGES))
    }),
    (Rule::DataPageFree, OLD, |a| {
        a.branch(OLD, |b| b.limit = 0);
        a.owner.write(&a.state, OLD, 1, PagePtr(PAGES + 1));
    }),
    (Rule::DataPageOnce, OLD, |a| {
        a.owner.write(&a.state, OLD, 5, PagePtr(PAGES + 9));
        a.owner.write(&a.state, OLD, 6, PagePtr(PAGES + 9));
    }),
    (Rule::DataPageOnce, OLD, |a| {
        a.owner.write(&a.state, OLD, 5, PagePtr(PAGES + 9));
        a.owner.write(&a.state, SECOND, 6, PagePtr(PAGES + 9));
        a.branch(OLD, |b| b.partners[3] = SECOND);
    }),
    (Rule::DataPageOwned, OLD, |a| {
        a.branch(OLD, |b| b.attributes = PAGES as u32 + 1500);
    }),
    (Rule::DataPageFree, OLD, |a| {
        a.branch(OLD, |b| b.attributes = PAGES as u32);
    }),
    (Rule::DataPageFree, HOME, |a| {
        // Another inode's attributes.
        a.state.set_attributes(OLD, PagePtr(PAGES + 11));
        a.branch(HOME, |b| b.attributes = PAGES as u32 + 11);
    }),
    (Rule::DataPageOnce, OLD, |a| {
        a.owner.write(&a.state, OLD, 5, PagePtr(PAGES + 9));
        a.branch(OLD, |b| b.attributes = PAGES as u32 + 9);
    }),
    (Rule::InDirectory, HOME, |a| {
        a.creation(|r| {
            r.state |= effect::REMOVE_SOURCE;
            r.source_directory = OLD;
        });
    }),
    (Rule::NameExists, HOME, |a| {
        a.creation(|r| r.state |= effect::REPLACE)
    }),
    (Rule::NameExists, NEW, |a| {
        a.record(HOME, NEW, FileKind::Directory, b"d", |_| {});
        a.record(NEW, NEW + 1, FileKind::File, b"f", |r| {
            r.state |= effect::REMOVE_SOURCE
        });
        a.branch(NEW, |b| b.parent = HOME);
    }),
    (Rule::NameRemovedOnce, HOME, |a| {
        a.honest(|o, s| o.remove(s, HOME, b"old"));
        a.record(HOME, OLD, FileKind::File, b"old", |r| {
            r.state = effect::REPLACE
        });
    }),
    (Rule::Kind, HOME, |a| {
        a.record(HOME, OLD, FileKind::Link, b"l", |_| {});
    }),
    (Rule::Kind, HOME, |a| {
        a.creation(|_| {});
        a.record(HOME, NEW, FileKind::Link, b"l", |_| {});
    }),
    (Rule::DirectoryOneName, HOME, |a| {
        a.record(HOME, EMPTY, FileKind::Directory, b"e", |_| {});
    }),
    (Rule::DirectoryOneName, HOME, |a| {
        a.record(HOME, NEW, FileKind::Directory, b"d", |_| {});
        a.record(HOME, NEW, FileKind::Directory, b"e", |_| {});
    }),
    (Rule::DirectoryOneName, HOME, |a| {
        // The root has no name to lose, so none to gain.
        a.record(HOME, ROOT_INODE, FileKind::Directory, b"r", |_| {});
    }),
    (Rule::DirectoryParent, HOME, |a| {
        a.honest(|o, s| o.remove(s, HOME, b"empty"));
        a.record(WORK, EMPTY, FileKind::Directory, b"e", |_| {});
        a.branch(HOME, |b| b.partners[0] = WORK);
    }),
    (Rule::DirectoryEmpty, HOME, |a| {
        a.honest(|o, s| o.remove(s, HOME, b"empty"));
        a.record(EMPTY, NEW, FileKind::File, b"f", |_| {});
    }),
    (Rule::DirectoryEmpty, HOME, |a| {
        let user = (USER, USER);
        a.state.add(EMPTY, b"f", 30, FileKind::File, 0o644, user);
        a.record(HOME, EMPTY, FileKind::Directory, b"empty", |r| {
            r.state = effect::REPLACE
        });
    }),
    (Rule::Connected, NEW, |a| {
        a.record(NEW, NEW, FileKind::Directory, b"self", |_| {});
    }),
    (Rule::Connected, NEW, |a| {
        a.record(NEW, NEW + 1, FileKind::Directory, b"d", |_| {});
        a.record(NEW + 1, NEW, FileKind::Directory, b"d", |_| {});
        a.branch(NEW, |b| b.partners[0] = NEW + 1);
    }),
    (Rule::Connected, NEW, |a| {
        a.record(NEW, NEW + 1, FileKind::File, b"f", |_| {});
    }),
    (Rule::Connected, NEW, |a| {
        // Names in a new file.
        a.creation(|_| {});
        a.record(NEW, NEW + 1, FileKind::File, b"f", |_| {});
        a.branch(NEW, |b| b.parent = HOME);
    }),
    (Rule::LinkCount, HOME, |a| {
        a.state.change(OLD, |inode| inode.links = LINKS_MAX);
        a.record(HOME, OLD, FileKind::File, b"l", |_| {});
    }),
    // Only who owns an orphan may have named it while it was none.
    (Rule::NotOrphan, HOME, |a| {
        a.state
            .change_header(SHARED, |h| h.kind = HeaderKind::Orphan);
        a.record(HOME, SHARED, FileKind::File, b"l", |_| {});
    }),
    (Rule::NotOrphan, HOME, |a| {
        a.state
            .change_header(EMPTY, |h| h.kind = HeaderKind::Orphan);
        a.record(HOME, EMPTY, FileKind::Directory, b"l", |_| {});
    }),
    (Rule::DirectoryPermission, HOME, |a| {
        a.state.change(HOME, |inode| inode.uid = OTHER_USER);
        a.creation(|_| {});
    }),
    (Rule::DirectoryPermission, WORK, |a| {
        a.state
            .change(HOME, |inode| (inode.uid, inode.mode) = (0, 0o40_775));
        a.state.change(HOME, |inode| inode.gid = 0);
        a.honest(|o, s| o.rename(s, at(HOME, b"old"), at(WORK, b"old"), 0));
    }),
    (Rule::Sticky, HOME, |a| {
        a.state
            .change(HOME, |inode| (inode.uid, inode.mode) = (0, 0o41_777));
        a.state.change(OLD, |inode| inode.uid = OTHER_USER);
        a.honest(|o, s| o.rename(s, at(HOME, b"old"), at(HOME, b"mine"), 0));
    }),
    (Rule::WritePermission, OLD, |a| {
        a.state.change(OLD, |inode| inode.uid = OTHER_USER);
        a.owner.write(&a.state, OLD, 0, PagePtr(PAGES + 9));
    }),
    (Rule::WritePermission, OLD, |a| {
        a.state.change(OLD, |inode| inode.uid = OTHER_USER);
        a.owner.truncate(&a.state, OLD, 0, 0);
    }),
    (Rule::WritePermission, OLD, |a| {
        a.state
            .change(OLD, |inode| (inode.uid, inode.mode) = (0, 0o120_777));
        a.owner.write(&a.state, OLD, 0, PagePtr(PAGES + 9));
        a.branch(OLD, |b| b.size = 8);
    }),
    (Rule::ModePermission, OLD, |a| {
        a.state
            .change(OLD, |inode| (inode.uid, inode.mode) = (0, 0o100_666));
        a.branch(OLD, |b| b.mode = 0o777);
    }),
    (Rule::TimePermission, OLD, |a| {
        a.state.change(OLD, |inode| inode.uid = OTHER_USER);
        a.branch(OLD, |b| b.modified = 5);
    }),
    (Rule::CreationUser, HOME, |a| a.creation(|r| r.uid = 0)),
    (Rule::WritePermission, OLD, |a| {
        a.state
            .change(OLD, |inode| (inode.uid, inode.mode) = (0, 0o100_644));
        a.branch(OLD, |b| b.attributes = PAGES as u32 + 9);
    }),
    (Rule::WritePermission, OLD, |a| {
        a.state.set_attributes(OLD, PagePtr(PAGES + 11));
        a.state
            .change(OLD, |inode| (inode.uid, inode.mode) = (0, 0o100_644));
        a.branch(OLD, |b| b.attributes = extended::NONE);
    }),
    (Rule::Sticky, HOME, |a| {
        a.state
            .change(HOME, |inode| (inode.uid, inode.mode) = (0, 0o41_777));
        a.branch(HOME, |b| b.attributes = PAGES as u32 + 9);
    }),
    (Rule::CreationGroup, HOME, |a| a.creation(|r| r.gid = 0)),
    (Rule::SetGroupId, OLD, |a| {
        a.state.change(OLD, |inode| inode.gid = 0);
        a.branch(OLD, |b| b.mode = 0o2755);
    }),
    (Rule::SetGroupId, HOME, |a| {
        a.state
            .change(HOME, |inode| (inode.gid, inode.mode) = (0, 0o42_755));
        a.creation(|r| (r.gid, r.mode) = (0, 0o2755));
    }),
    // With and without what says which device it is; whichever inode is folded.
    (Rule::Device, HOME, |a| {
        let _ = a.record(HOME, NEW, FileKind::BlockDevice, b"d", |_| {});
    }),
    (Rule::Device, HOME, |a| a.device(FileKind::BlockDevice, 0)),
    (Rule::Device, NEW, |a| {
        a.device(FileKind::CharacterDevice, 0x103)
    }),
    (Rule::Device, NEW, |a| {
        a.device(FileKind::CharacterDevice, 1)
    }),
    (Rule::Device, NEW, |a| {
        a.device(FileKind::BlockDevice, 0x801)
    }),
    (Rule::Device, OLD, |a| {
        a.state
            .change(OLD, |inode| (inode.mode, inode.size) = (0o20_666, 0));
        a.branch(OLD, |b| b.size = 0x103);
    }),
    // Born as another's, which is refused too.
    (Rule::Device, HOME, |a| {
        let _ = a.record(HOME, NEW, FileKind::BlockDevice, b"d", |r| r.uid = 0);
    }),
];

fn broken(case: &Case) -> Option<Violation> {
    let (state, owner) = world();
    let mut attack = Attack { state, owner };
    (case.2)(&mut attack);
    let Attack { state, mut owner } = attack;
    owner.try_fold(&state, &[case.1]).err()
}

#[test]
fn every_rule_fires_as_itself() {
    for (at, case) in CASES.iter().enumerate() {
        let violation = broken(case);
        let rule = violation.as_ref().map(|violation| violation.rule);
        assert_eq!(rule, Some(case.0), "case {at}: {violation:?}");
        let shown = violation.unwrap().to_string();
        assert!(!shown.contains('\n'), "{shown}");
        assert!(shown.starts_with(case.0.group()), "{shown}");
    }
    let mut fired: HashSet<_> = CASES.iter().map(|case| case.0).collect();
    fired.insert(Rule::PageBudget); // Its own test follows.
    // `ALL` is complete: it ends with the last variant and leaves none out.
    assert!(
        Rule::ALL
            .iter()
            .enumerate()
            .all(|(at, rule)| *rule as usize == at)
    );
    assert_eq!(Rule::ALL.last(), Some(&Rule::Device));
    let missing: Vec<_> = Rule::ALL
        .iter()
        .filter(|rule| !fired.contains(rule))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_violation_names_rule_inode_and_place() {
    let shown = broken(CASES.iter().find(|case| case.0 == Rule::Name).unwrap());
    let at = u64::from(DELTA_FIRST) * PAGE_SIZE + 64;
    assert_eq!(
        shown.unwrap().to_string(),
        format!("I1 Name broken by inode {HOME} at arena offset {at:#x}: name \"\"")
    );
}

#[test]
fn the_budget_bounds_what_is_copied() {
    let (state, mut owner) = world();
    for file in 0..3 {
        let name = [b'a' + file; 200];
        let number = NEW + u32::from(file);
        assert!(
            owner
                .create(&state, HOME, &name, number, FileKind::File, 0o644)
                .is_ok()
        );
    }
    let mut copy = |limit| {
        let mut budget = PageBudget::new(limit);
        let header = state.headers[&HOME];
        copy_delta(&mut owner.arena, HOME, &header, &mut budget).map(|_| budget.used())
    };
    assert_eq!(copy(3), Ok(3));
    assert_eq!(copy(2).unwrap_err().rule, Rule::PageBudget);
}

#[test]
fn what_must_come_along_is_demanded() {
    let (state, mut owner) = world();
    owner.remove(&state, HOME, b"empty").unwrap();
    let (set, deltas) = owner.copy(&state, &[HOME]).unwrap();
    assert!(verify(&state, &owner.who, &set, &deltas).is_ok());
    let alone: Vec<_> = set.into_iter().filter(|m| m.number == HOME).collect();
    let violation = verify(&state, &owner.who, &alone, &deltas).unwrap_err();
    assert_eq!(violation.rule, Rule::InFoldSet);
    let violation = verify(&state, &owner.who, &[], &deltas).unwrap_err();
    assert_eq!(violation.rule, Rule::InFoldSet);
}

#[test]
fn a_delta_of_another_ownership_is_refused() {
    let (mut state, mut owner) = world();
    owner.write(&state, OLD, 0, PagePtr(PAGES + 9));
    let (set, deltas) = owner.copy(&state, &[OLD]).unwrap();
    for session in [SESSION, OTHER_SESSION] {
        state.set_owner(OLD, session);
        let later = [state.member(OLD)];
        let violation = verify(&state, &owner.who, &later, &deltas).unwrap_err();
        assert_eq!(violation.rule, Rule::Owned);
    }
    let mut stranger = owner.who.clone();
    stranger.session = OTHER_SESSION;
    let violation = verify(&state, &stranger, &set, &deltas).unwrap_err();
    assert_eq!(violation.rule, Rule::Owned);
}

#[test]
fn a_fault_is_a_fault_and_nothing_else() {
    let (_, mut owner) = world();
    owner.arena.end = 100;
    let mut buffer = [0; 8];
    assert!(owner.arena.copy(92, &mut buffer).is_ok());
    assert!(owner.arena.copy(93, &mut buffer).is_err());
}
