//! `arck check`: what its status says, lines and JSON, a repair, a pool that is served, and pools
//! that cannot be checked.

use crate::support::{Place, Serving, arck, mkfs, refused, run, succeeded};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

fn check(pool: &Path, arguments: &[&str]) -> Output {
    let mut command = arck();
    command.arg("check").arg(pool).args(arguments);
    command.output().unwrap()
}

/// A pool with a page that is marked as in use, and that nothing uses.
fn damaged() -> Place {
    let place = Place::made();
    let bitmap = place.pool().join("pages");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(bitmap)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 60).unwrap();
    assert_eq!(byte[0] & 1, 0);
    file.write_all_at(&[byte[0] | 1], 60).unwrap();
    place
}

#[test]
fn the_status_says_whether_anything_was_found() {
    let place = Place::made();
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    let place = damaged();
    let found = check(&place.pool(), &[]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(text.starts_with("page-leaked: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(found.stderr.is_empty(), "{found:?}");
    let missing = check(&place.path().join("nowhere"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(text.starts_with("arck check: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// It said "Permission denied", and not whose the pool is. Needs root, to be somebody else.
#[test]
fn who_may_not_check_a_pool_is_told_who_may() {
    assert!(
        rustix::process::geteuid().is_root(),
        "needs root, to be somebody else"
    );
    let (place, arck) = Place::of_users(0);
    assert!(mkfs(&place.pool(), &["--size", "16M"]).status.success());
    // As that of a pool for all users.
    std::fs::set_permissions(place.pool(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = std::process::Command::new(arck)
        .arg("check")
        .arg(place.pool())
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("run this as its owner (user 0)"), "{text}");
}

#[test]
fn json_has_an_object_a_line() {
    let place = damaged();
    let found = check(&place.pool(), &["--json"]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0]["rule"], "page-leaked");
    assert_eq!(lines[1]["findings"], 1);
    assert_eq!(lines[1]["closed"], true);
}

#[test]
fn a_repair_tells_what_it_did_and_then_all_is_well() {
    let place = damaged();
    let mended = check(&place.pool(), &["--repair"]);
    assert_eq!(mended.status.code(), Some(1), "{mended:?}");
    assert!(mended.stdout.starts_with(b"page-leaked: "), "{mended:?}");
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    // One in order is left alone.
    assert_eq!(succeeded(&check(&place.pool(), &["--repair"])), "");
}

#[test]
fn a_pool_that_is_served_is_checked_and_not_mended() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &[]);
    let found = check(&place.pool(), &["--json"]);
    let text = succeeded(&found);
    assert!(text.contains("\"served\":true"), "{text}");
    let refused = check(&place.pool(), &["--repair"]);
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("is in use"), "{text}");
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn data_that_is_missing_is_told_of_with_whose_it_was() {
    let place = Place::made();
    let pool = place.pool();
    let make = "cd /arck; mkdir d; printf 12345678 > d/file; : > empty";
    let made = run(&pool, &[], &["sh", "-c", make]).output().unwrap();
    succeeded(&made);
    let table = std::fs::read(pool.join("segment-table")).unwrap();
    let data = table.chunks_exact(32).position(|entry| entry[0] == 2);
    let name = format!("segments/{:08x}", data.unwrap());
    std::fs::remove_file(pool.join(&name)).unwrap();
    let found = check(&pool, &[]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(text.lines().count(), 2, "{text}");
    let whole = format!("files: is missing, and a page of it is in use ({name})");
    assert!(text.lines().any(|line| line == whole), "{text}");
    assert!(
        text.contains("/d/file: a page of it was in what is missing"),
        "{text}"
    );
    // Nobody serves it so.
    let served = arck().arg("serve").arg(&pool).output().unwrap();
    refused(&served, &name);
    let ran = run(&pool, &[], &["cat", "/arck/empty"]).output().unwrap();
    assert!(!ran.status.success());
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        text.contains(&name) && text.contains("arck check"),
        "{text}"
    );
    // Until it is mended: what was there is zeroes.
    assert_eq!(check(&pool, &["--repair"]).status.code(), Some(1));
    assert_eq!(succeeded(&check(&pool, &[])), "");
    let read = run(&pool, &[], &["cat", "/arck/d/file"]).output().unwrap();
    assert_eq!(succeeded(&read), "\0".repeat(8));
}

#[test]
fn a_superblock_that_is_damaged_is_put_back_from_its_copy() {
    let place = Place::made();
    let path = place.pool().join("superblock");
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[20] ^= 0xff;
    let told = |output: &Output, says: &str| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("arck check: cannot check "), "{text}");
        assert!(text.contains(says), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    for is_gone in [false, true] {
        match is_gone {
            false => std::fs::write(&path, &bytes).unwrap(),
            true => std::fs::remove_file(&path).unwrap(),
        }
        told(&check(&place.pool(), &[]), "--repair");
        // Nobody serves it, but it is said how to mend it.
        let served = arck().arg("serve").arg(place.pool()).output().unwrap();
        refused(&served, "--repair");
        let mended = check(&place.pool(), &["--repair"]);
        assert_eq!(mended.status.code(), Some(1), "{mended:?}");
        let text = String::from_utf8_lossy(&mended.stdout).into_owned();
        assert!(text.contains("repaired: put the superblock back"), "{text}");
        assert_eq!(succeeded(&check(&place.pool(), &[])), "");
        let mut serving = Serving::start(&place.pool(), &[]);
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
    // A copy that is not whole is told of, and mended too.
    let copy = place.pool().join("superblock.copy");
    std::fs::write(&copy, b"no copy").unwrap();
    assert_eq!(check(&place.pool(), &["--repair"]).status.code(), Some(1));
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    // Without it nothing can be done.
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    std::fs::write(&path, &bytes).unwrap();
    for arguments in [&[][..], &["--repair"]] {
        told(&check(&place.pool(), arguments), "backup");
    }
    let served = arck().arg("serve").arg(place.pool()).output().unwrap();
    refused(&served, "backup");
}

/// On a terminal it is shown how far a check is that takes longer than a moment; nothing of that is
/// left at the end. (The check was stopped for a while once it had begun: on a fast machine it had ended
/// before. Now it is traced, and stops when it has opened the first table.)
#[test]
fn how_far_it_is_is_shown_on_a_terminal() {
    let place = Place::new();
    assert!(mkfs(&place.pool(), &["--size", "16M"]).status.success());
    let moment = Duration::from_millis(500);
    let shown = |is_slow: bool| {
        let (terminal, slave) = terminal();
        let began = std::time::Instant::now();
        let mut command = arck();
        command.arg("check").arg(place.pool()).env("TERM", "xterm");
        if is_slow {
            traced(&mut command);
        }
        let mut child = command.stderr(slave).spawn().unwrap();
        // Ours has to be closed, so that its end is seen.
        drop(command);
        if is_slow {
            let files = format!("/proc/{}/fd", child.id());
            let headers = place.pool().join("headers");
            let has_begun = || {
                let mut open = std::fs::read_dir(&files).unwrap();
                open.any(|file| {
                    std::fs::read_link(file.unwrap().path()).is_ok_and(|f| f == headers)
                })
            };
            stop_until_later(&child, moment, has_begun);
        }
        let mut text = Vec::new();
        // Where the other end is closed, EIO.
        let _ = std::io::Read::read_to_end(&mut { terminal }, &mut text);
        assert!(child.wait().unwrap().success());
        (String::from_utf8_lossy(&text).into_owned(), began.elapsed())
    };
    // On a busy machine the smallest pool may take longer than a moment.
    let quick = (0..50)
        .map(|_| shown(false))
        .find(|(_, time)| *time < moment);
    assert_eq!(quick.expect("a check that takes a moment").0, "");
    let (text, _) = shown(true);
    assert!(text.contains("checking ") && text.contains('%'), "{text:?}");
    // The last thing is that its line is cleared.
    assert!(text.trim_end().ends_with("\u{1b}[2K"), "{text:?}");
}

/// Who is started so is traced by this thread, and stops at its beginning.
fn traced(command: &mut Command) {
    // SAFETY: one system call, in a child that has not executed anything yet.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

/// Lets a process that is traced go on from system call to system call until something is so; stops it there for
/// longer than a moment; then lets it go.
fn stop_until_later(child: &Child, moment: Duration, is_so: impl Fn() -> bool) {
    let process = libc::pid_t::try_from(child.id()).unwrap();
    let stopped_by = || {
        let mut status = 0;
        // SAFETY: waits for our own child, into a local variable.
        let ended = unsafe { libc::waitpid(process, &raw mut status, 0) };
        assert_eq!(ended, process);
        assert!(libc::WIFSTOPPED(status), "it ended before: {status:#x}");
        libc::WSTOPSIG(status)
    };
    let go_on = |how, signal: libc::c_int| {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: our own child, which is stopped and traced; no memory is involved.
        assert_eq!(unsafe { libc::ptrace(how, process, none, signal) }, 0);
    };
    assert_eq!(stopped_by(), libc::SIGTRAP);
    while !is_so() {
        go_on(libc::PTRACE_SYSCALL, 0);
        let signal = stopped_by();
        assert_eq!(signal, libc::SIGTRAP, "a signal that is not told");
    }
    std::thread::sleep(moment + Duration::from_millis(100));
    go_on(libc::PTRACE_DETACH, 0);
}

/// A terminal: what is behind it, and what a program gets.
fn terminal() -> (std::fs::File, std::fs::File) {
    let (mut behind, mut before) = (-1, -1);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let none = std::ptr::null_mut();
    // SAFETY: both numbers have a place, no name is asked for, and the size lives.
    let made = unsafe {
        libc::openpty(
            &raw mut behind,
            &raw mut before,
            none,
            none.cast(),
            &raw const size,
        )
    };
    assert_eq!(made, 0);
    // SAFETY: just made, and nobody else's.
    unsafe {
        (
            std::fs::File::from_raw_fd(behind),
            std::fs::File::from_raw_fd(before),
        )
    }
}

/// A repair whose output is lost, by a full file system or a kill before it is printed: the next one
/// tells it all the same, once.
#[test]
fn what_a_repair_found_is_told_by_the_next_if_nobody_was_told() {
    let whole = check(&damaged().pool(), &["--repair"]).stdout;
    let whole = String::from_utf8(whole).unwrap();
    assert!(whole.contains("\nrepaired: "), "{whole}");
    let earlier: String = whole
        .lines()
        .map(|line| format!("earlier: {line}\n"))
        .collect();
    for is_killed in [false, true] {
        let place = damaged();
        let mut repair = arck();
        repair.arg("check").arg(place.pool()).arg("--repair");
        let report = place.pool().join("repair-report");
        if is_killed {
            // A pipe that is full: it cannot print anything.
            let (reader, mut writer) = std::io::pipe().unwrap();
            rustix::io::ioctl_fionbio(&writer, true).unwrap();
            while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
            rustix::io::ioctl_fionbio(&writer, false).unwrap();
            let mut child = repair.stdout(writer).spawn().unwrap();
            let began = std::time::Instant::now();
            // Until the page is marked as free; a check would keep the repair from the pool.
            let bitmap = std::fs::File::open(place.pool().join("pages")).unwrap();
            let is_marked = || {
                let mut byte = [0];
                bitmap.read_exact_at(&mut byte, 60).unwrap();
                byte[0] & 1 != 0
            };
            while is_marked() {
                assert!(began.elapsed() < std::time::Duration::from_secs(60));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            drop(reader);
        } else {
            let full = std::fs::File::options().write(true).open("/dev/full");
            let output = repair.stdout(full.unwrap()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains(report.to_str().unwrap()), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        let kept = std::fs::read_to_string(&report).unwrap();
        assert_eq!(kept.split_once('\n').unwrap().1, whole);
        // A check finds nothing, and says that there is something to be told.
        let found = check(&place.pool(), &[]);
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        let text = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(text.contains("is told by: arck check --repair"), "{text}");
        let told = check(&place.pool(), &["--repair"]);
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        assert_eq!(String::from_utf8_lossy(&told.stdout), earlier);
        // Once.
        assert_eq!(succeeded(&check(&place.pool(), &["--repair"])), "");
        assert_eq!(succeeded(&check(&place.pool(), &[])), "");
        let kept = std::fs::read_to_string(&report).unwrap();
        assert_eq!(kept.split_once('\n').unwrap().1, whole);
    }
}
