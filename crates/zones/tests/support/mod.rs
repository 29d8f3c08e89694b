//! The smallest engine that stands on a volume: one log whose byte at offset *i* is `pattern(i)`, and whose zones stand in
//! the root blob. What it finds after a crash is therefore checked byte by byte, and bytes of an earlier life of a zone
//! show at once.

#![allow(dead_code)]

use imbrex_device::{AlignedBuf, Cause, Drive, Priority, Result, Tag, Written, Zone, ZoneId, report_all};
use imbrex_emulator::{Config, Overrides, Profile};
use imbrex_zones::frame::{FRAME_HEADER, FrameId, scan};
use imbrex_zones::write::{ByteWriter, Framing, NewZone, Step, WriteGuard, Writer, WriterSpec, WriterStart, Writers};
use imbrex_zones::{
    Budget, Exec, FormatOptions, OpenZone, Tenant, TenantSpec, Urgency, Volume, VolumeOptions, ZoneHeader, ZoneKeeper,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub const FILE: u64 = 7;
pub const TAG: Tag = Tag::new(Cause::Wal);
pub const FRONT: u64 = 4096;

/// The byte at this offset of the log.
pub fn pattern(i: u64) -> u8 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8
}

pub fn bytes(from: u64, n: usize) -> Vec<u8> {
    (from..from + n as u64).map(pattern).collect()
}

/// 16 zones of 64 KiB, three of them conventional: every promise about zones is met within a few hundred commands.
pub fn config() -> Config {
    with_conventional(3)
}

/// The same with so many conventional zones; without two the labels stand in sequential zones, four in each.
pub fn with_conventional(conventional: u32) -> Config {
    let tiny = Profile::named("tiny").expect("a built-in profile");
    let over = Overrides {
        capacity: Some(1 << 20),
        zone_size: Some(64 << 10),
        conventional: Some(conventional),
        ..Overrides::default()
    };
    Config::new(&tiny, &over)
}

pub fn options() -> VolumeOptions {
    VolumeOptions { exec: Exec::Inline, survivor_bytes: 256 << 10, unit_bytes: 4 << 10, turn_bytes: 32 << 10 }
}

pub fn format(drive: &Drive) -> Result<()> {
    let tenants = vec![TenantSpec { name: "log".into(), budget: Budget::keeping(0, 1) }];
    Volume::format(drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false })
}

/// A stretch of the log in a zone. Framed logs need but one a zone; raw ones one more behind each padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub zone: u32,
    pub life: u64,
    pub logical: u64,
    pub at: u64,
}

/// What the root blob says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// First byte of the log that is kept.
    pub base: u64,
    /// Raw: where the last piece ends, if its last write is padded; else `u64::MAX`.
    pub size: u64,
    /// A number the workload counts up, and bytes that follow from it.
    pub version: u64,
    pub pieces: Vec<Piece>,
}

/// Fills the root to lengths that differ by version.
fn filler(version: u64) -> Vec<u8> {
    vec![version as u8; (version * 37 % 256) as usize]
}

impl Root {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [self.base, self.size, self.version, self.pieces.len() as u64] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        for p in &self.pieces {
            for n in [u64::from(p.zone), p.life, p.logical << 20 | p.at] {
                out.extend_from_slice(&n.to_le_bytes());
            }
        }
        out.extend_from_slice(&filler(self.version));
        out
    }

    pub fn decode(bytes: &[u8]) -> std::result::Result<Root, String> {
        if bytes.is_empty() {
            return Ok(Root { size: u64::MAX, ..Root::default() });
        }
        let word = |i: usize| -> std::result::Result<u64, String> {
            let bytes = bytes.get(i * 8..i * 8 + 8).ok_or("the root is cut off")?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| "eight bytes")?))
        };
        let mut root = Root { base: word(0)?, size: word(1)?, version: word(2)?, pieces: Vec::new() };
        let count = word(3)? as usize;
        for i in 0..count {
            let (zone, life, place) = (word(4 + 3 * i)?, word(5 + 3 * i)?, word(6 + 3 * i)?);
            root.pieces.push(Piece { zone: zone as u32, life, logical: place >> 20, at: place & 0xf_ffff });
        }
        if bytes[(4 + 3 * count) * 8..] != filler(root.version) {
            return Err("the root's filler is of another version".into());
        }
        Ok(root)
    }
}

