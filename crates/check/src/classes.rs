//! Read classes: who may be sent a segment may read what lies in it.
//!
//! What the label of a segment lets in is compared with what the rights of the inodes ask for, user by
//! user, not class by class: a finding names somebody who may be sent a page and may not read it.
//!
//! # Invariants
//! * Only a pool that was closed is looked at: before that a change of rights may still be under way.
//! * A finding is never wrong: there is such a user. Of very many groups not all combinations are
//!   tried, so somebody may be missed.
//! * One finding for a segment, however much of it should lie elsewhere.

pub(crate) mod labels;

use crate::finding::{Finding, Place, Rule};
use crate::memory;
use crate::pool::{Pool, segment_name};
use crate::shared::lock;
use crate::tally::{ALIVE, DIRECTORY, ORPHAN, Tally};
use arck_controller_state::classes::{CLASS_SIZE, CLASSES_MAX, StoredClass};
use arck_controller_state::segments::{SegmentEntry, SegmentKind};
use arck_core_state::{FileKind, Inode, InodeNumber, ROOT_INODE, SegmentNumber, layout};
use foldhash::{HashMap, HashSet};
use labels::Labelled;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes;

/// Where all combinations of so many groups are tried.
const GROUPS_TRIED: usize = 6;
/// Directories between a name and the root, beyond which something else is wrong.
const DEPTH_MAX: usize = 1 << 20;

/// One permission check: 4 for the user, 2 for others of the group, 1 for everybody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Condition {
    uid: u32,
    gid: u32,
    passes: u32,
}

/// Somebody.
struct Person<'g> {
    uid: u32,
    groups: &'g [u32],
}

impl Condition {
    /// The check of an inode; `bit`: 4 to read, 1 to search.
    fn of(inode: &Inode, bit: u32) -> Condition {
        let may = |shift: u32| u32::from(inode.mode >> shift & bit != 0);
        Condition {
            uid: inode.uid,
            gid: inode.gid,
            passes: may(6) * 4 + may(3) * 2 + may(0),
        }
    }

    fn is_met(&self, who: &Person<'_>) -> bool {
        let group = (self.passes >> 1 & 1) != (self.passes & 1);
        let bit = if who.uid == self.uid {
            4
        } else if group && who.groups.contains(&self.gid) {
            2
        } else {
            1
        };
        self.passes & bit != 0
    }
}

/// The classes that the pool's labels mean. Of what is not whole nothing.
fn stored(pool: &Pool) -> HashMap<u32, Vec<Condition>> {
    let file = memory::open(&pool.directory, layout::CLASSES);
    let length = (CLASSES_MAX * CLASS_SIZE) as u64;
    let bytes = file.and_then(|file| memory::read(&file, length));
    let bytes = bytes.unwrap_or_default();
    let numbered = (1..).zip(bytes.chunks_exact(CLASS_SIZE));
    numbered
        .filter_map(|(number, record)| Some((number, decode(number, record)?)))
        .collect()
}

fn decode(number: u32, record: &[u8]) -> Option<Vec<Condition>> {
    let stored = StoredClass::read_from_bytes(record).ok()?;
    let of = |&[uid, gid, passes]: &[u32; 3]| Condition { uid, gid, passes };
    Some(stored.conditions(number)?.iter().map(of).collect())
}

/// Ways to what may be read: each a conjunction, one of which has to be met.
type Ways = Vec<Vec<Condition>>;

struct Judge<'t, 'a> {
    tally: &'t Tally<'a>,
    classes: HashMap<u32, Vec<Condition>>,
    names: HashMap<InodeNumber, Vec<InodeNumber>>,
    /// Of directories: what has to be met to search it and all above. `None`: it does not lead to
    /// the root.
    search: HashMap<InodeNumber, Option<Vec<Condition>>>,
    /// What was found out before: who may be sent a label and may not go these ways.
    known: HashMap<(u32, Vec<u32>, Ways), Option<u32>>,
}

