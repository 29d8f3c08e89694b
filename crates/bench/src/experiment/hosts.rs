//! Where `db_bench` runs: on bluefs over a modelled drive in an image, or on a kernel's file system on such a drive.

use super::chart::Series;
use super::result::Row;
use super::rocks::{Job, On, Pace, Traces, measure, under_way};
use super::sensitivity::{ENTRIES, SHORT_ENTRIES};
use super::{Options, Rule, Run, Stop};
use crate::baseline::{Baseline, Directory, FileSystem, Setup};
use imbrex_bluefs::{BlueFs, FileKind};
use imbrex_emulator::time::Mechanics;
use imbrex_emulator::{Config, Emulator, Kind, Observer, Overrides, Profile, start_image_trace};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Directory of the database on a drive.
const DATABASE: &str = "/bench";

/// A drive for one row.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) profile: Profile,
    pub(super) rule: Rule,
    pub(super) write_cache: bool,
    /// As after a long life, with so many extents in the persistent cache; after a pause there are none. Only for drive-managed ones.
    pub(super) preconditioned: Option<u32>,
}

impl Disk {
    /// A built-in drive.
    pub(super) fn named(name: &str, rule: Rule) -> Result<Disk, String> {
        let profile = Profile::named(name).ok_or_else(|| format!("the profile {name} is gone"))?;
        Ok(Disk { profile, rule, write_cache: true, preconditioned: None })
    }

    /// How it shrinks.
    fn scaled(&self, scale: u32) -> (u32, Mechanics) {
        match self.rule {
            Rule::Whole => (1, Mechanics::Real),
            Rule::All => (scale, Mechanics::Scaled),
            Rule::Fewer => (scale, Mechanics::Real),
        }
    }

    /// What makes the drive at this scale.
    pub(super) fn config(&self, scale: u32) -> Result<Config, String> {
        self.config_of(scale, None, None)
    }

    /// The same of another size in bytes, with so many conventional zones.
    pub(super) fn config_of(
        &self,
        scale: u32,
        capacity: Option<u64>,
        conventional: Option<u32>,
    ) -> Result<Config, String> {
        let (scale, mechanics) = self.scaled(scale);
        let write_cache = Some(self.write_cache);
        let overrides =
            Overrides { capacity, conventional, scale: Some(scale), mechanics, write_cache, ..Overrides::default() };
        let config = Config::new(&self.profile, &overrides);
        config.check().map_err(|e| e.to_string())?;
        Ok(config)
    }

    /// What the settings of what runs on it are divided by.
    pub(super) fn divides(&self, scale: u32) -> u32 {
        if self.rule == Rule::All { scale } else { 1 }
    }

    /// A conventional drive with its mechanics.
    pub(super) fn twin(&self) -> Disk {
        Disk { profile: conventional_twin(&self.profile), ..self.clone() }
    }

    /// A row of it.
    pub(super) fn row(&self) -> Row {
        let cache = if self.write_cache { "" } else { ", write cache off" };
        let aged = match self.preconditioned {
            None => "",
            Some(0) => ", preconditioned",
            Some(_) => ", its cache full",
        };
        Row { rule: self.rule.name().into(), ..Row::new("", format!("{}{cache}{aged}", self.profile.name)) }
    }
}

/// A conventional drive with the mechanics of `profile`: whatever it does better or worse is not the mechanics.
pub(super) fn conventional_twin(profile: &Profile) -> Profile {
    let mut twin = profile.clone();
    twin.name = format!("{}-as-cmr", profile.name);
    twin.description = format!("a conventional drive with the mechanics of {}", profile.name);
    twin.kind = Kind::Cmr;
    twin.conventional_zones = u32::try_from(profile.capacity / profile.zone_size).unwrap_or(u32::MAX);
    (twin.max_open, twin.max_active, twin.zone_capacity) = (None, None, None);
    twin.facts.clear();
    // Conventional zones lie where their addresses are, and nothing of zones takes time.
    twin.parameters.retain(|p| !p.name.starts_with("zone_") && p.name != "conventional_bandwidth_mib_s");
    twin
}