/// Keeps the root.
pub struct Keeper {
    pub tenant: Tenant,
    pub root: Mutex<Root>,
    /// What a dead process had acknowledged is being written.
    pub recovering: AtomicBool,
}

impl Keeper {
    pub fn change(&self, change: impl FnOnce(&mut Root)) -> Result<()> {
        let mut root = self.root.lock().unwrap();
        let mut next = root.clone();
        change(&mut next);
        if next != *root {
            self.tenant.set_root(&next.encode())?;
            *root = next;
        }
        Ok(())
    }

    fn add(&self, piece: Piece) -> Result<()> {
        self.change(|root| {
            // A zone that took nothing is replaced by the next one.
            root.pieces.retain(|p| p.logical < piece.logical);
            root.pieces.push(piece);
            // A size beyond the piece's beginning was announced for the write that is about to come.
            if root.size <= piece.logical {
                root.size = u64::MAX;
            }
        })
    }
}

/// The log's writer.
pub struct LogWriter {
    keeper: Arc<Keeper>,
    bytes: ByteWriter,
}

/// Nobody has a zone but the log.
struct NoZones;

impl ZoneKeeper for NoZones {
    fn leave_one(&self) -> Result<bool> {
        Ok(false)
    }
}

impl LogWriter {
    fn next_zone(&self, logical: u64) -> Result<NewZone> {
        let tenant = &self.keeper.tenant;
        let recovering = self.keeper.recovering.load(Ordering::Relaxed);
        let zone = tenant.take(if recovering { Urgency::Recovered } else { Urgency::User })?;
        let life = tenant.new_life();
        if let Err(error) = self.keeper.add(Piece { zone: zone.0, life, logical, at: FRONT }) {
            tenant.release(zone);
            return Err(error);
        }
        let volume = tenant.volume();
        let header = ZoneHeader {
            volume: volume.uuid(),
            owner: tenant.owner(),
            kind: 1,
            file: FILE,
            life,
            logical,
            created: 0,
            zone: zone.0,
            mount: volume.mount() as u32,
            name: "log".into(),
        };
        Ok(NewZone { zone, at: 0, header })
    }
}

impl Writer for LogWriter {
    fn bytes(&self) -> &ByteWriter {
        &self.bytes
    }

    fn write_front(&self, guard: &mut WriteGuard<'_>, priority: Priority) -> Result<u64> {
        loop {
            match guard.write(priority)? {
                Step::Nothing => return Ok(0),
                Step::Wrote(bytes) => return Ok(bytes),
                Step::Zone { logical, .. } => guard.give(self.next_zone(logical)?, &NoZones)?,
                Step::Resume { logical, zone: OpenZone { zone, life, at, .. } } => {
                    if !self.bytes.is_framed() {
                        self.keeper.add(Piece { zone: zone.0, life, logical, at })?;
                    }
                    guard.resumed();
                }
                Step::Announce { size } => {
                    self.keeper.change(|root| root.size = size)?;
                    guard.announced(size);
                }
                Step::Placed(..) => {}
            }
        }
    }
}

/// The log as its user sees it.
pub struct Stream {
    writers: Arc<Writers<LogWriter>>,
    writer: Arc<LogWriter>,
}

impl Stream {
    pub fn new(keeper: &Arc<Keeper>, spec: WriterSpec, start: WriterStart) -> Stream {
        let writers = Writers::new(&keeper.tenant);
        let bytes = ByteWriter::new(&keeper.tenant, spec, start);
        let writer = Arc::new(LogWriter { keeper: keeper.clone(), bytes });
        writers.add(&writer);
        Stream { writers, writer }
    }

    pub fn append(&self, bytes: &[u8]) -> Result<()> {
        self.writers.append(&self.writer, bytes)
    }

    pub fn drain(&self, priority: Priority) -> Result<()> {
        self.writers.drain(&self.writer, priority)
    }

