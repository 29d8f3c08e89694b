//! The comparisons; all of it is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    imbrex_bench::compare::main()
}
