//! `IMBREX_LOG=debug`: every command says what it does, on stderr, and nothing more on stdout.

mod support;

use support::{Place, done, formatted, place, text};

/// Runs a command that logs; what it logged.
fn logged(at: &Place, args: &[&str]) -> String {
    let output = at.command(args).env("IMBREX_LOG", "debug").env("NO_COLOR", "1").output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    let quiet = at.command(args).output().unwrap();
    assert!(!text(&quiet.stderr).contains("DEBUG"), "{args:?} logs although nobody asked for it");
    said
}

#[test]
fn every_command_says_what_it_does() {
    let at = formatted();
    let drive = at.drive().to_owned();
    let verbs: &[(&[&str], &[&str])] = &[
        (&["drive", "profiles"], &[]),
        (&["drive", "info", &drive], &[]),
        (&["drive", "zones", &drive], &[]),
        (&["drive", "stats", &drive], &[]),
        (&["fs", "ls", &drive, "/"], &["drive opened", "records of the journal read", "ends of logs found"]),
        (&["fs", "df", &drive], &["drive opened"]),
        (&["fs", "check", &drive], &["drive opened"]),
        (&["fs", "advise", &drive], &["drive opened"]),
        (&["fs", "stat", &drive], &["drive opened"]),
        (&["completions", "bash"], &[]),
        (&["bench", "list"], &[]),
    ];
    for (args, more) in verbs {
        let said = logged(&at, args);
        for says in [&["the command begins", "the command ends"], *more].concat() {
            assert!(said.contains(says), "{args:?} does not say {says:?}: {said}");
        }
    }
}

#[test]
fn chunk_commands_say_how_the_store_was_opened_and_what_was_written() {
    let at = place();
    let drive = at.drive().to_owned();
    done(at.run(&["drive", "create", &drive, "--profile", "tiny"]));
    assert!(logged(&at, &["chunk", "format", &drive, "--force"]).contains("the command ends"));
    let file = at.file("a", vec![7; 10_000]);
    let said = logged(&at, &["chunk", "put", &drive, &file]);
    assert!(said.contains("drive opened"), "{said}");
    let said = logged(&at, &["chunk", "ls", &drive]);
    assert!(said.contains("chunk store opened") && said.contains("journal_records="), "{said}");
}
