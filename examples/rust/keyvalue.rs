//! Small values of a pool, and what becomes of them as files.
//!
//!     ARCK_POOL=/dev/shm/my-pool cargo run -p arck-rust --example keyvalue

use arck::Pool;
use arck::keyvalue::Batch;
use std::io::Result;

fn main() -> Result<()> {
    let pool = Pool::from_environment()?;
    let sessions = pool.store("example-sessions")?;
    sessions.set(b"anna", b"language=no")?;
    sessions.set(b"bert", b"language=de")?;

    // All of it, or nothing: also if the machine stops in the middle.
    let mut batch = Batch::new();
    batch
        .delete(b"bert")
        .set(b"carl", b"language=fr")
        .set(b"dora", b"language=it");
    sessions.apply(&batch)?;

    let mut keys = sessions.list()?;
    keys.sort();
    for key in &keys {
        let value = sessions.get(key)?.unwrap_or_default();
        println!(
            "{} {}",
            String::from_utf8_lossy(key),
            String::from_utf8_lossy(&value)
        );
    }

    // They are files to everybody else.
    let files = pool.files()?;
    println!("{}", files.read_to_string("example-sessions/anna")?);
    files.close()
}
