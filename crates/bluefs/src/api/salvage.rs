//! Salvage: files from a drive whose metadata is gone, without changing a bit of it.
//!
//! There is one way to understand a drive, and that is to mount it; so salvage makes, in memory and over the drive
//! ([`imbrex_drives::overlay`]), what a mount needs and the drive lacks, and mounts that:
//!
//! 1. Zones are [searched](imbrex_zones::shell::salvage) for zone headers, not only at their beginnings: a header may stand before each of several
//!    stretches.
//! 2. Where the drive mounts as it is, that is it: a damaged journal is completed from the zones by the mount itself.
//! 3. Otherwise a label is made of the headers. Its root says that it is not finished. So the mount gives files to what it finds in zones and the journal
//!    does not know.
//! 4. Stretches that no file of that mount has are rebuilt one by one: frames say where in a log they stand, a table's bytes
//!    stand as they are.
//!
//! Of several volumes the one that was written to last counts. What a deleted file left in a zone that was not reset yet may come back.

use crate::api::fs::BlueFs;
use crate::kind::FileKind;
use crate::mount::TENANT;
use crate::options::Options;
use crate::policy::BUDGET;
use imbrex_device::{AlignedBuf, Cause, Drive, Result, Tag, ZoneId, ZonedDevice};
use imbrex_zones::frame::{FRAME_HEADER, FrameId, scan, scan_untold};
use imbrex_zones::log::format::LOG_KIND;
use imbrex_zones::shell::salvage::{FoundTenant, Salvaged, Search, Stretch, nothing_found};
use imbrex_zones::{Volume, ZoneHeader};
use std::collections::BTreeMap;
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Recovery);
/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// How far frames are looked for behind the last one where the drive does not tell how far a zone is written, in bytes.
const REACH: u64 = 4 << 20;

/// The file system, as a search needs to know it. Its log has the names of all files: without that no label helps.
const ENGINE: Salvaged<'_> = Salvaged {
    name: TENANT,
    kind: |kind| FileKind::from_number(kind).is_some(),
    claims: &|_| false,
    budget: BUDGET,
    log: None,
    generation: 0,
};

/// A file that no metadata knows any more.
#[derive(Clone, Debug)]
pub struct LostFile {
    /// Its number.
    pub serial: u64,
    /// Its name when its first zone was taken, without a directory.
    pub name: String,
    /// When that was, in nanoseconds since 1970.
    pub created: u64,
    stretches: Vec<Stretch>,
}

/// What could be understood of a drive. The drive stays as it is.
pub struct Salvage {
    device: Arc<dyn ZonedDevice>,
    fs: Option<BlueFs>,
    lost: Vec<LostFile>,
    gone: Vec<String>,
    notes: Vec<String>,
}

/// Bytes of a lost file: where in the file they stand, and they themselves.
pub type Put<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

