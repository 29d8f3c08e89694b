//! A log of batches in one sequential zone. A batch is several blocks and counts only whole. What was put and not yet
//! synced stands in the survivor; a mount replays it. The mount number stands in two copies in the conventional zones.

use super::{BLOCK, TAG, read, seal, sealed, text, word};
use imbrex_crashkit::{Crash, FaultKind, History, Log, Subject};
use imbrex_device::{AlignedBuf, Drive, Region, SurvivorKey, ZoneId, ZonedDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    None,
    /// `sync` does not flush.
    ForgetsFlush,
    /// Everything below the write pointer counts, whole batch or not.
    TrustsWritePointer,
    /// The survivor's key says nothing of power epochs and mounts, and what it holds is appended as it is.
    ReplaysStaleSurvivor,
    /// A put returns before the batch is in the survivor.
    AcksTooEarly,
    /// A mount replaces the survivor's region before what it held is on the drive.
    DropsSurvivorTooEarly,
    /// A mount replaces the survivor's region before what it held is durable.
    NeverFlushesReplay,
    /// A bad block counts as the log's end.
    TakesBadBlockForEnd,
    /// A flush that failed is reported as success.
    HidesFailedFlush,
    /// Panics where a flush fails.
    UnwrapsFlush,
    /// Tries a write that fails again for ever.
    RetriesForEver,
    /// Writes without looking where the write pointer is, and looks when that fails.
    GuessesWritePointer,
    /// Puts the time into its blocks.
    LooksAtClock,
    /// The check panics.
    PanicsInCheck,
    /// The check never ends.
    HangsInCheck,
    /// The workload never ends.
    HangsInWorkload,
}

pub struct Batches {
    pub defect: Defect,
    pub puts: u64,
}

/// A batch: its number, and how many blocks it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub number: u64,
    pub blocks: u64,
    pub value: u64,
}

const ZONE: ZoneId = ZoneId(3);
const CAPACITY: usize = 16 << 10;
const VOLUME: [u8; 16] = *b"a tiny log......";

impl Batches {
    pub fn new(defect: Defect) -> Self {
        Batches { defect, puts: 6 }
    }

    fn key(&self, device: &dyn ZonedDevice, mount: u64) -> SurvivorKey {
        let identity = device.identity();
        let stale = self.defect == Defect::ReplaysStaleSurvivor;
        SurvivorKey {
            volume: VOLUME,
            medium: identity.medium,
            power_epoch: if stale { [0; 16] } else { identity.power_epoch },
            mount: if stale { 0 } else { mount },
        }
    }

    fn write_mount(device: &dyn ZonedDevice, mount: u64) -> Result<(), String> {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        seal(&mut buf, &[mount]);
        for copy in 0..2 {
            device.write_at(&buf, copy * device.geometry().zone_size, TAG).map_err(text)?;
            device.flush(TAG).map_err(text)?;
        }
        Ok(())
    }

    fn read_mount(device: &dyn ZonedDevice) -> Result<u64, String> {
        let mut newest = None;
        for copy in 0..2 {
            let buf = read(device, copy * device.geometry().zone_size, 1)?;
            if sealed(&buf) {
                newest = newest.max(Some(word(&buf, 1)));
            }
        }
        newest.ok_or_else(|| "no copy of the mount number is valid".to_owned())
    }

    fn open(&self, drive: Drive) -> Result<Open, String> {
        let device = drive.device.as_ref();
        let survivor = drive.survivor.as_ref().ok_or("no survivor")?;
        let mount = Self::read_mount(device)?;
        let left = survivor.left_behind(&self.key(device, mount)).map_err(text)?.unwrap_or_default();
        let mut log = self.scan(device)?;
        let early = self.defect == Defect::DropsSurvivorTooEarly;
        if early {
            Self::write_mount(device, mount + 1)?;
            survivor.create(&self.key(device, mount + 1), CAPACITY).map_err(text)?;
        }
        let blocks = left.chunks_exact(BLOCK).take_while(|block| sealed(block));
        for batch in whole_batches(blocks, false) {
            // What is already on the drive is not appended again, and nothing behind a gap.
            if self.defect == Defect::ReplaysStaleSurvivor || batch.number == log.len() as u64 {
                append(device, &encode(&batch))?;
                log.push(batch);
            }
        }
        if self.defect != Defect::NeverFlushesReplay {
            device.flush(TAG).map_err(text)?;
        }
        if !early {
            self.next_mount(device, mount)?;
        }
        let region = survivor.create(&self.key(device, mount + 1), CAPACITY).map_err(text)?;
        Ok(Open { defect: self.defect, drive: drive.clone(), region, unsynced: 0, log })
    }

