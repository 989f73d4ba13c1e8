//! What no library reaches is refused or named: never misplaced, and never waited for.

use super::support::{Place, compare_with_tmpfs, compile_as, served_by_pool, served_by_pool_at};
use arck_testkit::TestPool;
use std::process::Command;

/// What `rings` prints where there are no rings.
const WITHOUT_RINGS: &str = "\
syscall(io_uring_setup): ENOSYS
syscall(io_uring_enter): ENOSYS
syscall(io_uring_register): ENOSYS
own io_uring_setup: ENOSYS
io_uring_queue_init: ENOSYS
io_uring_queue_init_params: ENOSYS
io_uring_get_probe: none
aio_write: 0 13 13 asynchronous
";

/// MariaDB was granted a ring, of which each request failed with EBADF, since the kernel knows no file of
/// a pool's, and waited for ever. It does without if it gets none.
#[test]
fn there_are_no_rings_on_a_pool() {
    let dynamic: &[&str] = &["-luring"];
    // The calls are by instructions of the program's own.
    let within: &[&str] = &["-l:liburing.a"];
    for (name, libraries) in [("rings", dynamic), ("rings-within", within)] {
        let program = compile_as("rings", name, libraries);
        let pool = TestPool::new(64 << 20);
        let place = Place::new();
        let report = place.report.to_str().expect("UTF-8");
        let output = served_by_pool(&pool, report, Command::new(&program).arg("/arck"));
        let got = String::from_utf8_lossy(&output.stdout);
        assert_eq!(got, WITHOUT_RINGS, "{name}: {output:?}");
        assert_eq!(pool.violations(), "", "{name}");
        // Without a pool they are what they are.
        let plain = Command::new(&program)
            .arg(place.files())
            .env("LD_PRELOAD", super::support::library())
            .output()
            .expect("the program runs");
        let plain = String::from_utf8_lossy(&plain.stdout);
        let alone = Command::new(&program).arg(place.files()).output();
        let alone = alone.expect("the program runs");
        assert_eq!(plain, String::from_utf8_lossy(&alone.stdout), "{name}");
    }
}

/// libaio's functions, and its instructions within the program, beside tmpfs: with files of the host's in the same contexts.
#[test]
fn asynchronous_requests_are_as_on_tmpfs() {
    for (name, library) in [
        ("asynchronous", "-laio"),
        ("asynchronous-within", "-l:libaio.a"),
    ] {
        let program = compile_as("asynchronous", name, &[library, "-pthread"]);
        let host = tempfile::tempdir_in("/dev/shm").expect("a directory of tmpfs");
        compare_with_tmpfs(|| {
            let mut command = Command::new(&program);
            command.arg(host.path());
            command
        });
    }
}

