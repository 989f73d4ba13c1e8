//! The LibFS that `docs/libfs.md` builds, compiled from that page (`build.rs`) and run on a served pool.

mod notes {
    include!(concat!(env!("OUT_DIR"), "/guide.rs"));
}

use arck_testkit::{Shorthand, TestPool};
use notes::Notes;

#[test]
fn it_is_about_a_hundred_lines() {
    let code = include_str!(concat!(env!("OUT_DIR"), "/guide.rs"));
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines = code.lines().filter(is_code).count();
    assert!((80..=130).contains(&lines), "{lines} lines");
}

#[test]
fn notes_are_files_of_everybody() {
    let pool = TestPool::new(64 << 20);
    let notes = Notes::open(&pool.path(), "of/mine").expect("notes");
    assert_eq!(notes.count(), Ok(0));
    assert_eq!(notes.read(0), Ok(None));
    let long = "a note of more than one page. ".repeat(500);
    for (number, text) in ["the first", "", &long].into_iter().enumerate() {
        assert_eq!(notes.append(text), Ok(number));
        assert_eq!(notes.read(number), Ok(Some(text.to_owned())));
    }
    let other = pool.session();
    assert_eq!(other.get("of/mine/2").unwrap(), long.as_bytes());
    other.put("of/mine/1", b"by another").unwrap();
    other.put("of/mine/3", b"his own").unwrap();
    assert_eq!(notes.read(1), Ok(Some("by another".to_owned())));
    assert_eq!(notes.append("after his"), Ok(4));
    assert_eq!(notes.count(), Ok(5));
}

#[test]
fn two_sessions_and_two_threads_append() {
    let mut pool = TestPool::new(128 << 20);
    let sessions = [(); 2].map(|()| Notes::open(&pool.path(), "notes").expect("notes"));
    const EACH: usize = 200;
    std::thread::scope(|scope| {
        for (number, notes) in sessions.iter().enumerate() {
            for thread in 0..2 {
                scope.spawn(move || {
                    for note in 0..EACH {
                        let text = format!("{number} {thread} {note}");
                        let at = notes.append(&text).expect("append");
                        assert_eq!(notes.read(at), Ok(Some(text)));
                    }
                });
            }
        }
    });
    pool.kill();
    pool.serve();
    let [one, other] = &sessions;
    assert_eq!(one.count(), Ok(4 * EACH));
    assert_eq!(other.count(), Ok(4 * EACH));
    let mut texts: Vec<_> = (0..4 * EACH)
        .map(|note| one.read(note).unwrap().expect("a note"))
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 4 * EACH);
}
