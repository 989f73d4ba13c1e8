//! Runs a workload on a new small pool and records it: LibFS and controller in one trace, from
//! mkfs on.
//!
//! # Invariants
//! * Marks say when an operation begins and when it has returned: between two operations nothing
//!   is in flight but what their sessions left unfenced.
//! * What the trace says of the pool's files is what they hold (`assert_whole`), so no
//!   store has got past it.

use super::image::{Memory, WORDS, page_of};
use super::model::{self, Clock, Held, Operation};
use super::tree::Tree;
use crate::{Shorthand, connect};
use arck_controller::{Controller, MkfsOptions, Options, RunningController, mkfs};
use arck_core_state::{FileKind, PAGE_SIZE, layout};
use arck_pm::PersistOption;
use arck_pm::record::{Event, EventKind, Recording, mark};
use arckfs::{At, FileSystem};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Which session makes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    First,
    /// A second session: what it touches is handed over.
    Second,
    /// The first one, beside what it has done before: that is being folded, and the controller stands behind the
    /// seal until a step of somebody else's. It has nothing to ask the controller for.
    Beside,
}

/// A sequence of operations on a new pool.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    /// Made before, and folded.
    pub setup: Vec<Operation>,
    pub steps: Vec<(Who, Operation)>,
    /// Crashes are looked at from this step on; before it, the workload is like another one.
    pub from: usize,
}

/// A workload that ran, and what there is to be found after each step.
pub struct Part {
    pub workload: Workload,
    /// Before the first step, and after each.
    pub states: Vec<Tree>,
    /// Of each step: what the clock said before it and when it had returned.
    pub clocks: Vec<Clock>,
    /// The files when the setup was done.
    pub memory: Memory,
    /// What happened from then on, until the last step had returned.
    pub events: Range<usize>,
}

/// Workloads that ran one after the other on one pool, in one trace.
pub struct Group {
    /// The pool is served to all users.
    pub shared: bool,
    pub events: Vec<Event>,
    pub parts: Vec<Part>,
}

/// What the marks in a trace say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The setup is done.
    Start,
    Begin(usize),
    End(usize),
    /// Nothing is looked at from here on.
    Stop,
}

impl Moment {
    fn put(self) {
        mark(&match self {
            Moment::Start => "start".into(),
            Moment::Begin(step) => format!("begin {step}"),
            Moment::End(step) => format!("end {step}"),
            Moment::Stop => "stop".into(),
        });
    }

    pub fn read(mark: &str) -> Option<Moment> {
        let (what, step) = mark.split_once(' ').unwrap_or((mark, "0"));
        let step = step.parse().ok()?;
        Some(match what {
            "start" => Moment::Start,
            "begin" => Moment::Begin(step),
            "end" => Moment::End(step),
            "stop" => Moment::Stop,
            _ => return None,
        })
    }
}

/// Stops the controller behind a seal.
struct Gate {
    is_armed: Arc<AtomicBool>,
    sealed: Receiver<()>,
    goes_on: Sender<()>,
}

/// A fold whose controller stands behind the seal.
type Window<'scope> = ScopedJoinHandle<'scope, ()>;

impl Gate {
    fn new() -> (Gate, Arc<dyn Fn(&'static str) + Send + Sync>) {
        let (says, sealed) = channel();
        let (goes_on, heard) = channel();
        let (says, heard) = (Mutex::new(says), Mutex::new(heard));
        let is_armed = Arc::new(AtomicBool::new(false));
        let switch = is_armed.clone();
        let hook = move |point: &'static str| {
            if point == "sealed" && switch.swap(false, Ordering::SeqCst) {
                let told = says.lock().map(|says| says.send(()));
                told.expect("no panic").expect("the recording");
                let heard = heard.lock().expect("no panic").recv_timeout(PATIENCE);
                heard.expect("what is done beside a seal ends");
            }
        };
        let gate = Gate {
            is_armed,
            sealed,
            goes_on,
        };
        (gate, Arc::new(hook))
    }

