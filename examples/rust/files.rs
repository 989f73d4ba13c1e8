//! Files of a pool, as with `std::fs`.
//!
//!     ARCK_POOL=/dev/shm/my-pool cargo run -p arck-rust --example files

use arck::{MapAccess, Pool};
use std::io::{BufRead, BufReader, BufWriter, Result, Write};
use std::time::Duration;

fn main() -> Result<()> {
    let files = Pool::from_environment()?
        .patience(Duration::from_secs(10))
        .files()?;
    files.create_dir_all("example/cities")?;

    // Written and read through the standard library's buffers.
    let mut table = BufWriter::new(files.create("example/cities.csv")?);
    for (city, people) in [("Oslo", 709_000), ("Bergen", 291_000)] {
        writeln!(table, "{city},{people}")?;
    }
    table.flush()?;
    drop(table);
    let mut all = 0;
    for line in BufReader::new(files.open("example/cities.csv")?).lines() {
        let line = line?;
        let (city, people) = line.split_once(',').unwrap_or((&line, "0"));
        all += people.parse::<u64>().unwrap_or(0);
        files.write(format!("example/cities/{city}"), people)?;
    }

    // A name is given and taken in one step, also if the machine stops in the middle.
    files.write("example/total.new", all.to_string())?;
    files.rename("example/total.new", "example/total")?;
    files.set_xattr("example/total", "user.unit", b"people")?;

    // A part of a file in memory: what is stored there is the file's.
    let file = files
        .options()
        .read(true)
        .write(true)
        .open("example/cities.csv")?;
    let map = file.map(0, 4, MapAccess::Write)?;
    map.write_at(b"OSLO", 0)?;
    map.flush()?;
    drop((map, file));

    let mut names: Vec<_> = files.read_dir("example")?.collect();
    names.sort_by_key(|name| name.file_name());
    for name in &names {
        println!("{:6} {}", name.metadata()?.len(), name.path().display());
    }
    drop(names);
    println!("{all} people");

    // What does not work says why.
    let error = files.read("example/nothing").expect_err("it is not there");
    println!(
        "{error} ({:?}, errno {:?})",
        error.kind(),
        arck::errno(&error)
    );
    files.close()
}
