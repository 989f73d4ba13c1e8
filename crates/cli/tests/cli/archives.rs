//! `arck export` and `arck import`: what goes through an archive comes back, GNU tar agrees, and
//! files that change meanwhile are each of one moment.

use crate::support::{Place, Serving, arck, mkfs, refused, run};
use arckfs::{At, ConnectOptions, FileSystem, SetTime, Subject, Timestamp};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn session(pool: &Path) -> FileSystem {
    let options = ConnectOptions {
        pool: pool.to_path_buf(),
        mount: b"/arck".to_vec(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    };
    FileSystem::connect(&options).unwrap()
}

fn export(pool: &Path) -> Vec<u8> {
    let output = arck().arg("export").arg(pool).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.is_empty(), "{text}");
    output.stdout
}

fn import(pool: &Path, archive: &Path) -> Output {
    let input = std::fs::File::open(archive).unwrap();
    let mut command = arck();
    command.arg("import").arg(pool).stdin(input);
    command.output().unwrap()
}

fn imported(pool: &Path, archive: &Path) {
    let output = import(pool, archive);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.is_empty(), "{text}");
}

fn tar(arguments: &[&str], directory: &Path) -> String {
    let mut command = Command::new("tar");
    let output = command
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn put(fs: &FileSystem, path: &str, parts: &[(u64, &[u8])]) {
    let flags = libc::O_CREAT | libc::O_WRONLY;
    let handle = fs.open(At::Root, path.as_bytes(), flags, 0o640).unwrap();
    for (at, part) in parts {
        assert_eq!(fs.write(handle, part, Some(*at)), Ok(part.len()));
    }
    fs.close(handle);
}

/// Something of everything, times before 1970 and long names among it.
fn fill(fs: &FileSystem) {
    let long = "n".repeat(200);
    fs.make_directory(At::Root, b"d", 0o755).unwrap();
    fs.make_directory(At::Root, format!("d/{long}").as_bytes(), 0o1777)
        .unwrap();
    put(fs, "empty", &[]);
    put(fs, "d/text", &[(0, b"some text")]);
    put(fs, &format!("d/{long}/{long}"), &[(0, &[7; 10_000])]);
    put(fs, "sparse", &[(5 << 20, b"end")]);
    put(fs, "d/tail", &[(0, b"x")]);
    let handle = fs.open(At::Root, b"d/tail", libc::O_WRONLY, 0).unwrap();
    fs.truncate_handle(handle, 123_456).unwrap();
    fs.close(handle);
    fs.link(At::Root, b"d/text", At::Root, b"z-other", 0)
        .unwrap();
    fs.symlink(format!("d/{long}/x").as_bytes(), At::Root, b"link")
        .unwrap();
    fs.symlink(b"d", At::Root, b"d/to").unwrap();
    fs.make_node(At::Root, b"d/pipe", libc::S_IFIFO | 0o620, 0)
        .unwrap();
    fs.set_extended(
        Subject::Path(At::Root, b"d/text", 0),
        b"user.k",
        b"v\0=w",
        0,
    )
    .unwrap();
    fs.set_extended(Subject::Path(At::Root, b"d", 0), b"user.dir", b"", 0)
        .unwrap();
    fs.change_mode(At::Root, b"d/text", 0o4751, 0).unwrap();
    let names: [&[u8]; 4] = [b"d/text", b"link", b"d/pipe", b"d"];
    for (seconds, name) in [1_600_000_000, -5, 0, 3].into_iter().zip(names) {
        let time = |nanoseconds| {
            SetTime::At(Timestamp {
                seconds,
                nanoseconds,
            })
        };
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        fs.set_times(At::Root, name, time(1), time(999_999_999), flags)
            .unwrap();
    }
}

#[test]
fn what_is_exported_comes_back() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &[]);
    let fs = session(&place.pool());
    fill(&fs);
    // Not folded: the archive has it all the same.
    let archive = place.path().join("archive.tar");
    std::fs::write(&archive, export(&place.pool())).unwrap();
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());

    // Into another pool, twice, which nobody serves; and out again: the same bytes.
    let other = place.path().join("other");
    assert!(mkfs(&other, &["--size", "32M"]).status.success());
    for _ in 0..2 {
        imported(&other, &archive);
        let again = export(&other);
        assert!(again == std::fs::read(&archive).unwrap());
    }
    let checked = arck().arg("check").arg(&other).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");

    // GNU tar reads it.
    let out = place.path().join("out");
    std::fs::create_dir(&out).unwrap();
    tar(&["-xpf", archive.to_str().unwrap(), "--xattrs"], &out);
    let status = |name: &str| std::fs::symlink_metadata(out.join(name)).unwrap();
    let text = status("d/text");
    assert_eq!(
        (text.mtime(), text.mtime_nsec()),
        (1_600_000_000, 999_999_999)
    );
    assert_eq!((text.mode() & 0o7777, text.nlink()), (0o4751, 2));
    assert_eq!(text.ino(), status("z-other").ino());
    assert_eq!(
        (status("link").mtime(), status("link").mtime_nsec()),
        (-5, 999_999_999)
    );
    assert_eq!(
        (status("d").mtime(), status("d").mtime_nsec()),
        (3, 999_999_999)
    );
    assert_eq!(status("sparse").len(), (5 << 20) + 3);
    assert_eq!(std::fs::read(out.join("d/tail")).unwrap().len(), 123_456);
    let long = "n".repeat(200);
    let deep = std::fs::read(out.join(format!("d/{long}/{long}"))).unwrap();
    assert!(deep == [7; 10_000]);
}

