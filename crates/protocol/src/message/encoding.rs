//! How requests and responses are encoded: a byte that says which, then its fields in order.
//!
//! # Invariants
//! * What is decoded is bounded by the message's length, and nothing is left over; whatever the bytes,
//!   nothing panics.
//! * What decodes is encoded to the same bytes.

use super::*;
use crate::wire::{Malformed, Reader, Writer};

const GRANT_INODES: u8 = 1;
const ACQUIRE: u8 = 2;
const COMMIT: u8 = 3;
const COMMIT_ALL: u8 = 4;
const RECALL: u8 = 5;
const MOVE_DIRECTORY: u8 = 6;
const SET_OWNER: u8 = 7;
const GROW_ARENA: u8 = 8;
const RECEIPT: u8 = 9;
const FORGET: u8 = 13;
const SYNC: u8 = 14;
const PING: u8 = 15;
const LOOK_UP: u8 = 18;
const ADMIT: u8 = 19;
const MORE_ROOM: u8 = 16;
const INSPECT: u8 = 20;
const READ: u8 = 21;
const DROP_SET_ID: u8 = 22;
const GIVE_BACK: u8 = 23;
const WRITE: u8 = 24;
const RESIZE: u8 = 25;
const LIST: u8 = 26;

const DONE: u8 = 1;
const ERROR: u8 = 2;
const VIOLATION: u8 = 3;
const INODES: u8 = 4;
const BYTES: u8 = 5;
const FOUND: u8 = 7;

fn put_inodes(w: &mut Writer, inodes: &InodeList) -> Result<(), Malformed> {
    w.list(inodes.as_slice())
}

fn get_inodes(r: &mut Reader) -> Result<InodeList, Malformed> {
    InodeList::new(&r.list()?).ok_or(Malformed)
}

