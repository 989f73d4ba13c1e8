//! What every shell script does beside programs of its group that work: subshells, substitutions,
//! jobs, traps, here-documents, coprocesses. The same scripts print the same on tmpfs and on a pool.
//!
//! # Regression
//! A forked child that ended without ever having used the pool, as `(exit 0)` and `$(echo hi)` in bash,
//! ran the destructors of its parent's thread in its copy of the memory, and gave away the slot that its
//! parent went on using: 8 of 60 small scripts beside three writers were then told EBADF.

use crate::support::{Place, Running, Serving, run};
use arck_testkit::differences;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Within this time all scripts have run, however busy the machine is.
const BOUND: Duration = Duration::from_secs(200);

/// Each is run by these shells, in a directory of its own.
const FOR_ALL: &[&str] = &["sh", "bash"];

/// What forks and does not use the pool in the child, between uses of it in the parent.
const SCRIPTS: &[&str] = &[
    "echo a >a; (exit 0); cat a; (exit 3); echo $?; cat a",
    "for n in 1 2 3 4 5 6 7 8 9; do echo $n >$n; (exit 0); read x <$n; echo $x; done",
    "x=$(echo hi); echo $x >x; y=$(cat x); echo \"$y\"; z=$(true); echo \"<$z>\"; cat x",
    "echo a >a; x=$(exit 4); echo $? >b; cat a b",
    "for n in 1 2 3 4 5; do echo $n >n; x=$(echo $n); test $x = $(cat n) || echo wrong; done; cat n",
    "sleep 0 & wait; echo a >a; true & wait $!; echo $?; cat a",
    "for n in 1 2 3 4 5 6; do (echo $n >f$n) & done; wait; cat f1 f2 f3 f4 f5 f6",
    "(sleep 0.01; echo late >late) & echo now >now; wait; cat now late",
    "trap 'echo bye >bye; cat bye' EXIT; (exit 0); echo a >a; cat a",
    "trap 'echo caught >caught' USR1; kill -USR1 $$; (exit 0); cat caught",
    "(trap 'echo child >child' EXIT; exit 0); cat child; echo a >a; cat a",
    "cat <<END >a\none $(echo two)\nEND\ncat a; cat <<END\n$(cat a)\nEND\n",
    "n=0; while read x; do n=$((n+1)); (exit $n); done <<END\n1\n2\n3\nEND\necho $n >n; cat n",
    "echo a >a; cat a | cat | (cat; exit 0); echo b | (read x; echo $x >b); cat b",
    "echo 1 | while read x; do echo $x >x; (exit 0); cat x; done; cat x",
    "exec 3>log; (echo one >&3); (exit 0); echo two >&3; exec 3>&-; cat log",
    "exec 3<>both; echo line >&3; (exit 0); exec 3>&-; cat both",
    "{ echo a; (exit 0); echo b; } >ab; cat ab; (cat ab; exit 1) || echo $?",
    "mkdir d; cd d; (cd ..; exit 0); echo in >in; cat in; x=$(pwd); (cd /; exit 0); cat in",
    "(umask 077; echo p >p); (exit 0); echo q >q; stat -c '%a %n' p q",
    "echo a >a; (exec true); (exec cat a); x=$(exec cat a); echo $x",
    "f() { echo $1 >f; (exit 0); cat f; }; f 1; f 2; x=$(f 3); echo $x; (f 4)",
    "set -e; echo a >a; if (exit 1); then echo no; else cat a; fi; (exit 0); cat a",
    "ls -A; (exit 0); echo a >a; ls -A; x=$(ls -A); echo $x; rm a; (exit 0); ls -A",
    "n=0; while [ $n -lt 20 ]; do n=$((n+1)); echo $n >t; mv t m; (exit 0); done; cat m; ls",
    "echo a >a; ln a b; (exit 0); rm a; x=$(true); cat b; ln -s b c; (exit 0); cat c",
    "eval '(exit 0)'; echo a >a; command eval 'x=$(cat a)'; echo $x; (eval 'exit 2'); echo $?",
    "sh -c 'exit 0'; echo a >a; sh -c '(exit 0); cat a'; x=$(sh -c 'cat a'); echo $x",
];

const FOR_BASH: &[&str] = &[
    "coproc { read x; echo $x; (exit 0); }; echo hi >&${COPROC[1]}; read y <&${COPROC[0]}; \
     echo $y >y; wait; cat y",
    "coproc cat; echo a >a; cat a >&${COPROC[1]}; eval \"exec ${COPROC[1]}>&-\"; read y <&${COPROC[0]}; \
     echo $y; wait; cat a",
    "echo a >a; diff a <(cat a) && echo same; cat <(echo b) >b; cat b; (exit 0); cat a",
    "echo a > >(cat >a); wait $!; cat a; (exit 0); cat a",
    "shopt -s lastpipe; echo a | read x; (exit 0); echo $x >x; cat x",
    "mapfile -t lines < <(echo 1; echo 2); (exit 0); printf '%s\\n' \"${lines[@]}\" >l; cat l",
    "read x <<<word; (exit 0); echo $x >x; cat x; cat <<<\"$(cat x)\"",
    "for n in {1..30}; do : $(:); echo $n; done >many; wc -l <many",
];