#[test]
fn archives_of_gnu_tar_are_imported() {
    let place = Place::made();
    let tree = place.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    let long = "m".repeat(180);
    std::fs::write(tree.join("a/b").join(&long), vec![3; 70_000]).unwrap();
    std::fs::write(tree.join("a/file"), b"text").unwrap();
    std::fs::hard_link(tree.join("a/file"), tree.join("a/twin")).unwrap();
    std::os::unix::fs::symlink(&long, tree.join("a/b/link")).unwrap();
    let holes = std::fs::File::create(tree.join("holes")).unwrap();
    holes.set_len(3 << 20).unwrap();
    drop(holes);
    for (format, sparse) in [("gnu", ""), ("pax", "1.0"), ("pax", "0.1"), ("pax", "none")] {
        let archive = place.path().join(format!("{format}.tar"));
        let name = archive.to_str().unwrap().to_owned();
        let mut arguments = vec!["-cf", &name, "--format", format];
        let version = format!("--sparse-version={sparse}");
        match sparse {
            "none" => {}
            "" => arguments.push("--sparse"),
            _ => arguments.extend(["--sparse", &version]),
        }
        arguments.push(".");
        tar(&arguments, &tree);
        imported(&place.pool(), &archive);
        let out = place.path().join(format!("out-{format}-{sparse}"));
        std::fs::create_dir(&out).unwrap();
        let exported = place.path().join("exported.tar");
        std::fs::write(&exported, export(&place.pool())).unwrap();
        tar(&["-xpf", exported.to_str().unwrap()], &out);
        let same = Command::new("diff")
            .arg("-r")
            .args([&tree, &out])
            .output()
            .unwrap();
        assert!(same.status.success(), "{same:?}");
        for name in ["a", "a/file", "a/b/link", "holes"] {
            let one = std::fs::symlink_metadata(tree.join(name)).unwrap();
            let other = std::fs::symlink_metadata(out.join(name)).unwrap();
            let told = |m: &std::fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.nlink());
            assert_eq!(told(&one), told(&other), "{name}");
            if format == "pax" {
                assert_eq!(one.mtime_nsec(), other.mtime_nsec(), "{name}");
            }
        }
    }
    // Holes take nothing.
    let mut serving = Serving::start(&place.pool(), &[]);
    let fs = session(&place.pool());
    assert_eq!(fs.stat(At::Root, b"holes", 0).unwrap().blocks, 0);
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

