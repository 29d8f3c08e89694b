//! The machine that an experiment runs on: what it is, and whether it is large enough.

use super::result::{Config, Machine};
use super::{Needs, Options};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A figure of /proc/meminfo, in bytes; `None` where the system does not tell.
fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of memory that are free, or may be: the cache of files is.
pub(super) fn free_memory() -> u64 {
    meminfo("MemAvailable").unwrap_or(u64::MAX)
}

fn machine() -> Machine {
    let word = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let load = word("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok());
    Machine {
        cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
        memory: meminfo("MemTotal").unwrap_or(0),
        kernel: word("/proc/sys/kernel/osrelease").trim().to_owned(),
        load_before: load.unwrap_or(0.0),
    }
}

/// The version, and what tells two builds of it apart.
fn program() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match std::env::current_exe().and_then(std::fs::read) {
        Ok(bytes) => format!("imbrex {version}, crc32c {:08x}", crc32c::crc32c(&bytes)),
        Err(_) => format!("imbrex {version}"),
    }
}

/// What is known before the first row.
pub(super) fn config(options: &Options) -> Config {
    Config {
        command: options.command.clone(),
        program: program(),
        began: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        scale: options.scale,
        short: options.short,
        repeats: options.repeats,
        machine: machine(),
        ..Config::default()
    }
}

fn gib(bytes: u64) -> String {
    const GIB: f64 = (1u64 << 30) as f64;
    let bytes = bytes as f64;
    if bytes >= 1024.0 * GIB { format!("{:.1} TiB", bytes / GIB / 1024.0) } else { format!("{:.1} GiB", bytes / GIB) }
}

/// Whether the directory takes its bytes from memory.
fn in_memory(dir: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::statfs(dir).is_ok_and(|stat| stat.f_type == TMPFS)
}

/// Memory that it takes, with its drives where they are in memory.
pub(super) fn taken(needs: Needs, options: &Options) -> u64 {
    needs.memory.saturating_add(if in_memory(&options.work) { needs.work } else { 0 })
}

/// Refuses what does not fit, with what it would need.
pub(super) fn check(name: &str, needs: Needs, options: &Options) -> Result<(), String> {
    let scale = options.scale;
    let smaller = "try a smaller scale, as --scale 1/256";
    let dir = &options.work;
    let memory = free_memory();
    if needs.work > 0 {
        let stat = rustix::fs::statvfs(dir)
            .map_err(|e| format!("{}: {e}; name a directory for drives with --work", dir.display()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let free = if in_memory(dir) { free.min(memory) } else { free };
        if free < needs.work {
            return Err(format!(
                "{name} at 1/{scale} takes {} in {}, where {} are free; {smaller}, or name another directory with --work",
                gib(needs.work),
                dir.display(),
                gib(free)
            ));
        }
    }
    let taken = taken(needs, options);
    if taken > memory {
        return Err(format!(
            "{name} at 1/{scale} takes {} of memory, and {} are free; {smaller}",
            gib(taken),
            gib(memory)
        ));
    }
    Ok(())
}
