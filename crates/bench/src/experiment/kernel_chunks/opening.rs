//! Opening a chunk server on ext4 after a crash, for `chunk-recovery`: SMRSTORE's Figure 21 has one.
//!
//! The paper says that it loads a checkpoint and scans data, and not what is in them. Taken here: the file system replays its journal; the server asks for the
//! names and lengths of all chunks, as one does that has no checkpoint of its own; and of each chunk that was open it reads what came since it was last
//! known to be whole, and verifies each segment, up to the first that is none of the chunk's. The bytes are those of the store's case.

use super::super::chunk_write::Span;
use super::super::hosts::workplace;
use super::super::result::{Figure, Row};
use super::super::{Rule, Run, Stop};
use super::scattered::one_of_clusters;
use super::{Kernel, Ran, drive_name, ext4};
use crate::baseline::{Baseline, Setup};
use crate::segments::{self, Args, What, make, paths, scan};
use imbrex_emulator::Profile;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// An append, as in the store's case, and what a scan reads at once.
const RECORD: u64 = 512 << 10;
const PIECE: u64 = MIB;

/// How much there is of it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Case {
    /// Sealed chunks, and bytes that each chunk takes.
    pub(in super::super) chunks: u64,
    pub(in super::super) chunk: u64,
    /// Open ones: five times so many.
    pub(in super::super) open: u64,
    /// Bytes of all open ones that have to be read.
    pub(in super::super) bytes: u64,
}

const JOBS: u64 = 5;

impl Case {
    fn args(&self, dir: &Path, what: What) -> Args {
        Args {
            what,
            dir: dir.into(),
            jobs: JOBS,
            first: 1,
            files: self.open,
            depth: 3,
            size: RECORD,
            count: self.bytes / RECORD,
            at: 0,
            sync: true,
            settle: false,
        }
    }

    /// Makes all files: open chunks evenly among the others, so that they lie evenly over what is taken.
    fn make(&self, dir: &Path) -> Result<Vec<PathBuf>, Stop> {
        let taken = Args { at: self.chunk, ..self.args(dir, What::Make) };
        let open: Vec<PathBuf> = paths(&taken).collect();
        let sealed: Vec<PathBuf> = paths(&Args { first: 0, jobs: 1, files: self.chunks, ..taken.clone() }).collect();
        let between = sealed.chunks(sealed.len().div_ceil(open.len()).max(1));
        let all = between.zip(&open).flat_map(|(before, open)| before.iter().chain([open])).cloned();
        make(&taken, all)?;
        Ok(open)
    }

    /// The names and lengths of all chunks.
    fn names(&self, dir: &Path) -> Result<(), Stop> {
        let failed = |error: std::io::Error| Stop::Failed(format!("{}: {error}", dir.display()));
        let mut whole = 0;
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            whole += u64::from(entry.and_then(|entry| entry.metadata()).map_err(failed)?.len() == self.chunk);
        }
        let all = self.chunks + JOBS * self.open;
        if whole == all {
            Ok(())
        } else {
            Err(Stop::Failed(format!("{whole} of {all} chunks are there after the crash")))
        }
    }

    fn scan(&self, open: &[PathBuf]) -> Result<(), Stop> {
        let mut found = 0;
        for (n, path) in open.iter().enumerate() {
            // The first job's number is 1, and segments know their chunk by its number in all.
            found += scan(path, self.open + n as u64, PIECE)?;
        }
        let appended = self.bytes / RECORD * RECORD;
        if found == appended {
            return Ok(());
        }
        Err(Stop::Failed(format!(
            "{found} of {appended} bytes that were synced are there after the crash; look into that first"
        )))
    }
}

/// Seconds that the drive was busy so far.
fn busy(baseline: &Baseline) -> Result<Ran, Stop> {
    Ok(Ran::of(&baseline.drive_time()?.ok_or("the drive kept no time; run it again")?))
}

/// The row.
pub(in super::super) fn opening(run: &Run, profile: &Profile, case: Case) -> Result<Row, Stop> {
    let dir = workplace(&run.options.work)?;
    let part = if run.options.short { (0, 4 << 30) } else { ext4::whole(profile, Span::Whole) };
    let setup = ext4::setup(run, profile, false, dir.path())?;
    let mkfs_more = one_of_clusters(case.chunks * 3 / 2 + ext4::INODES);
    let baseline = ext4::started(&Setup { part: Some(part), mkfs_more, ..setup })?;
    run.says("ext4: makes the chunks");
    let chunks = baseline.dir();
    let open = case.make(&chunks)?;
    // What made them shall not be in the journal any more, which the mount would replay and thereby have in memory.
    baseline.remount()?;
    segments::run(&case.args(&chunks, What::Append))?;
    baseline.crash()?;
    let began = Instant::now();
    baseline.mount()?;
    let mounted = busy(&baseline)?;
    case.names(&chunks)?;
    let named = busy(&baseline)?;
    case.scan(&open)?;
    let seconds = run.speed(Rule::Fewer) * began.elapsed().as_secs_f64();
    let all = busy(&baseline)?;
    let read = baseline.drive_stats()?.total.bytes_read;
    baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    let mut row = Ran { seconds, read, ..all.clone() }.row(&drive_name(Kernel::Ext4, profile), false);
    row.figures.clear();
    let figures = [
        ("s, mount: journal", mounted.busy),
        ("s, names and lengths of all chunks", named.busy - mounted.busy),
        ("s, scan", all.busy - named.busy),
        ("s, by the drive's clock, the host's time in it", seconds),
        ("chunks", (case.chunks + JOBS * case.open) as f64),
        ("MiB scanned", (case.bytes / MIB) as f64),
    ];
    row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    row.settings.insert("clock".into(), format!("with the world's, {} times as fast", run.speed(Rule::Fewer)));
    row.paper = Some(Figure::new(19.6, "s: 3.27 for a checkpoint, 16.3 for the scan", "SMRSTORE, section 6.4, 16 TB"));
    Ok(row)
}
