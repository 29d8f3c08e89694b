//! Mounting: from what is on the drive, and what a dead process left in memory, back to a consistent file system.
//!
//! Nothing of this changes anything until the new state is complete: records are replayed and ends of files are looked for
//! first; then, unless the last mount ended cleanly, a snapshot is written to the journal. A mount
//! that is killed half-way is simply repeated: what it appended is found as if it had been there before.

pub(crate) mod rescue;

mod ends;

pub(crate) use ends::{covered, log_end};

use crate::file::File;
use crate::file::core::{Core, Parts};
use crate::journal::{Journal, records_of, step_of};
use crate::kind::purpose;
use crate::meta::inline::INLINE_PAGE;
use crate::meta::{Meta, Record, RepairOutcome, Serial};
use crate::mount::rescue::{Scene, Stretches, rescue};
use crate::options::{Clock, Options};
use crate::policy::share::{Class, Parking, worth_parking};
use crate::sync::lock;
use imbrex_device::{Cause, Code, Error, Fault, Priority, Result, Tag, Zone, ZoneId, ZoneState};
use imbrex_drives::counted::Counters;
use imbrex_zones::conventional::{ConventionalSpace, UNIT};
use imbrex_zones::log::{KEPT, MetaLog};
use imbrex_zones::shell::Maintenance;
use imbrex_zones::{Exec, LeftSegment, OpenZone, RESTORED, Tenant, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The tenant's name in the label.
pub const TENANT: &str = "bluefs";

pub(crate) const TAG: Tag = Tag::new(Cause::Recovery);

/// What a mount found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// The last mount ended cleanly.
    pub clean: bool,
    /// The drive may have lost power since.
    pub power_lost: bool,
    /// Records of the journal.
    pub records: u64,
    /// Bytes of files that a dead process had not written yet and that were written now.
    pub replayed_bytes: u64,
    /// Damage that was found, a sentence each.
    pub damage: Vec<String>,
    /// A copy of the label that was not whole and is now: after a power loss that is no damage.
    pub label: Option<String>,
    /// What is worth knowing and cost nothing yet, a sentence each: zones of the label that have died; memory of another state of the drive.
    pub notes: Vec<String>,
}

struct Found {
    /// With the frames of its snapshot, and of the records behind it. `None`: a file system that was never mounted.
    log: Option<(MetaLog, u64, u64)>,
    meta: Meta,
    report: MountReport,
    /// Whether records are lost, not only a torn tail.
    damaged: bool,
    dirty: bool,
    /// Zones that the records on the drive refer to, and those that a dead process had left in memory. Until a new journal
    /// is durable, another mount may read the same records, so none of these may be written by anybody else.
    recorded: BTreeSet<u32>,
    /// Memory goes on where the journal has not come yet: the drive was put back to an earlier state, and nothing of memory counts.
    restored: bool,
    /// Where the bytes begin and end that a dead process had left in memory, by file; `None`: there is no such memory.
    left_of: Option<BTreeMap<Serial, Range<u64>>>,
    /// After damage: where in the zones files begin. Else metadata knows.
    stretches: Stretches,
    /// Records that make the metadata of what the journal and a dead process's memory say: ends that were fixed.
    unwritten: Vec<Record>,
}

/// Replays an item of the log. True: not all of it makes sense.
fn replay(meta: &mut Meta, item: &[u8], report: &mut MountReport) -> bool {
    let mut odd = false;
    let bad = records_of(item, |record| {
        report.records += 1;
        match meta.apply_repairing(&record) {
            RepairOutcome::Applied(_) => {}
            RepairOutcome::Repaired { what, .. } => {
                odd = true;
                report.damage.push(what);
            }
            RepairOutcome::Skipped(why) => {
                odd = true;
                report.damage.push(format!("a record of the journal makes no sense ({why})"));
            }
        }
    });
    if bad > 0 {
        report.damage.push(format!("records of the journal that cannot be read: {bad}"));
    }
    odd || bad > 0
}

