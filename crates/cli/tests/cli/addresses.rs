//! What a session costs of a process's address space: under a limit of it, in core dumps, and for who reads
//! all that a process has mapped.

use crate::support::{Place, Serving, arck, mkfs, run, succeeded};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// A place with a pool of this size.
fn place(size: &str) -> Place {
    let place = Place::new();
    let made = mkfs(&place.pool(), &["--size", size]);
    assert!(made.status.success(), "{made:?}");
    place
}

/// Ends a controller, and waits for it.
fn stop(mut serving: Serving) {
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

fn nothing_is_refused(pool: &Path) {
    let violations = arck().arg("violations").arg(pool).output();
    let text = succeeded(&violations.unwrap());
    assert!(text.starts_with("nothing was refused on "), "{text}");
}

/// `arck run` of a shell, of a group.
fn shell(pool: &Path, script: &str) -> Command {
    run(pool, &["--group", "addresses"], &["sh", "-c", script])
}

/// Each process of a group mapped 34 GiB: under `ulimit -v` none could open a session.
#[test]
fn programs_run_under_a_limit_of_address_space() {
    // Long enough for a pool of its span not to fit.
    let place = place("2G");
    let serving = Serving::start(&place.pool(), &[]);
    for limit in [1 << 20, 256 << 10, 128 << 10] {
        let script = format!(
            "ulimit -v {limit}; set -e; mkdir /arck/{limit}; cd /arck/{limit}; seq 1 300000 > a
             cp a b; cmp a b; for i in 1 2 3 4 5; do mkdir d$i; cp a d$i/c; done
             find . -type f | wc -l; tail -c 7 d3/c; rm -r d1; ls | wc -l"
        );
        let output = shell(&place.pool(), &script).output().unwrap();
        assert_eq!(succeeded(&output), "7\n300000\n6\n", "{limit}");
    }
    stop(serving);
    nothing_is_refused(&place.pool());
}

/// A shell that had used the pool before it set the limit could not start anything any more.
#[test]
fn a_shell_sets_a_limit_when_it_has_used_the_pool() {
    let place = place("2G");
    let serving = Serving::start(&place.pool(), &[]);
    for shell in ["sh", "bash"] {
        let script = "cd /arck; echo a > x; ulimit -v 262144; ls; seq 1 1000 > f; wc -l < f
             a=$(seq 1 20000); echo ${#a}; (cat x; echo b > x); cat x f | tail -n 1; rm f
             mkdir d; cd d; echo c > y; cp y z; cat z; cd ..; rm -r d; ls";
        let command = [shell, "-c", script];
        let output = run(&place.pool(), &["--group", "addresses"], &command);
        let output = { output }.output().unwrap();
        let expected = "x\n1000\n108893\na\n1000\nc\nx\n";
        assert_eq!(succeeded(&output), expected, "{shell}");
    }
    stop(serving);
}

/// A member that cannot follow what its group has begun to use gets ENOMEM, is told why, and harms nobody.
#[test]
fn who_cannot_follow_its_group_is_told_and_harms_nobody() {
    let place = place("256M");
    let serving = Serving::start(&place.pool(), &[]);
    // What the group knows of so many files does not fit.
    let many = "mkdir /arck/many; cd /arck/many; seq 1 60000 | xargs -n 5000 touch; ls | wc -l";
    let mut hold = shell(&place.pool(), &format!("{many}; exec tail -f /arck/many/1"));
    let mut hold = hold.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(hold.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "60000");
    for limit in [28 << 10, 36 << 10] {
        let script = format!("ulimit -v {limit}; exec cat /arck/many/7");
        let output = shell(&place.pool(), &script).output().unwrap();
        assert!(!output.status.success(), "{limit}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("ulimit -v"), "{limit}: {text}");
    }
    let output = shell(
        &place.pool(),
        "ls /arck/many | wc -l; echo x > /arck/many/new; cat /arck/many/new",
    );
    assert_eq!(succeeded(&{ output }.output().unwrap()), "60000\nx\n");
    hold.kill().unwrap();
    hold.wait().unwrap();
    stop(serving);
    nothing_is_refused(&place.pool());
}

/// A map of a process: addresses, whether it can be read, and its file.
struct Map {
    from: u64,
    to: u64,
    is_readable: bool,
    name: String,
    is_dumped: bool,
}

fn maps(process: u32) -> Vec<Map> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let mut maps: Vec<Map> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let last = maps.last_mut().unwrap();
            last.is_dumped = !flags.split_whitespace().any(|flag| flag == "dd");
            continue;
        }
        let mut words = line.split_whitespace();
        let Some((from, to)) = words.next().and_then(|word| word.split_once('-')) else {
            continue;
        };
        let number = |text| u64::from_str_radix(text, 16);
        if let (Ok(from), Ok(to)) = (number(from), number(to)) {
            maps.push(Map {
                from,
                to,
                is_readable: words.next().unwrap().starts_with('r'),
                name: words.nth(3).unwrap_or_default().to_owned(),
                is_dumped: true,
            });
        }
    }
    maps
}

