//! Runs shell commands on a baseline, one after the other, and says after each what reached the drive:
//!
//! ```text
//! baseline IMBREX PROFILE SCALE scaled|real xfs|ext4 root|own SPEED CACHE_BYTES COMMAND…
//! ```
//!
//! `$DIR` is the database's directory. The command `remount` empties the page cache.

use imbrex_bench::baseline::{Baseline, Directory, FileSystem, Setup};
use imbrex_emulator::time::Mechanics;
use std::time::Instant;

fn run() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [imbrex, profile, scale, mechanics, file_system, directory, speed, cache, commands @ ..] = args.as_slice()
    else {
        return Err("baseline IMBREX PROFILE SCALE scaled|real xfs|ext4 root|own SPEED CACHE_BYTES COMMAND…".into());
    };
    let number = |text: &String| text.parse::<f64>().map_err(|error| format!("{text}: {error}"));
    let cache_bytes = number(cache)? as u64;
    let speed = number(speed)?;
    let setup = Setup {
        scale: number(scale)? as u32,
        mechanics: Mechanics::parse(mechanics)?,
        file_system: if file_system == "ext4" { FileSystem::Ext4 } else { FileSystem::Xfs },
        directory: if directory == "root" { Directory::Root } else { Directory::Own },
        speed,
        cache_bytes,
        dirty_bytes: cache_bytes / 5,
        ..Setup::new(imbrex, profile)
    };
    let began = Instant::now();
    let baseline = Baseline::start(&setup).map_err(|why| why.to_string())?;
    println!("set up in {:.1} s", began.elapsed().as_secs_f64());
    for text in commands {
        if text == "remount" {
            baseline.remount()?;
            continue;
        }
        baseline.begin()?;
        let (began, cpu) = (Instant::now(), baseline.server_cpu());
        let mut command = baseline.command("sh");
        let status =
            command.args(["-c", text]).env("DIR", baseline.dir()).status().map_err(|error| error.to_string())?;
        let wall = began.elapsed().as_secs_f64();
        let (stats, time) = (baseline.drive_stats()?, baseline.drive_time()?);
        let busy = time.map_or(0.0, |time| time.total.busy());
        let (written, read) = (stats.bytes_written as f64 / GIB, stats.bytes_read as f64 / GIB);
        let cpu = baseline.server_cpu() - cpu;
        println!(
            "{status}: {wall:.1} s, drive busy {:.0} %, {} writes of {written:.2} GiB, {} reads of {read:.2} GiB, {} flushes, \
             server {cpu:.1} CPU-s ({:.2} a GiB), page cache {:?}",
            100.0 * busy / (wall * speed),
            stats.writes,
            stats.reads,
            stats.flushes,
            cpu / (written + read),
            baseline.page_cache()
        );
    }
    baseline.finish().map(drop)
}

const GIB: f64 = (1u64 << 30) as f64;

fn main() {
    if let Err(sentence) = run() {
        eprintln!("baseline: {sentence}");
        std::process::exit(1);
    }
}
