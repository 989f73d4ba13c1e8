//! The pools that are served on this machine, as far as this user can reach them.
//!
//! They are found by what their controllers announce ([`crate::announcing`]), which anybody can do. So of each
//! announcement it is looked up who made it, and whether the controller that answers in the pool's directory is the
//! same process of the same user: nobody can announce another's pool, in the place of its controller or beside it.
//!
//! # Invariants
//! * It ends in bounded time, however many announcements there are, whoever does not answer, and whatever file
//!   system a path leads to.
//! * Announcements of others keep out none of the user's own, nor of root's, which are looked at first.
//! * What others have chosen is printed without what would steer a terminal.

use super::asking;
use super::terminal::shown;
use super::told::{Told, durability, sizes};
use crate::announcing::{self, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Looking for announcements, and waiting for what is told there, takes no longer.
const FINDING: Duration = Duration::from_secs(1);
/// Asking the controllers, all at once.
const ASKING: Duration = Duration::from_secs(2);
/// Announcements that are looked at.
const NAMES_MAX: usize = 1 << 16;
/// Of one other user, and of all others.
const OF_ONE_MAX: usize = 64;
const OF_OTHERS_MAX: usize = 256;
/// Of the user's own and root's: as many as there are descriptors for, by default.
const OWN_MAX: usize = 512;

/// What was found.
struct Found {
    path: PathBuf,
    peer: Peer,
    /// `None`: it has not answered in time.
    told: Option<Told>,
}

/// All that were found, and which processes of the user's own have announced something and do not say what.
#[derive(Default)]
struct Served {
    found: Vec<Found>,
    silent: Vec<Peer>,
    /// Announcements were left out that there was no time or room for.
    is_cut: bool,
}

/// The list, as text or JSON.
///
/// # Errors
/// One line: the kernel does not tell of sockets.
pub fn list(json: bool) -> Result<String, String> {
    let served = look()?;
    Ok(if json { served.json() } else { served.text() })
}

fn is_own(peer: Peer) -> bool {
    peer.user == 0 || peer.user == geteuid().as_raw()
}

fn look() -> Result<Served, String> {
    let names = announcing::names(NAMES_MAX).map_err(|error| {
        format!(
            "cannot list what is served: /proc/net/unix: {}; name a pool: arck status POOL",
            crate::run::plain(&error)
        )
    })?;
    let mut served = Served {
        is_cut: names.len() == NAMES_MAX,
        ..Served::default()
    };
    let until = Instant::now() + FINDING;
    let sockets = connect(names, until, &mut served.is_cut);
    let (told, silent) = hear(sockets, until);
    served.silent = silent.into_iter().filter(|peer| is_own(*peer)).collect();
    served.found = ask(told);
    served.found.sort_by(|one, other| one.path.cmp(&other.path));
    served
        .found
        .dedup_by(|one, other| (&one.path, one.peer) == (&other.path, other.peer));
    Ok(served)
}

/// Connects to all, as far as there is room and time.
fn connect(mut names: Vec<String>, until: Instant, is_cut: &mut bool) -> Vec<(OwnedFd, Peer)> {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut counts: HashMap<u32, usize> = HashMap::new();
    while !names.is_empty() {
        let mut again = Vec::new();
        for name in names {
            if Instant::now() > until {
                *is_cut = true;
                break;
            }
            let socket = match announcing::connect(&name) {
                Ok(socket) => socket,
                // Many ask there just now.
                Err(Errno::AGAIN) => {
                    again.push(name);
                    continue;
                }
                Err(Errno::MFILE | Errno::NFILE) => {
                    *is_cut = true;
                    continue;
                }
                Err(_) => continue,
            };
            let Ok(peer) = Peer::of(socket.as_fd()) else {
                continue;
            };
            let count = counts.entry(peer.user).or_default();
            *count += 1;
            let is_own = is_own(peer);
            let has_room = match is_own {
                true => own.len() < OWN_MAX,
                false => *count <= OF_ONE_MAX && others.len() < OF_OTHERS_MAX,
            };
            match (has_room, is_own) {
                (true, true) => own.push((socket, peer)),
                (true, false) => others.push((socket, peer)),
                (false, _) => *is_cut = true,
            }
        }
        if Instant::now() > until {
            *is_cut |= !again.is_empty();
            break;
        }
        names = again;
        if !names.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    own.append(&mut others);
    own
}

/// What is told where it was connected, and who has told nothing in time.
fn hear(mut sockets: Vec<(OwnedFd, Peer)>, until: Instant) -> (Vec<(PathBuf, Peer)>, Vec<Peer>) {
    let mut told = Vec::new();
    loop {
        sockets.retain(|(socket, peer)| match announcing::told(socket.as_fd()) {
            Ok(path) => {
                told.push((path, *peer));
                false
            }
            Err(errno) => errno == Errno::AGAIN || errno == Errno::INTR,
        });
        let left = until.saturating_duration_since(Instant::now());
        if sockets.is_empty() || left.is_zero() {
            return (told, sockets.into_iter().map(|(_, peer)| peer).collect());
        }
        let mut set: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|(socket, _)| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
            .collect();
        // Whatever comes of it, all are looked at again.
        let _ = poll(&mut set, Timespec::try_from(left).ok().as_ref());
    }
}

/// Asks the controllers of all these pools at once. Whose pool is not served by who has announced it, or cannot be
/// reached, is left out.
fn ask(told: Vec<(PathBuf, Peer)>) -> Vec<Found> {
    let (sender, receiver) = channel();
    let mut waiting = HashMap::new();
    for (number, (path, peer)) in told.into_iter().enumerate() {
        let (sender, asked) = (sender.clone(), path.clone());
        let thread = std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || {
                // Nobody may be listening any more.
                let _ = sender.send((number, asking::ask_for_ever(&asked)));
            });
        if thread.is_ok() {
            waiting.insert(number, (path, peer));
        }
    }
    drop(sender);
    let until = Instant::now() + ASKING;
    let mut found = Vec::new();
    while let Ok((number, answer)) =
        receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        let Some((path, peer)) = waiting.remove(&number) else {
            continue;
        };
        if let Some(told) = answer.ok().filter(|told| told.peer == peer) {
            let told = Some(told);
            found.push(Found { path, peer, told });
        }
    }
    // Of others nothing is known, then: what they say may be wrong.
    let silent = waiting.into_values().filter(|(_, peer)| is_own(*peer));
    found.extend(silent.map(|(path, peer)| Found {
        path,
        peer,
        told: None,
    }));
    found
}

