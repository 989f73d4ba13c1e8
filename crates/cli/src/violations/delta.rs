//! A delta that was set aside, decoded as far as it makes sense.

use super::list::utc;
use arck_controller::{Head, SetAside};
use arck_core_state::branch::{StoredBranch, UNCHANGED_MODE, UNCHANGED_SIZE, UNCHANGED_TIME};
use arck_core_state::index::{FANOUT, HEIGHT_MAX, HOLE, capacity};
use arck_core_state::record::{DeltaPageHeader, Record, effect, records};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use zerocopy::FromBytes;

/// See the module's head.
#[derive(Serialize)]
pub struct Decoded<'a> {
    #[serde(flatten)]
    head: &'a Head,
    /// None if there is no valid branch.
    branch: Option<Branch>,
    records: Vec<Line>,
    index: Vec<Pointer>,
    /// Pages that were copied and belong to nothing that makes sense.
    stray_pages: Vec<u32>,
}

/// What a branch says; none: unchanged.
#[derive(Serialize)]
struct Branch {
    size: Option<u64>,
    mode: Option<String>,
    modified: Option<i64>,
    changed: Option<i64>,
    accessed: Option<i64>,
    /// Verified pages from this one on are dropped.
    limit: Option<u64>,
    tails: [u32; 4],
    partners: [u32; 4],
    parent: u32,
    attributes: u32,
    root: u64,
    height: u32,
}

/// A record.
#[derive(Serialize)]
struct Line {
    /// Byte in the session's arena.
    offset: u64,
    sequence: u32,
    effects: Vec<&'static str>,
    /// Bytes that are not printable ASCII are escaped.
    name: String,
    source: String,
    source_directory: u32,
    inode: u32,
    generation: u32,
    kind: String,
    mode: String,
    uid: u32,
    gid: u32,
    /// Of the inodes whose names it changes.
    changed: Option<i64>,
}

/// Where a page of the file is to be.
#[derive(Serialize)]
struct Pointer {
    page: u64,
    /// Page of the pool; none: a hole.
    leads_to: Option<u64>,
}

