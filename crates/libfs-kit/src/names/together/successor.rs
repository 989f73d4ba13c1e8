//! What a name is to lead to that is changed together with others.

use super::contents::Contents;
use crate::names::creations::Creation;

/// What a name is to lead to.
pub struct Successor {
    pub creation: Creation<'static>,
    pub contents: Contents,
}
