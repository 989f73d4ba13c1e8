//! Programs of one trust group side by side: those that leave, become somebody else, or have children that
//! do nothing, take nothing away from the others.

use crate::processes::pool_of_all;
use crate::support::{compare_with_tmpfs, compare_with_tmpfs_on, compile, set_up};
use std::path::Path;
use std::process::Command;

/// A script in the directory; one that hangs is told from one that is slow.
fn script(text: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "-s", "KILL", "300", "/bin/bash", "-c"]);
    command.arg(format!("D=$1; cd $D || exit 9\n{text}"));
    command.arg("script");
    command
}

/// A program that looked at the pool and then changed its user, group, further groups or capabilities ended
/// its session, and in doing so discarded the memory of the group, if nobody happened to have a thread there
/// at that moment: all that the group had not folded vanished, and what was created next overwrote it.
#[test]
fn who_becomes_somebody_else_leaves_the_group_as_it_is() {
    let (pool, _place, library) = pool_of_all();
    let work = || {
        script(
            r#"
        mkdir a; chmod 1777 . a
        round() {
            for n in $(seq 40); do echo "$1 before $n" > a/$1-before-$n; done
            perl -e "$2" $D/a || echo "perl: $?"
            for n in $(seq 40); do echo "$1 after $n" > a/$1-after-$n; mkdir a/$1-$n; done
            echo "$1: $(ls a | wc -l)"; cat a/$1-before-* a/$1-after-* | sort | md5sum
        }
        look='sub look { opendir(my $d, $ARGV[0]) or print "$!\n"; my @n = readdir $d; print scalar(@n), "\n" }'
        round group   "$look"' look; $) = "1234 1234"; look; $) = "0 0"; look'
        round groups  "$look"' look; $) = "0 17 18"; look'
        round user    "$look"' look; $> = 1234; look; $> = 0; look'
        round for-good "$look"' look; $( = $) = "1234 1234"; $< = $> = 1234; look'
        round capable "$look"' look; require "syscall.ph" if 0; my ($h, $s) = (pack("Li", 0x20080522, 0), "\0" x 24);
            syscall(125, $h, $s); substr($s, 0, 4) = pack("L", unpack("L", $s) & ~2); syscall(126, $h, $s); look'
        round once-more "$look"' look'
        find . -type f | sort | xargs cat | md5sum; find . | sort | md5sum
        "#,
        )
    };
    compare_with_tmpfs_on(&pool, work, |command| {
        command.env("LD_PRELOAD", &library);
    });
}

/// A forked child that did nothing at all gave away the place of its parent's thread when it ended: libc
/// runs the destructors of the thread's variables there too. Another thread of the group then had the same
/// place, and both used what is one thread's alone.
#[test]
fn children_that_do_nothing_leave_their_parents_threads_alone() {
    let work = || {
        script(
            r#"
        for w in 1 2 3; do
            (
                mkdir w$w
                for n in $(seq 150); do
                    echo "line $n of $w" > w$w/f || echo "writer $w: $n"
                    read -r line < w$w/f; [ "$line" = "line $n of $w" ] || echo "writer $w read $line"
                    mv w$w/f w$w/f$((n % 20)) || echo "writer $w: cannot rename"
                done
            ) &
        done
        small() {
            for n in $(seq 8); do
                (exit 0); x=$(echo hi); [ "$x" = hi ] || echo "no hi"
                : > s$1-$n || echo "$1: $n"; true & wait $!
                echo "$n $x" >> s$1-$n || echo "$1: append $n"; (exit 3); [ $? = 3 ] || echo "status"
                [ "$(cat s$1-$n)" = "$n hi" ] || echo "$1: read $n"
            done
        }
        for s in $(seq 30); do small $s & [ $((s % 3)) = 0 ] && wait $!; done
        wait
        ls | wc -l; cat s*-* | sort | md5sum; cat w*/f* | sort | md5sum
        for s in $(seq 12); do cat s$s-* | md5sum; done
        "#,
        )
    };
    compare_with_tmpfs(work);
}

/// A program sized the region itself when it opened a session, and was killed by SIGXFSZ where the limit
/// of its files was less than that; one that could not map the region (`ulimit -v`) took it for one that
/// nobody had made, and cut it off under all others.
#[test]
fn who_has_little_has_its_own_errors() {
    let work = || {
        script(
            r#"
        for n in $(seq 20); do echo "$n" > f$n; done
        bash -c 'ulimit -f 100; cat f7; echo x > small; cat small'
        for limit in 20000 50000 100000 200000 400000 1000000 8000000; do
            bash -c "ulimit -v $limit; exec cat f3" > /dev/null 2>&1
            for descriptors in 5 8 12 16; do
                bash -c "ulimit -n $descriptors; exec cat f4" > /dev/null 2>&1
            done
            echo "$limit" > after-$limit; cat after-$limit f3; ls | wc -l
        done
        find . -type f | sort | xargs cat | md5sum
        "#,
        )
    };
    compare_with_tmpfs(work);
}

/// The same of C programs, whose children end in each of the ways that there are.
#[test]
fn children_end_in_every_way_beside_others() {
    let binary = compile("unused_children");
    compare_with_tmpfs(|| Command::new(&binary));
}

/// A program of root's that had the pool open and forked left its child, whoever that became, its connection,
/// its control memory, its arena, the region and all segments, until the child itself used the pool: it
/// could read any file, and ask for anything, with root's rights.
#[test]
fn a_child_has_nothing_of_its_parents_session() {
    let binary = compile("dropping");
    let (pool, place, library) = pool_of_all();
    let program = place.path().join("dropping");
    std::fs::copy(binary, &program).expect("a copy");
    for dispatch in ["", "sud-inclusive"] {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-s", "KILL", "300"]);
        command.arg(&program).arg("/arck");
        if !dispatch.is_empty() {
            command.env("ARCK_DISPATCH", dispatch);
        }
        set_up(&pool, Path::new("/arck"), Path::new(""), &mut command);
        // A copy that all users can load.
        let output = command.env("LD_PRELOAD", &library).output();
        let output = output.expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = text + &String::from_utf8_lossy(&output.stderr);
        let mut expected = String::from("itself: has a session\n");
        let ways = [
            "fork",
            "SYS_fork",
            "SYS_clone",
            "SYS_clone3",
            "child of a child",
        ];
        let whens = std::iter::once("one thread").chain([("beside others"); 10]);
        for when in whens {
            for way in ways {
                expected += &format!("{when}, {way}: 0, 0, EACCES, EACCES\n");
            }
        }
        expected += "own map: a secret, 0\nown map: 0, b secret\nitself: b secret\n";
        assert_eq!(text, expected, "dispatch {dispatch}");
    }
    assert_eq!(pool.violations(), "");
}
