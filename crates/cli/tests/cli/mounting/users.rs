//! A mount of root's, used by several users; and mounts of users who are not root.

use super::mount::{SOON, detach};
use crate::support::{Place, Running, Serving, succeeded};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type User = (u32, &'static [u32]);

/// Who serves the pool.
const SERVER: User = (990, &[990]);
const ROOT: User = (0, &[0]);
const ANN: User = (1001, &[1001, 2000]);
const BOB: User = (1002, &[1002, 2000]);
const EVE: User = (1003, &[1003]);

/// A pool that a user of its own serves to all, at a mount.
struct World {
    place: Place,
    arck: PathBuf,
    serving: Option<Serving>,
}

fn of(user: User, command: &mut Command) -> &mut Command {
    let (uid, groups) = user;
    let become_user = move || {
        // SAFETY: a list of numbers that lives for ever; between fork and exec these calls are system calls and nothing
        // else.
        let became = unsafe {
            libc::setgroups(groups.len(), groups.as_ptr()) == 0
                && libc::setresgid(groups[0], groups[0], groups[0]) == 0
                && libc::setresuid(uid, uid, uid) == 0
        };
        match became {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: see within.
    unsafe { command.pre_exec(become_user) }
}

impl World {
    fn new() -> World {
        let (place, arck) = Place::of_users(SERVER.0);
        let world = World {
            place,
            arck,
            serving: None,
        };
        let mut mkfs = Command::new(&world.arck);
        mkfs.arg("mkfs")
            .arg(world.place.pool())
            .args(["--size", "128M", "--mode", "1777"]);
        succeeded(&of(SERVER, &mut mkfs).output().unwrap());
        std::fs::create_dir(world.point()).unwrap();
        world
    }

    fn point(&self) -> PathBuf {
        self.place.path().join("mount")
    }

    fn serve(&mut self, arguments: &[&str]) {
        let mut command = Command::new(&self.arck);
        command
            .arg("serve")
            .arg(self.place.pool())
            .args(["--ready-fd", "1"])
            .args(arguments);
        self.serving = Some(Serving::of(of(SERVER, &mut command)));
    }

    fn mount(&self, user: User, point: &Path) -> Output {
        let mut command = Command::new(&self.arck);
        command
            .arg("mount")
            .arg(self.place.pool())
            .arg(point)
            .current_dir("/");
        of(user, &mut command).output().unwrap()
    }

    fn script(&self, user: User, script: &str) -> Output {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("cd '{}' && {script}", self.point().display()),
        ]);
        command.env("LC_ALL", "C").current_dir("/");
        of(user, &mut command).output().unwrap()
    }

    fn says(&self, user: User, script: &str) -> String {
        succeeded(&self.script(user, script))
    }

    fn fails(&self, user: User, script: &str, says: &str) {
        let output = self.script(user, script);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains(says),
            "{script}: {output:?}"
        );
    }

    /// Unmounts, and ends the service in order.
    fn end(mut self) {
        assert!(
            Command::new("umount")
                .arg(self.point())
                .status()
                .unwrap()
                .success()
        );
        let mut serving = self.serving.take().unwrap();
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while detach(&self.point()) {}
        if let Some(mut serving) = self.serving.take() {
            let _ = serving.process.kill();
            let _ = serving.process.wait();
        }
    }
}

const DENIED: &str = "Permission denied";

