//! `arck serve --shared`: programs of several users on one pool, each with his own rights. Needs
//! root, to become them; says so where it is not.

use crate::support::{Place, Running, Serving, refused, succeeded};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Who serves the pool.
pub const SERVER: (u32, &[u32]) = (990, &[990]);
pub const ANN: (u32, &[u32]) = (1001, &[1001, 2000]);
pub const BOB: (u32, &[u32]) = (1002, &[1002, 2000]);
pub const EVE: (u32, &[u32]) = (1003, &[1003]);

pub struct Users {
    pub place: Place,
    arck: PathBuf,
    serving: Option<Serving>,
}

impl Users {
    /// A pool that a user of its own serves, and a copy of the command that all can reach.
    pub fn new() -> Users {
        // SAFETY: no arguments, no memory.
        let user = unsafe { libc::geteuid() };
        assert_eq!(
            user, 0,
            "these tests become other users: run them as root (sudo -E cargo test)"
        );
        let (place, arck) = Place::of_users(SERVER.0);
        let users = Users {
            place,
            arck,
            serving: None,
        };
        let mkfs = ["mkfs", "--size", "128M", "--mode", "1777"];
        succeeded(&users.of(SERVER, &mkfs).output().unwrap());
        users
    }

    pub fn serve(&mut self, arguments: &[&str]) {
        let pool = self.place.pool();
        let mut command = self.of(SERVER, &["serve"]);
        command.arg(pool).args(["--ready-fd", "1"]).args(arguments);
        self.serving = Some(Serving::of(&mut command));
    }

    pub fn end(&mut self) {
        let mut serving = self.serving.take().unwrap();
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
    }

