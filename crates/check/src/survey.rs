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

use crate::classes::labels::Labelled;
use crate::error::{Error, Result};
use crate::finding::{Finding, byte_place};
use crate::inode::{Known, Link, Look, Sink, Use};
use crate::leads::{Leads, leads_to};
use crate::pool::Pool;
use crate::report::{Options, Report};
use crate::shared::lock;
use crate::tally::{ALIVE, DIRECTORY, NEVER, ORPHAN, Tally, Users, set, words};
use crate::{classes, paths, sums};
use arck_core_state::directory::{UNIT_SIZE, UNITS_OFFSET};
use arck_core_state::{FileKind, InodeNumber, PagePtr};
use foldhash::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inode numbers that a thread takes at once.
const PORTION: u64 = 512;
/// Fewer numbers than this are not worth a thread.
const WORTH_A_THREAD: u64 = 8192;

/// One thread's view of the tally.
struct Counter<'t, 'a>(&'t Tally<'a>, Option<Labelled>);

impl Sink for Counter<'_, '_> {
    fn finding(&mut self, finding: Finding) {
        self.0.keep(finding);
    }

    fn claim(&mut self, of: InodeNumber, page: PagePtr, what: Use) -> bool {
        if let Some(labels) = &self.0.labels {
            labels.note(self.0.pool, of, page, what, &mut self.1);
        }
        if matches!(what, Use::Data | Use::Attributes)
            && let Some(lost) = &self.0.lost
        {
            lost.note(self.0.pool, of, page);
        }
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
        let leads = leads_to(self.0.pool, &link);
        self.count(&link, leads, name);
    }

    fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }
}

impl Counter<'_, '_> {
    fn count(&self, link: &Link, leads: Leads, name: &[u8]) {
        let tally = self.0;
        tally.names_seen.fetch_add(1, Ordering::Relaxed);
        if matches!(leads, Leads::Well | Leads::OtherParent)
            && let Some(count) = tally.names.get(link.target as usize)
        {
            count.fetch_add(1, Ordering::Relaxed);
            if let Some(labels) = &tally.labels {
                labels.note_name(link.directory, link.target, link.kind);
            }
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
    }
}

impl<'a> Tally<'a> {
    /// What an inode is, and all that it has: instead of looking at it.
    pub fn add(&self, number: InodeNumber, known: &Known, pages: &[(PagePtr, Use)]) {
        self.is(number, known);
        let mut counter = Counter(self, None);
        for &(page, what) in pages {
            counter.claim(number, page, what);
        }
    }

    /// A name of a directory, and where it leads.
    pub fn add_name(&self, link: &Link, leads: Leads, name: &[u8]) {
        Counter(self, None).count(link, leads, name);
    }

    /// What all of it adds up to; `users` finds who has a page.
    pub fn finish(&self, users: impl FnOnce(HashSet<PagePtr>) -> Users) -> Report {
        sums::tables(self);
        sums::counts(self);
        sums::tree(self);
        sums::space(self, users);
        classes::check(self);
        let lost = self.lost.iter().flat_map(|lost| lost.findings(self.pool));
        lost.for_each(|finding| self.keep(finding));
        let mut report = self.report();
        let seen = self.findings_seen.load(Ordering::Relaxed);
        report.more = seen - report.findings.len() as u64;
        report.findings.sort_unstable();
        report
    }

    fn is(&self, number: InodeNumber, known: &Known) {
        let at = number as usize;
        let is_directory = known.kind == FileKind::Directory;
        let bits = ALIVE
            | if is_directory { DIRECTORY } else { 0 }
            | if known.orphan { ORPHAN } else { 0 };
        self.kinds[at].store(bits, Ordering::Relaxed);
        self.links[at].store(known.inode.links, Ordering::Relaxed);
        if is_directory {
            self.parents[at].store(known.inode.parent, Ordering::Relaxed);
        }
    }
}

/// Checks everything; `findings` are those that opening the pool had.
pub(crate) fn check(pool: &Pool, findings: Vec<Finding>, options: &Options<'_>) -> Result<Report> {
    let tally = Tally::new(pool, pool.numbers(), findings, options);
    look_at_all(&tally, options);
    let mut report = tally.finish(|wanted| users(&tally, wanted));
    if tally.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    paths::name(pool, &mut report.findings);
    report.findings.sort_unstable();
    Ok(report)
}

/// Calls `work` for all numbers, in portions, from several threads.
pub(crate) fn in_portions(
    numbers: &[Range<InodeNumber>],
    options: &Options<'_>,
    work: impl Fn(&mut dyn Iterator<Item = InodeNumber>) + Sync,
) {
    let all: u64 = numbers.iter().map(|r| u64::from(r.end - r.start)).sum();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if options.threads == 0 {
        processors
    } else {
        options.threads
    };
    let threads = wanted.min((all / WORTH_A_THREAD) as usize + 1);
    let stop = options.stop.unwrap_or(&NEVER);
    let next = AtomicU64::new(0);
    let portions = || {
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(PORTION, Ordering::Relaxed);
            if from >= all {
                break;
            }
            work(&mut portion(numbers, from));
            if let Some(progress) = options.progress {
                progress((from + PORTION).min(all), all);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without them it takes longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, portions);
        }
        portions();
    });
}

fn look_at_all(tally: &Tally<'_>, options: &Options<'_>) {
    in_portions(&tally.numbers, options, |numbers| {
        for number in numbers {
            look_at(tally, number);
        }
    });
}

/// The numbers from the `from`th on.
fn portion(
    ranges: &[Range<InodeNumber>],
    mut from: u64,
) -> impl Iterator<Item = InodeNumber> + use<> {
    let mut left = PORTION;
    let mut numbers = Vec::new();
    for range in ranges {
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
    let mut counter = Counter(tally, None);
    let look = Look {
        pool: tally.pool,
        sink: &mut counter,
        number,
        header: tally.pool.header(number),
    };
    if let Some(known) = look.check() {
        tally.is(number, &known);
    }
}

/// Looks again at all inodes, for who uses these pages.
fn users(tally: &Tally<'_>, wanted: HashSet<PagePtr>) -> Users {
    struct Seeker<'t, 'a> {
        tally: &'t Tally<'a>,
        used: Vec<AtomicU64>,
        wanted: HashSet<PagePtr>,
        found: Users,
    }
    impl Sink for Seeker<'_, '_> {
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
    let mut sink = Seeker {
        tally,
        used: words(tally.used.len() as u64),
        wanted,
        found: HashMap::default(),
    };
    for number in tally.numbers.iter().cloned().flatten() {
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
