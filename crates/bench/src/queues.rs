//! `arck-bench queues`: one file, some writers and some readers of 4 KiB at random places, through queues of requests beside the same
//! by plain calls (CrossFS, figure 2).
//!
//! Four sides: tmpfs by `pread` and `pwrite`; ArckFS's calls, which lock ranges inside; the same calls under one lock of the file, shared by
//! readers, as kernels have it; and the same through `arck-queues`, each thread with a queue of its own, half of whose requests are exchanged at a
//! time.
//!
//! # Invariants
//! * All are measured in one process on one file each of the same size; rounds of the sides take turns, and which is first does too.
//! * All threads begin a round together, and it lasts as long for each side. What is counted has completed within it.
//! * With a device ([`device`]) each access of whatever side is a request of it. A lock is held meanwhile; a queue's thread has as many in it as it
//!   has processors.

mod device;

use crate::machine::Machine;
use crate::measure::{Random, median};
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use arck_pm::PersistOption;
use arck_queues::{
    Begun, Direction, FileIdentity, Queue, QueueOptions, Queues, Request, Spool, Target, Transfer,
    Underway,
};
use arckfs::{At, ConnectOptions, Errno, FileSystem, Handle};
use clap::Args;
use device::{Description, Device, parse_latency, wait_until};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench queues                     2 writers, 1 to 16 readers
  arck-bench queues --quick             a look
  arck-bench queues --device-cpus 4     on a device with four processors
  arck-bench queues --device-cpus 16 --device-latency 100us --depth 64
  arck-bench queues --spool             writes are durable when they are queued")]
pub struct QueuesArguments {
    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,

    /// Writers: threads, up to 64
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(0..=64))]
    writers: u64,

    /// Readers: threads, up to 64, some numbers of them with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u64).range(1..=64))]
    readers: Vec<u64>,

    /// Requests that each thread has in flight
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: u64,

    /// Emulate a device with so many processors of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    device_cpus: Option<u64>,

    /// How long each of them is busy with a request: ns, us or ms
    #[arg(long, value_name = "TIME", default_value = "900ns", requires = "device_cpus",
        value_parser = parse_latency)]
    device_latency: Duration,

    /// Threads that do the requests of queues [default: as many as processors]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: Option<u64>,

    /// Have the queues' writes durable when they are queued: in a spool of the same
    /// pool
    #[arg(long)]
    spool: bool,

    /// A look: 1 and 4 readers, few and short rounds
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,
}

/// What is measured, for the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wish {
    rounds: usize,
    writers: u64,
    readers: Vec<u64>,
    depth: usize,
    device: Option<Description>,
    workers: Option<u64>,
    spool: bool,
    milliseconds: u64,
}

/// Thousands of accesses a second, medians: reads, writes.
type Rates = [f64; 2];

/// So many readers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub readers: u64,
    /// Of each of [`SIDES`].
    pub rates: Vec<Rates>,
    /// Medians of the ratios of the rounds, of all accesses: above 1, queues are faster.
    pub to_calls: f64,
    pub to_locked: f64,
}

#[derive(Serialize)]
struct Told {
    machine: Machine,
    persist: String,
    flushing: String,
    controller: String,
    wish: Wish,
    rows: Vec<Row>,
}

const SIDES: [&str; 4] = ["tmpfs", "ArckFS", "locked", "queues"];
const CALLS: usize = 1;
const LOCKED: usize = 2;
const QUEUES: usize = 3;
const POOL_SIZE: u64 = 1 << 30;
const FILE_SIZE: u64 = 64 << 20;
const BLOCK: usize = 4096;
const SPOOL_SIZE: u64 = 16 << 20;

/// A file of ArckFS.
struct OnArckFs {
    files: Arc<FileSystem>,
    handle: Handle,
    device: Option<Arc<Device>>,
    in_flight: usize,
}

/// Does an access, which is a request of the device if there is one.
#[inline]
fn through<T>(device: Option<&Device>, access: impl FnOnce() -> T) -> T {
    let Some(device) = device else {
        return access();
    };
    let end = device.arrive();
    let done = access();
    wait_until(end);
    done
}

