//! Which way of dispatch is up, and why it is this one: what others ask who have nothing to do with how it
//! is done.

use std::sync::atomic::{AtomicU8, Ordering};

/// Which way of dispatch is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    None = 0,
    Exclusive = 1,
    Inclusive = 2,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Exclusive => "sud-exclusive",
            Kind::Inclusive => "sud-inclusive",
        }
    }
}

/// Why it is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Choice {
    /// The best that the system allows.
    Best = 0,
    /// ARCK_DISPATCH names it.
    Asked = 1,
    /// The system refused a better one, or the one that ARCK_DISPATCH names.
    Fallback = 2,
}

impl Choice {
    pub fn name(self) -> &'static str {
        match self {
            Choice::Best => "best",
            Choice::Asked => "asked",
            Choice::Fallback => "fallback",
        }
    }
}

static CHOICE: AtomicU8 = AtomicU8::new(0);
static KIND: AtomicU8 = AtomicU8::new(0);

pub fn kind() -> Kind {
    match KIND.load(Ordering::Relaxed) {
        1 => Kind::Exclusive,
        2 => Kind::Inclusive,
        _ => Kind::None,
    }
}

/// At start-up.
pub fn chosen(choice: Choice) {
    CHOICE.store(choice as u8, Ordering::Relaxed);
}

/// At start-up: from now on it is up.
pub fn is_up(kind: Kind) {
    KIND.store(kind as u8, Ordering::Relaxed);
}

pub fn choice() -> Choice {
    match CHOICE.load(Ordering::Relaxed) {
        1 => Choice::Asked,
        2 => Choice::Fallback,
        _ => Choice::Best,
    }
}
