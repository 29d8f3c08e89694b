//! What a banded drive must and may hold after a crash, by what was done to it.

use imbrex_device::banded::Banded;
use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};

pub const TAG: Tag = Tag::new(Cause::Check);
pub const BLOCK: u64 = 4096;

/// What was asked of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// So many blocks at the write pointer of a zone (sequential), or at a block of zone 0.
    Write {
        zone: u32,
        at: u64,
        blocks: u64,
    },
    Reset(u32),
    Finish(u32),
    Open(u32),
    Close(u32),
    Flush,
}

/// A command, the disk's commands when it began, and when it was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub command: Command,
    pub began: usize,
    pub acknowledged: usize,
}

/// Where a zone may stand.
#[derive(Clone, Copy, Debug)]
struct Range {
    life: u32,
    /// Blocks that must be there, and that may.
    least: u64,
    most: u64,
    finished: bool,
    /// It may or may not be finished.
    finishing: bool,
}

/// Bytes of a block that no other block ever has; never zeros.
pub fn pattern(zone: u32, life: u32, block: u64, blocks: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed((blocks * BLOCK) as usize);
    for (i, one) in buf.chunks_mut(BLOCK as usize).enumerate() {
        let mark = (u64::from(zone) << 48) + (u64::from(life) << 32) + block + i as u64 + 1;
        one.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = mark.to_le_bytes());
    }
    buf
}

/// After a crash before the disk's command number `cut` ended, with the power lost or not.
pub struct Promise<'a> {
    pub done: &'a [Done],
    pub cut: usize,
    pub power: bool,
    pub capacity: u64,
}

