//! What clients ask of an image: each request waits for the limits, and is measured.

use crate::image::Image;
use crate::meter::Kind;
use imbrex_bluestore::Survives;
use imbrex_device::Result;

impl Image {
    fn request(&self, kind: Kind, bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let lasting = &self.core().lasting;
        match kind {
            Kind::Read | Kind::Write => lasting.meter.waited(lasting.throttle.wait(bytes)),
            Kind::Discard => lasting.meter.waited(lasting.throttle.wait(0)),
            Kind::Flush => {}
        }
        lasting.meter.measure(kind, bytes, work)
    }

    /// Reads bytes, all of them. What nobody wrote is zeros.
    ///
    /// # Errors
    /// `Range` where they are not in the image; `NotFound` where it was removed; `Corrupt` where bytes are not those that were written; those of the drive.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.request(Kind::Read, out.len() as u64, || self.read_now(offset, out))
    }

    /// Writes bytes. They survive the process, or a loss of power, when it returns.
    ///
    /// # Errors
    /// `Range`, `ReadOnly`, `NotFound` where the image was removed; `NoSpace` where the drive is full, or the image takes what it may; those of the drive.
    pub fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<()> {
        self.request(Kind::Write, bytes.len() as u64, || self.write_now(offset, bytes, survives))
    }

    /// Zeros stand there, which take no room: a discard, too.
    ///
    /// # Errors
    /// Those of [`Image::write`], but for the limit of what the image takes.
    pub fn zero(&self, offset: u64, len: u64, survives: Survives) -> Result<()> {
        self.request(Kind::Discard, len, || self.zero_now(offset, len, survives))
    }

    /// All that was written to any image is durable when it returns.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn flush(&self) -> Result<()> {
        self.request(Kind::Flush, 0, || self.core().store.sync())
    }
}
