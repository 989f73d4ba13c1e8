//! A pool that is being served: nothing is convicted that is merely being changed.
//!
//! Each inode is read with all of its pages under its sequence word, as by everybody who reads
//! verified state, and kept as a record. What changed since it was read is read again, until all
//! records are of one moment: no sequence word has moved, and the journal has not gone on. What is
//! wrong in every look, is wrong in such a moment, and again in a later one, between which the
//! controller has answered (so that it was not in the middle of anything), is a finding.
//!
//! # Invariants
//! * A suspicion that one look does not share is dropped: what is broken stays broken.
//! * Nothing is locked, and nobody waits for the check.

use crate::error::{Error, Result};
use crate::finding::{Finding, Place, Rule};
use crate::inode::{Known, Link, Look, Sink, Use};
use crate::leads::Leads;
use crate::pool::Pool;
use crate::report::{Options, Report};
use crate::survey::in_portions;
use crate::tally::{Tally, Users};
use crate::{paths, survey};
use arck_core_state::directory::read_entry;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber, PagePtr, Pages, layout};
use foldhash::{HashMap, HashSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// How long a pool may stay too busy to decide.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the controller may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How often an inode is read again because it changed meanwhile, before others are.
const AGAIN: usize = 1000;

/// An inode as it was under one sequence word.
#[derive(Default)]
struct Record {
    sequence: u64,
    /// It was being changed each time.
    unread: bool,
    generation: u32,
    known: Option<Known>,
    pages: Vec<(PagePtr, Use)>,
    names: Vec<Link>,
    findings: Vec<Finding>,
}

/// Collects a record; stops as soon as the inode is another.
struct Recorder<'a> {
    pool: &'a Pool,
    number: InodeNumber,
    record: Record,
    seen: HashSet<PagePtr>,
}

impl Sink for Recorder<'_> {
    fn finding(&mut self, finding: Finding) {
        self.record.findings.push(finding);
    }
    fn claim(&mut self, _: InodeNumber, page: PagePtr, what: Use) -> bool {
        // Twice within one inode: told when all is counted.
        self.record.pages.push((page, what));
        what == Use::Inodes || self.seen.insert(page)
    }
    fn name(&mut self, link: Link, _: &[u8]) {
        self.record.names.push(link);
    }
    fn is_stopped(&self) -> bool {
        self.pool.header(self.number).sequence != self.record.sequence
    }
}

/// Reads an inode under its sequence word.
fn read(pool: &Pool, number: InodeNumber) -> Record {
    for turn in 0..AGAIN {
        let header = pool.header(number);
        if header.sequence & 1 == 1 {
            if turn > AGAIN / 2 {
                std::thread::sleep(Duration::from_micros(100));
            }
            continue;
        }
        let mut recorder = Recorder {
            pool,
            number,
            record: Record {
                sequence: header.sequence,
                generation: header.generation(),
                ..Record::default()
            },
            seen: HashSet::default(),
        };
        let look = Look {
            pool,
            sink: &mut recorder,
            number,
            header,
        };
        let known = look.check();
        fence(Ordering::Acquire);
        let now = pool.header(number);
        let words = |header: &crate::pool::Header| {
            (
                header.sequence,
                header.inode,
                header.state,
                header.generation(),
            )
        };
        if words(&now) == words(&header) {
            recorder.record.known = known;
            return recorder.record;
        }
    }
    Record {
        unread: true,
        ..Record::default()
    }
}

/// All records, by number.
struct Model<'a> {
    pool: &'a Pool,
    records: Vec<Record>,
}