impl OnArckFs {
    fn transfer(&self, transfer: &mut Transfer) -> Result<usize, Errno> {
        let position = Some(transfer.position());
        match transfer.direction() {
            Direction::Read(buffer) => self.files.read(self.handle, buffer, position),
            Direction::Write(bytes) => self.files.write(self.handle, bytes, position),
        }
    }
}

/// A request in the device.
struct InDevice {
    transfer: Transfer,
    result: Result<usize, Errno>,
    end: Instant,
}

impl Underway for InDevice {
    fn poll(&mut self) -> Option<Result<usize, Errno>> {
        (Instant::now() >= self.end).then_some(self.result)
    }

    fn wait(&mut self) {
        wait_until(self.end);
    }

    fn end(self: Box<Self>) -> Transfer {
        self.transfer
    }
}

impl Target for OnArckFs {
    fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: 0,
            inode: self.handle.0.get(),
        }
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(self.files.stat_handle(self.handle)?.size)
    }
    #[inline]
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        through(self.device.as_deref(), || {
            self.files.read(self.handle, buffer, Some(position))
        })
    }
    #[inline]
    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        through(self.device.as_deref(), || {
            self.files.write(self.handle, bytes, Some(position))
        })
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
    fn begin(&self, mut transfer: Transfer) -> Begun {
        let end = self.device.as_deref().map(Device::arrive);
        let result = self.transfer(&mut transfer);
        match end {
            None => Begun::Done(transfer, result),
            Some(end) => Begun::Underway(Box::new(InDevice {
                transfer,
                result,
                end,
            })),
        }
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.files.append(self.handle, bytes)
    }
    fn sync(&self, _data_only: bool) -> Result<(), Errno> {
        self.files.sync(self.handle)
    }
    fn is_durable(&self) -> bool {
        // The pools of benchmarks lie in memory.
        true
    }
}

/// How a thread reaches the file.
enum Way<'f> {
    Tmpfs(&'f File, Option<&'f Device>),
    Calls(&'f OnArckFs),
    Locked(&'f OnArckFs, &'f RwLock<()>),
    Queue {
        queue: Queue,
        /// Buffers that are in no request.
        spare: Vec<Vec<u8>>,
        /// Requests to be submitted.
        next: Vec<Request>,
    },
}

impl Way<'_> {
    /// One block; gives how many accesses have completed meanwhile.
    #[inline]
    fn access(&mut self, writes: bool, position: u64, buffer: &mut [u8]) -> Outcome<u64> {
        let done = match self {
            Way::Tmpfs(file, device) => {
                let done = through(*device, || match writes {
                    true => file.write_at(buffer, position),
                    false => file.read_at(buffer, position),
                });
                return match done {
                    Ok(BLOCK) => Ok(1),
                    other => Err(format!("tmpfs: {other:?}")),
                };
            }
            Way::Calls(file) => match writes {
                true => file.write(buffer, position),
                false => file.read(buffer, position),
            },
            Way::Locked(file, lock) => match writes {
                true => {
                    let _locked = lock.write().unwrap_or_else(PoisonError::into_inner);
                    file.write(buffer, position)
                }
                false => {
                    let _locked = lock.read().unwrap_or_else(PoisonError::into_inner);
                    file.read(buffer, position)
                }
            },
            Way::Queue { queue, spare, next } => {
                let given = spare.pop().unwrap_or_else(|| buffer.to_vec());
                next.push(match writes {
                    true => Request::write(position, given),
                    false => Request::read_into(position, given),
                });
                if !spare.is_empty() {
                    return Ok(0);
                }
                // As many as there are, half of them at least: then there is something to submit.
                let (outstanding, done) = queue.count();
                let at_least = (outstanding + done + next.len()).div_ceil(2);
                let (submitted, completions) = queue.exchange(next, at_least);
                if let Some(errno) = submitted.refused {
                    return Err(format!("a request: {errno}"));
                }
                let mut completed = 0;
                for completion in completions {
                    if completion.result != Ok(BLOCK) {
                        return Err(format!("a request: {:?}", completion.result));
                    }
                    completed += 1;
                    spare.push(completion.buffer);
                }
                return Ok(completed);
            }
        };
        match done {
            Ok(BLOCK) => Ok(1),
            other => Err(format!("ArckFS: {other:?}")),
        }
    }
}

