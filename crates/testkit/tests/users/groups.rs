//! Trust groups and users: a name makes members only of those who are one user.

use super::Case;
use super::world::{ANN, BOB, EVE, ROOT, Session, User, World, plain};
use arck_testkit::{Shorthand, connect_as};
use arckfs::{At, Errno};

const SIZE: u64 = 64 << 20;
/// Ann, without the group that she has in common with Bob; and with another group of her own.
const ANN_ALONE: User = User(1001, &[1001]);
const ANN_OTHERWISE: User = User(1001, &[2000, 1001]);

pub const ALL: &[Case] = &[(
    "a_groups_name_is_its_users_alone",
    a_groups_name_is_its_users_alone,
)];

/// Whoever gives the name of another user's group gets a session of his own: he sees nothing of what the
/// group has not folded but by the controller, and can do nothing to it. So does the same user with other
/// groups, whose rights are others.
fn a_groups_name_is_its_users_alone() {
    let world = World::new(SIZE);
    let (child, mut turns) = world.beside(ANN, |ann, turns| {
        let team = connect_as(&world.pool(), b"team");
        assert_ne!(team.session().number(), ann.0.session().number());
        ann.mkdir("/numbers", 0o777);
        team.make_directory(At::Root, b"/private", 0o700)
            .expect("mkdir");
        team.put("/private/file", b"Ann's").expect("put");
        let number = team.session().number().to_string();
        ann.put("/numbers/of-ann", number.as_bytes(), 0o644);
        turns.next();
        assert_eq!(team.get("/private/file").as_deref(), Ok(&b"Ann's"[..]));
        team.disconnect().expect("an orderly end");
    });
    turns.wait();
    let others = [
        (BOB, false),
        (EVE, false),
        (ROOT, false),
        (ANN_ALONE, false),
        (ANN_OTHERWISE, false),
        (ANN, true),
    ];
    for (user, joins) in others {
        world.as_user(user, |alone| {
            let team = Session(connect_as(&world.pool(), b"team"));
            let of_ann = alone.get("/numbers/of-ann").expect("a number");
            let is_of_ann = of_ann == team.0.session().number().to_string().as_bytes();
            let member = team.0.session().member();
            assert_eq!(
                (is_of_ann, member),
                (joins, 1 + u16::from(joins)),
                "{}",
                user.0
            );
            let found = plain(team.0.get("/private/file"));
            match user.0 == ANN.0 || user.0 == ROOT.0 {
                true => assert_eq!(found.as_deref(), Ok(&b"Ann's"[..])),
                false => assert_eq!(found, Err(Errno::ACCESS)),
            }
            // The same name, the same user: the same group.
            let again = connect_as(&world.pool(), b"team");
            assert_eq!(again.session().number(), team.0.session().number());
            assert_eq!(again.session().member(), member + 1);
            again.disconnect().expect("an orderly end");
            team.0.disconnect().expect("an orderly end");
        });
    }
    turns.pass();
    child.ended("Ann");
    assert_eq!(world.violations(), "");
}
