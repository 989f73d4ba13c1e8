//! All inodes of a pool that nobody changes, and what they add up to.
//!
//! Threads take inode numbers in portions. What one inode says of another, or of a page, is kept
//! in tables of atomics: a bit for each page, counts for each number.
//!
//! # Invariants
//! * A page is gone into by who sets its bit, so all walks together take no longer than there are
//!   pages.
//! * Of a page that several want, all of them are told; which of them was the first, and has what
//!   lies behind it, is chance.

use crate::finding::{Finding, Place, Rule, bit_place, byte_place, header_place};
use crate::inode::{Known, Link, Look, Sink, Use};
use crate::pool::Pool;
use crate::tables::{GROUPS, SegmentKind};
use crate::{Error, Options, Report, Result, memory, paths};
use arck_core_state::arena::{ARENA_PAGES, BRANCH_PAGES, DELTA_FIRST};
use arck_core_state::directory::{UNIT_SIZE, UNITS_OFFSET};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, PAGE_SIZE, PagePtr, ROOT_INODE, layout};
use foldhash::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Inode numbers that a thread takes at once.
const PORTION: u64 = 512;
/// Fewer numbers than this are not worth a thread.
const WORTH_A_THREAD: u64 = 8192;

/// Bits of what is known of a number.
const ALIVE: u8 = 1;
const DIRECTORY: u8 = 2;
const ORPHAN: u8 = 4;

/// What the inodes add up to.
struct Tally<'a> {
    pool: &'a Pool,
    /// Pages that one inode has.
    used: Vec<AtomicU64>,
    /// Pages that hold inodes.
    inode_pages: Vec<AtomicU64>,
    /// Of each number: what it is, its link count, the names that lead to it, and, of a
    /// directory, its parent.
    kinds: Vec<AtomicU8>,
    links: Vec<AtomicU32>,
    names: Vec<AtomicU32>,
    parents: Vec<AtomicU32>,
    /// Pages that more than one inode wants.
    twice: Mutex<HashSet<PagePtr>>,
    findings: Mutex<Vec<Finding>>,
    names_seen: AtomicU64,
    /// Portions given out.
    next: AtomicU64,
    stop: &'a AtomicBool,
    findings_max: usize,
    findings_seen: AtomicU64,
}

fn words<T: Default>(count: u64) -> Vec<T> {
    (0..count).map(|_| T::default()).collect()
}

/// Sets a page's bit; whether it was set before.
fn set(bits: &[AtomicU64], page: PagePtr) -> bool {
    let bit = 1 << (page.0 % 64);
    bits.get((page.0 / 64) as usize)
        .is_none_or(|word| word.fetch_or(bit, Ordering::Relaxed) & bit != 0)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing is left half done in there.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Tally<'_> {
    fn keep(&self, finding: Finding) {
        let seen = self.findings_seen.fetch_add(1, Ordering::Relaxed);
        if seen < self.findings_max as u64 {
            lock(&self.findings).push(finding);
        }
    }
}

/// One thread's view of the tally.
struct Counter<'t, 'a>(&'t Tally<'a>);

impl Sink for Counter<'_, '_> {
    fn finding(&mut self, finding: Finding) {
        self.0.keep(finding);
    }

    fn claim(&mut self, _of: InodeNumber, page: PagePtr, what: Use) -> bool {
        if what == Use::Inodes {
            set(&self.0.inode_pages, page);
            return true;
        }
        let is_new = !set(&self.0.used, page);
        if !is_new {
            lock(&self.0.twice).insert(page);
        }
        is_new
    }

