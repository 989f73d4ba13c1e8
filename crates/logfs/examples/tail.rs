//! Writes a log to standard output, from its beginning or a position on, and what is appended to it from then on.
//!
//!     tail POOL LOG [POSITION]

use arck_logfs::{Log, Options};
use std::error::Error;
use std::io::Write;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(pool), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("tail POOL LOG [POSITION]".into());
    };
    let log = Log::open(Options::new(pool), &name)?;
    let position = match arguments.next() {
        Some(position) => position.parse()?,
        None => log.begin()?,
    };
    let mut follower = log.follow(position)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = follower.next(&mut buffer, Duration::from_secs(60))?;
        std::io::stdout().write_all(&buffer[..read])?;
    }
}
