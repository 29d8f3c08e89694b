//! A strict emulated zoned drive in an image or in memory.
