//! The form of a description, and the model that it makes.
//!
//! Source: the text of a file. Invariants: unknown keys are refused, so that a mistyped one is not ignored; a place in
//! the text goes with everything that can be wrong only beside something else.

use arck_pm::medium::{Curve, Delegated, Direction, Model, ModelError};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// What is wrong with a text, and where it stands.
#[derive(Debug)]
pub struct Wrong {
    pub what: String,
    span: Option<Range<usize>>,
}

impl Wrong {
    /// The line, from 1 on.
    pub fn line(&self, text: &str) -> usize {
        let start = self.span.as_ref().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..start).unwrap_or_default();
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    fn at(span: Range<usize>) -> impl FnOnce(ModelError) -> Wrong {
        move |error| Wrong {
            what: error.to_string(),
            span: Some(span),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    about: String,
    nodes: Nodes,
    unit: Unit,
    read: Way,
    write: Way,
    delegation: Option<Few>,
    at_once: Option<Few>,
}

/// Nodes, and how the pool lies on them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    count: Spanned<u32>,
    /// Bytes.
    stripe: Spanned<u64>,
    source: Spanned<String>,
}

/// What the medium moves at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unit {
    bytes: Spanned<u32>,
    source: Spanned<String>,
}

/// Reading, or writing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    latency: Latency,
    by_threads: Table,
    by_size: Option<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Latency {
    nanoseconds: Spanned<u32>,
    source: Spanned<String>,
}

/// Bandwidths in GB/s (10^9 bytes a second), each beside a number of threads or of bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    points: Spanned<Vec<Spanned<(u32, f64)>>>,
    source: Spanned<String>,
}

/// What is left to a few threads of each node, or what is done by so many at once; of what it does not say, what is usual holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Few {
    threads: Option<Spanned<u32>>,
    /// Bytes.
    writes_from: Option<Spanned<u32>>,
    reads_from: Option<Spanned<u32>>,
    source: Spanned<String>,
}

/// What a text describes: in words, and in numbers.
pub fn read(text: &str) -> Result<(String, Model), Wrong> {
    let description: Description = toml::from_str(text).map_err(|error| Wrong {
        what: error.message().to_owned(),
        span: error.span(),
    })?;
    let Description {
        about,
        nodes,
        unit,
        read,
        write,
        delegation,
        at_once,
    } = description;
    for source in [&nodes.source, &unit.source] {
        has_source(source)?;
    }
    let writing = direction(&write)?;
    let model = Model {
        nodes: *nodes.count.get_ref(),
        stripe: *nodes.stripe.get_ref(),
        unit: *unit.bytes.get_ref(),
        read: direction(&read)?,
        write: writing,
        delegated: few(delegation.as_ref(), Delegated::usual(&writing.by_threads))?,
        at_once: few(
            at_once.as_ref(),
            Delegated::usual_at_once(&writing.by_threads),
        )?,
    };
    model.check().map_err(|error| {
        let span = match error {
            ModelError::Nodes(_) => nodes.count.span(),
            ModelError::Stripe(_) => nodes.stripe.span(),
            ModelError::Unit(_) => unit.bytes.span(),
            ModelError::Latency(long) if *read.latency.nanoseconds.get_ref() == long => {
                read.latency.nanoseconds.span()
            }
            _ => write.latency.nanoseconds.span(),
        };
        Wrong::at(span)(error)
    })?;
    Ok((about, model))
}

/// That it is said where numbers come from.
fn has_source(source: &Spanned<String>) -> Result<(), Wrong> {
    match source.get_ref().trim().is_empty() {
        false => Ok(()),
        true => Err(Wrong {
            what: "`source` says where the numbers come from, or that they are assumed".to_owned(),
            span: Some(source.span()),
        }),
    }
}

fn few(table: Option<&Few>, usual: Delegated) -> Result<Delegated, Wrong> {
    let Some(table) = table else {
        return Ok(usual);
    };
    has_source(&table.source)?;
    // One after the other: what makes it wrong is the last.
    let mut delegated = usual;
    let mut set = |said: &Option<Spanned<u32>>, field: fn(&mut Delegated) -> &mut u32| {
        let Some(said) = said else { return Ok(()) };
        *field(&mut delegated) = *said.get_ref();
        delegated.check().map_err(Wrong::at(said.span()))
    };
    set(&table.threads, |delegated| &mut delegated.threads)?;
    set(&table.writes_from, |delegated| &mut delegated.writes_from)?;
    set(&table.reads_from, |delegated| &mut delegated.reads_from)?;
    Ok(delegated)
}

fn direction(way: &Way) -> Result<Direction, Wrong> {
    has_source(&way.latency.source)?;
    Ok(Direction {
        latency: *way.latency.nanoseconds.get_ref(),
        by_threads: curve(&way.by_threads)?,
        by_size: way.by_size.as_ref().map_or(Ok(Curve::NONE), curve)?,
    })
}

fn curve(table: &Table) -> Result<Curve, Wrong> {
    has_source(&table.source)?;
    let mut points = Vec::new();
    for point in table.points.get_ref() {
        let (x, bandwidth) = *point.get_ref();
        // MB/s; what is no bandwidth becomes one that the model refuses, or as much as there can be.
        points.push((x, (bandwidth * 1000.0).round() as u32));
        // A shorter curve that is wrong is so by its last point.
        match Curve::new(&points) {
            Ok(_) => {}
            Err(error) => return Err(Wrong::at(point.span())(error)),
        }
    }
    Curve::new(&points).map_err(Wrong::at(table.points.span()))
}
