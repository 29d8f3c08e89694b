//! The volume: one opened drive, its label, its pool, its flushes and whoever writes to it.
//!
//! Lock order: a writer's guard → (the engine's locks) → another writer's guard → the label → the pool → the turn. No lock of
//! this module is held while an engine is called.

pub(crate) mod active;
mod engines;
mod labels;
mod left;
mod relabel;
mod taken;
mod tenant;
pub(crate) mod work;

pub use relabel::{LostLabel, NewLabel};
pub(crate) use relabel::{conventional, label_places};
pub use tenant::{Reservation, Tenant};

use crate::label::budget::{Budget, fit_slots, shares};
use crate::label::{self, Label, LabelError};
use crate::medium::flush::{Flusher, Ticket};
use crate::medium::memory::{SegmentMemory, is_of_another_version, label_of, parse, power_losses};
use crate::medium::turn::Turn;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::table::pool::{Pool, PoolCounts, Take, Urgency};
use crate::volume::active::Active;
use crate::volume::taken::Taken;
use engines::Engines;
use imbrex_device::{
    Cause, Drive, Error, Fault, Geometry, Priority, Result, SurvivorKey, Tag, Zone, ZoneId, ZoneState, ZonedDevice,
    report_all, zeroed_region,
};
use labels::{LabelZones, cannot_write, conventional_count, geometry_of};
use left::Left;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
#[cfg(not(feature = "shuttle"))]
use work::spawn_writers;
use work::{Background, Work};

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
    /// What it may take.
    pub budget: Budget,
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

pub(crate) struct VolumeCore {
    pub(crate) drive: Drive,
    pub(crate) geometry: Geometry,
    pub(crate) uuid: [u8; 16],
    pub(crate) flusher: Flusher,
    pub(crate) taken: Taken,
    /// The drive's power epoch when it was opened.
    pub(crate) epoch: [u8; 16],
    turn: Option<Turn>,
    pub(crate) options: VolumeOptions,
    label: Mutex<Label>,
    label_zones: LabelZones,
    pool: Mutex<Pool>,
    /// A zone was reset in the background, or a claim has ended.
    freed: Condvar,
    memory: Mutex<Arc<SegmentMemory>>,
    left: Mutex<Left>,
    report: Vec<Zone>,
    work: Mutex<Work>,
    work_changed: Condvar,
    /// The label in memory says of a zone that it is its adopter's, and the one on the drive does not.
    adopted: AtomicBool,
    lives: AtomicU64,
    /// Counts writers of bytes, and their writes: by it they are told apart.
    writers: AtomicU64,
    writes: AtomicU64,
    background: Mutex<Vec<Weak<dyn Background>>>,
    opened: Instant,
    /// Nanoseconds that have passed besides.
    passed: AtomicU64,
    mount: AtomicU64,
    first_generation: u64,
    label_repaired: Option<String>,
    /// The drive has had power ever since the label was written that was found.
    had_power: bool,
    /// The memory of the last mount was there.
    found_memory: bool,
    /// What was left in memory is of a later state of the drive.
    restored: bool,
    /// Tenants under whose earlier processes the drive had lost power, a bit each.
    lost_power: u16,
    /// Generation of the label that is whole wherever it can be.
    in_force: AtomicU64,
    /// Only looked at: a label that cannot be written any more is kept in memory.
    look: bool,
    /// A label is only in memory.
    label_unwritten: AtomicBool,
    /// On a drive that limits active zones.
    pub(crate) active: Option<Active>,
}

/// A zone that is written, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// Which.
    pub zone: ZoneId,
    /// Its life.
    pub life: u64,
    /// Its write pointer, in bytes from its start.
    pub at: u64,
    /// Bytes that can be written to it, from its start.
    pub capacity: u64,
}

/// What [`Volume::table`] shows.
#[derive(Clone, Debug)]
pub struct ZoneTable {
    /// Tenants, in the order of the label.
    pub tenants: Vec<TenantZones>,
    /// Every zone of the drive.
    pub zones: Vec<ZoneUse>,
}

/// A tenant's part of the table.
#[derive(Clone, Debug)]
pub struct TenantZones {
    /// Its name.
    pub name: String,
    /// What it may take.
    pub budget: Budget,
    /// What it has.
    pub counts: PoolCounts,
}

