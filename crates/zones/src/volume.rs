//! The volume: one opened drive, its label, its pool, its flushes and whoever writes to it.
//!
//! Lock order: a stream's I/O → (the engine's locks) → another stream's I/O → the label → the pool → the turn. No lock of
//! this module is held while an engine is called.

use crate::flush::{Flusher, Ticket};
use crate::label::{self, Label, LabelError, LabelGeometry, TenantRecord};
use crate::memory::{LeftSegment, SegmentMemory, parse};
use crate::pool::{Pool, PoolCounts, Take, Urgency};
use crate::stream::StreamCore;
#[cfg(not(feature = "shuttle"))]
use crate::sync::wait;
use crate::sync::{Condvar, Mutex, lock};
use crate::turn::Turn;
use imbrex_device::{
    AlignedBuf, Cause, Drive, Error, Fault, Geometry, Priority, Result, SurvivorKey, Tag, Zone, ZoneId, ZoneOp,
    ZoneState, ZonedDevice, report_all, zeroed_region,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Who does background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exec {
    /// Nobody, until [`Volume::step`] is called: every run is the same.
    Inline,
    /// This many threads; on a rotating drive one is used.
    Threads(usize),
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Who does background work.
    pub exec: Exec,
    /// Bytes of the survivor's region, or of plain memory where the drive has no survivor.
    pub survivor_bytes: usize,
    /// Smallest piece of that memory, in bytes; a multiple of 4096.
    pub unit_bytes: usize,
    /// How much one stream writes before another gets the turn, on a rotating drive, in bytes.
    pub turn_bytes: u64,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        VolumeOptions { exec: Exec::Threads(2), survivor_bytes: 64 << 20, unit_bytes: 64 << 10, turn_bytes: 16 << 20 }
    }
}

/// An engine that shall have zones of a volume.
#[derive(Clone, Debug)]
pub struct TenantSpec {
    /// 1 to 32 bytes of `[a-z0-9-]`.
    pub name: String,
    /// Zones that only metadata and cleaning may take.
    pub reserve: u32,
}

/// How to format a drive.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// UUID of the new volume; `None`: a random one.
    pub uuid: Option<[u8; 16]>,
    /// Its tenants; the first gets the conventional zones.
    pub tenants: Vec<TenantSpec>,
    /// Whether to destroy what is on the drive.
    pub force: bool,
}

#[derive(Default)]
struct Work {
    ready: VecDeque<Arc<StreamCore>>,
    resets: bool,
    stop: bool,
}

pub(crate) struct VolumeCore {
    pub(crate) drive: Drive,
    pub(crate) geometry: Geometry,
    pub(crate) uuid: [u8; 16],
    pub(crate) flusher: Flusher,
    turn: Option<Turn>,
    options: VolumeOptions,
    label: Mutex<Label>,
    pool: Mutex<Pool>,
    memory: Mutex<Arc<SegmentMemory>>,
    left: Mutex<Vec<LeftSegment>>,
    report: Vec<Zone>,
    work: Mutex<Work>,
    work_changed: Condvar,
    lives: AtomicU64,
    streams: AtomicU64,
    mount: u64,
    first_generation: u64,
}

/// An opened drive. Clones are the same volume; background threads end when the last one is dropped.
#[derive(Clone)]
pub struct Volume {
    handle: Arc<Handle>,
}

