//! Hands as the test sees them: programs of several users in several groups, what each has said that it did,
//! and whether that, and nothing else, is there.
//!
//! # Invariant
//! * Everything that a hand said was done is there; of what it had begun when it was killed, all or
//!   nothing (of bytes stored in place: any of them).

use crate::PATIENCE;
use crate::hand::fresh;
use crate::tree::{COMMON, Step, Tree};
use crate::workloads::{Program, Runner, Workload};
use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Who serves the pool.
pub const SERVER: u32 = 990;

/// A hand's name, which begins with its user's, its user, and its group.
const HANDS: [(&str, u32, &str); 8] = [
    ("ann-0", 1001, "shop"),
    ("ann-1", 1001, "shop"),
    ("ann-2", 1001, "home"),
    ("bob-0", 1002, "shop"),
    ("bob-1", 1002, "shop"),
    ("root-0", 0, "shop"),
    ("root-1", 0, "shop"),
    ("root-2", 0, "home"),
];

/// Copies of the command, and of this program, that all users reach, and the pool.
pub struct Users {
    pub arck: PathBuf,
    pub this: PathBuf,
    pub pool: PathBuf,
}

impl Users {
    pub fn arck(&self, user: u32, words: &[&str]) -> Command {
        let mut command = Command::new(&self.arck);
        command
            .args(words)
            .env("ARCK_POOL", &self.pool)
            .current_dir("/");
        if user != 0 {
            command.uid(user).gid(user);
        }
        command
    }

    /// This program in another role, on the pool.
    pub fn role(&self, user: u32, group: &str, words: &[&str]) -> Command {
        let this = self.this.to_str().expect("a path");
        let run = ["run", "--group", group, "--", this, "worker"];
        self.arck(user, &[&run, words].concat())
    }

    /// The same behind a limit, as a shell's `ulimit` has it.
    fn limited_role(&self, user: u32, group: &str, limit: &str, words: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "bash"]);
        let inner = self.role(user, group, words);
        command.arg(inner.get_program()).args(inner.get_args());
        command.env("ARCK_POOL", &self.pool).current_dir("/");
        if user != 0 {
            command.uid(user).gid(user);
        }
        command
    }

    /// Programs that come and go in groups that are at work: all of them end well, and soon. With
    /// `limit`, hands that are given little: they end soon.
    pub fn visit(&self, count: u64, limit: Option<&str>, context: &str) {
        let start = |number: u64| {
            let (name, user, group) = HANDS[number as usize % HANDS.len()];
            let Some(limit) = limit else {
                let role = if user == 0 { "changer" } else { "visitor" };
                return Program::start(self.role(user, group, &[role]));
            };
            // With a directory that nobody looks at afterwards.
            let name = format!("{name}-limited");
            let words = ["hand", &name, &number.to_string(), "40"];
            Program::start(self.limited_role(user, group, limit, &words))
        };
        let programs: Vec<Program> = (0..count).map(start).collect();
        for mut program in programs {
            let status = program.ends(PATIENCE);
            let status =
                status.unwrap_or_else(|| panic!("{context}: a visitor hangs (limit: {limit:?})"));
            assert!(
                limit.is_some() || status.success(),
                "{context}: a visitor: {status}"
            );
        }
    }
}

/// What all hands counted, each number once.
type Counted = Rc<RefCell<HashSet<(String, u64)>>>;

pub struct Hand {
    users: Rc<Users>,
    name: &'static str,
    user: u32,
    group: &'static str,
    runner: Runner,
    tree: Tree,
    under_way: Option<Step>,
    counted: Counted,
    said: VecDeque<String>,
    done: u64,
    starts: u64,
    /// Whether the one that runs has said that it begins.
    is_ready: bool,
}

