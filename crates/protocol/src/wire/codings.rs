//! The codings of which messages are put together.

#[cfg(any(test, feature = "testing"))]
use super::Draw;
use super::{Coding, ERRNO_MAX, Malformed, Reader, WireError, Writer};

/// Whole numbers as they are.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Coding for $number {
            type Value = $number;
            const LEAST: usize = size_of::<$number>();
            const MOST: usize = size_of::<$number>();
            fn put(value: &$number, w: &mut Writer<'_>) -> Result<(), WireError> {
                w.raw(&value.to_le_bytes())
            }
            fn get(r: &mut Reader<'_>) -> Result<$number, WireError> {
                Ok(<$number>::from_le_bytes(r.array()?))
            }
            #[cfg(any(test, feature = "testing"))]
            #[allow(clippy::cast_possible_truncation, reason = "it is no greater")]
            fn drawn(draw: &mut Draw) -> $number {
                draw.number(u64::from(<$number>::MAX)) as $number
            }
        }
    )*};
}
numbers! { u8 u32 u64 }

/// Values that stand for themselves in so many bytes, by what they are made of and read from.
macro_rules! by {
    ($($(#[$meta:meta])* $coding:ty: $value:ty as $stored:ty, $to:expr, $from:expr, $drawn:expr;)*) => {$(
        $(#[$meta])*
        impl Coding for $coding {
            type Value = $value;
            const LEAST: usize = <$stored as Coding>::LEAST;
            const MOST: usize = <$stored as Coding>::MOST;
            fn put(value: &$value, w: &mut Writer<'_>) -> Result<(), WireError> {
                let to: fn($value) -> $stored = $to;
                <$stored>::put(&to(*value), w)
            }
            fn get(r: &mut Reader<'_>) -> Result<$value, WireError> {
                let from: fn($stored) -> Option<$value> = $from;
                from(<$stored>::get(r)?).ok_or(Malformed)
            }
            #[cfg(any(test, feature = "testing"))]
            fn drawn(draw: &mut Draw) -> $value {
                let drawn: fn(&mut Draw) -> $value = $drawn;
                drawn(draw)
            }
        }
    )*};
}
by! {
    /// One byte.
    bool: bool as u8,
        u8::from,
        |byte| (byte <= 1).then_some(byte == 1),
        |draw| draw.number(1) == 1;
    /// In four bytes.
    u16: u16 as u32,
        u32::from,
        |word| u16::try_from(word).ok(),
        |draw| u16::from_le_bytes([u8::drawn(draw), u8::drawn(draw)]);
    /// An error number, as the kernel has them.
    i32: i32 as u32,
        i32::unsigned_abs,
        |number| matches!(number, 1..=ERRNO_MAX).then_some(number.cast_signed()),
        |draw| i32::try_from(1 + draw.number(u64::from(ERRNO_MAX) - 1)).unwrap_or(1);
    Flag: bool as u32,
        u32::from,
        |word| (word <= 1).then_some(word == 1),
        |draw| draw.number(1) == 1;
}

/// `bool` in four bytes.
pub struct Flag;

impl<T: Coding<Value = T> + Copy + Default, const N: usize> Coding for [T; N] {
    type Value = [T; N];
    const LEAST: usize = N * T::LEAST;
    const MOST: usize = N * T::MOST;
    fn put(value: &[T; N], w: &mut Writer<'_>) -> Result<(), WireError> {
        value.iter().try_for_each(|one| T::put(one, w))
    }
    fn get(r: &mut Reader<'_>) -> Result<[T; N], WireError> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::get(r)?;
        }
        Ok(all)
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> [T; N] {
        std::array::from_fn(|_| T::drawn(draw))
    }
}

/// At most so many bytes: their number in two bytes, and they.
pub struct Bytes<const MOST: usize>;

impl<const MOST: usize> Coding for Bytes<MOST> {
    type Value = Vec<u8>;
    const LEAST: usize = 2;
    const MOST: usize = 2 + MOST;
    fn put(value: &Vec<u8>, w: &mut Writer<'_>) -> Result<(), WireError> {
        w.count(value.len(), MOST)?;
        w.raw(value)
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
        let length = r.count(MOST)?;
        Ok(r.raw(length)?.to_vec())
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Vec<u8> {
        (0..draw.length(MOST)).map(|_| u8::drawn(draw)).collect()
    }
}

/// At most so many numbers: how many in two bytes, and they.
pub struct List<const MOST: usize>;

impl<const MOST: usize> Coding for List<MOST> {
    type Value = Vec<u32>;
    const LEAST: usize = 2;
    const MOST: usize = 2 + 4 * MOST;
    fn put(value: &Vec<u32>, w: &mut Writer<'_>) -> Result<(), WireError> {
        w.count(value.len(), MOST)?;
        value.iter().try_for_each(|number| u32::put(number, w))
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<u32>, WireError> {
        (0..r.count(MOST)?).map(|_| u32::get(r)).collect()
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Vec<u32> {
        (0..draw.length(MOST)).map(|_| u32::drawn(draw)).collect()
    }
}

/// Text, of which at most so many bytes are written: what is longer is cut where a character ends.
pub struct Text<const MOST: usize>;

impl<const MOST: usize> Coding for Text<MOST> {
    type Value = String;
    const LEAST: usize = 2;
    const MOST: usize = 2 + MOST;
    fn put(value: &String, w: &mut Writer<'_>) -> Result<(), WireError> {
        let cut = &value[..value.floor_char_boundary(MOST)];
        w.count(cut.len(), MOST)?;
        w.raw(cut.as_bytes())
    }
    fn get(r: &mut Reader<'_>) -> Result<String, WireError> {
        String::from_utf8(Bytes::<MOST>::get(r)?).map_err(|_| Malformed)
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> String {
        let letter = |draw: &mut Draw| char::from(b' ' + u8::drawn(draw) % 95);
        (0..draw.length(MOST)).map(|_| letter(draw)).collect()
    }
}

/// The same for a terminal, from whoever serves a pool: what would steer the terminal is taken out.
pub struct PlainText<const MOST: usize>;

impl<const MOST: usize> Coding for PlainText<MOST> {
    type Value = String;
    const LEAST: usize = 2;
    const MOST: usize = 2 + MOST;
    fn put(value: &String, w: &mut Writer<'_>) -> Result<(), WireError> {
        Text::<MOST>::put(value, w)
    }
    fn get(r: &mut Reader<'_>) -> Result<String, WireError> {
        let bytes = Bytes::<MOST>::get(r)?;
        let plain = |c: char| if c.is_control() { '?' } else { c };
        Ok(String::from_utf8_lossy(&bytes).chars().map(plain).collect())
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> String {
        Text::<MOST>::drawn(draw)
    }
}
