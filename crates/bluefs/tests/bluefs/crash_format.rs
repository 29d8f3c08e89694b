//! Formatting that is interrupted at any command: afterwards the drive is whole, or refused with a sentence that says what to
//! do, never something in between; and it can be formatted again.

use crate::crash_support::{bytes, config, options, plan};
use imbrex_bluefs::{BUDGET, BlueFs, CreateOptions, TENANT};
use imbrex_crashkit::{Config, Crash, History, Log, Subject, explore, seeds};
use imbrex_device::Drive;
use imbrex_zones::{FormatOptions, TenantSpec, Volume};
use std::sync::Arc;

const OLD: [u8; 16] = *b"the-old-volume--";
const NEW: [u8; 16] = *b"the-new-volume--";

fn format(drive: &Drive, uuid: [u8; 16], force: bool) -> Result<(), String> {
    let tenants = vec![TenantSpec { name: TENANT.into(), budget: BUDGET }];
    Volume::format(drive, &FormatOptions { uuid: Some(uuid), tenants, force }).map_err(|e| e.to_string())
}

fn mount(drive: &Drive) -> Result<BlueFs, String> {
    BlueFs::mount(drive.clone(), options(64 << 10)).map_err(|e| e.to_string())
}

fn write(fs: &BlueFs, path: &str) -> imbrex_bluefs::Result<()> {
    let mut file = fs.create(path, CreateOptions::default())?;
    file.append(&bytes(70_000, 1))?;
    file.sync()?;
    file.close()
}

/// A new drive is formatted, or one that holds files is.
struct Format {
    used: bool,
}

impl Subject for Format {
    type Op = ();

    fn format(&self, drive: &Drive) -> Result<(), String> {
        if self.used {
            format(drive, OLD, false)?;
            let fs = mount(drive)?;
            for path in ["/a.sst", "/1.log", "/CURRENT"] {
                write(&fs, path).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    fn workload(&self, drive: Drive, _: u64, log: &Log<()>) -> Result<(), String> {
        let id = log.begun(());
        format(&drive, NEW, self.used)?;
        log.synced(id);
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        let _ = mount(&drive);
        Ok(())
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<()>) -> Result<(), String> {
        match mount(&drive) {
            Ok(fs) => {
                let names = fs.list("/").map_err(|e| e.to_string())?.len();
                let whole = match fs.volume().uuid() {
                    NEW => names == 0,
                    // Nothing of the old one is gone yet.
                    OLD => names == 3 && history.must_prefix() == 0,
                    _ => false,
                };
                let problems = fs.check(|_, _| {}).map_err(|e| e.to_string())?.problems;
                if !whole || !problems.is_empty() {
                    return Err(format!("half a volume was mounted: {names} files, {problems:?}"));
                }
            }
            Err(why) if history.must_prefix() > 0 => return Err(format!("formatted, and yet: {why}")),
            Err(why) if why.contains("imbrex fs format") || why.contains("--force") => {}
            Err(why) => return Err(format!("this sentence does not say what to do: {why}")),
        }
        format(&drive, NEW, true).map_err(|why| format!("formatting again: {why}"))?;
        let fs = mount(&drive).map_err(|why| format!("after formatting again: {why}"))?;
        if !fs.list("/").map_err(|e| e.to_string())?.is_empty() {
            return Err("formatting again left files".into());
        }
        write(&fs, "/new.log").map_err(|e| e.to_string())?;
        drop(fs);
        mount(&drive).and_then(|fs| fs.stat("/new.log").map_err(|e| e.to_string())).map(drop)
    }
}

#[test]
fn an_interrupted_format_leaves_nothing_half() {
    for used in [false, true] {
        for write_cache in [true, false] {
            for seed in seeds(1) {
                let config = Config { write_cache, ..config() };
                if let Err(failure) = explore(&Arc::new(Format { used }), &config, &plan(seed, 400)) {
                    panic!("used {used}, write cache {write_cache}: {failure}");
                }
            }
        }
    }
}
