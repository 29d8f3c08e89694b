//! Reads and writes: each command is checked against the rules, then moves bytes, then is counted.

use crate::drive::{Inner, Slot, lock};
use crate::faults::{WHOLE, WriteFate, injected};
use crate::state::ZoneWord;
use crate::stats::{Rule, counter};
use crate::store::Store;
use crate::time::engine::What;
use imbrex_device::{Error, Fault, Result, Tag, ZoneId, ZoneState};
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Gives a claimed sequential zone back.
pub(crate) struct Claim<'a>(&'a Slot);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.0.side).claimed = false;
    }
}

struct RangeClaim<'a>(&'a Slot, (u64, u64));

impl Drop for RangeClaim<'_> {
    fn drop(&mut self) {
        lock(&self.0.side).ranges.retain(|range| *range != self.1);
    }
}

/// A host without room for the image, in words: whether its disk, a quota or a limit is the cause, the kind is
/// `StorageFull`, which callers take for a state that can end.
fn without_room(error: io::Error) -> io::Error {
    let sentence = match error.kind() {
        ErrorKind::StorageFull => "the host's disk is full under the drive image; make room on it and try again",
        ErrorKind::QuotaExceeded => {
            "the host's quota for the drive image is used up; make room or have the quota raised, and try again"
        }
        ErrorKind::FileTooLarge => {
            "the host's limit on file sizes keeps the drive image from growing; raise it (ulimit -f) and open the drive \
             again"
        }
        _ => return error,
    };
    io::Error::new(ErrorKind::StorageFull, sentence)
}

