//! Calls one by one, each error of the manual pages: a program prints the result of everything
//! it does on a directory of tmpfs, and on a pool.

use crate::support::{compare_with_tmpfs, compile, served_by_pool};
use arck_testkit::TestPool;
use std::process::Command;

fn same(name: &str) {
    let binary = compile(name);
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn renames() {
    same("renames");
}

#[test]
fn transfers() {
    same("transfers");
}

#[test]
fn addresses() {
    same("addresses");
}

#[test]
fn opening() {
    same("opening");
}

#[test]
fn listing() {
    same("listing");
}

#[test]
fn extended_attributes() {
    same("extended");
}

/// Programs that copy extended attributes, to the pool, within it and from it.
#[test]
fn extended_attributes_are_copied() {
    let script = r#"
        set -eu; export LC_ALL=C; host=$(mktemp -d /dev/shm/arck-test-host-XXXXXX); trap 'rm -rf "$host"' EXIT
        cd "$1"; mkdir tree tree/d; echo one > tree/f; echo two > tree/d/g; ln -s f tree/l
        show() { (cd "$1" && getfattr -R -h -d . | sort); }
        setfattr -n user.text -v 'some text' tree/f; setfattr -n user.bytes -v 0x00ff0a tree/f
        setfattr -n user.empty tree/d/g; setfattr -n user.of-directory -v d tree/d; show tree
        cp --preserve=xattr tree/f plain; getfattr -d plain | sort
        cp tree/f without; getfattr -d without
        cp -a tree copied; show copied
        cp -a tree "$host/out"; show "$host/out"; cp -a "$host/out" in; show in
        tar --xattrs -cf a.tar tree; mkdir unpacked; tar --xattrs -xf a.tar -C unpacked; show unpacked/tree
        mkdir synced; rsync -aX tree/ synced/; show synced; rsync -aX synced/ "$host/synced/"; show "$host/synced"
        setfattr -x user.text synced/f; rsync -aX synced/ "$host/synced/"; show "$host/synced"
        getfattr --only-values -n user.text tree/f; echo; getfattr -n user.missing tree/f || echo "$?"
        setfattr -h -n user.a -v b tree/l || echo "$?"; setfattr -x user.missing tree/f || echo "$?"
        mv tree/f "$host/moved"; getfattr -d --absolute-names "$host/moved" | sed "s,$host,HOST," | sort; mv "$host/moved" back; getfattr -d back | sort
        python3 -c 'import os, shutil
os.setxattr("back", "user.python", b"p" * 100, os.XATTR_CREATE)
shutil.copy2("back", "shutil")
for name in sorted(os.listxattr("shutil")): print(name, os.getxattr("shutil", name))
descriptor = os.open("shutil", os.O_RDONLY)
os.removexattr(descriptor, "user.python")
print(sorted(os.listxattr(descriptor)))'
    "#;
    compare_with_tmpfs(|| {
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg("bash");
        command
    });
}

/// The limit on the size of files did not hold for those of a pool.
#[test]
fn size_limits() {
    same("limits");
}

/// Programs that were started under a limit were ended by SIGXFSZ when they opened a session, and later when
/// the report of what was served grew beyond it.
#[test]
fn size_limits_of_shells() {
    let script = r#"
        set -u; ulimit -S -f 8; cd "$1"
        { head -c 20000 /dev/zero > g; echo "$?"; } 2>/dev/null; stat -c %s g
        { cp -L "$(command -v bash)" copied; echo "$?"; } 2>/dev/null; stat -c %s copied
        { truncate -s 10000 t; echo "$?"; } 2>/dev/null; stat -c %s t
        { dd if=/dev/zero of=d bs=3000 count=5; echo "$?"; } 2>/dev/null; stat -c %s d
        { (ulimit -S -f 16; head -c 20000 /dev/zero > h); echo "$?"; } 2>/dev/null; stat -c %s h
        (ulimit -S -f unlimited; head -c 20000 /dev/zero > i); echo "$?"; stat -c %s i
        (trap "" XFSZ; exec 2>/dev/null; head -c 20000 /dev/zero > j); echo "$?"; stat -c %s j
        echo small > s; echo more >> s; cat s; for i in 1 2 3; do echo "$i" > "many-$i"; done; cat many-*
        python3 -c 'import resource
try:
    with open("p", "wb", buffering=0) as p:
        while True: p.write(b"x" * 5000)
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, -1))
try:
    with open("p", "wb", buffering=0) as p: print(p.write(b"y" * 200), p.write(b"z"))
except OSError as error:
    print(error)'
        stat -c %s p
    "#;
    compare_with_tmpfs(|| {
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg("bash");
        command
    });
}

/// A handler on an alternate stack of 8 KiB that wrote to a file of a pool ended its program, and so did
/// threads of 16 KiB: the LibFS ran on their stacks, which are smaller than what it takes.
#[test]
fn little_stack() {
    same("stacks");
}

/// What a call takes of the program's stack where there is little of it.
#[test]
fn calls_take_little_stack() {
    let binary = compile("stack_use");
    for rewrites in [true, false] {
        let pool = TestPool::new(64 << 20);
        let mut command = Command::new(&binary);
        command.args(["/arck", "4096"]);
        if !rewrites {
            command.env("ARCK_PATCH", "never");
        }
        let output = served_by_pool(&pool, "", &mut command);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{output:?}");
        println!("{text}");
    }
}

/// Python's faulthandler writes where it is told from an alternate stack of its own.
#[test]
fn faults_of_python_are_told() {
    let script = r#"
        set -u; cd "$1"
        { python3 -X faulthandler -c 'import faulthandler; faulthandler._sigsegv()' 2>dump; echo "$?"; } 2>/dev/null
        head -1 dump; grep -c 'File "<string>", line 1 in <module>' dump
        python3 -c 'import faulthandler, os, signal
with open("dumps", "w") as dumps:
    faulthandler.register(signal.SIGUSR1, dumps, all_threads=True)
    kept = [bytearray(i) for i in range(3000)]
    for _ in range(200):
        signal.raise_signal(signal.SIGUSR1)
    print(all(len(one) == i for i, one in enumerate(kept)))
print(open("dumps").read().count("most recent call first"))'; echo "$?"
        python3 -c 'import faulthandler, time
with open("late", "w") as late:
    faulthandler.dump_traceback_later(0.05, file=late)
    time.sleep(0.5)
print(open("late").readline(), end="")' | sed 's/0x[0-9a-f]*/ADDRESS/'
        for i in 1 2 3 4 5; do echo "$i"; done
    "#;
    compare_with_tmpfs(|| {
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg("bash");
        command
    });
}