fn line(unit: u32, record: &Record<'_>) -> Line {
    let names = [
        (effect::ADD, "add"),
        (effect::REMOVE_SOURCE, "remove-source"),
        (effect::REPLACE, "replace"),
        (effect::KILL_SOURCE, "kill-source"),
        (effect::KILL_TARGET, "kill-target"),
    ];
    let mut effects: Vec<&str> = names
        .iter()
        .filter(|(bit, _)| record.state & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if record.state & !effect::ALL != 0 {
        effects.push("unknown");
    }
    Line {
        offset: u64::from(unit) * 64,
        sequence: record.sequence,
        effects,
        name: record.name.escape_ascii().to_string(),
        source: record.source.escape_ascii().to_string(),
        source_directory: record.source_directory,
        inode: record.inode,
        generation: record.generation,
        kind: format!("{:?}", record.kind),
        mode: format!("{:o}", record.mode),
        uid: record.uid,
        gid: record.gid,
        changed: record.changed,
    }
}

impl Branch {
    fn of(branch: &StoredBranch) -> Branch {
        let changed = |value: u64| (value != UNCHANGED_SIZE).then_some(value);
        let time = |value: i64| (value != UNCHANGED_TIME).then_some(value);
        Branch {
            size: changed(branch.size),
            mode: (branch.mode != UNCHANGED_MODE).then(|| format!("{:o}", branch.mode)),
            modified: time(branch.modified),
            changed: time(branch.changed),
            accessed: time(branch.accessed),
            limit: changed(branch.limit),
            tails: branch.tails,
            partners: branch.partners,
            parent: branch.parent,
            attributes: branch.attributes,
            root: branch.root.pointer(),
            height: branch.root.height(),
        }
    }
}

impl<'a> Decoded<'a> {
    pub fn of(aside: &'a SetAside) -> Decoded<'a> {
        let mut decoded = Decoded {
            head: &aside.head,
            branch: aside.branch.as_ref().map(Branch::of),
            records: Vec::new(),
            index: Vec::new(),
            stray_pages: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        if let Some(branch) = &aside.branch {
            decoded.walk_tails(aside, branch, &mut seen);
            decoded.walk_index(aside, branch, &mut seen);
        }
        let stray = aside.pages.keys().filter(|number| !seen.contains(number));
        decoded.stray_pages = stray.copied().collect();
        decoded
    }

    fn walk_tails(&mut self, aside: &SetAside, branch: &StoredBranch, seen: &mut BTreeSet<u32>) {
        for mut number in branch.tails {
            // Every page once: a chain may lead back.
            while let Some(page) = aside.pages.get(&number)
                && seen.insert(number)
            {
                let found = records(page, number, aside.head.inode, aside.head.fold);
                self.records
                    .extend(found.map(|(unit, record)| line(unit, &record)));
                let header = DeltaPageHeader::read_from_prefix(&page[..]);
                number = header.map_or(0, |(header, _)| header.next);
            }
        }
    }

    fn walk_index(&mut self, aside: &SetAside, branch: &StoredBranch, seen: &mut BTreeSet<u32>) {
        let root = branch.root;
        let leads_to = |entry: u64| (entry != HOLE).then_some(entry);
        if root.height() > HEIGHT_MAX {
            return;
        }
        if root.height() == 0 {
            if root.leaf() != 0 {
                self.index.push(Pointer {
                    page: 0,
                    leads_to: leads_to(root.leaf()),
                });
            }
            return;
        }
        let mut waiting = vec![(root.pointer(), root.height(), 0u64)];
        while let Some((pointer, level, first)) = waiting.pop() {
            let Ok(number) = u32::try_from(pointer) else {
                continue;
            };
            let Some(page) = aside.pages.get(&number) else {
                continue;
            };
            if !seen.insert(number) {
                continue;
            }
            let (words, _) = page.as_chunks::<8>();
            for (slot, word) in (0..FANOUT).zip(words) {
                let entry = u64::from_le_bytes(*word);
                let page = first + slot * capacity(level - 1);
                if entry != 0 && level == 1 {
                    self.index.push(Pointer {
                        page,
                        leads_to: leads_to(entry),
                    });
                } else if entry != 0 {
                    waiting.push((entry, level - 1, page));
                }
            }
        }
        self.index.sort_by_key(|pointer| pointer.page);
    }

    /// For people.
    pub fn print(&self, file: &Path, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = self.write(file, out);
    }

    fn write(&self, file: &Path, out: &mut Vec<u8>) -> std::io::Result<()> {
        let head = self.head;
        writeln!(out, "{}", file.display())?;
        writeln!(
            out,
            "Changes of inode {} by session {} of user {}, set aside at {} (UTC)",
            head.inode,
            head.session,
            head.uid,
            utc(head.time)
        )?;
        writeln!(out, "because: {}", head.because)?;
        match &self.branch {
            None => writeln!(out, "\nIts branch is not valid: nothing of it can be told.")?,
            Some(branch) => branch.write(head, out)?,
        }
        if !self.records.is_empty() {
            writeln!(out, "\nNames ({})", self.records.len())?;
        }
        for line in &self.records {
            write!(
                out,
                "  at {:#x}  {:24}  \"{}\"",
                line.offset,
                line.effects.join(","),
                line.name
            )?;
            if !line.source.is_empty() {
                write!(out, "  from \"{}\"", line.source)?;
                if line.source_directory != 0 {
                    write!(out, " of inode {}", line.source_directory)?;
                }
            }
            writeln!(
                out,
                "  inode {} ({}), generation {}, mode {}, owner {}:{}, record {}",
                line.inode,
                line.kind,
                line.generation,
                line.mode,
                line.uid,
                line.gid,
                line.sequence
            )?;
        }
        if !self.index.is_empty() {
            writeln!(out, "\nPages of the file ({})", self.index.len())?;
        }
        for pointer in &self.index {
            match pointer.leads_to {
                Some(page) => writeln!(out, "  {:>10}  page {page} of the pool", pointer.page)?,
                None => writeln!(out, "  {:>10}  hole", pointer.page)?,
            }
        }
        if !self.stray_pages.is_empty() {
            writeln!(out, "\nPages that nothing leads to: {:?}", self.stray_pages)?;
        }
        Ok(())
    }
}

impl Branch {
    fn write(&self, head: &Head, out: &mut Vec<u8>) -> std::io::Result<()> {
        writeln!(
            out,
            "\nBranch at {:#x} (generation {}, epoch {}, fold {})",
            head.branch_offset, head.generation, head.ownership_epoch, head.fold
        )?;
        let mut field = |name: &str, value: Option<String>| match value {
            Some(value) => writeln!(out, "  {name:12} {value}"),
            None => Ok(()),
        };
        let number = |value: u64| (value != 0).then(|| value.to_string());
        let list = |values: &[u32; 4]| {
            (*values != [0; 4]).then(|| {
                let texts: Vec<String> = values.iter().map(u32::to_string).collect();
                texts.join(" ")
            })
        };
        field("size", self.size.map(|size| size.to_string()))?;
        field("mode", self.mode.clone())?;
        field("modified", self.modified.map(utc))?;
        field("changed", self.changed.map(utc))?;
        field("accessed", self.accessed.map(utc))?;
        field(
            "pages from",
            self.limit.map(|page| format!("{page} on are dropped")),
        )?;
        field("created in", number(u64::from(self.parent)))?;
        field("tails", list(&self.tails))?;
        field("partners", list(&self.partners))?;
        field("attributes", number(u64::from(self.attributes)))?;
        field(
            "index",
            (self.root != 0 || self.height != 0)
                .then(|| format!("root {}, height {}", self.root, self.height)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::IndexRoot;
    use arck_core_state::record::{RecordRef, Seed};
    use std::collections::BTreeMap;
    use zerocopy::IntoBytes;

    fn aside(branch: StoredBranch, pages: BTreeMap<u32, Box<[u8; 4096]>>) -> SetAside {
        SetAside {
            head: Head {
                time: 0,
                session: 2,
                uid: 3,
                inode: 4,
                generation: 1,
                ownership_epoch: 6,
                fold: 7,
                branch_offset: 8192,
                because: "I1 Name".into(),
                pages: pages.keys().copied().collect(),
            },
            branch: Some(branch),
            pages,
        }
    }

    fn text(aside: &SetAside) -> String {
        let mut out = Vec::new();
        Decoded::of(aside).print(Path::new("/pool/aside/x"), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_of_a_chain_that_leads_back() {
        let mut page = Box::new([0; 4096]);
        let header = DeltaPageHeader {
            directory: 4,
            next: 100,
            fold: 7,
            reserved: [0; 6],
        };
        page[..64].copy_from_slice(header.as_bytes());
        let record = Record {
            state: effect::ADD | effect::REMOVE_SOURCE | 1 << 20,
            sequence: 1,
            kind: arck_core_state::FileKind::File,
            inode: 9,
            generation: 2,
            source_directory: 5,
            mode: 0o640,
            uid: 3,
            gid: 3,
            created: 0,
            changed: None,
            kills: [RecordRef::default(); 2],
            name: b"a\nb",
            source: b"old",
        };
        let seed = Seed {
            directory: 4,
            fold: 7,
            unit: 100 * 64 + 1,
        };
        record.encode(seed, &mut page[64..]).unwrap();
        let mut branch = StoredBranch::unchanged(4, 1, 6, 7);
        branch.tails[0] = 100;
        branch.mode = 0o755;
        let pages = BTreeMap::from([(100, page), (101, Box::new([0; 4096]))]);
        let text = text(&aside(branch, pages));
        assert!(
            text.contains(r#"add,remove-source,unknown  "a\nb"  from "old" of inode 5"#),
            "{text}"
        );
        assert!(
            text.contains("mode         755") && text.contains("mode 640"),
            "{text}"
        );
        assert!(
            text.contains("Names (1)") && text.contains("at 0x64040"),
            "{text}"
        );
        assert!(text.contains("nothing leads to: [101]"), "{text}");
    }

    #[test]
    fn pages_of_an_index_that_contains_itself() {
        let mut above = Box::new([0; 4096]);
        above[..8].copy_from_slice(&50u64.to_le_bytes());
        above[8..16].copy_from_slice(&51u64.to_le_bytes());
        above[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut leaves = Box::new([0; 4096]);
        leaves[24..32].copy_from_slice(&777u64.to_le_bytes());
        leaves[32..40].copy_from_slice(&HOLE.to_le_bytes());
        let mut branch = StoredBranch::unchanged(4, 1, 6, 7);
        branch.root = IndexRoot::new(50, 2);
        branch.size = 1 << 62;
        let whole = aside(branch, BTreeMap::from([(50, above), (51, leaves)]));
        let text = text(&whole);
        assert!(text.contains("Pages of the file (2)"), "{text}");
        assert!(text.contains("515  page 777 of the pool"), "{text}");
        assert!(text.contains("516  hole"), "{text}");
        assert!(text.contains("size         4611686018427387904"), "{text}");
        let json = serde_json::to_value(Decoded::of(&whole)).unwrap();
        assert_eq!(json["inode"], 4);
        assert_eq!(json["index"][0]["leads_to"], 777);
        // As high as no index is.
        let mut branch = StoredBranch::unchanged(4, 1, 6, 7);
        branch.root = IndexRoot::new(50, 200);
        assert!(
            Decoded::of(&aside(branch, BTreeMap::new()))
                .index
                .is_empty()
        );
    }
}
