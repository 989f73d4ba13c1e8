//! Appends lines of standard input to a log, each as soon as it is there.
//!
//!     append POOL LOG < FILE

use arck_logfs::{Log, Options, RECORD_MAX};
use std::error::Error;
use std::io::BufRead;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(pool), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("append POOL LOG < FILE".into());
    };
    let options = Options {
        make: true,
        ..Options::new(pool)
    };
    let log = Log::open(options, &name)?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? != 0 {
        for record in line.chunks(RECORD_MAX) {
            log.append(record)?;
        }
        line.clear();
    }
    Ok(log.close()?)
}
