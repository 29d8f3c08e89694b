//! One number kept in two copies in two conventional zones: the newer valid copy wins. Each copy is two blocks long, so
//! that a write can be torn inside.

use super::{BLOCK, TAG, read, seal, sealed, text, word};
use imbrex_crashkit::{Crash, History, Log, Subject};
use imbrex_device::{AlignedBuf, Drive, ZonedDevice};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    None,
    /// Both copies are written before the first is durable.
    OverwritesBoth,
    /// A copy is believed without looking at its checksum.
    BelievesTornCopies,
    /// Success is reported before the flush.
    SyncsNothing,
}

pub struct Pair {
    pub defect: Defect,
    pub steps: u64,
}

const COPY: usize = 2 * BLOCK;

impl Pair {
    pub fn new(defect: Defect) -> Self {
        Pair { defect, steps: 6 }
    }

    fn place(device: &dyn ZonedDevice, copy: u64) -> u64 {
        copy * device.geometry().zone_size
    }

    /// Generation and value of the newest copy, and which copy it is.
    fn load(&self, device: &dyn ZonedDevice) -> Result<(u64, u64, u64), String> {
        let mut found = Vec::new();
        for copy in 0..2 {
            let buf = read(device, Self::place(device, copy), 2)?;
            let last = (COPY / 8) - 1;
            if sealed(&buf) || self.defect == Defect::BelievesTornCopies {
                // The value's second half stands in the second block.
                found.push((word(&buf, 1), word(&buf, 2) + word(&buf, last), copy));
            }
        }
        found.into_iter().max().ok_or_else(|| "neither copy is valid".to_owned())
    }

    fn write(&self, device: &dyn ZonedDevice, copy: u64, generation: u64, value: u64) -> Result<(), String> {
        let mut buf = AlignedBuf::zeroed(COPY);
        let mut words = vec![0; COPY / 8 - 1];
        words[0] = generation;
        words[1] = value / 2;
        words[COPY / 8 - 2] = value - value / 2;
        seal(&mut buf, &words);
        device.write_at(&buf, Self::place(device, copy), TAG).map_err(text)
    }

    fn store(&self, device: &dyn ZonedDevice, value: u64) -> Result<(), String> {
        let (generation, _, newest) = self.load(device)?;
        let flush = || device.flush(TAG).map_err(text);
        self.write(device, 1 - newest, generation + 1, value)?;
        if !matches!(self.defect, Defect::OverwritesBoth | Defect::SyncsNothing) {
            flush()?;
        }
        self.write(device, newest, generation + 1, value)?;
        if self.defect != Defect::SyncsNothing {
            flush()?;
        }
        Ok(())
    }
}

impl Subject for Pair {
    type Op = u64;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        self.write(drive.device.as_ref(), 0, 1, 0)?;
        self.write(drive.device.as_ref(), 1, 1, 0)?;
        drive.device.flush(TAG).map_err(text)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<u64>) -> Result<(), String> {
        for step in 0..self.steps {
            let value = 1000 * (step + 1) + seed % 1000;
            let id = log.begun(value);
            self.store(drive.device.as_ref(), value)?;
            log.synced(id);
        }
        Ok(())
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        let device = drive.device.as_ref();
        let (generation, value, newest) = self.load(device)?;
        // The newest copy may be only in the drive's cache: whoever has read it must find it again.
        device.flush(TAG).map_err(text)?;
        self.write(device, 1 - newest, generation, value)?;
        device.flush(TAG).map_err(text)
    }

    fn check(&self, drive: Drive, _crash: Crash, history: &History<u64>) -> Result<(), String> {
        let device = drive.device.as_ref();
        let (_, value, _) = self.load(device)?;
        let values: Vec<u64> = std::iter::once(0).chain(history.entries().iter().map(|e| e.op)).collect();
        let found = values.iter().position(|v| *v == value).ok_or_else(|| format!("{value} was never stored"))?;
        if found < history.must_prefix() {
            return Err(format!("{value} is there, but {} was synced later", values[history.must_prefix()]));
        }
        self.store(device, 77)?;
        match self.load(device)? {
            (_, 77, _) => Ok(()),
            other => Err(format!("after storing 77 there is {other:?}")),
        }
    }
}