    pub fn of(&self, (uid, groups): (u32, &'static [u32]), arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.arck);
        command.args(arguments).current_dir("/");
        command.env("ARCK_POOL", self.place.pool());
        let become_user = move || {
            // SAFETY: a list of numbers that lives for ever; between fork and exec these calls are
            // system calls and nothing else.
            let became = unsafe {
                libc::setgroups(groups.len(), groups.as_ptr()) == 0
                    && libc::setresgid(groups[0], groups[0], groups[0]) == 0
                    && libc::setresuid(uid, uid, uid) == 0
            };
            match became {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: see within.
        unsafe { command.pre_exec(become_user) };
        command
    }

    /// `arck run -- sh -c SCRIPT`.
    fn script(&self, user: (u32, &'static [u32]), script: &str) -> Output {
        self.running(user, script).output().unwrap()
    }

    /// The same, to be run.
    pub fn running(&self, user: (u32, &'static [u32]), script: &str) -> Command {
        let script = format!("cd /arck && {script}");
        let mut command = self.of(user, &["run", "--", "sh", "-c", &script]);
        command.env("LC_ALL", "C");
        command
    }

    pub fn says(&self, user: (u32, &'static [u32]), script: &str) -> String {
        succeeded(&self.script(user, script))
    }

    /// The script fails with this in what it says.
    pub fn fails(&self, user: (u32, &'static [u32]), script: &str, says: &str) {
        let output = self.script(user, script);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{script}: {output:?}");
        assert!(text.contains(says), "{script}: {text}");
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            let _ = serving.process.kill();
            let _ = serving.process.wait();
        }
    }
}

pub const DENIED: &str = "Permission denied";

#[test]
fn programs_of_several_users_share_a_pool() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let made = users.says(
        ANN,
        "umask 022; mkdir -p ann/public team && echo hello >ann/public/hello && echo mine >ann/mine \
         && chmod 600 ann/mine && chgrp 2000 team && chmod 2770 team && ls ann",
    );
    assert_eq!(made, "mine\npublic\n");
    assert_eq!(
        users.says(BOB, "cat ann/public/hello; stat -c %u:%a ann/mine"),
        format!("hello\n{}:600\n", ANN.0)
    );
    for script in [
        "cat ann/mine",
        "echo x >ann/public/hello",
        "touch ann/new",
        "rm ann/mine",
    ] {
        users.fails(BOB, script, DENIED);
    }
    users.fails(BOB, "rmdir team", "not permitted");
    // What one writes for the group, the others of it read.
    users.says(
        BOB,
        "umask 007; echo plan >team/plan; mkdir team/more; echo x >team/more/x",
    );
    assert_eq!(
        users.says(
            ANN,
            "stat -c %g team/plan team/more; cat team/plan team/more/x"
        ),
        "2000\n2000\nplan\nx\n"
    );
    for script in ["ls team", "cat team/plan", "touch team/x"] {
        users.fails(EVE, script, DENIED);
    }
    // The home is closed, with what could be read in it.
    users.says(ANN, "chmod 700 ann");
    users.fails(BOB, "cat ann/public/hello", DENIED);
    assert_eq!(
        users.says(ANN, "cat ann/public/hello ann/mine"),
        "hello\nmine\n"
    );
    users.says(ANN, "chmod 711 ann");
    assert_eq!(users.says(BOB, "cat ann/public/hello"), "hello\n");
    users.fails(BOB, "ls ann", DENIED);
    users.end();
    // Kept over a restart.
    users.serve(&["--shared"]);
    assert_eq!(users.says(BOB, "cat ann/public/hello"), "hello\n");
    users.fails(EVE, "cat team/plan", DENIED);
    assert_eq!(
        users.says((0, &[0]), "cat team/plan ann/mine"),
        "plan\nmine\n"
    );
    users.end();
}

/// `arck status` tells of processes: each user of his own, the pool's user and root of all.
#[test]
fn a_user_is_told_of_no_others_programs() {
    let mut all_users = Users::new();
    all_users.serve(&["--shared"]);
    let arguments = [
        "run",
        "--",
        "sh",
        "-c",
        "echo x >/arck/$$; echo made; read -r line; true",
    ];
    let mut running: Vec<Running> = Vec::new();
    for user in [ANN, BOB] {
        let mut program = Running::start_told(all_users.of(user, &arguments));
        assert_eq!(program.line(), "made");
        running.push(program);
    }
    let pool = all_users.place.pool();
    let (all, none) = (vec![ANN.0, BOB.0], Vec::new());
    for (who, expected) in [
        (ANN, vec![ANN.0]),
        (BOB, vec![BOB.0]),
        (EVE, none),
        (SERVER, all.clone()),
        ((0, &[0][..]), all),
    ] {
        let mut status = all_users.of(who, &["status", "--json"]);
        let text = succeeded(&status.arg(&pool).output().unwrap());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["shared"], true);
        assert!(json["sessions"].as_u64().unwrap() >= 2, "{json}");
        let processes = json["processes"].as_array().unwrap();
        let users = processes.iter().map(|process| process["user"].as_u64());
        let mut users: Vec<u64> = users.flatten().collect();
        users.dedup();
        let expected: Vec<u64> = expected.into_iter().map(u64::from).collect();
        assert_eq!(users, expected, "{json}");
        // And which pools are served to them.
        let list = succeeded(&all_users.of(who, &["status"]).output().unwrap());
        assert!(list.contains(pool.to_str().unwrap()), "{list}");
    }
    for program in running {
        assert!(program.finished(Duration::from_secs(20)).status.success());
    }
}

#[test]
fn archives_and_copies_are_read_by_others() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    users.says(
        ANN,
        "umask 077; mkdir tree; seq 20000 >tree/numbers; echo object >tree/object; chmod 444 \
         tree/object; ln -s numbers tree/link; ln tree/numbers tree/again; chmod 644 tree/numbers; \
         chmod 755 tree; cp -a tree copy; tar cf tree.tar tree; chmod 644 tree.tar",
    );
    let sum = users.says(ANN, "cksum <tree/numbers");
    for path in [
        "tree/numbers",
        "tree/again",
        "tree/link",
        "copy/numbers",
        "copy/link",
    ] {
        assert_eq!(users.says(BOB, &format!("cksum <{path}")), sum, "{path}");
    }
    let unpacked = users.says(
        BOB,
        "mkdir -m 700 bob; tar xf tree.tar -C bob; cksum <bob/tree/numbers",
    );
    assert_eq!(unpacked, sum);
    users.fails(EVE, "ls bob", DENIED);
    users.fails(EVE, "cat bob/tree/object", DENIED);
    // A temporary file as mkstemp makes it, then opened for all.
    users.says(
        ANN,
        "f=$(mktemp -p /arck); echo temporary >$f; chmod 644 $f; mv $f /arck/named",
    );
    assert_eq!(users.says(EVE, "cat named"), "temporary\n");
    users.fails(EVE, "mv named mine", "not permitted");
    users.end();
}

#[test]
fn a_pool_that_is_not_shared_is_its_users_alone() {
    let mut users = Users::new();
    let run = ["run", "--", "true"];
    refused(
        &users.of(ANN, &run).output().unwrap(),
        "cannot use the pool",
    );
    users.serve(&[]);
    refused(
        &users.of(ANN, &run).output().unwrap(),
        "cannot use the pool",
    );
    users.end();
    users.serve(&["--shared"]);
    succeeded(&users.of(ANN, &run).output().unwrap());
    users.end();
    refused(&users.of(ANN, &run).output().unwrap(), "arck serve");
    users.serve(&[]);
    refused(
        &users.of(ANN, &run).output().unwrap(),
        "cannot use the pool",
    );
    assert_eq!(
        succeeded(
            &users
                .of(SERVER, &["run", "--", "ls", "/arck"])
                .output()
                .unwrap()
        ),
        ""
    );
    users.end();
}

/// To a controller in a user namespace, as in a container, all users that have no number there are one, by which they
/// read each other's files, and what they made was refused, since it was another's.
#[test]
fn users_without_a_number_in_the_controllers_namespace_are_none() {
    let place = Users::new();
    let pool = place.place.path().join("inner");
    let contained = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--"])
            .arg(&place.arck);
        command
            .args(arguments)
            .current_dir("/")
            .env("ARCK_POOL", &pool);
        command
    };
    // Root's own, whose number there is 0.
    std::os::unix::fs::chown(place.place.path(), Some(0), Some(0)).unwrap();
    succeeded(
        &contained(&["mkfs", "--size", "16M", "--mode", "1777"])
            .output()
            .unwrap(),
    );
    let mut serving = Serving::of(&mut contained(&["serve", "--shared", "--ready-fd", "1"]));
    for user in [ANN, EVE] {
        let mut run = place.of(user, &["run", "--", "touch", "/arck/file"]);
        let output = run.env("ARCK_POOL", &pool).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains("user namespace"),
            "{text}"
        );
    }
    succeeded(
        &contained(&["run", "--", "touch", "/arck/file"])
            .output()
            .unwrap(),
    );
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

/// In a user namespace a program calls itself root, or nobody; the controller knows it by its number outside. What
/// it made was refused as root's, and lost, and `arck violations` named an honest program.
#[test]
fn what_is_made_in_a_user_namespace_is_its_users() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    const INSIDE: &str = "unshare --user --map-root-user sh -c";
    let makes = "id -u; echo text >made; mkdir kept; echo more >>kept/other; chmod 600 made; cat made kept/other";
    assert_eq!(
        users.says(BOB, &format!("{INSIDE} '{makes}'")),
        "0\ntext\nmore\n"
    );
    assert_eq!(
        users.says(BOB, "cat made kept/other; stat -c %u:%g made"),
        "text\nmore\n1002:1002\n"
    );
    // Capabilities of a namespace are worth nothing on the pool.
    users.fails(EVE, &format!("{INSIDE} 'cat made'"), DENIED);
    users.fails(
        EVE,
        &format!("{INSIDE} 'chown 0 made'"),
        "Operation not permitted",
    );
    users.fails(
        EVE,
        &format!("{INSIDE} 'rm -f made'"),
        "Operation not permitted",
    );
    // Root there is the one outside, and what it makes is root's, whatever it calls itself.
    let script = "unshare --user sh -c 'id -u; echo roots >roots; cat roots'; stat -c %u:%g roots";
    assert_eq!(users.says((0, &[0]), script), "65534\nroots\n0:0\n");
    users.end();
}

/// Who may have no further thread was told of a panic, or of nothing at all and for ever.
#[test]
fn a_limit_on_threads_is_told_in_a_line() {
    const LIMITED: (u32, &[u32]) = (1_004, &[1_004]);
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let mut ran = 0;
    for limit in 1..=6 {
        let mut command = users.of(LIMITED, &["run", "--", "echo", "hi"]);
        let set = move || {
            let limit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: limit,
            };
            // SAFETY: a structure that outlives the call, between fork and exec.
            match unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: a system call.
        unsafe { command.pre_exec(set) };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.lines().count() <= 1, "{limit}: {said}");
        match output.status.success() {
            true => ran += 1,
            false => assert!(said.contains("cannot execute"), "{limit}: {said}"),
        }
    }
    assert!((1..6).contains(&ran), "{ran}");
    users.end();
}

