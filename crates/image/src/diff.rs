//! What has changed of an image between two moments, as a stream that others read, too: the first version of the format of RBD's `export-diff`.
//!
//! A line says what it is. Then records follow, each a letter and little-endian numbers: `f` and `t`, the snapshots' names; `s`, the size; `w`, bytes that stand somewhere;
//! `z`, zeros that do; `e`, the end.

use crate::images::{Images, no_snapshot};
use crate::objects::Why;
use crate::stream::DIFF_MAGIC;
use imbrex_device::{Code, Error, Result};
use std::io::Write;

/// Bytes that are compared at once.
const GRAIN: usize = 64 << 10;

impl Images {
    /// Writes what has changed of an image since a snapshot, or all that is not zeros: up to another snapshot, or until now. What is written to the image meanwhile may be
    /// in it or not.
    ///
    /// # Errors
    /// `NotFound`; those of the store, and of `out`.
    pub fn export_diff(&self, name: &str, from: Option<&str>, to: Option<&str>, out: &mut dyn Write) -> Result<()> {
        let core = self.named(&mut self.lock(), name)?;
        let about = name.into();
        let io = |error| Error::io(&about, error);
        let (ends, size, object) = {
            let state = core.state();
            let of = |snap: Option<&str>| {
                snap.map(|snap| state.snap(snap).ok_or_else(|| no_snapshot(name, snap))).transpose()
            };
            let ends = (of(from)?, of(to)?);
            let size = ends.1.map_or(state.header.size, |snap| state.snaps[&snap].size);
            (ends, size, state.header.object_size())
        };
        out.write_all(DIFF_MAGIC).map_err(io)?;
        for (tag, snap) in [(b'f', from), (b't', to)] {
            if let Some(snap) = snap {
                out.write_all(&[tag]).and_then(|()| out.write_all(&(snap.len() as u32).to_le_bytes())).map_err(io)?;
                out.write_all(snap.as_bytes()).map_err(io)?;
            }
        }
        out.write_all(b"s").and_then(|()| out.write_all(&size.to_le_bytes())).map_err(io)?;
        let (mut old, mut new) = (vec![0; object.min(size) as usize], vec![0; object.min(size) as usize]);
        for number in 0..size.div_ceil(object) {
            let begin = number * object;
            let len = object.min(size - begin) as usize;
            let (old, new) = (&mut old[..len], &mut new[..len]);
            {
                let state = core.state();
                let there =
                    |snap: Option<u64>| snap.is_none_or(|snap| state.snaps.get(&snap).is_some_and(|snap| !snap.going));
                if state.gone || !there(ends.0) || !there(ends.1) {
                    let sentence = "the image or the snapshot was removed in the middle; the stream has no end";
                    return Err(Error::refused(Code::NotFound, name, sentence));
                }
                if ends.1.is_none() {
                    state.check_work(name)?;
                }
                let found = core.find(number, ends.1)?;
                if ends.0.is_some() {
                    let before = core.find(number, ends.0)?;
                    if before == found && (found.is_some() || state.overlap(ends.0) == state.overlap(ends.1)) {
                        continue;
                    }
                    let size = state.snaps.get(&ends.0.unwrap_or(0)).map_or(0, |snap| snap.size);
                    let there = size.saturating_sub(begin).min(len as u64) as usize;
                    old[there..].fill(0);
                    core.read_part(&state, (number, ends.0), 0, &mut old[..there])?;
                } else {
                    let overlap = state.overlap(ends.1);
                    let there =
                        found.is_some()
                            || core.inherited(&state, (number, overlap, Why::ToRead), &mut |source| {
                                Ok(source.is_some())
                            })?;
                    if !there {
                        continue;
                    }
                    old.fill(0);
                }
                core.read_part(&state, (number, ends.1), 0, new)?;
            }
            for (n, (old, new)) in old.chunks(GRAIN).zip(new.chunks(GRAIN)).enumerate() {
                if old == new {
                    continue;
                }
                let zeros = new.iter().all(|byte| *byte == 0);
                out.write_all(if zeros { b"z" } else { b"w" }).map_err(io)?;
                for n in [begin + (n * GRAIN) as u64, new.len() as u64] {
                    out.write_all(&n.to_le_bytes()).map_err(io)?;
                }
                out.write_all(if zeros { &[] } else { new }).map_err(io)?;
            }
        }
        out.write_all(b"e").map_err(io)
    }
}
