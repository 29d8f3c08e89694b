//! Makes changes of counts that [wait](crate::counts), in passes over the records of blobs.

use crate::blob::{Blob, BlobId};
use crate::cleaning::{Reader, Records};
use crate::core::{Core, is_of_bytes};
use crate::draft::{Counts, Draft};
use crate::keyvalue::{Family, Pair};
use crate::lock::lock;
use crate::right::Taken;
use imbrex_device::Result;
use std::collections::BTreeMap;

/// Records of blobs that one step looks at, some MiB: each step begins with a way of a disk's head for each run of the key-value store.
const PAGE: usize = 64 << 10;
/// Records, and from where on there are more.
type Page = (Vec<Pair>, Option<Vec<u8>>);
pub(crate) const FIRST: BlobId = BlobId { onode: 0, number: 0 };

impl Core {
    /// Makes a part of what waits, where enough does. One at a time does so, and the others go on, until twice as much waits.
    ///
    /// # Errors
    /// Those of the key-value store.
    pub fn recount_if_due(&self) -> Result<()> {
        let many = self.options.count_from.max(1);
        let (due, late) = {
            let mut state = self.state();
            self.advance(&mut state);
            let waiting = state.counts.len();
            if state.counts.sweep.is_none() && waiting >= many {
                state.counts.sweep = Some(FIRST);
            }
            (state.counts.sweep.is_some(), waiting >= 2 * many)
        };
        if !due {
            return Ok(());
        }
        let one = match late {
            true => self.recounting.take_unless(|| (self.state().counts.len() < 2 * many).then_some(())).err(),
            false => self.recounting.try_take(),
        };
        one.map_or(Ok(()), |one| self.recount_step(&one))
    }

    /// Makes all that waits. What makes no sense still waits then, and a check tells of it.
    ///
    /// # Errors
    /// As [`Core::recount_if_due`].
    pub fn recount(&self) -> Result<()> {
        self.state().counts.sweep = Some(FIRST);
        while self.state().counts.sweep.is_some() {
            // Whoever waits for a page does not wait for all.
            self.recount_step(&self.recounting.take())?;
        }
        Ok(())
    }

    /// Makes what waits for blobs whose records somebody has read, and changes these: so the cleaner moves no blocks that are dead. What makes no sense still waits.
    ///
    /// # Errors
    /// Those of the key-value store.
    pub fn recount_of(&self, records: &mut Records) -> Result<()> {
        let _preparing = self.prepare();
        let ids: Vec<BlobId> = {
            let state = self.state();
            state.counts.from(FIRST).filter(|id| records.contains_key(id)).collect()
        };
        let mut draft = Draft::new(self, Counts::AtOnce);
        for id in &ids {
            let read = match self.has_changed(Reader::Cleaner, *id) {
                true => self.blob_of_many(*id)?,
                false => records.get(id).and_then(|record| Blob::decode(record)),
            };
            if let Some(blob) = read {
                draft.recount(*id, blob);
            }
        }
        draft.publish(Vec::new()).map_err(|(error, _)| error)?;
        for id in ids {
            match self.blob_of_many(id)? {
                Some(blob) => drop(records.insert(id, blob.encode().into())),
                None => drop(records.remove(&id)),
            }
        }
        Ok(())
    }

    /// Whether a record is another one than the key-value store had when somebody began to read.
    fn has_changed(&self, who: Reader, id: BlobId) -> bool {
        let state = self.state();
        let key = id.key();
        let in_layers = [&state.current, &state.committing].iter().any(|of| of.get(Family::Blobs, &key).is_some());
        in_layers || lock(&self.cleaning).has_changed(who, id)
    }

    /// Makes what waits for a page of records, from where the sweep is. Transactions go on while it is read.
    fn recount_step(&self, _one: &Taken<'_>) -> Result<()> {
        let (from, first) = {
            let mut state = self.state();
            let from = state.counts.sweep;
            let first = from.and_then(|from| state.counts.from(from).next());
            if first.is_none() {
                state.counts.sweep = None;
            }
            (from, first)
        };
        let Some(first) = first else { return Ok(()) };
        lock(&self.cleaning).begins(Reader::Recount);
        let read = self.pairs(Family::Blobs, &first.key(), None, PAGE, None);
        let _preparing = self.prepare();
        let made = self.recount_page(first, read);
        lock(&self.cleaning).ends(Reader::Recount);
        let (next, mut state) = (made?, self.state());
        // Somebody may have begun anew meanwhile.
        if state.counts.sweep == from {
            state.counts.sweep = next;
        }
        Ok(())
    }

    /// Makes what waits for what was read, as it is by now. Returns where the sweep goes on.
    fn recount_page(&self, first: BlobId, read: Result<Page>) -> Result<Option<BlobId>> {
        let mut draft = Draft::new(self, Counts::AtOnce);
        let (pairs, next) = match read {
            Err(error) if is_of_bytes(&error) => {
                // One at a time, so that what is damaged holds up no others. It still waits.
                if let Some(blob) = self.blob_of_many(first)?
                    && !draft.recount(first, blob)
                {
                    tracing::error!(id = %first, "changes of counts do not fit the record of a blob");
                }
                draft.publish(Vec::new()).map_err(|(error, _)| error)?;
                return Ok(Some(first.next()));
            }
            read => read?,
        };
        let records: BTreeMap<BlobId, &[u8]> =
            pairs.iter().filter_map(|(key, record)| Some((BlobId::of_key(key)?, &record[..]))).collect();
        // Those between two records that are there have none.
        let next = next.and_then(|_| records.last_key_value()).map(|(last, _)| last.next());
        let ids: Vec<BlobId> =
            self.state().counts.from(first).take_while(|id| next.is_none_or(|end| *id < end)).collect();
        for id in ids {
            let record = match self.has_changed(Reader::Recount, id) {
                true => self.blob_of_many(id)?,
                false => records.get(&id).and_then(|record| Blob::decode(record)),
            };
            if !record.is_some_and(|blob| draft.recount(id, blob)) {
                tracing::error!(%id, "the record of a blob does not have what changes of its counts are of");
            }
        }
        draft.publish(Vec::new()).map_err(|(error, _)| error)?;
        Ok(next)
    }
}
