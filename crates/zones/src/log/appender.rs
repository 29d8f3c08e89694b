//! Appending in memory, by any thread, also while another one writes the log.

use super::items::Batch;
use super::kept::Kept;
use super::ring::{self, Room};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::volume::Tenant;
use imbrex_device::{Error, Fault, Result};
use std::sync::Arc;

/// Room for records: whoever has it can append so many bytes, and the rings take them.
#[must_use]
#[derive(Debug)]
pub struct Admission(u64);

/// Whether records may come.
#[derive(Debug)]
pub enum Admitted {
    /// They may.
    Room(Admission),
    /// The rings have room for a snapshot and no more. The caller takes one first.
    Snapshot,
}

/// The records that are not written, and the room that the rings have for them.
#[derive(Default)]
pub(super) struct Tail {
    /// Records that nobody writes yet.
    gathered: Batch,
    /// Where they begin in the stream of all record items of the log, in bytes.
    base: u64,
    pub(super) kept: Kept,
    /// Bytes that somebody is admitted for.
    admitted: u64,
    /// Bytes of records that are being written.
    writing: u64,
    /// As it was before they were.
    rooms: Vec<Room>,
    copies: u64,
    frame: u64,
    /// Zones of a ring.
    pub(super) zones: u64,
    /// A zone with metadata is gone from the only copy: a snapshot is to tell it again.
    shaken: bool,
}

impl Tail {
    /// Where the next record begins in the stream of all record items.
    pub(super) fn end(&self) -> u64 {
        self.base + self.gathered.len() as u64
    }

    /// Takes what is to be written, with the place where it begins.
    pub(super) fn take(&mut self) -> (Batch, u64) {
        let (batch, base) = (std::mem::take(&mut self.gathered), self.base);
        self.writing = batch.len() as u64;
        self.base += self.writing;
        self.kept.seal(self.base);
        (batch, base)
    }

    /// All of that is written.
    pub(super) fn written(&mut self) {
        self.writing = 0;
        self.kept.drop_before(self.base);
    }

    /// Of what was taken this rest is not written: it is the next again.
    pub(super) fn put_back(&mut self, mut rest: Batch) {
        self.writing = 0;
        self.base -= rest.len() as u64;
        rest.join(std::mem::take(&mut self.gathered));
        self.gathered = rest;
    }

    /// Records that are to be written, and begin here in the stream.
    pub(super) fn begin(&mut self, base: u64, gathered: Batch) {
        (self.base, self.gathered) = (base, gathered);
    }

    /// A snapshot begins that tells what the records do that are appended so far. Returns where they end in the stream.
    pub(super) fn mark(&mut self) -> u64 {
        let end = self.end();
        self.kept.seal(end);
        end
    }

    /// That snapshot is whole: the records before the mark need not be written.
    pub(super) fn drop_told(&mut self, mark: u64) {
        // Else somebody has written them meanwhile.
        if let Some(told) = mark.checked_sub(self.base) {
            self.gathered.drop_front(told as usize);
            self.base = mark;
            self.kept.drop_before(mark);
        }
    }

    /// Whether a snapshot is to come before anything else.
    pub(super) fn shake(&mut self, shaken: bool) {
        self.shaken = shaken;
    }

    pub(super) fn publish(&mut self, rooms: Vec<Room>, copies: u64, frame: u64) {
        (self.rooms, self.copies, self.frame) = (rooms, copies, frame);
    }

    pub(super) fn append(&mut self, room: Admission, records: Batch) {
        debug_assert!(records.len() as u64 <= room.0, "{} bytes for {} that were admitted", records.len(), room.0);
        self.admitted -= room.0;
        self.gathered.join(records);
    }
}

/// Appends records to a log. Each of its calls works in memory, and any thread makes it at any time.
#[derive(Clone)]
pub struct Appender {
    pub(super) tenant: Tenant,
    tail: Arc<Mutex<Tail>>,
}

impl Appender {
    pub(super) fn new(tenant: &Tenant) -> Appender {
        Appender { tenant: tenant.clone(), tail: Arc::default() }
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        lock(&self.tail)
    }

    /// Whether the caller may append records of so many bytes of a [`Batch`]. `snapshot`: about as many bytes would a snapshot take, for which room
    /// is kept in every ring; `None`: the caller may use that room, since its records belong to a snapshot, or a snapshot did not help.
    pub fn admit(&self, bytes: u64, snapshot: Option<u64>) -> Admitted {
        let mut tail = self.tail();
        match tail.has_room(bytes, snapshot) {
            true => {
                tail.admitted += bytes;
                Admitted::Room(Admission(bytes))
            }
            false => Admitted::Snapshot,
        }
    }

    /// Appends records in memory that may take all the room there is, and leaves none in the batch.
    ///
    /// # Errors
    /// `NoSpace`: then they stay there.
    pub fn append_all(&self, records: &mut Batch) -> Result<()> {
        let Admitted::Room(room) = self.admit(records.len() as u64, None) else {
            return Err(Error::new(&self.tenant.volume().name(), Fault::NoSpace));
        };
        self.append(room, std::mem::take(records));
        Ok(())
    }

    /// Whether [`Appender::admit`] would say yes.
    pub fn has_room(&self, bytes: u64, snapshot: Option<u64>) -> bool {
        self.tail().has_room(bytes, snapshot)
    }

    /// Zones of a ring.
    pub fn zones(&self) -> u64 {
        self.tail().zones
    }

    /// Gives the room back: no records come.
    pub fn give_back(&self, room: Admission) {
        self.tail().admitted -= room.0;
    }

    /// Appends records in memory. It cannot fail: they are no more bytes than the caller was admitted for.
    pub fn append(&self, room: Admission, records: Batch) {
        self.tail().append(room, records);
    }
}

impl Tail {
    pub(super) fn has_unwritten(&self) -> bool {
        !self.gathered.is_empty()
    }

    fn has_room(&self, bytes: u64, snapshot: Option<u64>) -> bool {
        let waiting = self.gathered.len() as u64 + self.writing + self.admitted + bytes;
        let waits = self.shaken && snapshot.is_some();
        !waits && ring::admits(&self.rooms, self.copies, self.frame, waiting, snapshot)
    }
}