/// Tells of segments whose labels let somebody in who may not read what lies there.
pub(crate) fn check(tally: &Tally<'_>) {
    let Some(labels) = &tally.labels else {
        return;
    };
    let mut names: HashMap<InodeNumber, Vec<InodeNumber>> = HashMap::default();
    for (target, directory) in std::mem::take(&mut *lock(&labels.names)) {
        names.entry(target).or_default().push(directory);
    }
    let mut judge = Judge {
        tally,
        classes: stored(tally.pool),
        names,
        search: HashMap::default(),
        known: HashMap::default(),
    };
    let mut labelled = std::mem::take(&mut *lock(&labels.labelled));
    labelled.sort_unstable();
    labelled.dedup();
    // Of each segment the first, who he is, and how many there are.
    let mut strangers: BTreeMap<SegmentNumber, (Labelled, u32, u64)> = BTreeMap::new();
    for one in labelled {
        if tally.stop.load(Ordering::Relaxed) {
            return;
        }
        if let Some(uid) = judge.stranger(one) {
            strangers.entry(one.segment).or_insert((one, uid, 0)).2 += 1;
        }
    }
    for segment in 0..tally.pool.geometry.segment_count {
        let class = tally.pool.segment_entry(segment).class;
        let is_table = class as usize <= CLASSES_MAX;
        if class == 0 || !is_table || judge.classes.contains_key(&class) {
            continue;
        }
        tally.keep(Finding {
            rule: Rule::PageClass,
            inode: None,
            path: None,
            place: Place::File(layout::CLASSES, u64::from(class - 1) * CLASS_SIZE as u64),
            detail: format!(
                "class {class}, of {}, is damaged: it is nobody's",
                segment_name(segment)
            ),
        });
    }
    for (segment, (one, uid, count)) in strangers {
        let what = match one.is_place {
            true => "see",
            false => "read",
        };
        let more = match count {
            1 => String::new(),
            _ => format!(", nor {} others in it", count - 1),
        };
        tally.keep(Finding {
            rule: Rule::PageClass,
            inode: Some(one.number),
            path: None,
            place: Place::Segment(segment, 0),
            detail: format!(
                "lies in a segment of class {} that user {uid} may be sent, who may not {what} it{more}",
                tally.pool.segment_entry(segment).class
            ),
        });
    }
}

/// Segments that have to be nobody's: those of findings, and those whose class is damaged.
pub(crate) fn mislabelled(pool: &Pool, findings: &[Finding]) -> HashSet<SegmentNumber> {
    let classes = stored(pool);
    let told = findings.iter().filter_map(|finding| match finding.place {
        Place::Segment(segment, _) if finding.rule == Rule::PageClass => Some(segment),
        _ => None,
    });
    let damaged = (0..pool.geometry.segment_count).filter(|&segment| {
        let class = pool.segment_entry(segment).class;
        class != 0 && !classes.contains_key(&class)
    });
    told.chain(damaged).collect()
}

impl Judge<'_, '_> {
    /// Somebody who may be sent it and may not read it.
    fn stranger(&mut self, one: Labelled) -> Option<u32> {
        let kinds = self.tally.kinds.get(one.number as usize)?;
        let kind = kinds.load(Ordering::Relaxed);
        // What has no name is read by who had it open.
        if kind & ALIVE == 0 || kind & ORPHAN != 0 {
            return None;
        }
        let entry = self.tally.pool.segment_entry(one.segment);
        if entry.kind() == SegmentKind::Free || !self.classes.contains_key(&entry.class) {
            return None;
        }
        let inode = self.inode(one.number)?;
        let holders = match kind & DIRECTORY != 0 {
            true if one.number == ROOT_INODE => Vec::new(),
            true => vec![inode.parent],
            false => self.names.get(&one.number).cloned().unwrap_or_default(),
        };
        let mut ways = Ways::new();
        for holder in &holders {
            // One that leads nowhere is told of by another rule.
            ways.push(self.search(*holder)?);
        }
        if one.number == ROOT_INODE {
            ways.push(Vec::new());
        }
        if ways.is_empty() {
            return None;
        }
        if !one.is_place && inode.kind() != Some(FileKind::Link) {
            for way in &mut ways {
                way.push(Condition::of(&inode, 4));
            }
        }
        for way in &mut ways {
            way.retain(|condition| condition.passes != 7);
            way.sort_unstable();
            way.dedup();
        }
        ways.sort_unstable();
        ways.dedup();
        let exempt = self.exempt(&entry, &inode);
        let key = (entry.class, exempt, ways);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let found = self.find(&key.1, entry.class, &key.2);
        self.known.insert(key, found);
        found
    }

