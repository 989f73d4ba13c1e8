//! `arck mkfs`: makes a pool.

use arck_controller::MkfsOptions;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `arck mkfs`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck mkfs /dev/shm/pool --size 1G          in memory: until the machine ends
  arck mkfs /mnt/pmem/pool --size 64G        on a DAX file system: persistent
  arck mkfs /dev/shm/pool --size 2G --force  replaces a pool that is there

On any other file system what programs do survives their death, and that of the
machine as far as it was synced (fsync): docs/crash-consistency.md.")]
pub struct MkfsArguments {
    /// Directory of the pool: empty, or not there yet
    /// [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// Size: bytes, or with K, M, G, T (powers of 1024), such as 512M or 1.5G; 16M to 16T
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    size: u64,

    /// Make it even if the file system beneath has less room than that now
    #[arg(long)]
    sparse: bool,

    /// Permission bits of the root directory, octal
    #[arg(long, value_name = "MODE", default_value = "755", value_parser = parse_mode)]
    mode: u32,

    /// Replace an Arck pool that is there; its contents are lost
    #[arg(long)]
    force: bool,
}

/// Bytes of a size such as `64M`, `1G` or `1GiB`: powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let sizes = parse_size::Config::new().with_binary();
    sizes.parse_size(text).map_err(|_| {
        "a number of bytes, or one with K, M, G or T behind it, such as 512M or 1.5G".to_owned()
    })
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("an octal number up to 7777".to_owned()),
    }
}

/// What has to be so before a pool is made.
fn prepare(arguments: &MkfsArguments, pool: &Path) -> Result<(), String> {
    crate::nested::refuse(pool)?;
    crate::owner::become_owner(pool)?;
    if !arguments.sparse {
        arck_controller::check_room(pool, arguments.size).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Makes the pool.
pub fn main(arguments: &MkfsArguments) -> ExitCode {
    let options = MkfsOptions {
        size: arguments.size,
        mode: arguments.mode,
        force: arguments.force,
    };
    let bar = ProgressBar::hidden();
    let mut progress = |done: u64, all: u64| {
        // Only for work that is worth watching, and for somebody who watches.
        if done == 2 && std::io::stderr().is_terminal() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.set_length(all);
            if let Ok(style) = ProgressStyle::with_template(
                "allocating {bar:40} {percent}% {elapsed} of about {duration}",
            ) {
                bar.set_style(style);
            }
        }
        bar.set_position(done);
    };
    let pool = crate::run::named_or_default(arguments.pool.as_deref());
    let made = pool.and_then(|pool| {
        prepare(arguments, &pool)?;
        let made = arck_controller::mkfs(&pool, &options, &mut progress);
        Ok((made.map_err(|error| error.to_string())?, pool))
    });
    bar.finish_and_clear();
    match made {
        Ok((superblock, pool)) => {
            crate::durability::tell("mkfs", &pool);
            if std::io::stdout().is_terminal() {
                println!(
                    "{}: {}: {} segments of {}, {} inodes, {:?}",
                    pool.display(),
                    arck_controller::size_text(superblock.geometry.span()),
                    superblock.geometry.segment_count,
                    arck_controller::size_text(superblock.geometry.segment_size),
                    superblock.geometry.inode_count,
                    superblock.durability,
                );
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("arck mkfs: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("2t"), Ok(2 << 40));
        for bad in ["", "M", "1X", "99999999999999T", "-1"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn modes() {
        assert_eq!(parse_mode("1777"), Ok(0o1777));
        assert!(parse_mode("778").is_err());
        assert!(parse_mode("10000").is_err());
    }
}
