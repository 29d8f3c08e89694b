//! Logs that a small engine writes with [`ByteWriter`]s, and notes of where their bytes went.

#![allow(dead_code)]

use imbrex_device::{Cause, Error, Fault, Priority, Result};
use imbrex_zones::write::{
    ByteWriter, Framing, NewZone, PlaceRequest, Placed, Rank, Step, WriteGuard, Writer, WriterSpec, WriterStart,
    Writers,
};
use imbrex_zones::{OpenZone, Reservation, Tenant, Urgency, ZoneHeader, ZoneKeeper};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Where a log's bytes went, and its zones.
#[derive(Default)]
pub struct Notes {
    pub placed: Mutex<Vec<(Placed, Vec<u8>)>>,
    pub zones: Mutex<Vec<u32>>,
}

/// The zones that logs left, and everything that was placed, of all logs.
#[derive(Default)]
pub struct Shared {
    pub parked: Mutex<Vec<OpenZone>>,
    pub placed: Mutex<Vec<(u64, Placed)>>,
}

/// Called when a write begins (`None`), and with what was placed.
pub type Look = Box<dyn Fn(Option<&Placed>) + Send + Sync>;

/// Writes a log. With `shared`, logs share the zones that they left, as an engine's files do, and somebody else may take such a zone to empty it.
pub struct LogWriter {
    pub bytes: ByteWriter,
    pub tenant: Tenant,
    pub file: u64,
    pub notes: Notes,
    pub shared: Option<Arc<Shared>>,
    pub reserved: Mutex<Vec<Reservation>>,
    pub all: Weak<Writers<LogWriter>>,
    /// It finds no zone.
    pub refused: AtomicBool,
    pub look: OnceLock<Look>,
}

impl LogWriter {
    fn no_space(&self) -> Error {
        Error::new(&self.tenant.volume().name(), Fault::NoSpace)
    }

    fn next_zone(&self, logical: u64, need: u64) -> Result<NewZone> {
        if self.refused.load(Ordering::Relaxed) {
            return Err(self.no_space());
        }
        let shared = self.shared.as_ref().and_then(|shared| {
            let mut parked = shared.parked.lock().unwrap();
            let fits = |zone: &OpenZone| zone.capacity - zone.at >= need + 4096;
            parked.iter().position(fits).map(|i| parked.swap_remove(i))
        });
        let (zone, life, at) = match shared {
            Some(open) => (open.zone, open.life, open.at),
            None => {
                // Under the model checker no lock of the standard library may be held where others get their turn.
                let mut reserved = std::mem::take(&mut *self.reserved.lock().unwrap());
                let zone = match reserved.is_empty() {
                    true => self.tenant.take(Urgency::User),
                    false => self.tenant.redeem(&mut reserved),
                };
                self.reserved.lock().unwrap().append(&mut reserved);
                (zone?, self.tenant.new_life(), 0)
            }
        };
        self.notes.zones.lock().unwrap().push(zone.0);
        let header = ZoneHeader {
            volume: self.tenant.volume().uuid(),
            owner: 1,
            kind: 1,
            file: self.file,
            life,
            logical,
            created: 0,
            zone: zone.0,
            mount: 1,
            name: String::new(),
        };
        Ok(NewZone { zone, at, header })
    }
}

impl ZoneKeeper for LogWriter {
    fn leave_one(&self) -> Result<bool> {
        self.all.upgrade().map_or(Ok(false), |all| all.leave_one(None, 0))
    }
}

