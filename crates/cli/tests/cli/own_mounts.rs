//! `arck run` of who is not root, at a directory of his own: what the library is not loaded into finds the pool there, by a
//! mount that ends with the last who uses it. Needs root, to become him, the kernel's FUSE, and fusermount3.

use crate::beneath::compile;
use crate::support::{Place, Running};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

/// For all that a script does.
const SOON: Duration = Duration::from_secs(120);
const ANN: u32 = 1001;

/// A namespace of mounts in which everybody may open `/dev/fuse`, as is usual, and the user has a name, which fusermount3
/// asks for. `./copies` is static. `mounted` tells whether anything is at `seen`; `soon` waits for a condition.
const WORLD: &str = r#"
exec 2>&1
cd "$0"
mkdir device && mount -t tmpfs -o dev none device
mknod device/fuse c 10 229 && chmod 666 device/fuse && mount --bind device/fuse /dev/fuse
{ cat /etc/passwd; echo ann:x:1001:1001::/:/bin/sh; } >passwd && mount --bind passwd /etc/passwd
as() { setpriv --reuid 1001 --regid 1001 --groups 1001,2000 --inh-caps=-all "$@"; }
run() { as ./arck run --pool pool --mount "$0/seen" "$@"; }
mounted() { grep -q " $0/seen " /proc/self/mountinfo; }
soon() { for i in $(seq 3000); do if "$@"; then return 0; fi; sleep 0.02; done; echo "not in a minute: $*"; exit 1; }
unmounted() { ! mounted; }
there() { test -e "$1"; }
as ./arck mkfs --size 64M pool
"#;

/// What a script says, in a place of the user's own.
fn says(script: &str) -> String {
    let (place, _) = Place::of_users(ANN);
    let program = compile(place.path());
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", &format!("{WORLD}\n{script}")]);
    command.arg(place.path()).env("LC_ALL", "C");
    let output = Running::start(command).finished(SOON);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    said.replace(place.path().to_str().unwrap(), "/PLACE")
}

#[test]
fn what_is_not_reached_finds_the_pool_at_a_directory_of_ones_own() {
    // One that is made, and goes.
    let made = "run -- sh -c 'echo text >seen/a; ./copies seen/a seen/b; cat seen/b'; mounted || test -e seen || echo gone";
    assert_eq!(says(made), "at /PLACE\ntext\ngone\n");
    // One that was there, and stays as it was; links lead there too.
    let was_there = "as mkdir -m 750 seen; ln -s seen link; run -- sh -c 'echo text >seen/a; ./copies link/a link/b'; \
                     mounted || ls -lA seen | wc -l; stat -c %a seen; run -- cat seen/b";
    assert_eq!(says(was_there), "at /PLACE\n1\n750\ntext\n");
}

/// Where it cannot be mounted the programs are named, and nothing of the host's is hidden.
#[test]
fn where_it_may_not_be_mounted_it_is_not() {
    let looks = "run -- ./copies 2>&1 | grep -c 'does not see the pool' || true; mounted || echo not mounted";
    for (why, begins, ends) in [
        (
            "it is not empty",
            "as mkdir seen; as touch seen/kept",
            "ls seen",
        ),
        ("it is another's", "mkdir seen", "ls seen"),
        (
            "it is a link",
            "as mkdir other; as ln -s other seen",
            "ls -A other",
        ),
        (
            "no helper",
            "mount --bind /dev/null \"$(command -v fusermount3)\"",
            "ls -d seen 2>/dev/null || true",
        ),
        (
            "no device",
            "chmod 600 device/fuse",
            "ls -d seen 2>/dev/null || true",
        ),
        (
            "it is not wanted",
            "run() { as ./arck run --no-mount --pool pool --mount \"$0/seen\" \"$@\"; }",
            "ls -d seen 2>/dev/null || true",
        ),
    ] {
        let kept = if why == "it is not empty" {
            "kept\n"
        } else {
            ""
        };
        let said = says(&format!("{begins}\n{looks}\n{ends}"));
        assert_eq!(said, format!("1\nnot mounted\n{kept}"), "{why}");
    }
}

#[test]
fn it_ends_with_the_last_who_uses_it() {
    // Another `arck run`, which came later, and what a command left in the background.
    let shared = "touch one two; chown ann one two
        run -- sh -c 'echo text >seen/a; : >one.in; while test -e one; do sleep 0.02; done' &
        soon there one.in
        run -- sh -c ': >two.in; while test -e two; do sleep 0.02; done; ./copies seen/a seen/b; cat seen/b' &
        soon there two.in
        as cat seen/a; as ./arck run --pool pool -- ls /arck
        rm one; wait %1; mounted && echo mounted; rm two; wait %2; mounted || echo unmounted
        touch go; chown ann go
        run -- sh -c '(while test -e go; do sleep 0.02; done; ./copies seen/a seen/c) >said 2>&1 & echo left'
        mounted && echo mounted; rm go; soon unmounted; cat said; run -- cat seen/c; soon unmounted; test -e seen || echo gone";
    assert_eq!(
        says(shared),
        "text\na\nmounted\nat /PLACE\ntext\nunmounted\nleft\nmounted\nat /PLACE\ntext\ngone\n"
    );
}

