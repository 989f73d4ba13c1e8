//! Advisory locks.

use super::Seen;
use rustix::fs::{self};
use std::fs::{File, OpenOptions, write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

/// fcntl's lock calls, by another process.
fn other_process(at: &Path, kind: i32, start: i64, length: i64) -> String {
    let script = "import fcntl,struct,sys,os\n\
        f=os.open('file',os.O_RDWR)\n\
        kind,start,length=map(int,sys.argv[1:])\n\
        r=fcntl.fcntl(f,fcntl.F_GETLK,struct.pack('hhqqi',kind,0,start,length,0))\n\
        k,_,s,l,p=struct.unpack('hhqqi',r)\n\
        print(k,s,l,p==os.getppid()) if k!=fcntl.F_UNLCK else print('free')\n\
        try:\n fcntl.fcntl(f,fcntl.F_SETLK,struct.pack('hhqqi',kind,0,start,length,0)); print('locked')\n\
        except OSError as e: print('refused',e.errno)\n";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .args([kind.to_string(), start.to_string(), length.to_string()])
        .current_dir(at)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn set_lock(file: &File, kind: i32, start: i64, length: i64) -> Result<(), Option<i32>> {
    // SAFETY: numbers, for which zeroes are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_start = start;
    lock.l_len = length;
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error()),
    }
}

pub fn record_locks(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "0123456789").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    seen.note("lock", set_lock(&file, libc::F_WRLCK, 2, 4));
    seen.note("another there", other_process(at, libc::F_WRLCK, 0, 3));
    seen.note("another beside", other_process(at, libc::F_WRLCK, 6, 1));
    seen.note("another to the end", other_process(at, libc::F_RDLCK, 5, 0));
    seen.note("down to shared", set_lock(&file, libc::F_RDLCK, 2, 2));
    seen.note("another shares", other_process(at, libc::F_RDLCK, 2, 2));
    seen.note("another does not", other_process(at, libc::F_WRLCK, 2, 1));
    seen.note("the rest is kept", other_process(at, libc::F_RDLCK, 4, 1));
    seen.note("unlock the middle", set_lock(&file, libc::F_UNLCK, 3, 1));
    seen.note("another there", other_process(at, libc::F_WRLCK, 3, 1));
    let reader = File::open(&path).unwrap();
    seen.note("not for writing", set_lock(&reader, libc::F_WRLCK, 9, 1));
    seen.note("by it too", set_lock(&reader, libc::F_RDLCK, 9, 1));
}

pub fn locks_end(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "x").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    seen.note("lock", set_lock(&file, libc::F_WRLCK, 0, 0));
    seen.note("held", other_process(at, libc::F_WRLCK, 0, 0));
    // Any descriptor of the file.
    drop(File::open(&path).unwrap());
    seen.note("gone", other_process(at, libc::F_WRLCK, 0, 0));
}

pub fn lock_interrupted(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "x").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(at.join("file"))
        .unwrap();
    set_lock(&file, libc::F_WRLCK, 0, 0).unwrap();
    let script = "import fcntl,signal,time,sys\n\
        def ring(*_): raise TimeoutError\n\
        signal.signal(signal.SIGALRM,ring); f=open('file','r+'); signal.setitimer(signal.ITIMER_REAL,0.2)\n\
        try: fcntl.lockf(f,fcntl.LOCK_EX); print('locked')\n\
        except TimeoutError: print('interrupted')\n\
        sys.stdout.flush(); signal.setitimer(signal.ITIMER_REAL,0); fcntl.lockf(f,fcntl.LOCK_EX); print('locked')\n";
    let start = |script: &str| {
        let mut command = Command::new("/usr/bin/python3");
        command
            .args(["-c", script])
            .current_dir(at)
            .stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let waiting = start(script);
    let mut killed = start("import fcntl; fcntl.lockf(open('file','r+'),fcntl.LOCK_EX)");
    std::thread::sleep(std::time::Duration::from_millis(500));
    killed.kill().unwrap();
    seen.note("killed while it waits", killed.wait().unwrap().success());
    set_lock(&file, libc::F_UNLCK, 0, 0).unwrap();
    seen.note(
        "says",
        String::from_utf8(waiting.wait_with_output().unwrap().stdout),
    );
}

pub fn flock(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "x").unwrap();
    let (one, two) = (
        File::open(at.join("file")).unwrap(),
        File::open(at.join("file")).unwrap(),
    );
    let now = |file: &File, how| fs::flock(file, how);
    seen.note(
        "one",
        now(&one, fs::FlockOperation::NonBlockingLockExclusive),
    );
    seen.note("two", now(&two, fs::FlockOperation::NonBlockingLockShared));
    seen.note("unlocked", now(&one, fs::FlockOperation::Unlock));
    seen.note("two", now(&two, fs::FlockOperation::NonBlockingLockShared));
    seen.note("both", now(&one, fs::FlockOperation::NonBlockingLockShared));
}