impl Salvage {
    /// Searches a drive. `every_block`: not only the beginnings of zones, which takes as long as reading all that is written.
    /// `progress` gets bytes searched, and of how many.
    ///
    /// # Errors
    /// `Unusable` where no zone of it was ever written by Imbrex.
    pub fn search(drive: &Drive, every_block: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvage> {
        let device = drive.device.clone();
        let search = Search::of(device.as_ref(), every_block, progress)?;
        let mut notes = Vec::new();
        let mounted = mount(drive);
        let tenants = search.tenants(&ENGINE);
        // The newest one.
        let ours = |tenant: &&FoundTenant| tenant.name.as_deref() == Some(TENANT);
        let Some(FoundTenant { volume, owner, .. }) = tenants.iter().find(ours) else {
            return match mounted {
                // Formatted, and nothing written yet but what stands in the label and the conventional zones.
                Ok(fs) => Ok(Salvage { device, fs: Some(fs), lost: Vec::new(), gone: Vec::new(), notes }),
                Err(_) => Err(nothing_found(
                    &device.identity().name,
                    &tenants,
                    "a file system",
                    "`imbrex chunk salvage` finds chunks, and `imbrex kv salvage` pairs of keys and values",
                )),
            };
        };
        let of_volume = |s: &&Stretch| s.header.volume == *volume;
        let of_older = search.stretches().iter().filter(|s| !of_volume(s)).count();
        if of_older > 0 {
            notes.push(format!("{of_older} parts belong to older volumes and are left out"));
        }
        let ours = search.stretches().iter().filter(|s| of_volume(s) && s.header.owner == *owner);
        let stretches: Vec<Stretch> = ours.cloned().collect();
        let fs = match mounted {
            Ok(fs) => Some(fs),
            Err(why) => {
                notes
                    .push(format!("the drive does not mount as it is ({why}); its label was made anew from its zones"));
                let rebuilt = remount(drive, &search, *volume);
                if let Err(why) = &rebuilt {
                    notes.push(format!("nor does it then ({why}); files are rebuilt one by one, without directories"));
                }
                rebuilt.ok()
            }
        };
        if let Some(fs) = &fs {
            notes.extend(fs.mount_report().damage.iter().cloned());
        }
        let mut gone = Vec::new();
        let runs = match &fs {
            Some(fs) => zones_of_files(fs, &mut gone)?,
            None => Vec::new(),
        };
        for (path, serial, zone, _) in &runs {
            let mut here = stretches.iter().filter(|s| s.header.zone == *zone).peekable();
            // A look only at the beginnings of zones does not see who else is in one.
            let unknown = !every_block && here.peek().is_some();
            if !unknown && !here.any(|s| s.header.file == *serial) {
                gone.push(format!("{path}: zone {zone} does not hold its bytes any more"));
            }
        }
        let lost = lost_files(&runs, &stretches, notes.is_empty());
        if notes.is_empty() && !lost.is_empty() {
            notes.push(
                "the journal does not know some files that were found; ones deleted lately look like this, too".into(),
            );
        }
        Ok(Salvage { device, fs, lost, gone, notes })
    }

    /// The file system, as far as it is understood; `None`: not at all.
    pub fn fs(&self) -> Option<&BlueFs> {
        self.fs.as_ref()
    }

    /// Files that it does not know.
    pub fn lost_files(&self) -> &[LostFile] {
        &self.lost
    }

    /// A sentence for each part of a file that the drive does not hold any more.
    pub fn gone(&self) -> &[String] {
        &self.gone
    }

    /// Sentences about what was found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Reads what is left of a lost file. Returns a sentence about each part that is not.
    ///
    /// # Errors
    /// Those of `put`; what the drive cannot read is no error.
    pub fn rebuild(&self, file: &LostFile, put: &mut Put<'_>) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut end = 0;
        for stretch in &file.stretches {
            if stretch.header.logical > end {
                let missing = stretch.header.logical - end;
                problems.push(format!("{missing} bytes from {end} on are missing and read as zeros"));
            }
            let reached = match FileKind::from_number(stretch.header.kind) {
                Some(FileKind::Log) => self.frames(stretch, end, put, &mut problems)?,
                _ => self.bare(stretch, put, &mut problems)?,
            };
            end = end.max(reached);
        }
        Ok(problems)
    }

    fn frames(&self, stretch: &Stretch, mut end: u64, put: &mut Put<'_>, problems: &mut Vec<String>) -> Result<u64> {
        let device = self.device.as_ref();
        let block = device.geometry().block;
        let start = device.geometry().start(ZoneId(stretch.header.zone));
        let id = FrameId { file: stretch.header.file, life: stretch.header.life };
        let mut read = |at: u64, buf: &mut [u8]| read_at(device, buf, start + at);
        let found = match stretch.untold {
            true => scan_untold(&mut read, id, stretch.from, stretch.to, block, REACH),
            false => scan(&mut read, id, stretch.from, stretch.to, block),
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                problems.push(why.to_string());
                return Ok(end);
            }
        };
        for frame in found.frames.iter().filter(|frame| frame.len > 0) {
            let mut buf = AlignedBuf::zeroed(frame.footprint(block) as usize);
            if let Err(why) = read_at(device, &mut buf, start + frame.at) {
                problems.push(why.to_string());
                continue;
            }
            if frame.logical > end {
                problems.push(format!("{} bytes from {end} on are missing and read as zeros", frame.logical - end));
            }
            put(frame.logical, buf.get(FRAME_HEADER..FRAME_HEADER + frame.len as usize).unwrap_or_default())?;
            end = end.max(frame.end());
        }
        Ok(end)
    }

    /// Bytes as they stand. Where a table ends nobody knows: the zeros behind its last byte, up to the block's end, are taken
    /// for padding, as they are after every table of RocksDB or LevelDB.
    fn bare(&self, stretch: &Stretch, put: &mut Put<'_>, problems: &mut Vec<String>) -> Result<u64> {
        let device = self.device.as_ref();
        let block = u64::from(device.geometry().block);
        let start = device.geometry().start(ZoneId(stretch.header.zone));
        let (mut at, mut reached) = (stretch.from, stretch.header.logical);
        while at < stretch.to {
            let n = PIECE.min(stretch.to - at);
            let logical = stretch.header.logical + (at - stretch.from);
            let mut buf = AlignedBuf::zeroed(n as usize);
            let mut whole = true;
            if read_at(device, &mut buf, start + at).is_err() {
                for (i, piece) in buf.chunks_mut(block as usize).enumerate() {
                    let here = start + at + i as u64 * block;
                    if let Err(why) = read_at(device, piece, here) {
                        piece.fill(0);
                        whole = false;
                        problems.push(format!("{why}; zeros stand there"));
                    }
                }
            }
            at += n;
            let mut bytes = &buf[..];
            if at == stretch.to && whole {
                let last = bytes.len() - (block as usize).min(bytes.len());
                let keep = bytes[last..].iter().rposition(|byte| *byte != 0).map_or(0, |place| place + 1);
                bytes = &bytes[..last + keep];
            }
            put(logical, bytes)?;
            reached = logical + bytes.len() as u64;
        }
        Ok(reached)
    }
}