impl Model<'_> {
    fn read_all(&mut self, options: &Options<'_>) {
        let numbers = self.pool.numbers();
        let end = numbers.last().map_or(0, |range| range.end);
        self.records.resize_with(end as usize, Record::default);
        let done: Mutex<Vec<(InodeNumber, Record)>> = Mutex::default();
        in_portions(&numbers, options, |numbers| {
            let read: Vec<_> = numbers
                .map(|number| (number, read(self.pool, number)))
                .collect();
            let mut done = done
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            done.extend(read);
        });
        let done = done
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (number, record) in done {
            self.records[number as usize] = record;
        }
    }

    fn is_current(&self, number: InodeNumber) -> bool {
        let record = self.records.get(number as usize);
        record.is_some_and(|record| {
            !record.unread && record.sequence == self.pool.header(number).sequence
        })
    }

    /// Reads again what has changed.
    fn refresh(&mut self) {
        for number in self.pool.numbers().into_iter().flatten() {
            if !self.is_current(number) {
                let end = number as usize + 1;
                if self.records.len() < end {
                    self.records.resize_with(end, Record::default);
                }
                self.records[number as usize] = read(self.pool, number);
            }
        }
    }

    fn is_all_current(&self) -> bool {
        let mut numbers = self.pool.numbers().into_iter().flatten();
        numbers.all(|number| self.is_current(number))
    }

    /// Where a name leads, by the records.
    fn leads(&self, link: &Link) -> Leads {
        let target = self.records.get(link.target as usize);
        let Some((record, known)) = target.and_then(|r| r.known.as_ref().map(|k| (r, k))) else {
            // Its header is, and all else of it may be broken: that is told of it.
            let header = self.pool.header(link.target);
            let is_number = link.target != 0 && link.target < self.pool.geometry.inode_count;
            return if is_number && header.kind() == HeaderKind::Alive as u8 {
                Leads::Well
            } else {
                Leads::Nowhere
            };
        };
        if known.orphan {
            Leads::Nowhere
        } else if record.generation != link.generation {
            Leads::OtherGeneration
        } else if known.kind != link.kind {
            Leads::OtherKind
        } else if known.kind == FileKind::Directory && known.inode.parent != link.directory {
            Leads::OtherParent
        } else {
            Leads::Well
        }
    }

    /// What the records add up to.
    fn evaluate(&self, marked: Vec<u64>, options: &Options<'_>) -> Report {
        let options = Options {
            // Which of them stay is decided later.
            findings_max: usize::MAX,
            ..*options
        };
        let end = InodeNumber::try_from(self.records.len()).unwrap_or(InodeNumber::MAX);
        let numbers = std::iter::once(1..end.max(1)).collect();
        let mut tally = Tally::new(self.pool, numbers, Vec::new(), &options);
        tally.set_marked(marked);
        for (number, record) in (0..).zip(&self.records) {
            for finding in &record.findings {
                tally.keep(finding.clone());
            }
            if let Some(known) = &record.known {
                tally.add(number, known, &record.pages);
            }
            for link in &record.names {
                let leads = self.leads(link);
                let name = (leads != Leads::Well)
                    .then(|| read_entry(self.pool.page(link.page)?, link.unit))
                    .flatten();
                let name = name.as_ref().map_or(&b"?"[..], |name| name.2.as_bytes());
                tally.add_name(link, leads, name);
            }
        }
        tally.finish(|wanted| self.users(&wanted))
    }

    fn users(&self, wanted: &HashSet<PagePtr>) -> Users {
        let mut users: Users = HashMap::default();
        for (number, record) in (0..).zip(&self.records) {
            for &(page, what) in &record.pages {
                if wanted.contains(&page) {
                    users.entry(page).or_default().push((number, what));
                }
            }
        }
        users
    }
}

/// By what a finding is known again.
type Key = (Rule, Option<InodeNumber>, Place);

fn key(finding: &Finding) -> Key {
    (finding.rule, finding.inode, finding.place.clone())
}

