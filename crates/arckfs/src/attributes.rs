//! Attributes: telling them, and changing mode, owner and times. [`extended`]: extended attributes. [`credentials`]:
//! who the process is, and what permission bits let it do. [`umask`]: which of them what it makes does not get.
//!
//! # Invariants
//! * What is told is the session's view: the verified inode with the delta on top.
//! * Mode and times are changed in the delta, each by one store; owners by message, since the
//!   controller's shadow inode has the last word on them (DESIGN section 6, I4).

pub mod credentials;
pub mod extended;
pub mod umask;

use crate::interface::{Attributes, Errno, SetTime, Timestamp};
use crate::mappings::Mapping;
use arck_libfs_kit::engine::{Attempt, Confirmed, Need};
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::views::times::now;
use arck_libfs_kit::views::{CachedInode, File, flag};
use credentials::{Capability, Credentials};
use std::ops::Deref;
use std::sync::atomic::Ordering;

const NANOSECONDS: i64 = 1_000_000_000;

fn timestamp(nanoseconds: u64) -> Timestamp {
    let nanoseconds = nanoseconds as i64;
    Timestamp {
        seconds: nanoseconds.div_euclid(NANOSECONDS),
        nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32,
    }
}

/// Nanoseconds of a timestamp; what cannot be stored becomes the nearest that can.
fn stored(time: Timestamp) -> i64 {
    time.seconds
        .saturating_mul(NANOSECONDS)
        .saturating_add(i64::from(time.nanoseconds))
        .max(i64::MIN + 1)
}

/// The attributes in a view, with so many links.
fn of(inode: &'static CachedInode, links: u32) -> Attributes {
    let word = |field: &std::sync::atomic::AtomicU64| field.load(Ordering::Relaxed);
    let half = |field: &std::sync::atomic::AtomicU32| field.load(Ordering::Relaxed);
    let file = File::of(inode);
    let is_device = inode.kind().is_some_and(FileKind::is_device);
    Attributes {
        inode: u64::from(inode.number()),
        generation: inode.generation(),
        mode: half(&inode.mode),
        links,
        uid: half(&inode.uid),
        gid: half(&inode.gid),
        device: match is_device {
            // It has no more bits.
            true => word(&inode.size) as u32,
            false => 0,
        },
        size: match file {
            Ok(_) if is_device => 0,
            Ok(_) => word(&inode.size),
            Err(_) => word(&inode.size).max(4096),
        },
        blocks: match file {
            Ok(file) => word(&file.part().pages) * 8,
            Err(_) => word(&inode.size).max(4096) / 512,
        },
        accessed: timestamp(word(&inode.accessed)),
        modified: timestamp(word(&inode.modified)),
        changed: timestamp(word(&inode.changed)),
        created: timestamp(word(&inode.created)),
    }
}

/// Attributes that are to be set by message; times in nanoseconds since the epoch.
#[derive(Clone, Copy, Default)]
pub struct Set {
    pub mode: Option<u32>,
    pub accessed: Option<i64>,
    pub modified: Option<i64>,
}

/// What an attempt to set attributes came to.
pub enum Changed {
    Here,
    /// They are to be set by message: of what, its number and generation, and which.
    ByMessage((InodeNumber, u32), Set),
}

/// An attempt, as what tells attributes and changes them, for who the process is.
pub struct Attributing<'a> {
    pub mapping: Mapping<'a>,
    pub credentials: &'a Credentials,
}

impl<'a> Deref for Attributing<'a> {
    type Target = Mapping<'a>;
    #[inline(always)]
    fn deref(&self) -> &Mapping<'a> {
        &self.mapping
    }
}

