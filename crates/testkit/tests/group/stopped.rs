//! Members that are stopped (SIGSTOP), wherever they are: the others wait for them, where they have to,
//! without an error and without a processor, and go on when they do, or die.

use crate::model::DIRECTORIES;
use crate::rebuilt::inside;
use crate::{POOL, Process};
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, FileSystem};
use std::io::BufRead;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Seconds that a member waits for others that run.
const PATIENCE: u32 = 1;
/// Longer than that.
const LONGER: Duration = Duration::from_millis(2500);

/// Of a process that is told when to look, and says what became of that, and how many milliseconds of a
/// processor's time it has taken.
pub fn ask(fs: &FileSystem) {
    println!("ready");
    for _line in std::io::stdin().lock().lines() {
        let before = processor_time();
        let made = fs.make_directory(At::Root, b"d/made", 0o700);
        let removed = fs.unlink(At::Root, b"d/made", libc::AT_REMOVEDIR);
        let time = (processor_time() - before).as_millis();
        println!(
            "{} {time}",
            if (made, removed) == (Ok(()), Ok(())) {
                "done"
            } else {
                "failed"
            }
        );
    }
}

/// That this process has taken.
fn processor_time() -> Duration {
    // SAFETY: all zeroes is a valid value, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |of: libc::timeval| {
        Duration::from_secs(of.tv_sec as u64) + Duration::from_micros(of.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Stops a process (SIGSTOP), or lets it go on (SIGCONT).
pub fn stop(process: &Child, is_stopped: bool) {
    let process = process.id() as i32;
    let signal = match is_stopped {
        true => libc::SIGSTOP,
        false => libc::SIGCONT,
    };
    // SAFETY: a signal to a process that is waited for later.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("stat");
        stat.rsplit(')').next().and_then(|rest| rest.chars().nth(1))
    };
    while (state() == Some('T')) != is_stopped {
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Process {
    /// A process that asks when it is told.
    fn asking(pool: &TestPool, fs: &FileSystem) -> Process {
        let mut process = Process::start_with(pool, "asks", Some(PATIENCE));
        assert_eq!(process.says(), fs.session().number().to_string());
        assert_eq!(process.says(), "ready");
        process
    }

    /// What it says of what it was told to do: how that ended, and how many milliseconds it took of a
    /// processor's time.
    fn result(&mut self) -> (String, u64) {
        let line = self.says();
        let (result, time) = line.split_once(' ').expect("two words");
        (result.to_owned(), time.parse().expect("a number"))
    }
}

/// A member dies inside, and the others can know it.
fn one_dies(pool: &TestPool, fs: &FileSystem) {
    inside(pool, fs).kill();
    while !fs.session().any_departed() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// One member is stopped inside and another is killed there: a third waits, until the first goes on, or
/// dies too. Only who runs, and does not come out, is given up.
pub fn who_is_stopped_inside_is_waited_for() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    for ends in ["goes on", "dies"] {
        let mut asking = Process::asking(&pool, &fs);
        let mut stopped = inside(&pool, &fs);
        stop(&stopped.child, true);
        one_dies(&pool, &fs);
        asking.tell();
        let began = Instant::now();
        std::thread::sleep(LONGER);
        let build = fs.session().region().build();
        match ends {
            "goes on" => {
                stop(&stopped.child, false);
                stopped.tell();
                assert_eq!(stopped.says(), "outside");
            }
            _ => stopped.kill(),
        }
        let (result, time) = asking.result();
        assert_eq!(result, "done", "{ends}");
        assert!(began.elapsed() >= LONGER, "{ends}: nobody waited");
        assert!(time < 250, "{ends}: {time} ms of a processor's time");
        assert_eq!(fs.session().region().build(), build + 1);
        let _ = stopped.child.kill();
        let _ = stopped.child.wait();
        asking.kill();
    }
    let mut asking = Process::asking(&pool, &fs);
    let running = inside(&pool, &fs);
    one_dies(&pool, &fs);
    asking.tell();
    assert_eq!(asking.result().0, "failed");
    asking.kill();
    let mut running = running;
    running.kill();
    fs.names("d").expect("all goes on");
    assert_eq!(pool.violations(), "");
}

/// Members that work are stopped where they are, with whatever locks they hold, while others work in the
/// same directory. These may have to wait; nothing fails, and all go on.
pub fn who_is_stopped_at_work_keeps_nobody_for_good() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    for directory in DIRECTORIES {
        fs.make_directory(At::Root, directory.as_bytes(), 0o777)
            .expect("mkdir");
    }
    let mut worker = Process::start(&pool, "storm 1000");
    assert_eq!(worker.says(), fs.session().number().to_string());
    // What it says would fill the pipe.
    let Process { child, told } = worker;
    let reading = std::thread::spawn(move || told.lines().count());
    let member = worker_number(&fs);
    let (mut waited, mut longest) = (0, Duration::ZERO);
    for round in 0..40 {
        // Where it works.
        let mut tries = 0;
        loop {
            stop(&child, true);
            tries += 1;
            if fs.session().region().has_inside(member) || tries > 300 {
                break;
            }
            stop(&child, false);
            std::thread::sleep(Duration::from_micros(50 + 37 * tries));
        }
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                let began = Instant::now();
                for at in 0..20 {
                    let name = format!("d/own-{at}");
                    fs.put(&name, name.as_bytes()).expect("put");
                    assert_eq!(fs.get(&name), Ok(name.clone().into_bytes()));
                    fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
                }
                began.elapsed()
            });
            // Folds do not need it.
            std::thread::sleep(Duration::from_millis(60 + 20 * (round % 4)));
            waited += u32::from(!working.is_finished());
            stop(&child, false);
            longest = longest.max(working.join().expect("others go on"));
        });
    }
    println!(
        "{waited} of 40 times others had to wait; {} ms at most",
        longest.as_millis()
    );
    let mut child = child;
    child.kill().expect("killed");
    child.wait().expect("its end");
    assert!(reading.join().expect("its lines") > 0);
    assert_eq!(pool.violations(), "");
}