#[test]
fn each_user_has_his_own_rights() {
    let mut world = World::new();
    world.serve(&["--shared"]);
    succeeded(&world.mount(ROOT, &world.point()));
    // Whose is what is made.
    let made = world.says(
        ANN,
        "umask 022; mkdir home team && echo secret >home/secret && echo open >open && stat -c '%u %g %a' home open",
    );
    assert_eq!(made, "1001 1001 755\n1001 1001 644\n");
    assert_eq!(world.says(BOB, "cat open home/secret"), "open\nsecret\n");
    for script in [
        "echo x >open",
        "touch home/new",
        "rm home/secret",
        "ln -s x home/link",
        "echo x >>home/secret",
    ] {
        world.fails(BOB, script, DENIED);
    }
    for script in ["rm -f open", "mv open closed", "rmdir team"] {
        // In a sticky directory.
        world.fails(BOB, script, "not permitted");
    }
    for script in ["chmod 777 open", "chown 1002 open"] {
        world.fails(BOB, script, "not permitted");
    }
    world.fails(ANN, "chown 1002 open", "not permitted");
    world.fails(ANN, "chgrp 1002 open", "not permitted");
    assert_eq!(
        world.says(ANN, "chgrp 2000 open && stat -c %g open"),
        "2000\n"
    );
    // A directory is closed with all that is in it.
    world.says(ANN, "chmod 700 home");
    for script in ["ls home", "cat home/secret", "stat home/secret"] {
        world.fails(BOB, script, DENIED);
    }
    assert_eq!(world.says(ANN, "cat home/secret"), "secret\n");
    assert_eq!(world.says(ROOT, "cat home/secret"), "secret\n");
    world.says(ANN, "chmod 711 home");
    world.fails(BOB, "ls home", DENIED);
    assert_eq!(world.says(BOB, "cat home/secret"), "secret\n");
    // One that may be read and not searched is listed all the same.
    world.says(ANN, "chmod 744 home");
    assert_eq!(world.says(BOB, "ls home"), "secret\n");
    world.fails(BOB, "cat home/secret", DENIED);
    world.says(ANN, "chmod 711 home; chmod 600 home/secret");
    world.fails(BOB, "cat home/secret", DENIED);
    // What another one writes, to what root has opened for him, has no set-id bits.
    let written = "cp /bin/true tool; chmod 6755 tool; \
                   setpriv --reuid 1002 --regid 1002 --clear-groups sh -c 'echo x' >>tool; stat -c %a tool; \
                   chmod 6755 tool; echo x >>tool; stat -c %a tool";
    assert_eq!(world.says(ROOT, written), "755\n6755\n");
    // By a further group, and a set-group-id directory.
    world.says(ANN, "chgrp 2000 team && chmod 2770 team");
    world.says(
        BOB,
        "umask 007; echo plan >team/plan && mkdir team/more && echo x >team/more/x",
    );
    assert_eq!(
        world.says(
            ANN,
            "stat -c '%u %g %a' team/plan team/more; cat team/plan team/more/x"
        ),
        "1002 2000 660\n1002 2000 2770\nplan\nx\n"
    );
    for script in ["ls team", "cat team/plan", "touch team/x"] {
        world.fails(EVE, script, DENIED);
    }
    // What is open stays so: a descriptor that one user has handed to another.
    let handed =
        "exec 3<home/secret; exec setpriv --reuid 1002 --regid 1002 --clear-groups cat <&3";
    assert_eq!(world.says(ROOT, handed), "secret\n");
    // Of one name that leads by two ways the open one counts.
    world.says(
        ANN,
        "mkdir closed way && chmod 700 closed && echo both >closed/one && ln closed/one way/two",
    );
    assert_eq!(
        world.says(BOB, "cat way/two; stat -c %h way/two"),
        "both\n2\n"
    );
    world.fails(BOB, "cat closed/one", DENIED);
    assert_eq!(world.says(ANN, "cat closed/one way/two"), "both\nboth\n");
    world.end();
}

/// A controller that is killed and comes back finds each user's session again, by the user.
#[test]
fn users_go_on_with_the_next_controller() {
    let mut world = World::new();
    world.serve(&["--shared"]);
    succeeded(&world.mount(ROOT, &world.point()));
    for round in 0..2 {
        for user in [ANN, BOB] {
            world.says(
                user,
                &format!(
                    "umask 077; mkdir -p {0} && echo {round} >{0}/{round}",
                    user.0
                ),
            );
        }
        let serving = world.serving.as_mut().unwrap();
        serving.process.kill().unwrap();
        serving.process.wait().unwrap();
        world.serve(&["--shared"]);
        for user in [ANN, BOB] {
            let read = format!("cat {}/{round}", user.0);
            assert_eq!(world.says(user, &read), format!("{round}\n"));
            world.fails(EVE, &read, DENIED);
        }
    }
    world.end();
}

