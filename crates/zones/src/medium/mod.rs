//! What bytes stand on and pass through: flushes, the turn at the drive, memory that outlives the process, conventional space.

pub mod conventional;
pub(crate) mod flush;
pub mod memory;
pub mod turn;