struct Handle {
    core: Arc<VolumeCore>,
    #[cfg(not(feature = "shuttle"))]
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

fn label_slots(geometry: &Geometry) -> [u64; 2] {
    [0, geometry.zone_size]
}

fn label_bytes(geometry: &Geometry) -> u64 {
    geometry.round_up(Label::encoded_len(geometry.zones) as u64)
}

fn name_of(device: &dyn ZonedDevice) -> Arc<str> {
    device.identity().name.clone()
}

fn conventional_prefix(report: &[Zone]) -> u32 {
    report.iter().take_while(|z| z.state == ZoneState::Conventional).count() as u32
}

fn geometry_of(geometry: &Geometry, report: &[Zone]) -> LabelGeometry {
    LabelGeometry {
        block: geometry.block,
        zones: geometry.zones,
        zone_size: geometry.zone_size,
        conventional: conventional_prefix(report),
    }
}

/// Reads in commands that the drive takes: at most `max_io` bytes, and within a zone where it wants that.
pub(crate) fn read_all(device: &dyn ZonedDevice, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
    let geometry = device.geometry();
    let mut done = 0usize;
    while done < buf.len() {
        let here = at + done as u64;
        let mut n = (buf.len() - done).min(geometry.max_io as usize);
        if !geometry.reads_cross_zones {
            n = n.min((geometry.zone_size - here % geometry.zone_size) as usize);
        }
        device.read_at(&mut buf[done..done + n], here, tag)?;
        done += n;
    }
    Ok(())
}

/// Writes in commands of at most `max_io` bytes.
pub(crate) fn write_all(device: &dyn ZonedDevice, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
    let mut done = 0usize;
    for piece in buf.chunks(device.geometry().max_io as usize) {
        device.write_at(piece, at + done as u64, tag)?;
        done += piece.len();
    }
    Ok(())
}

fn read_slot(device: &dyn ZonedDevice, at: u64) -> Result<Result<Label, LabelError>> {
    let geometry = device.geometry();
    let mut buf = AlignedBuf::zeroed(label_bytes(geometry) as usize);
    let mut result = read_all(device, &mut buf, at, Cause::Label.into());
    // A label that was written for more zones is longer: read all of it, so that it can be told from a damaged one.
    let claimed = geometry.round_up(Label::claimed_len(&buf).unwrap_or(0) as u64);
    if result.is_ok() && claimed > buf.len() as u64 && claimed <= geometry.zone_size {
        buf = AlignedBuf::zeroed(claimed as usize);
        result = read_all(device, &mut buf, at, Cause::Label.into());
    }
    match result {
        Ok(()) => Ok(Label::decode(&buf)),
        Err(error) if matches!(error.fault, Fault::Media { .. } | Fault::Io(_) | Fault::Offline) => {
            tracing::warn!(%error, "a copy of the label cannot be read");
            Ok(Err(LabelError::Corrupt("it cannot be read")))
        }
        Err(error) => Err(error),
    }
}

fn unusable(device: &dyn ZonedDevice, sentence: impl std::fmt::Display) -> Error {
    Error::unusable(&name_of(device), sentence.to_string())
}

/// Writes both copies, one after the other, so that at any time one is whole.
fn write_label(device: &dyn ZonedDevice, label: &Label, flush: impl Fn(Tag) -> Result<()>) -> Result<()> {
    let bytes = AlignedBuf::padded(&label.encode(), device.geometry().block as usize);
    let tag = Tag::new(Cause::Label).at(Priority::High);
    for slot in label_slots(device.geometry()) {
        write_all(device, &bytes, slot, tag)?;
        flush(tag)?;
    }
    Ok(())
}

impl Volume {
    /// Makes an empty volume of a drive.
    ///
    /// # Errors
    /// `Unusable` where the drive holds a label, written zones or other data and `force` is not set, or where it has fewer
    /// than two conventional zones; `InvalidInput` where the options make no sense.
    pub fn format(drive: &Drive, options: &FormatOptions) -> Result<()> {
        let device = drive.device.as_ref();
        let geometry = device.geometry().clone();
        let report = report_all(device)?;
        let conventional = conventional_prefix(&report);
        if conventional < 2 {
            return Err(unusable(
                device,
                format!("has {conventional} conventional zones, but a volume needs two; use another drive"),
            ));
        }
        if label_bytes(&geometry) > geometry.zone_size / 2 {
            return Err(unusable(device, "has zones too small for a label; use a drive with larger zones"));
        }
        if !options.force {
            refuse_foreign(device, &report)?;
        }
        let mut owners = vec![label::NOBODY; geometry.zones as usize];
        owners[..conventional as usize].fill(1);
        owners[..2].fill(label::LABEL);
        let generation = [read_slot(device, 0)?, read_slot(device, geometry.zone_size)?]
            .iter()
            .filter_map(|l| l.as_ref().ok())
            .map(|l| l.generation)
            .max();
        let tenant = |t: &TenantSpec| TenantRecord {
            name: t.name.clone(),
            root: Vec::new(),
            min_zones: 0,
            reserve: t.reserve,
            min_open: 0,
            root_generation: 0,
        };
        let label = Label {
            uuid: options.uuid.unwrap_or_else(|| *uuid::Uuid::new_v4().as_bytes()),
            geometry: geometry_of(&geometry, &report),
            generation: generation.map_or(1, |g| g + 1),
            mount: 0,
            tenants: options.tenants.iter().map(tenant).collect(),
            owners,
        };
        label.check().map_err(|what| Error::invalid(&name_of(device), what))?;
        write_label(device, &label, |tag| device.flush(tag))?;
        // From here on the old data is unreachable; what is not reset now is reset before its next use.
        for zone in &report {
            let resettable = zone.state.writable() || zone.state == ZoneState::Full;
            if resettable && !matches!(zone.state, ZoneState::Conventional | ZoneState::Empty) {
                device.zone_op(ZoneOp::Reset, zone.id, Cause::Pool.into())?;
            }
        }
        Ok(())
    }

