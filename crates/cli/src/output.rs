//! What every subcommand prints with: facts on stdout, failures on stderr (one sentence, or with `--json` one object), exit codes.

use imbrex_device::Class;
use indicatif::ProgressStyle;
use serde::Serialize;
use serde_json::json;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// What kind of failure, and a sentence that says what to do next.
    Told(Class, String),
    /// Nobody reads the output any more, which is nobody's fault.
    Unread,
}

impl Failure {
    /// A failure with this sentence.
    pub fn failed(sentence: impl Display) -> Failure {
        Failure::of(Class::Failed, sentence)
    }
    /// A command line that makes no sense.
    pub fn usage(sentence: impl Display) -> Failure {
        Failure::of(Class::Usage, sentence)
    }
    /// Bytes that are not what was written.
    pub fn damage(sentence: impl Display) -> Failure {
        Failure::of(Class::Damage, sentence)
    }
    /// Somebody else has what is asked for.
    pub fn busy(sentence: impl Display) -> Failure {
        Failure::of(Class::Busy, sentence)
    }
    /// A failure of this class.
    pub fn of(class: Class, sentence: impl Display) -> Failure {
        Failure::Told(class, sentence.to_string())
    }

    /// Both failures as one, of the class of the first.
    pub fn and(self, other: Failure) -> Failure {
        match (self, other) {
            (Failure::Told(class, one), Failure::Told(_, two)) => Failure::Told(class, format!("{one}; {two}")),
            (Failure::Unread, told) | (told, Failure::Unread) => told,
        }
    }

    /// The same failure, told in other words.
    pub fn reword(self, words: impl FnOnce(String) -> String) -> Failure {
        match self {
            Failure::Told(class, sentence) => Failure::Told(class, words(sentence)),
            Failure::Unread => Failure::Unread,
        }
    }
}

impl From<imbrex_device::Error> for Failure {
    fn from(error: imbrex_device::Error) -> Failure {
        Failure::of(error.class(), error)
    }
}

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// The number.
    pub code: u8,
    /// Its name, `kind` in JSON.
    pub name: &'static str,
    /// What it says of the command.
    pub means: &'static str,
}

/// All exit codes. Help, man pages and `docs/operations.md` have their tables from here.
pub const EXIT_STATUS: [ExitStatus; 5] = [
    ExitStatus { code: 0, name: "done", means: "The command did what was asked." },
    ExitStatus {
        code: 1,
        name: "failed",
        means: "The command failed. The sentence on stderr says why, and what to do.",
    },
    ExitStatus { code: 2, name: "usage", means: "The command line makes no sense. Nothing was tried." },
    ExitStatus {
        code: 3,
        name: "damage",
        means: "The command found damage: bytes are not what was written, or cannot be read any more.",
    },
    ExitStatus {
        code: 4,
        name: "busy",
        means: "Somebody else uses the drive or the directory. Later the command may work.",
    },
];

/// The exit code of a class of failures.
fn status(class: Class) -> ExitStatus {
    EXIT_STATUS[match class {
        Class::Failed => 1,
        Class::Usage => 2,
        Class::Damage => 3,
        Class::Busy => 4,
    }]
}

/// The table of exit codes as `--help` shows it.
pub fn exit_table() -> String {
    let rows = EXIT_STATUS.map(|status| (status.code.to_string(), status.means.to_owned()));
    rows.map(|(code, means)| format!("  {code}  {means}")).join("\n")
}

/// What a subcommand returns.
pub type Outcome = Result<(), Failure>;

/// Whether these arguments ask for JSON, also where they make no sense otherwise.
pub fn wants_json<T: AsRef<OsStr>>(words: &[T]) -> bool {
    let words = words.iter().map(AsRef::as_ref);
    words.take_while(|word| *word != OsStr::new("--")).any(|word| word == OsStr::new("--json"))
}

