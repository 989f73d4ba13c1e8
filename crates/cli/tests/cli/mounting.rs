//! `arck mount`: a pool as the kernel's file system. Needs root, /dev/fuse and (for other users) fusermount3, and fails
//! where they are missing.

mod calls;
pub mod mount;
mod replaced;
mod table;
mod users;

use crate::support::{Running, Serving, arck, hear_interrupts, refused, run, succeeded};
use mount::Mount;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Held by whoever changes the working directory of the tests' process.
static WORKING: Mutex<()> = Mutex::new(());

/// What is told of names and files by a mount is what tmpfs tells.
#[test]
fn operations_are_those_of_tmpfs() {
    let mount = Mount::made("256M");
    let host = tempfile::Builder::new()
        .prefix("arck-cli-")
        .tempdir_in("/dev/shm")
        .unwrap();
    let mut wrong = Vec::new();
    for (index, (name, row)) in table::ROWS.iter().enumerate() {
        let seen = [mount.path(), host.path().to_path_buf()].map(|place| {
            let folder = place.join(index.to_string());
            std::fs::create_dir(&folder).unwrap();
            let mut seen = table::Seen(String::new());
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| row(&folder, &mut seen)));
            if done.is_err() {
                seen.0 += "panicked\n";
            }
            seen.0
        });
        let [here, there] = &seen;
        if here != there {
            let lines = here.lines().zip(there.lines());
            let first = lines.into_iter().find(|(one, other)| one != other);
            wrong.push(format!("{name}: {first:?}"));
        }
    }
    assert!(wrong.is_empty(), "mount and tmpfs:\n{}", wrong.join("\n"));
    mount.unmount();
}

/// A program under `arck run` on the pool; what it says.
fn beside(mount: &Mount, script: &str) -> String {
    let mut run = run(&mount.pool(), &["--mount", "/arck"], &["sh", "-ec", script]);
    succeeded(&run.current_dir("/").env("LC_ALL", "C").output().unwrap())
}