impl Request {
    /// Encodes into `buffer`; gives the bytes used.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, Malformed> {
        let mut writer = Writer::new(buffer);
        let w = &mut writer;
        match self {
            Request::GrantInodes { count } => {
                w.u8(GRANT_INODES)?;
                w.u32(*count)?;
            }
            Request::Acquire { inodes } => {
                w.u8(ACQUIRE)?;
                put_inodes(w, inodes)?;
            }
            Request::Commit { inodes, release } => {
                w.u8(COMMIT)?;
                put_inodes(w, inodes)?;
                w.u8(u8::from(*release))?;
            }
            Request::CommitAll { release } => {
                w.u8(COMMIT_ALL)?;
                w.u8(u8::from(*release))?;
            }
            Request::Recall { inodes } => {
                w.u8(RECALL)?;
                put_inodes(w, inodes)?;
            }
            Request::MoveDirectory {
                from,
                from_name,
                to,
                to_name,
                flags,
            } => {
                w.u8(MOVE_DIRECTORY)?;
                w.u32(*from)?;
                w.bytes(from_name)?;
                w.u32(*to)?;
                w.bytes(to_name)?;
                w.u32(*flags)?;
            }
            Request::SetOwner { inode, uid, gid } => {
                w.u8(SET_OWNER)?;
                w.u32(*inode)?;
                w.u32(*uid)?;
                w.u32(*gid)?;
            }
            Request::GrowArena {
                branch_pages,
                delta_pages,
            } => {
                w.u8(GROW_ARENA)?;
                w.u32(*branch_pages)?;
                w.u32(*delta_pages)?;
            }
            Request::MoreRoom { pages, pressing } => {
                w.u8(MORE_ROOM)?;
                w.u32(*pages)?;
                w.u8(u8::from(*pressing))?;
            }
            Request::Receipt {
                inode,
                fold,
                offset,
                length,
            } => {
                w.u8(RECEIPT)?;
                w.u32(*inode)?;
                w.u64(*fold)?;
                w.u64(*offset)?;
                w.u32(*length)?;
            }
            Request::Forget { inode } => {
                w.u8(FORGET)?;
                w.u32(*inode)?;
            }
            Request::Sync { inodes } => {
                w.u8(SYNC)?;
                put_inodes(w, inodes)?;
            }
            Request::LookUp { directory, name } => {
                w.u8(LOOK_UP)?;
                w.u32(*directory)?;
                w.bytes(name)?;
            }
            Request::Admit { inode, contents } => {
                w.u8(ADMIT)?;
                w.u32(*inode)?;
                w.u8(u8::from(*contents))?;
            }
            Request::Inspect { inode } => {
                w.u8(INSPECT)?;
                w.u32(*inode)?;
            }
            Request::Read {
                inode,
                generation,
                position,
                length,
            } => {
                w.u8(READ)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u64(*position)?;
                w.u32(*length)?;
            }
            Request::Write {
                inode,
                generation,
                position,
                append,
                bytes,
            } => {
                w.u8(WRITE)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u64(*position)?;
                w.u8(u8::from(*append))?;
                w.bytes(bytes)?;
            }
            Request::Resize {
                inode,
                generation,
                size,
            } => {
                w.u8(RESIZE)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u64(*size)?;
            }
            Request::List {
                inode,
                generation,
                bucket,
                skip,
            } => {
                w.u8(LIST)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u64(*bucket)?;
                w.u32(*skip)?;
            }
            Request::DropSetId { inode } => {
                w.u8(DROP_SET_ID)?;
                w.u32(*inode)?;
            }
            Request::GiveBack { segments } => {
                w.u8(GIVE_BACK)?;
                w.list(segments)?;
            }
            Request::Ping => w.u8(PING)?,
        }
        Ok(writer.used())
    }

    /// Decodes a private copy.
    pub fn decode(bytes: &[u8]) -> Result<Request, Malformed> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let request = match r.u8()? {
            GRANT_INODES => Request::GrantInodes { count: r.u32()? },
            ACQUIRE => Request::Acquire {
                inodes: get_inodes(r)?,
            },
            COMMIT => Request::Commit {
                inodes: get_inodes(r)?,
                release: r.boolean()?,
            },
            COMMIT_ALL => Request::CommitAll {
                release: r.boolean()?,
            },
            RECALL => Request::Recall {
                inodes: get_inodes(r)?,
            },
            MOVE_DIRECTORY => Request::MoveDirectory {
                from: r.u32()?,
                from_name: r.bytes()?.to_vec(),
                to: r.u32()?,
                to_name: r.bytes()?.to_vec(),
                flags: r.u32()?,
            },
            SET_OWNER => Request::SetOwner {
                inode: r.u32()?,
                uid: r.u32()?,
                gid: r.u32()?,
            },
            GROW_ARENA => Request::GrowArena {
                branch_pages: r.u32()?,
                delta_pages: r.u32()?,
            },
            MORE_ROOM => Request::MoreRoom {
                pages: r.u32()?,
                pressing: r.boolean()?,
            },
            RECEIPT => Request::Receipt {
                inode: r.u32()?,
                fold: r.u64()?,
                offset: r.u64()?,
                length: r.u32()?,
            },
            FORGET => Request::Forget { inode: r.u32()? },
            SYNC => Request::Sync {
                inodes: get_inodes(r)?,
            },
            LOOK_UP => Request::LookUp {
                directory: r.u32()?,
                name: r.bytes()?.to_vec(),
            },
            ADMIT => Request::Admit {
                inode: r.u32()?,
                contents: r.boolean()?,
            },
            INSPECT => Request::Inspect { inode: r.u32()? },
            READ => Request::Read {
                inode: r.u32()?,
                generation: r.u32()?,
                position: r.u64()?,
                length: r.u32()?,
            },
            WRITE => Request::Write {
                inode: r.u32()?,
                generation: r.u32()?,
                position: r.u64()?,
                append: r.boolean()?,
                bytes: r.bytes()?.to_vec(),
            },
            RESIZE => Request::Resize {
                inode: r.u32()?,
                generation: r.u32()?,
                size: r.u64()?,
            },
            LIST => Request::List {
                inode: r.u32()?,
                generation: r.u32()?,
                bucket: r.u64()?,
                skip: r.u32()?,
            },
            DROP_SET_ID => Request::DropSetId { inode: r.u32()? },
            GIVE_BACK => Request::GiveBack {
                segments: r.list()?,
            },
            PING => Request::Ping,
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Response {
    /// Encodes into `buffer`; gives the bytes used.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, Malformed> {
        let mut writer = Writer::new(buffer);
        let w = &mut writer;
        match self {
            Response::Done => w.u8(DONE)?,
            Response::Error(errno) => {
                w.u8(ERROR)?;
                w.u32(errno.unsigned_abs())?;
            }
            Response::Violation(text) => {
                w.u8(VIOLATION)?;
                let mut end = text.len().min(512);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                w.bytes(&text.as_bytes()[..end])?;
            }
            Response::Inodes(inodes) => {
                w.u8(INODES)?;
                w.list(inodes)?;
            }
            Response::Bytes(bytes) => {
                w.u8(BYTES)?;
                w.bytes(bytes)?;
            }
            Response::Found {
                inode,
                generation,
                kind,
            } => {
                w.u8(FOUND)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u8(*kind)?;
            }
        }
        Ok(writer.used())
    }

    /// Decodes a private copy.
    pub fn decode(bytes: &[u8]) -> Result<Response, Malformed> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let response = match r.u8()? {
            DONE => Response::Done,
            ERROR => Response::Error(r.errno()?),
            VIOLATION => {
                Response::Violation(String::from_utf8(r.bytes()?.to_vec()).map_err(|_| Malformed)?)
            }
            INODES => Response::Inodes(r.list()?),
            BYTES => Response::Bytes(r.bytes()?.to_vec()),
            FOUND => Response::Found {
                inode: r.u32()?,
                generation: r.u32()?,
                kind: r.u8()?,
            },
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_message_survives_and_no_prefix_does() {
        for request in examples::requests() {
            let mut buffer = [0; MESSAGE_MAX];
            let used = request.encode(&mut buffer).unwrap();
            assert_eq!(Request::decode(&buffer[..used]), Ok(request));
            for shorter in 0..used {
                assert_eq!(Request::decode(&buffer[..shorter]), Err(Malformed));
            }
            assert_eq!(Request::decode(&buffer[..used + 1]), Err(Malformed));
        }
        for response in examples::responses() {
            let mut buffer = [0; MESSAGE_MAX];
            let used = response.encode(&mut buffer).unwrap();
            assert_eq!(Response::decode(&buffer[..used]), Ok(response));
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::decode(&bytes) {
                let mut buffer = [0; MESSAGE_MAX];
                let used = request.encode(&mut buffer).unwrap();
                prop_assert_eq!(&buffer[..used], &bytes[..]);
            }
            let _ = Response::decode(&bytes);
        }
    }
}
