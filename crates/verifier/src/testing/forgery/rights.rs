//! What a session may have changed: two verified states compared, by POSIX's rules and those of
//! ownership, without a look at the delta or the verifier.
//!
//! Rights are those of the state before; an inode's owner counts as allowed to write it.

use crate::testing::MemoryState;
use crate::{Credentials, VerifiedState};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr};
use std::collections::BTreeSet;

/// Says what has changed and should not have.
pub fn check(before: &MemoryState, after: &MemoryState, who: &Credentials) -> Result<(), String> {
    let rights = Rights { before, after, who };
    rights.names()?;
    let numbers: BTreeSet<_> = before.headers.keys().chain(after.headers.keys()).collect();
    for &number in numbers {
        rights
            .inode(number)
            .map_err(|what| format!("inode {number}: {what}"))?;
    }
    rights.data()
}

struct Rights<'a> {
    before: &'a MemoryState,
    after: &'a MemoryState,
    who: &'a Credentials,
}

fn ensure(holds: bool, what: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}

impl Rights<'_> {
    fn owns(&self, number: InodeNumber) -> bool {
        let header = self.before.headers.get(&number);
        header.is_some_and(|header| header.ownership.session() == self.who.session)
    }

    fn is_owner(&self, inode: &Inode) -> bool {
        self.who.uid == 0 || self.who.uid == inode.uid
    }

    fn may_write(&self, inode: &Inode) -> bool {
        let bits = match inode.kind() {
            Some(FileKind::Directory) => 3,
            _ => 2,
        };
        self.is_owner(inode) || self.who.may(inode, bits)
    }

    /// Names of directories that are the session's and that its user may write; in sticky ones
    /// only what is the user's own goes.
    fn names(&self) -> Result<(), String> {
        let (before, after) = (&self.before.names, &self.after.names);
        for (place, dentry) in before
            .iter()
            .filter(|(place, d)| after.get(place) != Some(d))
        {
            let shown = format!("\"{}\" of {}", place.1.escape_ascii(), place.0);
            self.may_change_names(place.0)
                .map_err(|what| format!("{shown} is gone, {what}"))?;
            let directory = &self.before.inodes[&place.0];
            let victim = &self.before.inodes[&dentry.inode];
            let sticky = directory.mode & 0o1000 != 0;
            let allowed = !sticky || self.is_owner(directory) || self.is_owner(victim);
            ensure(allowed, format!("{shown} is gone from a sticky directory"))?;
        }
        for (place, dentry) in after
            .iter()
            .filter(|(place, d)| before.get(place) != Some(d))
        {
            let shown = format!("\"{}\" of {}", place.1.escape_ascii(), place.0);
            self.may_change_names(place.0)
                .map_err(|what| format!("{shown} has come, {what}"))?;
            let linked = self.before.inodes.get(&dentry.inode);
            let more = linked.is_some_and(|inode| {
                let now = self.after.inodes.get(&dentry.inode);
                now.is_some_and(|now| now.links > inode.links)
            });
            ensure(
                !more || dentry.kind == FileKind::Directory || self.owns(dentry.inode),
                format!("{shown}, a link to what the session does not own"),
            )?;
        }
        Ok(())
    }

    /// Whether the session may take a name of the inode away.
    fn named(&self, number: InodeNumber) -> bool {
        self.before
            .names
            .iter()
            .any(|(place, dentry)| dentry.inode == number && self.may_change_names(place.0).is_ok())
    }

    fn may_change_names(&self, number: InodeNumber) -> Result<(), &'static str> {
        match self.before.inodes.get(&number) {
            _ if !self.owns(number) => Err("which the session does not own"),
            Some(directory) if !self.may_write(directory) => Err("which may not be written"),
            _ => Ok(()),
        }
    }

    fn inode(&self, number: InodeNumber) -> Result<(), String> {
        let header = self.before.headers.get(&number).ok_or("a new number")?;
        let now = self
            .after
            .headers
            .get(&number)
            .ok_or("no header any more")?;
        match (
            self.before.inodes.get(&number),
            self.after.inodes.get(&number),
        ) {
            (None, None) => ensure(header.kind == now.kind, "another kind of header"),
            (None, Some(new)) => self.creation(number, new),
            (Some(old), None) => {
                let is_directory = old.kind() == Some(FileKind::Directory);
                ensure(!is_directory || self.owns(number), "removed and not owned")
            }
            (Some(old), Some(new)) if self.owns(number) => self.owned(number, old, new),
            (Some(old), Some(new)) => {
                ensure(header == now, "another header")?;
                ensure(new.links <= old.links, "more links")?;
                let links = old.links;
                let named = self.named(number);
                let changed = if named { old.changed } else { new.changed };
                let same = Inode {
                    links,
                    changed,
                    ..*new
                };
                ensure(same == *old, "changed and not owned")?;
                let all = (number, 0)..=(number, u64::MAX);
                let same = self
                    .before
                    .data
                    .range(all.clone())
                    .eq(self.after.data.range(all));
                ensure(same, "data changed and not owned")
            }
        }
    }

    fn creation(&self, number: InodeNumber, new: &Inode) -> Result<(), String> {
        let header = &self.before.headers[&number];
        ensure(
            header.kind == HeaderKind::Granted && self.owns(number),
            "created and not granted",
        )?;
        ensure(new.generation == header.generation, "another generation")?;
        ensure(self.who.uid == 0 || new.uid == self.who.uid, "another user")?;
        let is_nothing = new.kind() == Some(FileKind::CharacterDevice) && new.size == 0;
        let is_device = new.kind().is_some_and(FileKind::is_device);
        ensure(self.who.uid == 0 || !is_device || is_nothing, "a device")?;
        let member = self.who.uid == 0 || self.who.in_group(new.gid);
        // It may have been created in one directory and moved to another since.
        let handed_down = self.after.inodes.iter().any(|(&number, inode)| {
            let was = self.before.inodes.get(&number).map_or(0, |old| old.mode);
            let is_directory = inode.kind() == Some(FileKind::Directory);
            let bit = (inode.mode | was) & 0o2000 != 0;
            is_directory && bit && inode.gid == new.gid && self.owns(number)
        });
        ensure(member || handed_down, "a group of others")?;
        let is_directory = new.kind() == Some(FileKind::Directory);
        let bit = new.mode & 0o2010 == 0o2010 && !is_directory;
        ensure(member || !bit, "the set-group-id bit of others")
    }

    fn owned(&self, number: InodeNumber, old: &Inode, new: &Inode) -> Result<(), String> {
        let fixed = |inode: &Inode| {
            let kind = inode.mode & !0o7777;
            let whose = (inode.uid, inode.gid, inode.parent, inode.created);
            (inode.number, inode.generation, kind, whose)
        };
        ensure(fixed(old) == fixed(new), "what is fixed changed")?;
        if old.kind().is_some_and(FileKind::is_device) {
            let is_first = old.size == 0 && self.who.uid == 0;
            ensure(is_first || old.size == new.size, "another device")?;
        }
        let is_directory = old.kind() == Some(FileKind::Directory);
        let owner = self.is_owner(old);
        let write = self.may_write(old);
        let all = (number, 0)..=(number, u64::MAX);
        let same = self
            .before
            .data
            .range(all.clone())
            .eq(self.after.data.range(all));
        let is_device = old.kind().is_some_and(FileKind::is_device);
        let contents = !same || old.size != new.size && !is_device;
        let mut kept = old.mode;
        if contents {
            ensure(!is_directory, "contents of a directory")?;
            let is_link = old.kind() == Some(FileKind::Link);
            ensure(write && (!is_link || owner), "contents may not be written")?;
            if !owner {
                kept &= !0o4000;
                let drops = old.mode & 0o010 != 0 || !self.who.in_group(old.gid);
                kept &= if drops { !0o2000 } else { !0 };
            }
        }
        if owner {
            let gained = new.mode & !old.mode & 0o2000 != 0;
            let member = self.who.uid == 0 || self.who.in_group(old.gid);
            ensure(!gained || member, "the set-group-id bit of others")?;
        } else {
            // A write that stores what is there already takes the bits away too.
            let stripped = write && !is_directory && new.mode == old.mode & !0o6000;
            let stripped = stripped || write && new.mode == old.mode & !0o4000;
            let mode = new.mode == kept || !contents && stripped;
            ensure(mode, format!("mode {:o} for {:o}", new.mode, old.mode))?;
        }
        let attributes = old.attributes != new.attributes;
        if attributes {
            let sticky = is_directory && old.mode & 0o1000 != 0;
            let allowed = owner || !sticky && self.who.may(old, 2);
            ensure(allowed, "extended attributes")?;
        }
        let times = old.modified != new.modified || old.accessed != new.accessed;
        ensure(!times || write, "times")?;
        // A name that comes or goes changes it too.
        let named = self.named(number);
        let changed = old.changed != new.changed;
        let extended = attributes || self.who.may(old, 2);
        ensure(!changed || write || named || extended, "change time")
    }

    /// What is new came from the session's own segments, where nothing used it.
    fn data(&self) -> Result<(), String> {
        let pages = |state: &MemoryState| -> BTreeSet<(InodeNumber, u64, PagePtr)> {
            let data = state
                .data
                .iter()
                .map(|(&(number, page), &at)| (number, page, at));
            let attributes = state.inodes.iter();
            let attributes = attributes.map(|(&n, inode)| (n, u64::MAX, inode.attributes));
            data.chain(attributes.filter(|page| !page.2.is_null()))
                .collect()
        };
        for (number, page, at) in pages(self.after).difference(&pages(self.before)) {
            let ours = self.before.data_segment_owner(*at) == Some(self.who.session);
            let free = !self.before.page_in_use(*at);
            ensure(
                ours && free,
                format!("page {page} of inode {number} is {at:?}"),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::*;
    use super::*;
    use arck_core_state::ROOT_INODE;

    type Edit = fn(&mut MemoryState);

    fn give(state: &mut MemoryState, number: InodeNumber, edit: fn(&mut Inode)) {
        state.change(number, edit);
    }

    fn bear(state: &mut MemoryState, number: InodeNumber, owner: (u32, u32), mode: u32) {
        state.add(HOME, b"created", number, FileKind::File, mode, owner);
    }

    fn rename(state: &mut MemoryState, directory: InodeNumber, name: &[u8]) {
        let dentry = state.names.remove(&(directory, name.to_vec()));
        let dentry = dentry.expect("a name");
        state.names.insert((directory, b"renamed".to_vec()), dentry);
    }

    /// What no session may do, and the words by which it is noticed.
    const WRONG: &[(&str, Edit)] = &[
        ("does not own", |s| rename(s, ELSEWHERE, b"far")),
        ("does not own", |s| rename(s, ROOT_INODE, b"home")),
        ("may not be written", |s| rename(s, LOCKED, b"guarded")),
        ("sticky", |s| rename(s, STICKY, b"other")),
        ("does not own", |s| s.add_link(HOME, b"l", SHARED)),
        ("a new number", |s| bear(s, 90, (USER, USER), 0)),
        ("created and not granted", |s| {
            bear(s, GRANTED_TO_OTHER, (USER, USER), 0)
        }),
        ("another user", |s| bear(s, NEW, (0, USER), 0o644)),
        ("a group of others", |s| {
            bear(s, NEW, (USER, OTHER_USER), 0o644)
        }),
        ("set-group-id", |s| {
            bear(s, NEW, (USER, OTHER_GROUP), 0o2755)
        }),
        ("changed and not owned", |s| give(s, SHARED, |i| i.size = 1)),
        ("changed and not owned", |s| {
            give(s, THEIRS, |i| i.mode ^= 1)
        }),
        ("changed and not owned", |s| {
            give(s, ELSEWHERE, |i| i.modified = 1)
        }),
        ("changed and not owned", |s| {
            give(s, ELSEWHERE, |i| i.changed = 1)
        }),
        ("data changed and not owned", |s| {
            s.set_data(THEIRS, 0, PagePtr(PAGES + 9))
        }),
        ("another header", |s| {
            s.change_header(THEIRS, |header| header.fold += 1);
        }),
        ("what is fixed", |s| give(s, OLD, |i| i.uid = 0)),
        ("what is fixed", |s| give(s, OLD, |i| i.gid = OTHER_GROUP)),
        ("what is fixed", |s| give(s, OLD, |i| i.generation += 1)),
        ("what is fixed", |s| give(s, EMPTY, |i| i.parent = WORK)),
        ("contents of a directory", |s| give(s, HOME, |i| i.size = 9)),
        ("contents may not", |s| give(s, FOREIGN, |i| i.size = 9)),
        ("contents may not", |s| {
            s.set_data(FOREIGN, 0, PagePtr(PAGES + 9))
        }),
        ("mode", |s| give(s, FOREIGN, |i| i.mode |= 0o4000)),
        ("mode", |s| give(s, MARKED, |i| i.mode ^= 0o001)),
        ("mode", |s| give(s, MARKED, |i| i.size = 9)),
        ("extended attributes", |s| {
            s.set_attributes(FOREIGN, PagePtr(PAGES + 9))
        }),
        ("extended attributes", |s| {
            s.set_attributes(STICKY, PagePtr(PAGES + 9))
        }),
        ("times", |s| give(s, FOREIGN, |i| i.modified = 9)),
        ("times", |s| give(s, FOREIGN, |i| i.accessed = 9)),
        ("change time", |s| give(s, LOCKED, |i| i.changed = 9)),
        ("page 5 of inode 20", |s| {
            s.set_data(OLD, 5, PagePtr(PAGES_OF_OTHER + 9))
        }),
        ("page 5 of inode 20", |s| s.set_data(OLD, 5, PagePtr(1))),
        ("page 1 of inode 20", |s| {
            s.set_data(ORPHAN, 0, PagePtr(0));
            s.set_data(OLD, 1, PagePtr(PAGES + 3));
        }),
        ("another kind of header", |s| s.grant(FREE, SESSION)),
    ];

    #[test]
    fn what_a_session_may_not_do_is_noticed() {
        for (at, (words, edit)) in WRONG.iter().enumerate() {
            let before = world();
            let mut after = before.clone();
            edit(&mut after);
            let found = check(&before, &after, &user()).expect_err(words);
            assert!(found.contains(words), "{at}: {words}: {found}");
        }
    }

    #[test]
    fn what_it_may_do_is_not() {
        let right: &[Edit] = &[
            |_| {},
            |s| bear(s, NEW, (USER, OWN_GROUP), 0o2755),
            |s| bear(s, NEW, (USER, OTHER_GROUP), 0o644),
            |s| rename(s, HOME, b"shared"),
            |s| rename(s, STICKY, b"mine"),
            |s| s.add_link(HOME, b"l", FOREIGN),
            |s| give(s, OLD, |i| (i.mode, i.size, i.changed) = (0o106777, 5, 5)),
            |s| give(s, MARKED, |i| (i.mode, i.size) = (0o100777, 5)),
            |s| s.set_data(OLD, 5, PagePtr(PAGES + 9)),
        ];
        for (at, edit) in right.iter().enumerate() {
            let before = world();
            let mut after = before.clone();
            edit(&mut after);
            assert_eq!(check(&before, &after, &user()), Ok(()), "{at}");
        }
    }
}
