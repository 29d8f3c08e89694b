//! Where the plug-ins are: beside the program, as `make build` leaves them, or in the directory of libraries next to it, as `make install` and Debian packages do.

use std::path::{Path, PathBuf};

/// The directories that may have them.
pub fn directories() -> [PathBuf; 3] {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
    let lib = beside.join("../lib");
    // Where Debian packages put libraries.
    let multiarch = lib.join(format!("{}-linux-gnu", std::env::consts::ARCH));
    [beside, lib, multiarch]
}

/// The first of them that has this file.
pub fn with(name: &str) -> Option<PathBuf> {
    directories().into_iter().find(|dir| dir.join(name).exists())
}