impl Writer for LogWriter {
    fn bytes(&self) -> &ByteWriter {
        &self.bytes
    }
    fn reserve(&self, _: &PlaceRequest<'_>) -> Result<()> {
        if self.refused.load(Ordering::Relaxed) {
            return Err(self.no_space());
        }
        if self.shared.is_some() && self.reserved.lock().unwrap().is_empty() {
            let reservation = self.tenant.reserve(0)?;
            self.reserved.lock().unwrap().push(reservation);
        }
        Ok(())
    }
    fn idle(&self) {
        let reserved = std::mem::take(&mut *self.reserved.lock().unwrap());
        drop(reserved);
    }
    fn write_front(&self, guard: &mut WriteGuard<'_>, priority: Priority) -> Result<u64> {
        self.look.get().into_iter().for_each(|look| look(None));
        loop {
            match guard.write(priority)? {
                Step::Nothing => return Ok(0),
                Step::Wrote(bytes) => return Ok(bytes),
                Step::Zone { logical, need } => guard.give(self.next_zone(logical, need)?, self)?,
                Step::Resume { .. } => guard.resumed(),
                Step::Announce { size } => guard.announced(size),
                Step::Placed(placed, bytes) => {
                    self.look.get().into_iter().for_each(|look| look(Some(&placed)));
                    match &self.shared {
                        Some(shared) => shared.placed.lock().unwrap().push((self.file, placed)),
                        None => self.notes.placed.lock().unwrap().push((placed, bytes.get().to_vec())),
                    };
                }
            }
        }
    }
    fn leave_zone(&self, zone: &OpenZone, end: u64) -> Result<bool> {
        let Some(shared) = &self.shared else {
            self.tenant.finish_unused(zone.zone);
            return Ok(true);
        };
        let placed = shared.placed.lock().unwrap();
        let len: u64 = placed.iter().filter(|(file, _)| *file == self.file).map(|(_, placed)| placed.len).sum();
        assert_eq!(len, end, "all bytes are on the drive when a log leaves its zone");
        shared.parked.lock().unwrap().push(*zone);
        Ok(true)
    }
}

/// A log as its user sees it.
#[derive(Clone)]
pub struct Log {
    pub writers: Arc<Writers<LogWriter>>,
    pub writer: Arc<LogWriter>,
}

impl Log {
    pub fn append(&self, bytes: &[u8]) -> Result<()> {
        self.writers.append(&self.writer, bytes)
    }
    pub fn drain(&self, priority: Priority) -> Result<()> {
        self.writers.drain(&self.writer, priority)
    }
    pub fn bytes(&self) -> &ByteWriter {
        &self.writer.bytes
    }
    pub fn len(&self) -> u64 {
        self.bytes().len()
    }
    pub fn placed(&self) -> u64 {
        self.bytes().placed()
    }
    pub fn abandon(&self) {
        self.bytes().abandon();
        self.writer.idle();
    }
    pub fn is_abandoned(&self) -> bool {
        self.bytes().is_abandoned()
    }
    pub fn notes(&self) -> &Notes {
        &self.writer.notes
    }
}

/// A log of a tenant.
pub fn log(writers: &Arc<Writers<LogWriter>>, tenant: &Tenant, spec: WriterSpec, shared: Option<&Arc<Shared>>) -> Log {
    let writer = Arc::new(LogWriter {
        bytes: ByteWriter::new(tenant, spec, WriterStart::default()),
        tenant: tenant.clone(),
        file: spec.file,
        notes: Notes::default(),
        shared: shared.cloned(),
        reserved: Mutex::default(),
        all: Arc::downgrade(writers),
        refused: AtomicBool::new(false),
        look: OnceLock::new(),
    });
    writers.add(&writer);
    Log { writers: writers.clone(), writer }
}

/// So many logs of a tenant.
pub fn logs(tenant: &Tenant, files: std::ops::RangeInclusive<u64>, shared: Option<&Arc<Shared>>) -> Vec<Log> {
    let writers = Writers::new(tenant);
    files.map(|file| log(&writers, tenant, spec(file), shared)).collect()
}

/// The same, in the order of a group.
pub fn ranked(file: u64, group: u64, number: u64) -> WriterSpec {
    WriterSpec { rank: Some(Rank { group, number }), ..spec(file) }
}

pub fn spec(file: u64) -> WriterSpec {
    WriterSpec {
        file,
        life: 1,
        framing: Framing::Framed,
        segment_bytes: 12 << 10,
        segments: 2,
        cause: Cause::Wal,
        ordered: false,
        rank: None,
        deferred: 0,
    }
}
