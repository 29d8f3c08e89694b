//! The header and the library declare the same functions and codes.

use std::collections::BTreeSet;

fn names(text: &str, before: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in text.split("imbrex_").skip(1) {
        let name: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if part[name.len()..].starts_with('(') {
            found.insert(format!("imbrex_{name}"));
        }
    }
    assert!(found.len() > 40, "{before}: {found:?}");
    found
}

#[test]
fn every_function_of_the_header_is_defined_and_the_other_way_round() {
    let header = include_str!("../imbrex.h");
    let header: String =
        header.lines().filter(|l| !l.trim_start().starts_with(['*', '/'])).collect::<Vec<_>>().join("\n");
    let mut source = [include_str!("../src/error.rs"), include_str!("../src/fs.rs"), include_str!("../src/file.rs")]
        .concat()
        .lines()
        .filter(|l| l.contains("extern \"C\" fn imbrex_"))
        .collect::<Vec<_>>()
        .join("\n");
    // Made by a macro.
    source.push_str(" imbrex_fs_mkdir( imbrex_fs_rmdir( imbrex_fs_unlink( imbrex_fs_sync_directory(");
    assert_eq!(names(&header, "header"), names(&source, "source"));
}

#[test]
fn codes_have_the_numbers_of_the_header() {
    use imbrex_bluefs::Code::*;
    let header = include_str!("../imbrex.h");
    let codes = [
        (NotFound, "NOT_FOUND"),
        (Exists, "EXISTS"),
        (NotADirectory, "NOT_A_DIRECTORY"),
        (IsADirectory, "IS_A_DIRECTORY"),
        (NotEmpty, "NOT_EMPTY"),
        (NameTooLong, "NAME_TOO_LONG"),
        (InvalidArgument, "INVALID_ARGUMENT"),
        (NoSpace, "NO_SPACE"),
        (Corruption, "CORRUPTION"),
        (Io, "IO"),
        (Busy, "BUSY"),
        (ReadOnly, "READ_ONLY"),
        (NotSupported, "NOT_SUPPORTED"),
        (Locked, "LOCKED"),
        (Poisoned, "POISONED"),
        (ForkedChild, "FORKED_CHILD"),
        (Panic, "PANIC"),
    ];
    for (code, name) in codes {
        let line = format!("IMBREX_{name} = {},", code as u32);
        assert!(header.contains(&line), "the header lacks {line}");
    }
}
