//! Block cache: pages of files in memory.
