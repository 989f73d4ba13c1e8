//! Who may be told what by message: see [`crate::sessions::rights`].

use crate::sessions::Sessions;
use crate::sessions::rights::{Leaving, SHOWN_MAX, bits};
use crate::state::classes::Class;
use crate::state::marks::heavy_barrier;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{Inode, InodeNumber};
use arck_protocol::control::open_entry;
use arck_verifier::Credentials;
use foldhash::{HashMap, HashMapExt, HashSet};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Places of open tables that are looked at for one user: eight tables that are full. What else he lists
/// keeps him no right, and others not waiting.
const LISTED_MAX: usize = 1 << 20;

/// Of rights that are kept: a bit that stands for no more than the inode's attributes.
const TOLD: u32 = 1;

/// Which sessions list which inodes as open.
type Openers = HashMap<u64, Vec<SessionNumber>>;

impl Sessions {
    /// Which sessions list which of some entries as open, now. Not root's, which may do everything; and of
    /// each other user no more than [`LISTED_MAX`] places are looked at.
    fn openers(&self, wanted: &HashSet<u64>) -> Openers {
        heavy_barrier();
        let mut openers = Openers::new();
        let mut looked: HashMap<u32, usize> = HashMap::new();
        for session in self.all.values() {
            let Some(live) = &session.live else { continue };
            if session.credentials.is_root() {
                continue;
            }
            let looked = looked.entry(session.credentials.uid).or_default();
            let listed = live.control().opens();
            let listed = &listed[..listed.len().min(LISTED_MAX - *looked)];
            *looked += listed.len();
            for entry in listed {
                let entry = entry.load(Ordering::Acquire);
                if entry != 0 && wanted.contains(&entry) {
                    let sessions = openers.entry(entry).or_default();
                    if sessions.last() != Some(&session.number) {
                        sessions.push(session.number);
                    }
                }
            }
        }
        openers
    }

    /// An inode whose place is not of a class that a session is in, to which it knows the way.
    pub(crate) fn show(&mut self, session: SessionNumber, number: InodeNumber) {
        let shown = &mut self.rights.shown;
        if shown.len() >= SHOWN_MAX && !shown.contains_key(&number) {
            shown.clear();
        }
        let sessions = shown.entry(number).or_default();
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }

    /// Has a session list what was made for it as open, if it has reserved a place of its table for that.
    pub(crate) fn list_made(
        &self,
        session: SessionNumber,
        place: (u32, u32),
        number: InodeNumber,
        generation: u32,
    ) {
        let session = self.all.get(&session);
        if let Some(live) = session.and_then(|session| session.live.as_ref()) {
            live.control().list_made(place, number, generation);
        }
    }

    /// What a session has made, and there was no room for in a class that it is in: it knows the way.
    pub(crate) fn show_created(&mut self, session: SessionNumber, created: &[InodeNumber]) {
        if !self.state.space.shared {
            return;
        }
        let Some(who) = self.all.get(&session).map(|s| s.credentials.clone()) else {
            return;
        };
        for &number in created {
            let is_alive = self.state.is_alive(number);
            if is_alive && !self.state.admits(self.state.label_of_inode(number), &who) {
                self.show(session, number);
            }
        }
    }

    /// Of a closing: whether what is known here of an inode may have to change, whatever its class.
    pub(crate) fn is_shown(&self, number: InodeNumber) -> bool {
        self.rights.shown.contains_key(&number)
    }

    /// An inode is about to be closed: to be for those in `place`, and of them for those whom it
    /// lets read and write it as it is now; `old` is the inode as it was. Those who have it open when
    /// it has moved, and could before, are to keep what they had
    /// ([`keep_rights`](Self::keep_rights)).
    pub(crate) fn note_leaving(&mut self, old: &Inode, inode: &Inode, place: Option<&Class>) {
        let number = inode.number;
        let shown = self.rights.shown.remove(&number).unwrap_or_default();
        let orphan = self.state.orphans.contains(number);
        let leaving = Leaving {
            old: *old,
            inode: *inode,
            from: self
                .state
                .classes
                .get(self.state.label_of_inode(number))
                .cloned(),
            place: place.cloned(),
            users: self
                .state
                .orphan_users
                .get(&number)
                .filter(|_| orphan)
                .cloned(),
            orphan,
            shown,
        };
        for &session in &leaving.shown {
            let who = self.all.get(&session).map(|s| s.credentials.clone());
            if who.is_some_and(|who| leaving.can_reach(session, &who)) {
                self.show(session, number);
            }
        }
        self.rights.leaving.push(leaving);
    }

