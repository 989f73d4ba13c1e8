//! Names: made, removed, linked, renamed, and what they lead to.

use super::{Seen, number};
use rustix::fs::{self, CWD, FileType, Mode, OFlags, RenameFlags};
use std::fs::{OpenOptions, create_dir, read, read_link, remove_dir, remove_file, rename, write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

pub fn names(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "contents").unwrap();
    create_dir(at.join("folder")).unwrap();
    seen.names("made", at);
    seen.status("file", &at.join("file"));
    seen.status("folder", &at.join("folder"));
    seen.note("again", number(create_dir(at.join("folder"))));
    seen.note(
        "exclusively",
        number(
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(at.join("file")),
        )
        .map(drop),
    );
    seen.note("read", number(read(at.join("file"))));
    seen.note("none", number(read(at.join("none"))));
    write(at.join("folder/inner"), "").unwrap();
    seen.note("not empty", number(remove_dir(at.join("folder"))));
    remove_file(at.join("folder/inner")).unwrap();
    seen.note("empty", number(remove_dir(at.join("folder"))));
    seen.note("removed", number(remove_file(at.join("file"))));
    seen.note("twice", number(remove_file(at.join("file"))));
    seen.names("nothing", at);
}

pub fn wrong_names(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "").unwrap();
    create_dir(at.join("folder")).unwrap();
    seen.note("beneath a file", number(read(at.join("file/x"))));
    seen.note("a file with a slash", number(read(at.join("file/"))));
    seen.note("made beneath a file", number(write(at.join("file/x"), "")));
    seen.note(
        "a file with a slash is made",
        number(write(at.join("new/"), "")),
    );
    seen.note("a directory is read", number(read(at.join("folder"))));
    seen.note(
        "a directory is written",
        number(write(at.join("folder"), "x")),
    );
    seen.note(
        "a directory is unlinked",
        number(remove_file(at.join("folder"))),
    );
    seen.note(
        "a file is removed as a directory",
        number(remove_dir(at.join("file"))),
    );
    seen.note("dot is removed", number(remove_dir(at.join("folder/."))));
    seen.note(
        "dot dot is removed",
        number(remove_dir(at.join("folder/.."))),
    );
    seen.note(
        "a name of bytes",
        number(write(at.join("\u{1}\u{7f}\\\"'*? \n"), "x")),
    );
    seen.names("left", at);
}

pub fn long_names(at: &Path, seen: &mut Seen) {
    let longest = "n".repeat(255);
    seen.note("255", number(write(at.join(&longest), "x")));
    seen.note("256", number(write(at.join("n".repeat(256)), "x")));
    seen.note("look at 256", number(read(at.join("n".repeat(256)))));
    seen.note("255 is there", number(read(at.join(&longest))));
    let mut deep = at.to_path_buf();
    for _ in 0..60 {
        deep.push("directory-of-thirty-characters");
        create_dir(&deep).unwrap();
    }
    seen.note("deep", number(write(deep.join("file"), "x")));
    seen.note("deep is there", number(read(deep.join("file"))));
}

pub fn links(at: &Path, seen: &mut Seen) {
    let (one, two) = (at.join("one"), at.join("two"));
    write(&one, "x").unwrap();
    seen.note("link", number(std::fs::hard_link(&one, &two)));
    seen.status("one", &one);
    seen.status("two", &two);
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    seen.note("the same inode", inode(&one) == inode(&two));
    seen.note("over another", number(std::fs::hard_link(&one, &two)));
    create_dir(at.join("folder")).unwrap();
    seen.note(
        "of a directory",
        number(std::fs::hard_link(at.join("folder"), at.join("three"))),
    );
    seen.note(
        "of nothing",
        number(std::fs::hard_link(at.join("none"), at.join("three"))),
    );
    write(&two, "other").unwrap();
    seen.note("by the other name", number(read(&one)));
    remove_file(&one).unwrap();
    seen.status("one is left", &two);
    symlink("two", at.join("symbolic")).unwrap();
    std::fs::hard_link(at.join("symbolic"), at.join("symbolic 2")).unwrap();
    seen.status("a link's link", &at.join("symbolic 2"));
}

pub fn symbolic_links(at: &Path, seen: &mut Seen) {
    symlink("file", at.join("relative")).unwrap();
    symlink("/nowhere/at/all", at.join("absolute")).unwrap();
    symlink("loop", at.join("loop")).unwrap();
    symlink("x".repeat(4095), at.join("longest")).unwrap();
    seen.note(
        "too long",
        number(symlink("x".repeat(4096), at.join("longer"))),
    );
    seen.note("empty", number(symlink("", at.join("empty"))));
    for name in ["relative", "absolute", "loop"] {
        seen.note(name, number(read_link(at.join(name))));
        seen.status(name, &at.join(name));
    }
    seen.note(
        "longest",
        read_link(at.join("longest")).unwrap().as_os_str().len(),
    );
    seen.note("dangling", number(read(at.join("relative"))));
    write(at.join("relative"), "through").unwrap();
    seen.note("made through it", number(read(at.join("file"))));
    seen.note("loops", number(read(at.join("loop"))));
    let opened = fs::open(
        at.join("relative"),
        OFlags::RDONLY | OFlags::NOFOLLOW,
        Mode::empty(),
    );
    seen.note("not followed", opened.map(drop));
    create_dir(at.join("folder")).unwrap();
    symlink("folder", at.join("to folder")).unwrap();
    write(at.join("to folder/inner"), "x").unwrap();
    seen.names("through a directory's link", &at.join("to folder/"));
    seen.note(
        "a link is no directory",
        number(remove_dir(at.join("to folder"))),
    );
    symlink("../file", at.join("folder/up")).unwrap();
    seen.note("up and down", number(read(at.join("folder/up"))));
}

