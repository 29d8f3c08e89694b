//! A command line that makes no sense: clap's words for people, one object for programs that asked for JSON, and for a verb of other
//! programs the one that does the same here.

use crate::output::{Failure, exit};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use std::ffi::OsString;
use std::process::ExitCode;

/// Verbs that people know from elsewhere, and which of ours they may mean, the best first.
const SYNONYMS: [(&[&str], &[&str]); 8] = [
    (&["delete", "del", "remove", "unlink", "erase", "destroy"], &["rm"]),
    (&["mv", "move", "rename"], &["mv", "cp", "rm"]),
    (&["ln", "link"], &["ln", "cp"]),
    (&["list", "dir"], &["ls", "list"]),
    (&["copy", "upload", "download", "write", "read"], &["cp", "put", "get", "cat"]),
    (&["mkfs", "init", "new", "make"], &["format", "create"]),
    (&["fsck", "verify", "repair"], &["check", "scrub"]),
    (&["du", "usage", "show", "describe"], &["df", "info", "stat"]),
];

/// Ends a command whose arguments were not understood, or that was asked for its help.
pub fn end(mut error: Error, words: &[OsString], command: &Command, as_json: bool) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(meant) = meant(words, command)
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
    let help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if as_json && !help {
        return exit(Err(Failure::usage(sentence(&error.to_string()))), true);
    }
    // Where the terminal is gone there is nobody left to tell.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Of a verb that there is not: those that may be meant. Without a noun, the nouns that have it.
fn meant(words: &[OsString], mut command: &Command) -> Option<Vec<String>> {
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let verb = loop {
        let word = words.next()?;
        match command.find_subcommand(word) {
            Some(below) => command = below,
            None => break word,
        }
    };
    let has = |command: &Command, verb: &str| command.find_subcommand(verb).is_some_and(|found| !found.is_hide_set());
    let known = SYNONYMS.iter().find(|(words, _)| words.contains(&verb)).map_or(&[][..], |(_, ours)| *ours);
    let here: Vec<String> = known.iter().filter(|ours| has(command, ours)).map(|ours| (*ours).to_owned()).collect();
    let of = |noun: &Command| {
        let ours = std::iter::once(verb).chain(known.iter().copied()).find(|ours| has(noun, ours))?;
        Some(format!("{} {ours}", noun.get_name()))
    };
    let nouns: Vec<String> = command.get_subcommands().filter_map(of).collect();
    [here, nouns].into_iter().find(|names| !names.is_empty())
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
    use clap::CommandFactory;

    #[test]
    fn what_clap_says_becomes_one_line() {
        let text = "error: unexpected argument '--jsn' found\n\n  tip: a similar argument exists: '--json'\n\nUsage: imbrex\n\nFor more";
        assert_eq!(sentence(text), "unexpected argument '--jsn' found; tip: a similar argument exists: '--json'");
    }

    #[test]
    fn verbs_of_other_programs_lead_to_ours() {
        let command = crate::Cli::command();
        let meant = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            meant(&words, &command).unwrap_or_default().join(", ")
        };
        assert_eq!(meant("imbrex chunk delete x.img 12"), "rm");
        assert_eq!(meant("imbrex fs remove x.img /a"), "rm");
        assert!(meant("imbrex chunk mv x.img a b").contains("rm"));
        assert_eq!(meant("imbrex drive init x.img"), "create");
        assert_eq!(meant("imbrex ls x.img"), "fs ls, chunk ls, kv ls, store ls, image ls");
        assert_eq!(meant("imbrex delete x.img"), "drive rm, fs rm, chunk rm, kv rm, store rm, image rm");
        assert_eq!(meant("imbrex fs --json fsck x.img"), "check");
        assert_eq!(meant("imbrex fs nonsense"), "");
        // No row is for nothing.
        for (_, ours) in SYNONYMS {
            assert!(ours.iter().any(|verb| command.get_subcommands().any(|noun| noun.find_subcommand(verb).is_some())));
        }
    }
}
