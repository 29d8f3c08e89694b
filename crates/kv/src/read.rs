//! Reading: a key, or keys in order, as they were at one moment.

use crate::core::Core;
use crate::core::run::{InRun, Reach};
use crate::core::view::View;
use crate::cursor::{Cursor, InMemory, Merged};
use crate::operator::MISSING;
use crate::order::Order;
use crate::space::split;
use crate::sync::lock;
use crate::table::Kind;
use crate::together::together;
use imbrex_device::{Code, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A moment, which reads see as long as this is there.
pub(crate) struct Reader {
    core: Arc<Core>,
    pub seq: u64,
}

impl Reader {
    pub fn now(core: &Arc<Core>) -> Reader {
        let mut readers = lock(&core.readers);
        let seq = core.visible.load(Ordering::Acquire);
        *readers.entry(seq).or_default() += 1;
        Reader { core: core.clone(), seq }
    }

    /// Of a moment that somebody keeps.
    pub fn at(core: &Arc<Core>, seq: u64) -> Reader {
        *lock(&core.readers).entry(seq).or_default() += 1;
        Reader { core: core.clone(), seq }
    }

    /// The moment is kept until somebody [leaves](Reader::leave) it.
    pub fn stay(self) {
        *lock(&self.core.readers).entry(self.seq).or_default() += 1;
    }

    /// One fewer keeps the moment.
    pub fn leave(core: &Core, seq: u64) {
        let mut readers = lock(&core.readers);
        if let Some(count) = readers.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&seq);
            }
        }
    }

    /// Whether this is a moment of that store.
    pub fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }
}

impl Clone for Reader {
    fn clone(&self) -> Reader {
        Reader::at(&self.core, self.seq)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        Reader::leave(&self.core, self.seq);
    }
}

/// The value of a key, as it is now.
pub(crate) fn get_now(core: &Core, key: &[u8]) -> Result<Option<Vec<u8>>> {
    loop {
        // In this order: whatever was written before this call is in the view.
        let view = core.view();
        let seq = core.visible.load(Ordering::Acquire);
        // What makes another view is there before its number is seen.
        if core.is_whole(&view) {
            return get(core, &view, key, seq);
        }
    }
}

/// The value of a key, as it was at `seq`.
pub(crate) fn get(core: &Core, view: &View, key: &[u8], seq: u64) -> Result<Option<Vec<u8>>> {
    let floor = view.ranges.floor(core.order(), key, seq);
    let mut operands = Vec::new();
    let mut upto = Some(seq);
    let mut value = None;
    while let Some(at) = upto.take()
        && let Some((found, kind, bytes)) = newest(core, view, key, at, floor)?
    {
        match kind {
            Kind::Delete => {}
            Kind::Put => value = Some(bytes).filter(|bytes| !core.spaces.is_over(key, bytes)),
            Kind::Merge => {
                operands.push(bytes);
                upto = found.checked_sub(1);
            }
        }
    }
    if operands.is_empty() { Ok(value) } else { merged(core, key, value.as_deref(), &operands) }
}

/// Whether a get of the key, as it was at `seq`, has to ask the drive.
pub(crate) fn would_read(core: &Core, view: &View, key: &[u8], seq: u64) -> bool {
    let order = core.order();
    !view.memory_has(order, key, seq)
        && view.tables.with_key(order, key).iter().any(|table| table.get_would_read(key, seq))
}

/// The values of keys, as they were at `seq`, in the order of the keys. Of what the drive has to be asked for, several keys are read at once.
pub(crate) fn multi_get(core: &Core, view: &View, keys: &[Vec<u8>], seq: u64) -> Result<Vec<Option<Vec<u8>>>> {
    let mut found: Vec<_> = keys.iter().map(|key| (key, None)).collect();
    let read = |(key, value): &mut (&Vec<u8>, Option<Vec<u8>>)| get(core, view, key, seq).map(|found| *value = found);
    let most = core.options.reads();
    if most > 1 {
        let (mut waiting, others): (Vec<_>, Vec<_>) =
            found.iter_mut().partition(|(key, _)| would_read(core, view, key, seq));
        others.into_iter().try_for_each(read)?;
        together(most, &mut waiting, |piece| read(piece))?;
    } else {
        found.iter_mut().try_for_each(read)?;
    }
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

/// The newest change of a key up to `seq`, if its number is not below `floor`.
pub(crate) fn newest(
    core: &Core,
    view: &View,
    key: &[u8],
    seq: u64,
    floor: u64,
) -> Result<Option<(u64, Kind, Vec<u8>)>> {
    let order = core.order();
    let mut newest: Option<(u64, Kind, Vec<u8>)> = None;
    // Those being flushed are older than the others in memory.
    let frozen = view.frozen.iter().rev().map(|frozen| &frozen.memory);
    for memory in std::iter::once(&view.part(order, key).memory).chain(frozen) {
        if let Some(found) = memory.get(key, seq) {
            newest = Some((found.seq, found.kind, found.value));
            break;
        }
    }
    // Up to the last that was ingested a table may have a newer one.
    if newest.as_ref().is_none_or(|(found, ..)| *found <= view.ingested) {
        for table in view.tables.with_key(order, key) {
            if newest.as_ref().is_some_and(|(found, ..)| *found > table.info.seqs.1) {
                break;
            }
            if table.info.seqs.0 > seq || table.info.seqs.1 < floor {
                continue;
            }
            if let Some(found) = table.get(key, seq)?
                && newest.as_ref().is_none_or(|(newest, ..)| *newest < found.seq)
            {
                newest = Some((found.seq, found.kind, found.value.to_vec()));
            }
        }
    }
    Ok(newest.filter(|(found, ..)| *found >= floor))
}

/// What readers see of a key of the tree whose newest changes are `operands`, the newest first, behind this value.
///
/// # Errors
/// `InvalidArgument`: this opening has no operator for the key's space.
pub(crate) fn merged(core: &Core, key: &[u8], value: Option<&[u8]>, operands: &[Vec<u8>]) -> Result<Option<Vec<u8>>> {
    let Some((operator, user)) = split(key).and_then(|(space, user)| Some((core.spaces.operator(space)?, user))) else {
        return Err(core.refused(Code::InvalidArgument, MISSING));
    };
    let value = operator.merge(user, value, &operands.iter().rev().map(Vec::as_slice).collect::<Vec<_>>());
    Ok(Some(value).filter(|value| !core.spaces.is_over(key, value)))
}

/// All changes of a view, sorted.
pub(crate) fn all(order: &Arc<dyn Order>, view: &View, reach: Reach) -> Result<Merged> {
    let memory = view.memory().filter(|memory| !memory.is_empty());
    let mut cursors: Vec<Box<dyn Cursor + Send>> = Vec::new();
    cursors.extend(memory.map(|memory| Box::new(InMemory::new(memory.clone())) as Box<dyn Cursor + Send>));
    for run in view.tables.runs() {
        cursors.push(Box::new(InRun::new(order, run.clone(), reach)));
    }
    Ok(Merged::new(order, cursors))
}