    fn next_mount(&self, device: &dyn ZonedDevice, mount: u64) -> Result<(), String> {
        // The flushes of the mount number would cover what was replayed, too.
        if self.defect != Defect::NeverFlushesReplay {
            return Self::write_mount(device, mount + 1);
        }
        let mut buf = AlignedBuf::zeroed(BLOCK);
        seal(&mut buf, &[mount + 1]);
        (0..2).try_for_each(|copy| device.write_at(&buf, copy * device.geometry().zone_size, TAG).map_err(text))
    }

    fn scan(&self, device: &dyn ZonedDevice) -> Result<Vec<Batch>, String> {
        let start = device.geometry().start(ZONE);
        let mut blocks = Vec::new();
        for block in 0..write_pointer(device)? / BLOCK as u64 {
            match read(device, start + block * BLOCK as u64, 1) {
                Ok(buf) => blocks.push(buf),
                Err(_) if self.defect == Defect::TakesBadBlockForEnd => break,
                Err(why) => return Err(why),
            }
        }
        if let Some(bad) = blocks.iter().position(|block| !sealed(block)) {
            return Err(format!("block {bad} is damaged"));
        }
        Ok(whole_batches(blocks.iter().map(|b| &b[..]), self.defect == Defect::TrustsWritePointer))
    }
}

fn write_pointer(device: &dyn ZonedDevice) -> Result<u64, String> {
    let mut zone = [imbrex_device::Zone::EMPTY];
    device.report(ZONE, &mut zone).map_err(text)?;
    zone[0].wp.ok_or_else(|| "the log's zone is gone".to_owned())
}

fn encode(batch: &Batch) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(batch.blocks as usize * BLOCK);
    for (i, block) in buf.chunks_exact_mut(BLOCK).enumerate() {
        seal(block, &[batch.number, i as u64, batch.blocks, batch.value]);
    }
    buf
}

/// The batches that are whole, in order; with `torn` the others too.
fn whole_batches<'a>(blocks: impl Iterator<Item = &'a [u8]>, torn: bool) -> Vec<Batch> {
    let (mut batches, mut next): (Vec<Batch>, u64) = (Vec::new(), 0);
    for block in blocks {
        let batch = Batch { number: word(block, 1), blocks: word(block, 3), value: word(block, 4) };
        let index = word(block, 2);
        next = if index == 0 || index == next { index + 1 } else { 0 };
        if next == batch.blocks || torn && index == 0 {
            batches.push(batch);
        }
    }
    batches
}

fn append(device: &dyn ZonedDevice, bytes: &[u8]) -> Result<(), String> {
    let at = device.geometry().start(ZONE) + write_pointer(device)?;
    device.write_at(bytes, at, TAG).map_err(text)
}

struct Open {
    defect: Defect,
    drive: Drive,
    region: Arc<dyn Region>,
    /// Blocks in the region that are not on the drive.
    unsynced: usize,
    log: Vec<Batch>,
}

impl Open {
    fn next(&self, seed: u64) -> Batch {
        let number = self.log.len() as u64;
        Batch { number, blocks: 1 + (seed + number) % 3, value: seed }
    }

