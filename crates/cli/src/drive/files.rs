//! `imbrex drive rm|mv|cp`: the files of an emulated drive, which are several above 8 TiB.

use super::image_path;
use crate::output::{Outcome, number_of, print, print_json};
use imbrex_emulator::{copy_image, remove_image, rename_image};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(super) struct Remove {
    /// The drive's image.
    path: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(super) struct Pair {
    /// The drive's image.
    from: String,
    /// Its new path; nothing may be there.
    to: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|file| file.display().to_string()).collect()
}

/// Of a drive of several files: how many, and which.
pub(super) fn several(files: &[PathBuf]) -> Option<String> {
    (files.len() > 1).then(|| format!("{}: {}", number_of(files.len() as u64, "file"), names(files).join(", ")))
}

fn say(path: &Path, did: &str, files: &[PathBuf], json: bool) -> Outcome {
    if json {
        return print_json(&json!({ "files": names(files) }));
    }
    let all = several(files).map(|all| format!(" ({all})")).unwrap_or_default();
    print(format_args!("{}: {did}{all}", path.display()))
}

pub(super) fn remove(args: Remove) -> Outcome {
    let path = image_path(&args.path)?;
    let files = remove_image(&path)?;
    say(&path, "removed", &files, args.json)
}

pub(super) fn rename(args: Pair) -> Outcome {
    let (from, to) = (image_path(&args.from)?, image_path(&args.to)?);
    let files = rename_image(&from, &to)?;
    say(&from, &format!("is {} now", to.display()), &files, args.json)
}

pub(super) fn copy(args: Pair) -> Outcome {
    let (from, to) = (image_path(&args.from)?, image_path(&args.to)?);
    let files = copy_image(&from, &to)?;
    say(&from, &format!("copied to {}", to.display()), &files, args.json)
}
