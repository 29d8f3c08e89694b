//! Conventional space: an allocator of fixed-size units.
