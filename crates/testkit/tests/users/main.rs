//! Users who do not trust each other, on one pool: each is a process of its own with his user id and
//! groups, and the pool is served by another user. Needs root, to become them.

mod cases;
mod cheap;
#[path = "../../../controller/tests/common/check.rs"]
mod check;
mod crashes;
mod groups;
mod large;
mod logs;
mod made;
mod mediated;
mod protected;
mod random;
mod small;
mod together;
mod world;

use arck_testkit::harness::{self, Case};

fn main() -> std::process::ExitCode {
    let more: &[Case] = &[
        ("moves_that_are_cut_off", crashes::moves_that_are_cut_off),
        (
            "five_users_in_a_small_pool",
            small::five_users_in_a_small_pool,
        ),
        ("random_trees", random::random_trees),
    ];
    let all = [
        cases::ALL,
        cheap::ALL,
        groups::ALL,
        large::ALL,
        logs::ALL,
        mediated::ALL,
        together::ALL,
        made::ALL,
        protected::ALL,
        more,
    ]
    .concat();
    harness::run_as_root(
        all.into_iter()
            .map(|(name, test)| harness::trial(name, test))
            .collect(),
    )
}