/// A set-user-ID program into which the library is linked reads nothing of its user's environment. Needs
/// root, who makes one.
#[test]
fn privileged_programs_read_no_settings() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const USER: u32 = 54321;
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("left out: needs root");
        return;
    }
    let library = super::support::library();
    let program = compile_as(
        "privileged",
        "privileged",
        &[library.to_str().expect("UTF-8")],
    );
    let pool = TestPool::new(64 << 20);
    let place = Place::new();
    let run = || {
        let mut command = Command::new(&program);
        // Not there on the host.
        let mount = place.directory.path().join("seen");
        super::support::set_up(&pool, &mount, &place.report, &mut command);
        let output = command
            .arg(mount.join("made"))
            .env_remove("LD_PRELOAD")
            .output();
        let output = output.expect("the program runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(), "plain: made\n");
    let lines = place.report().len();
    assert!(lines > 0);
    chown(&program, Some(USER), Some(USER)).expect("it is root's");
    let mode = std::fs::Permissions::from_mode(0o6755);
    std::fs::set_permissions(&program, mode).expect("it is root's");
    assert_eq!(run(), "privileged: No such file or directory\n");
    assert_eq!(place.report().len(), lines);
    assert_eq!(pool.violations(), "");
}

/// Whatever the environment says, the program ends, by itself and soon, and what it names is as it was. Of
/// settings by which nothing is to be changed, nothing is.
#[test]
fn hostile_settings_harm_nobody() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    let pool = TestPool::new(64 << 20);
    let place = Place::new();
    let precious = place.directory.path().join("precious");
    std::fs::write(&precious, "precious\n").expect("a file");
    let pipe = place.directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let link = place.directory.path().join("link");
    std::os::unix::fs::symlink(&precious, &link).expect("a link");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .append(true)
        .open(&precious);
    let file = file.expect("a file");
    let status = file.metadata().expect("its status");
    let identity = format!("9:{}:{}", status.dev(), status.ino());
    // As lock files are told (ARCK_LOCKS): the file under a number, and of what it would be the lock.
    let lock_file = format!("{identity}:7:1:1:1,{identity}:0:1:1:1,0:0:0:0:0:0:1,");
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let mut values = vec![
        text(&precious),
        text(&pipe),
        text(&link),
        identity,
        lock_file,
        "x".repeat(5000),
        "/".to_owned() + &"x".repeat(4000),
        "1:".repeat(2000),
    ];
    values.extend(
        [
            "",
            "x",
            "1",
            "2",
            "9",
            "-1",
            "fd:9",
            "fd:1",
            "fd:-1",
            "fd:99999999999999999999",
            "9:0:0",
            "0:0:0",
            "9:1",
            "4294967305:1:1",
            "18446744073709551615:18446744073709551615:18446744073709551615",
            "/",
            "//",
            "/dev/null",
            "/dev/zero",
            "/dev/tty",
            "/proc/self/mem",
            "/proc/self/fd/9",
            "/proc/self/fd/99999",
            "/proc/1/fd/0",
            ".",
            "..",
            "../..",
            "%s%n",
            "1e308",
            "NaN",
            "inf",
            "\u{7f}\n\u{1}",
            "@",
            "=",
            ",:,:",
            "4096:0,8192:257",
            "none",
            "never",
        ]
        .map(str::to_owned),
    );
    // Whether the program is served as without it. The others say where, and how: by nobody else than its
    // own user.
    let settings = [
        ("KEEP", true),
        ("HOLD", true),
        ("LOCKS", true),
        ("CWD", true),
        ("EXEC", true),
        ("EXECFN", true),
        ("EXE", true),
        ("SITES", true),
        ("SAID", true),
        ("QUIET", true),
        ("STRICT", true),
        ("TOLD", true),
        ("PATCH", true),
        ("WAIT", true),
        ("REPORT", true),
        ("DELEGATE", false),
        ("DISPATCH", false),
        ("GROUP", false),
        ("MOUNT", false),
        ("POOL", false),
    ];
    // Not there on the host.
    let mount = place.directory.path().join("seen");
    let script = "echo one >$0/f; exec /bin/cat $0/f";
    let mut tried = 0;
    for (setting, is_served) in settings {
        for value in &values {
            // That a pool lies elsewhere is no attack, and takes its time to find out.
            if setting == "POOL" && tried % 8 != 0 {
                tried += 1;
                continue;
            }
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).arg(&mount).current_dir("/");
            super::support::set_up(&pool, &mount, &place.report, &mut command);
            command.env("ARCK_WAIT", "1");
            command.env(format!("ARCK_{setting}"), value);
            let number = file.as_raw_fd();
            // SAFETY: one system call.
            unsafe {
                command.pre_exec(move || match libc::dup2(number, 9) {
                    9 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
            let began = std::time::Instant::now();
            let output = command.output().expect("the command runs");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let what = format!("{setting}={value:.60}: {output:?}");
            assert_eq!(output.status.signal(), None, "{what}");
            assert!(began.elapsed().as_secs() < 20, "{what}");
            // What is too long for a path is said, and nothing is served.
            if is_served && value.len() < 4096 {
                assert_eq!(told, "one\n", "{what}");
                assert!(output.status.success(), "{what}");
            }
            let now = std::fs::read_to_string(&precious).expect("it is there");
            assert_eq!(now, "precious\n", "{what}");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
    assert_eq!(pool.violations(), "");
}

/// The whole of what a program prints that is served by a pool in the default way, and what it says. Where the
/// pool is seen nothing can be made on the host.
fn served(command: &mut Command) -> (String, String) {
    let pool = TestPool::new(64 << 20);
    let place = Place::new();
    let mount = place.directory.path().join("seen");
    let output = served_by_pool_at(&pool, &mount, &place.report, command.arg(&mount));
    assert_eq!(pool.violations(), "");
    let [told, said] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}: {told}{said}", output.status);
    (told, said)
}

/// The dispatch that catches a program's own calls crashed Go's: it answered them on the goroutines' stacks,
/// which have no room for that, and which Go copies meanwhile.
#[test]
fn calls_from_small_stacks_are_answered_elsewhere() {
    let program = compile_as("runtimes", "runtimes", &[]);
    let (told, said) = served(Command::new(&program).arg("goroutine"));
    assert_eq!(told, "1 5 0 5 0 0 small within\n");
    assert_eq!(said, "");
}

#[test]
fn a_program_with_threads_storage_of_its_own_is_let_go_and_named() {
    let program = compile_as("runtimes", "runtimes-storage", &[]);
    let (told, said) = served(Command::new(&program).arg("storage"));
    assert_eq!(told, "by itself\n0 does not see it\n");
    assert!(
        said.contains("runtimes-storage makes its threads without libc"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let pool = TestPool::new(64 << 20);
    let place = Place::new();
    let mut strict = Command::new(&program);
    strict.args(["storage", "/arck"]).env("ARCK_STRICT", "1");
    let output = served_by_pool(&pool, place.report.to_str().expect("UTF-8"), &mut strict);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// No look at a program's text when it starts would have found it, and no change of one thread's dispatch have
/// reached the others.
#[test]
fn what_is_loaded_later_is_seen_in_all_threads() {
    let options = ["-DLIBRARY", "-shared", "-fPIC"];
    let library = compile_as("extension", "extension.so", &options);
    let program = compile_as("extension", "extension", &[]);
    let (told, said) = served(Command::new(&program).arg(&library));
    assert_eq!((told.as_str(), said.as_str()), ("seen by 3 of 3\n", ""));
}
