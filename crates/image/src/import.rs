//! Streams of changes, as [`export_diff`](Images::export_diff) and RBD make them, come into an image.

use crate::images::{Images, check_unused, no_snapshot};
use crate::names::{ALL, number_of};
use crate::stream::{Front, Record, Stream};
use imbrex_bluestore::Survives;
use imbrex_device::{Code, Error, Result};
use std::io::Read;

/// Bytes that are written at once.
const PART: u64 = 1 << 20;

impl Images {
    /// Makes the changes of a stream in an image that nobody has open to write, and in the end the snapshot that the stream is named for. The image has to be what it was at the
    /// snapshot since which the stream has changes; that one has to be there. A stream of all that an image has needs an image to which nobody has written. Where it fails, the image
    /// may have a part of the changes, and the snapshot is not there; to import the whole stream again makes it right.
    ///
    /// # Errors
    /// `NotFound`; `Exists` where the snapshot is there; `Busy`; `NotEmpty`; `Corruption` where the stream is none, or ends in the middle; `NoSpace`; those of `input` and of the store.
    pub fn import_diff(&self, name: &str, input: &mut dyn Read) -> Result<()> {
        let (mut stream, front) = Stream::new(input, name)?;
        self.prepare(name, &front)?;
        let image = self.image(name, false)?;
        let mut buffer = vec![0; PART.min(front.size) as usize];
        while let Some(record) = stream.record()? {
            match record {
                Record::Zeros { at, len } => image.zero_now(at, len, Survives::Process)?,
                Record::Bytes { at, len } => {
                    let mut done = 0;
                    while done < len {
                        let part = &mut buffer[..PART.min(len - done) as usize];
                        stream.bytes(part)?;
                        image.write_now(at + done, part, Survives::Process)?;
                        done += part.len() as u64;
                    }
                }
            }
        }
        self.store().sync()?;
        front.to.map_or(Ok(()), |to| self.snapshot(name, &to))
    }

    /// Refuses what cannot be imported before anything changes. Then the image has the stream's size.
    fn prepare(&self, name: &str, front: &Front) -> Result<()> {
        let core = self.named(&mut self.lock(), name)?;
        let mut state = core.settled(name)?;
        check_unused(&core, name)?;
        if let Some(to) = front.to.as_deref().filter(|to| state.snap(to).is_some()) {
            return Err(Error::refused(Code::Exists, name, format!("this image has a snapshot {to:?} already")));
        }
        match &front.from {
            Some(from) => drop(state.snap(from).ok_or_else(|| no_snapshot(name, from))?),
            None => {
                let page = self.store().list(ALL, Some(&core.object(0, 0)), 1)?;
                let any = page.all.iter().any(|id| number_of(core.id, id).is_some());
                if any || state.overlap(None) > 0 {
                    let sentence =
                        "the stream has all of an image, and this one has bytes already; make a new one for it";
                    return Err(Error::refused(Code::NotEmpty, name, sentence));
                }
            }
        }
        if front.size != state.header.size {
            core.resize(&mut state, front.size)?;
        }
        Ok(())
    }
}