/// A process of a group that has used the pool and has a file of it open.
fn user(pool: &Path) -> (Child, u32) {
    let script = "mkdir /arck/d; for i in 1 2 3 4 5; do seq 1 20000 > /arck/d/$i; done; ls /arck/d > /arck/l
                  sleep 1000 & echo $!; exec perl -e 'open F, \"/arck/d/1\" or die; $_ = <F>; print \"$$\n\";
                  $| = 1; print \"\"; sleep 1000'";
    let mut child = shell(pool, script).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let asleep: i32 = lines.next().unwrap().unwrap().parse().unwrap();
    let process = lines.next().unwrap().unwrap().parse().unwrap();
    // SAFETY: a signal to what the script has just started.
    unsafe { libc::kill(asleep, libc::SIGKILL) };
    (child, process)
}

/// Ends it, and with it its `arck run`, which would leave it behind if that were killed.
fn end(child: &mut Child, process: u32) {
    // SAFETY: a signal to what the script has become, which nobody waits for before.
    unsafe { libc::kill(process as i32, libc::SIGKILL) };
    child.wait().unwrap();
}

/// Memory that shared files of a process take, in bytes: each once, by its inode.
fn shared_memory(process: u32, pool: &Path) -> u64 {
    let mut seen = std::collections::BTreeMap::new();
    let mut note = |path: &Path| {
        if let Ok(status) = std::fs::metadata(path) {
            seen.insert((status.dev(), status.ino()), status.blocks() * 512);
        }
    };
    for entry in std::fs::read_dir(format!("/proc/{process}/fd")).unwrap() {
        let path = entry.unwrap().path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        if target.to_string_lossy().starts_with("/memfd:") {
            note(&path);
        }
    }
    let mut folders = vec![pool.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => note(&path),
            }
        }
    }
    seen.values().sum()
}

/// A scanner that reads all that a process has mapped took 24 GiB of shared memory, and drove the machine
/// out of it.
#[test]
fn who_reads_all_that_is_mapped_fills_nothing() {
    let place = place("1G");
    let serving = Serving::start(&place.pool(), &[]);
    let (mut child, process) = user(&place.pool());
    let before = shared_memory(process, &place.pool());
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut buffer = vec![0; MIB as usize];
    let mut read = 0;
    for map in maps(process).iter().filter(|map| map.is_readable) {
        let mut at = map.from;
        while at < map.to {
            let length = (map.to - at).min(MIB) as usize;
            match memory.read_at(&mut buffer[..length], at) {
                Ok(count @ 1..) => (at, read) = (at + count as u64, read + count as u64),
                // Behind the end of a file, or the kernel's own.
                _ => at += 4096,
            }
        }
    }
    let after = shared_memory(process, &place.pool());
    assert!(before > MIB, "nothing was looked at: {before}");
    assert!(read > MIB, "nothing was read: {read}");
    assert!(
        after - before < 16 * MIB,
        "{} MiB of shared memory more, of {} MiB read",
        (after - before) / MIB,
        read / MIB
    );
    assert!(read < 256 * MIB, "{} MiB can be read", read / MIB);
    end(&mut child, process);
    stop(serving);
}

/// What a session has mapped is in the pool, or means nothing without the process: a core file is of the
/// program.
#[test]
fn what_a_session_maps_is_left_out_of_core_files() {
    let place = place("64M");
    let serving = Serving::start(&place.pool(), &[]);
    let (mut child, process) = user(&place.pool());
    let pool = place.pool();
    let pool = pool.to_str().unwrap();
    let all = maps(process);
    let of_session = all.iter().filter(|map| {
        let is_large = map.to - map.from > 16 * MIB && map.name.is_empty() && !map.is_readable;
        map.name.starts_with(pool) || map.name.starts_with("/memfd:arck") || is_large
    });
    let of_session: Vec<_> = of_session.collect();
    assert!(of_session.len() > 4, "the session is not found");
    for map in of_session {
        assert!(!map.is_dumped, "{:x}-{:x} {}", map.from, map.to, map.name);
    }
    end(&mut child, process);
    stop(serving);
}
