//! What a medium is like, in numbers: latencies, bandwidths, nodes.
//!
//! Source: the description that somebody has written (crate `arck-medium`), or, in a session, the words that the
//! controller has put into the shared page.
//!
//! Invariants: a [`Model`] that [`Model::check`] accepts has no curve that falls to 0, so that a time computed of it
//! is finite; what is decoded from shared memory is read once and checked before it is used.

use std::sync::atomic::{AtomicU64, Ordering};

/// Points that a curve has at most.
pub const POINTS_MAX: usize = 32;
/// Nodes that a medium has at most.
pub const NODES_MAX: u32 = 16;
/// The longest latency in nanoseconds.
pub const LATENCY_MAX: u32 = 1_000_000;
/// The least bandwidth in MB/s (10^6 bytes): with less, what waits would exceed the bound on waiting.
pub const BANDWIDTH_MIN: u32 = 10;

/// Threads of a node that accesses are left to, at most.
pub const DELEGATES_MAX: u32 = 64;
/// Bytes from which on an access may be left to them.
pub const FROM_MIN: u32 = 256;

/// Why a model is none; one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("a medium has 1 to {NODES_MAX} nodes, not {0}")]
    Nodes(u32),
    #[error("a stripe is a power of two of 4096 bytes or more, not {0}")]
    Stripe(u64),
    #[error("the unit of an access is a power of two of 64 to 4096 bytes, not {0}")]
    Unit(u32),
    #[error("a latency is at most {LATENCY_MAX} ns, not {0}")]
    Latency(u32),
    #[error("a table has 1 to {POINTS_MAX} points")]
    Points,
    #[error("the first column of a table rises from 1 or more, and after {0} comes {1}")]
    Order(u32, u32),
    #[error("a bandwidth is at least {BANDWIDTH_MIN} MB/s (0.01 GB/s)")]
    Bandwidth,
    #[error("large accesses are done by 1 to {DELEGATES_MAX} threads of a node, not {0}")]
    Delegates(u32),
    #[error("accesses are large from {FROM_MIN} bytes on or more, not {0}")]
    From(u32),
    #[error("the shared page of the medium is none")]
    Page,
}

/// A function of a number, given at some points: between two of them a line, outside of all the value of the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Curve {
    points: [(u32, u32); POINTS_MAX],
    count: usize,
}

impl Curve {
    /// Of points in order: the first column rises, the second is a bandwidth in MB/s.
    ///
    /// # Errors
    /// [`ModelError::Points`], [`ModelError::Order`] and [`ModelError::Bandwidth`].
    pub fn new(points: &[(u32, u32)]) -> Result<Curve, ModelError> {
        if points.is_empty() || points.len() > POINTS_MAX {
            return Err(ModelError::Points);
        }
        let mut curve = Curve::NONE;
        curve.count = points.len();
        let mut before = 0;
        for (place, &(x, y)) in curve.points.iter_mut().zip(points) {
            if x <= before {
                return Err(ModelError::Order(before, x));
            }
            if y < BANDWIDTH_MIN {
                return Err(ModelError::Bandwidth);
            }
            *place = (x, y);
            before = x;
        }
        Ok(curve)
    }

    /// No points: says nothing ([`Curve::share_at`] is 1 everywhere).
    pub const NONE: Curve = Curve {
        points: [(0, 0); POINTS_MAX],
        count: 0,
    };

    /// The points.
    pub fn points(&self) -> &[(u32, u32)] {
        &self.points[..self.count]
    }

    /// The value at `x`; 0 of no points.
    pub fn at(&self, x: u32) -> f64 {
        let points = self.points();
        let above = points.partition_point(|&(at, _)| at < x);
        let value = |index: usize| points.get(index).map(|&(_, y)| f64::from(y));
        let (Some(low), Some(high)) = (above.checked_sub(1).and_then(value), value(above)) else {
            // Before the first, behind the last, or there are none.
            return value(above.min(points.len().saturating_sub(1))).unwrap_or(0.0);
        };
        let (from, to) = (points[above - 1].0, points[above].0);
        let along = f64::from(x - from) / f64::from(to - from);
        low + (high - low) * along
    }