pub fn renames(at: &Path, seen: &mut Seen) {
    for name in ["a", "b"] {
        write(at.join(name), name).unwrap();
        create_dir(at.join(format!("folder {name}"))).unwrap();
    }
    write(at.join("folder b/inner"), "x").unwrap();
    let mut go = |what: &str, from: &str, to: &str| {
        seen.note(what, number(rename(at.join(from), at.join(to))))
    };
    go("over a file", "a", "b");
    go("from nothing", "a", "c");
    go("a file over a directory", "b", "folder a");
    go("a directory over a file", "folder a", "b");
    go("a directory over a full one", "folder a", "folder b");
    go("a directory over an empty one", "folder b", "folder a");
    go("a directory into itself", "folder a", "folder a/inner/self");
    go("into a directory", "b", "folder a/b");
    go("to itself", "folder a/b", "folder a/b");
    seen.names("left", at);
    seen.names("inside", &at.join("folder a"));
    std::fs::hard_link(at.join("folder a/b"), at.join("same")).unwrap();
    seen.note(
        "over its own link",
        number(rename(at.join("same"), at.join("folder a/b"))),
    );
    seen.names("both are left", at);
    create_dir(at.join("far")).unwrap();
    create_dir(at.join("folder a/near")).unwrap();
    seen.note(
        "a directory moves",
        number(rename(at.join("folder a/near"), at.join("far/away"))),
    );
    seen.names("far", &at.join("far"));
    seen.names("its parent", &at.join("far/away/.."));
}

pub fn rename_flags(at: &Path, seen: &mut Seen) {
    write(at.join("a"), "a").unwrap();
    write(at.join("b"), "b").unwrap();
    create_dir(at.join("folder")).unwrap();
    let go = |from: &str, to: &str, flags| {
        fs::renameat_with(CWD, at.join(from), CWD, at.join(to), flags)
    };
    seen.note("not over", go("a", "b", RenameFlags::NOREPLACE));
    seen.note("to nothing", go("a", "c", RenameFlags::NOREPLACE));
    seen.note("exchanged", go("b", "c", RenameFlags::EXCHANGE));
    seen.note("b", number(read(at.join("b"))));
    seen.note("c", number(read(at.join("c"))));
    seen.note(
        "a file and a directory",
        go("b", "folder", RenameFlags::EXCHANGE),
    );
    seen.status("b", &at.join("b"));
    seen.note("with nothing", go("b", "none", RenameFlags::EXCHANGE));
    seen.note(
        "both flags",
        go("b", "c", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE),
    );
    seen.names("left", at);
}

pub fn nodes(at: &Path, seen: &mut Seen) {
    let make = |name: &str, kind, mode| {
        fs::mknodat(CWD, at.join(name), kind, Mode::from_raw_mode(mode), 0)
    };
    seen.note("file", make("file", FileType::RegularFile, 0o644));
    seen.note("pipe", make("pipe", FileType::Fifo, 0o600));
    seen.note("socket", make("socket", FileType::Socket, 0o666));
    for name in ["file", "pipe", "socket"] {
        seen.status(name, &at.join(name));
    }
    seen.note("again", make("file", FileType::Fifo, 0o600));
    seen.note("a socket is opened", number(read(at.join("socket"))));
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    seen.note(
        "nobody reads",
        fs::open(at.join("pipe"), flags, Mode::empty()).map(drop),
    );
    seen.note("removed", number(remove_file(at.join("pipe"))));
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, fs::makedev(1, 3)),
        ("disk", FileType::BlockDevice, fs::makedev(259, 70_000)),
    ] {
        let made = fs::mknodat(CWD, at.join(name), kind, Mode::from_raw_mode(0o640), device);
        seen.note(name, made);
        let of = std::fs::symlink_metadata(at.join(name)).map(|found| found.rdev());
        seen.note("device number", number(of));
        seen.status(name, &at.join(name));
    }
}

pub fn pipe_carries(at: &Path, seen: &mut Seen) {
    let path = at.join("pipe");
    fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mut writer = Command::new("sh")
        .args(["-c", "echo through >pipe"])
        .current_dir(at)
        .spawn()
        .unwrap();
    seen.note("read", std::fs::read_to_string(&path).unwrap());
    seen.note("ends", writer.wait().unwrap().success());
}

pub fn socket_is_connected(at: &Path, seen: &mut Seen) {
    use std::io::{Read, Write};
    // Its address holds 107 bytes only.
    let before = std::env::current_dir().unwrap();
    let _one_at_a_time = super::super::WORKING.lock().unwrap();
    std::env::set_current_dir(at).unwrap();
    let listener = std::os::unix::net::UnixListener::bind("socket").unwrap();
    let mut client = std::os::unix::net::UnixStream::connect("socket").unwrap();
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut text = String::new();
    listener
        .accept()
        .unwrap()
        .0
        .read_to_string(&mut text)
        .unwrap();
    seen.note("read", text);
    seen.status("socket", Path::new("socket"));
    drop(listener);
    seen.note(
        "nobody listens",
        number(std::os::unix::net::UnixStream::connect("socket")).map(drop),
    );
    std::env::set_current_dir(before).unwrap();
}

pub fn working_directory(at: &Path, seen: &mut Seen) {
    create_dir(at.join("folder")).unwrap();
    let script = "cd folder && mv ../folder ../moved && basename $(pwd -P) && echo x >made && cat ../moved/made && \
        cd .. && ls && rm -r moved";
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    seen.note(
        "says",
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        ),
    );
}
