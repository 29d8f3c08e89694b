//! Floor 5: the C API, `libimbrex.so` and `imbrex.h`.
//!
//! The header is the manual: ownership, errors, threads and units stand there. Here every function does the same four
//! things: it refuses to work in a child of `fork`, checks its pointers, calls the engine, and turns an error or a panic
//! into an [`imbrex_error`](Error).

#![allow(non_camel_case_types)]

mod error;
mod file;
mod fs;

pub use error::*;
pub use file::*;
pub use fs::*;