/// `arck run` of another user gave up at once when the controller of a shared pool had just been killed,
/// although what runs already waits for the next one. That of the pool's owner, and of root, served it themselves,
/// privately: the one for all could not come back, and everybody else's programs failed.
#[test]
fn whoever_visits_waits_for_a_controller_that_was_killed() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    users.says(ANN, "echo hello >hello");
    for user in [BOB, SERVER, (0, &[0])] {
        let mut serving = users.serving.take().unwrap();
        serving.signal(libc::SIGKILL);
        serving.process.wait().unwrap();
        let mut run = users.of(user, &["run", "--", "cat", "/arck/hello"]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped());
        let visitor = run.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        users.serve(&["--shared"]);
        let output = visitor.wait_with_output().unwrap();
        assert!(output.status.success(), "{user:?}: {output:?}");
        assert_eq!(output.stdout, b"hello\n", "{user:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{user:?}: {said}");
        assert!(said.contains("waiting for another one"), "{user:?}: {said}");
    }

    // For no longer than he wants.
    let mut serving = users.serving.take().unwrap();
    serving.signal(libc::SIGKILL);
    serving.process.wait().unwrap();
    let began = Instant::now();
    let mut run = users.of(BOB, &["run", "--", "true"]);
    refused(&run.env("ARCK_WAIT", "0.4").output().unwrap(), "arck serve");
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(400), "{waited:?}");
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    // Its owner serves it himself then.
    let mut run = users.of(SERVER, &["run", "--", "cat", "/arck/hello"]);
    let output = run.env("ARCK_WAIT", "0.4").output().unwrap();
    assert_eq!(output.stdout, b"hello\n", "{output:?}");
}