/// Checks a pool that is served.
pub(crate) fn check(path: &Path, options: &Options<'_>) -> Result<Report> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut findings = Vec::new();
        let pool = Pool::open(path, &mut findings)?;
        if !pool.served {
            return survey::check(&pool, findings, options);
        }
        // It has recovered what there was to recover.
        if !answers(&pool.directory, &pool, deadline)? {
            continue;
        }
        if let Some(report) = look(&pool, findings, deadline, options)? {
            return Ok(report);
        }
    }
}

/// `None`: the pool has to be opened again.
fn look(
    pool: &Pool,
    opening: Vec<Finding>,
    deadline: Instant,
    options: &Options<'_>,
) -> Result<Option<Report>> {
    let mut model = Model {
        pool,
        records: Vec::new(),
    };
    let is_stopped = || {
        options
            .stop
            .is_some_and(|stop| stop.load(Ordering::Relaxed))
    };
    model.read_all(options);
    let mut suspects: Option<HashSet<Key>> = None;
    let mut confirmed = false;
    let mut pause = Duration::from_millis(1);
    loop {
        let before = pool.journal_sequence();
        model.refresh();
        let words = pool.geometry.page_count().div_ceil(64);
        let marked = (0..words).map(|index| pool.bits(index)).collect();
        let quiet = model.is_all_current() && before.is_some() && before == pool.journal_sequence();
        if is_stopped() {
            return Err(Error::Interrupted);
        }
        let mut report = model.evaluate(marked, options);
        report.findings.extend(opening.iter().cloned());
        report.served = true;
        if let Some(suspects) = &suspects {
            report
                .findings
                .retain(|finding| suspects.contains(&key(finding)));
        }
        if report.findings.is_empty() {
            return Ok(Some(report));
        }
        suspects = Some(report.findings.iter().map(key).collect());
        if !pool.is_mapped_as_it_is() || pool.is_left() {
            return Ok(None);
        }
        if quiet && confirmed {
            paths::name(pool, &mut report.findings);
            report.findings.sort_unstable();
            let found = report.findings.len();
            report.findings.truncate(options.findings_max);
            report.more = (found - report.findings.len()) as u64;
            return Ok(Some(report));
        }
        if quiet {
            confirmed = answers(&pool.directory, pool, deadline)?;
        }
        if Instant::now() > deadline {
            return Err(Error::Busy {
                path: pool.path.clone(),
                suspicions: report.findings.len(),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Whether the controller is there and does what it is asked: it closes a connection on which
/// something comes that is no request. False: nobody serves the pool any more, or it is just
/// beginning to.
fn answers(directory: &OwnedFd, pool: &Pool, deadline: Instant) -> Result<bool> {
    let failed = |operation| Error::system(&pool.path.join(layout::SOCKET), operation);
    let until = deadline.min(Instant::now() + ANSWER);
    loop {
        // A socket's address has room for 107 bytes of path.
        let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), layout::SOCKET);
        let address = SocketAddrUnix::new(path).map_err(failed("name"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(failed("connect to"))?;
        let asked = connect(&socket, &address)
            .and_then(|()| send(&socket, &[0u8], SendFlags::NOSIGNAL).map(|_| ()));
        match asked {
            Ok(()) => {
                let left = until.saturating_duration_since(Instant::now());
                let left = Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
                    tv_nsec: left.subsec_nanos().into(),
                };
                let mut polled = [PollFd::new(&socket, PollFlags::IN)];
                // A signal is as good as an answer that does not come.
                let ready = poll(&mut polled, Some(&left)).unwrap_or(0);
                let mut byte = [0u8; 1];
                if ready == 1 {
                    // Its end, or an error: it was looked at.
                    let _ = recv(&socket, &mut byte[..], RecvFlags::DONTWAIT);
                    return Ok(true);
                }
            }
            Err(
                Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::PIPE | Errno::CONNRESET,
            ) => {}
            Err(errno) => return Err(failed("connect to")(errno)),
        }
        if pool.is_left() {
            return Ok(false);
        }
        if Instant::now() >= until {
            return Err(Error::Silent {
                path: pool.path.clone(),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
