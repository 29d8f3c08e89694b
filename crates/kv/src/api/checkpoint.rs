//! Checkpoints: moments of a store that stay readable, under names, until they are dropped.
//!
//! A checkpoint is a reader that the metadata remembers. So it costs nothing when it is made, and shares all zones with the store. Merges keep what it has.

use crate::core::Core;
use crate::manifest::{MOST_CHECKPOINTS, Note};
use crate::read::Reader;
use crate::space::LONGEST_NAME;
use crate::sync::lock;
use imbrex_device::{Cause, Code, Result};
use std::sync::Arc;

fn find(core: &Core, name: &str) -> Result<u64> {
    match core.look(|manifest| manifest.checkpoints.get(name).copied()) {
        Some(seq) => Ok(seq),
        None => Err(core.refused(Code::NotFound, format!("there is no checkpoint {name:?}"))),
    }
}

/// Keeps what the store has now.
pub(super) fn make(core: &Arc<Core>, name: &str) -> Result<()> {
    // One at a time, so that a name has one moment.
    let _one = lock(&core.naming);
    if name.is_empty() || name.len() > LONGEST_NAME {
        let sentence = format!("a checkpoint's name has 1 to {LONGEST_NAME} bytes, and this one has {}", name.len());
        return Err(core.refused(Code::InvalidArgument, sentence));
    }
    if find(core, name).is_ok() {
        return Err(core.refused(Code::Exists, format!("there is a checkpoint {name:?} already; drop it first")));
    }
    if core.look(|manifest| manifest.checkpoints.len()) >= MOST_CHECKPOINTS {
        let sentence = format!("a store has {MOST_CHECKPOINTS} checkpoints at most; drop some first");
        return Err(core.refused(Code::NoSpace, sentence));
    }
    let reader = Reader::now(core);
    // What it has is durable before it is.
    core.wal()?.sync()?;
    let seq = core.note(&[Note::Checkpoint(name.to_owned(), reader.seq)]);
    if let Err(error) = core.commit(seq, Cause::Journal) {
        let _ = core.note(&[Note::NoCheckpoint(name.to_owned())]);
        return Err(error);
    }
    // From here on the metadata is the reader.
    reader.stay();
    Ok(())
}

/// The reader of a checkpoint.
pub(super) fn open(core: &Arc<Core>, name: &str) -> Result<Reader> {
    let _stays = lock(&core.naming);
    Ok(Reader::at(core, find(core, name)?))
}

/// Nobody need keep it any more.
pub(super) fn forget(core: &Arc<Core>, name: &str) -> Result<()> {
    let _one = lock(&core.naming);
    let seq = find(core, name)?;
    if let Err(error) = core.commit(core.note(&[Note::NoCheckpoint(name.to_owned())]), Cause::Journal) {
        let _ = core.note(&[Note::Checkpoint(name.to_owned(), seq)]);
        return Err(error);
    }
    // The one that the metadata was.
    Reader::leave(core, seq);
    Ok(())
}

/// The names of all, sorted.
pub(super) fn names(core: &Core) -> Vec<String> {
    core.look(|manifest| manifest.checkpoints.keys().cloned().collect())
}
