//! One walk through everything: session, controller, fold, second session, restart.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure};

const POOL: u64 = 64 << 20;

#[test]
fn a_file_is_written_read_and_stays() {
    let mut pool = TestPool::new(POOL);
    let one = pool.session();
    one.put("hello", b"world").unwrap();
    assert_eq!(one.get("hello").unwrap(), b"world");
    one.make_directory(At::Root, b"directory", 0o755).unwrap();
    one.put("directory/inner", &vec![7; 100_000]).unwrap();
    one.symlink(b"hello", At::Root, b"link").unwrap();
    one.link(At::Root, b"hello", At::Root, b"other", 0).unwrap();
    one.rename(At::Root, b"other", At::Root, b"directory/moved", 0)
        .unwrap();
    assert_eq!(one.names("").unwrap(), ["directory", "hello", "link"]);
    assert_eq!(one.names("directory").unwrap(), ["inner", "moved"]);
    assert_eq!(one.get("link").unwrap(), b"world");
    assert_eq!(one.stat(At::Root, b"hello", 0).unwrap().links, 2);

    // Another session sees it all: its look-ups recall.
    let two = pool.session();
    assert_eq!(two.get("hello").unwrap(), b"world");
    assert_eq!(two.get("directory/inner").unwrap(), vec![7; 100_000]);
    assert_eq!(two.names("directory").unwrap(), ["inner", "moved"]);
    assert_eq!(two.get("directory/moved").unwrap(), b"world");
    assert_eq!(two.stat(At::Root, b"hello", 0).unwrap().links, 2);
    two.put("directory/second", b"from two").unwrap();
    assert_eq!(one.get("directory/second").unwrap(), b"from two");
    one.unlink(At::Root, b"hello", 0).unwrap();
    assert_eq!(two.get("hello"), Err(Failure::Errno(Errno::NOENT)));
    assert_eq!(two.stat(At::Root, b"directory/moved", 0).unwrap().links, 1);

    one.disconnect().unwrap();
    two.disconnect().unwrap();
    pool.stop();
    pool.serve();
    let three = pool.session();
    assert_eq!(three.names("").unwrap(), ["directory", "link"]);
    assert_eq!(
        three.names("directory").unwrap(),
        ["inner", "moved", "second"]
    );
    assert_eq!(three.get("directory/inner").unwrap(), vec![7; 100_000]);

    // Killed with unfolded work: recovered.
    three.put("late", b"late").unwrap();
    pool.kill();
    pool.serve();
    let four = pool.session();
    assert_eq!(four.get("late").unwrap(), b"late");
}