    /// Has a session folded, as far as the seal.
    fn open<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        session: &'scope FileSystem,
    ) -> Window<'scope> {
        self.is_armed.store(true, Ordering::SeqCst);
        let fold = scope.spawn(|| Shorthand::fold(session, false).expect("a fold"));
        let sealed = self.sealed.recv_timeout(PATIENCE);
        sealed.expect("what is folded is sealed");
        fold
    }

    fn close(&self, window: Window<'_>) {
        self.goes_on.send(()).expect("the controller waits");
        window.join().expect("a fold");
    }
}

/// Longer than any step.
const PATIENCE: Duration = Duration::from_secs(20);

/// Size of the pools.
const POOL: u64 = 16 << 20;

/// A controller's options while a workload is recorded.
fn options(shared: bool) -> Options {
    Options {
        shared,
        // As on persistent memory.
        persist: PersistOption::Always,
        patience: Duration::from_secs(5),
        grace: Duration::from_millis(1),
        ..Options::default()
    }
}

/// What the clock that stamps files says.
fn now() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn make(
    session: &FileSystem,
    held: &mut Held,
    operation: &Operation,
    moment: impl Fn(bool),
) -> Clock {
    let handle = operation.prepare(session, held);
    let begun = now();
    moment(false);
    let outcome = operation.run(session, handle);
    moment(true);
    let clock = begun..=now();
    let made = outcome.unwrap_or_else(|failure| panic!("{operation:?}: {failure:?}"));
    let made = match operation {
        Operation::Hold(path) => {
            held.extend(made.map(|handle| (*path, handle)));
            None
        }
        _ => made,
    };
    for handle in handle.into_iter().chain(made) {
        session.close(handle);
    }
    clock
}

/// Ends the controller and waits for its workers: nobody stores any more. Even when nobody waits for
/// an answer it may be at work, on numbers that a session has asked for ahead of its need.
fn end(controller: RunningController) {
    controller.kill();
    let works = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
        tasks.flatten().any(|task| {
            let name = std::fs::read(task.path().join("comm"));
            // It may have ended meanwhile.
            name.is_ok_and(|name| name.starts_with(b"arck-worker"))
        })
    };
    while works() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs and records workloads, one after the other on one pool that two sessions use, everything
/// removed in between.
pub fn record(recording: &Recording, workloads: &[Workload], shared: bool) -> Group {
    let directory = tempfile::Builder::new()
        .prefix("arck-explorer-")
        .tempdir_in("/dev/shm")
        .expect("a directory in /dev/shm");
    let path = directory.path().join("pool");
    recording.take();
    let made = MkfsOptions {
        size: POOL,
        mode: 0o755,
        force: false,
    };
    mkfs(&path, &made, &mut |_, _| {}).expect("mkfs");
    let (gate, hook) = Gate::new();
    // What is let go has to be asked for, and nobody answers behind a seal.
    let mut steps = workloads.iter().flat_map(|workload| &workload.steps);
    let stands = steps.any(|(who, _)| matches!(who, Who::Beside));
    let options = Options {
        crash_hook: Some(hook),
        owned_kept: if stands { usize::MAX } else { 0 },
        ..options(shared)
    };
    let controller = Controller::open(&path, options)
        .and_then(Controller::spawn)
        .expect("a controller");
    let first = connect(&path);
    let second = connect(&path);
    let mut tree = model::empty();
    let mut states = Vec::new();
    for workload in workloads {
        clear(&first, &mut tree);
        for operation in &workload.setup {
            make(&first, &mut Held::new(), operation, |_| {});
            tree.apply(operation);
        }
        make(&first, &mut Held::new(), &Operation::Commit(false), |_| {});
        let mut held = [Held::new(), Held::new()];
        tree.observe(&first);
        Moment::Start.put();
        let mut after = vec![tree.clone()];
        let mut clocks = Vec::new();
        std::thread::scope(|scope| {
            let mut window = None;
            for (step, (who, operation)) in workload.steps.iter().enumerate() {
                let [of_first, of_second] = &mut held;
                let (session, held) = match who {
                    Who::First | Who::Beside => (&first, of_first),
                    Who::Second => (&second, of_second),
                };
                match (*who, window.take()) {
                    (Who::Beside, open) => {
                        window = open.or_else(|| Some(gate.open(scope, &first)));
                    }
                    (_, Some(open)) => gate.close(open),
                    _ => {}
                }
                clocks.push(make(session, held, operation, |done| {
                    if done {
                        Moment::End(step).put();
                    } else {
                        Moment::Begin(step).put();
                    }
                }));
                tree.apply(operation);
                tree.observe(session);
                after.push(tree.clone());
            }
            if let Some(open) = window {
                gate.close(open);
            }
        });
        Moment::Stop.put();
        let is_held = !held.iter().all(Held::is_empty);
        assert!(!is_held, "{} leaves files open", workload.name);
        states.push((after, clocks));
    }
    end(controller);
    let events = recording.take();
    assert_whole(&events, &path);
    drop((first, second));
    recording.take();
    let parts = cut(&events, workloads, states);
    Group {
        shared,
        events,
        parts,
    }
}

