//! Names: what can be made, moved and removed, and what is said to the rest.

use super::*;
use Errno as E;

/// `d` with `d/f` and `d/e` (empty), `f`, `l` (a link to `f`), `n` (a link to nothing), `o` (to itself).
fn tree() -> World {
    let world = World::new();
    let fs = &world.one;
    for path in ["d", "d/e"] {
        fs.make_directory(At::Root, path.as_bytes(), 0o755).unwrap();
    }
    fs.made("f", b"f");
    fs.made("d/f", b"d/f");
    for (target, name) in [("f", "l"), ("nowhere", "n"), ("o", "o")] {
        fs.symlink(target.as_bytes(), At::Root, name.as_bytes())
            .unwrap();
    }
    world
}

fn errno(result: Result<impl Sized, Failure>) -> Option<Errno> {
    match result {
        Ok(_) => None,
        Err(Failure::Errno(errno)) => Some(errno),
        Err(Failure::Outside(path)) => panic!("outside: {path:?}"),
    }
}

/// In each row a call, and the error that it is answered with; nothing changes.
#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let world = tree();
    let fs = &world.one;
    let everything = |fs: &FileSystem| {
        let names = ["", "d", "d/e"].map(|path| fs.listed(path).unwrap());
        (names, fs.whole("f").unwrap(), fs.whole("d/f").unwrap())
    };
    let before = world.told(everything);
    let long = "n".repeat(256);
    let make = |path: &str| errno(fs.make_directory(At::Root, path.as_bytes(), 0o755));
    let remove = |path: &str, flags| errno(fs.unlink(At::Root, path.as_bytes(), flags));
    let rename = |from: &str, to: &str| {
        errno(fs.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0))
    };
    let link = |from: &str, to: &str| {
        errno(fs.link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0))
    };
    let open = |path: &str, flags| errno(fs.opened(path, flags));
    let directory = libc::AT_REMOVEDIR;
    for (what, told, expected) in [
        ("mkdir f", make("f"), E::EXIST),
        ("mkdir d", make("d"), E::EXIST),
        ("mkdir n", make("n"), E::EXIST),
        ("mkdir m/x", make("m/x"), E::NOENT),
        ("mkdir f/x", make("f/x"), E::NOTDIR),
        ("mkdir o/x", make("o/x"), E::LOOP),
        ("mkdir too long", make(&long), E::NAMETOOLONG),
        ("unlink d", remove("d", 0), E::ISDIR),
        ("unlink m", remove("m", 0), E::NOENT),
        ("unlink f/", remove("f/x", 0), E::NOTDIR),
        ("rmdir f", remove("f", directory), E::NOTDIR),
        ("rmdir l", remove("l", directory), E::NOTDIR),
        ("rmdir d", remove("d", directory), E::NOTEMPTY),
        ("rmdir .", remove("d/.", directory), E::INVAL),
        ("rename m", rename("m", "x"), E::NOENT),
        ("rename f over d", rename("f", "d"), E::ISDIR),
        ("rename d over f", rename("d", "f"), E::NOTDIR),
        ("rename d/e over d", rename("d/e", "d"), E::NOTEMPTY),
        ("rename d into itself", rename("d", "d/e/x"), E::INVAL),
        ("rename d beneath f", rename("d", "f/x"), E::NOTDIR),
        ("rename to a long name", rename("f", &long), E::NAMETOOLONG),
        ("link d", link("d", "x"), E::PERM),
        ("link over f", link("d/f", "f"), E::EXIST),
        ("link m", link("m", "x"), E::NOENT),
        ("open m", open("m", libc::O_RDONLY), E::NOENT),
        ("open n", open("n", libc::O_RDONLY), E::NOENT),
        ("open o", open("o", libc::O_RDONLY), E::LOOP),
        ("open d to write", open("d", libc::O_WRONLY), E::ISDIR),
        (
            "open f as directory",
            open("f", libc::O_DIRECTORY),
            E::NOTDIR,
        ),
        ("open l itself", open("l", libc::O_NOFOLLOW), E::LOOP),
        (
            "make f again",
            open("f", libc::O_CREAT | libc::O_EXCL),
            E::EXIST,
        ),
        (
            "make n again",
            open("n", libc::O_CREAT | libc::O_EXCL),
            E::EXIST,
        ),
    ] {
        assert_eq!(told, Some(expected), "{what}");
    }
    assert_eq!(world.told(everything), before);
}

