//! Which zone a chunk's bytes go to, and which zone is worth cleaning: pure functions over a look at the zones.

pub mod place;
pub mod victim;
