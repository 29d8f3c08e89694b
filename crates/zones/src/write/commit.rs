//! Group commit: who commits writes for everybody, and the next group is written while the one before is flushed.
//!
//! An engine numbers what it decides. Whoever needs a number durable [joins](Committer::join). One of them becomes the leader: it has the right to write
//! ([`Lead`]), and the log with it. It writes everything that has gathered, the log first and then what is due of the [zones](RecordWriter). When all of that is at the
//! drive, the group is [`Written`], and the next leader may write. [`Committer::commit`] does all this but for the group, which the engine writes. A flush covers every group that was written before it began. So at most one thread writes, at most one flushes, and the two do not wait for each
//! other. Everybody who waits for a written group waits in the volume's flush; no token has to be alive for that.
//!
//! ```text
//!   Lead ── done ──▶ Written ── flush ──▶ Flushed ── tell ──▶ durable
//!    │ dropped: the next one leads    dropped: whoever joins flushes and tells
//! ```
//!
//! Invariants:
//! - Groups ascend, and so do their tickets. What covers a group covers all before it, so no acknowledgement overtakes another.
//! - A failed flush poisons the volume ([`Volume::durable`]): this group, those that were written meanwhile and all later ones fail.
//! - Writes of a group may reach the drive's platters before those of the group before it. So a record of the log that moves or overwrites bytes is
//!   logged only when [`Flushed`] has covered these bytes; then no power loss leaves the record without them.

use super::records::{Due, RecordWriter, ZoneGuard};
use crate::log::MetaLog;
use crate::medium::flush::Ticket;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
#[cfg(doc)]
use crate::volume::Volume;
use imbrex_device::{Error, Priority, Result, Tag, ZoneId};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

/// Number of what an engine has decided. The engine counts them, under the lock under which it decides; its log's record numbers will do.
pub type Seq = u64;

/// The group commit of one engine on a volume.
pub struct Committer {
    records: Arc<RecordWriter>,
    /// Its lock is taken by whoever has the right to write, so nobody waits for it.
    log: Mutex<MetaLog>,
    groups: Mutex<Groups>,
    changed: Condvar,
}

#[derive(Default)]
struct Groups {
    /// Somebody has the right to write.
    writing: bool,
    /// The log is written up to here.
    logged: Seq,
    /// Groups that are written and not known to be durable, the oldest first, and the flush that each needs.
    written: VecDeque<(Seq, Ticket)>,
    durable: Seq,
    /// So many flushes made groups durable.
    flushes: u64,
}

/// What whoever [joins](Committer::join) finds.
pub enum Join<'a> {
    /// It is durable.
    Durable,
    /// It is written: flush it.
    Written(Written<'a>),
    /// Nobody has written it, or is about to: write it.
    Lead(Lead<'a>),
}

/// The right to write. Dropped before it is [done](Lead::done), it is the next one's.
#[must_use]
pub struct Lead<'a> {
    committer: &'a Committer,
    log: MutexGuard<'a, MetaLog>,
}

/// A group that the drive has and may still lose with its power.
#[must_use]
pub struct Written<'a> {
    committer: &'a Committer,
    seq: Seq,
    ticket: Ticket,
}

/// A group that no power loss takes any more.
#[must_use]
pub struct Flushed<'a> {
    committer: &'a Committer,
    seq: Seq,
}

