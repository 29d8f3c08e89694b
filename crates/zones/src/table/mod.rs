//! Who may take which zone.

pub mod pool;
