//! `arck run`: what it makes of its command line, and of what its command does to pools.

use crate::support::{Place, arck, refused, run, succeeded};

#[test]
fn options_of_the_command_are_the_commands() {
    let place = Place::made();
    let echoed = run(&place.pool(), &[], &["echo", "--pool", "a", "--", "-b"]);
    let echoed = { echoed }.output().unwrap();
    assert_eq!(succeeded(&echoed), "--pool a -- -b\n");
    // Without `--`, too.
    let mut command = arck();
    command.arg("run").arg("--pool").arg(place.pool());
    let listed = command.args(["ls", "-d", "/arck"]).output().unwrap();
    assert_eq!(succeeded(&listed), "/arck\n");
}

#[test]
fn a_pool_on_a_pool_is_refused() {
    let place = Place::made();
    let arck = env!("CARGO_BIN_EXE_arck");
    let says = "a pool cannot lie on a pool";
    for command in [
        &[arck, "mkfs", "/arck/inner", "--size", "16M"][..],
        &[arck, "mkfs", "/proc/../arck/inner", "--size", "16M"],
        &[
            "sh",
            "-c",
            "cd /arck; exec \"$0\" mkfs inner --size 16M",
            arck,
        ],
        &[arck, "serve", "/arck/inner"],
        &[arck, "run", "--pool", "/arck/inner", "true"],
    ] {
        refused(&run(&place.pool(), &[], command).output().unwrap(), says);
    }
    let left = run(&place.pool(), &[], &["ls", "-A", "/arck"])
        .output()
        .unwrap();
    assert_eq!(succeeded(&left), "");
    // Beside it, there may be another.
    let other = place.path().join("other");
    let other = other.to_str().unwrap();
    let made = run(&place.pool(), &[], &[arck, "mkfs", other, "--size", "16M"]);
    succeeded(&{ made }.output().unwrap());
    let used = [
        arck,
        "run",
        "--pool",
        other,
        "sh",
        "-c",
        "echo hi >/arck/f; cat /arck/f",
    ];
    let used = run(&place.pool(), &[], &used).output().unwrap();
    assert!(
        String::from_utf8_lossy(&used.stdout).ends_with("hi\n"),
        "{used:?}"
    );
}