#[test]
fn what_can_be_done_is_seen_by_all() {
    let world = tree();
    let fs = &world.one;
    let rename = |from: &str, to: &str, flags| {
        fs.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), flags)
            .unwrap();
    };
    rename("f", "d/f", 0);
    assert_eq!(world.told(|fs| fs.listed("d").unwrap()), ["e", "f"]);
    assert_eq!(world.told(|fs| fs.whole("d/f").unwrap()), b"f");
    assert_eq!(world.told(|fs| errno(fs.whole("l"))), Some(E::NOENT));
    fs.link(At::Root, b"d/f", At::Root, b"f", 0).unwrap();
    let links = |fs: &FileSystem| fs.stat(At::Root, b"f", 0).unwrap().links;
    assert_eq!(world.told(links), 2);
    // Of two names of one file none is renamed over the other.
    rename("f", "d/f", 0);
    assert_eq!(
        world.told(|fs| (fs.listed("").unwrap().len(), links(fs))),
        (5, 2)
    );
    rename("d/e", "f", crate::names::changes::EXCHANGE);
    let kind = |fs: &FileSystem, path: &str| {
        fs.stat(At::Root, path.as_bytes(), 0).unwrap().mode & libc::S_IFMT
    };
    assert_eq!(world.told(|fs| kind(fs, "f")), libc::S_IFDIR);
    assert_eq!(world.told(|fs| kind(fs, "d/e")), libc::S_IFREG);
    fs.unlink(At::Root, b"d/e", 0).unwrap();
    fs.unlink(At::Root, b"d/f", 0).unwrap();
    fs.unlink(At::Root, b"d", libc::AT_REMOVEDIR).unwrap();
    assert_eq!(
        world.told(|fs| fs.listed("").unwrap()),
        ["f", "l", "n", "o"]
    );
    // The link leads to what has the name now.
    assert_eq!(
        world.told(|fs| fs.listed("l").unwrap()),
        Vec::<String>::new()
    );
}

/// A file lives as long as it is open, whatever becomes of its names.
#[test]
fn what_is_open_outlives_its_name() {
    let world = tree();
    let fs = &world.one;
    let file = fs.opened("f", libc::O_RDWR).unwrap();
    fs.unlink(At::Root, b"f", 0).unwrap();
    fold(fs.session());
    assert_eq!(fs.write(file, b"more", Some(1)), Ok(4));
    let mut bytes = [0; 8];
    assert_eq!(fs.read(file, &mut bytes, Some(0)), Ok(5));
    assert_eq!(&bytes[..5], b"fmore");
    assert_eq!(fs.stat_handle(file).unwrap().links, 0);
    fs.close(file);
    assert_eq!(world.told(|fs| errno(fs.whole("f"))), Some(E::NOENT));
}

/// A listing that takes several calls has each name that is there all the time once, however the directory
/// grows and shrinks beside it.
#[test]
fn names_that_stay_are_listed_once() {
    let world = World::new();
    let fs = &world.one;
    fs.make_directory(At::Root, b"d", 0o755).unwrap();
    let stays = |at: usize| format!("d/stays-{at}");
    for at in 0..300 {
        fs.made(&stays(at), b"");
    }
    let directory = fs.opened("d", libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    let mut found = Vec::new();
    let mut buffer = [0; 512];
    for round in 0.. {
        let used = fs.read_directory(directory, &mut buffer).unwrap();
        if used == 0 {
            break;
        }
        let mut entries = &buffer[..used];
        while let Some(length) = entries.get(16..18) {
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
            let name = entries[19..length].split(|&byte| byte == 0).next().unwrap();
            found.push(String::from_utf8(name.to_vec()).unwrap());
            entries = &entries[length..];
        }
        for at in 0..20 {
            fs.made(&format!("d/comes-{round}-{at}"), b"");
        }
        if round % 3 == 1 {
            fold(fs.session());
            for at in 0..20 {
                let name = format!("d/comes-{}-{at}", round - 1);
                fs.unlink(At::Root, name.as_bytes(), 0).unwrap();
            }
        }
        assert!(round < 10_000, "it does not end");
    }
    fs.close(directory);
    found.retain(|name| name.starts_with("stays"));
    found.sort();
    let mut expected: Vec<String> = (0..300).map(|at| stays(at)[2..].to_owned()).collect();
    expected.sort();
    assert_eq!(found, expected);
}
