//! Messages are declared once: `messages!` makes the type, what encodes and decodes it, its bounds, examples for tests
//! and the fuzzer, and the rows of `docs/messages.md`.

/// Declares messages and what they are made of.
///
/// * `enum`: a byte that says which, then the fields in order. Before each variant stands its number, which it
///   keeps for good: two of one number do not compile.
/// * `struct`: the fields in order.
///
/// A field is `name: Type`, by the type's own [`Coding`](crate::wire::Coding), or `name: Type as Coding`.
macro_rules! messages {
    () => {};

    (
        $(#[$meta:meta])*
        pub enum $name:ident {$(
            $(#[doc = $doc:literal])*
            $number:literal $variant:ident
            $({ $($(#[doc = $of_field:literal])* $field:ident: $type:ty $(as $coding:ty)?),* $(,)? })?
            $(($($place:ident: $of_place:ty $(as $place_coding:ty)?),* $(,)?))?
        ),* $(,)?}
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub enum $name {$(
            $(#[doc = $doc])*
            $variant
            $({ $($(#[doc = $of_field])* $field: $type),* })?
            $(($($of_place),*))?
        ),*}

        #[deny(unreachable_patterns)]
        impl $crate::wire::Coding for $name {
            type Value = $name;
            const LEAST: usize = $crate::declare::least(&[
                $(1 $($(+ $crate::declare::coded!(LEAST $type $(as $coding)?))*)?
                    $($(+ $crate::declare::coded!(LEAST $of_place $(as $place_coding)?))*)?),*
            ]);
            const MOST: usize = $crate::declare::most(&[
                $(1 $($(+ $crate::declare::coded!(MOST $type $(as $coding)?))*)?
                    $($(+ $crate::declare::coded!(MOST $of_place $(as $place_coding)?))*)?),*
            ]);
            fn put(
                value: &$name,
                w: &mut $crate::wire::Writer<'_>,
            ) -> Result<(), $crate::wire::WireError> {
                match value {$(
                    $name::$variant $({ $($field),* })? $(($($place),*))? => {
                        <u8 as $crate::wire::Coding>::put(&$number, w)?;
                        $($($crate::declare::coded!(put $type $(as $coding)?)($field, w)?;)*)?
                        $($($crate::declare::coded!(put $of_place $(as $place_coding)?)($place, w)?;)*)?
                        Ok(())
                    }
                )*}
            }
            fn get(r: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::WireError> {
                Ok(match <u8 as $crate::wire::Coding>::get(r)? {
                    $($number => $name::$variant
                        $({ $($field: $crate::declare::coded!(get $type $(as $coding)?)(r)?),* })?
                        $(($($crate::declare::coded!(get $of_place $(as $place_coding)?)(r)?),*))?,)*
                    _ => return Err($crate::wire::Malformed),
                })
            }
            #[cfg(any(test, feature = "testing"))]
            fn drawn(draw: &mut $crate::wire::Draw) -> $name {
                let which = draw.length($name::NUMBERS.len() - 1);
                $name::drawn_as($name::NUMBERS[which], draw)
            }
        }

        #[cfg(any(test, feature = "testing"))]
        impl $name {
            /// In the order of their declaration.
            pub(crate) const NUMBERS: &[u8] = &[$($number),*];

            #[allow(unused_variables, reason = "none of them may have a field")]
            fn drawn_as(number: u8, draw: &mut $crate::wire::Draw) -> $name {
                match number {
                    $($number => $name::$variant
                        $({ $($field: $crate::declare::coded!(drawn $type $(as $coding)?)(draw)),* })?
                        $(($($crate::declare::coded!(drawn $of_place $(as $place_coding)?)(draw)),*))?,)*
                    _ => unreachable!("no message has the number {number}"),
                }
            }

            /// The shortest and the longest of each kind, and one between.
            pub fn examples() -> Vec<$name> {
                let rows = [vec![0], vec![u64::MAX], vec![7, 0x0102_0304_0506_0708, 3, 5, 1]];
                let each = |number: &u8| {
                    let number = *number;
                    rows.clone().map(|row| $name::drawn_as(number, &mut $crate::wire::Draw::new(row)))
                };
                $name::NUMBERS.iter().flat_map(each).collect()
            }

            /// What `docs/messages.md` says of them.
            #[cfg(test)]
            pub(crate) const ROWS: &[$crate::declare::Row] = &[$($crate::declare::Row {
                number: Some($number),
                name: stringify!($variant),
                fields: &[
                    $($((stringify!($field), stringify!($type $(as $coding)?)),)*)?
                    $($((stringify!($place), stringify!($of_place $(as $place_coding)?)),)*)?
                ],
                least: 1 $($(+ $crate::declare::coded!(LEAST $type $(as $coding)?))*)?
                    $($(+ $crate::declare::coded!(LEAST $of_place $(as $place_coding)?))*)?,
                most: 1 $($(+ $crate::declare::coded!(MOST $type $(as $coding)?))*)?
                    $($(+ $crate::declare::coded!(MOST $of_place $(as $place_coding)?))*)?,
                document: concat!($($doc),*),
            }),*];
        }

        $crate::declare::messages! { $($rest)* }
    };

    (
        $(#[$meta:meta])*
        pub struct $name:ident {$(
            $(#[doc = $of_field:literal])*
            pub $field:ident: $type:ty $(as $coding:ty)?
        ),* $(,)?}
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub struct $name {$(
            $(#[doc = $of_field])*
            pub $field: $type
        ),*}

        impl $crate::wire::Coding for $name {
            type Value = $name;
            const LEAST: usize = 0 $(+ $crate::declare::coded!(LEAST $type $(as $coding)?))*;
            const MOST: usize = 0 $(+ $crate::declare::coded!(MOST $type $(as $coding)?))*;
            fn put(
                value: &$name,
                w: &mut $crate::wire::Writer<'_>,
            ) -> Result<(), $crate::wire::WireError> {
                $($crate::declare::coded!(put $type $(as $coding)?)(&value.$field, w)?;)*
                Ok(())
            }
            fn get(r: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::WireError> {
                Ok($name {$($field: $crate::declare::coded!(get $type $(as $coding)?)(r)?),*})
            }
            #[cfg(any(test, feature = "testing"))]
            fn drawn(draw: &mut $crate::wire::Draw) -> $name {
                $name {$($field: $crate::declare::coded!(drawn $type $(as $coding)?)(draw)),*}
            }
        }

        #[cfg(test)]
        impl $name {
            /// What `docs/messages.md` says of it.
            pub(crate) const ROWS: &[$crate::declare::Row] = &[$crate::declare::Row {
                number: None,
                name: stringify!($name),
                fields: &[$((stringify!($field), stringify!($type $(as $coding)?))),*],
                least: <$name as $crate::wire::Coding>::LEAST,
                most: <$name as $crate::wire::Coding>::MOST,
                document: "",
            }];
        }

        $crate::declare::messages! { $($rest)* }
    };
}

/// An item of a field's coding.
macro_rules! coded {
    ($item:ident $type:ty) => {
        <$type as $crate::wire::Coding>::$item
    };
    ($item:ident $type:ty as $coding:ty) => {
        <$coding as $crate::wire::Coding>::$item
    };
}

pub(crate) use {coded, messages};

/// The least of some.
pub(crate) const fn least(of: &[usize]) -> usize {
    let (mut least, mut at) = (of[0], 1);
    while at < of.len() {
        if of[at] < least {
            least = of[at];
        }
        at += 1;
    }
    least
}

/// The most of some.
pub(crate) const fn most(of: &[usize]) -> usize {
    let (mut most, mut at) = (of[0], 1);
    while at < of.len() {
        if of[at] > most {
            most = of[at];
        }
        at += 1;
    }
    most
}

/// A message, or a part of one, as a document shows it.
#[cfg(test)]
pub(crate) struct Row {
    pub number: Option<u8>,
    pub name: &'static str,
    /// Name and coding.
    pub fields: &'static [(&'static str, &'static str)],
    pub least: usize,
    pub most: usize,
    pub document: &'static str,
}