pub fn main(arguments: &QueuesArguments) -> Outcome<()> {
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let quick = arguments.quick;
    let wish = Wish {
        rounds: if quick { 2 } else { arguments.rounds },
        writers: arguments.writers,
        readers: if quick {
            vec![1, 4]
        } else {
            arguments.readers.clone()
        },
        depth: arguments.depth as usize,
        device: arguments.device_cpus.map(|processors| Description {
            processors: processors as usize,
            latency: arguments.device_latency,
        }),
        workers: arguments.workers,
        spool: arguments.spool,
        milliseconds: if quick { 30 } else { 300 },
    };
    let mut bench = Bench::start(POOL_SIZE, arguments.persist, arck.as_deref())?;
    let asked = serde_json::to_string(&wish).map_err(|error| error.to_string())?;
    let rows = bench.answer("queues", &["--filter", &asked])?;
    let told = Told {
        machine,
        persist: arguments.persist.to_string(),
        flushing: pool::policy_name(bench.policy).to_owned(),
        controller: bench.server().to_owned(),
        wish,
        rows,
    };
    bench.stop()?;
    arguments.output.publish(&told)
}

impl Report for Told {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        let wish = &self.wish;
        let workers = wish.workers.map(|count| format!(", {count} workers"));
        let workers = workers.unwrap_or_default();
        let device = wish.device.map(|device| {
            let Description {
                processors,
                latency,
            } = device;
            format!("Each access is a request of a device of {processors} processors, {latency:?} each. ")
        });
        let device = device.unwrap_or_default();
        let spool = match wish.spool {
            true => "Queued writes stand in a spool first. ",
            false => "",
        };
        writeln!(
            text,
            "{}.\nOne file of {} MiB, {} writers, and readers, of {} bytes at random places: tmpfs by pread and pwrite; ArckFS (Rust API) by \
             calls; the same under one lock of the file, which readers share; the same through queues, {} requests in flight of each thread{}. \
             {}{}`--persist {}` ({}); controller: {}. Thousands of accesses a second; medians of {} rounds of {} ms on \
             each side, taking turns in one process; factors, of reads and writes together, are medians of those of the rounds.\n",
            self.machine,
            FILE_SIZE >> 20,
            wish.writers,
            BLOCK,
            wish.depth,
            workers,
            device,
            spool,
            self.persist,
            self.flushing,
            self.controller,
            wish.rounds,
            wish.milliseconds
        )?;
        write!(text, "| readers |")?;
        for side in SIDES {
            write!(text, " {side} reads | writes |")?;
        }
        writeln!(text, " queues / ArckFS | queues / locked |")?;
        writeln!(text, "|{}", " ---: |".repeat(3 + 2 * SIDES.len()))?;
        for row in &self.rows {
            write!(text, "| {} |", row.readers)?;
            for [reads, writes] in &row.rates {
                write!(text, " {reads:.0} | {writes:.0} |")?;
            }
            writeln!(text, " {:.2} | {:.2} |", row.to_calls, row.to_locked)?;
        }
        Ok(())
    }
}

