//! Torture: real workloads of three users in several groups on a pool, while their processes, their
//! groups and the controller are killed with SIGKILL, or stopped, at random instants, and started again,
//! and others join and leave, change who they are, and work with little of what they need.
//!
//! After every round all acknowledged work is there, the check of the whole pool finds nothing, nothing was
//! refused, and what outlived it all has gone on without an error, and soon.
//!
//!     make torture SECONDS=3600 SEED=7
//!     ARCK_TORTURE_SECONDS=3600 ARCK_TORTURE_SEED=7 cargo test -p arck-cli --test torture
//!
//! goes on for so long (default: 90) with another seed. What the seed decides is who is killed when,
//! not what the threads of the machine do meanwhile. Needs root, to become the users.
//!
//! # Invariant
//! * An acknowledgement is read from a pipe or a socket that is outside the pool, and was written
//!   after the operation had returned. Of what was not acknowledged, one operation of each workload
//!   may have been done, or not.

mod hand;
mod hands;
#[path = "../cli/support.rs"]
#[allow(dead_code)]
mod support;
mod tree;
mod work;
mod workloads;

use arck_testkit::honest;
use hands::{SERVER, Users};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::{Place, Serving, arck};
use workloads::{Log, Redis, Sqlite, Storm, Workload};

/// So long a workload may make no progress.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A xorshift generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

fn pause(random: &mut Random, milliseconds: u64) {
    std::thread::sleep(Duration::from_micros(random.below(milliseconds * 1000)));
}

struct Scene {
    place: Place,
    users: Rc<Users>,
    controller: Option<Serving>,
    workloads: Vec<Box<dyn Workload>>,
    counts: Vec<(&'static str, u32)>,
}

impl Scene {
    fn serve(&mut self) {
        let mut serve = self
            .users
            .arck(SERVER, &["serve", "--shared", "--ready-fd", "1"]);
        self.controller = Some(Serving::of(&mut serve));
    }

    fn kill_controller(&mut self) {
        let mut controller = self.controller.take().expect("a controller");
        controller.process.kill().expect("kill");
        controller.process.wait().expect("wait");
    }

    fn count(&mut self, what: &'static str) {
        match self.counts.iter_mut().find(|(name, _)| *name == what) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((what, 1)),
        }
    }

    /// Kills one workload's process, or all of its group.
    fn kill_one(&mut self, random: &mut Random) {
        let which = random.below(self.workloads.len() as u64) as usize;
        let group = random.below(2) == 0;
        self.workloads[which].runner().kill(group);
        self.count(if group { "groups" } else { "processes" });
    }

    /// Stops one workload's process, or its group, for a while; perhaps the controller dies meanwhile.
    fn stop_one(&mut self, random: &mut Random) {
        let which = random.below(self.workloads.len() as u64) as usize;
        let group = random.below(2) == 0;
        self.workloads[which].runner().signal(libc::SIGSTOP, group);
        pause(random, 1500);
        if random.below(3) == 0 {
            self.kill_controller();
            self.count("controllers");
            self.serve();
        }
        self.workloads[which].runner().signal(libc::SIGCONT, group);
        self.count("stopped for a while");
    }

    /// Some join, look, and leave; with little of something, perhaps.
    fn visit(&mut self, random: &mut Random, context: &str) {
        let limit = match random.below(6) {
            // Kilobytes of memory, descriptors, kilobytes of a file.
            0 => Some(format!("-v {}", 20_000 << random.below(12))),
            1 => Some(format!("-n {}", 3 + random.below(25))),
            2 => Some(format!("-f {}", random.below(60))),
            _ => None,
        };
        let count = 1 + random.below(8);
        self.users.visit(count, limit.as_deref(), context);
        self.count(if limit.is_some() {
            "visits with limits"
        } else {
            "visits"
        });
    }

    /// What happens in a round.
    fn strike(&mut self, random: &mut Random, context: &str) {
        match random.below(11) {
            8 => self.stop_one(random),
            9 | 10 => self.visit(random, context),
            0 | 1 => self.kill_one(random),
            2 => {
                for workload in &mut self.workloads {
                    workload.runner().kill(true);
                }
                self.count("all groups at once");
            }
            3 | 4 => {
                self.kill_controller();
                self.count("controllers");
                pause(random, 300);
                self.serve();
            }
            5 => {
                self.kill_controller();
                self.kill_one(random);
                self.count("controllers");
                pause(random, 300);
                self.serve();
                pause(random, 30);
                // Again, while sessions are coming back.
                self.kill_controller();
                self.count("controllers");
                self.serve();
            }
            6 => {
                self.kill_one(random);
                pause(random, 20);
                // While the dead are being recovered.
                self.kill_controller();
                self.count("controllers");
                self.serve();
            }
            _ => {
                let controller = self.controller.as_ref().expect("a controller");
                controller.signal(libc::SIGSTOP);
                pause(random, 1500);
                controller.signal(libc::SIGCONT);
                self.count("controllers stopped for a while");
            }
        }
    }

