//! The `imbrex` command.
fn main() {}
