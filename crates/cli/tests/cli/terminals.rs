//! Commands that one user starts apart from each other, as in two terminals, in the default mode: they are one trust
//! group, so what needs shared memory works between them; and they are none where they are told so.

use crate::support::{Place, Running, run};
use std::time::Duration;

/// A writable shared map of `/arck/shared`: `put N` stores a byte, `get` prints it.
const MAPS: &str = "
import mmap, os, sys
fd = os.open('/arck/shared', os.O_RDWR | os.O_CREAT, 0o644)
if os.fstat(fd).st_size == 0: os.ftruncate(fd, 4096)
try: memory = mmap.mmap(fd, 4096)
except OSError as error: print('refused', error.errno, flush=True); sys.exit()
print('mapped', flush=True)
for line in sys.stdin:
    word = line.split()
    if word[0] == 'put': memory[7] = int(word[1]); print('stored', flush=True)
    else: print(memory[7], flush=True)
";

fn terminal(place: &Place, options: &[&str]) -> Running {
    let command = ["/usr/bin/python3", "-c", MAPS];
    Running::start_told(run(&place.pool(), options, &command))
}

fn ask(terminal: &mut Running, line: &str) -> String {
    terminal.tell(line);
    terminal.line()
}

/// What a second terminal hears of its map, while the first has one that is written.
fn second_map(options: [&[&str]; 2]) -> String {
    let place = Place::made();
    let mut first = terminal(&place, options[0]);
    assert_eq!(first.line(), "mapped", "{options:?}");
    let mut second = terminal(&place, options[1]);
    let mut heard = second.line();
    if heard == "mapped" {
        for value in ["17", "200", "3"] {
            assert_eq!(ask(&mut first, &format!("put {value}")), "stored");
            heard = ask(&mut second, "get");
            assert_eq!(heard, value, "{options:?}");
        }
    }
    for terminal in [first, second] {
        assert!(terminal.finished(Duration::from_secs(60)).status.success());
    }
    heard
}

#[test]
fn a_users_commands_share_memory_unless_they_are_told_not_to() {
    let apart = format!("refused {}", libc::ENODEV);
    for (options, heard) in [
        ([&[][..], &[][..]], "3"),
        ([&["--group", "one"][..], &["--group", "one"][..]], "3"),
        ([&[][..], &["--own-group"][..]], &*apart),
        ([&["--own-group"][..], &["--own-group"][..]], &*apart),
        ([&["--no-group"][..], &[][..]], &*apart),
        ([&["--group", "one"][..], &["--group", "two"][..]], &*apart),
    ] {
        assert_eq!(second_map(options), heard, "{options:?}");
    }
}

/// A command that was started in a group of its own starts others in that, until it says otherwise.
#[test]
fn what_a_command_starts_is_of_its_group() {
    let place = Place::made();
    let arck = env!("CARGO_BIN_EXE_arck");
    let inner = format!("{arck} run --pool $ARCK_POOL");
    let show = format!(
        "echo $ARCK_GROUP; {inner} -- sh -c 'echo $ARCK_GROUP'; {inner} --own-group -- sh -c 'echo $ARCK_GROUP'"
    );
    let mut names = Vec::new();
    for options in [&[][..], &["--own-group"][..], &[][..]] {
        let output = run(&place.pool(), options, &["sh", "-c", &show])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = said.lines().map(str::to_owned).collect();
        assert_eq!(
            lines.len(),
            3,
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(lines[0], lines[1]);
        assert_ne!(lines[1], lines[2]);
        names.push(lines[0].clone());
    }
    assert!(names[0].starts_with("user-"), "{names:?}");
    assert!(names[1].starts_with("run-"), "{names:?}");
    assert_eq!(names[0], names[2]);
}