/// A directory for one row, in `work`; what a killed experiment left there goes first.
pub(super) fn workplace(work: &Path) -> Result<TempDir, String> {
    remove_left(work);
    let made = tempfile::Builder::new().prefix(&format!("imbrex-experiment-{}-", std::process::id())).tempdir_in(work);
    made.map_err(|e| format!("{}: {e}; name a directory for drives with --work", work.display()))
}

/// Removes the directories of experiments in `work` whose process is gone. Returns those that went.
pub fn remove_left(work: &Path) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    for entry in std::fs::read_dir(work).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("imbrex-experiment-") else { continue };
        let Some(pid) = rest.split('-').next().and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            // Nobody else's business if it does not go.
            gone.extend(std::fs::remove_dir_all(entry.path()).is_ok().then(|| entry.path()));
        }
    }
    gone
}

/// What a file system at rest holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct AtRest {
    /// Sum of the lengths of all files.
    pub(super) live: u64,
    /// The same of tables alone.
    pub(super) tables: u64,
    /// Sequential zones that are not empty, and what they could hold.
    pub(super) zones: u64,
    pub(super) capacity: u64,
}

fn lengths(fs: &BlueFs, dir: &str, rest: &mut AtRest) -> Result<(), String> {
    for entry in fs.list(dir).map_err(|e| e.to_string())? {
        let path = format!("{}/{}", dir.trim_end_matches('/'), entry.name);
        match entry.attributes.kind {
            FileKind::Directory => lengths(fs, &path, rest)?,
            kind => {
                rest.live += entry.attributes.size;
                rest.tables += if kind == FileKind::Table { entry.attributes.size } else { 0 };
            }
        }
    }
    Ok(())
}