    /// Everything acknowledged is there; who lives makes progress; who does not is started again.
    fn settle(&mut self, context: &str) {
        let pool = self.place.pool();
        for workload in &mut self.workloads {
            workload.check(&pool, context);
        }
        let before: Vec<u64> = self
            .workloads
            .iter_mut()
            .map(|w| w.acknowledged())
            .collect();
        let began = Instant::now();
        for (workload, before) in self.workloads.iter_mut().zip(before) {
            while workload.acknowledged() <= before {
                let name = workload.name();
                assert!(
                    workload.runner().is_running(),
                    "{context}: {name} has ended"
                );
                assert!(
                    began.elapsed() < PATIENCE,
                    "{context}: {name} does not go on\n{}",
                    workload.told()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        check_pool(&pool, context);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(controller) = &mut self.controller {
            // It may have ended.
            let _ = controller.process.kill();
            let _ = controller.process.wait();
        }
    }
}

/// The check of the whole pool, served or not.
fn check_pool(pool: &Path, context: &str) {
    let checked = arck().arg("check").arg(pool).output().expect("arck check");
    assert!(
        checked.status.success(),
        "{context}: {}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    assert_eq!(honest::refused(pool), "", "{context}");
}

fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    found.is_ok_and(|output| output.status.success())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|word| word == "worker") {
        return work::main(&arguments[place + 1..]);
    }
    if arguments.iter().any(|word| word == "--list") {
        return println!("torture: test");
    }
    let seconds = Duration::from_secs(number("ARCK_TORTURE_SECONDS", 45));
    let seed = number("ARCK_TORTURE_SEED", 1);
    let mut random = Random::new(seed);
    println!(
        "ARCK_TORTURE_SECONDS={} ARCK_TORTURE_SEED={seed}",
        seconds.as_secs()
    );
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    assert_eq!(
        user, 0,
        "the torture becomes other users: run it as root (sudo -E make torture)"
    );
    let (place, arck) = Place::of_users(SERVER);
    let this = place.path().join("torture");
    std::fs::copy(std::env::current_exe().expect("this program"), &this).expect("a copy");
    let pool = place.pool();
    let users = Rc::new(Users { arck, this, pool });
    let made = users
        .arck(SERVER, &["mkfs", "--size", "1G", "--mode", "1777"])
        .output();
    assert!(
        made.as_ref().is_ok_and(|made| made.status.success()),
        "{made:?}"
    );
    let host = place.path().to_path_buf();
    let mut workloads: Vec<Box<dyn Workload>> = vec![
        Box::new(Log::new("log-a")),
        Box::new(Log::new("log-b")),
        Box::new(Storm::new("storm-a")),
        Box::new(Storm::new("storm-b")),
    ];
    let mut left_out = Vec::new();
    match has("sqlite3") {
        true => workloads.push(Box::new(Sqlite::new("database"))),
        false => left_out.push("sqlite3"),
    }
    match has("redis-server") {
        true => workloads.push(Box::new(Redis::new("redis", &host))),
        false => left_out.push("redis-server"),
    }
    let mut scene = Scene {
        place,
        users,
        controller: None,
        workloads,
        counts: Vec::new(),
    };
    let began = Instant::now();
    scene.serve();
    let hands = hands::hands(&scene.users);
    scene.workloads.extend(hands);
    scene.settle("at first");
    let mut rounds = 0;
    let mut told = Instant::now();
    while began.elapsed() < seconds {
        let context = format!(
            "round {rounds}, {:.0} s; again: make torture SEED={seed}",
            began.elapsed().as_secs_f64()
        );
        pause(&mut random, 100);
        scene.strike(&mut random, &context);
        scene.settle(&context);
        rounds += 1;
        if told.elapsed() > Duration::from_secs(20) {
            told = Instant::now();
            println!(
                "{:.0} s, {rounds} rounds: {:?}",
                began.elapsed().as_secs_f64(),
                scene.counts
            );
        }
    }
    // All at once, and a pool that nobody serves.
    scene.kill_controller();
    for workload in &mut scene.workloads {
        workload.runner().kill(true);
    }
    check_pool(&scene.place.pool(), "killed");
    scene.serve();
    scene.settle("at last");
    for workload in &mut scene.workloads {
        workload.runner().kill(true);
    }
    let acknowledged: Vec<String> = scene
        .workloads
        .iter_mut()
        .map(|workload| format!("{} {}", workload.name(), workload.acknowledged()))
        .collect();
    let controller = scene.controller.take().expect("a controller");
    controller.signal(libc::SIGTERM);
    let ended = { controller }.process.wait().expect("wait");
    assert!(ended.success(), "{ended:?}");
    check_pool(&scene.place.pool(), "closed");
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{rounds} rounds in {seconds:.1} s, killed: {:?}",
        scene.counts
    );
    println!(
        "acknowledged: {}; left out: {left_out:?}",
        acknowledged.join(", ")
    );
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