impl Served {
    fn json(&self) -> String {
        let mut text = String::new();
        for Found { path, peer, told } in &self.found {
            let mut object = json!({
                "pool": path.to_string_lossy(),
                "user": peer.user,
                "controller": peer.process,
                "answers": told.is_some(),
            });
            if let Some(told) = told {
                object["sessions"] = json!(told.status.sessions);
                if let Some(pool) = &told.pool {
                    let (bytes, used) = sizes(told, pool);
                    object["bytes"] = json!(bytes);
                    object["bytes_used"] = json!(used);
                    object["shared"] = json!(pool.shared);
                    object["durability"] = json!(durability(pool));
                }
            }
            let _ = writeln!(text, "{object}");
        }
        for peer in &self.silent {
            let object = json!({
                "pool": Value::Null,
                "user": peer.user,
                "controller": peer.process,
                "answers": false,
            });
            let _ = writeln!(text, "{object}");
        }
        text
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.found.is_empty() && self.silent.is_empty() {
            text += "no pool is served that you can reach; arck serve POOL serves one\n";
        } else {
            let _ = writeln!(
                text,
                "{:>8}  {:>8}  {:>8}  {:>17}  POOL",
                "PROCESS", "USER", "SESSIONS", "USED OF MiB"
            );
        }
        for Found { path, peer, told } in &self.found {
            let sessions = told.as_ref().map(|told| told.status.sessions.to_string());
            let sizes = told.as_ref().and_then(|told| {
                let (bytes, used) = sizes(told, told.pool.as_ref()?);
                Some(format!("{} of {}", used >> 20, bytes >> 20))
            });
            let _ = writeln!(
                text,
                "{:>8}  {:>8}  {:>8}  {:>17}  {}{}",
                peer.process,
                peer.user,
                sessions.unwrap_or_else(|| "?".to_owned()),
                sizes.unwrap_or_else(|| "?".to_owned()),
                shown(path),
                if told.is_some() {
                    ""
                } else {
                    " (does not answer)"
                }
            );
        }
        for peer in &self.silent {
            let _ = writeln!(
                text,
                "{:>8}  {:>8}  {:>8}  {:>17}  (does not answer: which is not known)",
                peer.process, peer.user, "?", "?"
            );
        }
        if self.is_cut {
            text += "more is announced than was looked at; arck status POOL tells of one\n";
        }
        text
    }
}
