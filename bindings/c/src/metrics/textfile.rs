//! Metrics in a file, as node_exporter's textfile collector reads them: replaced in one step, so that no reader sees half of it.

use super::{Figures, figures, render};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often the file is written.
const EVERY: Duration = Duration::from_secs(10);

/// One writer at a time: the new file's name is the process's.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes the file now and every ten seconds. A sentence where that is not possible.
pub(super) fn start(path: PathBuf) -> Result<(), String> {
    replace(&path, &figures())?;
    let thread = std::thread::Builder::new().name("imbrex-metrics".into());
    let run = move || {
        let mut failing = false;
        loop {
            std::thread::sleep(EVERY);
            let drives = figures();
            // What the last drive left behind when it was unmounted stays.
            if drives.is_empty() {
                continue;
            }
            let outcome = replace(&path, &drives);
            if let (Err(why), false) = (&outcome, failing) {
                tracing::warn!("{}: {why}; trying again every ten seconds", path.display());
            }
            failing = outcome.is_err();
        }
    };
    thread.spawn(run).map(drop).map_err(|error| format!("cannot be written ({error}): no thread for it"))
}

/// A drive was unmounted: its last figures, beside those of the drives that are still open.
pub(super) fn last_words(path: &Path, last: Figures) {
    let mut drives = figures();
    drives.extend(last);
    if let Err(why) = replace(path, &drives) {
        tracing::warn!("{}: {why}; the metrics of the last seconds are lost", path.display());
    }
}

fn replace(path: &Path, drives: &Figures) -> Result<(), String> {
    let text = render::render(drives).map_err(|error| format!("cannot be made ({error}); please report this"))?;
    let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut name = path.file_name().map(|name| name.to_owned()).unwrap_or_default();
    // A name that no collector reads: they take *.prom.
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)).map_err(|error| {
        // A new file that could not be finished helps nobody.
        let _ = std::fs::remove_file(&new);
        format!("cannot be written ({error}); choose a directory that this user may write to")
    })
}
