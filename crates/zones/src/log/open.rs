//! Opens a log: which zones of the rings are in use, the newest whole snapshot, and the records behind it. Changes nothing.

use super::chain::{Chain, EachOrGap, Since};
use super::format::{Kind, LogFrame, LogHead, footprint, frame_at, is_cut_off, read_zone};
use super::items::Assembler;
use super::ring::{Ring, Slot};
use super::{BLOCK, Batch, Clock, HEADS, LogZone, LogZoneState, MetaLog, ONE_COPY, Root};
use crate::frame::Scan;
use crate::volume::{Tenant, Volume};
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Written, Zone, ZoneId, ZoneState, report_all};
use std::sync::Arc;

/// Says of a piece whether a salvage wants it, whatever snapshot it belongs to.
pub type Keep<'a> = &'a dyn Fn(&[u8]) -> bool;

/// What a log holds.
pub struct Replay {
    /// Number of the newest whole snapshot; `None`: no snapshot is whole.
    pub snapshot: Option<u64>,
    /// Its pieces.
    pub pieces: Vec<Vec<u8>>,
    /// Pieces of all snapshots, whole or not, that [`Keep`] asked for.
    pub kept: Vec<Vec<u8>>,
    /// Sentences about what could not be read and was skipped.
    pub skipped: Vec<String>,
    /// All copies were read whole.
    pub whole: bool,
    /// Of the only snapshot that is left pieces are missing; it was in the log's only copy.
    pub partial: bool,
    /// The end of the log's only copy is torn, as a power loss leaves it. Any other end that is no frame is told in `skipped`.
    pub torn: bool,
    /// The highest number of a frame, or of a zone's life.
    pub newest: u64,
    /// What a dead process had in memory has this number of a frame.
    pub memory: Option<u64>,
    pub(super) chain: Chain,
    /// Number of the newest record frame, and where it ends in the stream of all record items.
    end: (u64, u64),
    /// The last record frame that the snapshot knows all of.
    start: u64,
}

impl Replay {
    /// Hands the records behind the beginning of the snapshot to `each`, in order, each with the number of its frame.
    pub fn records(&self, each: &mut dyn FnMut(u64, &[u8])) -> Since {
        self.chain.since(self.start, each)
    }

    /// [`Replay::records`], and where some are missing.
    pub fn records_and_gaps(&self, each: &mut EachOrGap<'_>) -> Since {
        self.chain.since_with_gaps(self.start, each)
    }

    /// Hands all records that are left to `each`, also those before the snapshot.
    pub fn all_records(&self, each: &mut dyn FnMut(u64, &[u8])) -> Since {
        self.chain.since(0, each)
    }
}

/// A snapshot that is being read.
#[derive(Default)]
struct Candidate {
    number: u64,
    start: u64,
    logical: u64,
    /// Of the zone where it begins.
    order: u64,
    frames: u64,
    items: Assembler,
    pieces: Vec<Vec<u8>>,
    broken: bool,
    /// Somebody wrote that it is whole.
    finished: bool,
}

impl Candidate {
    /// The next frame of the ring, in the zone of this order, behind the record frame `last`. Returns the snapshot that is whole with it.
    fn put(&mut self, frame: &LogFrame, items: &[u8], order: u64, last: u64, keep: &mut dyn FnMut(&[u8])) -> bool {
        let new = |start: u64, broken: bool| Candidate {
            number: frame.number,
            start,
            logical: frame.logical,
            order,
            broken,
            ..Candidate::default()
        };
        match frame.kind {
            Kind::Records => return false,
            Kind::Begin => *self = new(frame.before, false),
            // Its beginning is lost.
            Kind::Pieces | Kind::Whole if frame.number != self.number => *self = new(last, true),
            Kind::Pieces | Kind::Whole => {}
        }
        match frame.kind {
            Kind::Pieces if frame.before >= self.frames => {
                if frame.before > self.frames {
                    self.broken = true;
                    self.items.gap();
                }
                self.frames = frame.before + 1;
                let pieces = &mut self.pieces;
                let mut each = |piece: &[u8]| {
                    keep(piece);
                    pieces.push(piece.to_vec());
                };
                self.broken |= !self.items.put(frame.first as usize, items, &mut each);
                false
            }
            Kind::Whole => {
                self.finished = true;
                self.broken |= self.frames != frame.before;
                !self.broken
            }
            // A piece that was written twice: the drive has it from a write that failed.
            _ => false,
        }
    }
}

