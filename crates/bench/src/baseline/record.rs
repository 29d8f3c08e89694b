//! What a baseline did to this machine, on file, so that it is undone also by another process than the one that did it: after
//! a SIGKILL the next start, or `imbrex drive detach`, finds the record and goes through it.
//!
//! A step stands in the record before it is taken. What undoes them takes every step as one that may have happened or not,
//! and touches nothing that is not provably the record's: a loop device only while the record's file is under it, the
//! memory group and the directory by their names, which nobody else makes.

use super::attached::{self, FILE};
use super::group;
use crate::process::started;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where records stand; only root writes there.
const RECORDS: &str = "/run/imbrex-baselines";
/// The names in a baseline's directory.
pub(super) const SERVED: &str = "served";
pub(super) const MOUNTED: &str = "mounted";
pub(super) const IMAGE: &str = "drive.img";

/// One baseline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The process that has it, and when that was started, in ticks since the boot.
    pid: u32,
    started: u64,
    boot: String,
    /// Everything of it stands in this directory.
    pub(super) work: PathBuf,
    /// As `loop3`.
    pub(super) loop_device: Option<String>,
    /// Files of the kernel with settings, and what was in them.
    pub(super) settings: Vec<(PathBuf, String)>,
    pub(super) group: Option<PathBuf>,
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Record {
    pub(super) fn new(work: &Path) -> Record {
        let pid = std::process::id();
        Record {
            pid,
            started: started(pid).unwrap_or_default(),
            boot: boot(),
            work: work.to_owned(),
            loop_device: None,
            settings: Vec::new(),
            group: None,
        }
    }

    pub(super) fn served(&self) -> PathBuf {
        self.work.join(SERVED)
    }

    /// Its name, which is unlike those of all others there are.
    pub(super) fn name(&self) -> String {
        self.work.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn path(&self) -> PathBuf {
        Path::new(RECORDS).join(self.name()).with_extension("json")
    }

    /// Puts it on file, in one step. The error is a sentence.
    pub(super) fn save(&self) -> Result<(), String> {
        let path = self.path();
        let failed = |error: std::io::Error| format!("{} cannot be written ({error})", path.display());
        fs::create_dir_all(RECORDS).map_err(failed)?;
        let new = path.with_extension("new");
        let json = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        fs::write(&new, json).and_then(|()| fs::rename(&new, &path)).map_err(failed)
    }

    /// Whether the process that has it is there.
    fn alive(&self) -> bool {
        self.boot == boot() && started(self.pid) == Some(self.started)
    }

    /// Undoes all of it; every step is tried whatever became of the others. The error names what is left, and the record
    /// stays until nothing is.
    pub(super) fn undo(&self) -> Result<(), String> {
        let mut left = Vec::new();
        let mut step = |done: Result<(), String>| left.extend(done.err());
        if self.boot == boot() {
            step(self.group.as_deref().map_or(Ok(()), group::remove));
            self.restore();
            step(self.unmount());
            step(
                attached::find_in(&self.served())
                    .map_or(Ok(()), |attached| attached.detach().map_err(|stuck| stuck.to_string())),
            );
        }
        step(self.remove_files());
        if !left.is_empty() {
            return Err(left.join("; "));
        }
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("{} cannot be removed ({error})", self.path().display()))
            }
            _ => Ok(()),
        }
    }

    /// Unmounts the file system; it may not be mounted.
    pub(super) fn unmount(&self) -> Result<(), String> {
        attached::unmount_patiently(&self.work.join(MOUNTED)).map_err(|stuck| stuck.to_string())
    }

    /// Puts settings back, where the loop device is still ours, or nobody's. The last first: some have limits in others.
    fn restore(&self) {
        let Some(name) = &self.loop_device else { return };
        if attached::backing(name).is_some_and(|file| file != self.served().join(FILE)) {
            return;
        }
        for (path, value) in self.settings.iter().rev() {
            // What does not go now has no effect on who comes next but to be a little slower or faster.
            let _ = fs::write(path, value);
        }
    }

    /// Removes the files, and directories that are empty, which they are not while something is mounted there.
    fn remove_files(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(format!("{} cannot be removed ({error})", self.work.display())),
        };
        let remove = || {
            for entry in fs::read_dir(&self.work)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() { fs::remove_dir(entry.path())? } else { fs::remove_file(entry.path())? }
            }
            fs::remove_dir(&self.work)
        };
        remove().or_else(failed)
    }
}

fn records() -> Vec<Record> {
    let entries = fs::read_dir(RECORDS).into_iter().flatten().flatten();
    let jsons = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
    let read = |path: PathBuf| {
        let record: Record = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        // Half a record, or one that was moved, says nothing that could be believed.
        (record.path() == path).then_some(record)
    };
    jsons.filter_map(read).collect()
}

/// Undoes what processes left that are gone. Returns what was undone, by the directories, and sentences on what could not be.
pub fn undo_left() -> (Vec<PathBuf>, Vec<String>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for record in records().into_iter().filter(|record| !record.alive()) {
        match record.undo() {
            Ok(()) => done.push(record.work),
            Err(sentence) => failed.push(sentence),
        }
    }
    (done, failed)
}

/// The process that runs an experiment on the drive served in `dir`.
pub fn owner(dir: &Path) -> Option<u32> {
    records().into_iter().find(|record| record.alive() && record.served() == dir).map(|record| record.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_its_number_is_somebody_elses() {
        let record = Record::new(Path::new("/tmp/x"));
        assert!(record.alive());
        assert!(!Record { started: record.started + 1, ..record.clone() }.alive());
        assert!(!Record { boot: "another".into(), ..record.clone() }.alive());
        assert!(!Record { pid: u32::MAX, ..record }.alive());
    }

    #[test]
    fn files_are_removed_and_what_is_not_empty_stays() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir_all(work.join(SERVED)).unwrap();
        fs::create_dir_all(work.join(MOUNTED).join("precious")).unwrap();
        fs::write(work.join(IMAGE), "x").unwrap();
        let record = Record::new(&work);
        assert!(record.remove_files().unwrap_err().contains("work"));
        assert!(work.join(MOUNTED).join("precious").exists());
        fs::remove_dir(work.join(MOUNTED).join("precious")).unwrap();
        assert_eq!(record.remove_files(), Ok(()));
        assert!(!work.exists());
        assert_eq!(record.remove_files(), Ok(()));
    }
}
