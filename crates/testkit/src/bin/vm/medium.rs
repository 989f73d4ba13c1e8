//! What a power cut leaves: the medium, of which the plugin has kept what nothing could take any
//! more, and of the lines beyond that those which left the cache by themselves.
//!
//! # Invariant
//! After a cut, memory and medium are the same again, and the next machine starts from that.

use arck_testkit::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LINE: usize = 64;
const STEP: usize = 1 << 20;

/// Lines that were in no medium when the power was cut, and how many of them stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines {
    pub cached: u64,
    pub kept: u64,
}

/// The plugin and its files.
pub struct Medium {
    pub plugin: PathBuf,
    pub medium: PathBuf,
    pub figures: PathBuf,
}

/// What the plugin counts, in its order.
pub const FIGURES: [&str; 4] = [
    "flushes",
    "streaming stores",
    "fences",
    "stores of the kernel",
];

impl Medium {
    /// A plugin's files in `directory`: a medium of `size` bytes, all zeroes.
    pub fn create(plugin: &Path, directory: &Path, size: u64) -> std::io::Result<Medium> {
        let medium = Medium {
            plugin: plugin.into(),
            medium: directory.join("medium"),
            figures: directory.join("figures"),
        };
        File::create(&medium.medium)?.set_len(size)?;
        File::create(&medium.figures)?.set_len(4096)?;
        Ok(medium)
    }

    /// The emulator's words for it.
    pub fn words(&self, memory: &Path) -> Vec<String> {
        let words = format!(
            "file={},memory={},medium={},figures={}",
            self.plugin.display(),
            memory.display(),
            self.medium.display(),
            self.figures.display()
        );
        vec!["-plugin".to_owned(), words]
    }

    /// What the plugin has counted so far.
    pub fn figures(&self) -> std::io::Result<[u64; FIGURES.len()]> {
        let mut bytes = [0; 8 * FIGURES.len()];
        File::open(&self.figures)?.read_exact_at(&mut bytes, 0)?;
        let mut words = bytes.chunks_exact(8).map(|word| {
            let mut padded = [0; 8];
            padded.copy_from_slice(word);
            u64::from_le_bytes(padded)
        });
        Ok(std::array::from_fn(|_| words.next().unwrap_or_default()))
    }

    /// Decides for each line that is not in the medium whether it stays: `percent` in a hundred do,
    /// and all before byte `kernels`, where the kernel stores through a mapping of its own that the
    /// plugin does not know.
    pub fn settle(
        &self,
        memory: &Path,
        kernels: u64,
        percent: u64,
        random: &mut Random,
    ) -> std::io::Result<Lines> {
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        let (memory, medium) = (open(memory)?, open(&self.medium)?);
        let size = memory.metadata()?.len();
        let (mut one, mut other) = (vec![0; STEP], vec![0; STEP]);
        let mut lines = Lines::default();
        for at in (0..size).step_by(STEP) {
            memory.read_exact_at(&mut one, at)?;
            medium.read_exact_at(&mut other, at)?;
            if one == other {
                continue;
            }
            if at < kernels {
                medium.write_all_at(&one, at)?;
                continue;
            }
            for (cached, kept) in one.chunks_mut(LINE).zip(other.chunks_mut(LINE)) {
                if cached == kept {
                    continue;
                }
                lines.cached += 1;
                if random.percent(percent) {
                    lines.kept += 1;
                    kept.copy_from_slice(cached);
                } else {
                    cached.copy_from_slice(kept);
                }
            }
            memory.write_all_at(&one, at)?;
            medium.write_all_at(&other, at)?;
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_or_go_as_wholes() {
        let directory = tempfile::tempdir().unwrap();
        let memory = directory.path().join("memory");
        let size = 2 * STEP;
        let medium = Medium::create(Path::new("plugin"), directory.path(), size as u64).unwrap();
        let stored: Vec<u8> = (0..size).map(|at| u8::from(at % 256 < 128)).collect();
        for (percent, range) in [(0, 0..1), (50, 7_000..9_500), (100, 16_384..16_385)] {
            std::fs::write(&memory, &stored).unwrap();
            File::create(&medium.medium)
                .unwrap()
                .set_len(size as u64)
                .unwrap();
            let lines = medium
                .settle(&memory, 0, percent, &mut Random::new(3))
                .unwrap();
            assert_eq!(lines.cached, 16_384);
            assert!(range.contains(&lines.kept), "{lines:?}");
            let left = std::fs::read(&memory).unwrap();
            assert_eq!(left, std::fs::read(&medium.medium).unwrap());
            let whole = left
                .chunks(LINE)
                .filter(|line| line.iter().all(|&byte| byte == 1));
            assert_eq!(whole.count() as u64, lines.kept);
        }
    }
}