/// Reports a failure, in JSON where that was asked for, and says which exit code it has.
pub fn report(outcome: Outcome, as_json: bool) -> u8 {
    match outcome {
        Ok(()) | Err(Failure::Unread) => 0,
        Err(Failure::Told(class, sentence)) => {
            let text = if as_json { error_json(class, &sentence) } else { format!("imbrex: {sentence}") };
            // Where even stderr is gone there is nobody left to tell.
            let _ = writeln!(io::stderr(), "{text}");
            status(class).code
        }
    }
}

/// Says what a user should know of a command that goes on.
pub fn warn(sentence: &str, as_json: bool) {
    let text = if as_json { json!({ "warning": sentence }).to_string() } else { format!("imbrex: {sentence}") };
    // Where even stderr is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

/// One line, so that whoever reads a log finds its end.
fn error_json(class: Class, sentence: &str) -> String {
    let ExitStatus { code, name, .. } = status(class);
    json!({ "error": { "code": code, "kind": name, "message": sentence } }).to_string()
}

/// Columns that the longest of the wide templates needs for more than a stump of a bar.
const WIDE: u16 = 72;

/// How a progress bar looks: one line, also where the terminal is narrow.
pub fn bar_style(wide: &str, narrow: &str) -> ProgressStyle {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    // A terminal that does not know its width is taken for one of 80.
    let template = if columns == 0 || columns >= WIDE { wide } else { narrow };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Reports a failure and turns it into an exit code.
pub fn exit(outcome: Outcome, as_json: bool) -> ExitCode {
    ExitCode::from(report(outcome, as_json))
}

/// Prints a text and a line's end.
pub fn print(text: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// What becomes of a command that has written its output so. Whoever reads may have enough.
pub fn written(result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        Err(error) => Err(Failure::failed(format!("writing the output failed ({error}); see where it goes"))),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Outcome {
    print(serde_json::to_string_pretty(value).map_err(Failure::failed)?)
}

/// Two digits for each byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
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

/// A count and its noun: `1 chunk`, `74,508 zones`.
pub fn number_of(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Columns of the terminal, `None` where stdout is none.
pub fn terminal_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_counted_from_0() {
        assert_eq!(EXIT_STATUS.map(|status| status.code), [0, 1, 2, 3, 4]);
        let all = [Class::Failed, Class::Usage, Class::Damage, Class::Busy];
        assert_eq!(all.map(|class| status(class).name), ["failed", "usage", "damage", "busy"]);
    }

    #[test]
    fn the_manual_has_the_table_of_exit_codes() {
        let manual = include_str!("../../../docs/operations.md");
        for ExitStatus { code, name, means } in EXIT_STATUS {
            let row = format!("| {code} | `{name}` | {means} |");
            assert!(manual.contains(&row), "docs/operations.md lacks {row}");
        }
    }

    #[test]
    fn json_is_asked_for_by_a_word_of_its_own() {
        assert!(wants_json(&["imbrex", "fs", "ls", "--json"]) && wants_json(&["--json", "--", "x"]));
        assert!(!wants_json(&["imbrex", "fs", "cat", "x", "--", "--json"]) && !wants_json(&["--jsonx"]));
    }

    #[test]
    fn sizes_and_counts_read_well() {
        let sizes = [0, 4096, 256 << 20, 14_000_519_643_136, 1536].map(size);
        assert_eq!(sizes, ["0", "4K", "256M", "12.7T", "1.5K"]);
        assert_eq!([7, 999, 1000, 74_508, 1_000_000].map(count), ["7", "999", "1,000", "74,508", "1,000,000"]);
        assert_eq!([0, 1, 1000].map(|n| number_of(n, "chunk")), ["0 chunks", "1 chunk", "1,000 chunks"]);
        assert_eq!(hexadecimal(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(table(&[("a", "1".into()), ("bcd", "2".into())]), "a    1\nbcd  2");
    }
}