/// A zone of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneUse {
    /// Whose it is, by the place among tenants; `None`: nobody's.
    pub tenant: Option<usize>,
    /// Its state, in the words of `docs/foundation.md`.
    pub state: &'static str,
}

/// An opened drive. Clones are the same volume; background threads end when the last one is dropped.
#[derive(Clone)]
pub struct Volume {
    handle: Arc<Handle>,
}

struct Handle {
    core: Arc<VolumeCore>,
    engines: Mutex<Engines>,
    #[cfg(not(feature = "shuttle"))]
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// Of memory that is not the drive's, though it has its name.
pub const RESTORED: &str = "Shared memory holds bytes of a later mount than this drive knows of, so the drive was restored from a copy since; it goes on \
                        as the copy has it, and those bytes are dropped.";

/// What the turn knows the writes of [`Volume::write_beside`] by: no zone's stream has this number.
const BESIDE: u64 = u64::MAX / 2;

fn name_of(device: &dyn ZonedDevice) -> Arc<str> {
    device.identity().name.clone()
}

/// Reads in commands that the drive takes: at most `max_io` bytes, and within a zone where it wants that.
pub fn read_all(device: &dyn ZonedDevice, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
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

/// What a person uses of a drive that is a tenant's.
fn user_of(tenant: &str) -> String {
    match tenant {
        "bluefs" => "`imbrex fs`".into(),
        "chunkstore" => "`imbrex chunk`".into(),
        "kv" => "`imbrex kv`".into(),
        "metadata" | "metadata-files" | "bluestore" => "`imbrex store`".into(),
        "metadata-of" => "its option --db with the drive of the objects".into(),
        other => format!("the engine {other}"),
    }
}

fn unusable(device: &dyn ZonedDevice, sentence: impl std::fmt::Display) -> Error {
    Error::unusable(&name_of(device), sentence.to_string())
}

/// What a check says of a copy of the label.
fn damaged_copy(copy: usize, why: &LabelError) -> String {
    let why = match why {
        LabelError::Corrupt(phrase) => (*phrase).to_owned(),
        LabelError::NotALabel => "none is there".into(),
        other => format!("the drive {other}"),
    };
    format!(
        "Copy {copy} of the label is damaged ({why}); the next opening that may write repairs it, if the other copy is whole."
    )
}

/// The label of a drive and where it stands, and a sentence where one copy was damaged; repairs a copy that is damaged or old. `look`: the drive may
/// take no writes.
fn find_label(device: &dyn ZonedDevice, report: &[Zone], look: bool) -> Result<(LabelZones, Label, Option<String>)> {
    let geometry = device.geometry();
    let found = LabelZones::find(device, report)?.ok_or_else(|| unusable(device, LabelError::NotALabel))?;
    let (label_zones, [a, b]) = (found.zones, found.copies);
    let dead = label_zones.dead(device)?;
    let broken = |copy: &Result<Label, LabelError>| copy.as_ref().err().cloned();
    let broken = [broken(&a), broken(&b)];
    let chosen = Label::choose(a, b).map_err(|error| match error {
        LabelError::Corrupt(_) => Error::damaged(&name_of(device), error.to_string()),
        _ => unusable(device, error),
    })?;
    let label = chosen.label;
    let count = conventional_count(report);
    let here = geometry_of(geometry, label.geometry.conventional.clamp(*count.start(), *count.end()));
    if label.geometry != here {
        return Err(unusable(
            device,
            format!(
                "was formatted as {} but is {here}; open it with the drive settings it was made with",
                label.geometry
            ),
        ));
    }
    if dead.iter().all(Option::is_some) && !look {
        return Err(cannot_write(device));
    }
    check_active(device, label_zones.rings(), label.tenants.iter().map(|t| (&*t.name, t.budget)))?;
    dead.iter().flatten().for_each(|what| tracing::warn!(drive = %device.identity().name, "{what}"));
    let other = 1 - chosen.copy;
    let mut damage = None;
    if chosen.repair_other && dead[other].is_none() {
        // An older label may stand in front of one that is damaged.
        damage = match &broken[other] {
            Some(why) => Some(why.clone()),
            None => label_zones.passed_over(device, other)?,
        };
    }
    let label_repaired = damage.map(|why| damaged_copy(other, &why));
    let active = report.iter().filter(|zone| zone.state.is_open() || zone.state == ZoneState::Closed).count();
    // Where a crash has left as many active zones as there may be, the engine finishes what is not needed, and then both copies are written
    // anew.
    let full = geometry.max_active.is_some_and(|most| active >= most.get() as usize);
    if chosen.repair_other && dead[other].is_none() && !full {
        label_zones.repair(device, other, &label, dead[chosen.copy].is_some())?;
    }
    Ok((label_zones, label, label_repaired))
}

/// What a process that died left in memory.
fn left_behind(drive: &Drive, key: SurvivorKey) -> Result<Vec<u8>> {
    let Some(survivor) = &drive.survivor else { return Ok(Vec::new()) };
    let left = match survivor.left_behind(&key)? {
        Some(left) => left,
        // The region of the next mount is there where that one died before the label counted it.
        None => survivor.left_behind(&SurvivorKey { mount: key.mount + 1, ..key })?.unwrap_or_default(),
    };
    if is_of_another_version(&left) {
        let sentence = "another version of Imbrex died and left unwritten bytes of it in shared memory, which this one does not \
                        understand; open it once with that version";
        return Err(unusable(drive.device.as_ref(), sentence));
    }
    Ok(left)
}

/// Refuses a drive that cannot have as many active zones as are needed at once.
fn check_active<'a>(
    device: &dyn ZonedDevice,
    rings: u32,
    budgets: impl Iterator<Item = (&'a str, Budget)> + Clone,
) -> Result<()> {
    let Some(limit) = device.geometry().max_active else { return Ok(()) };
    fit_slots(budgets, limit.get().saturating_sub(rings)).map_err(|sentence| unusable(device, sentence))
}

impl Volume {
    /// Opens a formatted drive: reads the label, repairs a damaged copy, finds what a dead process left in memory.
    ///
    /// Nothing else is written until a tenant has [recovered](Tenant::recovered).
    ///
    /// # Errors
    /// `Unusable` with a whole sentence: no label, a newer version, another geometry. `Io` of kind `InvalidData`: both
    /// copies of the label are damaged. `Io`: neither
    /// can be written any more; [`Volume::look`] may still open the drive.
    pub fn open(drive: Drive, options: VolumeOptions) -> Result<Volume> {
        Self::open_as(drive, options, false)
    }

    /// The same for a drive whose changes nobody keeps (an overlay): it may have no zone left that a label can be written to.
    ///
    /// # Errors
    /// As [`Volume::open`], where there is no whole label.
    pub fn look(drive: Drive, options: VolumeOptions) -> Result<Volume> {
        Self::open_as(drive, options, true)
    }

    fn open_as(drive: Drive, options: VolumeOptions, look: bool) -> Result<Volume> {
        let device = drive.device.clone();
        let device = device.as_ref();
        let geometry = device.geometry().clone();
        let report = report_all(device)?;
        let (label_zones, label, label_repaired) = find_label(device, &report, look)?;
        // What died in front was conventional: the label says so.
        let mut seen = report.clone();
        seen.iter_mut()
            .take(label.geometry.conventional as usize)
            .for_each(|zone| zone.state = ZoneState::Conventional);
        let key = SurvivorKey {
            volume: label.uuid,
            medium: device.identity().medium,
            power_epoch: device.power_epoch(),
            mount: label.mount,
        };
        let left = left_behind(&drive, key)?;
        let restored = label_of(&left).is_some_and(|least| label.generation < least);
        if restored {
            tracing::warn!(drive = %device.identity().name, "{RESTORED}");
        }
        let found_memory = !left.is_empty();
        let known = (1..=label.tenants.len() as u8).fold(0, |all, owner| all | left::bit(owner));
        let lost_power = if restored { 0 } else { power_losses(&left) & known };
        let left = Left::new(if restored { Vec::new() } else { parse(&left) }, lost_power);
        let budgets: Vec<Budget> = label.tenants.iter().map(|t| t.budget).collect();
        let mut pool = Pool::new(&seen, &label.owners, &budgets);
        let kept = label.tenants.iter().position(|tenant| tenant.name == label::KEPT);
        pool.gives_up(kept.map(|at| at as u8 + 1));
        (1..=label.tenants.len() as u8).for_each(|owner| pool.left_reserved(owner, left.reserved(owner)));
        let core = VolumeCore {
            uuid: label.uuid,
            flusher: Flusher::new(),
            taken: Taken::default(),
            epoch: key.power_epoch,
            turn: geometry.rotational.then(|| Turn::new(options.turn_bytes)),
            pool: Mutex::new(pool),
            freed: Condvar::new(),
            // Until recovery is over, plain memory: the survivor's region still holds what must not be lost.
            memory: Mutex::new(SegmentMemory::new(
                zeroed_region(options.survivor_bytes.min(8 << 20)),
                options.unit_bytes,
            )),
            left: Mutex::new(left),
            work: Mutex::new(Work::default()),
            work_changed: Condvar::new(),
            adopted: AtomicBool::new(false),
            lives: AtomicU64::new(0),
            writers: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            background: Mutex::default(),
            opened: Instant::now(),
            passed: AtomicU64::new(0),
            mount: AtomicU64::new(label.mount + 1),
            first_generation: label.generation,
            label_repaired,
            had_power: label.had_power(key.power_epoch),
            found_memory,
            restored,
            lost_power,
            in_force: AtomicU64::new(label.generation),
            look,
            label_unwritten: AtomicBool::new(false),
            active: geometry.max_active.map(|n| {
                let shares = shares(&budgets, n.get().saturating_sub(label_zones.rings()));
                Active::new(&shares, &report, &label.owners)
            }),
            report,
            label: Mutex::new(label),
            label_zones,
            drive,
            geometry,
            options,
        };
        let core = Arc::new(core);
        Ok(Volume {
            handle: Arc::new(Handle {
                engines: Mutex::default(),
                #[cfg(not(feature = "shuttle"))]
                threads: Mutex::new(spawn_writers(&core)),
                core,
            }),
        })
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &str) -> Result<Tenant> {
        let label = lock(&self.handle.core.label);
        let Some(i) = label.tenants.iter().position(|t| t.name == name) else {
            let names: Vec<_> = label.tenants.iter().map(|t| t.name.as_str()).collect();
            let device = self.handle.core.drive.device.as_ref();
            let mut users: Vec<_> = names.iter().map(|name| user_of(name)).collect();
            users.dedup();
            let sentence = format!(
                "is formatted for {}, not for {name}; use {}, or name another drive",
                names.join(" and "),
                users.join(" or ")
            );
            return Err(unusable(device, sentence));
        };
        Ok(Tenant { volume: self.clone(), owner: i as u8 + 1 })
    }

    /// The table of zones as it is now. Of an engine that is not open here nobody knows what it refers to: its zones are *owned*.
    pub fn table(&self) -> ZoneTable {
        let core = &self.handle.core;
        let label = lock(&core.label);
        let pool = lock(&core.pool);
        let row = |(i, tenant): (usize, &label::TenantRecord)| {
            let counts = pool.counts(i as u8 + 1);
            TenantZones { name: tenant.name.clone(), budget: tenant.budget, counts }
        };
        let zone = |(owner, state): (u8, &'static str)| {
            let tenant = usize::from(owner).checked_sub(1).filter(|tenant| *tenant < label.tenants.len());
            ZoneUse { tenant, state }
        };
        ZoneTable {
            tenants: label.tenants.iter().enumerate().map(row).collect(),
            zones: pool.states().into_iter().map(zone).collect(),
        }
    }

    /// Reads both copies of the label; a sentence for each that is damaged or not the one in use. What stands in a dead zone
    /// is no copy any more: see [`Volume::dead_labels`]. A [look](Volume::look) tells of the copy that it repaired for itself, too, unless a power loss may
    /// have torn it.
    pub fn check_labels(&self) -> Result<Vec<String>> {
        let core = &self.handle.core;
        let label = lock(&core.label);
        let device = core.drive.device.as_ref();
        if core.label_unwritten.load(Ordering::Acquire) {
            return Ok(vec![format!("{}.", cannot_write(device))]);
        }
        let dead = core.label_zones.dead(device)?;
        let mut problems: Vec<String> =
            core.label_repaired.clone().filter(|_| core.look && core.had_power).into_iter().collect();
        for i in (0..2).filter(|i: &usize| dead[*i].is_none()) {
            match core.label_zones.read(device, i)? {
                Ok(copy) if copy == *label => {}
                Ok(copy) => problems.push(format!(
                    "Copy {i} of the label is of generation {}, not {}; mount the drive again to repair it.",
                    copy.generation, label.generation
                )),
                Err(why) => problems.push(damaged_copy(i, &why)),
            }
        }
        Ok(problems)
    }

    /// A sentence for each zone of the label that is read-only or offline now.
    pub fn dead_labels(&self) -> Result<Vec<String>> {
        let core = &self.handle.core;
        Ok(core.label_zones.dead(core.drive.device.as_ref())?.into_iter().flatten().collect())
    }

    /// What was wrong with the copy of the label that [`Volume::open`] had to write anew; `None`: both were whole.
    pub fn label_repaired(&self) -> Option<&str> {
        self.handle.core.label_repaired.as_deref()
    }

    /// Whether the memory of the last mount was found, empty or not: what that mount was given is there or on the drive. `false` where it
    /// had none that outlives a process, or has taken it along.
    pub fn found_memory(&self) -> bool {
        self.handle.core.found_memory
    }

    /// A sentence where what a dead process had left in memory is not this drive's, which was restored from a copy.
    pub fn restored(&self) -> Option<&'static str> {
        self.handle.core.restored.then_some(RESTORED)
    }

    /// UUID of the volume.
    pub fn uuid(&self) -> [u8; 16] {
        self.handle.core.uuid
    }

    /// Number of this mount, from 1.
    pub fn mount(&self) -> u64 {
        self.handle.core.mount.load(Ordering::Acquire)
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

    /// Bytes that the zone took then; 0: there is no such zone.
    pub fn capacity(&self, zone: ZoneId) -> u64 {
        self.report_at_open().get(zone.0 as usize).map_or(0, |zone| zone.capacity)
    }

    /// Bytes that every sequential zone took then, but for those that took nothing.
    pub fn least_capacity(&self) -> u64 {
        let sequential = self.report_at_open().iter().filter(|zone| zone.state != ZoneState::Conventional);
        let capacities = sequential.map(|zone| zone.capacity);
        capacities.filter(|capacity| *capacity > 0).min().unwrap_or(self.geometry().zone_size)
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

    /// Writes whole blocks at the write pointer of a sequential zone that the caller has leased, and moves it.
    pub fn write_sequential(&self, zone: &mut OpenZone, buf: &[u8], tag: Tag) -> Result<()> {
        let core = &self.handle.core;
        core.flusher.check()?;
        // A stream of its own for each zone, in the order of turns.
        let stream = u64::MAX - 1 - u64::from(zone.zone.0);
        core.in_turn(stream, tag.priority, buf.len() as u64, || core.put(zone, buf, tag))
    }

    /// The same, beside others of these: writes to several zones may be at the drive at once, whose queue puts them in order. They
    /// share one turn. At most one a zone at a time, which is the caller's business, as is whether the drive gains by it.
    ///
    /// # Errors
    /// Those of [`Volume::write_sequential`].
    pub fn write_beside(&self, zone: &mut OpenZone, buf: &[u8], tag: Tag) -> Result<()> {
        let core = &self.handle.core;
        core.flusher.check()?;
        let mut write = || core.put(zone, buf, tag);
        match &core.turn {
            Some(turn) => turn.run_shared(BESIDE, tag.priority, buf.len() as u64, write),
            None => write(),
        }
    }

    /// Whether zones can be written [in place](Tenant::set_in_place).
    pub fn overwrites(&self) -> bool {
        self.handle.core.drive.device.overwrites()
    }

    /// Writes whole blocks of a zone that the caller has leased and [set in place](Tenant::set_in_place). Writes of a zone may be under way side by side where they
    /// do not overlap.
    ///
    /// # Errors
    /// Those of the drive; some of the bytes may be there then.
    pub fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let core = &self.handle.core;
        core.flusher.check()?;
        let device = core.drive.device.as_ref();
        core.in_turn(u64::MAX, tag.priority, buf.len() as u64, || {
            let longest = device.geometry().max_io as usize;
            buf.chunks(longest)
                .zip(0..)
                .try_for_each(|(piece, n)| device.write_in_place(piece, at + n * longest as u64, tag))
        })
    }

    /// A ticket that covers every write acknowledged so far.
    pub fn ticket(&self) -> Ticket {
        self.handle.core.flusher.ticket()
    }

    /// Waits for the ticket's flush, or leads it.
    pub fn durable(&self, ticket: Ticket, tag: Tag) -> Result<()> {
        self.handle.core.durable(ticket, tag)
    }

    /// Makes every write acknowledged so far durable.
    pub fn sync(&self, tag: Tag) -> Result<()> {
        self.handle.core.sync(tag)
    }

    /// Waits for the flush that is under way, if there is one; not for later ones. For reads that are in no hurry: while a drive
    /// flushes, each of them makes its head go to and fro.
    pub fn wait_for_flush(&self) {
        self.handle.core.flusher.wait_for_current();
    }

    /// The drive's power epoch when the volume was opened.
    pub fn power_epoch(&self) -> [u8; 16] {
        self.handle.core.epoch
    }

    /// Fails once a flush has failed, or the drive has lost what it had acknowledged.
    pub fn check_poison(&self) -> Result<()> {
        self.handle.core.flusher.check()
    }

    /// For a sync that has nothing to flush: fails where the drive tells that it lost power, as a flush would. From then on the volume is poisoned.
    ///
    /// # Errors
    /// That, and those of [`Volume::check_poison`].
    pub fn check_power(&self) -> Result<()> {
        let core = &self.handle.core;
        core.flusher.check()?;
        core.has_power().map_err(|error| core.flusher.poison(error))
    }

    /// Does one piece of background work: writes a full segment, or resets a zone. False: there was nothing to do.
    pub fn step(&self) -> Result<bool> {
        self.handle.core.step()
    }

    /// Lets time pass for what depends on it: how long bytes wait in memory. Without threads it stands still otherwise.
    pub fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.handle.core.passed.fetch_add(nanos, Ordering::AcqRel);
    }

    /// Whether what is not written yet outlives the process.
    pub fn has_survivor(&self) -> bool {
        self.handle.core.drive.keeps_unwritten()
    }

    /// Carries out background work until there is none.
    pub fn quiesce(&self) -> Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// Whether background work is done by threads.
    pub fn is_threaded(&self) -> bool {
        self.handle.core.options.exec != Exec::Inline
    }

    /// Bytes of memory that hold what is not written yet, in whole units, and all bytes of that memory.
    pub fn unwritten(&self) -> (u64, u64) {
        let memory = self.handle.core.memory();
        let (used, all) = memory.usage();
        let bytes = |units: usize| (units * memory.unit()) as u64;
        (bytes(used), bytes(all))
    }

    /// An engine has ended: ends the background threads. With `clean`, everything of it is on the drive: the survivor's region is given up.
    /// Where engines [share](crate::shell) the volume, that is done when the last one lets go of it.
    pub fn shutdown(&self, clean: bool) -> Result<()> {
        let ended = lock(&self.handle.engines).ended(clean);
        ended.map_or(Ok(()), |clean| self.end(clean))
    }

    pub(crate) fn end(&self, clean: bool) -> Result<()> {
        self.handle.stop();
        let core = &self.handle.core;
        if clean && let Err(error) = core.look() {
            return Err(core.flusher.poison(error));
        }
        match &core.drive.survivor {
            Some(survivor) if clean && lock(&core.memory).usage().0 == 0 && lock(&core.left).knows_all() => {
                survivor.discard(&core.uuid)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn core(&self) -> &Arc<VolumeCore> {
        &self.handle.core
    }

    pub(crate) fn engines(&self) -> &Mutex<Engines> {
        &self.handle.engines
    }
}

impl VolumeCore {
    pub(crate) fn key(&self) -> SurvivorKey {
        let medium = self.drive.device.identity().medium;
        let mount = self.mount.load(Ordering::Acquire);
        SurvivorKey { volume: self.uuid, medium, power_epoch: self.epoch, mount }
    }

    pub(crate) fn memory(&self) -> Arc<SegmentMemory> {
        lock(&self.memory).clone()
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::new(&name_of(self.drive.device.as_ref()), fault)
    }

    pub(crate) fn next_writer(&self) -> u64 {
        self.writers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn sync(&self, tag: Tag) -> Result<()> {
        self.durable(self.flusher.ticket(), tag)
    }

    fn durable(&self, ticket: Ticket, tag: Tag) -> Result<()> {
        self.flusher.durable(ticket, || self.flush(tag))
    }

    /// Writes at a sequential zone's write pointer. An error of a drive that no longer has what stood before it is the volume's end.
    fn put(&self, zone: &mut OpenZone, buf: &[u8], tag: Tag) -> Result<()> {
        let at = self.geometry.start(zone.zone) + zone.at;
        if let Err(error) = write_all(self.drive.device.as_ref(), buf, at, tag) {
            if let Ok(now) = self.report_one(zone.zone) {
                self.look_behind(&now, zone.at)?;
            }
            return Err(error);
        }
        zone.at += buf.len() as u64;
        self.taken.up_to(zone.zone, zone.at);
        Ok(())
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

    /// Whether the drive says now that the zone is of no more use.
    pub(crate) fn has_died(&self, zone: ZoneId) -> bool {
        matches!(self.report_one(zone), Ok(z) if matches!(z.state, ZoneState::ReadOnly | ZoneState::Offline))
    }

    fn update_label(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        self.flusher.check()?;
        let mut label = lock(&self.label);
        let mut next = label.clone();
        change(&mut next);
        next.generation += 1;
        next.power = Label::power_of(self.epoch);
        next.check().map_err(|what| self.error(Fault::InvalidInput(what.into())))?;
        // Also after a failure the number is used up: a copy that carries it may have reached the drive.
        label.generation = next.generation;
        let flush = |tag| self.sync(tag);
        let device = self.drive.device.as_ref();
        let floor = self.in_force.load(Ordering::Acquire);
        match self.label_zones.write(device, &next, Some(floor), flush)? {
            true => {
                self.in_force.store(next.generation, Ordering::Release);
                self.memory().goes_with(next.generation);
            }
            false if self.look => self.label_unwritten.store(true, Ordering::Release),
            false => return Err(cannot_write(device)),
        }
        *label = next;
        Ok(())
    }

    fn take(&self, mut behind: Option<(ZoneId, usize)>, owner: u8, urgency: Urgency) -> Result<ZoneId> {
        loop {
            self.flusher.check()?;
            let answer = lock(&self.pool).take_behind(behind, owner, urgency);
            match answer {
                Take::Empty(zone) => return Ok(zone),
                Take::Reset(zone) => {
                    let result = self.reset_zone(zone, Cause::Pool.into());
                    lock(&self.pool).reset_done(zone, result.is_ok());
                    match result {
                        Ok(()) => return Ok(zone),
                        Err(error) => {
                            tracing::warn!(%error, "a zone that cannot be reset is given up");
                            if urgency == Urgency::Reserved {
                                lock(&self.pool).reserve_again(owner);
                            }
                        }
                    }
                }
                Take::Claim(zones) => {
                    let claimed = self.update_label(|label| {
                        for zone in &zones {
                            label.owners[zone.0 as usize] = owner;
                        }
                    });
                    lock(&self.pool).claim_done(&zones, owner, claimed.is_ok());
                    self.freed.notify_all();
                    match (claimed, &mut behind) {
                        (Ok(()), _) => {}
                        // Only for the choice: what is there will do.
                        (Err(_), Some((_, least))) if *least > 0 => *least = 0,
                        (Err(error), _) => return Err(error),
                    }
                }
                Take::Wait => {
                    let pool = lock(&self.pool);
                    if pool.is_changing(owner) {
                        drop(wait(&self.freed, pool));
                    }
                }
                Take::NoSpace => return Err(self.error(Fault::NoSpace)),
            }
        }
    }
}
