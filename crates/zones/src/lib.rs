//! One volume, one pool, one scheduler per drive: labels, leases, append streams, conventional space, block cache.