fn read_at(device: &dyn ZonedDevice, buf: &mut [u8], at: u64) -> Result<()> {
    imbrex_zones::volume::read_all(device, buf, at, TAG)
}

fn mount(drive: &Drive) -> Result<BlueFs> {
    let options = Options::default();
    let cache_bytes = options.cache_bytes.min(64 << 20);
    BlueFs::mount(drive.clone(), Options { read_only: true, cache_bytes, ..options })
}

/// Mounts the drive under a label that was made of its zone headers.
fn remount(drive: &Drive, search: &Search, volume: [u8; 16]) -> Result<BlueFs> {
    let (label, _) = search.label(drive.device.as_ref(), volume, &ENGINE)?;
    // The survivor's memory is of a mount that nobody knows any more.
    let covered = imbrex_drives::overlay::cover(Drive { device: drive.device.clone(), survivor: None })?;
    Volume::relabel(&covered, label)?;
    mount(&covered)
}

/// Where the files of a mount stand in sequential zones: path, number, zone, bytes from the zone's start. `gone` gets a
/// sentence for each hole in a table or log: such files are written from the beginning to the end, so something stood there.
fn zones_of_files(fs: &BlueFs, gone: &mut Vec<String>) -> Result<Vec<(String, u64, u32, u64)>> {
    let geometry = fs.volume().geometry();
    let (mut found, mut directories) = (Vec::new(), vec!["/".to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs.list(&directory)? {
            let path = format!("{}/{}", directory.trim_end_matches('/'), entry.name);
            if entry.attributes.kind == FileKind::Directory {
                directories.push(path);
                continue;
            }
            let mut end = 0;
            for run in fs.runs(&path)? {
                if entry.attributes.kind.is_sequential() && run.logical > end {
                    gone.push(format!("{path}: its bytes {end} to {} are gone and read as zeros", run.logical));
                }
                end = run.logical.saturating_add(run.len);
                let Some(zone) = run.zone else { continue };
                let at = run.address.saturating_sub(geometry.start(ZoneId(zone)));
                found.push((path.clone(), entry.attributes.serial, zone, at));
            }
            if entry.attributes.kind.is_sequential() && end < entry.attributes.size {
                gone.push(format!("{path}: its bytes from {end} on are gone"));
            }
        }
    }
    Ok(found)
}

/// Stretches that no file of the mount has, by file. Unless the mount is `trusted`, what shares a zone is rebuilt in any case:
/// how far each part goes only the headers tell.
fn lost_files(runs: &[(String, u64, u32, u64)], stretches: &[Stretch], trusted: bool) -> Vec<LostFile> {
    let mut in_zone: BTreeMap<u32, u32> = BTreeMap::new();
    stretches.iter().for_each(|s| *in_zone.entry(s.header.zone).or_default() += 1);
    let mut known: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    runs.iter().for_each(|(_, _, zone, at)| known.entry(*zone).or_default().push(*at));
    let is_known = |s: &Stretch| {
        let alone = in_zone.get(&s.header.zone).is_none_or(|n| *n == 1);
        let places = known.get(&s.header.zone).filter(|_| trusted || alone);
        places.is_some_and(|places| places.iter().any(|at| (s.from..s.to.max(s.from + 1)).contains(at)))
    };
    let mut files: BTreeMap<u64, LostFile> = BTreeMap::new();
    for stretch in stretches.iter().filter(|s| s.header.kind != LOG_KIND && s.to > s.from && !is_known(s)) {
        let ZoneHeader { file, name, created, .. } = &stretch.header;
        let new = || LostFile { serial: *file, name: name.clone(), created: *created, stretches: Vec::new() };
        files.entry(*file).or_insert_with(new).stretches.push(stretch.clone());
    }
    let mut files: Vec<LostFile> = files.into_values().collect();
    for file in &mut files {
        file.stretches.sort_by_key(|s| (s.header.logical, s.header.created));
    }
    files
}
