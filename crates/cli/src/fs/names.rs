//! What changes names, and no bytes: mkdir, mv, ln.

use super::{Ln, Mkdir, Mv, join};
use crate::output::{Failure, Outcome, print_json};
use imbrex_bluefs::{BlueFs, FileKind};
use serde_json::json;

fn is_directory(fs: &BlueFs, path: &str) -> bool {
    fs.stat(path).is_ok_and(|found| found.kind == FileKind::Directory)
}

/// Where something named `from` goes: into a directory, or to this path, which must be free.
fn place(fs: &BlueFs, from: &str, to: &str, replace: bool) -> Result<String, Failure> {
    let name = from.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let path = if is_directory(fs, to) { join(to, name) } else { to.trim_end_matches('/').to_owned() };
    match fs.stat(&path) {
        Ok(found) if !replace || found.kind == FileKind::Directory => {
            Err(Failure::failed(format!("{path} is there already; choose another name, or remove it first")))
        }
        _ => Ok(path),
    }
}

pub(super) fn mkdir(args: Mkdir) -> Outcome {
    let fs = args.mount.open()?;
    for path in &args.paths {
        if !args.parents {
            fs.mkdir(path)?;
            continue;
        }
        let mut above = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            above = format!("{above}/{part}");
            if !is_directory(&fs, &above) {
                fs.mkdir(&above)?;
            }
        }
    }
    fs.sync_all()?;
    if args.mount.json { print_json(&json!({ "made": args.paths })) } else { Ok(()) }
}

pub(super) fn mv(args: Mv) -> Outcome {
    let fs = args.mount.open()?;
    fs.stat(&args.from)?;
    let to = place(&fs, &args.from, &args.to, args.force)?;
    fs.rename(&args.from, &to)?;
    fs.sync_all()?;
    if args.mount.json { print_json(&json!({ "from": args.from, "to": to })) } else { Ok(()) }
}

pub(super) fn ln(args: Ln) -> Outcome {
    let fs = args.mount.open()?;
    if is_directory(&fs, &args.from) {
        return Err(Failure::failed(format!("{} is a directory, and only files have several names", args.from)));
    }
    fs.stat(&args.from)?;
    let to = place(&fs, &args.from, &args.to, false)?;
    fs.link(&args.from, &to)?;
    fs.sync_all()?;
    if args.mount.json { print_json(&json!({ "from": args.from, "to": to })) } else { Ok(()) }
}