/// What is not there is neither read nor written.
#[test]
fn holes_take_nothing_in_an_archive() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &[]);
    let fs = session(&place.pool());
    // A terabyte, with a page here and there; one that ends in a hole, one that is nothing else.
    put(
        &fs,
        "large",
        &[(0, b"begin"), (1 << 39, b"middle"), ((1 << 40) - 3, b"end")],
    );
    for name in ["tail", "nothing"] {
        let parts: &[(u64, &[u8])] = if name == "tail" { &[(4096, b"x")] } else { &[] };
        put(&fs, name, parts);
        let handle = fs.open(At::Root, name.as_bytes(), libc::O_RDWR, 0).unwrap();
        fs.truncate_handle(handle, 1 << 33).unwrap();
        fs.close(handle);
    }
    let archive = place.path().join("archive.tar");
    std::fs::write(&archive, export(&place.pool())).unwrap();
    assert!(std::fs::metadata(&archive).unwrap().len() < 100_000);
    let named = archive.to_str().unwrap();
    let listed = tar(&["-tvf", named], place.path());
    let sizes = [(1u64 << 40).to_string(), (1u64 << 33).to_string()];
    assert!(sizes.iter().all(|size| listed.contains(size)), "{listed}");
    assert!(!listed.contains("GNUSparseFile"), "{listed}");
    let other = place.path().join("other");
    assert!(mkfs(&other, &["--size", "16M"]).status.success());
    imported(&other, &archive);
    assert!(export(&other) == std::fs::read(&archive).unwrap());
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn who_is_interrupted_ends_in_order_and_says_so() {
    crate::support::hear_interrupts();
    let place = Place::made();
    let mut command = arck();
    let mut import = command
        .arg("import")
        .arg(place.pool())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A directory, a file, and the beginning of another one.
    let tree = place.path().join("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o751);
    std::fs::set_permissions(tree.join("d"), mode).unwrap();
    std::fs::write(tree.join("d/first"), vec![1; 20_000]).unwrap();
    std::fs::write(tree.join("d/second"), vec![2; 20_000_000]).unwrap();
    let archive = place.path().join("archive.tar");
    let named = archive.to_str().unwrap();
    tar(
        &["-cf", named, "--no-recursion", "d", "d/first", "d/second"],
        &tree,
    );
    let bytes = std::fs::read(&archive).unwrap();
    let mut input = import.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &bytes[..4 << 20]).unwrap();
    // More than a pipe holds was taken: it is in the middle of the second. The pipe stays open, and a
    // signal may come just before it waits for more: then another one.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let status = loop {
        assert!(std::time::Instant::now() < end, "it does not hear SIGINT");
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(import.id() as i32, libc::SIGINT) }, 0);
        std::thread::sleep(std::time::Duration::from_millis(100));
        if let Some(status) = import.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(1));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut import.stderr.take().unwrap(), &mut text).unwrap();
    assert_eq!(
        text,
        "arck import: interrupted; the first 2 entries of the archive are in the pool\n"
    );
    drop(input);
    let mut serving = Serving::start(&place.pool(), &[]);
    let fs = session(&place.pool());
    assert_eq!(fs.stat(At::Root, b"d/first", 0).unwrap().size, 20_000);
    assert_eq!(fs.stat(At::Root, b"d", 0).unwrap().mode & 0o777, 0o751);
    assert!(fs.stat(At::Root, b"d/second", 0).is_err());
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn a_file_is_of_one_moment_while_others_write() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &[]);
    let stop = AtomicBool::new(false);
    let fs = session(&place.pool());
    put(&fs, "file", &[(0, &[0; 300_000])]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let handle = fs.open(At::Root, b"file", libc::O_RDWR, 0).unwrap();
            let mut version = 0u8;
            while !stop.load(Ordering::Relaxed) {
                version = version.wrapping_add(1);
                let whole = vec![version; 300_000];
                assert_eq!(fs.write(handle, &whole, Some(0)), Ok(whole.len()));
                // So that there are moments between.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            fs.close(handle);
        });
        for _ in 0..8 {
            let output = arck().arg("export").arg(place.pool()).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let archive = output.stdout;
            let at = archive.windows(5).position(|w| w == b"ustar").unwrap();
            assert!(at > 0);
            let mut found = tar::Archive::new(&archive[..]);
            for entry in found.entries().unwrap() {
                let mut entry = entry.unwrap();
                if entry.path_bytes()[..] != b"file"[..] {
                    continue;
                }
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
                assert_eq!(content.len(), 300_000);
                let uniform = content.iter().all(|&byte| byte == content[0]);
                // Either it is of one moment, or it is told that it is not.
                assert!(uniform || told.contains("several moments"), "{told}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn what_cannot_be_carried_over_is_told() {
    let place = Place::made();
    let archive = place.path().join("bad.tar");
    std::fs::write(&archive, vec![b'x'; 5000]).unwrap();
    let output = import(&place.pool(), &archive);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text, "arck import: what comes is no tar archive\n");
    // Out of the pool, and what cannot be.
    let tree = place.path().join("tree");
    std::fs::create_dir_all(tree.join("in")).unwrap();
    std::fs::write(tree.join("good"), b"text").unwrap();
    std::fs::write(place.path().join("evil"), b"text").unwrap();
    let name = place.path().join("up.tar");
    tar(&["-cPf", name.to_str().unwrap(), "../evil", "good"], &tree);
    let output = import(&place.pool(), &name);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text, "arck import: ../evil: leads out of the pool\n");
    let mut list = Command::new("tar");
    let mut list = list
        .arg("-t")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = list.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &export(&place.pool())).unwrap();
    drop(input);
    let listed = list.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "./\ngood\n");
}

