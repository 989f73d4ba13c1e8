//! Programs that leave their group, by becoming somebody else or by ending, and that join it, while others
//! of it work: nothing of what those do is lost. Needs root, to become others.
//!
//! # Regression
//! A member that left discarded the memory of its whole group, if no other member was in the middle of
//! something in that instant: any program did that looked at the pool and then changed its user, its groups
//! or its capabilities. What the others had not folded was gone; what they did then broke rules of the
//! format. Joining did the same where the joining process could not map that memory (`ulimit -v`).
//!
//!     make storms COUNT=1000 SEED=7
//!     ARCK_JOINS=10000 ARCK_JOINS_SEED=7 cargo test -p arck-cli --test cli -- leaving
//!
//! makes so many joins instead of a few hundred, in another order.

use crate::support::{Place, Running, Serving, succeeded};
use arck_testkit::Random;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

/// Nobody waits longer for anything, however busy the machine is.
const BOUND: Duration = Duration::from_secs(100);

/// Ways to become somebody else, or less, between two looks at the pool: name, and a command whose first
/// argument is the pool's directory.
const CHANGES: &[(&str, &[&str])] = &[
    ("perl, groups", &["perl", "-e", r#"sub look { opendir D, $ARGV[0] or die; readdir D; closedir D }
        look; $) = "1234 1234"; look; $( = 1234; look"#]),
    ("perl, user", &["perl", "-e", r#"sub look { opendir D, $ARGV[0] or die; readdir D; closedir D }
        look; $> = 1234; look; $> = 0; look; ($<, $>) = (1234, 1234); look"#]),
    ("setgid", &["python3", "-c", "import os, sys
os.listdir(sys.argv[1]); os.setgid(1234); os.listdir(sys.argv[1])"]),
    ("setgroups", &["python3", "-c", "import os, sys
os.listdir(sys.argv[1]); os.setgroups([5, 6]); os.listdir(sys.argv[1]); os.setgroups([]); os.listdir(sys.argv[1])"]),
    ("setresuid", &["python3", "-c", "import os, sys
os.listdir(sys.argv[1]); os.setresgid(1234, 1234, 1234); os.setresuid(1234, 1234, 1234); os.listdir(sys.argv[1])"]),
    ("seteuid there and back", &["python3", "-c", "import os, sys
for turn in range(5):
    os.listdir(sys.argv[1]); os.seteuid(1234); os.listdir(sys.argv[1]); os.seteuid(0)"]),
    ("capset", &["python3", "-c", "import ctypes, os, sys
os.listdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
if libc.capset(header, none) != 0: sys.exit(os.strerror(ctypes.get_errno()))
os.listdir(sys.argv[1])"]),
    ("in a forked child", &["python3", "-c", "import os, sys
os.listdir(sys.argv[1])
child = os.fork()
if child == 0:
    os.setgid(1234); os.setuid(1234); os.listdir(sys.argv[1]); os._exit(0)
status = os.waitpid(child, 0)[1]
os.listdir(sys.argv[1]); sys.exit(status != 0)"]),
    ("in a forked child that does not look", &["python3", "-c", "import os, sys
os.listdir(sys.argv[1])
child = os.fork()
if child == 0:
    os.setgid(1234); os.setuid(1234); sys.exit(0)
status = os.waitpid(child, 0)[1]
os.listdir(sys.argv[1]); sys.exit(status != 0)"]),
    ("before a program is executed", &["python3", "-c", "import os, sys
os.listdir(sys.argv[1]); os.setgid(1234); os.setuid(1234); os.execvp('ls', ['ls', sys.argv[1]])"]),
    ("a child that does so", &["python3", "-c", "import os, subprocess, sys
os.listdir(sys.argv[1])
subprocess.run(['ls', sys.argv[1]], user=1234, group=1234, extra_groups=[], check=True, stdout=subprocess.DEVNULL)
os.listdir(sys.argv[1])"]),
    ("setpriv", &["sh", "-c", r#"ls "$0" && setpriv --reuid 1234 --regid 1234 --clear-groups ls "$0" && ls "$0""#]),
];

/// Makes, replaces and removes files in a directory that it works in, beside one that it keeps open, and looks
/// whether what it knows is there, and nothing else. Either all the time until its input ends (`at work`), or for
/// a moment at each line of it (`in turns`): then each time in another thread, which is gone when it says so,
/// so that in between nobody of this process is at anything, and all that it has is in the group's memory.
/// It says what it has made in the end.
const MAKER: &str = r#"
import os, select, sys, threading, time, traceback
way, top = sys.argv[1:3]
kept, number = {}, 0
def begin():
    global log
    os.makedirs(top, exist_ok=True)
    os.chdir(top)
    for name in os.listdir("."):
        kept[name] = open(name).read()
    log = open("log", "a+")
    kept.setdefault("log", "")
def check():
    assert os.getcwd() == top
    log.seek(0)
    assert log.read() == kept["log"]
    names = sorted(os.listdir("."))
    assert names == sorted(kept), (top, sorted(set(names) ^ set(kept)))
    for name in names:
        text = open(name).read()
        assert text == kept[name], (top, name, len(text))
def make():
    global number
    number += 1
    name, text = f"file-{number}", f"{number} " * (number % 700)
    with open("new", "w") as file: file.write(text)
    os.rename("new", name)
    kept[name] = text
    if number % 3 == 0:
        gone = f"file-{number - 2}"
        os.unlink(gone)
        del kept[gone]
    if number % 50 == 0: check()
def turn():
    for _ in range(7): make()
    log.write(f"{number}\n")
    log.flush()
    kept["log"] += f"{number}\n"
    check()
def in_thread(work):
    who, failed = [], []
    def run():
        who.append(threading.get_native_id())
        try: work()
        except BaseException: failed.append(traceback.format_exc())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    while os.path.exists(f"/proc/self/task/{who[0]}"): time.sleep(0.001)
    if failed: sys.exit(failed[0])
if way == "at work":
    begin()
    turn()
    print("going", flush=True)
    while not select.select([0], [], [], 0)[0]: make()
    check()
else:
    in_thread(begin)
    for line in sys.stdin:
        in_thread(turn)
        print("done", flush=True)
    in_thread(check)
print(number, hash_of(kept), flush=True)
"#;

/// What stands there now, as [`MAKER`] tells it at its end.
const LOOK: &str = r#"
import os, sys
top = sys.argv[1]
print(hash_of({name: open(f"{top}/{name}").read() for name in os.listdir(top)}))
"#;

/// In front of both.
const HASH: &str = r#"
import hashlib
def hash_of(files):
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
"#;

/// A pool that is served to all, and a command that all can reach.
struct Group {
    place: Place,
    arck: PathBuf,
    serving: Option<Serving>,
}

impl Group {
    fn new() -> Group {
        // SAFETY: no arguments, no memory.
        let user = unsafe { libc::geteuid() };
        assert_eq!(
            user, 0,
            "these tests become other users: run them as root (sudo -E cargo test)"
        );
        let (place, arck) = Place::of_users(0);
        let mut group = Group {
            place,
            arck,
            serving: None,
        };
        let mut made = group.arck(&["mkfs", "--size", "512M", "--mode", "1777"]);
        succeeded(&made.output().unwrap());
        let mut serve = group.arck(&["serve", "--shared", "--ready-fd", "1"]);
        group.serving = Some(Serving::of(&mut serve));
        group
    }

    fn arck(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.arck);
        command.args(arguments).env("ARCK_POOL", self.place.pool());
        command
    }

    fn run(&self, command: &[&str]) -> Command {
        self.arck(&[&["run", "--group", "one", "--"], command].concat())
    }

    /// The same with a limit of the shell's `ulimit`, for all of it.
    fn run_under(&self, limit: &str, command: &[&str]) -> Command {
        let mut limited = Command::new("bash");
        let script = format!("ulimit {limit}; exec \"$@\"");
        limited.args(["-c", &script, "bash"]).arg(&self.arck);
        limited.args(["run", "--group", "one", "--"]).args(command);
        limited.env("ARCK_POOL", self.place.pool());
        limited
    }

    fn started(&self, way: &str, tops: &[&str]) -> Vec<Running> {
        let maker = [HASH, MAKER].concat();
        let start = |top: &&str| self.run(&["python3", "-c", &maker, way, top]);
        tops.iter()
            .map(|top| Running::start_told(start(top)))
            .collect()
    }

    /// Makers that are at work.
    fn makers(&self, tops: &[&str]) -> Vec<Running> {
        let mut makers = self.started("at work", tops);
        for maker in &mut makers {
            assert_eq!(maker.line(), "going");
        }
        makers
    }

    /// Makers that have made something, and are at nothing until [`take_turns`].
    fn idle_makers(&self, tops: &[&str]) -> Vec<Running> {
        let mut makers = self.started("in turns", tops);
        take_turns(&mut makers);
        makers
    }

    /// Ends them; everything that they made is there, to themselves and to somebody who comes later.
    fn look(&self, makers: Vec<Running>, tops: &[&str], context: &str) {
        let mut told = Vec::new();
        for maker in makers {
            let text = told_by(&maker.finished(BOUND), context);
            let (number, hash) = text.trim().split_once(' ').unwrap();
            assert!(number.parse::<u64>().unwrap() >= 5, "{context}: {text}");
            told.push(hash.to_owned());
        }
        let look = [HASH, LOOK].concat();
        for (top, hash) in tops.iter().zip(told) {
            let found = Running::start(self.run(&["python3", "-c", &look, top])).finished(BOUND);
            assert_eq!(told_by(&found, context).trim(), hash, "{context}: {top}");
        }
    }

    fn ends(mut self) {
        let mut serving = self.serving.take().unwrap();
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
        succeeded(&self.arck(&["check"]).output().unwrap());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            let _ = serving.process.kill();
            let _ = serving.process.wait();
        }
    }
}

/// Idle makers go on for a moment, one after the other, and find all that they left.
fn take_turns(makers: &mut [Running]) {
    for maker in makers {
        maker.tell("go on");
        assert_eq!(maker.line(), "done");
    }
}

/// What it printed, if nothing went wrong.
fn told_by(output: &Output, context: &str) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{context}: {}, said: {errors}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn who_becomes_somebody_else_takes_nothing_along() {
    let group = Group::new();
    let tops = ["/arck/one", "/arck/two"];
    // All at once, beside makers that are at work.
    let makers = group.makers(&tops);
    let all: Vec<(&str, Running)> = CHANGES
        .iter()
        .map(|(name, command)| {
            let command = group.run(&[command, &["/arck"][..]].concat());
            (*name, Running::start(command))
        })
        .collect();
    for (name, child) in all {
        told_by(&child.finished(BOUND), name);
    }
    group.look(makers, &tops, "at last");
    // One after the other, in a group that nobody is doing anything in at that moment.
    let mut makers = group.idle_makers(&tops);
    for (name, command) in CHANGES {
        let changed = Running::start(group.run(&[command, &["/arck"][..]].concat()));
        told_by(&changed.finished(BOUND), name);
        take_turns(&mut makers);
    }
    group.look(makers, &tops, "at last, in turns");
    group.ends();
}

/// What [`ENDED`] prints.
const LISTED: &str = "d-1 d-2 d-3 f-1 f-2 f-3 m-1 m-2 m-3 \n";

/// Short programs that make something and end, with one between them that becomes somebody else: so at that
/// moment nobody of the group is at work, and what it has made is not folded.
const ENDED: &str = r#"mkdir -m 777 "$0" || exit
for n in 1 2 3; do
    touch "$0/f-$n" && mkdir "$0/d-$n" && cp /etc/passwd "$0/d-$n/file" && touch "$0/old" &&
        mv "$0/old" "$0/m-$n" || exit
    "$@" "$0" >/dev/null || exit
    cmp /etc/passwd "$0/d-$n/file" || exit
done
ls "$0" | tr '\n' ' '; echo"#;

#[test]
fn what_ended_programs_have_made_stays() {
    let group = Group::new();
    for (index, (name, command)) in CHANGES.iter().enumerate() {
        let top = format!("/arck/{index}");
        let words = [&["sh", "-c", ENDED, &top], *command].concat();
        let told = Running::start(group.run(&words)).finished(BOUND);
        assert_eq!(told_by(&told, name), LISTED, "{name}");
        let again = ["sh", "-c", "ls $0 | tr '\\n' ' '; echo", &top];
        let told = Running::start(group.run(&again)).finished(BOUND);
        assert_eq!(told_by(&told, name), LISTED, "{name}: afterwards");
    }
    group.ends();
}

/// Address space that members get, in kilobytes: from too little for programs to start in to enough.
const LITTLE: std::ops::Range<usize> = 20_000..60_000;

/// Who cannot map the group's memory does not join, and that is all.
#[test]
fn who_has_no_room_for_the_groups_memory_leaves_it_alone() {
    let group = Group::new();
    let tops = ["/arck/one"];
    let mut makers = group.idle_makers(&tops);
    let mut refused = 0;
    for limit in LITTLE.step_by(1_500) {
        let limited = group.run_under(&format!("-v {limit}"), &["ls", "/arck/one"]);
        let output = Running::start(limited).finished(BOUND);
        let said = String::from_utf8_lossy(&output.stderr);
        refused += u32::from(said.contains("the group's shared memory: mapping"));
        take_turns(&mut makers);
    }
    assert!(
        refused > 0,
        "none of these limits is met at the group's memory"
    );
    let enough = group.run_under("-v 1000000", &["ls", "/arck/one"]);
    told_by(&Running::start(enough).finished(BOUND), "with enough");
    group.look(makers, &tops, "at last");
    group.ends();
}

/// A little work of a member: at the pool, in a directory of its own.
const WORK: &str = r#"set -e
mkdir -p "$0"; cd "$0"; echo "$1" >new; mv new "kept-$1"; (exit 0); read -r x <"kept-$1"; [ "$x" = "$1" ]
ls >/dev/null; rm "kept-$1""#;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

#[test]
fn joins_and_leaves_at_random() {
    let joins = number("ARCK_JOINS", 120);
    let seed = number("ARCK_JOINS_SEED", 1);
    println!("ARCK_JOINS={joins} ARCK_JOINS_SEED={seed}");
    let mut random = Random::new(seed);
    let group = Group::new();
    let tops = ["/arck/made"];
    let (mut done, mut told) = (0, 0);
    while done < joins {
        if done >= told {
            println!("{done} of {joins} joins");
            told = done + 500;
        }
        // With somebody who stays, at work or not; or without: then the group is made by several at once.
        let (mut makers, are_idle) = match random.below(4) {
            0 => (Vec::new(), false),
            1 | 2 => (group.makers(&tops), false),
            _ => (group.idle_makers(&tops), true),
        };
        for _ in 0..random.below(10) {
            let context = format!("seed {seed}, join {done}");
            let together = 1 + random.below(5);
            let started: Vec<(bool, Running)> = (0..together)
                .map(|member| start(&group, &mut random, done + member))
                .collect();
            for (is_limited, child) in started {
                let output = child.finished(BOUND);
                if !is_limited {
                    told_by(&output, &context);
                }
            }
            done += together;
            if are_idle {
                take_turns(&mut makers);
            }
        }
        if !makers.is_empty() {
            group.look(makers, &tops, &format!("seed {seed}, by join {done}"));
        }
    }
    group.ends();
}

/// Somebody joins; whether with so little of something that he may fail.
fn start(group: &Group, random: &mut Random, join: u64) -> (bool, Running) {
    let directory = format!("/arck/work-{}", join % 7);
    let number = join.to_string();
    let is_limited = random.below(10) == 0;
    let command = if is_limited {
        let limit = match random.below(3) {
            // Kilobytes of memory, descriptors, kilobytes of a file.
            0 => format!("-v {}", 20_000 << random.below(12)),
            1 => format!("-n {}", 3 + random.below(25)),
            _ => format!("-f {}", random.below(100_000)),
        };
        group.run_under(&limit, &["sh", "-c", WORK, &directory, &number])
    } else if random.below(3) == 0 {
        let (_, change) = CHANGES[random.below(CHANGES.len() as u64) as usize];
        group.run(&[change, &["/arck"][..]].concat())
    } else {
        group.run(&["sh", "-c", WORK, &directory, &number])
    };
    (is_limited, Running::start(command))
}
