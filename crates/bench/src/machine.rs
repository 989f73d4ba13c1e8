//! Facts about the machine that stand beside every figure.

use serde::{Deserialize, Serialize};
use std::fmt;

/// See the module's head.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub kernel: String,
    /// Mount options of /dev/shm, and how the kernel backs shared memory with huge pages.
    pub tmpfs: String,
    /// Load of the last minute before the measurement.
    pub load: f64,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            processor,
            processors,
            kernel,
            tmpfs,
            load,
        } = self;
        write!(
            formatter,
            "{processor}, {processors} processors, Linux {kernel}; {tmpfs}; load {load:.2}"
        )
    }
}

impl Machine {
    pub fn look() -> Machine {
        let processors = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = processors.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().into())
        };
        // Virtual machines often hide the model's name, but not its numbers.
        let processor = format!(
            "{} (family {}, model {})",
            field("model name"),
            field("cpu family"),
            field("model\t")
        );
        let mounts = read("/proc/mounts");
        let options = mounts
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(' ');
                (fields.nth(1) == Some("/dev/shm")).then(|| fields.nth(1))?
            })
            .next_back()
            .unwrap_or("not a mount");
        let huge = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let huge = huge
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map_or("unknown", |(chosen, _)| chosen);
        Machine {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            tmpfs: format!("/dev/shm {options}; shmem huge pages: {huge}"),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(f64::NAN),
        }
    }
}