impl Promise<'_> {
    /// Every place that `zone` may be in: before the command that was cut, and behind it.
    fn zone(&self, zone: u32) -> Vec<Range> {
        let mut now = Range { life: 0, least: 0, most: 0, finished: false, finishing: false };
        let mut all = Vec::new();
        for done in self.done.iter().take_while(|done| done.began <= self.cut) {
            let acknowledged = done.acknowledged <= self.cut;
            match done.command {
                Command::Write { zone: z, blocks, .. } if z == zone => {
                    now.most += blocks;
                    if acknowledged && !self.power {
                        now.least = now.most;
                    }
                }
                Command::Reset(z) if z == zone => {
                    if !acknowledged {
                        all.push(now);
                    }
                    now = Range { life: now.life + 1, least: 0, most: 0, finished: false, finishing: false };
                }
                Command::Finish(z) if z == zone => {
                    now.finished |= acknowledged;
                    now.finishing |= !acknowledged;
                    if acknowledged {
                        // Durable with what was written before it.
                        now.least = now.most;
                    }
                }
                Command::Flush if acknowledged => now.least = now.most,
                _ => {}
            }
        }
        all.push(now);
        all
    }

    /// Compares a drive with what was promised of it; `Err` says what is wrong.
    pub fn check(&self, drive: &Banded) -> Result<(), String> {
        for zone in report_all(drive).map_err(|error| error.to_string())? {
            if zone.state == ZoneState::Conventional {
                self.check_conventional(drive, zone.id.0)?;
                continue;
            }
            self.check_zone(drive, zone.id.0)?;
        }
        Ok(())
    }

    /// Compares one sequential zone.
    pub fn check_zone(&self, drive: &Banded, id: u32) -> Result<(), String> {
        let mut zone = [imbrex_device::Zone::EMPTY];
        drive.report(ZoneId(id), &mut zone).map_err(|error| error.to_string())?;
        let [zone] = zone;
        let life = drive.resets(zone.id).ok_or("no such zone")?;
        let all = self.zone(id);
        let Some(range) = all.iter().find(|range| range.life == life) else {
            return Err(format!("zone {id} is in life {life}, promised was {all:?}"));
        };
        let kept = held(drive, id, life, self.capacity)?;
        let wp = zone.wp.ok_or("a sequential zone without a write pointer")? / BLOCK;
        if kept < range.least || kept > range.most {
            return Err(format!("zone {id} holds {kept} blocks, promised was {range:?}"));
        }
        let full = zone.state == ZoneState::Full;
        let may_be_full = range.finished || range.finishing || kept == self.capacity;
        let must_be_full = range.finished || kept == self.capacity;
        if full && !may_be_full || !full && must_be_full {
            return Err(format!("zone {id} is {} with {kept} blocks, promised was {range:?}", zone.state.name()));
        }
        if wp != if full { self.capacity } else { kept } {
            return Err(format!("zone {id} holds {kept} blocks and its write pointer is {wp}"));
        }
        if self.power && zone.state.is_open() {
            return Err(format!("zone {id} is open after a power loss"));
        }
        Ok(())
    }

    /// Each block of a conventional zone is a version that was not flushed away.
    fn check_conventional(&self, drive: &Banded, zone: u32) -> Result<(), String> {
        for block in 0..self.capacity {
            let mut may = vec![0];
            for done in self.done.iter().take_while(|done| done.began <= self.cut) {
                let acknowledged = done.acknowledged <= self.cut;
                match done.command {
                    Command::Write { zone: z, at, blocks } if z == zone && (at..at + blocks).contains(&block) => {
                        if acknowledged && !self.power {
                            may.clear();
                        }
                        may.push(done.began as u64 + 1);
                    }
                    Command::Flush if acknowledged => may = may.split_off(may.len() - 1),
                    _ => {}
                }
            }
            let mut buf = AlignedBuf::zeroed(BLOCK as usize);
            let at = u64::from(zone) * self.capacity * BLOCK + block * BLOCK;
            drive.read_at(&mut buf, at, TAG).map_err(|error| error.to_string())?;
            // A block may be torn between sectors: each is one of the versions.
            for sector in buf.chunks(512) {
                let (words, _) = sector.as_chunks::<8>();
                let version = u64::from_le_bytes(words[0]) & 0xffff_ffff;
                let version = if version > 0 { version - block } else { 0 };
                if words.iter().any(|word| *word != words[0]) || !may.contains(&version) {
                    return Err(format!("block {block} of zone {zone} is of version {version}, promised was {may:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Blocks that a zone holds from its start; behind them it must read as zeros.
fn held(drive: &Banded, zone: u32, life: u32, capacity: u64) -> Result<u64, String> {
    let mut buf = AlignedBuf::zeroed((capacity * BLOCK) as usize);
    drive.read_at(&mut buf, u64::from(zone) * capacity * BLOCK, TAG).map_err(|error| error.to_string())?;
    let mut kept = 0;
    let mut ended = false;
    for (i, block) in buf.chunks(BLOCK as usize).enumerate() {
        if !ended && block == &*pattern(zone, life, i as u64, 1) {
            kept += 1;
        } else if block.iter().all(|byte| *byte == 0) {
            ended = true;
        } else {
            return Err(format!("block {i} of zone {zone} in life {life} is neither its bytes nor zeros"));
        }
    }
    Ok(kept)
}

/// Does a command; a write's bytes follow from zone, life and place (conventional: from `version`).
pub fn perform(drive: &Banded, command: Command, version: u64) -> imbrex_device::Result<()> {
    let capacity = drive.layout().band;
    match command {
        Command::Write { zone, at, blocks } => {
            let conventional = zone < drive.layout().conventional;
            let life = drive.resets(ZoneId(zone)).unwrap_or(0);
            let from = if conventional { version + at } else { at };
            drive.write_at(&pattern(zone, life, from, blocks), u64::from(zone) * capacity + at * BLOCK, TAG)
        }
        Command::Reset(zone) => drive.zone_op(ZoneOp::Reset, ZoneId(zone), TAG),
        Command::Finish(zone) => drive.zone_op(ZoneOp::Finish, ZoneId(zone), TAG),
        Command::Open(zone) => drive.zone_op(ZoneOp::Open, ZoneId(zone), TAG),
        Command::Close(zone) => drive.zone_op(ZoneOp::Close, ZoneId(zone), TAG),
        Command::Flush => drive.flush(TAG),
    }
}
