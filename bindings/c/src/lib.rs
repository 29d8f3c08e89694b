//! Floor 5: the C API, `libimbrex.so` and `imbrex.h`.
//!
//! The header is the manual, and it is made of this crate's comments (`cbindgen.toml`, `tests/header.rs`). Every function
//! does the same four things: it refuses to work in a child of `fork`, checks its pointers, calls the engine, and turns an
//! error or a panic into an [`imbrex_error`].
//!
//! # Safety
//!
//! One contract for all functions, so it stands here and not at each: a pointer to a handle is NULL or a live handle of this
//! library; a string is NULL or ends with a zero byte; a buffer is valid for the length that is given with it; an output
//! parameter is NULL or valid for writes; what was given to a `_free` function is not used again. NULL where there must be
//! something is an error, never a crash.

#![allow(non_camel_case_types)]
// See "Safety" above.
#![allow(clippy::missing_safety_doc)]

mod chunk;
mod error;
mod file;
mod fs;
mod image;
mod kv;
mod log;
mod metrics;
mod names;
#[doc(hidden)]
pub mod rocksdb;
mod store;

pub use chunk::*;
pub use error::{imbrex_code, imbrex_error, imbrex_error_code, imbrex_error_free, imbrex_error_message};
pub use file::*;
pub use fs::*;
pub use image::*;
pub use kv::*;
#[doc(hidden)]
pub use metrics::fuzz_metrics_variable;
pub use names::*;
pub use store::*;