    /// Looks at who has open what has been closed. After it has moved: whoever lists it later finds
    /// that it is not where it was when he looked at his rights, and walks to it again.
    pub(crate) fn keep_rights(&mut self) {
        if self.rights.leaving.is_empty() {
            return;
        }
        let leaving = self.rights.leaving.iter();
        let wanted = leaving.map(|of| open_entry(of.inode.number, of.inode.generation));
        let openers = self.openers(&wanted.collect());
        for leaving in std::mem::take(&mut self.rights.leaving) {
            let (number, generation) = (leaving.inode.number, leaving.inode.generation);
            let Some(listing) = openers.get(&open_entry(number, generation)) else {
                continue;
            };
            for session in listing {
                let Some(who) = self.all.get(session).map(|s| &s.credentials) else {
                    continue;
                };
                if self.state.is_privileged(who) {
                    continue;
                }
                let uid = who.uid;
                let could_reach = leaving.could_reach(*session, who);
                let can_reach = leaving.can_reach(*session, who);
                let had = self.rights.kept.rights(number, generation, uid);
                // Also of what he may neither read nor write he is told what it is.
                let had = had
                    | if could_reach {
                        bits(who, &leaving.old) | TOLD
                    } else {
                        0
                    };
                let has = if can_reach {
                    bits(who, &leaving.inode) | TOLD
                } else {
                    0
                };
                if had & !has != 0 {
                    let (pool, of) = (&self.state.pool, (number, generation));
                    self.rights.kept.keep(pool, of, uid, had & !has);
                }
            }
        }
    }

    /// Keeps a right that somebody was handed on: to read (4) and write (2) as `wanted` says, and to
    /// know what it is. ENOBUFS if so many are kept for him that others would have none.
    pub(crate) fn keep_claimed(
        &mut self,
        of: (InodeNumber, u32),
        user: u32,
        wanted: u32,
    ) -> Result<(), Errno> {
        let by_message = &mut self.rights;
        let rights = wanted | TOLD;
        if !by_message.kept.keep(&self.state.pool, of, user, rights) {
            return Err(Errno::NOBUFS);
        }
        by_message.claimed.note((of.0, of.1, user), Instant::now());
        Ok(())
    }

    /// Forgets rights that were kept of what is not open any more.
    pub(crate) fn forget_kept(&mut self) {
        if self.rights.kept.is_empty() {
            return;
        }
        let kept = self.rights.kept.inodes();
        let wanted = kept.map(|(number, generation)| open_entry(number, generation));
        let openers = self.openers(&wanted.collect());
        let sessions = &self.all;
        let pool = &self.state.pool;
        let away = sessions.values().filter(|session| session.is_away);
        let away: BTreeSet<u32> = away.map(|session| session.credentials.uid).collect();
        let mut kept = std::mem::take(&mut self.rights.kept);
        kept.retain(pool, |number, generation, uid| {
            let listing = openers.get(&open_entry(number, generation));
            let listing = listing.into_iter().flatten();
            let mut listing = listing.filter_map(|session| sessions.get(session));
            listing.any(|session| session.credentials.uid == uid)
                || away.contains(&uid)
                || self.rights.claimed.has((number, generation, uid))
        });
        self.rights.kept = kept;
    }

    /// Users who keep a right of an inode.
    pub(crate) fn keeps(&self, who: &Credentials, number: InodeNumber) -> bool {
        let Some(header) = self.state.header_copy(number) else {
            return false;
        };
        let had = |leaving: &Leaving| {
            leaving.inode.number == number
                && leaving.inode.generation == header.generation
                && leaving.could_reach(0, who)
                && bits(who, &leaving.old) != 0
        };
        self.rights.kept.rights(number, header.generation, who.uid) != 0
            || self.rights.leaving.iter().any(had)
    }

    /// Whether a session may have an inode's attributes (`wanted` 0) or contents (4) by message, or
    /// write it (2).
    /// ESTALE, EACCES.
    pub(crate) fn may_be_told(
        &self,
        session: SessionNumber,
        number: InodeNumber,
        wanted: u32,
    ) -> Result<Inode, Errno> {
        let session = self.all.get(&session).ok_or(Errno::NOENT)?;
        let who = &session.credentials;
        let inode = *self.state.shadow(number).ok_or(Errno::STALE)?;
        let shown = self.rights.shown.get(&number);
        let may_reach = self.state.may_reach(who, number)
            || shown.is_some_and(|shown| shown.contains(&session.number));
        if may_reach && bits(who, &inode) & wanted == wanted {
            return Ok(inode);
        }
        // Right after a directory was made private, what was open in it may not have been looked
        // at yet, and is none of that: then the class of its place counts, as above.
        let kept = &self.rights.kept;
        let kept = kept.rights(number, inode.generation, who.uid);
        let lists = || {
            let control = session.live.as_ref().map(|live| live.control());
            control.is_some_and(|control| control.lists(number, inode.generation))
                || self.rights.claimed.has((number, inode.generation, who.uid))
        };
        if kept != 0 && kept & wanted == wanted && lists() {
            Ok(inode)
        } else {
            Err(Errno::ACCESS)
        }
    }
}