/// Ten of them at once, each in a directory of its own; three writers beside them make, move and remove files
/// until they are told to stop, and say what went wrong.
const MASTER: &str = r#"
top=$1 scripts=$2 stop=$3
writer() {
    mkdir "$top/writer-$1" && cd "$top/writer-$1" || exit 1
    n=0
    while [ ! -e "$stop" ]; do
        n=$((n + 1))
        (exit 0)
        for f in 1 2 3 4; do echo "$n $f" >new-$f || echo "writer $1: create"; done
        for f in 1 2 3 4; do mv new-$f kept-$f || echo "writer $1: rename"; done
        for f in 1 2 3 4; do
            read -r a b <kept-$f || echo "writer $1: read"
            [ "$a $b" = "$n $f" ] || echo "writer $1: $a $b instead of $n $f"
        done
        rm kept-4 || echo "writer $1: remove"
    done
    [ "$(ls)" = "$(printf 'kept-1\nkept-2\nkept-3')" ] || { echo "writer $1 leaves:"; ls; }
}
writers=
for w in 1 2 3; do writer $w & writers="$writers $!"; done
loop_of() {
    for script in "$scripts"/*$1.*; do
        name=${script##*/}
        mkdir "$top/$name" && cd "$top/$name" || exit 1
        echo "== $name"
        timeout 60 ${name##*.} "$script" 2>&1
        echo "== $?"
    done
}
loops=
for l in 0 1 2 3 4 5 6 7 8 9; do loop_of $l >"$stop.$l" & loops="$loops $!"; done
wait $loops
cat "$stop".?
: >"$stop"
wait $writers
"#;

/// What it prints there, and how it ends.
fn shown(output: &Output) -> String {
    format!(
        "{}{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status
    )
}

fn write_scripts(folder: &Path) -> usize {
    std::fs::create_dir(folder).unwrap();
    let mut count = 0;
    let mut write = |shell: &str, script: &str| {
        count += 1;
        std::fs::write(folder.join(format!("{count:02}.{shell}")), script).unwrap();
    };
    for script in SCRIPTS {
        FOR_ALL.iter().for_each(|shell| write(shell, script));
    }
    FOR_BASH.iter().for_each(|script| write("bash", script));
    count
}

#[test]
fn scripts_beside_three_writers_print_the_same() {
    let place = Place::new();
    let made = crate::support::mkfs(&place.pool(), &["--size", "256M"]);
    assert!(made.status.success(), "{made:?}");
    let scripts = place.path().join("scripts");
    assert!(write_scripts(&scripts) >= 60);
    let plain = place.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let words = |top: &Path, stop: &str| {
        let stop = place.path().join(stop);
        let paths = [top, &scripts, &stop].map(|path| path.to_str().unwrap().to_owned());
        let mut words = ["bash", "-c", MASTER, "master"].map(String::from).to_vec();
        words.extend(paths);
        words
    };
    let host = words(&plain, "stop-host");
    let expected = Command::new(&host[0]).args(&host[1..]).output().unwrap();
    let expected = shown(&expected);
    assert!(expected.matches("== 0\n").count() > 50, "{expected}");
    assert!(!expected.contains("writer"), "{expected}");
    let mut serving = Serving::start(&place.pool(), &[]);
    // Three times: what the old library did wrong was a matter of moments.
    for round in 0..3 {
        let top = format!("/arck/{round}");
        let inner = words(Path::new(&top), &format!("stop-{round}"));
        let mut all = vec![
            "bash",
            "-c",
            r#"mkdir "$1" || exit; shift; "$@""#,
            "bash",
            &top,
        ];
        all.extend(inner.iter().map(String::as_str));
        let running = Running::start(run(&place.pool(), &[], &all));
        let got = shown(&running.finished(BOUND));
        assert!(
            got == expected,
            "round {round}: printed on tmpfs (<) and on the pool (>):\n{}",
            differences(&expected, &got)
        );
    }
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

/// Uses the pool, has a child that ends unused, says so, and works when it is told to go.
const FORKED: &str = r#"
import os, sys
top = sys.argv[1]
os.mkdir(top)
child = os.fork()
if child == 0: sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print("ready", flush=True)
sys.stdin.readline()
for number in range(3000):
    with open(f"{top}/new", "w") as file: file.write(str(number))
    os.rename(f"{top}/new", f"{top}/file-{number % 10}")
    with open(f"{top}/file-{number % 10}") as file: assert file.read() == str(number), number
    if number % 7 == 0: os.unlink(f"{top}/file-{number % 10}")
    assert "new" not in os.listdir(top)
"#;

/// Each is started when the child of the one before has ended; then all work at the same time.
const IN_TURN: &str = r#"
import subprocess, sys
pipe = subprocess.PIPE
workers = []
for number in range(6):
    command = ["python3", "-c", sys.argv[1], f"/arck/{number}"]
    workers.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
    assert workers[-1].stdout.readline() == "ready\n"
for worker in workers: worker.stdin.write("go\n"); worker.stdin.flush()
sys.exit(any([worker.wait() for worker in workers]))
"#;

#[test]
fn children_that_end_unused_leave_their_parents_alone() {
    let place = Place::new();
    let made = crate::support::mkfs(&place.pool(), &["--size", "64M"]);
    assert!(made.status.success(), "{made:?}");
    let mut serving = Serving::start(&place.pool(), &[]);
    let words = ["python3", "-c", IN_TURN, FORKED];
    let ran = Running::start(run(&place.pool(), &[], &words)).finished(BOUND);
    assert_eq!(shown(&ran), "exit status: 0");
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}