    /// Opens a formatted drive: reads the label, repairs a damaged copy, finds what a dead process left in memory.
    ///
    /// Nothing else is written until [`Volume::recovered`].
    ///
    /// # Errors
    /// `Unusable` with a whole sentence: no label, a newer version, another geometry.
    pub fn open(drive: Drive, options: VolumeOptions) -> Result<Volume> {
        let device = drive.device.clone();
        let device = device.as_ref();
        let geometry = device.geometry().clone();
        let report = report_all(device)?;
        if conventional_prefix(&report) < 2 {
            return Err(unusable(device, LabelError::NotALabel));
        }
        let slots = label_slots(&geometry);
        let copies = [read_slot(device, slots[0])?, read_slot(device, slots[1])?];
        let [a, b] = copies;
        let chosen = Label::choose(a, b).map_err(|error| unusable(device, error))?;
        let label = chosen.label;
        let here = geometry_of(&geometry, &report);
        if label.geometry != here {
            return Err(unusable(
                device,
                format!(
                    "was formatted as {} but is {here}; open it with the drive settings it was made with",
                    label.geometry
                ),
            ));
        }
        if chosen.repair_other {
            tracing::warn!(drive = %device.identity().name, "one copy of the label is damaged or old: repairing it");
            // Never both at once: the good copy stays until the bad one is durable.
            let bytes = AlignedBuf::padded(&label.encode(), geometry.block as usize);
            let slot = slots[1 - chosen.copy];
            write_all(device, &bytes, slot, Cause::Label.into())?;
            device.flush(Cause::Label.into())?;
        }
        let key = SurvivorKey {
            volume: label.uuid,
            medium: device.identity().medium,
            power_epoch: device.identity().power_epoch,
            mount: label.mount,
        };
        let left = match &drive.survivor {
            Some(survivor) => survivor.left_behind(&key)?.map(|bytes| parse(&bytes)).unwrap_or_default(),
            None => Vec::new(),
        };
        let reserves: Vec<u32> = label.tenants.iter().map(|t| t.reserve).collect();
        let core = VolumeCore {
            uuid: label.uuid,
            flusher: Flusher::new(),
            turn: geometry.rotational.then(|| Turn::new(options.turn_bytes)),
            pool: Mutex::new(Pool::new(&report, &label.owners, &reserves)),
            // Until recovery is over, plain memory: the survivor's region still holds what must not be lost.
            memory: Mutex::new(SegmentMemory::new(
                zeroed_region(options.survivor_bytes.min(8 << 20)),
                options.unit_bytes,
            )),
            left: Mutex::new(left),
            report,
            work: Mutex::new(Work::default()),
            work_changed: Condvar::new(),
            lives: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            mount: label.mount + 1,
            first_generation: label.generation,
            label: Mutex::new(label),
            drive,
            geometry,
            options,
        };
        let core = Arc::new(core);
        Ok(Volume {
            handle: Arc::new(Handle {
                #[cfg(not(feature = "shuttle"))]
                threads: Mutex::new(spawn_writers(&core)),
                core,
            }),
        })
    }