impl Inner {
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.config.block)
    }

    /// Blocks that a zone can hold.
    pub(crate) fn capacity_blocks(&self, zone: ZoneId) -> u64 {
        self.capacity(zone) / self.block()
    }

    fn capacity(&self, zone: ZoneId) -> u64 {
        if zone.0 < self.config.conventional { self.config.zone_size } else { self.config.zone_capacity }
    }

    pub(crate) fn conventional(&self, zone: ZoneId) -> bool {
        zone.0 < self.config.conventional
    }

    pub(crate) fn slot(&self, zone: ZoneId) -> &Slot {
        &self.slots[zone.0 as usize]
    }

    pub(crate) fn place(&self, at: u64) -> (ZoneId, u64) {
        (self.geometry.zone_of(at), at % self.geometry.zone_size)
    }

    /// Bytes from the zone's start that hold data.
    pub(crate) fn readable(&self, zone: ZoneId) -> u64 {
        if self.conventional(zone) { self.config.zone_size } else { self.state.zone(zone.0).written * self.block() }
    }

    /// Counts and words an error that is the host's fault.
    pub(crate) fn violation(&self, rule: Rule, fault: Fault, zone: ZoneId, at: u64, tag: Tag) -> Error {
        self.state.count(tag.cause, counter::rule_violations, 1);
        self.state.count_global(rule as usize, 1);
        Error::new(&self.identity.name, fault).at(zone, at)
    }

    /// Counts and words an error that is not.
    pub(crate) fn failure(&self, fault: Fault, zone: ZoneId, at: u64, tag: Tag) -> Error {
        self.state.count(tag.cause, counter::errors, 1);
        Error::new(&self.identity.name, fault).at(zone, at)
    }

    fn io_failure(&self, error: io::Error, zone: ZoneId, at: u64, tag: Tag) -> Error {
        self.failure(Fault::Io(Arc::new(without_room(error))), zone, at, tag)
    }

    pub(crate) fn writable(&self, zone: ZoneId, at: u64, tag: Tag) -> Result<()> {
        if self.mode.read_only { Err(self.failure(Fault::ReadOnly, zone, at, tag)) } else { Ok(()) }
    }

    fn check_command(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let geometry = &self.geometry;
        let block = self.block();
        let len = buf.len() as u64;
        let zone = geometry.zone_of(at);
        let refuse = |rule, text: String| Err(self.violation(rule, Fault::InvalidInput(text.into()), zone, at, tag));
        if len == 0 || !len.is_multiple_of(block) {
            return refuse(
                Rule::Alignment,
                format!("length {len} is not a positive multiple of the block size {block}"),
            );
        }
        if !at.is_multiple_of(block) {
            return refuse(Rule::Alignment, format!("offset {at} is not a multiple of the block size {block}"));
        }
        if !(buf.as_ptr() as usize).is_multiple_of(geometry.mem_align as usize) {
            return refuse(Rule::Alignment, format!("the buffer is not aligned to {} bytes", geometry.mem_align));
        }
        if len > u64::from(geometry.max_io) {
            return refuse(Rule::TooLong, format!("length {len} is more than the largest command {}", geometry.max_io));
        }
        if at >= geometry.size() || len > geometry.size() - at {
            return refuse(
                Rule::Range,
                format!("{len} bytes at {at} end behind the drive's {} bytes", geometry.size()),
            );
        }
        Ok(())
    }

    pub(crate) fn read(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.check_command(buf, at, tag)?;
        let (zone, offset) = self.place(at);
        let len = buf.len() as u64;
        if offset + len > self.geometry.zone_size && !self.geometry.reads_cross_zones {
            let text = "a read across zones, which this drive does not allow";
            return Err(self.violation(Rule::CrossesZones, Fault::InvalidInput(text.into()), zone, at, tag));
        }
        self.pass_time(What::Read, at, len, 0.0, tag);
        let good = self.faults.first_bad(at, len, self.block());
        let wanted = good.unwrap_or(len) as usize;
        let mut done = 0;
        while done < wanted {
            let (zone, offset) = self.place(at + done as u64);
            let n = (wanted - done).min((self.geometry.zone_size - offset) as usize);
            self.read_in_zone(&mut buf[done..done + n], zone, offset, tag)?;
            done += n;
        }
        if let Some(len) = good {
            return Err(self.failure(Fault::Media { len }, self.geometry.zone_of(at + len), at, tag));
        }
        self.state.count(tag.cause, counter::reads, 1);
        self.state.count(tag.cause, counter::bytes_read, len);
        Ok(())
    }

    fn read_in_zone(&self, out: &mut [u8], zone: ZoneId, offset: u64, tag: Tag) -> Result<()> {
        let at = self.geometry.start(zone) + offset;
        let _data = self.slot(zone).data.read().unwrap_or_else(PoisonError::into_inner);
        let word = self.state.zone(zone.0);
        if word.state == ZoneState::Offline {
            return Err(self.failure(Fault::Offline, zone, at, tag));
        }
        let readable = self.readable(zone);
        if offset + out.len() as u64 > readable && !self.geometry.reads_above_wp && !word.finished {
            let text = format!("a read above the write pointer {readable}, which this drive does not allow");
            return Err(self.violation(Rule::ReadAboveWp, Fault::InvalidInput(text.into()), zone, at, tag));
        }
        let stored = readable.saturating_sub(offset).min(out.len() as u64) as usize;
        let (data, zeros) = out.split_at_mut(stored);
        zeros.fill(0);
        if data.is_empty() {
            return Ok(());
        }
        self.store.read(zone.0, offset, data).map_err(|error| self.io_failure(error, zone, at, tag))
    }

    pub(crate) fn write(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.check_command(buf, at, tag)?;
        let (zone, offset) = self.place(at);
        self.writable(zone, at, tag)?;
        if offset + buf.len() as u64 > self.geometry.zone_size {
            let fault = Fault::InvalidInput("a write across zones".into());
            return Err(self.violation(Rule::CrossesZones, fault, zone, at, tag));
        }
        if self.conventional(zone) {
            self.write_conventional(buf, zone, offset, tag)?;
            self.state.count(tag.cause, counter::writes_conventional, 1);
            self.state.count(tag.cause, counter::bytes_written_conventional, buf.len() as u64);
        } else {
            self.write_sequential(buf, zone, offset, tag)?;
        }
        self.faults.heal(at, buf.len() as u64);
        self.state.count(tag.cause, counter::writes, 1);
        self.state.count(tag.cause, counter::bytes_written, buf.len() as u64);
        if self.mode.host_sync && !self.state.write_cache() {
            self.sync_host().map_err(|error| self.io_failure(error, zone, at, tag))?;
        }
        Ok(())
    }

    /// Claims a sequential zone for one command.
    pub(crate) fn claim(&self, zone: ZoneId, at: u64, tag: Tag) -> Result<Claim<'_>> {
        let slot = self.slot(zone);
        let mut side = lock(&slot.side);
        if side.claimed {
            drop(side);
            let fault = Fault::InvalidInput("a second command on a zone that has one in flight".into());
            return Err(self.violation(Rule::InFlight, fault, zone, at, tag));
        }
        side.claimed = true;
        Ok(Claim(slot))
    }

    pub(crate) fn dead(&self, word: ZoneWord, zone: ZoneId, at: u64, tag: Tag) -> Result<()> {
        match word.state {
            ZoneState::ReadOnly => Err(self.failure(Fault::ReadOnly, zone, at, tag)),
            ZoneState::Offline => Err(self.failure(Fault::Offline, zone, at, tag)),
            _ => Ok(()),
        }
    }

    fn write_sequential(&self, buf: &[u8], zone: ZoneId, offset: u64, tag: Tag) -> Result<()> {
        let at = self.geometry.start(zone) + offset;
        let _claim = self.claim(zone, at, tag)?;
        let word = self.state.zone(zone.0);
        self.dead(word, zone, at, tag)?;
        let wp = word.written * self.block();
        if word.state == ZoneState::Full {
            return Err(self.violation(Rule::Capacity, Fault::ZoneFull, zone, at, tag));
        }
        if offset != wp {
            let fault = Fault::WritePointer { expected: wp, got: offset };
            return Err(self.violation(Rule::WritePointer, fault, zone, at, tag));
        }
        if offset + buf.len() as u64 > self.config.zone_capacity {
            return Err(self.violation(Rule::Capacity, Fault::ZoneFull, zone, at, tag));
        }
        let mut zone_ms = 0.0;
        if !word.state.is_open() {
            let closed = self.open_zone(zone, false, at, tag)?;
            zone_ms = self.clock.get().map_or(0.0, |clock| clock.params().open_ms(closed));
        }
        // Claimed all the while: who writes to the zone meanwhile breaks the rule on a real drive too.
        self.pass_time(What::Write, at, buf.len() as u64, zone_ms, tag);
        let blocks = buf.len() as u64 / self.block();
        let (kept, error) = self.put(buf, zone, offset);
        if kept > 0 {
            self.publish(zone, kept, at, tag)?;
        } else if !word.state.is_open() {
            self.unopen_zone(zone, word);
        }
        match error {
            Some(error) => Err(self.io_failure(error, zone, at, tag)),
            None => {
                debug_assert_eq!(kept, blocks);
                Ok(())
            }
        }
    }

    /// Puts a sequential write's bytes into the store; returns how many blocks of it count, and why not all.
    fn put(&self, buf: &[u8], zone: ZoneId, offset: u64) -> (u64, Option<io::Error>) {
        let blocks = buf.len() as u64 / self.block();
        let (take, error) = match self.faults.on_write(zone) {
            WriteFate::Goes => (blocks, None),
            WriteFate::Torn(WHOLE) => (blocks, Some(injected("write"))),
            WriteFate::Torn(keep) => (keep.min(blocks - 1), Some(injected("write"))),
            WriteFate::HostFull => return (0, Some(io::ErrorKind::StorageFull.into())),
        };
        let _data = self.slot(zone).data.read().unwrap_or_else(PoisonError::into_inner);
        match self.store.write(zone.0, offset, &buf[..(take * self.block()) as usize]) {
            Ok(()) => (take, error),
            Err(error) => (0, Some(error)),
        }
    }

    /// Moves the write pointer over bytes that are in the store.
    fn publish(&self, zone: ZoneId, blocks: u64, at: u64, tag: Tag) -> Result<()> {
        let fills = self.state.zone(zone.0).written + blocks == self.capacity_blocks(zone);
        let mut open = fills.then(|| lock(&self.open));
        let mut side = lock(&self.slot(zone).side);
        let word = self.state.zone(zone.0);
        self.dead(word, zone, at, tag)?;
        let mut new = ZoneWord { written: word.written + blocks, ..word };
        if let Some(open) = open.as_mut() {
            open.leave(zone.0, word.state);
            new.state = ZoneState::Full;
        }
        self.state.set_zone(zone.0, new);
        // A full zone gives its active resource back at once, so what is in it may not fall back behind a power loss
        // where that resource is limited.
        let durable = !self.state.write_cache() || (fills && self.geometry.max_active.is_some());
        if durable && !side.dirty {
            self.state.set_flushed(zone.0, new.written);
            return Ok(());
        }
        let bytes = blocks * self.block();
        let at_risk = self.at_risk.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if durable {
            self.harden(zone, &mut side);
            return Ok(());
        }
        if !side.dirty {
            side.dirty = true;
            lock(&self.dirty).push_back(zone.0);
        }
        drop((side, open));
        if at_risk > self.config.cache_bytes {
            self.destage();
        }
        Ok(())
    }

    fn write_conventional(&self, buf: &[u8], zone: ZoneId, offset: u64, tag: Tag) -> Result<()> {
        let at = self.geometry.start(zone) + offset;
        let slot = self.slot(zone);
        let range = (offset, offset + buf.len() as u64);
        let mut side = lock(&slot.side);
        if side.ranges.iter().any(|other| other.0 < range.1 && range.0 < other.1) {
            drop(side);
            let fault = Fault::InvalidInput("a write over another one that is in flight".into());
            return Err(self.violation(Rule::InFlight, fault, zone, at, tag));
        }
        side.ranges.push(range);
        drop(side);
        let _claim = RangeClaim(slot, range);
        self.dead(self.state.zone(zone.0), zone, at, tag)?;
        self.pass_time(What::Write, at, buf.len() as u64, 0.0, tag);
        let fate = self.faults.on_write(zone);
        self.overwrite(buf, zone, offset, fate).map_err(|error| self.io_failure(error, zone, at, tag))
    }

    fn overwrite(&self, buf: &[u8], zone: ZoneId, offset: u64, fate: WriteFate) -> io::Result<()> {
        let (buf, error) = match fate {
            WriteFate::Goes => (buf, None),
            WriteFate::Torn(WHOLE) => (buf, Some(injected("write"))),
            WriteFate::Torn(keep) => {
                let keep = keep.min(buf.len() as u64 / self.block() - 1) * self.block();
                (&buf[..keep as usize], Some(injected("write")))
            }
            WriteFate::HostFull => return Err(io::ErrorKind::StorageFull.into()),
        };
        if !buf.is_empty() {
            let mut log = lock(&self.pre_images);
            let _data = self.slot(zone).data.write().unwrap_or_else(PoisonError::into_inner);
            let cached = self.state.write_cache();
            let read = |out: &mut [u8]| self.store.read(zone.0, offset, out);
            let mut before = Vec::new();
            if cached {
                log.push(&self.state, self.geometry.start(zone) + offset, buf.len(), read)?;
            } else if matches!(self.store, Store::File(_)) {
                before.resize(buf.len(), 0);
                read(&mut before)?;
            }
            if let Err(error) = self.store.write(zone.0, offset, buf) {
                if cached {
                    log.newest(&self.state).inspect(|before| self.put_back(zone, offset, before));
                    log.undo_push(&self.state);
                } else {
                    self.put_back(zone, offset, &before);
                }
                return Err(error);
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Undoes a write that stopped half way: what was overwritten has its blocks on the host, so this finds room.
    fn put_back(&self, zone: ZoneId, offset: u64, before: &[u8]) {
        let block = self.config.block as usize;
        for (i, part) in before.chunks(block).enumerate() {
            let mut now = vec![0; part.len()];
            let offset = offset + (i * block) as u64;
            let same = self.store.read(zone.0, offset, &mut now).is_ok() && now == part;
            if !same && let Err(error) = self.store.write(zone.0, offset, part) {
                tracing::error!(%zone, offset, %error, "a failed write could not be undone");
            }
        }
    }
}