/// Directories that a process makes, with a file in each, before it removes them: each takes a delta page.
const MADE: u64 = 60;

/// Makes them, removes them, and so on, until it is told to stop; panics at any error.
fn makes(fs: &FileSystem, name: &str, is_over: impl Fn() -> bool) -> u64 {
    let mut done = 0;
    while !is_over() {
        let paths = (0..MADE).map(|number| format!("d/{name}-{number}"));
        for path in paths.clone() {
            let made = fs.make_directory(At::Root, path.as_bytes(), 0o777);
            made.unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
            let put = fs.put(&format!("{path}/file"), b"a little");
            put.unwrap_or_else(|failure| panic!("{path}/file: {failure:?}"));
        }
        for path in paths {
            for (path, flags) in [(format!("{path}/file"), 0), (path, libc::AT_REMOVEDIR)] {
                let gone = fs.unlink(At::Root, path.as_bytes(), flags);
                gone.unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
            }
        }
        done += 1;
    }
    done
}

/// Of a process that does so for good.
pub fn make(fs: &FileSystem) {
    println!("ready");
    makes(fs, "others", || false);
}

/// A pool in which the room for what is not folded is short, and space is not.
const LITTLE: u64 = 24 << 20;

/// Members that need room fold; one of them gives back what that has freed, or looks at what others remove, and
/// the others wait for it, however long it does not run.
///
/// # Regression
/// They waited for a tenth of a second for what was given back, and not at all for the numbers of inodes that died
/// while it looked at them: two loops of mkdir and cp met ENOSPC on a busy machine, where a third of the pool
/// was free.
pub fn room_is_waited_for_while_it_is_given_back() {
    let pool = TestPool::new(LITTLE);
    let fs = connect_as(&pool.path(), b"g");
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    let mut other = Process::start(&pool, "makes");
    assert_eq!(other.says(), fs.session().number().to_string());
    assert_eq!(other.says(), "ready");
    let member = worker_number(&fs);
    let is_over = AtomicBool::new(false);
    let mut stopped_inside = 0;
    let done = std::thread::scope(|scope| {
        let making = scope.spawn(|| makes(&fs, "own", || is_over.load(Ordering::Relaxed)));
        for round in 0..24 {
            std::thread::sleep(Duration::from_micros(20_000 + 1_370 * round));
            stop(&other.child, true);
            if fs.session().region().has_inside(member) {
                stopped_inside += 1;
                std::thread::sleep(Duration::from_millis(400));
            }
            stop(&other.child, false);
            if making.is_finished() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        making.join().expect("no error")
    });
    assert!(done > 10 && stopped_inside > 3, "{done} {stopped_inside}");
    assert_eq!(other.child.try_wait().expect("its state"), None, "it ended");
    other.kill();
    fs.names("d").expect("all goes on");
    assert_eq!(pool.violations(), "");
}

/// The number of the member that joined second.
fn worker_number(fs: &FileSystem) -> u16 {
    fs.session().member() + 1
}