    pub fn len(&self) -> u64 {
        self.writer.bytes.len()
    }
}

pub struct Engine {
    pub volume: Volume,
    pub keeper: Arc<Keeper>,
    pub stream: Stream,
    pub framing: Framing,
    /// Bytes that came from the survivor.
    pub replayed: u64,
}

/// Where the log ends on the drive, its bytes from `base`, and where a writer goes on.
struct Found {
    bytes: Vec<u8>,
    zone: Option<OpenZone>,
    sequence: u64,
}

fn read_blocks(volume: &Volume, zone: u32, at: u64, len: u64) -> Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len.next_multiple_of(4096) as usize);
    volume.read(&mut buf, volume.geometry().start(ZoneId(zone)) + at, TAG)?;
    Ok(buf)
}

/// How far a zone was written that does not say so any more: no block of this log is all zeros.
fn last_written(volume: &Volume, zone: Zone) -> Result<u64> {
    let bytes = read_blocks(volume, zone.id.0, 0, zone.capacity)?;
    let last = bytes.iter().rposition(|byte| *byte != 0);
    Ok(last.map_or(0, |last| (last as u64 + 1).next_multiple_of(4096)))
}

fn find(volume: &Volume, root: &Root, zones: &[Zone], framing: Framing) -> Result<Found> {
    let mut found = Found { bytes: Vec::new(), zone: None, sequence: 0 };
    for (i, piece) in root.pieces.iter().enumerate() {
        let zone = zones[piece.zone as usize];
        let wp = match zone.written() {
            Written::To(wp) => wp,
            Written::Untold => last_written(volume, zone)?,
            Written::Gone => 0,
        };
        let end = root.base + found.bytes.len() as u64;
        match framing {
            Framing::Framed => {
                let start = volume.geometry().start(zone.id);
                let mut read = |at: u64, buf: &mut [u8]| volume.read(buf, start + at, TAG);
                let id = FrameId { file: FILE, life: piece.life };
                for frame in scan(&mut read, id, FRONT, wp.max(FRONT), 4096)?.frames {
                    let end = root.base + found.bytes.len() as u64;
                    found.sequence = frame.sequence + 1;
                    if frame.logical > end || frame.end() <= end {
                        continue;
                    }
                    let image = read_blocks(volume, piece.zone, frame.at, frame.footprint(4096))?;
                    let skip = FRAME_HEADER + (end - frame.logical) as usize;
                    found.bytes.extend_from_slice(&image[skip..FRAME_HEADER + frame.len as usize]);
                }
            }
            Framing::Raw => {
                if piece.logical != end {
                    break;
                }
                let to = root.pieces.get(i + 1).map_or(root.size, |next| next.logical);
                let n = wp.saturating_sub(piece.at).min(to.saturating_sub(piece.logical));
                let image = read_blocks(volume, piece.zone, piece.at, n)?;
                found.bytes.extend_from_slice(&image[..n as usize]);
            }
        }
        let room = zone.state.writable() && wp >= FRONT && wp < zone.capacity;
        let open = OpenZone { zone: zone.id, life: piece.life, at: wp, capacity: zone.capacity };
        found.zone = room.then_some(open);
    }
    Ok(found)
}

impl Engine {
    /// Mounts, replays, and makes durable what was replayed.
    pub fn open(drive: Drive, framing: Framing) -> std::result::Result<Engine, String> {
        Self::try_open(drive, framing, options()).map_err(|e| e.to_string())
    }

    pub fn try_open(drive: Drive, framing: Framing, options: VolumeOptions) -> Result<Engine> {
        Self::over(Volume::open(drive, options)?, framing)
    }

    /// The same for a drive whose label can no longer be written.
    pub fn look(drive: Drive, framing: Framing) -> std::result::Result<Engine, String> {
        let volume = Volume::look(drive, options()).map_err(|e| e.to_string())?;
        Self::over(volume, framing).map_err(|e| e.to_string())
    }

    fn over(volume: Volume, framing: Framing) -> Result<Engine> {
        Self::of(volume, "log", framing)
    }