struct Reader<'a> {
    volume: &'a Volume,
    report: &'a [Zone],
    copies: u8,
    replay: Replay,
    keep: Option<Keep<'a>>,
    /// The highest number of a snapshot, whole or not.
    begun: u64,
    /// The zone where the only copy ends with something that is no frame.
    behind: Option<ZoneId>,
    /// Of two copies: the zones in which something is not what was written, or cannot be read, and what is to be told of that.
    damaged: Vec<(ZoneId, Option<String>)>,
    /// A check reads every block. The log that is in use has frames in these zones.
    used: Option<&'a [u32]>,
}

impl MetaLog {
    /// Reads the tenant's log; `None`: it has none yet. Nothing is changed: the caller decides, [adopts](MetaLog::adopt) the zones, and goes on. `progress` hears
    /// how many of how many zones are read.
    ///
    /// # Errors
    /// Those of [`Root::of`] and of the drive, but for what cannot be read: that is told in [`Replay::skipped`].
    pub fn open(
        tenant: &Tenant,
        clock: Clock,
        keep: Option<Keep>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<(MetaLog, Replay)>> {
        let Some(root) = Root::of(tenant)? else { return Ok(None) };
        MetaLog::read(tenant, &root, tenant.volume().report_at_open(), clock, keep, None, progress).map(Some)
    }

    /// What the log that `root` names holds, while somebody writes it; `report`: of all zones, as they are now.
    ///
    /// # Errors
    /// As [`MetaLog::open`].
    pub fn look(tenant: &Tenant, root: &Root, report: &[Zone]) -> Result<Replay> {
        Ok(MetaLog::read(tenant, root, report, Arc::new(|| 0), None, None, &mut |_, _| {})?.1)
    }

    /// What the log holds on the drive, every block of it. A damaged copy is told also where the other one makes up for it. Nobody writes to it meanwhile.
    ///
    /// # Errors
    /// As [`MetaLog::open`].
    pub fn reread(&self) -> Result<Replay> {
        let report = report_all(self.tenant.volume().device().as_ref())?;
        let used = |zone: &LogZone| matches!(zone.state, LogZoneState::Current | LogZoneState::Full);
        let used: Vec<u32> = self.zones().iter().filter(|zone| used(zone)).map(|zone| zone.zone.0).collect();
        let clock: Clock = Arc::new(|| 0);
        let (_, mut found) =
            MetaLog::read(&self.tenant, self.root(), &report, clock, None, Some(&used), &mut |_, _| {})?;
        if self.has_lost_copy() && !found.skipped.iter().any(|told| told == ONE_COPY) {
            found.skipped.push(ONE_COPY.into());
        }
        Ok(found)
    }

    fn read(
        tenant: &Tenant,
        root: &Root,
        report: &[Zone],
        clock: Clock,
        keep: Option<Keep>,
        used: Option<&[u32]>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(MetaLog, Replay)> {
        let replay = Replay {
            snapshot: None,
            pieces: Vec::new(),
            kept: Vec::new(),
            skipped: Vec::new(),
            whole: true,
            partial: false,
            torn: false,
            newest: 0,
            memory: None,
            chain: Chain::default(),
            end: (0, 0),
            start: 0,
        };
        let (volume, copies) = (tenant.volume(), root.copies);
        let mut reader =
            Reader { volume, report, copies, replay, keep, begun: 0, behind: None, damaged: Vec::new(), used };
        let mut rings = Vec::new();
        for copy in 0..root.copies {
            let mut slots = Vec::new();
            for number in root.ring(copy) {
                slots.extend(reader.slot(number, copy)?);
            }
            rings.push(slots);
        }
        let used = rings.iter().flatten().filter(|slot| slot.order > 0).count() as u64;
        let mut done = 0;
        let mut next = || {
            progress(done, used);
            done += 1;
        };
        let mut chosen: Option<Candidate> = None;
        let (mut settled, mut without, mut damaged) = (Vec::new(), false, false);
        for (copy, mut slots) in rings.into_iter().enumerate() {
            let newest = reader.ring(&mut slots, copy as u8, &mut next)?;
            let ring = reader.settle(&mut slots, newest.as_ref());
            damaged |= reader.tell_damaged(&ring);
            without |= newest.is_none() && !ring.is_lost();
            settled.push(ring);
            let number = |of: &Option<Candidate>| of.as_ref().map_or(0, |found| found.number);
            if number(&newest) > number(&chosen) {
                chosen = newest;
            }
        }
        without &= chosen.is_some();
        if without {
            reader.skipped("One copy of the metadata has no whole snapshot".into());
        }
        if let Some(zone) = reader.behind {
            reader.skipped(format!("What stands behind the last frame of metazone {zone} is none"));
        }
        let Reader { mut replay, begun, .. } = reader;
        let mut log = MetaLog::of(tenant, root, settled, clock);
        log.damaged = without || damaged;
        replay.newest = replay.newest.max(replay.chain.newest());
        // Without a whole one the next is newer than any that may be readable again some day.
        log.snapshot = chosen.as_ref().map_or(begun, |found| found.number);
        log.begun = begun;
        if let Some(found) = chosen {
            (replay.snapshot, replay.start, replay.pieces) = (Some(found.number), found.start, found.pieces);
            replay.partial = found.broken;
            replay.newest = replay.newest.max(replay.start);
            replay.end = replay.end.max((found.start, found.logical));
        }
        (log.last, log.given) = (replay.chain.newest().max(replay.start), replay.newest);
        // What earlier mounts have written behind the snapshot counts: each may write little.
        log.grown = if log.last > replay.start { BLOCK } else { 0 };
        log.placed = replay.end.1;
        log.appender.tail().begin(log.placed, Batch::default());
        Ok((log, replay))
    }

    /// The caller's metadata refers to the log's zones. To be said between [`Tenant::begin`] and [`Tenant::adoption_done`].
    ///
    /// # Errors
    /// Where another tenant has one.
    pub fn adopt(&self) -> Result<()> {
        self.rings.iter().flat_map(Ring::slots).try_for_each(|slot| {
            self.tenant.is_of_log(slot.zone);
            self.tenant.adopt(slot.zone)
        })
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

impl Reader<'_> {
    fn skipped(&mut self, mut what: String) {
        self.replay.whole = false;
        what.push_str(if self.copies > 1 { "; its other copy is used." } else { "." });
        self.replay.skipped.push(what);
    }

    fn report(&self, number: u32) -> Option<Zone> {
        self.report.get(number as usize).copied()
    }

    /// What the drive says of a zone of this ring, and its header.
    fn slot(&mut self, number: u32, copy: u8) -> Result<Option<Slot>> {
        let Some(zone) = self.report(number) else { return Ok(None) };
        let capacity = zone.capacity / BLOCK * BLOCK;
        let wp = match zone.written() {
            Written::To(wp) => wp.min(capacity) / BLOCK * BLOCK,
            Written::Untold => capacity,
            Written::Gone => {
                self.skipped(format!("Metazone {number} is offline"));
                0
            }
        };
        let mut slot = Slot {
            capacity,
            tail: wp,
            dead: !(zone.state.writable() || zone.state == ZoneState::Full),
            dirty: zone.wp != Some(0),
            active: zone.state.is_open() || zone.state == ZoneState::Closed,
            ..Slot::empty(ZoneId(number))
        };
        // A check looks at no zone in which nothing of use stands.
        let used = self.used.map(|used| used.contains(&number));
        if wp == 0 && used == Some(true) && zone.written() != Written::Gone {
            self.skipped(format!("Metazone {number} is empty"));
        }
        if wp > 0 && used != Some(false) {
            let told = matches!(zone.written(), Written::To(_)) && zone.state != ZoneState::Full && wp > HEADS * BLOCK;
            // A zone is empty when an only ring gets it.
            let must = used == Some(true) || told && self.copies == 1;
            match self.head((number, copy), must, used == Some(true) && wp >= HEADS * BLOCK)? {
                Some(head) => (slot.order, slot.life) = (head.order, head.life),
                // Its header never came so far; or the zone is of an earlier volume.
                None => slot.tail = 0,
            }
            self.replay.newest = self.replay.newest.max(slot.life);
        }
        Ok(Some(slot))
    }

    /// Of both blocks that have it one is enough. `must`, `both`: where none is, or one is missing, the replay says so.
    fn head(&mut self, (number, copy): (u32, u8), must: bool, both: bool) -> Result<Option<LogHead>> {
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        let address = self.volume.geometry().start(ZoneId(number));
        let (mut unreadable, mut found) = (false, Vec::new());
        for at in (0..HEADS).map(|n| address + n * BLOCK) {
            match self.volume.read(&mut block, at, Cause::Recovery.into()) {
                Ok(()) => {}
                Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
                    unreadable = true;
                    continue;
                }
                // A dead zone does not tell how far it is written: not so far.
                Err(Error { fault: Fault::InvalidInput(_), .. }) => continue,
                Err(error) => return Err(error),
            }
            found.extend(LogHead::decode(&block));
            if !found.is_empty() && !both {
                break;
            }
        }
        if both && found.len() == 1 {
            self.skipped(format!("One of the two headers of metazone {number} is damaged"));
        }
        if let Some(head) = found.into_iter().next() {
            let ours = head.volume == self.volume.uuid() && head.zone == number && head.copy == copy;
            return Ok(Some(head).filter(|_| ours));
        }
        if unreadable {
            self.skipped(format!("Metazone {number} cannot be read"));
        } else if must {
            self.skipped(format!("Metazone {number} has no header any more"));
        }
        Ok(None)
    }

    /// Reads the zones of a ring that are in use, in their order. Returns the newest snapshot that is whole; of the only copy, where none is, what is left
    /// of the newest one.
    fn ring(&mut self, slots: &mut [Slot], copy: u8, next: &mut dyn FnMut()) -> Result<Option<Candidate>> {
        let mut used: Vec<&mut Slot> = slots.iter_mut().filter(|slot| slot.order > 0).collect();
        used.sort_by_key(|slot| slot.order);
        // The one with the highest number, and the last one with a lower number. A mount goes on in front of a zone in which nothing but an interrupted snapshot stands. So
        // that zone may come between two of a newer snapshot.
        let mut open = [Candidate::default(), Candidate::default()];
        let (mut newest, mut last, mut remains) = (None::<(Candidate, u64)>, 0, Candidate::default());
        for slot in &mut used {
            next();
            let Some(zone) = self.report(slot.zone.0) else { continue };
            let (replay, begun, keep, copies) = (&mut self.replay, &mut self.begun, self.keep, self.copies);
            let kept = &mut replay.kept;
            let mut keep = |piece: &[u8]| {
                if keep.is_some_and(|wanted| wanted(piece)) {
                    kept.push(piece.to_vec());
                }
            };
            let (mut end, mut gaps) = (HEADS * BLOCK, Vec::new());
            let mut each = |at: u64, frame: &LogFrame, items: &[u8]| {
                if at > end {
                    gaps.push((end, at));
                }
                end = at + footprint(items.len());
                match frame.kind {
                    Kind::Records => {
                        slot.useful = true;
                        last = frame.number.max(last);
                        let end = frame.logical.saturating_add(items.len() as u64);
                        replay.end = replay.end.max((frame.number, end));
                        replay.chain.put(frame.number, frame.before, frame.first as usize, items);
                    }
                    kind => {
                        // Of the only copy each number that is named was written.
                        if kind == Kind::Begin && copies == 1 {
                            replay.chain.tell(frame.before);
                        }
                        *begun = frame.number.max(*begun);
                        let candidate = &mut open[usize::from(frame.number < open[0].number)];
                        if frame.number != candidate.number {
                            let before = std::mem::take(candidate);
                            // While one is not finished, the one before it counts.
                            if before.finished || remains.number == 0 {
                                remains = before;
                            }
                        }
                        if candidate.put(frame, items, slot.order, last, &mut keep) {
                            newest = Some((std::mem::take(candidate), slot.order));
                        }
                    }
                }
            };
            let mut scan = read_zone(self.volume.device().as_ref(), &zone, (copy, slot.life), &mut each)?;
            // Nothing but a header.
            scan.unreadable.retain(|at| *at >= HEADS * BLOCK);
            if !scan.unreadable.is_empty() {
                // Perhaps it can be read the next time.
                slot.useful = true;
                let n = scan.unreadable.len();
                self.skipped(format!("{n} places of metazone {} cannot be read", slot.zone));
                self.damaged.extend((self.copies > 1).then_some((slot.zone, None)));
            }
            match self.copies {
                1 => self.look_behind(&zone, (copy, slot.life), end, &scan)?,
                // What is missing from an only copy is missing from its chain of frames.
                _ => self.look_between(&zone, (copy, slot.life), gaps, end, &scan)?,
            }
        }
        if newest.is_none() && self.copies == 1 {
            let [highest, lower] = open;
            let left = match (highest.finished, lower.finished) {
                (false, true) => lower,
                (false, false) if remains.number > 0 => remains,
                _ => highest,
            };
            if left.number > 0 {
                used.iter_mut().for_each(|slot| slot.useful |= slot.order >= left.order);
                self.skipped(format!("Pieces of snapshot {} are lost", left.number));
                return Ok(Some(Candidate { broken: true, ..left }));
            }
        }
        Ok(newest.map(|(whole, end)| {
            used.iter_mut().for_each(|slot| slot.useful |= (whole.order..=end).contains(&slot.order));
            whole
        }))
    }

    /// Whether the bytes behind the last frame of a zone of the only copy are those of a frame that a power loss cut off.
    fn look_behind(&mut self, zone: &Zone, (copy, life): (u8, u64), end: u64, scan: &Scan) -> Result<()> {
        (self.replay.torn, self.behind) = (false, None);
        let Written::To(wp) = zone.written() else { return Ok(()) };
        if end >= wp || scan.unreadable.iter().any(|at| *at >= end) {
            return Ok(());
        }
        let block = self.block(zone, end, wp)?;
        self.replay.torn = is_cut_off(&block, (copy, life), end, wp);
        // Nothing stands in the rest of a zone that was finished.
        let finished = zone.state == ZoneState::Full && is_zero(&block);
        self.behind = (!self.replay.torn && !finished).then_some(zone.id);
        Ok(())
    }

    /// The block at byte `at` of a zone that is written up to byte `end`, as far as it is written.
    fn block(&self, zone: &Zone, at: u64, end: u64) -> Result<AlignedBuf> {
        let mut block = AlignedBuf::zeroed(end.saturating_sub(at).min(BLOCK) as usize);
        self.volume.read(&mut block, self.volume.geometry().start(zone.id) + at, Cause::Recovery.into())?;
        Ok(block)
    }

    /// Tells damage of one of two copies: whatever stands between the whole frames of a zone must be frames that a power loss, or a write that failed, cut off.
    fn look_between(
        &mut self,
        zone: &Zone,
        (copy, life): (u8, u64),
        mut gaps: Vec<(u64, u64)>,
        end: u64,
        scan: &Scan,
    ) -> Result<()> {
        let full = zone.state == ZoneState::Full;
        match zone.written() {
            Written::To(wp) if end < wp => gaps.push((end, wp)),
            _ => {}
        }
        let mut damaged = 0;
        for (from, to) in gaps {
            if scan.unreadable.iter().any(|at| (from..to).contains(at)) {
                continue;
            }
            let sound = self.is_cut_off(zone, (copy, life), (from, to), full && from == end);
            damaged += match sound {
                Ok(sound) => usize::from(!sound),
                Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => 1,
                Err(error) => return Err(error),
            };
        }
        if damaged > 0 {
            let told = format!("{damaged} places of metazone {} are not what was written", zone.id);
            self.damaged.push((zone.id, Some(told)));
        }
        Ok(())
    }

    /// Whether nothing stands in these bytes of a zone but frames that were cut off, each by the next one or by the end. `finished`: the rest of the zone is zeros.
    fn is_cut_off(&self, zone: &Zone, of: (u8, u64), (mut at, to): (u64, u64), finished: bool) -> Result<bool> {
        loop {
            let block = self.block(zone, at, to)?;
            let Some(frame) = frame_at(&block, of, at) else { return Ok(finished && is_zero(&block)) };
            let bytes = frame.footprint(BLOCK as u32);
            let (end, mut next) = ((at + bytes).min(to), at + BLOCK);
            while next < end && frame_at(&self.block(zone, next, to)?, of, next).is_none() {
                next += BLOCK;
            }
            match next < end {
                true => at = next,
                false if bytes > to - at => return Ok(true),
                false => {
                    // A drive of smaller blocks may have some of the last 4,096 bytes.
                    let unit = self.volume.geometry().block.min(BLOCK as u32);
                    let last = at + frame.footprint(unit) - u64::from(unit);
                    return Ok(finished && is_zero(&self.block(zone, last, last + u64::from(unit))?));
                }
            }
        }
    }

    /// Tells damage of zones of a ring, as far as they count. Whether a snapshot in another zone takes any away.
    fn tell_damaged(&mut self, ring: &Ring) -> bool {
        let counts = |zone: ZoneId| ring.slots().iter().any(|slot| slot.zone == zone && slot.order > 0);
        let mut any = false;
        for (_, told) in std::mem::take(&mut self.damaged).into_iter().filter(|(zone, _)| counts(*zone)) {
            any = true;
            told.into_iter().for_each(|told| self.skipped(told));
        }
        any && !ring.is_lost()
    }

    /// What is before a ring's own newest snapshot is of no use any more, nor are zones that hold pieces of an interrupted one and nothing else. A zone that
    /// takes no writes is left behind, and so is one that is damaged, where another one is free: the next snapshot takes the damage away.
    fn settle(&mut self, slots: &mut [Slot], newest: Option<&Candidate>) -> Ring {
        let oldest = newest.map_or(0, |found| found.order);
        let order = slots.iter().map(|slot| slot.order).max().unwrap_or(0);
        for slot in &mut *slots {
            if slot.order < oldest || !slot.useful {
                slot.order = 0;
            }
        }
        let is_free = slots.iter().any(|slot| slot.order == 0 && !slot.dead);
        for slot in &mut *slots {
            // Not in whole blocks is not at all.
            let takes = |zone: Zone| zone.state.writable() && zone.wp.is_some_and(|wp| wp % BLOCK == 0);
            let stays = self.report(slot.zone.0).is_some_and(takes)
                && !(is_free && self.damaged.iter().any(|(zone, _)| *zone == slot.zone));
            if slot.order > 0 && !stays {
                slot.tail = slot.capacity;
            }
        }
        let mut ring = Ring::new(slots.to_vec(), order);
        if self.copies > 1 && ring.tell_lost() {
            self.replay.skipped.push(ONE_COPY.into());
        }
        ring
    }
}