/// What is done on one side is seen on the other at the next call, whatever either had looked at before.
#[test]
fn programs_under_the_library_see_the_same() {
    let mount = Mount::made("64M");
    let at = |name: &str| mount.path().join(name);
    std::fs::write(at("file"), "from the mount").unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    assert_eq!(
        beside(&mount, "cat /arck/file; ls /arck"),
        "from the mountfile\nfolder\n"
    );
    let open = std::fs::File::options()
        .read(true)
        .write(true)
        .open(at("file"))
        .unwrap();
    let read = || {
        let mut bytes = vec![0; 64];
        let length = open.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(length);
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(read(), "from the mount");
    // Of the same length, within the same tick of a clock perhaps.
    beside(
        &mount,
        "printf 'FROM the library' >/arck/file; mkdir /arck/folder/inner; mv /arck/folder /arck/moved",
    );
    assert_eq!(read(), "FROM the library");
    assert_eq!(std::fs::metadata(at("file")).unwrap().len(), 16);
    assert!(!at("folder").exists() && at("moved/inner").is_dir());
    for round in 0..50 {
        let (here, there) = (format!("{round} here"), format!("{round} there"));
        std::fs::write(at("ball"), &here).unwrap();
        assert_eq!(
            beside(
                &mount,
                &format!("cat /arck/ball; printf '{there}' >/arck/ball")
            ),
            here
        );
        assert_eq!(std::fs::read_to_string(at("ball")).unwrap(), there);
        if round % 10 == 0 {
            beside(
                &mount,
                &format!(
                    "chmod 600 /arck/ball; touch /arck/new-{round}; rm -f /arck/new-{}",
                    round - 10
                ),
            );
        }
    }
    assert_eq!(std::fs::metadata(at("ball")).unwrap().mode() & 0o777, 0o600);
    // Both write one file, each its own part.
    let mut run = run(
        &mount.pool(),
        &["--mount", "/arck"],
        &[
            "sh",
            "-ec",
            "i=0; while [ $i -lt 300 ]; do echo library $i >>/arck/log; i=$((i+1)); done",
        ],
    );
    let other = std::thread::spawn(move || succeeded(&run.output().unwrap()));
    for index in 0..300 {
        let mut log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(at("log"))
            .unwrap();
        log.write_all(format!("mount {index}\n").as_bytes())
            .unwrap();
    }
    other.join().unwrap();
    let log = std::fs::read_to_string(at("log")).unwrap();
    for who in ["library", "mount"] {
        let own: Vec<_> = log.lines().filter(|line| line.starts_with(who)).collect();
        let expected: Vec<_> = (0..300).map(|index| format!("{who} {index}")).collect();
        assert!(own == expected, "{who}:\n{log}");
    }
    assert_eq!(log.lines().count(), 600);
    drop(open);
    mount.unmount();
}

/// Record locks are one and the same on both sides.
#[test]
fn locks_meet_those_of_the_library() {
    let mount = Mount::made("64M");
    std::fs::write(mount.path().join("file"), "x").unwrap();
    let holder = "import fcntl,sys\nf=open('/arck/file','r+'); fcntl.lockf(f,fcntl.LOCK_EX,5,10)\nprint('held',flush=True)\n\
        sys.stdin.readline()\nfcntl.lockf(f,fcntl.LOCK_UN)\nprint('let go',flush=True)\nsys.stdin.readline()";
    let mut other = Running::start_told(run(
        &mount.pool(),
        &["--mount", "/arck"],
        &["/usr/bin/python3", "-c", holder],
    ));
    assert_eq!(other.line(), "held");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(mount.path().join("file"))
        .unwrap();
    let lock = |how, kind: i32, start, length| {
        // SAFETY: numbers, for which zeroes are values.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, start, length);
        // SAFETY: the kernel reads the structure.
        match unsafe { libc::fcntl(file.as_raw_fd(), how, &raw const lock) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        }
    };
    assert_eq!(lock(libc::F_SETLK, libc::F_WRLCK, 12, 1), Err(libc::EAGAIN));
    assert_eq!(lock(libc::F_SETLK, libc::F_RDLCK, 0, 0), Err(libc::EAGAIN));
    assert_eq!(lock(libc::F_SETLK, libc::F_WRLCK, 15, 1), Ok(()));
    other.tell("go on");
    assert_eq!(lock(libc::F_SETLKW, libc::F_WRLCK, 10, 5), Ok(()));
    assert_eq!(other.line(), "let go");
    let taker = "import fcntl\ntry: fcntl.lockf(open('/arck/file','r+'),fcntl.LOCK_EX|fcntl.LOCK_NB)\nexcept OSError as e: print(e.errno)";
    let tried = || {
        succeeded(
            &run(
                &mount.pool(),
                &["--mount", "/arck"],
                &["/usr/bin/python3", "-c", taker],
            )
            .output()
            .unwrap(),
        )
    };
    assert_eq!(tried(), format!("{}\n", libc::EAGAIN));
    drop(file);
    assert_eq!(tried(), "");
    other.tell("end");
    assert!(other.finished(mount::SOON).status.success());
    mount.unmount();
}

/// What was acknowledged is there when the mount's process was killed, and the next mount takes the dead one's place.
#[test]
fn a_killed_mount_loses_nothing_and_is_replaced() {
    let mut mount = Mount::prepared("64M");
    for round in 0..3 {
        mount.mount_in_foreground();
        let folder = mount.path().join(format!("{round}"));
        std::fs::create_dir(&folder).unwrap();
        let mut written = 0;
        let server = mount.server.as_mut().unwrap();
        let (pid, since) = (server.id().cast_signed(), std::time::Instant::now());
        let killer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100 + 50 * round));
            // SAFETY: a signal to the test's own child, which has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        while std::fs::write(folder.join(format!("{written}")), format!("file {written}")).is_ok() {
            written += 1;
            assert!(since.elapsed() < mount::SOON);
        }
        killer.join().unwrap();
        server.wait().unwrap();
        let error = std::fs::metadata(mount.path()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
        mount.mount();
        for index in 0..written {
            assert_eq!(
                std::fs::read_to_string(folder.join(format!("{index}"))).unwrap(),
                format!("file {index}")
            );
        }
        assert!(written > 10);
        mount.unmount();
    }
}

