//! Experiments only: `libimbrex_ablation.so`, the whole C API, whose URIs may also have the switches of [`imbrex_bench::ablation`].
//!
//! An experiment loads it before the plug-in (`LD_PRELOAD`). It has the SONAME of `libimbrex.so`, so the plug-in takes it for that, and
//! nothing of it is in what users get.

/// Called by the loader when the library is loaded, before anybody can open a file system.
extern "C" fn loaded() {
    // Nobody has set it before.
    let _ = imbrex::OPENER.set(imbrex_bench::ablation::open);
}

// SAFETY: the section takes pointers to functions that get no more than C's `main` does; this one ignores that, and needs nothing
// that Rust sets up before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
