//! The table of attacks, and how one is made and judged.
//!
//! # Invariant
//! * An attack counts as stopped if what was to stop it did, by name; and the victims, one of each LibFS and one with a log, read right
//!   data and were answered all the time; and a session that came later found everything well; and
//!   of nobody but the attacker's user was anything refused; and the pool, when nobody serves it any more, is a whole file system.

use super::attacker::Attacker;
use super::process::{ATTACK_BOUND, BOUND, LOOK_BOUND, Log, Role, has_users};
use super::raw::check::check_metadata;
use super::world::{ATTACKER_USER, KEEPER_USER, ROOT_USER, THIRD_USER, VICTIM_USER};
use arck_controller::read_log;
use arck_testkit::under_test::LIBFSES;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of the pool that is attacked.
const POOL_SIZE: &str = "67108864";

/// An attack.
pub struct Attack {
    pub group: &'static str,
    pub name: &'static str,
    /// What stops it, as the attacker tells.
    pub stop: &'static str,
    /// Needs something that only root gets, before it becomes the attacker's user.
    pub needs_privilege: bool,
    /// Where there are no users, nobody gets anything new while the attacker is there: the victim
    /// may be told ENOSPC, and a latecomer comes only after it.
    pub fills: bool,
    /// The pool lies in a file system of so many bytes, where there are users.
    pub memory: Option<u64>,
    /// Means nothing unless attacker, victim and controller are different users.
    pub needs_users: bool,
    /// What the attacker does; gives what stopped it.
    pub run: fn(&mut Attacker) -> String,
    /// What the harness does to the attacker and its victims while it is held, and what it makes
    /// sure of besides.
    pub meanwhile: fn(&mut Scene, &mut Role),
}

/// An attack after which nothing more is to be done, or made sure of, than after every one.
pub const fn case(
    group: &'static str,
    name: &'static str,
    stop: &'static str,
    run: fn(&mut Attacker) -> String,
) -> Attack {
    Attack {
        group,
        name,
        stop,
        needs_privilege: false,
        fills: false,
        memory: None,
        needs_users: false,
        run,
        meanwhile: nothing,
    }
}

impl Attack {
    /// The same; what is done, and made sure of, while the attacker is held.
    pub const fn and(self, meanwhile: fn(&mut Scene, &mut Role)) -> Attack {
        Attack { meanwhile, ..self }
    }

    /// The same, that leaves nothing for others of its user until the attacker is gone.
    pub const fn when_full(self) -> Attack {
        Attack {
            fills: true,
            ..self
        }
    }

    /// The same, with little memory for the pool's file system.
    pub const fn in_little_memory(self) -> Attack {
        Attack {
            memory: Some(super::filling::MEMORY),
            ..self
        }
    }

    /// The same, with what only root gets prepared for it.
    pub const fn with_privilege(self) -> Attack {
        Attack {
            needs_privilege: true,
            ..self.for_users()
        }
    }

    /// The same, for several users only.
    pub const fn for_users(self) -> Attack {
        Attack {
            needs_users: true,
            ..self
        }
    }
}

/// What became of an attack.
pub enum Outcome {
    Stopped {
        rounds: u64,
        longest: Duration,
    },
    /// Not for a user alone.
    NotRun,
    Failed(String),
}

/// A pool, who serves it, and who works on it.
pub struct Scene {
    /// What is mounted on the directory goes first.
    _memory: Option<Mounted>,
    directory: tempfile::TempDir,
    controller: Option<Role>,
    /// One that does all that ArckFS has, for each LibFS one that does what all have, and one with a log.
    victims: Vec<Role>,
    log: Log,
}

