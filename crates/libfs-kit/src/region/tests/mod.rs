//! Tests of the region. Those of one process run in plain memory, so that Miri can run them too.

#[cfg(shuttle)]
mod model;

#[cfg(not(shuttle))]
mod allocation;
#[cfg(not(shuttle))]
mod basics;
#[cfg(not(shuttle))]
mod members;
#[cfg(not(shuttle))]
mod reclamation;
#[cfg(not(shuttle))]
mod tables;
#[cfg(all(not(shuttle), not(miri), not(debug_assertions)))]
mod timing;
#[cfg(all(not(shuttle), not(miri)))]
mod windows;