    /// The greatest value; 0 of no points.
    pub fn peak(&self) -> f64 {
        f64::from(self.points().iter().map(|&(_, y)| y).max().unwrap_or(0))
    }

    /// The value at `x` as a share of the greatest, above 0 and at most 1; 1 of no points.
    fn share_at(&self, x: u32) -> f64 {
        match self.count {
            0 => 1.0,
            _ => self.at(x) / self.peak(),
        }
    }
}

/// Reading from a medium, or writing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direction {
    /// Nanoseconds from the beginning of a read, or of a fence, to its end, where there is nobody else.
    pub latency: u32,
    /// By number of threads at once on one node: MB/s (10^6 bytes) of all of them together.
    pub by_threads: Curve,
    /// By bytes of an access: MB/s, of which only the share of the greatest counts. May be [`Curve::NONE`].
    pub by_size: Curve,
}

impl Direction {
    /// MB/s (10^6 bytes a second) of a node for accesses of `size` bytes by `threads` at once.
    pub fn bandwidth(&self, threads: u32, size: usize) -> f64 {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.by_threads.at(threads) * self.by_size.share_at(size)
    }

    /// Nanoseconds for which `bytes` keep a node busy, in accesses of `size` bytes by `threads` at once.
    pub fn nanoseconds(&self, bytes: u64, threads: u32, size: usize) -> u64 {
        let bandwidth = self.bandwidth(threads, size).max(1.0);
        (bytes as f64 * 1000.0 / bandwidth).round() as u64
    }
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Read = 0,
    Write = 1,
}

/// Which accesses are left to a few threads of each node, or are done by few at once ([`crate::delegation`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delegated {
    /// Threads of each node, 1 to [`DELEGATES_MAX`].
    pub threads: u32,
    /// Writes of so many bytes and more are delegated, [`FROM_MIN`] or more. No access has [`u32::MAX`] bytes: that is never.
    pub writes_from: u32,
    /// The same of reads.
    pub reads_from: u32,
}

impl Delegated {
    /// Trio's numbers; and as many threads as write most on one node together, `writes` being by number of threads. Of those that write
    /// as much, the fewest.
    pub fn usual(writes: &Curve) -> Delegated {
        let most = writes.points().iter().rev().max_by_key(|point| point.1);
        Delegated {
            threads: most.map_or(1, |point| point.0.min(DELEGATES_MAX)),
            writes_from: 256,
            reads_from: 32 << 10,
        }
    }

    /// As many threads; and writes that take longer than a gate costs, but no reads: of these more than write most read more.
    pub fn usual_at_once(writes: &Curve) -> Delegated {
        Delegated {
            writes_from: 4096,
            reads_from: u32::MAX,
            ..Delegated::usual(writes)
        }
    }

    /// Bytes from which on an access that way is delegated.
    pub fn from(&self, way: Way) -> u32 {
        match way {
            Way::Read => self.reads_from,
            Way::Write => self.writes_from,
        }
    }

    /// What is wrong with its numbers, if anything is.
    ///
    /// # Errors
    /// [`ModelError::Delegates`] and [`ModelError::From`].
    pub fn check(&self) -> Result<(), ModelError> {
        if !(1..=DELEGATES_MAX).contains(&self.threads) {
            return Err(ModelError::Delegates(self.threads));
        }
        match [self.writes_from, self.reads_from]
            .into_iter()
            .find(|&from| from < FROM_MIN)
        {
            Some(from) => Err(ModelError::From(from)),
            None => Ok(()),
        }
    }
}

/// A medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Memory nodes, 1 to [`NODES_MAX`]. Each has the bandwidths below for itself.
    pub nodes: u32,
    /// Bytes of the pool that lie on one node before the next one's begin: a power of two, 4096 or more.
    pub stripe: u64,
    /// Bytes that the medium moves at once, 64 to 4096, a power of two: an access is rounded to whole units.
    pub unit: u32,
    pub read: Direction,
    pub write: Direction,
    /// What is left to a few threads of each node, where anybody wants it.
    pub delegated: Delegated,
    /// How many at once are let to each node, where anybody wants that.
    pub at_once: Delegated,
}