/// A file system that is mounted for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    /// One of memory.
    fn memory(path: &Path, bytes: u64) -> Mounted {
        let options = CString::new(format!("size={bytes}")).expect("plain text");
        let flags = MountFlags::empty();
        mount("arck-hostile", path, "tmpfs", flags, options.as_c_str()).expect("a file system");
        Mounted(path.to_path_buf())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Who still has a file of it keeps it, unseen.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

impl Scene {
    fn new(memory: Option<u64>, log: &Log) -> Scene {
        let directory = tempfile::Builder::new()
            .prefix("arck-hostile-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        let memory = memory
            .filter(|_| has_users())
            .map(|bytes| Mounted::memory(directory.path(), bytes));
        if has_users() {
            let owner = Some(KEEPER_USER.0);
            std::os::unix::fs::chown(directory.path(), owner, owner).expect("chown");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(directory.path(), mode).expect("chmod");
        }
        let mut scene = Scene {
            _memory: memory,
            directory,
            controller: None,
            victims: Vec::new(),
            log: log.clone(),
        };
        scene.start_controller();
        let pool = scene.pool_text();
        let mut builder = Role::start("builder", ROOT_USER, &[&pool]);
        assert_eq!(builder.line(BOUND), "built");
        builder.end();
        // They say when they wait for a controller.
        let victim =
            |role, arguments: &[&str]| Role::start_with(role, VICTIM_USER, arguments, Some(log));
        scene.victims.push(victim("victim", &[&pool]));
        let workers = LIBFSES.map(|libfs| victim("worker", &[&pool, libfs.name()]));
        scene.victims.extend(workers);
        scene.victims.push(victim("logger", &[&pool]));
        for victim in &mut scene.victims {
            assert_eq!(victim.line(BOUND), "ready");
        }
        scene
    }

    fn start_controller(&mut self) {
        let pool = self.pool_text();
        let arguments = [pool.as_str(), POOL_SIZE];
        let log = Some(&self.log);
        let mut controller = Role::start_with("controller", KEEPER_USER, &arguments, log);
        assert_eq!(controller.line(BOUND), "serving");
        self.controller = Some(controller);
    }

    /// The controller is killed, and another one started.
    pub fn restart_controller(&mut self) {
        self.controller.take().expect("a controller").kill();
        self.start_controller();
    }

    pub fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    pub fn pool_text(&self) -> String {
        self.pool().to_str().expect("plain text").to_owned()
    }

    /// Each victim goes through a whole round, within the bound.
    pub fn victim_works(&mut self) {
        self.victims
            .iter_mut()
            .for_each(|victim| victim.say("round"));
        for victim in &mut self.victims {
            assert_eq!(victim.line(BOUND), "round");
        }
    }

    /// A fresh session finds everything well, and works.
    pub fn third_works(&mut self) {
        let mut third = Role::start("third", THIRD_USER, &[&self.pool_text()]);
        let line = third.line(LOOK_BOUND);
        assert!(line.starts_with("well"), "the third session: {line}");
        third.end();
    }

    /// What a fresh session finds when it reads a file: an error, or its first byte.
    pub fn reads(&self, path: &str) -> String {
        let mut reader = Role::start("reader", THIRD_USER, &[&self.pool_text(), path]);
        let line = reader.line(BOUND);
        reader.end();
        line
    }

    /// What the victim's user, in a fresh session, is told when it lets nobody else at a file of its
    /// own: an error, or `closed`.
    pub fn closes(&self, path: &str) -> String {
        let mut closer = Role::start("closer", VICTIM_USER, &[&self.pool_text(), path]);
        let line = closer.line(BOUND);
        closer.end();
        line
    }

    /// What the victim's user, in a fresh session, finds when it writes to a file: an error, or
    /// `written`.
    pub fn writes(&self, path: &str) -> String {
        let mut writer = Role::start("writer", VICTIM_USER, &[&self.pool_text(), path]);
        let line = writer.line(BOUND);
        writer.end();
        line
    }

    /// The controller has less than so many bytes of memory for itself.
    pub fn controller_has_less_memory(&self, bound: u64) {
        let path = format!("/proc/{}/status", self.controller().id());
        let status = std::fs::read_to_string(path).expect("a status");
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        let bytes = kibibytes.expect("a number") << 10;
        assert!(bytes < bound, "{bytes} bytes of memory");
    }

    /// Threads of the controller that have a name.
    pub fn controller_threads(&self, name: &str) -> usize {
        let folder = format!("/proc/{}/task", self.controller().id());
        let threads = std::fs::read_dir(folder).expect("its threads").flatten();
        let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        names
            .flatten()
            .filter(|found| found.trim_end() == name)
            .count()
    }

    /// The controller has at most so many descriptors, soon.
    pub fn controller_has_at_most(&self, bound: usize) {
        let folder = format!("/proc/{}/fd", self.controller().id());
        let started = Instant::now();
        loop {
            let count = std::fs::read_dir(&folder).expect("its descriptors").count();
            if count <= bound {
                return;
            }
            assert!(
                started.elapsed() < BOUND,
                "the controller has {count} descriptors"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn controller(&self) -> &Role {
        self.controller.as_ref().expect("a controller")
    }

    /// Another process of the attacker's.
    pub fn start_attacker(&self, name: &str) -> Role {
        Role::start("attacker", ATTACKER_USER, &[&self.pool_text(), name])
    }

    /// Nothing was refused but what the attacker's user changed, where he has a user of his own.
    fn nothing_honest_was_refused(&self) {
        let (entries, unreadable) = read_log(&self.pool()).expect("a log");
        assert_eq!(unreadable, 0, "lines of the log of refusals");
        let honest = entries.iter().find(|entry| entry.uid != ATTACKER_USER.0);
        assert!(!has_users() || honest.is_none(), "refused: {honest:?}");
    }

    /// Everybody goes; the pool must be whole.
    fn end(mut self) -> (u64, Duration) {
        let (mut rounds, mut longest) = (0, 0);
        for mut victim in std::mem::take(&mut self.victims) {
            let line = victim.ask("end");
            victim.end();
            let mut figures = line.split(' ').map(|figure| figure.parse::<u64>());
            let (Some(Ok(own)), Some(Ok(longest_of_it))) = (figures.next(), figures.next()) else {
                panic!("a victim: {line}");
            };
            rounds += own;
            longest = longest.max(longest_of_it);
        }
        let controller = self.controller.take().expect("a controller");
        controller.end();
        self.nothing_honest_was_refused();
        let tree = check_metadata(&self.pool());
        for path in [
            "/victim/inner",
            "/victim/file-0",
            "/common/both",
            "/sticky/theirs",
        ] {
            assert!(tree.paths.contains_key(path), "{path} is gone");
        }
        (rounds, Duration::from_millis(longest))
    }
}

/// Nothing more is done while the attacker is held.
pub fn nothing(_: &mut Scene, _: &mut Role) {}

/// Makes an attack and looks at what it did.
pub fn run(attack: &Attack) -> Outcome {
    if attack.needs_users && !has_users() {
        return Outcome::NotRun;
    }
    let log = Log::default();
    let attempt = || {
        let mut scene = Scene::new(attack.memory, &log);
        let mut attacker = scene.start_attacker(attack.name);
        let stopped = attacker.line(ATTACK_BOUND);
        assert_eq!(stopped, attack.stop, "what stopped it");
        scene.victim_works();
        (attack.meanwhile)(&mut scene, &mut attacker);
        if !attack.fills || has_users() {
            scene.third_works();
        }
        attacker.kill();
        scene.victim_works();
        scene.third_works();
        let (rounds, longest) = scene.end();
        assert!(longest < BOUND, "a call of the victim took {longest:?}");
        Outcome::Stopped { rounds, longest }
    };
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Outcome::Failed(format!(
            "{}\nThe controller's log:\n{}",
            text.unwrap_or_default(),
            log.text()
        ))
    })
}
