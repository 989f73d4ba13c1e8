//! Calls one by one, each error of the manual pages: a program prints the result of everything
//! it does on a directory of tmpfs, and on a pool.

use crate::support::{compare_with_tmpfs, compile};
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