/// A pool that is served to its own user only.
#[test]
fn who_is_not_let_in_is_told_so() {
    let mut world = World::new();
    world.serve(&[]);
    succeeded(&world.mount(ROOT, &world.point()));
    assert_eq!(world.says(ROOT, "echo x >file && cat file"), "x\n");
    assert_eq!(world.says(SERVER, "cat file"), "x\n");
    let looks = format!(
        "cat '{0}/file'; ls '{0}'; touch '{0}/new'",
        world.point().display()
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &looks])
        .env("LC_ALL", "C")
        .current_dir("/");
    let output = of(BOB, &mut command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.matches(DENIED).count(), 3, "{output:?}");
    world.end();
}

/// What is done in a namespace of mounts of its own, in which everybody may open `/dev/fuse`, as is usual, and the user
/// has a name, which fusermount3 asks for.
const BY_HIMSELF: &str = r#"
mkdir device && mount -t tmpfs -o dev none device
mknod device/fuse c 10 229 && chmod 666 device/fuse && mount --bind device/fuse /dev/fuse
{ cat /etc/passwd; echo ann:x:1001:1001::/:/bin/sh; } >passwd && mount --bind passwd /etc/passwd
as() { user=$1; shift; setpriv --reuid $user --regid $user --groups $user,2000 --inh-caps=-all "$@"; }
mounted() { grep -q " $PWD/mount " /proc/self/mountinfo; }
as 1001 ./arck mount pool mount || echo refused
chown 1001:1001 mount
as 1001 ./arck mount pool mount
mounted && echo mounted
as 1001 sh -c 'umask 022; echo mine >mount/file; stat -c "%u %g %a" mount/file; chgrp 2000 mount/file; cat mount/file'
as 1002 cat mount/file || true
cat mount/file || true
as 1001 ./arck mount pool mount || echo refused
as 1001 fusermount3 -u mount
mounted || echo unmounted
setpriv --reuid 1001 --regid 1001 --clear-groups ./arck mount pool mount --foreground &
while ! mounted; do sleep 0.02; done
kill -9 $!; wait $! 2>/dev/null || true
as 1001 cat mount/file || true
as 1001 ./arck mount pool mount
as 1001 cat mount/file
as 1001 fusermount3 -u mount
as 1001 env PATH=/nowhere ./arck mount pool mount || echo refused
chmod 600 device/fuse
as 1001 ./arck mount pool mount || echo refused
mounted || echo unmounted
"#;

/// A user who is not root mounts at a directory of his own, for himself.
#[test]
fn a_user_mounts_for_himself() {
    let mut world = World::new();
    world.serve(&["--shared"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", &format!("exec 2>&1\n{BY_HIMSELF}")]);
    command.current_dir(world.place.path()).env("LC_ALL", "C");
    let said = Running::start(command).finished(SOON);
    let said = String::from_utf8(said.stdout).unwrap();
    let place = world.place.path().display();
    let expected = [
        &format!("arck mount: {place}/mount is not yours"),
        "refused",
        "mounted",
        "1001 1001 644",
        "mine",
        "cat: mount/file: Permission denied",
        "cat: mount/file: Permission denied",
        &format!("arck mount: the pool {place}/pool is mounted"),
        "refused",
        "unmounted",
        "cat: mount/file: Transport endpoint is not connected",
        "mine",
        "arck mount: fusermount3 is not installed",
        "refused",
        "arck mount: failed to open /dev/fuse: Permission denied",
        "refused",
        "unmounted",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, begins) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(begins),
            "{line} where {begins} is expected:\n{said}"
        );
    }
    let mut serving = world.serving.take().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}
