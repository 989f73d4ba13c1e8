//! `arck serve` as a service manager starts it, which is told how it gets on (`sd_notify(3)`).

use crate::support::{Place, Serving, arck, run, succeeded};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where a manager listens.
fn manager(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
}

fn told(socket: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).expect("the manager is told");
    let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn serve(pool: &Path, socket: &Path) -> Command {
    let mut command = arck();
    command.arg("serve").arg(pool).args(["--ready-fd", "1"]);
    command.env("NOTIFY_SOCKET", socket);
    command
}

#[test]
fn a_manager_is_told_when_a_pool_is_served_and_when_that_ends() {
    let place = Place::made();
    let path = place.path().join("manager");
    let socket = manager(&path);
    let mut serving = Serving::of(&mut serve(&place.pool(), &path));
    let lines = told(&socket);
    assert_eq!(lines[0], "READY=1");
    assert_eq!(
        lines[1],
        format!("STATUS=serving {}", place.pool().display())
    );
    serving.signal(libc::SIGTERM);
    let lines = told(&socket);
    assert_eq!(lines[0], "STOPPING=1");
    assert!(lines[1].starts_with("STATUS=folding"), "{lines:?}");
    assert!(serving.process.wait().unwrap().success());
}

/// One that is not there keeps nobody from being served; a private controller says nothing to the manager of
/// whoever runs a program.
#[test]
fn who_is_no_manager_is_told_nothing() {
    let place = Place::made();
    let path = place.path().join("manager");
    let mut serving = Serving::of(&mut serve(&place.pool(), &path));
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());

    let socket = manager(&path);
    let mut command = run(&place.pool(), &[], &["true"]);
    command.env("NOTIFY_SOCKET", &path);
    assert!(succeeded(&command.output().unwrap()).is_empty());
    socket.set_nonblocking(true).unwrap();
    let heard = socket.recv(&mut [0; 4096]);
    assert_eq!(heard.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