fn text_of(fs: &BlueFs, path: &str) -> Result<String, String> {
    let reader = fs.open_read(path).map_err(|e| e.to_string())?;
    let mut bytes = vec![0; usize::try_from(reader.size()).unwrap_or(0).min(256 << 20)];
    let n = reader.read_at(0, &mut bytes).map_err(|e| e.to_string())?;
    bytes.truncate(n);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A run on bluefs: its row, and what it left.
pub(super) struct Ran {
    pub(super) row: Row,
    pub(super) traces: Traces,
    pub(super) rest: AtRest,
    /// Flushes and compactions under way.
    pub(super) jobs: Vec<Series>,
}

/// Commands that a drive records, where it is asked what assumptions are worth.
fn recorded(options: &Options) -> Option<u32> {
    options.sensitivity.then_some(if options.short { SHORT_ENTRIES } else { ENTRIES })
}

/// Makes the image of a drive in `dir`.
pub(super) fn made(disk: &Disk, options: &Options, dir: &Path) -> Result<PathBuf, String> {
    let image = dir.join("drive.img");
    let config = disk.config(options.scale)?;
    drop(Emulator::create(&image, &config, false).map_err(|e| e.to_string())?);
    if let Some(entries) = recorded(options) {
        start_image_trace(&image, entries).map_err(|e| e.to_string())?;
    }
    Ok(image)
}

/// Makes a drive, runs the job on bluefs on it with these switches (as `wal=first&cache=32M`), and looks at what it left.
pub(super) fn on_bluefs(run: &Run, disk: &Disk, switches: &str, job: &Job) -> Result<Ran, Stop> {
    on_bluefs_and(run, disk, switches, job, |_| Ok(()))
}

/// The same, with something done to the drive between the program's end and the look, without its clock.
pub(super) fn on_bluefs_and(
    run: &Run,
    disk: &Disk,
    switches: &str,
    job: &Job,
    then: impl FnOnce(&str) -> Result<(), Stop>,
) -> Result<Ran, Stop> {
    let options = run.options;
    let preload = preload(&options.build, &["librocksdb_imbrex.so"])?;
    let dir = workplace(&options.work)?;
    let image = made(disk, options, dir.path())?;
    // The survivor takes memory, too, and goes with the directory.
    let pace = if job.account { Pace::Account } else { Pace::Real(run.speed(disk.rule)) };
    let uri = format!("imbrex://{}?format=on&{}&{switches}", image.display(), pace.options());
    let mut command = Command::new("db_bench");
    command.arg(format!("--fs_uri={uri}")).arg(format!("--db={DATABASE}"));
    command.env("LD_PRELOAD", &preload).env("IMBREX_SHM_DIR", dir.path());
    let mut row = disk.row();
    row.settings.insert("bluefs".into(), switches.into());
    let (mut row, traces) = measure(run, job, On { command, image: &image, pace, disk }, dir.path(), row)?;
    then(&format!("imbrex://{}?survivor=off&{switches}", image.display()))?;
    let fs = at_rest(&image)?;
    let (rest, log) = (rest(&image, &fs)?, text_of(&fs, &format!("{DATABASE}/LOG"))?);
    if rest.capacity > 0 {
        row.space_efficiency = Some(rest.live as f64 / rest.capacity as f64);
    }
    Ok(Ran { row, traces, rest, jobs: under_way(&log, pace.speed()) })
}

/// Name or file of the profile, as programs take it; what is not built in is written into `dir`.
pub(super) fn profile_of(profile: &Profile, dir: &Path) -> Result<String, String> {
    if Profile::named(&profile.name).as_ref() == Some(profile) {
        return Ok(profile.name.clone());
    }
    let path = dir.join(format!("{}.toml", profile.name));
    let text = toml::to_string(profile).map_err(|e| format!("{}: {e}", profile.name))?;
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// A kernel's file system on the drive, which is served to it, with a page cache of `cache_bytes` at full size, of which the
/// kernel's usual fifth may wait to be written.
pub(super) fn on_kernel(
    run: &Run,
    disk: &Disk,
    file_system: FileSystem,
    directory: Directory,
    cache_bytes: u64,
    dir: &Path,
) -> Result<Baseline, Stop> {
    let setup = kernel_setup(run, disk, file_system, directory, cache_bytes, dir)?;
    Baseline::start(&setup).map_err(|why| Stop::Failed(why.to_string()))
}

/// What [`on_kernel`] starts.
pub(super) fn kernel_setup(
    run: &Run,
    disk: &Disk,
    file_system: FileSystem,
    directory: Directory,
    cache_bytes: u64,
    dir: &Path,
) -> Result<Setup, Stop> {
    let options = run.options;
    let imbrex = std::env::current_exe().map_err(|e| format!("this program cannot be found ({e})"))?;
    let (scale, mechanics) = disk.scaled(options.scale);
    let setup = Setup {
        work: options.work.clone(),
        file_system,
        directory,
        speed: run.speed(disk.rule),
        write_cache: disk.write_cache,
        preconditioned: disk.preconditioned,
        cache_bytes,
        dirty_bytes: cache_bytes / 5,
        recorded: recorded(options),
        ..Setup::new(imbrex, &profile_of(&disk.profile, dir)?)
    };
    Ok(setup.scaled(scale, mechanics))
}

/// Runs the job on a kernel's file system on the drive.
pub(super) fn on_file_system(
    run: &Run,
    disk: &Disk,
    file_system: FileSystem,
    directory: Directory,
    job: &Job,
) -> Result<Ran, Stop> {
    let dir = workplace(&run.options.work)?;
    let baseline = on_kernel(run, disk, file_system, directory, 2 << 30, dir.path())?;
    let mut command = baseline.command("db_bench");
    command.arg(format!("--db={}", baseline.dir().display()));
    let pace = Pace::Real(run.speed(disk.rule));
    let on = On { command, image: baseline.image(), pace, disk };
    let measured = measure(run, job, on, dir.path(), disk.row());
    let log = std::fs::read_to_string(baseline.dir().join("LOG")).unwrap_or_default();
    // Whatever came of it: all is taken down here, or when it is dropped.
    let (mut row, traces) = measured?;
    let report = baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    // With what was in the page cache at the end.
    row.bytes_drive = Some(report.stats.total.bytes_written);
    row.flushes = Some(report.stats.total.flushes);
    row.figures.insert("CPU s of the simulation".into(), report.server_cpu);
    match report.page_cache {
        Ok(cache) => _ = row.settings.insert("page cache".into(), format!("{cache:?}")),
        Err(why) => row.flags.push(format!("the page cache was not limited: {why}")),
    }
    Ok(Ran { row: row.amplified(), traces, rest: AtRest::default(), jobs: under_way(&log, pace.speed()) })
}

/// The file system on a drive that nobody uses.
pub(super) fn at_rest(image: &Path) -> Result<BlueFs, String> {
    BlueFs::open_uri(&format!("imbrex://{}?read-only=on&survivor=off", image.display())).map_err(|e| e.to_string())
}

/// What it holds.
pub(super) fn rest(image: &Path, fs: &BlueFs) -> Result<AtRest, String> {
    let observer = Observer::open(image).map_err(|e| e.to_string())?;
    let mut rest = AtRest::default();
    for zone in observer.zones() {
        if zone.wp.is_some_and(|wp| wp > 0) {
            rest.zones += 1;
            rest.capacity += zone.capacity;
        }
    }
    lengths(fs, "/", &mut rest)?;
    Ok(rest)
}

/// For `LD_PRELOAD`: these libraries that `make build` made, behind the one that stands in for `libimbrex.so` and understands
/// what an [ablation](crate::ablation) is told by. It is found by the same name, so theirs is not loaded.
pub(super) fn preload(build: &Path, names: &[&str]) -> Result<String, String> {
    let found = |name: &&str| {
        let path = build.join(name);
        let why = |e| format!("{}: {e}; run `make build`, or name its directory with --build", path.display());
        Ok(path.canonicalize().map_err(why)?.display().to_string())
    };
    let paths: Result<Vec<String>, String> =
        [&["ablation/libimbrex_ablation.so"], names].concat().iter().map(found).collect();
    Ok(paths?.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_has_the_same_mechanics_and_no_zones() {
        let hgst = Profile::named("hgst-hsh721414al").unwrap();
        let twin = conventional_twin(&hgst);
        let (ours, theirs) = (hgst.time().unwrap().unwrap(), twin.time().unwrap().unwrap());
        assert_eq!(
            (ours.bandwidth_outer_mib_s, ours.seek_root_ms),
            (theirs.bandwidth_outer_mib_s, theirs.seek_root_ms)
        );
        assert_eq!((theirs.zone_open_ms, theirs.conventional_bandwidth_mib_s), (0.0, 0.0));
        let disk = Disk { profile: twin, rule: Rule::All, write_cache: true, preconditioned: None };
        let config = disk.config(64).unwrap();
        assert_eq!(config.conventional, config.zones());
        assert_eq!(config.capacity / (hgst.capacity / 64), 1);
    }

    #[test]
    fn a_profile_that_is_not_built_in_can_be_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let twin = conventional_twin(&Profile::named("hgst-hsh721414al").unwrap());
        let name = profile_of(&twin, dir.path()).unwrap();
        assert_eq!(Profile::parse(&std::fs::read_to_string(name).unwrap()).unwrap(), twin);
        let built_in = Profile::named("hitachi-hua72303").unwrap();
        assert_eq!(profile_of(&built_in, dir.path()).unwrap(), built_in.name);
    }

    #[test]
    fn a_killed_experiments_directory_goes_and_a_living_ones_stays() {
        let work = tempfile::tempdir().unwrap();
        // No process has the largest number.
        let dead = work.path().join("imbrex-experiment-4194304-x");
        let mine = work.path().join(format!("imbrex-experiment-{}-x", std::process::id()));
        let other = work.path().join("imbrex-experiment-notes");
        [&dead, &mine, &other].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        assert_eq!(remove_left(work.path()), std::slice::from_ref(&dead));
        std::fs::create_dir(&dead).unwrap();
        drop(workplace(work.path()).unwrap());
        assert!(!dead.exists() && mine.exists() && other.exists());
    }
}
