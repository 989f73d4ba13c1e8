//! Logs and users: modes say who reads and follows a log, and who appends to it.

use super::Case;
use super::world::{ANN, BOB, EVE, ROOT, World};
use arck_logfs::{Log, Options};
use arckfs::Errno;
use std::time::Duration;

const SIZE: u64 = 64 << 20;
const PRIVATE: u32 = 0o600;

pub const ALL: &[Case] = &[("modes_hold_for_logs", modes_hold_for_logs)];

fn open(world: &World, name: &str, mode: Option<u32>) -> Result<Log, Errno> {
    let options = Options {
        make: mode.is_some(),
        mode: mode.unwrap_or(0),
        section: 100,
        ..Options::new(world.pool())
    };
    Log::open(options, name).map_err(|error| error.errno())
}

/// Ann appends to a log that all may read and to one that nobody else may, while others come: they read and follow the one,
/// which is not folded, and can neither append to it nor cut it off.
fn modes_hold_for_logs() {
    let world = World::new(SIZE);
    let (child, mut turns) = world.beside(ANN, |_, turns| {
        let all = open(&world, "for-all", Some(0o644)).expect("a log");
        let own = open(&world, "own", Some(PRIVATE)).expect("a log");
        for _ in 0..10 {
            all.append(&[b'a'; 60]).expect("append");
            own.append(&[b'o'; 60]).expect("append");
        }
        turns.next();
        // What others tried has changed nothing.
        assert_eq!(all.append(b"goes on").expect("append"), 600);
        assert_eq!(own.append(b"goes on").expect("append"), 600);
        assert_eq!(all.begin().expect("begin"), 0);
        all.close().expect("an orderly end");
        own.close().expect("an orderly end");
    });
    turns.wait();
    for user in [BOB, EVE] {
        world.as_user(user, |_| {
            assert_eq!(open(&world, "own", None).err(), Some(Errno::ACCESS));
            let log = open(&world, "for-all", None).expect("to be readable");
            let mut bytes = [0; 601];
            assert_eq!(log.read_at(0, &mut bytes).expect("read"), 600);
            assert!(bytes[..600].iter().all(|&byte| byte == b'a'));
            let mut follower = log.follow(590).expect("a follower");
            let read = follower.next(&mut bytes, Duration::from_secs(5));
            assert_eq!(read.expect("next"), 10);
            let refused = [
                log.append(b"forged").map(|_| ()),
                log.enqueue(b"forged")
                    .and_then(|one| log.commit(&one))
                    .map(|_| ()),
                log.cut(600),
            ];
            for refused in refused {
                let errno = refused.expect_err("it is Ann's").errno();
                assert!(matches!(errno, Errno::ACCESS | Errno::PERM), "{errno}");
            }
        });
    }
    world.as_user(ROOT, |_| {
        let log = open(&world, "own", None).expect("for root");
        assert_eq!(log.end().expect("end"), 600);
    });
    turns.pass();
    child.ended("Ann");
    assert_eq!(world.violations(), "");
}