    /// The engine has replayed what was left behind, and all of it is on the drive: makes that durable, counts the mount,
    /// and from now on keeps unwritten bytes in a new region of the survivor.
    pub fn recovered(&self) -> Result<()> {
        let core = &self.handle.core;
        core.sync(Cause::Recovery.into())?;
        core.update_label(|label| label.mount = core.mount)?;
        let region = match &core.drive.survivor {
            Some(survivor) => survivor.create(&core.key(), core.options.survivor_bytes)?,
            None => zeroed_region(core.options.survivor_bytes),
        };
        *lock(&core.memory) = SegmentMemory::new(region, core.options.unit_bytes);
        lock(&core.left).clear();
        Ok(())
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &str) -> Result<Tenant> {
        let label = lock(&self.handle.core.label);
        let Some(i) = label.tenants.iter().position(|t| t.name == name) else {
            let names: Vec<_> = label.tenants.iter().map(|t| t.name.as_str()).collect();
            let device = self.handle.core.drive.device.as_ref();
            let sentence =
                format!("is formatted for {}, not for {name}; format it anew or use that engine", names.join(", "));
            return Err(unusable(device, sentence));
        };
        Ok(Tenant { volume: self.clone(), owner: i as u8 + 1 })
    }

    /// Reads both copies of the label; a sentence for each that is damaged or not the one in use.
    pub fn check_labels(&self) -> Result<Vec<String>> {
        let core = &self.handle.core;
        let label = lock(&core.label);
        let mut problems = Vec::new();
        for (i, at) in label_slots(&core.geometry).into_iter().enumerate() {
            match read_slot(core.drive.device.as_ref(), at)? {
                Ok(copy) if copy == *label => {}
                Ok(copy) => problems.push(format!(
                    "Copy {i} of the label is of generation {}, not {}; mount the drive again to repair it.",
                    copy.generation, label.generation
                )),
                Err(why) => problems.push(format!("Copy {i} of the label: the drive {why}.")),
            }
        }
        Ok(problems)
    }

    /// UUID of the volume.
    pub fn uuid(&self) -> [u8; 16] {
        self.handle.core.uuid
    }

    /// Number of this mount, from 1.
    pub fn mount(&self) -> u64 {
        self.handle.core.mount
    }

    /// The drive's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.handle.core.geometry
    }

    /// The drive's name.
    pub fn name(&self) -> Arc<str> {
        name_of(self.handle.core.drive.device.as_ref())
    }

    /// The drive itself.
    pub fn device(&self) -> &Arc<dyn ZonedDevice> {
        &self.handle.core.drive.device
    }

    /// The zones as they were when the volume was opened.
    pub fn report_at_open(&self) -> &[Zone] {
        &self.handle.core.report
    }

    /// Reads whole blocks at byte address `at`.
    pub fn read(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        read_all(self.handle.core.drive.device.as_ref(), buf, at, tag)
    }

    /// Writes whole blocks of a conventional zone.
    pub fn write_conventional(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let core = &self.handle.core;
        core.flusher.check()?;
        core.in_turn(u64::MAX, tag.priority, buf.len() as u64, || write_all(core.drive.device.as_ref(), buf, at, tag))
    }

    /// A ticket that covers every write acknowledged so far.
    pub fn ticket(&self) -> Ticket {
        self.handle.core.flusher.ticket()
    }

    /// Waits for the ticket's flush, or leads it.
    pub fn durable(&self, ticket: Ticket, tag: Tag) -> Result<()> {
        self.handle.core.flusher.durable(ticket, self.handle.core.drive.device.as_ref(), tag)
    }

    /// Makes every write acknowledged so far durable.
    pub fn sync(&self, tag: Tag) -> Result<()> {
        self.handle.core.sync(tag)
    }

    /// Fails once a flush has failed.
    pub fn check_poison(&self) -> Result<()> {
        self.handle.core.flusher.check()
    }

    /// Does one piece of background work: writes a full segment, or resets a zone. False: there was nothing to do.
    pub fn step(&self) -> Result<bool> {
        self.handle.core.step()
    }

    /// Carries out background work until there is none.
    pub fn quiesce(&self) -> Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// Ends the background threads. With `clean`, everything is on the drive: the survivor's region is given up.
    pub fn shutdown(&self, clean: bool) -> Result<()> {
        self.handle.stop();
        let core = &self.handle.core;
        match &core.drive.survivor {
            Some(survivor) if clean && lock(&core.memory).usage().0 == 0 => survivor.discard(&core.uuid),
            _ => Ok(()),
        }
    }

