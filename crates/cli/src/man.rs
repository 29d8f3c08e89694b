//! Man pages, made of the command itself; what holds for several commands stands here.

use crate::output::{EXIT_STATUS, Failure, Outcome};
use clap::Command;
use clap_mangen::Man;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Variables that the command and the libraries heed.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("IMBREX_LOG", "What is logged on stderr: error, warn, info, debug or trace, also by part (imbrex_zones=debug)."),
    (
        "IMBREX_METRICS",
        "For programs that use the libraries: an address (127.0.0.1:9899) that answers Prometheus, or a file that metrics are written to.",
    ),
    ("IMBREX_DRIVE", "For programs with the LevelDB plug-in: the drive, a path or a URI."),
];

/// Options behind a drive's name, and what they do.
type Means = &'static [(&'static str, &'static str)];

/// Of every engine.
const DRIVE: Means = &[
    ("host-sync", "on: flushes of an emulated drive reach the host's disk. Default: off."),
    ("max-io", "Longest command, as 1M; up to what the drive takes."),
    ("read-only", "on: nothing on the drive changes. Default: off."),
    ("survivor", "off: no shared memory keeps unwritten bytes when the process dies. Default: on."),
    ("survivor-size", "Size of that memory, 1M to 4G. Default: 64M."),
    ("format", "on: a drive without a label is formatted when it is opened. Default: off; on for mem:."),
];

/// Of emulated drives and zoned devices.
const ZONED: Means = &[
    ("conventional", "as-sequential: conventional zones serve as sequential ones."),
    ("time", "An emulated drive keeps time: off, account (times are added up) or pace (callers wait). Default: off."),
    ("speed", "With time=pace: seconds of the drive's clock in one second."),
];

/// Of bluefs.
const FS: Means = &[
    ("cache", "Size of the cache for file contents, as 2G; 0: none."),
    ("journal", "The journal is compacted when it has grown by so many bytes, as 64M."),
    ("idle-pack", "Seconds without a command after which short tables are packed together, or off. Default: 2."),
];

/// Of the chunk store.
const CHUNK: Means = &[
    ("buffer", "Bytes that may wait in memory."),
    ("checkpoint", "Bytes that are appended between two checkpoints."),
    ("chunk-limit", "Most bytes of a chunk."),
    ("clean-below", "Cleaning begins when fewer zones are free than this many."),
    ("group-commit-delay", "How long a commit waits for others that could share its flush."),
    ("open-zones", "Most zones open for writing at once."),
    ("scrub", "Days in which every chunk is verified once, or off. Default: 30."),
    ("segment", "Small records gather in pieces of this many bytes."),
    ("max-slowdown", "Background work makes users' commands at most so many times longer, above 1. Default: 1.5."),
    ("streams", "More kinds of streams, NAME:DAYS:POOL[:LIMIT] each."),
    ("cleaning-policy", "How zones are chosen for cleaning: greedy, cost-benefit or lifetime. Default: lifetime."),
    (
        "zones-at-once",
        "Most zones that are written at once on a disk without write cache. Default: 4 if it takes commands of 4 MiB, else 32.",
    ),
];

/// Text as roff takes it, a line of its own or a part of one.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins so would be a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn list(out: &mut String, items: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>) {
    for (name, means) in items {
        // Writing to a string cannot fail.
        let _ = writeln!(out, ".TP\n.B {}\n{}", roff(name.as_ref()), roff(means.as_ref()));
    }
}

/// Examples as they are typed, and what else the help says behind them.
fn behind(command: &Command) -> String {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (mut examples, mut notes) = (String::new(), String::new());
    for paragraph in help.split("\n\n") {
        let mut lines = paragraph.lines();
        match lines.next() {
            Some("Example:" | "Examples:") => {
                examples += ".SH EXAMPLES\n.nf\n";
                lines.for_each(|line| examples += &format!("{}\n", roff(line.strip_prefix("  ").unwrap_or(line))));
                examples += ".fi\n";
            }
            // It has a section of its own.
            None | Some("Exit status:") => {}
            Some(_) => {
                notes += if notes.is_empty() { ".SH NOTES\n" } else { ".PP\n" };
                paragraph.lines().for_each(|line| notes += &format!("{}\n", roff(line)));
            }
        }
    }
    notes + &examples
}

