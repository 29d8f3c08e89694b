//! Settings of a device that an operator should change: the drive opens all the same, says so, and what it says to run helps.

use crate::{Tally, open};
use imbrex_device::kernel::Advice;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of sysfs, which gets back what it held.
struct Setting {
    file: PathBuf,
    before: String,
}

impl Setting {
    fn of(device: &str, name: &str) -> Setting {
        let file = Path::new("/sys/block").join(device.trim_start_matches("/dev/")).join("queue").join(name);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        // Of several on offer the one in brackets holds.
        let before =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text.trim(), |(now, _)| now);
        Setting { file, before: before.to_owned() }
    }

    fn set(&self, text: &str) {
        std::fs::write(&self.file, text).unwrap_or_else(|error| panic!("{text} > {}: {error}", self.file.display()));
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // A failed test says more than its tidying up.
        let _ = std::fs::write(&self.file, &self.before);
    }
}

fn advice(device: &str, subject: &str) -> Advice {
    let all = open(device).about().advice;
    all.iter()
        .find(|advice| advice.subject == subject)
        .unwrap_or_else(|| panic!("nothing on {subject}: {all:?}"))
        .clone()
}

/// With `bad` in the file of that name the drive advises about `subject`, and its advice, followed, makes it content.
fn told(device: &str, name: &str, bad: &str, subject: &str) {
    let setting = Setting::of(device, name);
    setting.set(bad);
    let told = advice(device, subject);
    assert!(!told.good, "{told:?} with {bad} in {}", setting.file.display());
    let command = told.sentence.split('`').nth(1).unwrap_or_else(|| panic!("nothing to run in {told:?}"));
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    let now = advice(device, subject);
    assert!(now.good, "{now:?} after {command}");
}

/// Whether this kernel keeps the writes to a zone in order by itself, whatever the scheduler (Linux 6.10).
fn keeps_order() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 10)
}

/// On a device that is a drive.
pub fn run(tally: &mut Tally, path: &str) {
    if keeps_order() {
        tally.test(&format!("{path}: any scheduler is as good"), || {
            let setting = Setting::of(path, "scheduler");
            setting.set("none");
            let told = advice(path, "scheduler");
            assert!(told.good, "{told:?}");
        });
    } else {
        tally.test(&format!("{path}: another scheduler is told, not refused, and the advice helps"), || {
            told(path, "scheduler", "none", "scheduler");
        });
    }
    // Of SCSI disks alone the kernel says what the drive's own cache does.
    if path.starts_with("/dev/sd") {
        tally.test(&format!("{path}: a cache that gets no flushes is told, and the advice helps"), || {
            told(path, "write_cache", "write through", "write cache");
        });
    }
    let most = Setting::of(path, "max_hw_sectors_kb").before.parse::<u64>().unwrap_or(0);
    if most > 128 {
        tally.test(&format!("{path}: commands cut short are told, kept, and the advice helps"), || {
            let setting = Setting::of(path, "max_sectors_kb");
            setting.set("128");
            assert!(imbrex_device::ZonedDevice::geometry(&open(path)).max_io <= 128 << 10);
            told(path, "max_sectors_kb", "128", "command size");
        });
    }
}
