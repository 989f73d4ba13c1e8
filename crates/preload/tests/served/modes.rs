//! Each way of catching calls, forced by ARCK_DISPATCH and ARCK_PATCH: the same programs give the same
//! results, what a way cannot catch is as documented, and the report says which way it was.

use super::support::{Place, compile, shown};
use std::process::Command;

/// A way: what ARCK_DISPATCH and ARCK_PATCH ask for, and what the report then says.
struct Mode {
    dispatch: &'static str,
    patch: &'static str,
    choice: &'static str,
    patching: &'static str,
}

/// Those that see what libc does itself.
const DISPATCHES: [Mode; 4] = [
    Mode {
        dispatch: "sud-inclusive",
        patch: "",
        choice: "asked",
        patching: "on",
    },
    Mode {
        dispatch: "sud-inclusive",
        patch: "never",
        choice: "asked",
        patching: "never",
    },
    Mode {
        dispatch: "sud-exclusive",
        patch: "",
        choice: "asked",
        patching: "on",
    },
    Mode {
        dispatch: "sud-exclusive",
        patch: "never",
        choice: "asked",
        patching: "never",
    },
];

const WITHOUT: Mode = Mode {
    dispatch: "none",
    patch: "",
    choice: "asked",
    patching: "not-used",
};

/// What the first program without dispatch says.
const TOLD: &str = "arck: no dispatch under libc (ARCK_DISPATCH=none): files of /arck are not seen by \
                    fopen and what else reads or writes streams, opendir, realpath, glob, ftw, \
                    mkstemp, system, popen, posix_spawn\n";

impl Mode {
    /// Runs `command` served in this way, and looks at the report.
    fn run(&self, place: &Place, command: &mut Command) -> String {
        let output = place.served(self.dispatch, command.env("ARCK_PATCH", self.patch));
        for line in place.report() {
            let interception = &line["interception"];
            assert_eq!(interception["dispatch"], self.dispatch, "{line}");
            assert_eq!(interception["dispatch_choice"], self.choice, "{line}");
            assert_eq!(interception["patching"], self.patching, "{line}");
            let sites = interception["patched_sites"].as_u64().expect("a count");
            assert!(self.patching == "on" || sites == 0, "{line}");
        }
        shown(&output, "/arck")
    }
}

/// `command DIRECTORY` prints the same in all of these modes as plainly.
fn same(modes: &[Mode], command: impl Fn() -> Command) {
    let plain = Place::new();
    let directory = plain.files();
    let directory = directory.to_str().expect("UTF-8");
    let output = command().arg(directory).output().expect("the command runs");
    let expected = shown(&output, directory);
    assert!(output.status.success(), "{expected}");
    for mode in modes {
        let place = Place::new();
        let got = mode.run(&place, command().arg("/arck").env("ARCK_TOLD", "1"));
        let (dispatch, patch) = (mode.dispatch, mode.patch);
        assert!(
            expected == got,
            "{dispatch} {patch}\n--- plain\n{expected}\n--- served\n{got}"
        );
        assert!(
            place
                .report()
                .iter()
                .any(|line| !line["served"].as_object().expect("counts").is_empty()),
            "{dispatch} {patch}: nothing was served"
        );
    }
}

fn shell(script: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new("/bin/sh");
        command.args(["-euc", script, "sh"]);
        command
    }
}