fn kill_controller(pool: &Path) {
    let text = std::fs::read_to_string(pool.join("lock")).unwrap();
    let process = text.trim().parse().unwrap();
    // SAFETY: a signal to the pool's controller.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
}

/// A controller that is killed is followed by another one, and the mount goes on, with what is open.
#[test]
fn a_mount_outlives_its_controller() {
    let mount = Mount::made("64M");
    let path = mount.path().join("file");
    let open = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    for round in 0..3u64 {
        open.write_at(format!("round {round}").as_bytes(), round * 10_000)
            .unwrap();
        std::fs::write(mount.path().join(format!("{round}")), "x").unwrap();
        kill_controller(&mount.pool());
        // What needs the controller waits for the next one.
        rustix::fs::statvfs(mount.path()).unwrap();
        assert_eq!(
            beside(&mount, &format!("ls /arck/{round}; tail -c 7 /arck/file")),
            format!("/arck/{round}\nround {round}")
        );
        let mut bytes = [0; 7];
        open.read_exact_at(&mut bytes, round * 10_000).unwrap();
        assert_eq!(bytes, format!("round {round}").as_bytes());
    }
    drop(open);
    mount.unmount();
}

/// `arck serve` that ends in order and is started again: what is done from then on is served.
#[test]
fn a_mount_goes_on_with_the_next_service() {
    let mount = Mount::prepared("64M");
    let serve = || Serving::start(&mount.pool(), &[]);
    let mut serving = serve();
    mount.mount();
    std::fs::write(mount.path().join("before"), "x").unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    let mut serving = serve();
    mount::until("it goes on", || {
        std::fs::write(mount.path().join("after"), "y").is_ok()
    });
    assert_eq!(
        std::fs::read_to_string(mount.path().join("before")).unwrap(),
        "x"
    );
    let status = Command::new("umount").arg(mount.path()).status().unwrap();
    assert!(status.success());
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

/// What cannot be mounted is refused, each by one line that says what to do.
#[test]
fn what_cannot_be_mounted_is_refused_with_advice() {
    let mount = Mount::prepared("16M");
    let [pool, point] = [mount.pool(), mount.path()];
    let other = |name: &str| mount.place.path().join(name);
    std::fs::create_dir_all(other("full/inner")).unwrap();
    std::fs::create_dir(other("empty")).unwrap();
    std::fs::write(other("file"), "").unwrap();
    let try_at = |pool: &Path, point: &Path, says: &str| {
        for foreground in [&[][..], &["--foreground"]] {
            let output = arck()
                .arg("mount")
                .arg(pool)
                .arg(point)
                .args(foreground)
                .output()
                .unwrap();
            refused(&output, says);
            assert!(point == Path::new("/proc") || !mount::is_mounted(point));
        }
    };
    try_at(&pool, &other("none"), "mkdir");
    try_at(&pool, &other("file"), "not a directory");
    try_at(&pool, &other("file/x"), "is a file");
    try_at(&pool, &other("full"), "--nonempty");
    try_at(&other("none"), &point, "arck mkfs");
    try_at(&other("empty"), &point, "not a pool");
    try_at(&other("file"), &point, "is a file");
    try_at(&pool, mount.place.path(), "not empty");
    try_at(&pool, Path::new("/proc"), "another directory");
    // The pool beneath its own mount.
    let output = arck()
        .args(["mount", "--nonempty"])
        .arg(&pool)
        .arg(mount.place.path())
        .output()
        .unwrap();
    refused(&output, "beneath");
    mount.mount();
    refused(&mount.try_to_mount(&[]), "already");
    mount.unmount();
    // Hidden, because it is wanted.
    let output = arck()
        .args(["mount", "--nonempty"])
        .arg(&pool)
        .arg(other("full"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!other("full/inner").exists());
    assert!(mount::detach(&other("full")));
    assert!(other("full/inner").exists());
    let output = arck().arg("mount").arg(&pool).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// SIGTERM, SIGINT and umount end it; what was done is folded, and the pool is closed.
#[test]
fn a_mount_ends_in_order() {
    for signal in [Some(libc::SIGTERM), Some(libc::SIGINT), None] {
        let mut mount = Mount::prepared("16M");
        hear_interrupts();
        mount.mount_in_foreground();
        std::fs::write(mount.path().join("file"), "kept").unwrap();
        let mut server = mount.server.take().unwrap();
        match signal {
            // SAFETY: a signal to the test's own child, which has not been waited for.
            Some(signal) => assert_eq!(unsafe { libc::kill(server.id().cast_signed(), signal) }, 0),
            None => assert!(
                Command::new("umount")
                    .arg(mount.path())
                    .status()
                    .unwrap()
                    .success()
            ),
        }
        assert!(server.wait().unwrap().success(), "{signal:?}");
        assert!(!mount::is_mounted(&mount.path()));
        let checked = arck().arg("check").arg(mount.pool()).output().unwrap();
        assert_eq!(succeeded(&checked), "");
        assert_eq!(beside(&mount, "cat /arck/file"), "kept");
    }
}

/// A mount that only reads.
#[test]
fn a_read_only_mount_changes_nothing() {
    let mount = Mount::prepared("16M");
    beside(&mount, "echo x >/arck/file");
    let output = mount.try_to_mount(&["--read-only"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        std::fs::read_to_string(mount.path().join("file")).unwrap(),
        "x\n"
    );
    for done in [
        std::fs::write(mount.path().join("file"), "y"),
        std::fs::write(mount.path().join("new"), "y"),
        std::fs::create_dir(mount.path().join("folder")),
        std::fs::remove_file(mount.path().join("file")),
    ] {
        assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    mount.unmount();
}

/// `mount.arck`, as mount(8) runs it.
#[test]
fn mount_runs_it_by_the_name_of_its_helper() {
    let mount = Mount::prepared("16M");
    let helper = mount.place.path().join("mount.arck");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_arck"), &helper).unwrap();
    let run = |options: &[&str]| {
        let mut command = Command::new(&helper);
        command.arg(mount.pool()).arg(mount.path()).args(options);
        command.output().unwrap()
    };
    refused(&run(&["-o", "rw,quickly"]), "quickly");
    let output = run(&["-o", "ro,noauto,x-systemd.requires=x"]);
    assert!(output.status.success(), "{output:?}");
    let done = std::fs::write(mount.path().join("file"), "y");
    assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EROFS));
    mount.unmount();
}

/// `arck serve --mount`: mounted when it says that it is ready, and unmounted when it has ended.
#[test]
fn a_service_mounts_its_pool() {
    let mount = Mount::prepared("16M");
    let point = mount.path();
    let serve = || Serving::start(&mount.pool(), &["--mount", point.to_str().unwrap()]);
    let mut serving = serve();
    assert!(mount::is_mounted(&point));
    std::fs::write(point.join("file"), "x").unwrap();
    assert_eq!(beside(&mount, "cat /arck/file"), "x");
    // Somebody has it open still.
    let open = std::fs::File::open(point.join("file")).unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    assert!(!mount::is_mounted(&point));
    let error = open.read_at(&mut [0], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    // Killed: the mount ends too.
    let mut serving = serve();
    assert_eq!(std::fs::read_to_string(point.join("file")).unwrap(), "x");
    serving.process.kill().unwrap();
    serving.process.wait().unwrap();
    mount::until("it is unmounted", || !mount::is_mounted(&point));
    // What cannot be mounted is not served.
    let mut serve = arck();
    serve
        .arg("serve")
        .arg(mount.pool())
        .arg("--mount")
        .arg(mount.place.path().join("none"));
    refused(&serve.output().unwrap(), "mkdir");
    let output = arck().arg("check").arg(mount.pool()).output().unwrap();
    assert_eq!(succeeded(&output), "");
}

/// Maps and programs of the mount are of what the library wrote last, from when they are made.
#[test]
fn maps_and_programs_are_of_the_last_contents() {
    let mount = Mount::made("64M");
    let at = |name: &str| mount.path().join(name);
    let size = 3 * 4096;
    for round in 0..5u8 {
        let letter = char::from(b'a' + round);
        let script = format!(
            "printf '%{size}s' '' | tr ' ' {letter} >/arck/file; \
             printf '#!/bin/sh\\necho {letter}\\n' >/arck/script; chmod 755 /arck/script"
        );
        beside(&mount, &script);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(at("file"))
            .unwrap();
        // SAFETY: a new map of the file, wherever the kernel puts it, which nobody cuts.
        let map = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let map = libc::mmap(
                std::ptr::null_mut(),
                size,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(map.cast::<u8>(), size)
        };
        assert!(
            map.iter().all(|&byte| byte == b'a' + round),
            "{round}: {}",
            map[0]
        );
        assert_eq!(
            succeeded(&Command::new(at("script")).output().unwrap()),
            format!("{letter}\n")
        );
        map[5000] = b'!';
        // SAFETY: the map.
        let synced = unsafe { libc::msync(map.as_mut_ptr().cast(), size, libc::MS_SYNC) };
        assert_eq!(synced, 0);
        assert_eq!(beside(&mount, "tr -d a-z </arck/file"), "!");
        map[6000] = b'?';
        // SAFETY: the map, which nobody uses any more.
        unsafe { libc::munmap(map.as_mut_ptr().cast(), size) };
        drop(file);
        assert_eq!(beside(&mount, "tr -d a-z </arck/file"), "!?");
    }
    mount.unmount();
}

/// A file that was removed before a fold left its number to another one, and who had it by a descriptor of O_PATH looked at
/// that one, opened it and changed it.
#[test]
fn what_has_the_number_of_a_removed_file_is_another_one() {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    let mount = Mount::made("64M");
    let path = mount.path().join("removed");
    std::fs::write(&path, "mine").unwrap();
    let held = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
    let number = std::fs::metadata(&path).unwrap().ino();
    std::fs::remove_file(&path).unwrap();
    let gets_it = (0..1000).any(|place| {
        let path = mount.path().join(place.to_string());
        std::fs::write(&path, "another's").unwrap();
        std::fs::metadata(&path).unwrap().ino() == number
    });
    assert!(gets_it);
    let read = std::fs::read(format!("/proc/self/fd/{}", held.as_raw_fd()));
    assert!(read.is_err(), "{read:?}");
    assert!(rustix::fs::fstat(&held).is_err());
    drop(held);
    mount.unmount();
}

/// What `docs/differences.md` says of a mount; and the mount goes on after requests that the FUSE library does not know.
#[test]
fn what_differs_is_as_it_is_told() {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
    let mount = Mount::made("16M");
    let nameless = OFlags::TMPFILE | OFlags::RDWR;
    let opened = rustix::fs::open(mount.path(), nameless, Mode::RUSR);
    assert_eq!(opened.map(drop), Err(rustix::io::Errno::OPNOTSUPP));
    let path = mount.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let told = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
    assert_eq!(told.stx_mask & StatxFlags::BTIME.bits(), 0);
    let file = std::fs::File::open(&path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file);
    assert_eq!(flags, Ok(rustix::fs::IFlags::empty()));
    drop(file);
    std::fs::remove_file(&path).unwrap();
    assert!(std::fs::read_dir(mount.path()).unwrap().next().is_none());
    mount.unmount();
}
