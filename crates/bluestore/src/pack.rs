//! What a commit packs: blobs that earlier groups have deferred, with the records as these have left them. What of that cannot be read waits on, and holds up nothing else.

use crate::blob::{BLOCK, Blob, BlobId, Run};
use crate::core::{Core, State, is_of_bytes};
use crate::data::{Stream, Todo};
use crate::home::{Part, stretches, wishes};
use crate::keyvalue::Family;
use crate::run::RunPiece;
use imbrex_device::{AlignedBuf, Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of deferred blobs that one commit packs at most.
pub(crate) const PACKED: u64 = 16 << 20;

/// Blobs of earlier groups that get places with this one: their records as those groups left them.
pub(crate) type Known = BTreeMap<BlobId, Blob>;

/// Bytes of a blob.
type Found = (BlobId, Arc<AlignedBuf>);

impl Core {
    /// What a blob's record says.
    pub fn decode(&self, record: &[u8]) -> Result<Blob> {
        Blob::decode(record).ok_or_else(|| self.corrupt("a blob's record"))
    }

    /// A blob's record as the key-value store has it.
    pub fn record(&self, id: BlobId) -> Result<Option<Blob>> {
        self.kv.get(Family::Blobs, &id.key())?.map(|record| self.decode(&record)).transpose()
    }

    /// Deferred blobs of groups before `group` and up to `last`, about so many bytes, in the order of their places in objects; and whether some cannot be read: they wait on.
    pub fn deferred(&self, group: u64, (last, most): (u64, u64), todo: &mut Vec<Todo>) -> Result<(Known, bool)> {
        let (others, before) = (self.state().deferred.others, group.min(last.saturating_add(1)));
        let (found, mut unread) = match others {
            // All that an earlier opening has left has to come by, or memory is never what there is.
            Some(_) => self.deferred_in_kv(group, most.max(PACKED))?,
            None => (self.state().deferred.take(before, most), false),
        };
        let (mut all, mut pieces) = (Known::new(), Vec::new());
        for (id, bytes) in found {
            let blob = self.record(id).or_else(|error| {
                unread = true;
                unreadable(&error, id)
            });
            // A check tells of bytes without a blob.
            let Some(blob) = blob? else { continue };
            if bytes.len() as u64 != u64::from(blob.blocks) * BLOCK {
                return Err(self.corrupt("the length of a deferred blob"));
            }
            if blob.deferred().next().is_some() && !all.contains_key(&id) {
                pieces.push((id, blob.offset, bytes));
                all.insert(id, blob);
            }
        }
        if unread {
            // Memory has them no more.
            self.state().deferred.others = Some(group);
        }
        pieces.sort_by_key(|(id, offset, _)| (id.onode, *offset, id.number));
        let mut state = self.state();
        let (mut parts, mut homes) = (Vec::new(), Vec::new());
        for (id, _, bytes) in pieces {
            let whole = self::todo(id, &all[&id], Stream::Hot, &bytes);
            whole.into_iter().for_each(|one| {
                at_home(&mut state, before, one, &mut |part, home| {
                    parts.push(part);
                    homes.push(home);
                })
            });
        }
        let wanted = parts.into_iter().zip(wishes(&homes)).map(|(part, wanted)| Todo { wanted, ..part });
        todo.extend(wanted);
        if !state.deferred.has_before(group) {
            state.homes.forget(group);
        }
        Ok((all, unread))
    }

    /// Those that an earlier opening has left, and those that were too many for memory; and whether there may be others, which cannot be read.
    fn deferred_in_kv(&self, group: u64, most: u64) -> Result<(Vec<Found>, bool)> {
        let (mut found, mut bytes, mut next) = (Vec::new(), 0, Some(Vec::new()));
        while let Some(from) = next.take().filter(|_| bytes < most) {
            let pairs = match self.kv.pairs(Family::Deferred, &from, None, 256) {
                Err(error) if is_of_bytes(&error) => {
                    tracing::error!(%error, "deferred bytes cannot be read; they are not packed");
                    // What came since is here, too.
                    found.append(&mut self.state().deferred.take(group, most));
                    return Ok((found, true));
                }
                pairs => pairs?,
            };
            next = pairs.last().map(|(key, _)| [&key[..], &[0]].concat());
            for (key, value) in pairs {
                let Some(id) = BlobId::of_key(&key) else { return Err(self.corrupt("the key of a deferred blob")) };
                bytes += value.len() as u64;
                let mut aligned = AlignedBuf::zeroed(value.len());
                aligned.copy_from_slice(&value);
                found.push((id, Arc::new(aligned)));
            }
        }
        if bytes < most {
            // What is packed now are all that the key-value store has.
            self.state().deferred.forget(group);
        }
        Ok((found, false))
    }
}

/// Cuts a part of a deferred blob where its blocks stood in different places.
fn at_home(state: &mut State, before: u64, one: Todo, each: &mut impl FnMut(Todo, Part)) {
    let RunPiece { blob, offset, first, blocks, grain, .. } = one.piece;
    let (at, mut done) = (offset + u64::from(first), 0);
    for (blocks, home) in stretches(&state.homes.find(blob.onode, at, blocks), 1 << grain) {
        let piece = RunPiece { first: first + done, blocks, ..one.piece };
        let part = Part { onode: blob.onode, first: at + u64::from(done), home };
        each(Todo { piece, ..one.clone() }, part);
        done += blocks;
    }
    // What a later group has deferred may have overwritten this, and the count of that waits: then it wants the same place.
    state.homes.packed(blob.onode, at, blocks, before);
}

/// What of a blob needs a place.
pub(crate) fn todo(id: BlobId, blob: &Blob, stream: Stream, bytes: &Arc<AlignedBuf>) -> Vec<Todo> {
    let sums = blob.sums();
    let all = blob.deferred().map(|Run { first, blocks, .. }| Todo {
        stream,
        piece: RunPiece::of_blob(id, blob, first, blocks),
        bytes: bytes.clone(),
        sums: sums.clone(),
        from: None,
        wanted: None,
    });
    all.collect()
}

/// A damaged record costs no others: the blob stays where it is.
pub(crate) fn unreadable(error: &Error, id: BlobId) -> Result<Option<Blob>> {
    if !is_of_bytes(error) {
        return Err(error.clone());
    }
    tracing::error!(%error, %id, "the record of a blob cannot be read; the blob stays where it is");
    Ok(None)
}
