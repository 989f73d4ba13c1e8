//! How the models of delegation and of gates are run: by random schedules, and by adverse ones.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Of each kind and scenario, where no rule is broken.
pub fn schedules() -> usize {
    std::env::var("ARCK_MODEL_ITERATIONS").map_or(5_000, |count| count.parse().unwrap())
}

fn seed() -> u64 {
    std::env::var("ARCK_MODEL_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// So many of each kind.
pub fn run(model: impl Fn() + Clone + Send + Sync + 'static, schedules: usize) {
    let random = RandomScheduler::new_from_seed(seed(), schedules);
    Runner::new(random, Config::new()).run(model.clone());
    let adverse = PctScheduler::new_from_seed(seed(), 3, schedules);
    Runner::new(adverse, Config::new()).run(model);
}

/// One of these, in each of which the same rule is broken, has to fail.
pub fn finds<M: Fn() + Clone + Send + Sync + 'static>(
    what: &dyn std::fmt::Debug,
    models: impl IntoIterator<Item = M>,
    schedules: usize,
) {
    let mut models = models.into_iter();
    let found = models.find_map(|model| {
        let ran = catch_unwind(AssertUnwindSafe(|| run(model, schedules)));
        ran.err()
    });
    let panic = found.unwrap_or_else(|| panic!("{what:?} was not found"));
    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
    println!("{what:?}: {}", text.lines().next().unwrap_or(""));
}