/// The life of a pool: made, served, changed by sessions that come and go, ended cleanly and by a
/// kill, served again. Crashes are looked at from the first system call on.
pub fn record_life(recording: &Recording) -> Group {
    let directory = tempfile::Builder::new()
        .prefix("arck-explorer-")
        .tempdir_in("/dev/shm")
        .expect("a directory in /dev/shm");
    let path = directory.path().join("pool");
    recording.take();
    let mut steps = Vec::new();
    let mut states = Vec::new();
    let mut clocks = Vec::new();
    let mut tree = model::empty();
    let nothing = (Who::First, Operation::Commit(false));
    // Nothing changes by what is done here.
    macro_rules! quietly {
        ($work:expr) => {{
            states.push(tree.clone());
            clocks.push(0..=0);
            Moment::Begin(steps.len()).put();
            let result = $work;
            Moment::End(steps.len()).put();
            steps.push(nothing.clone());
            result
        }};
    }
    let made = MkfsOptions {
        size: POOL,
        mode: 0o755,
        force: false,
    };
    // Who opens it does nothing else: what that has left unfenced nobody else's fence is for.
    let serve = || {
        let open = || Controller::open(&path, options(false)).and_then(Controller::spawn);
        let opened = std::thread::scope(|scope| scope.spawn(open).join());
        opened.expect("a thread").expect("a controller")
    };
    quietly!(mkfs(&path, &made, &mut |_, _| {}).expect("mkfs"));
    let mut controller = quietly!(serve());
    let rounds = [
        (
            Operation::MakeDirectory("d"),
            Operation::Create("d/n"),
            true,
        ),
        (
            Operation::Write("d/n", 0, 5000, 1),
            Operation::Create("f"),
            false,
        ),
        (
            Operation::Rename("f", "d/f"),
            Operation::Append("d/n", 5000, 2),
            true,
        ),
        // Of what is still open the recovery frees the pages, last of all that it does.
        (Operation::Unlink("d/n"), Operation::Commit(false), false),
        (
            Operation::Create("d/o"),
            Operation::MakeDirectory("d/p"),
            true,
        ),
    ];
    for (one, other, clean) in rounds {
        let session = quietly!(connect(&path));
        if states.len() == 3 {
            tree.observe(&session);
            for state in &mut states {
                *state = tree.clone();
            }
        }
        if matches!(one, Operation::Unlink(_)) {
            // Never closed.
            let _ = Operation::Write("d/n", 0, 0, 0).prepare(&session, &mut Held::new());
        }
        for operation in [one, other] {
            states.push(tree.clone());
            let step = steps.len();
            clocks.push(make(&session, &mut Held::new(), &operation, |done| {
                if done {
                    Moment::End(step).put();
                } else {
                    Moment::Begin(step).put();
                }
            }));
            tree.apply(&operation);
            tree.observe(&session);
            steps.push((Who::First, operation));
        }
        if clean {
            quietly!(session.disconnect().expect("a clean end"));
            quietly!(controller.stop().expect("a clean end"));
        } else {
            quietly!(controller.kill());
            quietly!(drop(session));
        }
        controller = quietly!(serve());
    }
    end(controller);
    states.push(tree);
    let events = recording.take();
    let workload = Workload {
        name: "the life of a pool".into(),
        setup: Vec::new(),
        steps,
        from: 0,
    };
    let part = Part {
        workload,
        states,
        clocks,
        memory: Memory::default(),
        events: 0..events.len(),
    };
    Group {
        shared: false,
        events,
        parts: vec![part],
    }
}