/// All of them, after what they share has been made.
pub fn hands(users: &Rc<Users>) -> Vec<Box<dyn Workload>> {
    let script = format!(
        "set -e; umask 0; mkdir -m 1777 {COMMON}; for c in flock record; do \
         printf '\\0\\0\\0\\0\\0\\0\\0\\0' >{COMMON}/counter-$c; done; chmod 1777 /arck"
    );
    let run = ["run", "--", "sh", "-c", &script];
    let made = users.arck(0, &run).output().expect("arck run");
    assert!(made.status.success(), "{made:?}");
    let counted = Counted::default();
    let hand = |(name, user, group): (&'static str, u32, &'static str)| {
        Box::new(Hand {
            users: users.clone(),
            name,
            user,
            group,
            runner: Runner::default(),
            tree: Tree::default(),
            under_way: None,
            counted: counted.clone(),
            said: VecDeque::new(),
            done: 0,
            starts: 0,
            is_ready: false,
        }) as Box<dyn Workload>
    };
    HANDS.into_iter().map(hand).collect()
}

impl Hand {
    fn hear(&mut self, line: &str) {
        if let Some(step) = line.strip_prefix("begin ") {
            self.under_way = Some(Step::read(step));
        } else if let Some(done) = line.strip_prefix("done ") {
            let step = self.under_way.take().expect("what was begun");
            let rest = done.strip_prefix(&step.text()).expect("what was begun");
            self.tree.apply(&step);
            self.done += 1;
            if let Ok(number) = rest.trim().parse() {
                let is_new = self
                    .counted
                    .borrow_mut()
                    .insert((step.path.clone(), number));
                assert!(
                    is_new,
                    "{}: {} is counted twice: {number}",
                    self.name, step.path
                );
            }
        } else {
            assert!(
                line == "ready",
                "{}: {line}; before:\n{}",
                self.name,
                self.history()
            );
            // Who was killed with it left it to this one, who has removed it.
            self.tree.remove(&fresh(self.name));
            self.is_ready = true;
        }
    }

    /// What it said last.
    fn history(&self) -> String {
        self.said.iter().map(|line| format!("  {line}\n")).collect()
    }

    /// What is there, to a program of the same user in another group.
    fn found(&self, context: &str) -> Tree {
        let mut command = self.users.role(self.user, "look", &["scan", self.name]);
        let output = command.output().expect("arck run");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{context}: {}: {errors}",
            self.name
        );
        Tree::read(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Workload for Hand {
    fn name(&self) -> &'static str {
        self.name
    }
    fn acknowledged(&mut self) -> u64 {
        for line in self.runner.lines() {
            self.hear(&line);
            self.said.push_back(line);
            if self.said.len() > 30 {
                self.said.pop_front();
            }
        }
        self.done
    }
    fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }
    fn told(&mut self) -> String {
        format!("it said:\n{}{}", self.history(), self.runner.told())
    }
    fn check(&mut self, _: &Path, context: &str) {
        // Before the question whether it ended by itself: what it said tells why.
        self.acknowledged();
        if !self.runner.is_over(self.name, context) {
            return;
        }
        self.acknowledged();
        if self.starts > 0 {
            let found = self.found(context);
            if !self.is_ready && !found.nodes.contains_key(&fresh(self.name)) {
                // It was removed before that could be said.
                self.tree.remove(&fresh(self.name));
            }
            let explained = self.tree.explains(&found, self.under_way.take().as_ref());
            if let Err(difference) = explained {
                panic!(
                    "{context}: {}: expected / found\n{difference}it said:\n{}",
                    self.name,
                    self.history()
                );
            }
            self.tree = found;
        }
        self.starts += 1;
        self.is_ready = false;
        let seed = self.starts.to_string();
        let mut words = vec!["hand", self.name, &seed, "0"];
        words.extend(
            HANDS
                .iter()
                .map(|(name, ..)| *name)
                .filter(|name| *name != self.name),
        );
        let command = self.users.role(self.user, self.group, &words);
        self.runner.set(Program::start(command));
    }
}
