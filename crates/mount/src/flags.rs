//! Flags of inodes, as `lsattr` and `chattr` ask for them: a pool has none, so none is told and none can be set.
//!
//! Invariant: what is asked is answered by the request alone; nothing is changed.

use arckfs::Errno;

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;

/// The answer to a request with what was given: ENOTTY for all others; EOPNOTSUPP for a flag.
pub fn answer(request: u32, given: &[u8]) -> Result<&'static [u8], Errno> {
    match request {
        GETFLAGS => Ok(&[0; 4]),
        FSGETXATTR => Ok(&[0; 28]),
        SETFLAGS | FSSETXATTR if given.iter().all(|&byte| byte == 0) => Ok(&[]),
        SETFLAGS | FSSETXATTR => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOTTY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_none() {
        assert_eq!(answer(GETFLAGS, &[]), Ok(&[0; 4][..]));
        assert_eq!(answer(FSGETXATTR, &[]), Ok(&[0; 28][..]));
        assert_eq!(answer(SETFLAGS, &[0; 4]), Ok(&[][..]));
        assert_eq!(answer(SETFLAGS, &[16, 0, 0, 0]), Err(Errno::OPNOTSUPP));
        assert_eq!(answer(FSSETXATTR, &[0, 1]), Err(Errno::OPNOTSUPP));
        assert_eq!(answer(0x5413, &[]), Err(Errno::NOTTY));
    }
}