/// Needs root, whose devices are to make; says so where it is not.
#[test]
fn devices_keep_their_numbers_and_are_roots_to_import() {
    assert!(
        rustix::process::geteuid().is_root(),
        "devices are root's to make: run this as root (sudo -E cargo test)"
    );
    let place = Place::made();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let devices = [
        ("null", libc::S_IFCHR, 1, 3),
        ("disk", libc::S_IFBLK, 259, 70_000),
        ("last", libc::S_IFCHR, 4095, 0xf_ffff),
        ("nothing", libc::S_IFCHR, 0, 0),
    ];
    let archive = place.path().join("devices.tar");
    {
        let mut serving = Serving::start(&place.pool(), &[]);
        let fs = session(&place.pool());
        for (name, kind, major, minor) in devices {
            let device = libc::makedev(major, minor);
            fs.make_node(At::Root, name.as_bytes(), kind | 0o640, device)
                .unwrap();
        }
        fs.link(At::Root, b"null", At::Root, b"z-other", 0).unwrap();
        std::fs::write(&archive, export(&place.pool())).unwrap();
        fs.disconnect().unwrap();
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
    }
    // As GNU tar reads it.
    let listed = tar(
        &["-tvf", archive.to_str().unwrap(), "--numeric-owner"],
        &tree,
    );
    for (name, kind, major, minor) in devices {
        let letter = if kind == libc::S_IFCHR {
            "crw-r-----"
        } else {
            "brw-r-----"
        };
        let line = listed.lines().find(|line| line.ends_with(name)).unwrap();
        assert!(line.starts_with(letter), "{listed}");
        assert!(line.contains(&format!(" {major},{minor} ")), "{listed}");
    }
    // Into another pool, and what that tells of them.
    let other = place.path().join("other");
    assert!(mkfs(&other, &["--size", "32M"]).status.success());
    imported(&other, &archive);
    assert!(export(&other) == std::fs::read(&archive).unwrap());
    let checked = arck().arg("check").arg(&other).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let script = "cd /arck && stat -c '%n %F %t %T %h' null disk last nothing && cat null";
    let told = run(&other, &[], &["env", "LC_ALL=C", "sh", "-c", script]);
    let told = { told }.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&told.stdout),
        "null character special file 1 3 2\n\
         disk block special file 103 11170 1\n\
         last character special file fff fffff 1\n\
         nothing character special file 0 0 1\n"
    );
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(said.contains("null: No such device or address"), "{said}");
    // By somebody else: he is told of each, and the rest is there.
    let (theirs, arck) = Place::of_users(1234);
    let as_user = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1234", "--regid=1234", "--clear-groups"]);
        command.arg(&arck).args(arguments).arg(theirs.pool());
        command
    };
    let made = as_user(&["mkfs", "--size", "16M"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let input = std::fs::File::open(&archive).unwrap();
    let output = as_user(&["import"]).stdin(input).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let refused = "a device, which is root's to make";
    assert_eq!(text.matches(refused).count(), 3, "{text}");
    assert!(!text.contains("nothing"), "{text}");
}

#[test]
fn a_path_that_is_not_there_makes_no_archive() {
    let place = Place::made();
    let output = arck()
        .arg("export")
        .arg(place.pool())
        .args(["--path", "no/such"])
        .output()
        .unwrap();
    refused(&output, "no/such: No such file or directory");
    assert_eq!(output.stdout, b"");
}

#[test]
fn an_archive_from_a_terminal_is_refused() {
    let place = Place::made();
    let (mut near, mut far) = (0, 0);
    let none = std::ptr::null_mut();
    let (to_near, to_far) = (&raw mut near, &raw mut far);
    // SAFETY: libc writes two descriptors to two variables of ours; the rest may be null.
    let opened = unsafe { libc::openpty(to_near, to_far, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: just opened, and nobody else's.
    let [_near, far] = [near, far].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut import = arck();
    let import = import.arg("import").arg(place.pool()).stdin(far);
    refused(&import.output().unwrap(), "does not come from a terminal");
}

/// What `arck import` says of these bytes, with status 1.
fn import_fails(place: &Place, bytes: &[u8]) -> String {
    let archive = place.path().join("broken.tar");
    std::fs::write(&archive, bytes).unwrap();
    let output = import(&place.pool(), &archive);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn an_archive_that_is_compressed_is_told_of_with_what_undoes_that() {
    let place = Place::made();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), b"text").unwrap();
    let plain = place.path().join("plain.tar");
    tar(&["-cf", plain.to_str().unwrap(), "file"], &tree);
    let plain = std::fs::read(plain).unwrap();
    let mut made = 0;
    for (program, undone) in [
        ("gzip", "zcat"),
        ("xz", "xzcat"),
        ("bzip2", "bzcat"),
        ("zstd", "zstdcat"),
    ] {
        let command = Command::new(program)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        // Not all are everywhere.
        let Ok(mut compress) = command else { continue };
        std::io::Write::write_all(&mut compress.stdin.take().unwrap(), &plain).unwrap();
        let bytes = compress.wait_with_output().unwrap().stdout;
        let text = import_fails(&place, &bytes);
        assert!(
            text.contains(&format!("is compressed ({program})")),
            "{text}"
        );
        let advice = format!("{undone} ARCHIVE | arck import {}", place.pool().display());
        assert!(text.trim_end().ends_with(&advice), "{text}");
        made += 1;
    }
    assert!(made > 0);
}

#[test]
fn an_archive_that_is_cut_off_is_told_of_with_where() {
    let place = Place::made();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("first"), b"text").unwrap();
    std::fs::write(tree.join("second"), vec![7; 3000]).unwrap();
    let archive = place.path().join("whole.tar");
    let named = archive.to_str().unwrap();
    tar(&["-cf", named, "--format=ustar", "first", "second"], &tree);
    let whole = std::fs::read(&archive).unwrap();
    // Headers at 0 and 1024, contents of the second from 1536 to 4536, the end mark at 4608.
    for (end, says) in [
        (0, "is empty"),
        (100, "is no tar archive"),
        (512, "cut off in first: 0 of its 4 bytes are there"),
        (600, "cut off behind first: there is no end mark"),
        (1024, "cut off behind first: there is no end mark"),
        (1300, "cut off behind first: there is no end mark"),
        (1636, "cut off in second: 100 of its 3000 bytes are there"),
        (4535, "cut off in second: 2999 of its 3000 bytes are there"),
        (4536, "cut off behind second: there is no end mark"),
        (4608, "cut off behind second: there is no end mark"),
    ] {
        let other = Place::made();
        let text = import_fails(&other, &whole[..end]);
        assert!(text.contains(says), "{end}: {text}");
        let mut serving = Serving::start(&other.pool(), &[]);
        let fs = session(&other.pool());
        let there = |name: &[u8]| fs.stat(At::Root, name, 0).is_ok();
        // All that came before, and nothing half.
        assert_eq!(
            (there(b"first"), there(b"second")),
            (end >= 516, end >= 4536)
        );
        fs.disconnect().unwrap();
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
    }
    let mut damaged = whole.clone();
    damaged[1024 + 5] ^= 1;
    let text = import_fails(&place, &damaged);
    assert!(
        text.contains("damaged behind first: a header's checksum"),
        "{text}"
    );
}

/// Sparse files of version 0.0, and records for all that follow.
#[test]
fn archives_with_rare_records_are_imported() {
    let place = Place::made();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let holes = std::fs::File::create(tree.join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, b"middle", 1 << 20).unwrap();
    holes.set_len(3 << 20).unwrap();
    std::fs::write(tree.join("file"), b"text").unwrap();
    let archive = place.path().join("rare.tar");
    let named = archive.to_str().unwrap();
    let global = "--pax-option=globexthdr.name=g,comment=of all,mtime=123.5";
    let sparse = ["--sparse", "--sparse-version=0.0", global];
    let before = ["-cf", named, "--format=pax"];
    tar(&[&before[..], &sparse, &["holes", "file"]].concat(), &tree);
    imported(&place.pool(), &archive);
    let mut serving = Serving::start(&place.pool(), &[]);
    let fs = session(&place.pool());
    let found = fs.stat(At::Root, b"holes", 0).unwrap();
    assert_eq!(found.size, 3 << 20);
    assert!(found.blocks <= 16, "{}", found.blocks);
    let handle = fs.open(At::Root, b"holes", libc::O_RDONLY, 0).unwrap();
    let mut read = [0; 8];
    assert_eq!(fs.read(handle, &mut read, Some((1 << 20) - 1)), Ok(8));
    assert_eq!(&read, b"\0middle\0");
    fs.close(handle);
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}