    /// Users that may have it all the same: root, the pool's, the file's, and who wrote the data.
    fn exempt(&self, entry: &SegmentEntry, inode: &Inode) -> Vec<u32> {
        let mut exempt = vec![0, self.tally.pool.superblock.uid, inode.uid];
        if entry.kind() == SegmentKind::Data {
            exempt.push(entry.uid);
        }
        exempt.sort_unstable();
        exempt.dedup();
        exempt
    }

    fn find(&self, exempt: &[u32], class: u32, ways: &Ways) -> Option<u32> {
        let label = self.classes.get(&class)?;
        let all = || label.iter().chain(ways.iter().flatten());
        let mut users: Vec<u32> = all().map(|condition| condition.uid).collect();
        users.sort_unstable();
        users.dedup();
        // And somebody of whom nothing is said.
        let stranger = (1..).find(|uid| !users.contains(uid) && !exempt.contains(uid));
        users.extend(stranger);
        users.retain(|uid| !exempt.contains(uid));
        let mut groups: Vec<u32> = all().map(|condition| condition.gid).collect();
        groups.sort_unstable();
        groups.dedup();
        let sets = combinations(&groups);
        users.into_iter().find(|&uid| {
            sets.iter().any(|groups| {
                let who = Person { uid, groups };
                let is_in = label.iter().all(|condition| condition.is_met(&who));
                let way = |way: &Vec<Condition>| way.iter().all(|c| c.is_met(&who));
                is_in && !ways.iter().any(way)
            })
        })
    }

    fn inode(&self, number: InodeNumber) -> Option<Inode> {
        let inode = Inode::read(self.tally.pool, self.tally.pool.header(number).inode)?;
        (inode.number == number).then_some(inode)
    }

    fn search(&mut self, directory: InodeNumber) -> Option<Vec<Condition>> {
        let mut above = Vec::new();
        let mut at = directory;
        let mut met = loop {
            if let Some(known) = self.search.get(&at) {
                break known.clone();
            }
            let found = self.inode(at);
            let Some(inode) = found.filter(|_| above.len() < DEPTH_MAX) else {
                break None;
            };
            above.push(inode);
            if at == ROOT_INODE {
                break Some(Vec::new());
            }
            at = inode.parent;
        };
        for inode in above.iter().rev() {
            if let Some(met) = &mut met {
                let condition = Condition::of(inode, 1);
                if condition.passes != 7 && !met.contains(&condition) {
                    met.push(condition);
                }
            }
            self.search.insert(inode.number, met.clone());
        }
        met
    }
}

/// Sets of groups that somebody may be in.
fn combinations(groups: &[u32]) -> Vec<Vec<u32>> {
    let chosen = |is_in: &dyn Fn(usize) -> bool| {
        let numbered = groups.iter().enumerate();
        let chosen = numbered.filter(|&(index, _)| is_in(index));
        chosen.map(|(_, &group)| group).collect::<Vec<u32>>()
    };
    if groups.len() <= GROUPS_TRIED {
        return (0..1u32 << groups.len())
            .map(|set| chosen(&|index| set >> index & 1 == 1))
            .collect();
    }
    let mut sets = vec![Vec::new(), groups.to_vec()];
    for one in 0..groups.len() {
        sets.push(chosen(&|index| index == one));
        sets.push(chosen(&|index| index != one));
    }
    sets
}
