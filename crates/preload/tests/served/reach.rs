//! What no library reaches is refused or named: never misplaced, and never waited for.

use super::support::{Place, compile_as, served_by_pool};
use arck_testkit::TestPool;
use std::process::Command;

/// What `rings` prints where there are no rings.
const WITHOUT_RINGS: &str = "\
syscall(io_uring_setup): ENOSYS
syscall(io_uring_enter): ENOSYS
syscall(io_uring_register): ENOSYS
syscall(io_setup): ENOSYS
own io_uring_setup: ENOSYS
own io_setup: ENOSYS
io_uring_queue_init: ENOSYS
io_uring_queue_init_params: ENOSYS
io_uring_get_probe: none
io_setup: ENOSYS
io_queue_init: ENOSYS
aio_write: 0 13 13 asynchronous
";

/// MariaDB was granted a ring, of which each request failed with EBADF, since the kernel knows no file of
/// a pool's, and waited for ever. It does without if it gets none.
#[test]
fn there_are_no_rings_on_a_pool() {
    let dynamic: &[&str] = &["-luring", "-laio"];
    // The calls are by instructions of the program's own.
    let within: &[&str] = &["-l:liburing.a", "-l:libaio.a"];
    for (name, libraries) in [("rings", dynamic), ("rings-within", within)] {
        let program = compile_as("rings", name, libraries);
        let pool = TestPool::new(64 << 20);
        let place = Place::new();
        let report = place.report.to_str().expect("UTF-8");
        let output = served_by_pool(&pool, report, Command::new(&program).arg("/arck"));
        let got = String::from_utf8_lossy(&output.stdout);
        assert_eq!(got, WITHOUT_RINGS, "{name}: {output:?}");
        assert_eq!(pool.violations(), "", "{name}");
        // Without a pool they are what they are.
        let plain = Command::new(&program)
            .arg(place.files())
            .env(
                "LD_PRELOAD",
                super::support::library(super::support::Backend::Pool),
            )
            .output()
            .expect("the program runs");
        let plain = String::from_utf8_lossy(&plain.stdout);
        let alone = Command::new(&program).arg(place.files()).output();
        let alone = alone.expect("the program runs");
        assert_eq!(plain, String::from_utf8_lossy(&alone.stdout), "{name}");
    }
}
