//! How values stand in a message: little-endian, no padding, lengths before bytes, all checked.
//!
//! [`Writer`] and [`Reader`] move bytes, a [`Coding`] a value of one type. Messages are put together of codings by
//! [`messages!`](crate::declare): nobody encodes by hand what he decodes by hand elsewhere.
//!
//! # Invariants
//! * A coding reads what it writes, and writes what it read: the same bytes. Text alone is mended where it is read.
//! * It writes and reads from `LEAST` to `MOST` bytes, whatever the value and whatever the bytes; what has more
//!   is refused before anything is allocated for it.

mod codings;
#[cfg(any(test, feature = "testing"))]
mod draw;

pub use codings::{Bytes, Flag, List, PlainText, Text};
#[cfg(any(test, feature = "testing"))]
pub use draw::Draw;

/// The greatest error number.
pub const ERRNO_MAX: u32 = 4095;

/// Why bytes are no message, or a message has no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    #[error("malformed message")]
    Malformed,
    /// A greeting of another version, of which nothing more is known.
    #[error("protocol version {0} is not spoken here")]
    OtherVersion(u32),
}

pub use WireError::Malformed;

/// How the values of a type stand in a message.
pub trait Coding {
    type Value;
    /// Fewest and most bytes.
    const LEAST: usize;
    const MOST: usize;
    fn put(value: &Self::Value, w: &mut Writer<'_>) -> Result<(), WireError>;
    fn get(r: &mut Reader<'_>) -> Result<Self::Value, WireError>;
    /// Any value that there can be.
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Self::Value;
}

/// Encodes a message into `buffer`; gives the bytes used.
pub fn encode<M: Coding>(message: &M::Value, buffer: &mut [u8]) -> Result<usize, WireError> {
    let mut writer = Writer::new(buffer);
    M::put(message, &mut writer)?;
    Ok(writer.used())
}

/// Decodes a private copy. Nothing may be left over.
pub fn decode<M: Coding>(bytes: &[u8]) -> Result<M::Value, WireError> {
    let mut reader = Reader::new(bytes);
    let message = M::get(&mut reader)?;
    match reader.is_empty() {
        true => Ok(message),
        false => Err(Malformed),
    }
}

/// Appends values to a buffer of fixed size.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    pub fn new(buffer: &'a mut [u8]) -> Writer<'a> {
        Writer { buffer, used: 0 }
    }
    pub fn used(&self) -> usize {
        self.used
    }
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let end = self.used.checked_add(bytes.len()).ok_or(Malformed)?;
        self.buffer
            .get_mut(self.used..end)
            .ok_or(Malformed)?
            .copy_from_slice(bytes);
        self.used = end;
        Ok(())
    }
    /// A length, of at most so many.
    pub fn count(&mut self, count: usize, most: usize) -> Result<(), WireError> {
        let count = u16::try_from(count).ok().filter(|_| count <= most);
        self.raw(&count.ok_or(Malformed)?.to_le_bytes())
    }
}

/// Takes values from a private copy of a message.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.raw(N)?.try_into().map_err(|_| Malformed)
    }
    /// A length, of at most so many.
    pub fn count(&mut self, most: usize) -> Result<usize, WireError> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        (count <= most).then_some(count).ok_or(Malformed)
    }
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