/// Removes everything.
fn clear(session: &FileSystem, tree: &mut Tree) {
    while let Some((path, number)) = tree
        .paths
        .last_key_value()
        .filter(|(path, _)| !path.is_empty())
    {
        let kind = FileKind::from_mode(tree.nodes[number].mode);
        let flags = if kind == Some(FileKind::Directory) {
            libc::AT_REMOVEDIR
        } else {
            0
        };
        session
            .unlink(At::Root, path.as_bytes(), flags)
            .unwrap_or_else(|failure| panic!("removing {path:?}: {failure:?}"));
        tree.take_away(&path.clone());
    }
}

/// The parts of a trace.
fn cut(
    events: &[Event],
    workloads: &[Workload],
    states: Vec<(Vec<Tree>, Vec<Clock>)>,
) -> Vec<Part> {
    let mut memory = Memory::default();
    let mut parts: Vec<Part> = Vec::new();
    let mut states = states.into_iter().zip(workloads);
    for (index, event) in events.iter().enumerate() {
        memory.step(event);
        let EventKind::Mark(mark) = &event.kind else {
            continue;
        };
        match Moment::read(mark) {
            Some(Moment::Start) => {
                let ((states, clocks), workload) =
                    states.next().expect("as many starts as workloads");
                parts.push(Part {
                    workload: workload.clone(),
                    states,
                    clocks,
                    memory: memory.clone(),
                    events: index + 1..index + 1,
                });
            }
            Some(Moment::Stop) => {
                let part = parts.last_mut().expect("a stop follows a start");
                part.events.end = index;
            }
            _ => {}
        }
    }
    parts
}

/// Compares what a trace leaves, nothing lost, with the files.
fn assert_whole(events: &[Event], pool: &Path) {
    let mut memory = Memory::default();
    for event in events {
        memory.step(event);
    }
    let mut pages: BTreeMap<_, [u64; WORDS]> = memory
        .pages
        .iter()
        .map(|(&key, page)| (key, **page))
        .collect();
    for (&line, pieces) in &memory.lines {
        let (key, first) = page_of(line);
        let page = pages.entry(key).or_insert([0; WORDS]);
        for piece in pieces {
            let word = &mut page[first + usize::from(piece.word)];
            *word = piece.apply(*word);
        }
    }
    for (name, &number) in &memory.names {
        let file = std::fs::File::open(pool.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let length = file.metadata().expect("a file's length").len();
        let traced = memory.lengths.get(&number).copied().unwrap_or(0);
        assert_eq!(traced, length, "{name}");
        // Of an arena only what the trace knows: it is a gigabyte of holes.
        let all = match name.starts_with("arenas/") {
            true => 0,
            false => length / PAGE_SIZE,
        };
        let known = pages
            .range((number, 0)..=(number, u64::MAX))
            .map(|(key, _)| key.1);
        let wanted: std::collections::BTreeSet<u64> = (0..all).chain(known).collect();
        for page in wanted {
            let mut bytes = [0u8; PAGE_SIZE as usize];
            let there = (length - page * PAGE_SIZE).min(PAGE_SIZE) as usize;
            file.read_exact_at(&mut bytes[..there], page * PAGE_SIZE)
                .expect("a page");
            for (index, bytes) in bytes.chunks_exact(8).enumerate() {
                if name == layout::HEADERS && (page, index) == (0, 0) {
                    // The change clock, which is stored without being recorded: it means nothing after a failure.
                    continue;
                }
                let found = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                let traced = pages.get(&(number, page)).map_or(0, |page| page[index]);
                assert_eq!(
                    traced, found,
                    "word {index} of page {page} of {name}: a store is not in the trace"
                );
            }
        }
    }
}