/// Prints of each file that it is named its length, and the first and the last byte, by a map of it.
const MAP: &str = "
import mmap, os, sys
for name in sys.argv[1:]:
    fd = os.open(name, os.O_RDONLY)
    memory = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    print(name, len(memory), memory[:1] + memory[-1:])
";

/// Maps 16 MiB of a file that grows meanwhile; prints the last byte each time it has grown.
const FOLLOW: &str = "
import ctypes, os, sys, time
kernel = ctypes.CDLL(None, use_errno=True)
kernel.mmap.restype = ctypes.c_void_p
kernel.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open('grows', os.O_RDONLY)
start = kernel.mmap(None, 1 << 24, 1, 1, fd, 0)
memory = (ctypes.c_char * (1 << 24)).from_address(start)
print('mapped', flush=True)
size = 0
while size < 10 << 20:
    while os.fstat(fd).st_size == size: time.sleep(0.001)
    size = os.fstat(fd).st_size
    print(size, memory[size - 1], memory[size // 2], flush=True)
";

#[test]
fn anothers_file_is_mapped_before_anything_else_is_done_with_it() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let make = "umask 022; mkdir files; cd files; for size in 1 4096 5000 300000 7000000; do \
                head -c $size /dev/zero | tr '\\0' x >$size; done";
    let map = format!("cd files && /usr/bin/python3 -c \"{MAP}\" 1 4096 5000 300000 7000000");
    let expected: String = [1, 4096, 5000, 300_000, 7_000_000]
        .map(|size| format!("{size} {size} b'xx'\n"))
        .concat();
    users.says(ANN, make);
    for who in [BOB, EVE] {
        assert_eq!(users.says(who, &map), expected);
    }
    // While it is written, by who owns it.
    users.says(ANN, "umask 022; : >grows");
    let follow = format!("cd /arck && exec /usr/bin/python3 -c \"{FOLLOW}\"");
    let mut follower = Running::start(users.of(EVE, &["run", "--", "sh", "-c", &follow]));
    assert_eq!(follower.line(), "mapped");
    users.says(
        ANN,
        "for i in 1 2 3 4 5; do head -c 2500000 /dev/zero | tr '\\0' y >>grows; sleep 0.1; done",
    );
    let followed = succeeded(&follower.finished(Duration::from_secs(60)));
    assert!(followed.lines().count() >= 2, "{followed}");
    for line in followed.lines() {
        assert!(line.ends_with(" b'y' b'y'"), "{followed}");
    }
}

/// What becomes of set-id bits of files that are made, written, cut, given away, in a directory that hands down a
/// group: prints each mode.
const SET_ID: &str = "
import os, sys
os.umask(0)
def mode(fd): return oct(os.fstat(fd).st_mode & 0o7777) + ':' + str(os.fstat(fd).st_gid)
for bits in (0o4755, 0o2755, 0o6755, 0o2644, 0o4644, 0o2711):
    name = 'f' + oct(bits)
    fd = os.open(name, os.O_CREAT | os.O_RDWR | os.O_EXCL, bits)
    told = [mode(fd)]
    for step in (lambda: os.write(fd, b'x' * 5000), lambda: os.ftruncate(fd, 10), lambda: os.pwrite(fd, b'y', 3),
                 lambda: os.truncate(name, 4), lambda: os.chown(name, -1, os.getgid())):
        step()
        told.append(mode(fd))
        os.fchmod(fd, bits)
        told.append(mode(fd))
    print(oct(bits), *told)
    os.mkdir('d' + oct(bits), bits)
    print('directory', oct(os.stat('d' + oct(bits)).st_mode & 0o7777), os.stat('d' + oct(bits)).st_gid)
";

#[test]
fn set_id_bits_of_strangers_to_a_group_are_as_on_tmpfs() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let make = "mkdir down own; chown 0:2000 down; chown 1003:2000 own; chmod 2777 down own";
    let scratch = Place::new();
    let host = Command::new("sh")
        .args(["-c", &format!("chmod 755 . && {make}")])
        .current_dir(scratch.path())
        .status();
    assert!(host.unwrap().success());
    users.says((0, &[0]), make);
    for who in [EVE, ANN] {
        for directory in ["down", "own"] {
            let script = format!(
                "mkdir {directory}/{0} && cd {directory}/{0} && /usr/bin/python3 -c \"{SET_ID}\"; ls -ld . | cut -c1-10",
                who.0
            );
            let at = scratch.path().display().to_string();
            let (arck, tmpfs) = ("cd /arck && ", format!("cd {at} && "));
            // Both beneath the library, so that all else is the same.
            let run = |where_from: &str| {
                let script = format!("{where_from}{script}");
                let mut command = users.of(who, &["run", "--", "sh", "-c", &script]);
                succeeded(&command.output().unwrap())
            };
            assert_eq!(run(arck), run(&tmpfs), "{who:?} in {directory}");
        }
    }
}
