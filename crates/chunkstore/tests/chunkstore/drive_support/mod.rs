//! A drive in memory of which tests know what is at it at once, and which they hold up.

use imbrex_device::{Cause, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::Emulator;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Longer than anything takes that goes on at all.
const FOREVER: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct Seen {
    /// Writes at the drive by zone, and the most that there ever were, of one zone and of all.
    writing: BTreeMap<u32, usize>,
    pub most_of_a_zone: usize,
    pub most: usize,
    /// Writes that came.
    pub writes: usize,
    /// Zones and lengths of those that were of users' bytes, in the order in which they came.
    pub user_writes: Vec<(u32, usize)>,
    /// Zones with writes that are not flushed, labels' left out; and how often a label was written while there were some.
    unflushed: BTreeSet<u32>,
    pub labels_over_unflushed: usize,
    /// Reads at the drive, and the most that there ever were.
    reading: usize,
    pub most_reads: usize,
    /// Zones whose writes wait until they are let go.
    held: BTreeSet<u32>,
    /// Zones that take no writes.
    failing: BTreeSet<u32>,
    /// So many zones cannot be finished.
    pub fail_finishes: usize,
    /// So many writes are carried out, and then none any more.
    left: Option<usize>,
    /// So many commands are carried out, and then the power fails.
    power: Option<usize>,
    /// Zones whose writes were at the drive at that moment.
    torn: BTreeSet<u32>,
    /// So many writes, or reads, meet at the drive before one of them is carried out.
    meet: usize,
    meet_reads: usize,
}

/// See the module.
pub struct Watched {
    drive: Emulator,
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Watched {
    pub fn new(drive: Emulator) -> Arc<Watched> {
        Arc::new(Watched { drive, seen: Mutex::default(), changed: Condvar::new() })
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Nothing of what comes is carried out before so many writes, to different zones, are there.
    pub fn meet(&self, writes: usize) {
        self.seen().meet = writes;
    }

    pub fn meet_reads(&self, reads: usize) {
        self.seen().meet_reads = reads;
    }

    pub fn hold(&self, zone: u32) {
        self.seen().held.insert(zone);
    }

    pub fn fail(&self, zone: u32) {
        self.seen().failing.insert(zone);
    }

    /// After so many more writes it takes none any more.
    pub fn die_after(&self, writes: usize) {
        self.seen().left = Some(writes);
    }

    /// After so many more commands the power fails; of the writes that come then, as from other threads at that moment, a few are carried out
    /// in part, one a zone.
    pub fn power_fails_after(&self, commands: usize) {
        self.seen().power = Some(commands);
    }

    /// What is left when the power comes back.
    pub fn after_power_loss(&self, seed: u64) -> Emulator {
        self.drive.after_power_loss(seed).unwrap()
    }

    /// Whether the power has failed before this command.
    fn is_dark(&self) -> bool {
        let mut seen = self.seen();
        let dark = seen.power == Some(0);
        seen.power = seen.power.map(|left| left.saturating_sub(1));
        dark
    }

    /// The write that was under way in this zone when the power failed, in part.
    fn tear(&self, buf: &[u8], at: u64, zone: u32, tag: Tag) {
        let mut seen = self.seen();
        if seen.torn.len() < 4 && seen.torn.insert(zone) {
            let blocks = buf.len() / 4096 + 1;
            let part = &buf[..(at as usize / 4096 * 7 + seen.writes * 5) % blocks * 4096];
            if !part.is_empty() {
                // Behind the write pointer where others were to come before it.
                drop(self.drive.write_at(part, at, tag));
            }
        }
    }

    fn dark(&self) -> Error {
        Error::io(&self.identity().name, std::io::Error::other("no power"))
    }

    pub fn let_go(&self) {
        let mut seen = self.seen();
        seen.held.clear();
        seen.failing.clear();
        seen.left = None;
        self.changed.notify_all();
    }

    /// Returns when a write to this zone is at the drive.
    pub fn wait_for(&self, zone: u32) {
        drop(self.until(self.seen(), |seen| seen.writing.get(&zone).is_some_and(|n| *n > 0)));
    }

    fn until<'a>(&self, seen: MutexGuard<'a, Seen>, what: impl Fn(&Seen) -> bool) -> MutexGuard<'a, Seen> {
        let (seen, time) = self.changed.wait_timeout_while(seen, FOREVER, |seen| !what(seen)).unwrap();
        assert!(!time.timed_out(), "what should be at the drive never comes");
        seen
    }
}

impl ZonedDevice for Watched {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        {
            let mut seen = self.seen();
            seen.reading += 1;
            seen.most_reads = seen.most_reads.max(seen.reading);
            self.changed.notify_all();
            seen = self.until(seen, |seen| seen.most_reads >= seen.meet_reads);
            drop(seen);
        }
        let result = self.drive.read_at(buf, at, tag);
        self.seen().reading -= 1;
        result
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let zone = self.geometry().zone_of(at).0;
        let failing = {
            let mut seen = self.seen();
            seen.writes += 1;
            if tag.cause == Cause::UserWrite {
                seen.user_writes.push((zone, buf.len()));
            }
            if tag.cause != Cause::Label {
                seen.unflushed.insert(zone);
            } else if !seen.unflushed.is_empty() {
                seen.labels_over_unflushed += 1;
            }
            *seen.writing.entry(zone).or_default() += 1;
            seen.most_of_a_zone = seen.most_of_a_zone.max(seen.writing[&zone]);
            seen.most = seen.most.max(seen.writing.values().sum());
            self.changed.notify_all();
            seen = self.until(seen, |seen| !seen.held.contains(&zone) && seen.most >= seen.meet);
            let dead = seen.left == Some(0);
            seen.left = seen.left.map(|left| left.saturating_sub(1));
            dead || seen.failing.contains(&zone)
        };
        let dark = self.is_dark();
        if dark {
            self.tear(buf, at, zone, tag);
        }
        let result = match failing {
            _ if dark => Err(self.dark()),
            true => Err(Error::new(&self.identity().name, Fault::ReadOnly).at(ZoneId(zone), at)),
            false => self.drive.write_at(buf, at, tag),
        };
        *self.seen().writing.get_mut(&zone).unwrap() -= 1;
        result
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        if self.is_dark() {
            return Err(self.dark());
        }
        self.seen().unflushed.clear();
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        if self.is_dark() {
            return Err(self.dark());
        }
        let mut seen = self.seen();
        if op == ZoneOp::Finish && seen.fail_finishes > 0 {
            seen.fail_finishes -= 1;
            return Err(Error::new(&self.identity().name, Fault::TooManyActive).at(zone, 0));
        }
        drop(seen);
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}
