//! Space of the mounted file system: zones and conventional units are taken for files, reserved, parked behind closed files, pinned by
//! readers of what has no name any more, and given back.
//!
//! Nothing is given back before the journal record that forgot it is durable, and no zone before the last file without a name that
//! has bytes in it is closed. The lock order is that of [`crate::file::core`].

use crate::file::FileState;
use crate::file::core::{Core, MetaState};
use crate::meta::{Effect, FreedPlace, Record, Serial};
use crate::policy::WAL_SPARE;
use crate::policy::cleaning::{are_few, are_scarce};
use crate::policy::share::{Class, worth_parking};
use crate::sync::lock;
use imbrex_device::{Code, Error, Result, ZoneId};
use imbrex_zones::{OpenZone, Reservation, Urgency, ZoneKeeper};
use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::Ordering;

/// A drive may limit how many zones are neither empty nor full.
impl ZoneKeeper for Core {
    fn settle(&self) -> Result<()> {
        self.sync_journal()
    }

    fn leave_one(&self) -> Result<bool> {
        self.writers.leave_one(None, 0)
    }
}

impl Core {
    /// Gives up what record `lsn` freed, as soon as it may be: space of an open file that lost its last name with its last handle.
    pub(crate) fn note_freed(&self, state: &mut MetaState, effect: Effect, lsn: u64) {
        for freed in effect.freed {
            let open = state.files.get(&freed.serial).and_then(Weak::upgrade).filter(|_| freed.unlinked);
            let (mut zones, mut conventional) = (Vec::new(), Vec::new());
            for place in freed.places {
                match place {
                    FreedPlace::Zone { zone, .. } => zones.push(zone),
                    FreedPlace::Conventional { addr, len } => conventional.push((addr, len)),
                }
            }
            if let Some(file) = &open {
                file.state.lsn.fetch_max(lsn, Ordering::AcqRel);
                // Others may have bytes in a zone of it that is not freed now, and delete them before it is closed.
                let shared = file
                    .state
                    .map()
                    .extents
                    .iter()
                    .filter_map(|e| e.place.zone())
                    .map(|(zone, _)| zone)
                    .collect::<Vec<_>>();
                self.pin_for(&file.state, zones.iter().copied().chain(shared));
            }
            for zone in zones {
                self.parked.forget(zone);
                self.tenant.forget(ZoneId(zone), lsn);
            }
            match open {
                Some(file) => {
                    lock(&file.state.orphan).get_or_insert_default().extend(conventional);
                    // Nobody waits for a log that is deleted: a writer of it that begins now sees that itself.
                    file.state.rank().into_iter().for_each(|rank| self.writers.leave_order(rank, freed.serial));
                }
                None => {
                    if freed.unlinked {
                        self.forget_pages_of(freed.serial, freed.size);
                    }
                    self.small.forget(conventional, lsn);
                }
            }
        }
    }

    /// Nobody reads this file, of so many bytes, any more. (Its space tells nothing: a zone that it shares is not freed with it.)
    pub(crate) fn forget_pages_of(&self, serial: Serial, size: u64) {
        self.cache.forget_file(serial, size.div_ceil(u64::from(self.cache.page_size())));
    }

    /// A file without a name keeps these zones until it is closed.
    pub(crate) fn pin_for(&self, file: &FileState, zones: impl Iterator<Item = u32>) {
        let mut pinned = lock(&file.pinned);
        for zone in zones {
            if pinned.insert(zone) {
                self.tenant.pin(ZoneId(zone));
            }
        }
    }

    /// The file is closed, or has a name.
    pub(crate) fn unpin_of(&self, file: &FileState) {
        std::mem::take(&mut *lock(&file.pinned)).into_iter().for_each(|zone| self.tenant.unpin(ZoneId(zone)));
    }

    /// Zones that must stay as they are.
    pub(crate) fn busy_zones(&self) -> BTreeSet<u32> {
        let mut busy = self.tenant.pinned();
        busy.extend(self.parked.look(|parking| parking.reserved_zones().collect::<Vec<_>>()));
        busy
    }

    /// A file's bytes end in this zone, which has room for others.
    pub(crate) fn park(&self, file: &FileState, open: OpenZone) {
        let state = lock(&self.meta);
        // Nothing of it may stand there any more.
        let used = state.meta.zone_life(open.zone.0) == Some(open.life) && !file.is_orphan();
        let limited = self.tenant.limits_active();
        let parked = used && (limited || open.capacity - open.at >= worth_parking(open.capacity));
        if parked {
            self.parked.park(open, file.class());
        }
        drop(state);
        if !parked {
            self.tenant.finish_unused(open.zone);
        }
    }

    /// Reserves room for a file behind others' bytes.
    pub(crate) fn reserve_room(&self, file: &FileState, need: u64) -> bool {
        // A reserved zone could not be given up to who needs one of few active ones.
        let can = self.options.policy.shares() && !self.tenant.limits_active();
        can && !file.is_orphan() && self.parked.reserve(file.serial, file.class(), need)
    }