const MAGIC: u64 = u64::from_le_bytes(*b"arckmed3");
/// Words before the curves.
const HEAD: usize = 12;
/// Words of a curve: the number of its points, and the points.
const CURVE: usize = 1 + POINTS_MAX;
/// Words of an encoded model.
pub(super) const WORDS: usize = HEAD + 4 * CURVE;

impl Model {
    /// What is wrong with its numbers, if anything is.
    ///
    /// # Errors
    /// [`ModelError`], of the first that is wrong.
    pub fn check(&self) -> Result<(), ModelError> {
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(ModelError::Nodes(self.nodes));
        }
        if self.stripe < 4096 || !self.stripe.is_power_of_two() {
            return Err(ModelError::Stripe(self.stripe));
        }
        if !(64..=4096).contains(&self.unit) || !self.unit.is_power_of_two() {
            return Err(ModelError::Unit(self.unit));
        }
        for direction in [&self.read, &self.write] {
            if direction.latency > LATENCY_MAX {
                return Err(ModelError::Latency(direction.latency));
            }
            Curve::new(direction.by_threads.points())?;
            if direction.by_size.count > 0 {
                Curve::new(direction.by_size.points())?;
            }
        }
        self.delegated.check()?;
        self.at_once.check()
    }

    /// The direction that a way is.
    pub fn direction(&self, way: Way) -> &Direction {
        match way {
            Way::Read => &self.read,
            Way::Write => &self.write,
        }
    }

    /// The node on which byte `offset` of the pool lies.
    pub fn node_of(&self, offset: u64) -> u32 {
        // The remainder is less than the number of nodes.
        (offset / self.stripe % u64::from(self.nodes)) as u32
    }

    /// Puts it into words that others may read.
    pub(super) fn encode(&self, words: &[AtomicU64]) {
        let head = [
            MAGIC,
            u64::from(self.nodes),
            self.stripe,
            u64::from(self.unit),
            u64::from(self.read.latency),
            u64::from(self.write.latency),
            u64::from(self.delegated.threads),
            u64::from(self.delegated.writes_from),
            u64::from(self.delegated.reads_from),
            u64::from(self.at_once.threads),
            u64::from(self.at_once.writes_from),
            u64::from(self.at_once.reads_from),
        ];
        let curves = [&self.read, &self.write].map(|way| [&way.by_threads, &way.by_size]);
        let curves = curves.iter().flatten().flat_map(|curve| {
            let points = curve.points.iter();
            let points = points.map(|&(x, y)| u64::from(x) << 32 | u64::from(y));
            std::iter::once(curve.count as u64).chain(points)
        });
        for (word, value) in words.iter().zip(head.into_iter().chain(curves)) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// What stands in words that others may write.
    pub(super) fn decode(words: &[AtomicU64]) -> Result<Model, ModelError> {
        let mut values = words.iter().map(|word| word.load(Ordering::Relaxed));
        let mut next = || values.next().ok_or(ModelError::Page);
        let number = |value: u64| u32::try_from(value).map_err(|_| ModelError::Page);
        if next()? != MAGIC {
            return Err(ModelError::Page);
        }
        let nodes = number(next()?)?;
        let stripe = next()?;
        let unit = number(next()?)?;
        let latencies = [number(next()?)?, number(next()?)?];
        let mut few = || -> Result<Delegated, ModelError> {
            Ok(Delegated {
                threads: number(next()?)?,
                writes_from: number(next()?)?,
                reads_from: number(next()?)?,
            })
        };
        let (delegated, at_once) = (few()?, few()?);
        let mut curve = || -> Result<Curve, ModelError> {
            let count = next()?;
            let mut points = [(0, 0); POINTS_MAX];
            for point in &mut points {
                let word = next()?;
                *point = ((word >> 32) as u32, word as u32);
            }
            match usize::try_from(count) {
                Ok(0) => Ok(Curve::NONE),
                Ok(count) if count <= POINTS_MAX => Curve::new(&points[..count]),
                _ => Err(ModelError::Points),
            }
        };
        let mut direction = |latency| -> Result<Direction, ModelError> {
            Ok(Direction {
                latency,
                by_threads: curve()?,
                by_size: curve()?,
            })
        };
        let model = Model {
            nodes,
            stripe,
            unit,
            read: direction(latencies[0])?,
            write: direction(latencies[1])?,
            delegated,
            at_once,
        };
        model.check()?;
        Ok(model)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two nodes; 10 GB/s of 4 threads, a quarter of that of 8 and more; half of it below 4 KiB.
    pub fn model() -> Model {
        let direction = |latency| Direction {
            latency,
            by_threads: Curve::new(&[(1, 4000), (4, 10_000), (8, 2500)]).unwrap(),
            by_size: Curve::new(&[(2048, 5000), (4096, 10_000)]).unwrap(),
        };
        Model {
            nodes: 2,
            stripe: 1 << 21,
            unit: 256,
            read: direction(300),
            write: direction(90),
            delegated: Delegated {
                threads: 3,
                writes_from: 4096,
                reads_from: u32::MAX,
            },
            at_once: Delegated {
                threads: 5,
                writes_from: 512,
                reads_from: 8192,
            },
        }
    }

    #[test]
    fn between_points_lies_a_line() {
        let curve = Curve::new(&[(2, 100), (4, 300), (8, 100)]).unwrap();
        let cases = [
            (0, 100.0),
            (2, 100.0),
            (3, 200.0),
            (4, 300.0),
            (5, 250.0),
            (8, 100.0),
            (1000, 100.0),
        ];
        for (x, y) in cases {
            assert_eq!(curve.at(x), y, "{x}");
        }
        assert_eq!(curve.peak(), 300.0);
        assert_eq!(Curve::NONE.at(7), 0.0);
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let many = vec![(1, 100); POINTS_MAX + 1];
        assert_eq!(Curve::new(&many), Err(ModelError::Points));
        assert_eq!(Curve::new(&[]), Err(ModelError::Points));
        assert_eq!(
            Curve::new(&[(2, 100), (2, 100)]),
            Err(ModelError::Order(2, 2))
        );
        assert_eq!(Curve::new(&[(0, 100)]), Err(ModelError::Order(0, 0)));
        assert_eq!(Curve::new(&[(1, 9)]), Err(ModelError::Bandwidth));
    }

    #[test]
    fn threads_and_size_decide_on_the_time() {
        let model = model();
        // 10 GB/s are 10 bytes a nanosecond.
        assert_eq!(model.write.nanoseconds(1_000_000, 4, 4096), 100_000);
        assert_eq!(model.write.nanoseconds(1_000_000, 64, 1 << 21), 400_000);
        assert_eq!(model.write.nanoseconds(1_000_000, 4, 256), 200_000);
        assert_eq!(model.write.nanoseconds(4096, 1, 4096), 1024);
    }

    #[test]
    fn stripes_go_round() {
        let model = model();
        let nodes = [0, (1 << 21) - 1, 1 << 21, 1 << 22].map(|offset| model.node_of(offset));
        assert_eq!(nodes, [0, 0, 1, 0]);
    }

    #[test]
    fn a_page_holds_a_model_and_nonsense_is_refused() {
        let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(Model::decode(&words), Err(ModelError::Page));
        let model = model();
        model.encode(&words);
        assert_eq!(Model::decode(&words), Ok(model));
        // Each word in turn is something else: a model that can be computed with, or none.
        for index in 0..WORDS {
            for value in [0, 1, u64::MAX, 1 << 40] {
                model.encode(&words);
                words[index].store(value, Ordering::Relaxed);
                if let Ok(model) = Model::decode(&words) {
                    let time = model.write.nanoseconds(1 << 16, 3, 4096);
                    assert!(time < 1 << 40, "word {index}: {time}");
                    for few in [model.delegated, model.at_once] {
                        let Delegated {
                            threads,
                            writes_from,
                            reads_from,
                        } = few;
                        assert!((1..=64).contains(&threads), "word {index}: {threads}");
                        assert!(writes_from.min(reads_from) >= 256, "word {index}");
                    }
                }
            }
        }
    }
}
