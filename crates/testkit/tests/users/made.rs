//! What a user has made and holds open, more than he stays the owner of: all that he does to it goes on, wherever it
//! has come to lie.

use super::Case;
use super::world::{ANN, World};
use arckfs::At;

pub const ALL: &[Case] = &[(
    "what_is_made_where_nobody_can_look_goes_on",
    what_is_made_where_nobody_can_look_goes_on,
)];

/// More than a session keeps.
const FILES: u32 = 300;

/// # Regression
/// Folds let files go whose place their maker could not reach: a descriptor of his own did nothing but write any more.
pub fn what_is_made_where_nobody_can_look_goes_on() {
    for mode in [0, 0o300, 0o700] {
        let world = World::new(64 << 20);
        world.as_user(ANN, |session| {
            session.mkdir("/d", 0o700);
            let arck = &session.0;
            let flags = libc::O_CREAT | libc::O_RDWR;
            let open = |number: u32| {
                let path = format!("d/{number}");
                let opened = arck.open(At::Root, path.as_bytes(), flags, 0o600);
                opened.unwrap_or_else(|error| panic!("{path}: {error:?}"))
            };
            let files: Vec<_> = (0..FILES).map(open).collect();
            session.chmod("/d", mode);
            session.fold();
            for (number, &file) in (0..).zip(&files) {
                let done = [
                    ("write", arck.write(file, b"here", Some(0)).map(|_| ())),
                    ("chmod", arck.change_mode_handle(file, 0o640)),
                    ("fallocate", arck.allocate(file, 0, 0, 8192)),
                    ("truncate", arck.truncate_handle(file, 4096)),
                ];
                for (what, done) in done {
                    assert_eq!(done, Ok(()), "{what} of {number} below {mode:o}");
                }
            }
            session.fold();
            session.chmod("/d", 0o700);
            session.fold();
            for number in 0..FILES {
                let content = session.get(&format!("/d/{number}")).unwrap();
                assert_eq!((content.len(), &content[..4]), (4096, &b"here"[..]));
            }
            files.into_iter().for_each(|file| arck.close(file));
        });
        assert_eq!(world.violations(), "");
    }
}