    pub(crate) fn core(&self) -> &Arc<VolumeCore> {
        &self.handle.core
    }
}

impl Handle {
    fn stop(&self) {
        lock(&self.core.work).stop = true;
        self.core.work_changed.notify_all();
        #[cfg(not(feature = "shuttle"))]
        for thread in lock(&self.threads).drain(..) {
            // The last reference may be dropped by a writer itself, which cannot wait for its own end. A writer that
            // panicked has already said so; its streams keep their bytes.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
        // Streams hold the volume, so the volume must not go on holding streams.
        lock(&self.core.work).ready.clear();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(not(feature = "shuttle"))]
fn spawn_writers(core: &Arc<VolumeCore>) -> Vec<std::thread::JoinHandle<()>> {
    let n = match core.options.exec {
        Exec::Inline => 0,
        Exec::Threads(_) if core.geometry.rotational => 1,
        Exec::Threads(n) => n.max(1),
    };
    let spawn = |i| {
        let core = core.clone();
        std::thread::Builder::new().name(format!("imbrex-write-{i}")).spawn(move || core.write_loop())
    };
    // Without a thread (the system has no more) the appenders write for themselves.
    (0..n).filter_map(|i| spawn(i).inspect_err(|error| tracing::warn!(%error, "no writer thread")).ok()).collect()
}

/// Refuses to overwrite what is there.
fn refuse_foreign(device: &dyn ZonedDevice, report: &[Zone]) -> Result<()> {
    let geometry = device.geometry();
    let mut zero = true;
    for slot in label_slots(geometry) {
        match read_slot(device, slot)? {
            Err(LabelError::NotALabel) => {}
            Ok(_) => return Err(unusable(device, "is already formatted; `--force` destroys what is on it")),
            Err(LabelError::Newer { version }) => {
                return Err(unusable(
                    device,
                    format!("was formatted by a newer Imbrex (version {version}); `--force` destroys what is on it"),
                ));
            }
            Err(LabelError::Corrupt(_)) => {
                return Err(unusable(device, "holds a damaged label; `--force` destroys what is on it"));
            }
        }
        let mut buf = AlignedBuf::zeroed((64u64 << 10).min(geometry.zone_size) as usize);
        read_all(device, &mut buf, slot, Cause::Label.into())?;
        zero &= buf.iter().all(|b| *b == 0);
    }
    let written = report.iter().find(|z| !matches!(z.state, ZoneState::Conventional | ZoneState::Empty));
    if let Some(zone) = written.filter(|z| z.state != ZoneState::Offline) {
        return Err(unusable(
            device,
            format!("has data of somebody else in zone {}; `--force` destroys what is on it", zone.id),
        ));
    }
    if !zero {
        return Err(unusable(device, "has data of somebody else at its beginning; `--force` destroys what is on it"));
    }
    Ok(())
}

impl VolumeCore {
    pub(crate) fn key(&self) -> SurvivorKey {
        let identity = self.drive.device.identity();
        SurvivorKey { volume: self.uuid, medium: identity.medium, power_epoch: identity.power_epoch, mount: self.mount }
    }

    pub(crate) fn memory(&self) -> Arc<SegmentMemory> {
        lock(&self.memory).clone()
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::new(&name_of(self.drive.device.as_ref()), fault)
    }

    pub(crate) fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn sync(&self, tag: Tag) -> Result<()> {
        let ticket = self.flusher.ticket();
        self.flusher.durable(ticket, self.drive.device.as_ref(), tag)
    }

    /// Runs a write when it is the stream's turn; at once on a drive that does not rotate.
    pub(crate) fn in_turn<T>(&self, stream: u64, priority: Priority, bytes: u64, write: impl FnOnce() -> T) -> T {
        match &self.turn {
            Some(turn) => turn.run(stream, priority, bytes, write),
            None => write(),
        }
    }

    /// The zone as the drive sees it now.
    pub(crate) fn report_one(&self, zone: ZoneId) -> Result<Zone> {
        let mut out = [Zone::EMPTY];
        match self.drive.device.report(zone, &mut out)? {
            1 => Ok(out[0]),
            _ => Err(self.error(Fault::InvalidInput("no such zone".into())).at(zone, 0)),
        }
    }

    fn update_label(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        self.flusher.check()?;
        let mut label = lock(&self.label);
        let mut next = label.clone();
        change(&mut next);
        next.generation += 1;
        next.check().map_err(|what| self.error(Fault::InvalidInput(what.into())))?;
        // Also after a failure the number is used up: a copy that carries it may have reached the drive.
        label.generation = next.generation;
        let flush = |tag| {
            let ticket = self.flusher.ticket();
            self.flusher.durable(ticket, self.drive.device.as_ref(), tag)
        };
        write_label(self.drive.device.as_ref(), &next, flush)?;
        *label = next;
        Ok(())
    }

    fn take(&self, owner: u8, urgency: Urgency) -> Result<ZoneId> {
        loop {
            self.flusher.check()?;
            let answer = lock(&self.pool).take(owner, urgency);
            match answer {
                Take::Empty(zone) => return Ok(zone),
                Take::Reset(zone) => {
                    let result = self.drive.device.zone_op(ZoneOp::Reset, zone, Cause::Pool.into());
                    lock(&self.pool).reset_done(zone, result.is_ok(), true);
                    match result {
                        Ok(()) => return Ok(zone),
                        Err(error) => tracing::warn!(%error, "a zone that cannot be reset is given up"),
                    }
                }
                Take::Claim(zones) => {
                    self.update_label(|label| {
                        for zone in &zones {
                            label.owners[zone.0 as usize] = owner;
                        }
                    })?;
                    lock(&self.pool).claimed(&zones, owner);
                }
                Take::NoSpace => return Err(self.error(Fault::NoSpace)),
            }
        }
    }

    /// A stream has a full segment.
    pub(crate) fn enqueue(&self, stream: Arc<StreamCore>) {
        lock(&self.work).ready.push_back(stream);
        self.work_changed.notify_one();
    }

    fn step(&self) -> Result<bool> {
        let stream = lock(&self.work).ready.pop_front();
        if let Some(stream) = stream {
            stream.write_ready(1)?;
            return Ok(true);
        }
        self.reset_one()
    }

    fn reset_one(&self) -> Result<bool> {
        let Some(zone) = lock(&self.pool).next_dirty() else { return Ok(false) };
        let result = self.drive.device.zone_op(ZoneOp::Reset, zone, Tag::new(Cause::Pool).at(Priority::Background));
        lock(&self.pool).reset_done(zone, result.is_ok(), false);
        if let Err(error) = result {
            tracing::warn!(%error, "a zone that cannot be reset is given up");
        }
        Ok(true)
    }

    #[cfg(not(feature = "shuttle"))]
    fn write_loop(&self) {
        loop {
            let mut work = lock(&self.work);
            let stream = loop {
                if work.stop {
                    return;
                }
                if let Some(stream) = work.ready.pop_front() {
                    break Some(stream);
                }
                if std::mem::take(&mut work.resets) {
                    break None;
                }
                work = wait(&self.work_changed, work);
            };
            drop(work);
            match stream {
                Some(stream) => {
                    if let Err(error) = stream.write_ready(self.options.turn_bytes) {
                        // The bytes stay where they are; whoever syncs or needs their room meets the error.
                        tracing::warn!(%error, "a background write failed");
                    }
                }
                None => {
                    while matches!(self.reset_one(), Ok(true)) {
                        if !lock(&self.work).ready.is_empty() {
                            lock(&self.work).resets = true;
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// One engine's part of a volume.
#[derive(Clone)]
pub struct Tenant {
    volume: Volume,
    owner: u8,
}

impl Tenant {
    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Its number in the label.
    pub fn owner(&self) -> u8 {
        self.owner
    }

    fn core(&self) -> &VolumeCore {
        &self.volume.handle.core
    }

    /// The root blob; empty on a fresh volume.
    pub fn root(&self) -> Vec<u8> {
        lock(&self.core().label).tenants[usize::from(self.owner) - 1].root.clone()
    }

    /// Replaces the root blob (at most 1024 bytes); durable, in both copies of the label, when it returns.
    pub fn set_root(&self, root: &[u8]) -> Result<()> {
        self.core().update_label(|label| {
            let tenant = &mut label.tenants[usize::from(self.owner) - 1];
            tenant.root = root.to_vec();
            tenant.root_generation += 1;
        })
    }

    /// What a dead process of this tenant left behind, sorted by file, life and offset. Empty after a power loss.
    pub fn left_behind(&self) -> Vec<LeftSegment> {
        lock(&self.core().left).iter().filter(|s| s.key.owner == self.owner).cloned().collect()
    }

    /// This tenant's metadata refers to the zone.
    pub fn adopt(&self, zone: ZoneId) -> Result<()> {
        let adopted = lock(&self.core().pool).adopt(zone, self.owner);
        adopted.map_err(|what| {
            let what = format!("metadata that refers to zone {zone} ({what})");
            self.core().error(Fault::Corrupt { what: what.into() }).at(zone, 0)
        })
    }

    /// Zones that it owns and has not adopted so far.
    pub fn unadopted(&self) -> Vec<ZoneId> {
        lock(&self.core().pool).unadopted(self.owner)
    }

    /// All that its metadata refers to is adopted; the rest is free.
    pub fn adoption_done(&self) {
        let core = self.core();
        lock(&core.pool).adoption_done(self.owner, &core.report);
        lock(&core.work).resets = true;
        core.work_changed.notify_one();
    }

    /// An empty zone.
    ///
    /// # Errors
    /// `NoSpace` where there is none for this urgency.
    pub fn take(&self, urgency: Urgency) -> Result<ZoneId> {
        self.core().take(self.owner, urgency)
    }

    /// Nothing durable refers to the zone any more and nobody reads it: it may be reset.
    pub fn release(&self, zone: ZoneId) {
        let core = self.core();
        let dead =
            matches!(core.report_one(zone), Ok(z) if matches!(z.state, ZoneState::ReadOnly | ZoneState::Offline));
        lock(&core.pool).release(zone, dead);
        lock(&core.work).resets = true;
        core.work_changed.notify_one();
    }

    /// Its zones, counted.
    pub fn counts(&self) -> PoolCounts {
        lock(&self.core().pool).counts(self.owner)
    }

    /// Conventional space of this tenant, as byte ranges: its conventional zones, and for the first tenant what is left of
    /// the zones that hold labels.
    pub fn conventional_ranges(&self) -> Vec<(u64, u64)> {
        let core = self.core();
        let label = lock(&core.label);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (zone, &owner) in core.report.iter().zip(&label.owners) {
            let start = core.geometry.start(zone.id);
            let range = match owner {
                _ if zone.state != ZoneState::Conventional => continue,
                label::LABEL if self.owner == 1 => {
                    // Whole units of conventional space begin where a unit would, whatever its size.
                    let unit = crate::conventional::UNIT.min(core.geometry.zone_size / 16).max(4096);
                    let skip = label_bytes(&core.geometry).next_multiple_of(unit);
                    (start + skip, zone.capacity.saturating_sub(skip))
                }
                o if o == self.owner => (start, zone.capacity),
                _ => continue,
            };
            match ranges.last_mut() {
                Some((from, len)) if *from + *len == range.0 => *len += range.1,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// A number that no zone of this volume had as its life before: from the label's generation at the opening, which every
    /// recovery that wrote anything has raised, and a counter.
    pub fn new_life(&self) -> u64 {
        let core = self.core();
        let n = core.lives.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0u8; 32];
        bytes[..16].copy_from_slice(&core.uuid);
        bytes[16..24].copy_from_slice(&core.first_generation.to_le_bytes());
        bytes[24..].copy_from_slice(&n.to_le_bytes());
        mix(&bytes)
    }
}

/// A 64-bit mix of the volume, the mount and a counter: the same in every run of a test, unlike any other in practice
/// (finaliser of SplitMix64 over the words).
fn mix(bytes: &[u8; 32]) -> u64 {
    let mut h = 0x9e37_79b9_7f4a_7c15u64;
    for word in bytes.chunks_exact(8) {
        let mut w = [0u8; 8];
        w.copy_from_slice(word);
        h = h.wrapping_add(u64::from_le_bytes(w)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^= h >> 31;
    }
    h
}