/// Reads, once more where that failed: what a mount takes for unreadable it cuts off for good.
pub(crate) fn read_twice(volume: &Volume, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
    volume.read(buf, at, tag).or_else(|_| volume.read(buf, at, tag))
}

/// Reads all metadata; changes nothing.
fn read_metadata(tenant: &Tenant, clock: Clock) -> Result<Found> {
    let volume = tenant.volume();
    let mut found = Found {
        log: None,
        meta: Meta::new(),
        report: MountReport::default(),
        damaged: false,
        dirty: true,
        recorded: BTreeSet::new(),
        restored: false,
        left_of: None,
        stretches: Stretches::default(),
        unwritten: Vec::new(),
    };
    let Some((mut log, mut contents)) = MetaLog::open(tenant, clock, None, &mut |_, _| {})? else { return Ok(found) };
    found.restored = log.take_left(&mut contents);
    let Found { meta, report, recorded, .. } = &mut found;
    let mut odd = contents.snapshot.is_none() || contents.partial;
    for piece in &contents.pieces {
        if odd {
            meta.note_gap();
        }
        odd |= replay(meta, piece, report);
    }
    let since = contents.records_and_gaps(&mut |record| {
        let Some((number, record)) = record else {
            meta.note_gap();
            return;
        };
        if odd {
            meta.note_gap();
        }
        if contents.memory == Some(number) && recorded.is_empty() {
            *recorded = meta.zones().map(|(zone, _)| zone).collect();
        }
        odd |= replay(meta, record, report);
    });
    recorded.extend(meta.zones().map(|(zone, _)| zone));
    report.power_lost = log.root().engine != volume.power_epoch() || tenant.lost_power_before();
    let mut damage = contents.skipped;
    if contents.snapshot.is_none() {
        damage.push("The journal has no snapshot any more.".into());
    }
    if !since.whole {
        damage.push("Records of the journal are missing.".into());
    }
    // Only a power loss tears the journal's end. Without one, its last records were destroyed, unless memory still held them.
    let torn = contents.torn && !report.power_lost && !log.has_unwritten();
    let damaged = odd || torn || !damage.is_empty();
    // Of a journal that was found without the label's help, zones may be missing: then the zones are searched as after damage.
    let damaged = damaged || log.root().unfinished;
    let dirty = damaged || contents.torn || log.has_unwritten();
    if contents.torn {
        damage.push("The journal is torn at its end.".into());
    }
    if damaged {
        report.damage.extend(damage);
        log.forget_unread();
    }
    let (snapshot, records) = (contents.pieces.len() as u64 + 2, since.frames);
    (found.log, found.damaged, found.dirty) = (Some((log, snapshot, records)), damaged, dirty);
    Ok(found)
}

/// Where the bytes begin and end that a dead process had left in memory, by file.
fn ranges_left(left: &[LeftSegment]) -> BTreeMap<Serial, Range<u64>> {
    let mut ranges = BTreeMap::new();
    for segment in left {
        let (from, to) = (segment.key.logical, segment.key.logical.saturating_add(segment.bytes.len() as u64));
        let range: &mut Range<u64> = ranges.entry(segment.key.file).or_insert(from..to);
        *range = from.min(range.start)..to.max(range.end);
    }
    ranges
}

