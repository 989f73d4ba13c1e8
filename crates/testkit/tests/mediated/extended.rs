//! Extended attributes of what is mediated: sessions that do not trust each other set them by turns, by messages, and nobody becomes its
//! owner.

use super::{PATH, answered_by_the_next, errno, owns, pool, set};
use arck_protocol::message::extended;
use arck_protocol::{Request, Response};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, FileSystem, Mediation, Subject};
use std::collections::BTreeMap;

const SUBJECT: Subject<'static> = Subject::Path(At::Root, PATH.as_bytes(), 0);
/// Bytes of what all attributes of an inode have together, and of what each takes besides its name and value.
const ROOM: usize = 4096;
const HEAD: usize = 4;

fn names(session: &FileSystem) -> Vec<String> {
    let mut told = vec![0; ROOM];
    let length = session.list_extended(SUBJECT, &mut told).expect("names");
    let mut names: Vec<String> = told[..length]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).expect("text"))
        .collect();
    names.sort_unstable();
    names
}

fn value(session: &FileSystem, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; ROOM];
    match session.get_extended(SUBJECT, name.as_bytes(), &mut value) {
        Ok(length) => Ok(value[..length].to_vec()),
        failed => Err(errno(failed)),
    }
}

/// Random calls by turns, beside a model of what there is.
fn by_turns(is_directory: bool) {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    match is_directory {
        true => one
            .make_directory(At::Root, PATH.as_bytes(), 0o755)
            .expect("a directory"),
        false => one.put(PATH, b"what is in it").expect("a file"),
    }
    set(&one, Mediation::On);
    // Its maker owns it until then.
    other
        .set_extended(SUBJECT, b"user.first", b"", 0)
        .expect("set");
    let sessions = [&one, &other];
    let mut model = BTreeMap::from([("user.first".to_owned(), Vec::new())]);
    let mut random = Random::new(7 + u64::from(is_directory));
    for turn in 0..1500 {
        let session = sessions[turn % 2];
        let name = format!("user.n{}", random.below(12));
        let is_there = model.contains_key(&name);
        let mut next = model.clone();
        let (done, expected) = match random.below(5) {
            0 => {
                next.remove(&name);
                let done = session.remove_extended(SUBJECT, name.as_bytes());
                (done, (!is_there).then_some(Errno::NODATA))
            }
            flags => {
                let length = random.below(if turn % 10 == 0 { 4200 } else { 500 }) as usize;
                let bytes = random.bytes(length);
                let flags = match flags {
                    1 => libc::XATTR_CREATE,
                    2 => libc::XATTR_REPLACE,
                    3 if turn % 5 == 0 => libc::XATTR_CREATE | libc::XATTR_REPLACE,
                    _ => 0,
                };
                let done = session.set_extended(SUBJECT, name.as_bytes(), &bytes, flags);
                next.insert(name, bytes);
                let used: usize = next
                    .iter()
                    .map(|(name, v)| HEAD + name.len() + v.len())
                    .sum();
                let expected = match flags {
                    flags if flags & libc::XATTR_CREATE != 0 && is_there => Some(Errno::EXIST),
                    flags if flags & libc::XATTR_REPLACE != 0 && !is_there => Some(Errno::NODATA),
                    _ => (used > ROOM).then_some(Errno::NOSPC),
                };
                (done, expected)
            }
        };
        match expected {
            Some(expected) => assert_eq!(errno(done), expected, "turn {turn}"),
            None => {
                done.unwrap_or_else(|failure| panic!("turn {turn}: {failure:?}"));
                model = next;
            }
        }
        let reader = sessions[random.below(2) as usize];
        let known: Vec<&String> = model.keys().collect();
        assert_eq!(
            names(reader).iter().collect::<Vec<_>>(),
            known,
            "turn {turn}"
        );
        for (name, bytes) in &model {
            assert_eq!(
                value(reader, name).as_ref(),
                Ok(bytes),
                "turn {turn}, {name}"
            );
        }
        assert!(!owns(&one) && !owns(&other), "turn {turn}");
    }
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

#[test]
fn what_one_sets_of_a_file_the_other_sees() {
    by_turns(false);
}

#[test]
fn what_one_sets_of_a_directory_the_other_sees() {
    by_turns(true);
}

/// A name that was made, or taken away, before the controller ended is not found to be there, or not to be there, by the next one.
#[test]
fn what_was_done_is_told_by_the_next_controller() {
    let mut pool = pool();
    let (one, other) = (pool.session(), pool.session());
    one.put(PATH, b"").expect("a file");
    set(&one, Mediation::On);
    other
        .set_extended(SUBJECT, b"user.first", b"", 0)
        .expect("set");
    let inode = one.stat(At::Root, PATH.as_bytes(), 0).expect("there").inode as u32;
    let generation = one.session().header(inode).expect("there").generation();
    let request = |name: &str, how| Request::SetExtended {
        inode,
        generation,
        name: name.into(),
        how,
        length: 0,
    };
    one.set_extended(SUBJECT, b"user.a", b"", libc::XATTR_CREATE)
        .expect("made");
    let told = answered_by_the_next(&mut pool, &one, &request("user.a", extended::CREATE));
    assert_eq!(told, Ok(Response::Done));
    one.remove_extended(SUBJECT, b"user.a").expect("removed");
    // What another has set since then stays.
    other
        .set_extended(SUBJECT, b"user.a", b"later", 0)
        .expect("set");
    let told = answered_by_the_next(&mut pool, &one, &request("user.a", extended::REMOVE));
    assert_eq!(told, Ok(Response::Done));
    assert_eq!(value(&one, "user.a"), Ok(b"later".to_vec()));
    drop((one, other));
    assert_eq!(pool.violations(), "");
}
