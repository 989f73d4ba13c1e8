//! `seeds DIRECTORY`: writes the seeds of every target into `DIRECTORY/TARGET`.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

fn write(directory: &Path) -> io::Result<()> {
    for target in arck_fuzz::TARGETS {
        let place = directory.join(target.name);
        fs::create_dir_all(&place)?;
        for (name, bytes) in (target.seeds)() {
            fs::write(place.join(name), bytes)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = env::args_os().nth(1) else {
        eprintln!("usage: seeds DIRECTORY");
        return ExitCode::from(2);
    };
    match write(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seeds: {}: {error}", Path::new(&directory).display());
            ExitCode::FAILURE
        }
    }
}
