//! redis-server, which syncs its log before it answers (`appendfsync always`), and redis-benchmark, which asks: SET of
//! 64 bytes, by one client, by fifty, and by fifty that send sixteen at a time. The server is on the side that is
//! measured; who asks is not.
//!
//! Then all that was answered has to be in the log, and the server has to find as many keys in it when it is started
//! again.

use super::app::{App, Figure, grouped};
use super::side::{Side, said};
use super::tools;
use crate::outcome::Outcome;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Clients, requests of each at a time, requests.
const LOADS: [(u64, u64, u64); 3] = [(1, 1, 50_000), (50, 1, 100_000), (50, 16, 400_000)];
/// Keys among which each request chooses.
const KEYS: &str = "100000";
/// How long a server may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

struct Redis {
    server: PathBuf,
    asks: PathBuf,
    benchmark: PathBuf,
    divisor: u64,
}

pub fn redis(divisor: u64) -> Outcome<impl App> {
    Ok(Redis {
        server: tools::find("redis-server", "redis-server")?,
        asks: tools::find("redis-cli", "redis-tools")?,
        benchmark: tools::find("redis-benchmark", "redis-tools")?,
        divisor,
    })
}

/// A server that runs.
struct Server<'r> {
    redis: &'r Redis,
    socket: PathBuf,
    child: Option<Child>,
}

impl App for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn round(&self, side: &Side) -> Outcome<Vec<Figure>> {
        let server = Server::start(self, side)?;
        let mut figures = Vec::new();
        let mut all = 0;
        for (clients, at_once, requests) in LOADS {
            let requests = requests / self.divisor;
            all += requests;
            let how = match (clients, at_once) {
                (1, _) => "1 client".to_owned(),
                (clients, 1) => format!("{clients} clients"),
                (clients, many) => format!("{clients} clients, {many} at a time"),
            };
            figures.push(Figure {
                what: format!("redis SET, log synced always, {how}"),
                setting: format!("{} requests", grouped(requests)),
                each: server.load(clients, at_once, requests)?,
                wanted: 1.05,
                result: String::new(),
            });
        }
        let keys = server.ask(&["dbsize"])?;
        server.end()?;
        let mut count = side.command(Path::new("sh"));
        count.args([
            "-c",
            "cat \"$0\"/appendonlydir/*.incr.aof | grep -ac '^SET'",
        ]);
        let logged = said(count.arg(&side.directory))?;
        if logged.trim() != all.to_string() {
            return Err(format!(
                "{} of {all} requests are in the log",
                logged.trim()
            ));
        }
        let again = Server::start(self, side)?;
        let found = again.ask(&["dbsize"])?;
        again.end()?;
        match found == keys && keys != "0" {
            true => Ok(figures),
            false => Err(format!("{found} keys after a restart, {keys} before")),
        }
    }
}

impl<'r> Server<'r> {
    fn start(redis: &'r Redis, side: &Side) -> Outcome<Server<'r>> {
        let socket = side.beside.join("redis.sock");
        let child = side
            .command(&redis.server)
            .args(["--port", "0", "--unixsocket"])
            .arg(&socket)
            .args(["--dir", &side.directory, "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            // What it rewrites would be in the time of some rounds.
            .args(["--auto-aof-rewrite-percentage", "0"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", redis.server.display()))?;
        let mut server = Server {
            redis,
            socket,
            child: Some(child),
        };
        let start = Instant::now();
        while server.ask(&["ping"]).as_deref() != Ok("PONG") {
            let ended = server
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok());
            if ended.flatten().is_some() || start.elapsed() > PATIENCE {
                return Err("redis-server does not start".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn ask(&self, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(&self.redis.asks);
        command.arg("-s").arg(&self.socket).args(words);
        said(&mut command).map(|answer| answer.trim().to_owned())
    }

    /// Nanoseconds from one answer to the next.
    fn load(&self, clients: u64, at_once: u64, requests: u64) -> Outcome<f64> {
        let mut command = Command::new(&self.redis.benchmark);
        command
            .arg("-s")
            .arg(&self.socket)
            .args(["-t", "set", "-d", "64", "-r", KEYS, "--csv"])
            .args(["-n", &requests.to_string(), "-c", &clients.to_string()])
            .args(["-P", &at_once.to_string()]);
        let printed = said(&mut command)?;
        // "SET","96153.84","0.312",...
        let line = printed.lines().find(|line| line.starts_with("\"SET"));
        let rate = line.and_then(|line| line.split(',').nth(1));
        let rate = rate.and_then(|rate| rate.trim_matches('"').parse::<f64>().ok());
        match rate {
            Some(rate) if rate > 0.0 => Ok(1e9 / rate),
            _ => Err(format!("redis-benchmark says no rate: {printed}")),
        }
    }

    fn end(mut self) -> Outcome<()> {
        // It closes the connection without an answer.
        let _ = self.ask(&["shutdown", "nosave"]);
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("redis-server ended badly: {other:?}")),
        }
    }
}

impl Drop for Server<'_> {
    /// Of one that something is wrong with.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = self.ask(&["shutdown", "nosave"]);
            let start = Instant::now();
            while child.try_wait().is_ok_and(|ended| ended.is_none()) {
                if start.elapsed() > PATIENCE {
                    let _ = child.kill();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
