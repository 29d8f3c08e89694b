//! Makes changes of counts that [wait](crate::counts), in passes over the records of blobs.

use crate::blob::{Blob, BlobId};
use crate::cleaning::Records;
use crate::core::{Core, is_of_bytes};
use crate::draft::{Counts, Draft};
use crate::keyvalue::Family;
use crate::lock::lock;
use imbrex_device::Result;
use std::collections::BTreeMap;

/// Records of blobs that one step looks at, some MiB: each step begins with a way of a disk's head for each run of the key-value store.
const PAGE: usize = 64 << 10;
pub(crate) const FIRST: BlobId = BlobId { onode: 0, number: 0 };

impl Core {
    /// Makes a part of what waits, where enough does.
    ///
    /// # Errors
    /// Those of the key-value store.
    pub fn recount_if_due(&self) -> Result<()> {
        let due = {
            let mut state = self.state();
            self.advance(&mut state);
            if state.counts.sweep.is_none() && state.counts.len() >= self.options.count_from.max(1) {
                state.counts.sweep = Some(FIRST);
            }
            state.counts.sweep.is_some()
        };
        if due { self.recount_step() } else { Ok(()) }
    }

    /// Makes all that waits. What makes no sense still waits then, and a check tells of it.
    ///
    /// # Errors
    /// As [`Core::recount_if_due`].
    pub fn recount(&self) -> Result<()> {
        self.state().counts.sweep = Some(FIRST);
        while self.state().counts.sweep.is_some() {
            self.recount_step()?;
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
            let read = match self.has_changed(*id) {
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

    /// Whether a record is another one than the key-value store had when the cleaner began to list.
    fn has_changed(&self, id: BlobId) -> bool {
        let state = self.state();
        let key = id.key();
        let in_layers = [&state.current, &state.committing].iter().any(|of| of.get(Family::Blobs, &key).is_some());
        in_layers || lock(&self.cleaning).changed.as_ref().is_none_or(|changed| changed.contains(&id))
    }

    /// Makes what waits for a page of records, from where the sweep is.
    fn recount_step(&self) -> Result<()> {
        let _preparing = self.prepare();
        let first = {
            let mut state = self.state();
            let first = state.counts.sweep.and_then(|from| state.counts.from(from).next());
            if first.is_none() {
                state.counts.sweep = None;
            }
            first
        };
        let Some(first) = first else { return Ok(()) };
        let mut draft = Draft::new(self, Counts::AtOnce);
        let (pairs, next) = match self.pairs(Family::Blobs, &first.key(), None, PAGE, None) {
            Err(error) if is_of_bytes(&error) => {
                // One at a time, so that what is damaged holds up no others. It still waits.
                if let Some(blob) = self.blob_of_many(first)?
                    && !draft.recount(first, blob)
                {
                    tracing::error!(id = %first, "changes of counts do not fit the record of a blob");
                }
                draft.publish(Vec::new()).map_err(|(error, _)| error)?;
                self.state().counts.sweep = Some(first.next());
                return Ok(());
            }
            pairs => pairs?,
        };
        let records: BTreeMap<BlobId, &[u8]> =
            pairs.iter().filter_map(|(key, record)| Some((BlobId::of_key(key)?, &record[..]))).collect();
        // Those between two records that are there have none.
        let next = next.and_then(|_| records.last_key_value()).map(|(last, _)| last.next());
        let ids: Vec<BlobId> =
            self.state().counts.from(first).take_while(|id| next.is_none_or(|end| *id < end)).collect();
        for id in ids {
            let made =
                records.get(&id).and_then(|record| Blob::decode(record)).is_some_and(|blob| draft.recount(id, blob));
            if !made {
                tracing::error!(%id, "the record of a blob does not have what changes of its counts are of");
            }
        }
        draft.publish(Vec::new()).map_err(|(error, _)| error)?;
        self.state().counts.sweep = next;
        Ok(())
    }
}