impl Committer {
    /// Everything up to number 0 is durable.
    pub fn new(records: &Arc<RecordWriter>, log: MetaLog) -> Committer {
        let (records, log) = (records.clone(), Mutex::new(log));
        Committer { records, log, groups: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns when everything up to `seq` is durable: has `write` write a group, or waits for the one that covers it. `write` is called on this thread, which has
    /// the right to write then and no lock of the volume.
    ///
    /// # Errors
    /// Those of `write`, and of [`Written::flush`].
    pub fn commit<'a, E: From<Error>>(
        &'a self,
        seq: Seq,
        tag: Tag,
        mut write: impl FnMut(Lead<'a>) -> Result<Written<'a>, E>,
    ) -> Result<(), E> {
        loop {
            let group = match self.join(seq) {
                Join::Durable => return Ok(()),
                Join::Written(group) => group,
                Join::Lead(lead) => write(lead)?,
            };
            group.flush(tag)?.tell();
        }
    }

    /// Zones that were [forgotten](crate::Tenant::forgotten) with what is durable, that nobody pins and in which the record writer has nothing left to do, and the
    /// number up to which all is durable. The engine strikes them off its own list, and then [frees](crate::Tenant::free) them. Works in memory. To be called under the
    /// lock under which the engine opens zones in the record writer: else a zone may be in its next life already.
    pub fn forgotten(&self) -> (Vec<ZoneId>, Seq) {
        let durable = self.durable();
        let mut gone = self.records.tenant().forgotten(durable);
        gone.retain(|zone| self.records.forget(zone.0));
        (gone, durable)
    }

    /// Waits while `seq` may be in the group that somebody is writing. An engine goes on joining until it finds [`Join::Durable`].
    pub fn join(&self, seq: Seq) -> Join<'_> {
        let written = |&(upto, ticket): &(Seq, Ticket)| {
            (upto >= seq).then_some(Join::Written(Written { committer: self, seq: upto, ticket }))
        };
        let found = self.find(|groups| match seq <= groups.durable {
            true => Some(Join::Durable),
            false => groups.written.iter().find_map(written),
        });
        found.unwrap_or_else(|()| Join::Lead(self.leader()))
    }

    /// The same of what needs the log alone to be [written](Lead::logged) up to `seq`, as with the drive's write cache off. `None`: it is.
    pub fn join_logged(&self, seq: Seq) -> Option<Lead<'_>> {
        self.find(|groups| (seq <= groups.logged).then_some(())).err().map(|()| self.leader())
    }

    /// Waits for the right to write, whatever is durable.
    pub fn lead(&self) -> Lead<'_> {
        let Err(()) = self.find(|_| None::<Infallible>);
        self.leader()
    }

    /// Who has got the right to write.
    fn leader(&self) -> Lead<'_> {
        Lead { committer: self, log: lock(&self.log) }
    }

    /// Waits until this is there, or for the right to write, which is an error here.
    fn find<T>(&self, there: impl Fn(&Groups) -> Option<T>) -> Result<T, ()> {
        let mut groups = lock(&self.groups);
        loop {
            if let Some(found) = there(&groups) {
                return Ok(found);
            }
            if !std::mem::replace(&mut groups.writing, true) {
                return Err(());
            }
            groups = wait(&self.changed, groups);
        }
    }

    /// Whether somebody has the right to write. Never waits for the drive, nor do the two below.
    pub fn is_writing(&self) -> bool {
        lock(&self.groups).writing
    }

    /// The log is written up to here.
    pub fn logged(&self) -> Seq {
        lock(&self.groups).logged
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Seq {
        lock(&self.groups).durable
    }

    /// So many flushes made groups durable.
    pub fn flushes(&self) -> u64 {
        lock(&self.groups).flushes
    }
}

impl<'a> Lead<'a> {
    /// The log.
    pub fn log(&mut self) -> &mut MetaLog {
        &mut self.log
    }

