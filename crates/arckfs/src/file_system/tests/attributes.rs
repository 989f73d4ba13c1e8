//! Status and extended attributes.

use super::*;

#[test]
fn modes_owners_and_times_are_kept() {
    let world = World::new();
    let fs = &world.one;
    fs.made("file", b"text");
    let status = |fs: &FileSystem| {
        let status = fs.stat(At::Root, b"file", 0).unwrap();
        (status.mode & 0o7777, status.size, status.links)
    };
    assert_eq!(world.told(status), (0o644, 4, 1));
    for mode in [0o600, 0o4755, 0, 0o7777] {
        fs.change_mode(At::Root, b"file", mode, 0).unwrap();
        assert_eq!(world.told(status), (mode, 4, 1));
    }
    let times = |fs: &FileSystem| {
        let status = fs.stat(At::Root, b"file", 0).unwrap();
        (status.modified.seconds, status.modified.nanoseconds)
    };
    let file = fs.opened("file", libc::O_RDONLY).unwrap();
    for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (-1, 5), (1 << 33, 7)] {
        let time = SetTime::At(Timestamp {
            seconds,
            nanoseconds,
        });
        fs.set_times_handle(file, SetTime::Omit, time).unwrap();
        assert_eq!(world.told(times), (seconds, nanoseconds));
    }
    fs.close(file);
}

/// What is written changes the times of a file, what is added or removed those of its directory.
#[test]
fn times_follow_changes() {
    let world = World::new();
    let fs = &world.one;
    fs.make_directory(At::Root, b"d", 0o755).unwrap();
    fs.made("d/file", b"text");
    let times = |path: &'static str| {
        // Longer than a tick, by which the clock goes.
        std::thread::sleep(std::time::Duration::from_millis(12));
        world.told(move |fs| {
            let status = fs.stat(At::Root, path.as_bytes(), 0).unwrap();
            let time = |time: Timestamp| (time.seconds, time.nanoseconds);
            (time(status.modified), time(status.changed))
        })
    };
    let (file, directory) = (times("d/file"), times("d"));
    fs.change_mode(At::Root, b"d/file", 0o600, 0).unwrap();
    let now = times("d/file");
    assert_eq!(now.0, file.0, "a mode is no content");
    assert!(now.1 > file.1);
    assert_eq!(times("d"), directory);
    fs.rename(At::Root, b"d/file", At::Root, b"d/other", 0)
        .unwrap();
    let then = times("d");
    assert!(then.0 > directory.0 && then.1 > directory.1);
    assert!(times("d/other").1 > now.1, "a name is an attribute");
    fs.made("d/other", b"more");
    assert!(times("d/other").0 > file.0);
}

#[test]
fn extended_attributes_are_kept_beside_the_content() {
    let world = World::new();
    let fs = &world.one;
    fs.made("file", b"text");
    let subject = || Subject::Path(At::Root, b"file", 0);
    let get = |fs: &FileSystem, name: &[u8]| {
        let mut value = [0; 64];
        let length = fs.get_extended(subject(), name, &mut value)?;
        Ok::<_, Failure>(value[..length].to_vec())
    };
    for (name, value) in [("user.one", "1"), ("user.two", ""), ("user.one", "one")] {
        fs.set_extended(subject(), name.as_bytes(), value.as_bytes(), 0)
            .unwrap();
        assert_eq!(
            world.told(|fs| get(fs, name.as_bytes()).unwrap()),
            value.as_bytes()
        );
    }
    let names = |fs: &FileSystem| {
        let mut names = [0; 256];
        let length = fs.list_extended(subject(), &mut names).unwrap();
        let text = String::from_utf8(names[..length].to_vec()).unwrap();
        let mut names: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(world.told(names), ["user.one", "user.two"]);
    fs.remove_extended(subject(), b"user.one").unwrap();
    assert_eq!(world.told(names), ["user.two"]);
    assert!(get(fs, b"user.one").is_err());
    assert_eq!(world.told(|fs| fs.whole("file").unwrap()), b"text");
}
