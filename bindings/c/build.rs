//! Names the shared library after its ABI: a program that was linked with `libimbrex.so.1` never loads one of another ABI.

fn main() {
    println!("cargo::rerun-if-changed=imbrex.h");
    let header = std::fs::read_to_string("imbrex.h").expect("imbrex.h, which tests/header.rs keeps current");
    let version = header.lines().find_map(|line| line.strip_prefix("#define IMBREX_ABI_VERSION "));
    let version = version.expect("IMBREX_ABI_VERSION in imbrex.h");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libimbrex.so.{version}");
}