/// Mounts.
pub(crate) fn mount(
    tenant: Tenant,
    options: Options,
    counters: Arc<Counters>,
    maintenance: Arc<Maintenance>,
) -> Result<(Arc<Core>, MountReport)> {
    let volume = tenant.volume().clone();
    let keeps_unwritten = volume.has_survivor();
    let zones = volume.report_at_open().to_vec();
    let mut left = tenant.left_behind();
    let died = !left.is_empty();
    left.retain(|segment| segment.key.file != KEPT);
    let began = std::time::Instant::now();
    let step = |what: &str| tracing::debug!(seconds = began.elapsed().as_secs_f64(), "mount: {what}");
    let mut found = read_metadata(&tenant, options.clock.clone())?;
    step(&format!("records of the journal read: {}; segments in memory: {}", found.report.records, left.len()));
    if found.restored {
        tracing::warn!(drive = %volume.name(), "{RESTORED}");
        left.clear();
    }
    found.left_of = (keeps_unwritten || died).then(|| ranges_left(&left));

    tenant.begin()?;
    if let Some((log, ..)) = &found.log {
        log.adopt()?;
    }
    if found.damaged {
        found.report.damage.extend(found.meta.finish_replay());
        found.stretches = Stretches::find(&tenant, &zones);
        let (volume, damage, stretches) = (&volume, &mut found.report.damage, &found.stretches);
        rescue(&Scene { volume, zones: &zones, left: &left, stretches }, &mut found.meta, damage)?;
    }
    found.report.label = volume.label_repaired().map(str::to_owned);
    found.report.notes = volume.dead_labels()?;
    let restored = volume.restored().or_else(|| found.restored.then_some(RESTORED));
    found.report.notes.extend(restored.map(str::to_owned));
    let at_once = if options.volume.exec == Exec::Inline { 1 } else { ends::AT_ONCE };
    let fixed = ends::fix_ends(&tenant, &zones, &mut found, at_once)?;
    step(if fixed { "ends of logs found, some are new" } else { "ends of logs found" });
    for (zone, _) in found.meta.zones() {
        tenant.adopt(ZoneId(zone))?;
    }
    let conventional = adopt_conventional(&tenant, &mut found)?;
    // A zone is free only once the record that freed it is durable: those on the drive are with this flush, those that
    // were only in memory, and ends that were fixed, with the new journal.
    volume.sync(TAG)?;
    step("flushed");
    let mut held = Vec::new();
    for &zone in &found.recorded {
        if found.meta.zone_life(zone).is_none() && tenant.adopt(ZoneId(zone)).is_ok() {
            held.push(ZoneId(zone));
        }
    }
    tenant.adoption_done();

    let unclean = found.dirty || found.damaged || fixed || found.report.power_lost;
    found.report.clean = !unclean && !died;
    found.meta.forget_replay();
    let journal = journal_of(&tenant, &options.clock, &mut found, unclean, &zones)?;
    held.into_iter().for_each(|zone| tenant.release(zone));
    let least = |capacity: u64| if tenant.limits_active() { 1 } else { worth_parking(capacity) };
    let mut parking = Parking::new(volume.least_capacity());
    park(&mut parking, &zones, &found.meta, u64::from(volume.geometry().block.max(4096)), least);
    let meta = found.meta;
    let parts = Parts { volume, tenant, options, counters, maintenance, meta, journal, conventional, parking };
    let core = Core::new(parts);
    tell_lost(&core, &left, &mut found.report);
    let mut homeless = BTreeSet::new();
    found.report.replayed_bytes = replay_left(&core, &left, &mut homeless)?;
    core.sync_journal()?;
    // What finds no zone goes from one memory to the other: it stays in the first until it stands in the second, if that has room
    // for both.
    let of_homeless = |segment: &&LeftSegment| homeless.contains(&segment.key.file);
    let twice = 4 * left.iter().filter(of_homeless).map(|segment| segment.bytes.len()).sum::<usize>();
    let room = twice <= core.options.volume.survivor_bytes;
    core.tenant.recovered_but(&|key| room && homeless.contains(&key.file))?;
    keep_in_memory(&core, &left, &homeless, &mut found.report)?;
    if room && !homeless.is_empty() {
        core.tenant.recovered()?;
    }
    core.recovering.store(false, Ordering::Release);
    step(&format!("done; bytes of memory that went to files: {}", found.report.replayed_bytes));
    for what in &found.report.damage {
        tracing::warn!(drive = %core.volume.name(), "{what}");
    }
    Ok((core, found.report))
}