    /// Before a group is written: sees to it that the log has room for it. Where the log asks for that `snapshot` writes a whole one, once for each copy, since the other
    /// one still keeps what is older. `needs`: bytes of the group's records as a [`Batch`](crate::log::Batch), and about as many of a snapshot.
    ///
    /// # Errors
    /// A volume that takes no more writes. Where a snapshot could not be written the last one still counts, and the group takes what room is left.
    pub fn make_room<E: From<Error> + std::fmt::Display>(
        &mut self,
        needs: impl Fn() -> (u64, u64),
        mut snapshot: impl FnMut(&mut Lead<'a>) -> Result<(), E>,
    ) -> Result<()> {
        for _ in 0..if self.log.grown() > 0 { self.log.root().copies } else { 0 } {
            let (records, size) = needs();
            if self.log.appender().has_room(records, Some(size)) {
                break;
            }
            if let Err(error) = snapshot(self) {
                self.committer.records.tenant().volume().check_poison()?;
                tracing::error!(%error, "a snapshot of the metadata could not be written");
                break;
            }
        }
        Ok(())
    }

    /// Writes a group: what the log has in memory, which tells of everything that was decided up to `seq`, and then what is [due](RecordWriter::due). Returns
    /// guards of the zones that did not take all of theirs: the engine puts it elsewhere, and writes again before it is [done](Lead::done).
    ///
    /// # Errors
    /// Those of the drive. A zone that refuses its bytes is none.
    pub fn write(&mut self, seq: Seq, due: &[Due]) -> Result<Vec<ZoneGuard<'a>>> {
        self.log.write(Priority::Normal)?;
        self.logged(seq);
        self.committer.records.write(due)
    }

    /// The log is written up to `seq`, its zones are not yet.
    pub fn logged(&self, seq: Seq) {
        let mut groups = lock(&self.committer.groups);
        groups.logged = groups.logged.max(seq);
        self.committer.changed.notify_all();
    }

    /// Everything that was decided up to `seq` is written. From here on the next group may be.
    pub fn done(self, seq: Seq) -> Written<'a> {
        let committer = self.committer;
        committer.records.group_written(seq);
        let ticket = committer.records.tenant().volume().ticket();
        let mut groups = lock(&committer.groups);
        debug_assert!(groups.written.back().is_none_or(|last| *last <= (seq, ticket)), "groups ascend");
        // One flush covers this one and those that wait for the same.
        groups.written.retain(|(_, other)| *other != ticket);
        groups.written.push_back((seq, ticket));
        Written { committer, seq, ticket }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        lock(&self.committer.groups).writing = false;
        self.committer.changed.notify_all();
    }
}

impl<'a> Written<'a> {
    /// Waits for the flush that covers the group, or leads it.
    ///
    /// # Errors
    /// Those of [`Volume::durable`]: a flush has failed, this one or any before, and the volume takes no more writes.
    pub fn flush(self, tag: Tag) -> Result<Flushed<'a>> {
        self.committer.records.tenant().volume().durable(self.ticket, tag)?;
        Ok(Flushed { committer: self.committer, seq: self.seq })
    }
}

