//! What an operation told, as far as two file systems must agree on it.

use rustix::io::Errno;

/// Times from this second on count as "now" and are not compared: tests set earlier ones.
pub const NOW_SECONDS: i64 = 1_500_000_000;

/// Comparable part of `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub mode: u32,
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    /// `None` for directories.
    pub size: Option<u64>,
    /// `None` if it is not one that was set.
    pub modified: Option<(i64, u32)>,
    /// Only looked at just after it was set: reading may change it.
    pub accessed: Option<(i64, u32)>,
}

/// A time if it was set by a test.
pub fn set_time(seconds: i64, nanoseconds: u32) -> Option<(i64, u32)> {
    (seconds < NOW_SECONDS).then_some((seconds, nanoseconds))
}

/// What an operation told.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Stat(View),
    /// Names and `d_type`, sorted.
    Names(Vec<(Vec<u8>, u8)>),
    Error(Errno),
    /// ArckFS only: the path left the pool.
    Outside,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Number(number) => write!(f, "{number}"),
            Outcome::Bytes(bytes) => {
                let text = bytes[..bytes.len().min(32)].escape_ascii();
                write!(f, "{} bytes: {text}", bytes.len())
            }
            Outcome::Stat(view) => view.fmt(f),
            Outcome::Names(names) => {
                let text = |(name, kind): &(Vec<u8>, u8)| format!("{}:{kind}", name.escape_ascii());
                f.debug_list().entries(names.iter().map(text)).finish()
            }
            Outcome::Error(errno) => write!(f, "{errno:?}"),
            Outcome::Outside => f.write_str("outside"),
        }
    }
}

impl From<Result<(), Errno>> for Outcome {
    fn from(result: Result<(), Errno>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done,
            Err(errno) => Outcome::Error(errno),
        }
    }
}

impl From<Result<u64, Errno>> for Outcome {
    fn from(result: Result<u64, Errno>) -> Outcome {
        match result {
            Ok(number) => Outcome::Number(number),
            Err(errno) => Outcome::Error(errno),
        }
    }
}

/// Where two pieces of bytes first differ.
pub fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .position(|(a, b)| a != b)
        .unwrap_or(one.len().min(other.len()))
}