    fn name(&mut self, link: Link, name: &[u8]) {
        let tally = self.0;
        tally.names_seen.fetch_add(1, Ordering::Relaxed);
        let leads = leads_to(tally.pool, &link);
        if leads == Leads::Well
            && let Some(count) = tally.names.get(link.target as usize)
        {
            // More than there can be dentries is not counted.
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((rule, what)) = leads.told() {
            let pages = tally.pool.geometry.pages_per_segment();
            let offset = (UNITS_OFFSET + link.unit * UNIT_SIZE) as u64;
            let name = crate::quoted(name);
            tally.keep(Finding {
                rule,
                inode: Some(link.directory),
                path: None,
                place: byte_place(pages, link.page, offset),
                detail: format!("name {name} leads to inode {}, {what}", link.target),
            });
        }
        if leads == Leads::OtherParent
            && let Some(count) = tally.names.get(link.target as usize)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }
}

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leads {
    Well,
    Nowhere,
    OtherGeneration,
    OtherKind,
    OtherParent,
}

impl Leads {
    pub(crate) fn told(self) -> Option<(Rule, &'static str)> {
        match self {
            Leads::Well => None,
            Leads::Nowhere => Some((Rule::Target, "which is not alive")),
            Leads::OtherGeneration => Some((Rule::Target, "which is of another generation")),
            Leads::OtherKind => Some((Rule::Target, "which is of another type")),
            Leads::OtherParent => Some((Rule::Parent, "which has another parent")),
        }
    }
}

/// Looks at the target of a name.
pub(crate) fn leads_to(pool: &Pool, link: &Link) -> Leads {
    let header = pool.header(link.target);
    let is_number = link.target != 0 && link.target < pool.geometry.inode_count;
    if !is_number || header.kind() != HeaderKind::Alive as u8 {
        return Leads::Nowhere;
    }
    if header.generation() != link.generation {
        return Leads::OtherGeneration;
    }
    if header.file_kind() != link.kind as u8 {
        return Leads::OtherKind;
    }
    if link.kind == FileKind::Directory {
        let inode = Inode::read(pool, header.inode);
        if inode.is_some_and(|inode| inode.parent != link.directory) {
            return Leads::OtherParent;
        }
    }
    Leads::Well
}

/// Checks everything; `findings` are those that opening the pool had.
pub(crate) fn check(pool: &Pool, findings: Vec<Finding>, options: &Options<'_>) -> Result<Report> {
    let never = AtomicBool::new(false);
    let numbers = u64::from(pool.numbers_end());
    let pages = pool.geometry.page_count().div_ceil(64);
    let tally = Tally {
        pool,
        used: words(pages),
        inode_pages: words(pages),
        kinds: words(numbers),
        links: words(numbers),
        names: words(numbers),
        parents: words(numbers),
        twice: Mutex::new(HashSet::default()),
        findings_seen: AtomicU64::new(findings.len() as u64),
        findings: Mutex::new(findings),
        names_seen: AtomicU64::new(0),
        next: AtomicU64::new(0),
        stop: options.stop.unwrap_or(&never),
        findings_max: options.findings_max,
    };
    tables(&tally);
    look_at_all(&tally, options);
    counts(&tally);
    tree(&tally);
    space(&tally);
    let mut report = tally.report();
    if tally.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    report.more = tally.findings_seen.load(Ordering::Relaxed) - report.findings.len() as u64;
    paths::name(pool, &mut report.findings);
    report.findings.sort_unstable();
    Ok(report)
}

fn look_at_all(tally: &Tally<'_>, options: &Options<'_>) {
    let all: u64 = tally
        .pool
        .headers_in_use
        .iter()
        .map(|r| u64::from(r.end - r.start))
        .sum();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if options.threads == 0 {
        processors
    } else {
        options.threads
    };
    let threads = wanted.min((all / WORTH_A_THREAD) as usize + 1);
    let work = || {
        while !tally.stop.load(Ordering::Relaxed) {
            let from = tally.next.fetch_add(PORTION, Ordering::Relaxed);
            if from >= all {
                break;
            }
            for number in portion(tally.pool, from) {
                look_at(tally, number);
            }
            if let Some(progress) = options.progress {
                progress((from + PORTION).min(all), all);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without them it takes longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// The numbers from the `from`th of those in use on.
fn portion(pool: &Pool, mut from: u64) -> impl Iterator<Item = InodeNumber> {
    let mut left = PORTION;
    let mut numbers = Vec::new();
    for range in &pool.headers_in_use {
        let length = u64::from(range.end - range.start);
        if from >= length {
            from -= length;
            continue;
        }
        let take = left.min(length - from);
        // Within the range.
        let first = range.start + from as InodeNumber;
        numbers.push(first..first + take as InodeNumber);
        left -= take;
        from = 0;
        if left == 0 {
            break;
        }
    }
    numbers.into_iter().flatten()
}

fn look_at(tally: &Tally<'_>, number: InodeNumber) {
    let mut counter = Counter(tally);
    let look = Look {
        pool: tally.pool,
        sink: &mut counter,
        number,
        header: tally.pool.header(number),
    };
    let Some(Known {
        inode,
        kind,
        orphan,
    }) = look.check()
    else {
        return;
    };
    let at = number as usize;
    let is_directory = kind == FileKind::Directory;
    let bits = ALIVE | if is_directory { DIRECTORY } else { 0 } | if orphan { ORPHAN } else { 0 };
    tally.kinds[at].store(bits, Ordering::Relaxed);
    tally.links[at].store(inode.links, Ordering::Relaxed);
    if is_directory {
        tally.parents[at].store(inode.parent, Ordering::Relaxed);
    }
}

/// Segment table, session table, and the files of data segments.
fn tables(tally: &Tally<'_>) {
    let pool = tally.pool;
    let told = |rule, place, detail| {
        tally.keep(Finding {
            rule,
            inode: None,
            path: None,
            place,
            detail,
        });
    };
    for (index, entry) in pool.sessions.iter().enumerate() {
        let place = |field: usize| Place::File(layout::SESSION_TABLE, (entry.at + field) as u64);
        let said = |field, detail| told(Rule::SessionTable, place(field), detail);
        let session = entry.session;
        if pool.superblock.clean {
            said(0, format!("session {session}, and the pool was closed"));
        }
        if u64::from(session) >= pool.next_session {
            said(
                0,
                format!(
                    "session {session}, and the next one is {}",
                    pool.next_session
                ),
            );
        }
        if pool.sessions[..index]
            .iter()
            .any(|other| other.session == session)
        {
            said(0, format!("session {session} is there twice"));
        }
        if entry.groups > GROUPS {
            said(4, format!("session {session} has {} groups", entry.groups));
        }
        if u64::from(entry.branch_pages) > u64::from(BRANCH_PAGES)
            || u64::from(entry.delta_pages) > u64::from(ARENA_PAGES) - u64::from(DELTA_FIRST)
        {
            let (branch, delta) = (entry.branch_pages, entry.delta_pages);
            said(
                16,
                format!("session {session} has {branch} branch pages, {delta} delta pages"),
            );
        }
    }
    for (segment, entry) in (0..).zip(&pool.segments) {
        let said = |field: u64, detail| {
            let at = u64::from(segment) * crate::tables::SEGMENT_ENTRY as u64 + field;
            told(
                Rule::SegmentTable,
                Place::File(layout::SEGMENT_TABLE, at),
                detail,
            );
        };
        if entry.kind > 2 {
            said(0, format!("segment {segment} is of kind {}", entry.kind));
        }
        if entry.owner != 0 {
            if entry.kind() != SegmentKind::Data {
                said(
                    8,
                    format!("segment {segment} has an owner, and is not of data"),
                );
            } else if pool.superblock.clean {
                let owner = entry.owner;
                said(
                    8,
                    format!("segment {segment} is session {owner}'s, and the pool was closed"),
                );
            }
        }
        if entry.flags > 1 {
            said(
                16,
                format!("segment {segment} has flags {:#x}", entry.flags),
            );
        }
        if entry.kind() == SegmentKind::Data {
            let pages = pool.geometry.pages_per_segment();
            let first = pool.geometry.first_page(segment).0 / 64;
            let last = (0..pages / 64)
                .rev()
                .find(|word| pool.bits(first + word) != 0);
            let Some(word) = last else { continue };
            let bit = 63 - u64::from(pool.bits(first + word).leading_zeros());
            let wanted = (word * 64 + bit + 1) * PAGE_SIZE;
            let name = format!("{}/{segment:08x}", layout::SEGMENTS);
            let status = memory::open(&pool.directory, &name).and_then(rustix::fs::fstat);
            let has = status.map(|status| u64::try_from(status.st_size).unwrap_or(0));
            let detail = match has {
                Ok(has) if has >= wanted => continue,
                Ok(has) => format!("has {has} bytes, and {wanted} are in use"),
                Err(errno) => format!("cannot be opened, and is in use: {}", crate::plain(errno)),
            };
            told(Rule::Files, Place::Whole(name), detail);
        }
    }
    if pool.segment_kind(0) != SegmentKind::Metadata {
        let place = Place::File(layout::SEGMENT_TABLE, 0);
        told(
            Rule::SegmentTable,
            place,
            "segment 0 is not of metadata".into(),
        );
    }
}

/// Link counts and names.
fn counts(tally: &Tally<'_>) {
    let is_alive = |number: InodeNumber| {
        tally.kinds.get(number as usize).is_some_and(|kind| {
            kind.load(Ordering::Relaxed) & (ALIVE | DIRECTORY | ORPHAN) == ALIVE | DIRECTORY
        })
    };
    if !is_alive(ROOT_INODE) {
        tally.keep(Finding {
            rule: Rule::Tree,
            inode: Some(ROOT_INODE),
            path: None,
            place: header_place(ROOT_INODE, 0),
            detail: "there is no root directory".into(),
        });
    }
    for number in tally.pool.headers_in_use.iter().cloned().flatten() {
        let at = number as usize;
        let kind = tally.kinds[at].load(Ordering::Relaxed);
        if kind & ALIVE == 0 {
            continue;
        }
        let links = tally.links[at].load(Ordering::Relaxed);
        let names = tally.names[at].load(Ordering::Relaxed);
        let (rule, detail) = if kind & ORPHAN != 0 {
            // A name that leads to it is a finding by itself.
            continue;
        } else if kind & DIRECTORY != 0 {
            let parent = tally.parents[at].load(Ordering::Relaxed);
            let wanted = u32::from(number != ROOT_INODE);
            if number == ROOT_INODE && parent != ROOT_INODE {
                (Rule::Parent, format!("the root's parent is {parent}"))
            } else if names == wanted {
                continue;
            } else {
                (Rule::Parent, format!("a directory with {names} names"))
            }
        } else if names == links && names > 0 {
            continue;
        } else {
            (Rule::Links, format!("{links} links, and {names} names"))
        };
        let address = tally.pool.header(number).inode;
        let pages = tally.pool.geometry.pages_per_segment();
        let field = if rule == Rule::Parent { 80 } else { 12 };
        let page = PagePtr::of_address(address);
        tally.keep(Finding {
            rule,
            inode: Some(number),
            path: None,
            place: byte_place(pages, page, address % PAGE_SIZE + field),
            detail,
        });
    }
}

/// Every directory leads to the root: what does not is in a circle, or beneath one, or beneath
/// what is no directory.
fn tree(tally: &Tally<'_>) {
    let end = tally.parents.len();
    let mut reaches = vec![false; end];
    let mut looked = vec![false; end];
    for first in tally.pool.headers_in_use.iter().cloned().flatten() {
        let is_directory = |at: usize| {
            tally.kinds.get(at).is_some_and(|kind| {
                kind.load(Ordering::Relaxed) & (DIRECTORY | ORPHAN) == DIRECTORY
            })
        };
        let mut way = Vec::new();
        let mut at = first as usize;
        // Until something is known, or nothing is to be known.
        while is_directory(at) && !looked[at] && at != ROOT_INODE as usize {
            looked[at] = true;
            way.push(at);
            at = tally.parents[at].load(Ordering::Relaxed) as usize;
        }
        let well = at == ROOT_INODE as usize || (at < end && reaches[at]);
        for &passed in &way {
            reaches[passed] = well;
        }
        // Beneath what has been told of, or what has no directory above: that has no name, or one
        // in something else, and is told of as such.
        let circle = (!well)
            .then(|| way.iter().position(|&passed| passed == at))
            .flatten();
        if let Some(begin) = circle {
            let members = &way[begin..];
            let Some(&least) = members.iter().min() else {
                continue;
            };
            tally.keep(Finding {
                rule: Rule::Tree,
                inode: InodeNumber::try_from(least).ok(),
                path: None,
                place: header_place(least as InodeNumber, 0),
                detail: format!(
                    "a circle of {} directories, cut off from the root",
                    members.len()
                ),
            });
        }
    }
}

/// The page bitmap against what is used.
fn space(tally: &Tally<'_>) {
    let pool = tally.pool;
    let mut wanted: HashSet<PagePtr> = std::mem::take(&mut *lock(&tally.twice));
    let mut leaked = Runs::default();
    let mut unmarked = Vec::new();
    for (index, (used, inodes)) in tally.used.iter().zip(&tally.inode_pages).enumerate() {
        let (used, inodes) = (used.load(Ordering::Relaxed), inodes.load(Ordering::Relaxed));
        let marked = pool.bits(index as u64);
        // Page 0 is nobody's and never free.
        let claimed = used | inodes | u64::from(index == 0);
        let page = |bit: u32| PagePtr(index as u64 * 64 + u64::from(bit));
        for bit in bits(used & inodes) {
            wanted.insert(page(bit));
        }
        for bit in bits(claimed & !marked) {
            unmarked.push(page(bit));
        }
        if marked & !claimed == 0 {
            continue;
        }
        for bit in bits(marked & !claimed).filter(|&bit| page(bit).0 < pool.geometry.page_count()) {
            leaked.add(page(bit));
        }
    }
    for (first, count) in leaked.runs {
        let kind = pool.kind_of(first);
        let detail = match count {
            1 => format!(
                "page {:#x} is marked as in use, and nothing uses it ({kind:?})",
                first.0
            ),
            _ => format!(
                "{count} pages from {:#x} on are marked as in use, and nothing uses them ({kind:?})",
                first.0
            ),
        };
        tally.keep(Finding {
            rule: Rule::PageLeaked,
            inode: None,
            path: None,
            place: bit_place(first),
            detail,
        });
    }
    let twice: Vec<PagePtr> = wanted.iter().copied().collect();
    wanted.extend(&unmarked);
    if wanted.is_empty() || tally.stop.load(Ordering::Relaxed) {
        return;
    }
    let users = users(tally, wanted);
    for page in twice {
        let users = users.get(&page).map(Vec::as_slice).unwrap_or_default();
        let told: Vec<String> = users
            .iter()
            .map(|(inode, what)| format!("{} of inode {inode}", what.name()))
            .collect();
        tally.keep(Finding {
            rule: Rule::PageOnce,
            inode: users.first().map(|user| user.0),
            path: None,
            place: page_place(pool, page),
            detail: format!("page {:#x} is {}", page.0, told.join(" and ")),
        });
    }
    for page in unmarked {
        let user = users.get(&page).and_then(|users| users.first());
        let what = user.map_or("the page that is never used", |user| user.1.name());
        tally.keep(Finding {
            rule: Rule::PageUsed,
            inode: user.map(|user| user.0),
            path: None,
            place: bit_place(page),
            detail: format!("{what} {:#x} is not marked as in use", page.0),
        });
    }
}

fn page_place(pool: &Pool, page: PagePtr) -> Place {
    byte_place(pool.geometry.pages_per_segment(), page, 0)
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// Pages that follow each other.
#[derive(Default)]
struct Runs {
    runs: Vec<(PagePtr, u64)>,
}

impl Runs {
    fn add(&mut self, page: PagePtr) {
        match self.runs.last_mut() {
            Some((first, count)) if first.0 + *count == page.0 => *count += 1,
            _ => self.runs.push((page, 1)),
        }
    }
}

/// Looks again at all inodes, for who uses these pages.
fn users(tally: &Tally<'_>, wanted: HashSet<PagePtr>) -> HashMap<PagePtr, Vec<(InodeNumber, Use)>> {
    struct Users<'t, 'a> {
        tally: &'t Tally<'a>,
        used: Vec<AtomicU64>,
        wanted: HashSet<PagePtr>,
        found: HashMap<PagePtr, Vec<(InodeNumber, Use)>>,
    }
    impl Sink for Users<'_, '_> {
        fn finding(&mut self, _: Finding) {}
        fn claim(&mut self, of: InodeNumber, page: PagePtr, what: Use) -> bool {
            if self.wanted.contains(&page) {
                let users = self.found.entry(page).or_default();
                // Enough to tell of.
                if users.len() < 8 && users.last() != Some(&(of, what)) {
                    users.push((of, what));
                }
            }
            what == Use::Inodes || !set(&self.used, page)
        }
        fn name(&mut self, _: Link, _: &[u8]) {}
        fn is_stopped(&self) -> bool {
            self.tally.stop.load(Ordering::Relaxed)
        }
    }
    let mut sink = Users {
        tally,
        used: words(tally.used.len() as u64),
        wanted,
        found: HashMap::default(),
    };
    for number in tally.pool.headers_in_use.iter().cloned().flatten() {
        let look = Look {
            pool: tally.pool,
            sink: &mut sink,
            number,
            header: tally.pool.header(number),
        };
        look.check();
    }
    sink.found
}

impl Tally<'_> {
    fn report(&self) -> Report {
        let mut report = Report {
            findings: std::mem::take(&mut *lock(&self.findings)),
            closed: self.pool.superblock.clean,
            names: self.names_seen.load(Ordering::Relaxed),
            unfolded: if self.pool.superblock.clean {
                0
            } else {
                self.pool.sessions.len() as u64
            },
            ..Report::default()
        };
        for kind in &self.kinds {
            let kind = kind.load(Ordering::Relaxed);
            report.inodes += u64::from(kind & ALIVE != 0);
            report.directories += u64::from(kind & DIRECTORY != 0);
            report.orphans += u64::from(kind & ORPHAN != 0);
        }
        for (used, inodes) in self.used.iter().zip(&self.inode_pages) {
            let all = used.load(Ordering::Relaxed) | inodes.load(Ordering::Relaxed);
            report.pages += u64::from(all.count_ones());
        }
        report
    }
}