    /// Room for a file's next bytes behind those of others, logged with the record that `make` makes of it. A file that is to
    /// fill a zone gets one of its own, while there are enough.
    pub(crate) fn take_room(
        &self,
        file: &FileState,
        need: u64,
        crowded: bool,
        make: impl Fn(&OpenZone) -> Record,
    ) -> Result<Option<OpenZone>> {
        let large = file.expected.load(Ordering::Relaxed) > self.zone_capacity / 4 * 3;
        if !self.options.policy.shares() || (large && !crowded && !self.fills_rooms(file.class())?) {
            return Ok(None);
        }
        let mut state = lock(&self.meta);
        // Nobody finds the bytes of a file without a name again: where they end in a zone would not be known.
        if file.is_orphan() {
            return Ok(None);
        }
        // In few stretches.
        let least = if large && !crowded { self.zone_capacity / 4 } else { 0 };
        let need = (self.front + need).max(least);
        let Some(open) = self.parked.take(file.serial, file.class(), need, crowded) else { return Ok(None) };
        match self.log(&mut state, &file.name, &[make(&open)]) {
            Ok(lsn) => {
                file.lsn.fetch_max(lsn, Ordering::AcqRel);
                Ok(Some(open))
            }
            Err(error) => {
                self.parked.park(open, file.class());
                Err(error)
            }
        }
    }

    /// Whether zones are so scarce that tables of a zone's size stand in the room behind others, too.
    fn fills_rooms(&self, class: Class) -> Result<bool> {
        let (free, zones) = self.free_zones(WAL_SPARE, 0)?;
        Ok(matches!(class, Class::Table(_)) && are_scarce(free, zones))
    }

    /// Zones, and pieces of conventional space, that only wait for the journal.
    pub(crate) fn waiting_for_journal(&self) -> usize {
        self.tenant.counts().forgotten as usize + self.small.forgotten()
    }

    /// A zone; where there seems to be none, what is only waiting for the journal is freed first.
    pub(crate) fn take_zone(&self, urgency: Urgency) -> Result<ZoneId> {
        self.after_freeing(|| self.tenant.take(urgency))
    }

    /// The same for one of these reservations, which is used up.
    pub(crate) fn redeem_zone(&self, reservations: &mut Vec<Reservation>) -> Result<ZoneId> {
        self.after_freeing(|| self.tenant.redeem(reservations))
    }

    /// Whether one zone is a large part of what there is.
    pub(crate) fn has_few_zones(&self) -> bool {
        let counts = self.tenant.counts();
        are_few(counts.free + counts.leased)
    }

    /// Zones that are kept for the first bytes of write-ahead logs: [`WAL_SPARE`]. Where zones are few, each of logs with half of its
    /// room left stands for one that is empty.
    pub(crate) fn wal_spare(&self) -> u32 {
        if !self.has_few_zones() {
            return WAL_SPARE;
        }
        let half = self.zone_capacity / 2;
        let rooms = self.parked.look(|parking| parking.rooms(true).filter(|(room, _)| *room >= half).count());
        WAL_SPARE.saturating_sub(rooms as u32)
    }

    /// Reserves a zone for bytes that are about to be acknowledged. `new_wal`: they are the first of a write-ahead log, for
    /// which zones are kept.
    pub(crate) fn reserve_zone(&self, new_wal: bool) -> Result<Reservation> {
        let leave = if new_wal { 0 } else { self.wal_spare() };
        let mut patience = 4;
        loop {
            let room = self.make_room(leave)?;
            patience -= 1;
            match self.after_freeing(|| self.tenant.reserve(leave)) {
                // Another one was faster; there may be more to be had.
                Err(error) if room && patience > 0 && error.code() == Code::NoSpace => {}
                other => return other,
            }
        }
    }

    fn after_freeing<T>(&self, mut get: impl FnMut() -> Result<T>) -> Result<T> {
        // Looked at first: what is on its way there now is free only later.
        let coming = self.tenant.counts().forgotten > 0;
        match get() {
            Err(error) if coming && error.code() == Code::NoSpace => {
                self.sync_journal()?;
                get()
            }
            other => other,
        }
    }

    /// Conventional space of up to `bytes`.
    pub(crate) fn take_conventional(&self, bytes: u64) -> Result<(u64, u64)> {
        if let Some(taken) = self.small.take(bytes) {
            return Ok(taken);
        }
        self.sync_journal()?;
        self.small.take(bytes).ok_or_else(|| self.no_conventional())
    }

    /// The same of `need` bytes at least; see [`SmallSpace::take_all`](crate::small::SmallSpace::take_all).
    pub(crate) fn take_conventional_all(&self, need: u64, want: u64) -> Result<Vec<(u64, u64)>> {
        if let Some(pieces) = self.small.take_all(need, want) {
            return Ok(pieces);
        }
        self.sync_journal()?;
        self.small.take_all(need, want).ok_or_else(|| self.no_conventional())
    }

    fn no_conventional(&self) -> Error {
        let what = "no conventional space left for small files; delete some, or use a drive with more of it";
        Error::refused(Code::NoSpace, &self.volume.name(), what)
    }

    /// The zone that a file's last bytes stand in, where it can go on in it; pinned.
    pub(crate) fn open_zone_of(&self, file: &FileState) -> Option<OpenZone> {
        let (zone, life) = file.map().extents.last()?.place.zone()?;
        let state = lock(&self.meta);
        let last = state.meta.pieces(zone).next_back()?;
        if last.serial != file.serial || file.is_orphan() {
            return None;
        }
        let open = self.parked.take_back(zone).filter(|open| open.life == life)?;
        self.tenant.pin(open.zone);
        Some(open)
    }

    /// Gives back what waits for the journal and does not need to any more.
    pub(crate) fn release_pending(&self) {
        let durable = self.durable_lsn();
        if self.tenant.forgot(durable) {
            self.cleaning.cleaner().zones_freed();
        }
        self.small.forgot(durable);
    }
}