impl Attributing<'_> {
    /// stat, of a view that is up to date.
    #[inline]
    pub fn attributes(&self, inode: &'static CachedInode) -> Attempt<Attributes> {
        Ok(of(inode, self.links(inode)?))
    }

    /// chmod. EPERM.
    pub fn set_mode(&self, inode: &'static CachedInode, mode: u32) -> Attempt<Changed> {
        self.credentials.check_owner(inode)?;
        let mut mode = mode & 0o7777;
        if !self.credentials.may(Capability::Fsetid)
            && !self.credentials.in_group(inode.gid.load(Ordering::Relaxed))
        {
            mode &= !0o2000;
        }
        // Who may write what is mapped together does not change under who has it mapped: its owner's change is refused.
        if !inode.has(flag::TOGETHER)
            && let Some(sent) = self.by_message(inode)
        {
            let mode = Some(mode);
            return Ok(Changed::ByMessage(
                sent,
                Set {
                    mode,
                    ..Set::default()
                },
            ));
        }
        let _locked = self.lock_whole(inode);
        let expected = self.begin_change(inode)?;
        self.expect_reached()?;
        let mut branch = self.branch(inode, &expected)?;
        let time = now();
        let mode_set = branch.put_mode(mode)?;
        let line = branch.line_0();
        line.put_changed(time)?;
        let changed = mode_set.join(line.flush()?);
        let (confirmed, durable) = self.confirm_fields(inode, &expected, &mut branch, changed)?;
        if confirmed == Confirmed::Folded {
            return Ok(Changed::Here);
        }
        let directory = inode.is_directory();
        if directory {
            self.state.paths_change();
        }
        let kind = inode.mode.load(Ordering::Relaxed) & !0o7777;
        inode.mode.store(kind | mode, Ordering::Release);
        if directory {
            self.state.paths_change();
        }
        inode.has_times(None, time, &durable);
        Ok(Changed::Here)
    }

    /// Whether attributes of a file or a directory change by message, its number and generation if so: it is mediated, or
    /// sessions have it mapped together, and this session does not own it.
    fn by_message(&self, inode: &CachedInode) -> Option<(InodeNumber, u32)> {
        let is_sent = (inode.has(flag::MEDIATED) || inode.has(flag::TOGETHER)) && !self.owns(inode);
        is_sent.then(|| (inode.number(), inode.generation()))
    }

    /// utimensat. EPERM, EACCES.
    pub fn set_times(
        &self,
        inode: &'static CachedInode,
        accessed: SetTime,
        modified: SetTime,
    ) -> Attempt<Changed> {
        if (accessed, modified) == (SetTime::Omit, SetTime::Omit) {
            return Ok(Changed::Here);
        }
        if (accessed, modified) == (SetTime::Now, SetTime::Now) {
            if self.credentials.check_owner(inode).is_err() {
                self.credentials.check(inode, 2)?;
            }
        } else {
            self.credentials.check_owner(inode)?;
        }
        let time = now();
        let value = |set| match set {
            SetTime::Omit => None,
            SetTime::Now => Some(time),
            SetTime::At(time) => Some(stored(time)),
        };
        let accessed = value(accessed);
        let modified = value(modified);
        if let Some(sent) = self.by_message(inode) {
            let set = Set {
                mode: None,
                accessed,
                modified,
            };
            return Ok(Changed::ByMessage(sent, set));
        }
        let _locked = self.lock_whole(inode);
        let expected = self.begin_change(inode)?;
        self.expect_reached()?;
        let mut branch = self.branch(inode, &expected)?;
        let accessed_set = match accessed {
            Some(time) => Some(branch.put_accessed(time)?),
            None => None,
        };
        let line = branch.line_0();
        if let Some(time) = modified {
            line.put_modified(time)?;
        }
        line.put_changed(time)?;
        let changed = line.flush()?.join_all(accessed_set);
        let (confirmed, durable) = self.confirm_fields(inode, &expected, &mut branch, changed)?;
        if confirmed == Confirmed::Folded {
            return Ok(Changed::Here);
        }
        if let Some(time) = accessed {
            inode.accessed.store(time as u64, Ordering::Relaxed);
        }
        inode.has_times(modified, time, &durable);
        Ok(Changed::Here)
    }

    /// Whether chown would change anything; EPERM if it may not.
    pub fn check_owner_change(
        &self,
        inode: &CachedInode,
        uid: u32,
        gid: u32,
    ) -> Result<bool, Errno> {
        let (old_uid, old_gid) = (
            inode.uid.load(Ordering::Relaxed),
            inode.gid.load(Ordering::Relaxed),
        );
        let new_uid = uid != u32::MAX && uid != old_uid;
        let new_gid = gid != u32::MAX && gid != old_gid;
        if !self.credentials.may(Capability::Chown) {
            let own = self.credentials.uid == old_uid;
            if new_uid || (new_gid && !(own && self.credentials.in_group(gid))) {
                return Err(Errno::PERM);
            }
            if !own && (uid != u32::MAX || gid != u32::MAX) {
                return Err(Errno::PERM);
            }
        }
        // Even where the ids stay as they are, set-id bits of a program go.
        let drops = self.set_id_bits(inode) != 0;
        // To change nothing is anybody's right, and moves the time of change.
        let of_others = self.credentials.uid != 0 && self.credentials.uid != old_uid;
        Ok(new_uid || new_gid || of_others || (drops && !inode.is_directory()))
    }

    /// The set-id bits that a file has and loses when it is written, or chown is called.
    fn set_id_bits(&self, inode: &CachedInode) -> u32 {
        let (mode, gid) = (
            inode.mode.load(Ordering::Relaxed),
            inode.gid.load(Ordering::Relaxed),
        );
        let who = self.credentials;
        let keeps_group = mode & 0o010 == 0 && (who.may(Capability::Fsetid) || who.in_group(gid));
        mode & if keeps_group { 0o4000 } else { 0o6000 }
    }

    /// Before a file is written: that it has no set-id bits any more that a write takes away.
    #[inline]
    pub fn expect_no_set_id(&self, inode: &CachedInode) -> Attempt<()> {
        let mode = inode.mode.load(Ordering::Relaxed);
        if mode & 0o6000 == 0 {
            return Ok(());
        }
        let may_keep = self.credentials.may(Capability::Fsetid);
        if may_keep || inode.is_directory() || self.set_id_bits(inode) == 0 {
            return Ok(());
        }
        match inode.has(flag::UNCOMMITTED) {
            // The controller knows it once the directory is folded in which it was made.
            true => Err(Need::Commit([inode.holder.load(Ordering::Relaxed), 0]).into()),
            false => Err(Need::DropSetId(inode.number()).into()),
        }
    }
}
