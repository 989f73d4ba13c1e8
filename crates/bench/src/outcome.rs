//! What a measurement ends with: its result, or why there is none.

/// Why a run ended early: one line.
pub type Outcome<T> = Result<T, String>;
