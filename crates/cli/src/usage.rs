//! A command line that makes no sense: clap's words for people, one object for programs that asked for JSON.

use crate::output::{Failure, exit};
use clap::Error;
use clap::error::ErrorKind;
use std::process::ExitCode;

/// Ends a command whose arguments were not understood, or that was asked for its help.
pub fn end(error: &Error, as_json: bool) -> ExitCode {
    let help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if as_json && !help {
        return exit(Err(Failure::usage(sentence(&error.to_string()))), true);
    }
    // Where the terminal is gone there is nobody left to tell.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// What clap says, in one line and without the usage behind it.
fn sentence(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    said.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clap_says_becomes_one_line() {
        let text = "error: unexpected argument '--jsn' found\n\n  tip: a similar argument exists: '--json'\n\nUsage: imbrex\n\nFor more";
        assert_eq!(sentence(text), "unexpected argument '--jsn' found; tip: a similar argument exists: '--json'");
    }
}
