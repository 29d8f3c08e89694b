//! Which zone a chunk's bytes go to, which zone is worth cleaning, and how fast: pure functions over a look at the zones.

pub mod lifetime;
pub mod place;
pub mod throttle;
pub mod victim;
