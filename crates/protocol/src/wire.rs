//! Encoding of messages: little-endian, no padding, lengths before bytes, all checked.

/// The greatest error number.
pub const ERRNO_MAX: u32 = 4095;

/// A message did not decode, or did not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed message")]
pub struct Malformed;

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
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let end = self.used.checked_add(bytes.len()).ok_or(Malformed)?;
        self.buffer
            .get_mut(self.used..end)
            .ok_or(Malformed)?
            .copy_from_slice(bytes);
        self.used = end;
        Ok(())
    }
    pub fn u8(&mut self, value: u8) -> Result<(), Malformed> {
        self.raw(&[value])
    }
    pub fn u32(&mut self, value: u32) -> Result<(), Malformed> {
        self.raw(&value.to_le_bytes())
    }
    pub fn u64(&mut self, value: u64) -> Result<(), Malformed> {
        self.raw(&value.to_le_bytes())
    }
    /// A length (16 bits) and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.raw(
            &u16::try_from(bytes.len())
                .map_err(|_| Malformed)?
                .to_le_bytes(),
        )?;
        self.raw(bytes)
    }
    /// A count (16 bits) and the numbers.
    pub fn list(&mut self, numbers: &[u32]) -> Result<(), Malformed> {
        self.raw(
            &u16::try_from(numbers.len())
                .map_err(|_| Malformed)?
                .to_le_bytes(),
        )?;
        numbers.iter().try_for_each(|&n| self.u32(n))
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
    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.raw(N)?.try_into().map_err(|_| Malformed)
    }
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// An error number, as the kernel has them.
    pub fn errno(&mut self) -> Result<i32, Malformed> {
        match self.u32()? {
            number @ 1..=ERRNO_MAX => Ok(number.cast_signed()),
            _ => Err(Malformed),
        }
    }
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = u16::from_le_bytes(self.array()?);
        self.raw(usize::from(length))
    }
    pub fn list(&mut self) -> Result<Vec<u32>, Malformed> {
        let count = u16::from_le_bytes(self.array()?);
        (0..count).map(|_| self.u32()).collect()
    }
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// Nothing may be left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}