/// In the worker.
pub fn measure((pool, tmpfs): (&Path, &Path), asked: &str) -> Outcome<Vec<Row>> {
    let wish: Wish = serde_json::from_str(asked).map_err(|error| error.to_string())?;
    let files = FileSystem::connect(&ConnectOptions {
        pool: pool.to_path_buf(),
        mount: crate::pool::MOUNT.into(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    });
    let files = Arc::new(files.map_err(|error| error.to_string())?);
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = files
        .open(At::Root, b"queued", flags, 0o644)
        .map_err(|failure| format!("{failure:?}"))?;
    let path = tmpfs.join("queued");
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let piece = vec![1; 1 << 20];
    for position in (0..FILE_SIZE).step_by(piece.len()) {
        let written = file.write_all_at(&piece, position);
        written.map_err(|error| error.to_string())?;
        match files.write(handle, &piece, Some(position)) {
            Ok(length) if length == piece.len() => {}
            other => return Err(format!("filling: {other:?}")),
        }
    }
    let on_arckfs = Arc::new(OnArckFs {
        files,
        handle,
        device: wish
            .device
            .map(|description| Arc::new(Device::new(description))),
        in_flight: wish.device.map_or(1, |device| device.processors),
    });
    let spool = wish.spool.then(|| spool(&on_arckfs.files)).transpose()?;
    let mut rows = Vec::new();
    for &readers in &wish.readers {
        let mut rates: [Vec<Rates>; SIDES.len()] = Default::default();
        for round in 0..=wish.rounds {
            for turn in 0..SIDES.len() {
                let side = (round + turn) % SIDES.len();
                let measured = one_round(&wish, readers, side, &file, (&on_arckfs, &spool))?;
                // The first is to warm up.
                if round > 0 {
                    rates[side].push(measured);
                }
            }
        }
        let all = |side: usize| rates[side].iter().map(|[reads, writes]| reads + writes);
        let ratio = |side| median(all(QUEUES).zip(all(side)).map(|(one, other)| one / other));
        let of = |side: &Vec<Rates>| [0, 1].map(|at| median(side.iter().map(|one| one[at])));
        rows.push(Row {
            readers,
            rates: rates.iter().map(of).collect(),
            to_calls: ratio(CALLS),
            to_locked: ratio(LOCKED),
        });
    }
    Ok(rows)
}

/// A spool in the same pool.
fn spool(files: &Arc<FileSystem>) -> Outcome<Arc<Spool>> {
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = files
        .open(At::Root, b"spool", flags, 0o600)
        .map_err(|failure| format!("{failure:?}"))?;
    let file = OnArckFs {
        files: Arc::clone(files),
        handle,
        device: None,
        in_flight: 1,
    };
    let made = Spool::make(Arc::new(file), SPOOL_SIZE);
    made.map(Arc::new).map_err(|errno| errno.to_string())
}

fn one_round(
    wish: &Wish,
    readers: u64,
    side: usize,
    tmpfs: &File,
    (file, spool): (&Arc<OnArckFs>, &Option<Arc<Spool>>),
) -> Outcome<Rates> {
    let lock = RwLock::new(());
    let workers = wish
        .workers
        .and_then(|count| NonZeroUsize::new(count as usize));
    let queues = workers.map_or_else(Queues::new, Queues::with_workers);
    let threads = wish.writers + readers;
    let (arrived, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let one = |thread: u64| -> Outcome<u64> {
        let mut way = match side {
            CALLS => Way::Calls(file),
            LOCKED => Way::Locked(file, &lock),
            QUEUES => {
                let options = QueueOptions {
                    depth: wish.depth,
                    ..QueueOptions::default()
                };
                let target = Arc::clone(file) as Arc<dyn Target>;
                let queue = match spool {
                    Some(spool) => queues.open_spooled(target, options, spool, b"queued"),
                    None => queues.open(target, options),
                };
                let queue = queue.map_err(|errno| errno.to_string())?;
                Way::Queue {
                    queue,
                    spare: vec![vec![thread as u8; BLOCK]; wish.depth],
                    next: Vec::new(),
                }
            }
            _ => Way::Tmpfs(tmpfs, file.device.as_deref()),
        };
        let mut random = Random(thread + 1);
        let mut buffer = vec![thread as u8; BLOCK];
        let mut done = 0;
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) <= threads {
            std::thread::yield_now();
        }
        while !is_over.load(Ordering::Relaxed) {
            let block = random.next() % (FILE_SIZE / BLOCK as u64);
            done += way.access(thread < wish.writers, block * BLOCK as u64, &mut buffer)?;
        }
        Ok(done)
    };
    let (counts, took) = std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        while arrived.load(Ordering::SeqCst) < threads
            && !running.iter().any(|one| one.is_finished())
        {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        arrived.fetch_add(threads, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(wish.milliseconds));
        is_over.store(true, Ordering::Relaxed);
        let took = begin.elapsed();
        let counts = running.into_iter().map(|one| {
            let joined = one.join();
            joined.unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        });
        (counts.collect::<Outcome<Vec<u64>>>(), took)
    });
    let counts = counts?;
    let (written, read) = counts.split_at(wish.writers as usize);
    let rate = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / took.as_secs_f64() / 1e3;
    Ok([rate(read), rate(written)])
}