impl Flushed<'_> {
    /// Everything that was decided up to this number is durable.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// From here on others find these numbers durable. What an engine has to note of that it notes before. False: that was known.
    pub fn tell(self) -> bool {
        let new = self.committer.records.group_durable(self.seq);
        let mut groups = lock(&self.committer.groups);
        groups.flushes += u64::from(new);
        groups.durable = groups.durable.max(self.seq);
        let durable = groups.durable;
        groups.written.retain(|(seq, _)| *seq > durable);
        self.committer.changed.notify_all();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;
    use crate::volume::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
    use crate::write::RecordOptions;
    use imbrex_device::{Cause, Drive};
    use imbrex_emulator::{Config, Emulator};
    use std::sync::Arc;

    const TAG: Tag = Tag::new(Cause::Journal);

    fn committer() -> (Emulator, Committer) {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
        let tenants = vec![TenantSpec { name: "one".into(), budget: Budget::default() }];
        Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
        let options = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let volume = Volume::open(drive, options).unwrap();
        let options = RecordOptions { gather: 1 << 20, block: 4096, zones_at_once: None };
        let tenant = volume.tenant("one").unwrap();
        tenant.adoption_done();
        let log = MetaLog::create(&tenant, 1, 2, Vec::new(), Arc::new(|| 0)).unwrap();
        (emulator, Committer::new(&Arc::new(RecordWriter::new(&tenant, options)), log))
    }

    /// Whoever needs `seq` leads, and has written.
    fn written(commits: &Committer, seq: Seq) -> Written<'_> {
        let Join::Lead(lead) = commits.join(seq) else { panic!("{seq} is written") };
        assert!(commits.is_writing());
        lead.done(seq)
    }

    #[test]
    fn one_flush_covers_all_groups_that_were_written_before_it_in_whatever_order_they_end() {
        for first in [0, 1] {
            let (emulator, commits) = committer();
            let before = emulator.stats().flushes;
            let mut groups = [Some(written(&commits, 3)), Some(written(&commits, 5))];
            assert!(!commits.is_writing() && commits.durable() == 0);
            for i in [first, 1 - first] {
                groups[i].take().unwrap().flush(TAG).unwrap().tell();
                let durable = if (first, i) == (0, 0) { 3 } else { 5 };
                assert_eq!(commits.durable(), durable, "group {i}, {first} first");
            }
            assert_eq!(emulator.stats().flushes - before, 1);
            // What is written behind it needs another one.
            written(&commits, 6).flush(TAG).unwrap().tell();
            assert_eq!((emulator.stats().flushes - before, commits.durable()), (2, 6));
        }
    }

    #[test]
    fn who_is_told_late_takes_nothing_back() {
        let (_, commits) = committer();
        let [one, two] = [written(&commits, 1), written(&commits, 2)].map(|group| group.flush(TAG).unwrap());
        two.tell();
        assert_eq!(one.seq(), 1);
        one.tell();
        assert_eq!(commits.durable(), 2);
        assert!(matches!(commits.join(2), Join::Durable));
    }

    #[test]
    fn a_group_that_nobody_ends_is_ended_by_whoever_needs_it() {
        let (emulator, commits) = committer();
        let before = emulator.stats().flushes;
        drop(written(&commits, 4));
        for told in [false, true] {
            let Join::Written(group) = commits.join(2) else { panic!("it is written") };
            let flushed = group.flush(TAG).unwrap();
            assert_eq!(flushed.seq(), 4);
            if told {
                flushed.tell();
            }
        }
        assert!(matches!(commits.join(4), Join::Durable));
        assert_eq!(emulator.stats().flushes - before, 1);
    }

    #[test]
    fn a_commit_writes_one_group_and_none_where_that_is_durable() {
        let (emulator, commits) = committer();
        let (before, mut groups) = (emulator.stats().flushes, 0);
        for seq in [3, 5, 6] {
            let write = |lead| {
                groups += 1;
                Ok::<_, Error>(Lead::done(lead, seq + 2))
            };
            commits.commit(seq, TAG, write).unwrap();
        }
        assert_eq!((groups, commits.durable(), commits.flushes()), (2, 8, 2));
        assert_eq!(emulator.stats().flushes - before, 2);
        let failed = commits.commit(9, TAG, |_| Err(Error::invalid(&"one".into(), "the engine cannot")));
        assert!(failed.is_err() && !commits.is_writing());
    }

    #[test]
    fn who_gives_up_leaves_the_right_to_write_to_the_next() {
        let (_, commits) = committer();
        drop(commits.lead());
        let Join::Lead(lead) = commits.join(1) else { panic!("nothing is written") };
        lead.logged(7);
        assert!(commits.join_logged(7).is_none() && commits.logged() == 7);
        drop(lead);
        assert!(commits.join_logged(8).is_some());
        assert!(!commits.is_writing() && matches!(commits.join(1), Join::Lead(_)));
    }

    #[test]
    fn a_failed_flush_fails_every_group_that_was_written_and_all_later_ones() {
        for first in [0, 1] {
            let (emulator, commits) = committer();
            let mut groups = [Some(written(&commits, 1)), Some(written(&commits, 2))];
            emulator.faults().fail_flushes(1);
            // The next one would succeed.
            for i in [first, 1 - first] {
                assert!(groups[i].take().unwrap().flush(TAG).is_err(), "group {i}, {first} first");
            }
            let Join::Written(group) = commits.join(1) else { panic!("it is written") };
            assert!(group.flush(TAG).is_err());
            assert!(written(&commits, 3).flush(TAG).is_err());
            assert_eq!(commits.durable(), 0);
        }
    }
}
