//! What every subcommand prints with: facts on stdout, failures as one sentence on stderr, exit codes.

use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// It failed; the sentence says what to do next. Exit code 1.
    Failed(String),
    /// The command line makes no sense; the sentence says how to write it. Exit code 2.
    Usage(String),
    /// Nobody reads the output any more, which is nobody's fault.
    Unread,
}

impl Failure {
    /// A failure with this sentence.
    pub fn failed(sentence: impl Display) -> Failure {
        Failure::Failed(sentence.to_string())
    }
    /// A command line that makes no sense.
    pub fn usage(sentence: impl Display) -> Failure {
        Failure::Usage(sentence.to_string())
    }
}

impl From<imbrex_device::Error> for Failure {
    fn from(error: imbrex_device::Error) -> Failure {
        Failure::failed(error)
    }
}

/// What a subcommand returns.
pub type Outcome = Result<(), Failure>;

/// Reports a failure and turns it into an exit code.
pub fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::Unread) => ExitCode::SUCCESS,
        Err(Failure::Failed(sentence)) => complain(&sentence, 1),
        Err(Failure::Usage(sentence)) => complain(&sentence, 2),
    }
}

fn complain(sentence: &str, code: u8) -> ExitCode {
    // Where even stderr is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "imbrex: {sentence}");
    ExitCode::from(code)
}

/// Prints a text and a line's end.
pub fn print(text: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        Err(error) => Err(Failure::failed(format!("writing the output failed ({error}); see where it goes"))),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Outcome {
    print(serde_json::to_string_pretty(value).map_err(Failure::failed)?)
}

/// Lines of a name and a value, the values in one column.
pub fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

/// A number of bytes as people write it, with at most one decimal: `256M`, `12.7T`.
pub fn size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    match units.into_iter().find(|(_, shift)| bytes >= 1 << shift) {
        None => bytes.to_string(),
        Some((unit, shift)) if bytes.is_multiple_of(1 << shift) => format!("{}{unit}", bytes >> shift),
        Some((unit, shift)) => format!("{:.1}{unit}", bytes as f64 / (1u64 << shift) as f64),
    }
}

/// A count with thousands separated: `74,508`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut out = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !out.is_empty() {
            out.push(',');
        }
        out.extend(group.iter().map(|byte| char::from(*byte)));
    }
    out
}

/// Columns of the terminal, `None` where stdout is none.
pub fn terminal_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_well() {
        let sizes = [0, 4096, 256 << 20, 14_000_519_643_136, 1536].map(size);
        assert_eq!(sizes, ["0", "4K", "256M", "12.7T", "1.5K"]);
        assert_eq!([7, 999, 1000, 74_508, 1_000_000].map(count), ["7", "999", "1,000", "74,508", "1,000,000"]);
        assert_eq!(table(&[("a", "1".into()), ("bcd", "2".into())]), "a    1\nbcd  2");
    }
}