/// The journal after recovery: written anew where that was not clean, with the metadata that was found.
fn journal_of(tenant: &Tenant, clock: &Clock, found: &mut Found, unclean: bool, zones: &[Zone]) -> Result<Journal> {
    let reset = |zone: u32| zones.get(zone as usize).is_none_or(|z| z.state == ZoneState::Empty);
    if unclean {
        found.meta.retain_forgotten(|zone| !reset(zone));
    }
    let Some((log, snapshot, records)) = found.log.take() else {
        return Journal::create(tenant, clock.clone(), &found.meta);
    };
    let journal = Journal::of(tenant, log, snapshot, records);
    if !unclean {
        return Ok(journal);
    }
    // Where no zone is free for a snapshot, each would use up room and free none: then the journal goes on where it is.
    let full = || Error::new(&tenant.volume().name(), Fault::NoSpace);
    let anew = found.damaged || journal.can_begin_anew(&found.meta);
    match if anew { journal.compact(&found.meta) } else { Err(full()) } {
        Err(Error { fault: Fault::NoSpace, .. }) if !found.damaged => {
            // What a dead process left first: memory of two mounts makes no run.
            journal.write(Priority::Normal)?;
            if !found.unwritten.is_empty() {
                let step = step_of(&found.unwritten);
                let room = journal.admit(step.len() as u64, true).ok_or_else(full)?;
                journal.append(room, step)?;
                journal.write(Priority::Normal)?;
            }
            tenant.volume().sync(Tag::new(Cause::Journal))?;
            journal.begins();
        }
        other => other?,
    }
    journal.note_epoch()?;
    Ok(journal)
}

/// Bytes of inline space, on a drive without conventional zones: of the journal's first zone, a quarter at most.
fn inline_bytes(zones: &[Zone]) -> u64 {
    let capacity = zones.iter().map(|z| z.capacity).max().unwrap_or(0);
    (capacity / 4).min(8 << 20) / INLINE_PAGE * INLINE_PAGE
}

/// Parks the zones that have room behind their files' bytes, `least` of it by their capacity.
fn park(parking: &mut Parking, zones: &[Zone], meta: &Meta, front: u64, least: impl Fn(u64) -> u64) {
    for (zone, life) in meta.zones() {
        let Some(state) = zones.get(zone as usize) else { continue };
        let Some(wp) = state.wp.filter(|wp| state.state.writable() && *wp >= front) else { continue };
        let Some(last) = meta.pieces(zone).next_back().and_then(|piece| meta.inode(piece.serial)) else { continue };
        if state.capacity.saturating_sub(wp) >= least(state.capacity) {
            let name = meta.name_of(last.serial).map_or("", |(_, name)| name.as_str());
            let open = OpenZone { zone: ZoneId(zone), life, at: wp, capacity: state.capacity };
            parking.park(open, Class::of(last.kind, purpose(name), 0));
        }
    }
}

fn adopt_conventional(tenant: &Tenant, found: &mut Found) -> Result<ConventionalSpace> {
    let mut ranges = tenant.conventional_ranges();
    if ranges.is_empty() {
        ranges.push((0, inline_bytes(tenant.volume().report_at_open())));
    }
    let mut space = ConventionalSpace::new(&ranges);
    tenant.dead_conventional().into_iter().for_each(|(addr, len)| space.retire(addr, len));
    let mut misfits = Vec::new();
    for (addr, len, serial) in found.meta.conventional() {
        if let Err(why) = space.adopt(addr, len.next_multiple_of(UNIT)) {
            let what = format!("{}: {why}", found.meta.path_of(serial));
            if !found.damaged {
                let what = format!("{what}; run `imbrex fs check`");
                return Err(Error::refused(Code::Corruption, &tenant.volume().name(), what));
            }
            misfits.push((addr, len, serial, what));
        }
    }
    // What is left of an extent when a later record gave a part of it to another file, because the record of a deletion is lost.
    for (addr, len, serial, what) in misfits {
        let _ = found.meta.take_conventional(serial, addr, len);
        found.report.damage.push(format!("{what}: those bytes of it are lost"));
    }
    Ok(space)
}

/// What a dead process had appended and not written, by file.
fn by_file(left: &[LeftSegment]) -> BTreeMap<Serial, Vec<&LeftSegment>> {
    let mut files: BTreeMap<Serial, Vec<&LeftSegment>> = BTreeMap::new();
    for segment in left {
        files.entry(segment.key.file).or_default().push(segment);
    }
    files
}