    /// The log of any tenant.
    pub fn of(volume: Volume, name: &str, framing: Framing) -> Result<Engine> {
        let tenant = volume.tenant(name)?;
        let root = Root::decode(&tenant.root()).expect("a root is whole or not there");
        for piece in &root.pieces {
            tenant.adopt(ZoneId(piece.zone))?;
        }
        tenant.adoption_done();
        let found = find(&volume, &root, volume.report_at_open(), framing)?;
        let end = root.base + found.bytes.len() as u64;
        let keeper = Arc::new(Keeper { tenant: tenant.clone(), root: Mutex::new(root), recovering: true.into() });
        // The write that this size was announced for never came.
        keeper.change(|root| root.size = if root.size > end { u64::MAX } else { root.size })?;
        let spec = WriterSpec {
            file: FILE,
            life: 1,
            framing,
            segment_bytes: 16 << 10,
            segments: 3,
            cause: Cause::Wal,
            ordered: true,
            rank: None,
            deferred: 0,
        };
        let start = WriterStart { logical: end, zone: found.zone, sequence: found.sequence };
        let stream = Stream::new(&keeper, spec, start);
        let mut engine = Engine { volume, keeper, stream, framing, replayed: 0 };
        for segment in tenant.left_behind() {
            let (from, to) = (segment.key.logical, segment.key.logical + segment.bytes.len() as u64);
            let end = engine.stream.len();
            if segment.key.file != FILE || from > end {
                break;
            }
            if to > end {
                engine.stream.append(&segment.bytes[(end - from) as usize..])?;
                engine.replayed += to - end;
            }
        }
        engine.stream.drain(Priority::Normal)?;
        tenant.recovered()?;
        engine.keeper.recovering.store(false, Ordering::Relaxed);
        Ok(engine)
    }

    pub fn append(&self, n: usize) -> Result<u64> {
        let at = self.stream.len();
        self.stream.append(&bytes(at, n))?;
        Ok(at + n as u64)
    }

    pub fn sync(&self) -> Result<()> {
        self.stream.drain(Priority::High)?;
        self.volume.sync(TAG)
    }

    pub fn root(&self) -> Root {
        self.keeper.root.lock().unwrap().clone()
    }

    /// What stands on the drive, from the log's base.
    pub fn contents(&self) -> Result<Vec<u8>> {
        let zones = report_all(self.volume.device().as_ref())?;
        Ok(find(&self.volume, &self.root(), &zones, self.framing)?.bytes)
    }

    /// Gives up the zones before the last one. The log's new base, if there is one.
    pub fn trim_to(&self) -> Option<u64> {
        let pieces = self.root().pieces;
        let last = pieces.last()?.zone;
        let first = pieces.iter().find(|p| p.zone == last)?;
        (first.logical > self.root().base).then_some(first.logical)
    }

    pub fn trim(&self, base: u64) -> Result<()> {
        let old = self.root();
        self.keeper.change(|root| {
            root.pieces.retain(|p| p.logical >= base);
            root.base = base;
        })?;
        let kept: Vec<u32> = self.root().pieces.iter().map(|p| p.zone).collect();
        let mut gone: Vec<u32> = old.pieces.iter().map(|p| p.zone).filter(|z| !kept.contains(z)).collect();
        gone.dedup();
        // Only now: the root that forgot them is durable.
        gone.into_iter().for_each(|zone| self.keeper.tenant.release(ZoneId(zone)));
        Ok(())
    }
}

/// An engine that dies with its process: dropping a stream gives its memory back, which a killed process does not do. So
/// the dead are kept until their run is long over.
pub struct Mortal(Option<Engine>);

impl Mortal {
    pub fn open(drive: Drive, framing: Framing) -> std::result::Result<Mortal, String> {
        Engine::open(drive, framing).map(|engine| Mortal(Some(engine)))
    }
}

impl std::ops::Deref for Mortal {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        self.0.as_ref().expect("it lives until it is dropped")
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        static DEAD: Mutex<VecDeque<Engine>> = Mutex::new(VecDeque::new());
        let mut dead = DEAD.lock().unwrap();
        dead.extend(self.0.take());
        if dead.len() > 128 {
            dead.pop_front();
        }
    }
}