    /// The words of the region, which other processes may look at.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: aligned, valid for `len` bytes as long as the region lives, and only ever used as atomics here.
        unsafe { std::slice::from_raw_parts(self.region.base().as_ptr().cast(), self.region.len() / 8) }
    }

    fn put(&mut self, batch: Batch, acked: impl FnOnce()) -> Result<(), String> {
        let bytes = encode(&batch);
        if (self.unsynced + batch.blocks as usize) * BLOCK > CAPACITY {
            self.sync()?;
        }
        let acked = if self.defect == Defect::AcksTooEarly {
            acked();
            None
        } else {
            Some(acked)
        };
        let slot = &self.words()[self.unsynced * BLOCK / 8..];
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            slot[i].store(super::word(word, 0), Ordering::Relaxed);
        }
        self.unsynced += batch.blocks as usize;
        self.log.push(batch);
        if let Some(acked) = acked {
            acked();
        }
        Ok(())
    }

    /// Writes what is unsynced, flushes, and empties the region.
    fn sync(&mut self) -> Result<(), String> {
        let device = self.drive.device.as_ref();
        if self.unsynced > 0 {
            let mut bytes = AlignedBuf::zeroed(self.unsynced * BLOCK);
            for (word, slot) in bytes.chunks_exact_mut(8).zip(self.words()) {
                word.copy_from_slice(&slot.load(Ordering::Relaxed).to_le_bytes());
            }
            if self.defect == Defect::LooksAtClock {
                let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64);
                let block = self.log.last().ok_or("nothing put")?;
                seal(&mut bytes[..BLOCK], &[block.number, 0, block.blocks, now]);
            }
            match self.defect {
                Defect::GuessesWritePointer => {
                    let guess = device.geometry().start(ZONE);
                    device.write_at(&bytes, guess, TAG).or_else(|_| append(device, &bytes))?;
                }
                Defect::RetriesForEver => {
                    while append(device, &bytes).is_err() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                _ => append(device, &bytes)?,
            }
        }
        match self.defect {
            Defect::ForgetsFlush => {}
            Defect::HidesFailedFlush => drop(device.flush(TAG)),
            Defect::UnwrapsFlush => device.flush(TAG).unwrap(),
            _ => device.flush(TAG).map_err(text)?,
        }
        for word in &self.words()[..self.unsynced * BLOCK / 8] {
            word.store(0, Ordering::Relaxed);
        }
        self.unsynced = 0;
        Ok(())
    }
}

fn takes_the_zone(kind: FaultKind) -> bool {
    kind == FaultKind::ZoneReadOnly || FaultKind::DAMAGING.contains(&kind)
}

impl Subject for Batches {
    type Op = Batch;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        Self::write_mount(drive.device.as_ref(), 1)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Batch>) -> Result<(), String> {
        let mut open = self.open(drive)?;
        for n in 0..self.puts {
            let batch = open.next(seed);
            let id = log.begun(batch.clone());
            open.put(batch, || log.acked(id))?;
            if n % 3 == 2 {
                open.sync()?;
                log.synced_up_to(id);
            }
            if self.defect == Defect::HangsInWorkload {
                std::thread::sleep(Duration::from_secs(1_000_000));
            }
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.open(drive).map(drop)
    }

    fn check(&self, drive: Drive, _crash: Crash, history: &History<Batch>) -> Result<(), String> {
        match self.defect {
            Defect::PanicsInCheck => panic!("as it was told"),
            Defect::HangsInCheck => std::thread::sleep(Duration::from_secs(1_000_000)),
            _ => {}
        }
        let mut open = match self.open(drive.clone()) {
            Ok(open) => open,
            // Where the log's one zone is gone or damaged, a clear error is all that this engine can give.
            Err(_) if history.fault().is_some_and(|fault| takes_the_zone(fault.kind)) => return Ok(()),
            Err(why) => return Err(why),
        };
        history.expect_prefix(&open.log)?;
        if history.fault().is_some_and(|fault| takes_the_zone(fault.kind)) {
            return Ok(());
        }
        let batch = open.next(9);
        open.put(batch.clone(), || ())?;
        open.sync()?;
        drop(open);
        match self.open(drive)?.log.last() {
            Some(last) if *last == batch => Ok(()),
            other => Err(format!("after a synced {batch:?} the log ends with {other:?}")),
        }
    }
}