#[test]
fn programs_of_the_shell() {
    same(
        &DISPATCHES,
        shell(
            r#"cd "$1"; mkdir -p a/b; for n in 1 2 3; do echo "line $n" > a/b/$n; done
            cat a/b/*; cp -r a c; diff -r a c && echo same; find . -type f | sort | xargs wc -l
            grep -r "line 2" . | sort; sort -r a/b/1 a/b/2; tar cf t.tar a; tar tf t.tar | sort
            mv c d; ls -l d/b | wc -l; rm -r a; ls; sed -i s/line/LINE/ d/b/1; head -1 d/b/1
            perl -e 'opendir D, "."; print join(" ", sort readdir D), "\n"; open F, "<", "d/b/2"; print <F>'"#,
        ),
    );
}

#[test]
fn programs_in_python_and_c() {
    let script = r#"
import glob, os, subprocess, sys, tempfile, threading
os.chdir(sys.argv[1])
def work(n):
    for i in range(50):
        with open(f"{n}-{i % 3}", "w") as f: f.write(str(i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(glob.glob("*")), open("3-1").read(), os.path.realpath("3-1") == sys.argv[1] + "/3-1")
print(subprocess.run(["cat", "2-2"], capture_output=True).stdout, len(os.listdir(".")))
with tempfile.TemporaryFile(dir=".") as f: f.write(b"x" * 100000); print(f.tell())
if os.fork() == 0: open("child", "w").write("made"); os._exit(0)
os.wait(); print(open("child").read())
"#;
    same(&DISPATCHES, || {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script]);
        command
    });
    for program in ["library", "descriptors", "processes"] {
        let binary = compile(program);
        same(&DISPATCHES, || Command::new(&binary));
    }
}

/// What only uses libc's functions one by one needs no net.
#[test]
fn programs_without_dispatch() {
    same(
        &[WITHOUT],
        shell(
            r#"cd "$1"; mkdir -p a/b; echo text > a/b/1; cat a/b/1; cp a/b/1 a/2; cmp a/2 a/b/1
            mv a/2 a/3; ln a/3 hard; stat -c '%h %s' hard; rm a/b/1; rmdir a/b; readlink -n none || echo no
            truncate -s 3 hard; cat hard; echo; touch -d 2020-01-01 hard; stat -c %Y hard; head -c 2 hard"#,
        ),
    );
}

#[test]
fn what_each_way_catches() {
    let binary = compile("raw");
    let caught = |fopen: &str, instruction: &str, descriptor: &str| {
        format!(
            "open: seen\nsyscall: seen\nfopen: {fopen}\ninstruction: {instruction}\nits \
             descriptor: {descriptor}\n"
        )
    };
    for (mode, told, expected) in [
        (&DISPATCHES[0], "", caught("seen", "not seen", "EBADF")),
        (&DISPATCHES[1], "", caught("seen", "not seen", "EBADF")),
        (&DISPATCHES[2], "", caught("seen", "seen", "read")),
        (&DISPATCHES[3], "", caught("seen", "seen", "read")),
        (&WITHOUT, TOLD, caught("not seen", "not seen", "EBADF")),
    ] {
        let place = Place::new();
        let mut command = Command::new(&binary);
        let got = mode.run(&place, command.arg("/arck"));
        let told = told.replace("/arck", "DIRECTORY");
        assert_eq!(
            got,
            format!("{expected}{told}exit status: 0"),
            "{}",
            mode.dispatch
        );
    }
}

/// It is said once, however many programs there are.
#[test]
fn what_is_missing_without_dispatch_is_said_once() {
    let place = Place::new();
    let script = "/bin/true; (/bin/true); sh -c '/bin/true'; python3 -c 'import os; os.system(\"/bin/true\")'";
    let output = place.served("none", Command::new("/bin/sh").args(["-c", script]));
    assert_eq!(String::from_utf8_lossy(&output.stderr), TOLD);
    // With dispatch there is nothing to say.
    let output = place.served("", Command::new("/bin/sh").args(["-c", script]));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn an_unknown_dispatch_is_said_and_the_best_is_taken() {
    let place = Place::new();
    let output = place.served("sud", &mut Command::new("/bin/true"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.starts_with("arck: ARCK_DISPATCH is not "),
        "{errors}"
    );
    let report = place.report();
    assert_eq!(
        report[0]["interception"]["dispatch_choice"], "best",
        "{report:?}"
    );
    assert_eq!(
        report[0]["interception"]["dispatch"], "sud-exclusive",
        "{report:?}"
    );
}

/// Sites that trapped in a program are rewritten early in the one that it executes, and in the next; nonsense in
/// the variable that tells them does no harm. What is over soon has none rewritten, and hands on what it was told.
#[test]
fn sites_are_told_to_the_next_program() {
    for dispatch in super::support::DISPATCHES {
        let sites = |command: &[&str], told: &str| {
            let place = Place::new();
            let mut program = Command::new(command[0]);
            program.args(&command[1..]).env("ARCK_SITES", told);
            let output = place.served(dispatch, &mut program);
            assert!(output.status.success(), "{command:?}: {output:?}");
            let report = place.report();
            let last = report
                .iter()
                .rfind(|line| line["program"] == command[command.len() - 1])
                .unwrap_or_else(|| panic!("no line of the last program: {report:?}"));
            let sites = &last["interception"]["patched_sites"];
            sites.as_u64().expect("a count")
        };
        let alone = sites(&["/bin/ls"], "");
        let script = "for n in 1 2 3 4 5 6 7 8; do : <<<text; source /dev/null; done; exec \"$@\"";
        let after =
            |command: &[&str]| sites(&[&["/bin/bash", "-c", script, "-"], command].concat(), "");
        let next = after(&["/bin/ls"]);
        let later = after(&["/usr/bin/env", "/bin/ls"]);
        assert!(next > alone, "{next} after others, {alone} otherwise");
        assert!(later >= next, "{later} later, {next} at first");
        for nonsense in ["x", "1:2,3:4", "4096:0,8192:257,99999999:1", "-5:1"] {
            assert_eq!(sites(&["/bin/ls"], nonsense), alone, "{nonsense}");
        }
        if dispatch == "sud-exclusive" {
            assert_eq!(after(&["/bin/true"]), 0);
        }
    }
}