/// Says of which files memory has lost bytes that were acknowledged: each ends before them.
fn tell_lost(core: &Core, left: &[LeftSegment], report: &mut MountReport) {
    for segment in left.iter().filter(|s| s.lost > 0) {
        let state = lock(&core.meta);
        // What is on the drive already needs no memory.
        let end = segment.key.logical.saturating_add(segment.lost as u64);
        let Some(inode) = state.meta.inode(segment.key.file).filter(|i| i.known_size() < end) else { continue };
        let (at, path) = (segment.key.logical, state.meta.path_of(inode.serial));
        let what = "that a dead process had appended and left in memory are not what they were, and are dropped";
        report.damage.push(format!("{path}: {} bytes at {at} {what}", segment.lost));
    }
}

/// Appends what a dead process had appended and not written. Returns the bytes; `homeless` gets the files that no zone could
/// be found for.
fn replay_left(core: &Arc<Core>, left: &[LeftSegment], homeless: &mut BTreeSet<Serial>) -> Result<u64> {
    let mut replayed = 0;
    for (serial, segments) in by_file(left) {
        let Some(file) = file_of(core, serial)? else { continue };
        let Some((bytes, result)) = append_left(core, &file, &segments)? else { continue };
        replayed += bytes;
        match result.and_then(|()| file.close_writer()) {
            Err(error) if error.code() == Code::NoSpace => {
                let mut writing = lock(&file.writing);
                file.give_up_unwritten(&mut writing)?;
                homeless.insert(serial);
            }
            other => other?,
        }
    }
    core.unwritten.forget();
    Ok(replayed)
}

/// What found no zone goes back to memory that survives the process, and is written when files have been deleted. What even
/// memory cannot take is lost, and told.
fn keep_in_memory(
    core: &Arc<Core>,
    left: &[LeftSegment],
    files: &BTreeSet<Serial>,
    report: &mut MountReport,
) -> Result<()> {
    for (serial, segments) in by_file(left).into_iter().filter(|(serial, _)| files.contains(serial)) {
        let Some(file) = file_of(core, serial)? else { continue };
        let Some((bytes, result)) = append_left(core, &file, &segments)? else { continue };
        let path = lock(&core.meta).meta.path_of(serial);
        let what = "that a dead process had appended find no room; delete other files, then they are written";
        tracing::warn!("{bytes} bytes of {path} {what}");
        if let Err(error) = result {
            report.damage.push(format!("the last bytes of {path} are lost: {error}"));
        }
        let mut writing = lock(&file.writing);
        writing.writers = writing.writers.saturating_sub(1);
        drop(writing);
        core.unwritten.keep(file);
    }
    Ok(())
}

fn file_of(core: &Arc<Core>, serial: Serial) -> Result<Option<Arc<File>>> {
    let mut state = lock(&core.meta);
    if !state.meta.inode(serial).is_some_and(|i| i.kind.is_sequential()) {
        return Ok(None);
    }
    let path = state.meta.path_of(serial);
    let (parent, name) = core.parent(&state, &path)?;
    core.file(&mut state, serial, parent, name.as_str()).map(Some)
}

/// Appends what of the segments lies behind the file's end. `None`: nothing does. Otherwise the file has one writer more;
/// the bytes that were taken, and how it ended.
fn append_left(core: &Arc<Core>, file: &Arc<File>, segments: &[&LeftSegment]) -> Result<Option<(u64, Result<()>)>> {
    let size = || file.state.size.load(Ordering::Acquire);
    let before = size();
    let mut opened = false;
    let mut result = Ok(());
    for segment in segments {
        let (from, to) = (segment.key.logical, segment.key.logical.saturating_add(segment.bytes.len() as u64));
        let end = size();
        if from > end || result.is_err() {
            break;
        }
        if to > end {
            if !opened {
                core.log_about(&file.state, &[Record::Reopen { serial: file.state.serial }])?;
                lock(&file.writing).writers += 1;
                opened = true;
            }
            result = file.append(&segment.bytes[(end - from) as usize..]);
        }
    }
    Ok(opened.then(|| (size() - before, result)))
}