/// Whoever is killed: nothing stays, nothing that was done is lost, and the next one mounts.
#[test]
fn kills_leave_nothing_mounted() {
    for (killed, then) in [
        // What serves the mount: who used it looks after it.
        (
            "^arck mount $0/pool .*--while-used",
            "mounted || test -e seen || echo nothing",
        ),
        (
            "^./arck run .*--mount $0/seen",
            "soon unmounted; soon gone seen; echo nothing",
        ),
    ] {
        let script = format!(
            "gone() {{ ! test -e $1; }}
            touch go; chown ann go
            run -- sh -c './copies passwd seen/a; : >in; while test -e go; do sleep 0.02; done' & soon there in
            kill -KILL $(pgrep -o -f -- \"{killed}\"); rm go; wait || true; {then}
            run -- sh -c 'cmp seen/a passwd && ./copies seen/a seen/b && cmp seen/b passwd && echo same'
            mounted || test -e seen || echo nothing"
        );
        // The shell tells of it, sooner or later.
        let said = says(&script).replace("Killed\n", "");
        assert_eq!(
            said, "at /PLACE\nnothing\nat /PLACE\nsame\nnothing\n",
            "{killed}"
        );
    }
}

/// One within another: what serves the inner one's waited for the outer one's end, and that for its own.
#[test]
fn mounts_within_one_another_end() {
    let nested = "run -- sh -c './copies passwd seen/a
            ./arck run --pool pool --mount $PWD/other -- sh -c \"./copies seen/a other/b 2>/dev/null; ./copies passwd other/c\"
            cmp seen/c passwd && echo same'
        mounted || grep -q \" $0/other \" /proc/self/mountinfo || echo unmounted
        soon eval '! pgrep -f \"^arck mount $0/pool\" >/dev/null'; ls -d seen other 2>/dev/null || echo gone";
    let said = says(nested);
    assert!(
        said.ends_with("at /PLACE\nsame\nunmounted\ngone\n"),
        "{said}"
    );
}

/// What serves a mount keeps nothing open that an `arck run` around it has locked: it would wait for itself.
#[test]
fn a_mount_that_is_made_within_a_command_ends_with_it() {
    let within = "run -- sh -c './copies passwd seen/a
            pkill -KILL -o -f \"^arck mount $PWD/pool .*--while-used\"
            ./copies -x ./arck run --pool pool --mount \"$PWD/seen\" -- ./copies seen/a seen/b
            cmp seen/b passwd && echo same'
        mounted || test -e seen || echo nothing";
    assert_eq!(says(within), "at /PLACE\nat /PLACE\nsame\nnothing\n");
}

/// Two at a time that cannot mount: the second one took the directory away from under the first.
#[test]
fn who_cannot_mount_takes_nothing_from_others() {
    let overlap = "chmod 600 device/fuse; touch go; chown ann go
        run -- sh -c ': >in; while test -e go; do sleep 0.02; done' & soon there in
        inode=$(stat -c %i seen); run -- true; test \"$inode\" = \"$(stat -c %i seen)\" && stat -c %a seen
        as sh -c 'touch seen/x' 2>/dev/null || echo refused
        rm go; wait; test -e seen || echo gone";
    assert_eq!(says(overlap), "1555\nrefused\ngone\n");
}

/// A comma ends an option of fusermount3's.
#[test]
fn a_pool_may_have_a_comma_in_its_name() {
    let comma = "as ./arck mkfs --size 64M 'a,b' 2>/dev/null; touch go; chown ann go
        both() { as ./arck run --pool 'a,b' --mount \"$0/seen\" \"$@\"; }
        both -- sh -c ': >in; while test -e go; do sleep 0.02; done; ./copies seen/a seen/b' & soon there in
        both -- sh -c './copies passwd seen/a'; mounted && echo mounted; rm go; wait; mounted || echo unmounted
        as ./arck violations 'a,b' | cut -d ' ' -f 1-3";
    assert_eq!(
        says(comma),
        "at /PLACE\nmounted\nat /PLACE\nunmounted\nnothing was refused\n"
    );
}

/// Another pool's, of the same user, and root's, who has a mount namespace of his own: neither sees the pool that is there, nor
/// takes anything from it.
#[test]
fn other_pools_at_the_directory_of_a_mount() {
    let others = "touch go; chown ann go; as ./arck mkfs --size 64M second; ./arck mkfs --size 64M roots 2>/dev/null
        run -- sh -c './copies passwd seen/a; : >in; while test -e go; do sleep 0.02; done; ./copies seen/a seen/b' & soon there in
        as ./arck run --pool second --mount \"$0/seen\" -- sh -c 'echo two >seen/of-second; ls seen; ./copies || :' 2>&1 | grep -o 'of-second\\|does not see the pool'
        ./arck run --pool roots --mount \"$0/seen\" -- sh -c './copies passwd seen/c; ls seen; cmp seen/c passwd && echo same'
        as ls seen; rm go; wait; mounted || test -e seen || echo nothing
        run -- ls seen
        for pool in second roots; do ./arck violations $pool | cut -d ' ' -f 1-3; done";
    assert_eq!(
        says(others),
        "at /PLACE\nof-second\ndoes not see the pool\nat /PLACE\nc\nsame\na\nat /PLACE\nnothing\na\nb\nnothing was refused\nnothing was refused\n"
    );
}

/// The mount goes along, and ends where it has got to.
#[test]
fn a_directory_above_may_be_renamed() {
    let renamed = "as mkdir -p above/seen; touch go; chown ann go
        as ./arck run --pool pool --mount \"$0/above/seen\" -- sh -c './copies passwd above/seen/a; : >in; while test -e go; do sleep 0.02; done' & soon there in
        as mv above elsewhere; as cmp elsewhere/seen/a passwd && echo same
        rm go; wait; grep -q \" $0/elsewhere\" /proc/self/mountinfo || ls -A elsewhere/seen | wc -l";
    assert_eq!(says(renamed), "at /PLACE\nsame\n0\n");
}