/// Options of a drive's URI that the command's noun understands.
fn options(name: &str) -> String {
    let noun = name.split('-').nth(1);
    let of: &[(&str, Means)] = match noun {
        Some("fs") => &[("Of imbrex fs, RocksDB and LevelDB:", FS)],
        Some("chunk") => &[("Of imbrex chunk:", CHUNK)],
        None => &[("Of imbrex fs, RocksDB and LevelDB:", FS), ("Of imbrex chunk:", CHUNK)],
        _ => return String::new(),
    };
    let mut text = String::from(
        ".SH \"URI OPTIONS\"\nA drive is a path, or imbrex:// and the path, with options behind a question mark and & between them:\n\
         imbrex:///data/drive.img?cache=2G&idle-pack=off.\n",
    );
    let always = [("Of every drive:", DRIVE), ("Of emulated and zoned drives:", ZONED)];
    for (title, means) in always.iter().chain(of) {
        let _ = writeln!(text, ".SS \"{}\"", roff(title));
        list(&mut text, means.iter().map(|(name, means)| (format!("{name}="), *means)));
    }
    text
}

/// The text of a page.
fn text(command: &Command, name: &str) -> io::Result<String> {
    let man =
        Man::new(command.clone()).title(name).source(concat!("imbrex ", env!("CARGO_PKG_VERSION"))).manual("Imbrex");
    let mut made = Vec::new();
    man.render_title(&mut made)?;
    man.render_name_section(&mut made)?;
    man.render_synopsis_section(&mut made)?;
    man.render_description_section(&mut made)?;
    man.render_options_section(&mut made)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut made)?;
    }
    let mut text = String::from_utf8_lossy(&made).into_owned();
    text += &behind(command);
    text += ".SH \"EXIT STATUS\"\n";
    list(&mut text, EXIT_STATUS.iter().map(|status| (status.code.to_string(), status.means)));
    text += ".SH ENVIRONMENT\n";
    list(&mut text, ENVIRONMENT);
    text += &options(name);
    if let Some((above, _)) = name.rsplit_once('-').filter(|_| name != "imbrex") {
        let _ = writeln!(text, ".SH \"SEE ALSO\"\n{}(1)", roff(above));
    }
    Ok(text)
}

/// Writes the page of a command, and those of the commands below it.
pub fn pages(command: &Command, dir: &Path) -> Outcome {
    // Nobody writes a page for `help`, so none may lead there.
    let mut command = without_help(command.clone());
    command.build();
    page(&command, "imbrex", dir)
}

fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn page(command: &Command, name: &str, dir: &Path) -> Outcome {
    let path = dir.join(format!("{name}.1"));
    text(command, name)
        .and_then(|text| std::fs::write(&path, text))
        .map_err(|error| Failure::failed(format!("{}: {error}; choose another directory", path.display())))?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        page(below, &format!("{name}-{}", below.get_name()), dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_uri_is_told_and_none_that_there_is_not() {
        let sorted = |names: Vec<&'static str>| {
            let mut names = names;
            names.sort_unstable();
            names
        };
        let drive = || DRIVE.iter().map(|(name, _)| *name);
        for (told, known) in [(FS, imbrex_bluefs::uri_options()), (CHUNK, imbrex_chunkstore::uri_options())] {
            let told: Vec<_> = told.iter().map(|(name, _)| *name).chain(drive()).collect();
            let known: Vec<_> = known.iter().chain(imbrex_drives::DRIVE_OPTIONS).copied().collect();
            assert_eq!(sorted(told), sorted(known));
        }
        let zoned = ZONED.iter().map(|(name, _)| *name).collect();
        assert_eq!(sorted(zoned), sorted(imbrex_drives::ZONED_OPTIONS.to_vec()));
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_a_request() {
        assert_eq!(roff(".so /etc/passwd"), "\\&.so /etc/passwd");
        assert_eq!(roff("'x"), "\\&'x");
        assert_eq!(roff("a\\b --c"), "a\\eb \\-\\-c");
    }
}
