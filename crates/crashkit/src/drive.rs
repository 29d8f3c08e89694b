//! The emulated drive as the explorer sees it: something to fork, to cut the power of, and to wear out.

use imbrex_device::{Drive, Error, HeapSurvivor, ZoneId, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;

/// What a power loss leaves of what was not flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// All of it.
    KeepAll,
    /// Nothing.
    KeepNothing,
    /// What this seed says.
    Random(u64),
}

/// A drive in memory.
#[derive(Clone)]
pub(crate) struct Model(Emulator);

impl Model {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        Emulator::memory(config).map(Model)
    }

    pub(crate) fn device(&self) -> &dyn ZonedDevice {
        &self.0
    }

    /// The same drive on its own from here.
    pub(crate) fn fork(&self) -> Self {
        Model(self.0.fork().expect("a drive in memory can be copied"))
    }

    pub(crate) fn power_loss(&self, loss: Loss) -> Self {
        let cut = match loss {
            Loss::KeepAll => self.0.after_power_loss_choosing(&mut |most| most),
            Loss::KeepNothing => self.0.after_power_loss_choosing(&mut |_| 0),
            Loss::Random(seed) => self.0.after_power_loss(seed),
        };
        Model(cut.expect("a drive in memory can be copied"))
    }

    /// How often a rule of the drive was broken so far.
    pub(crate) fn violations(&self) -> u64 {
        self.0.stats().rule_violations
    }

    /// The zone becomes read-only, or offline, from now on.
    pub(crate) fn wear_out(&self, zone: ZoneId, offline: bool) {
        // Only a zone that does not exist is refused, and the command that follows will say so.
        let _ = if offline { self.0.faults().make_offline(zone) } else { self.0.faults().make_read_only(zone) };
    }

    /// The drive loses power under who uses it.
    pub(crate) fn lose_power(&self, told: bool, seed: u64) {
        self.0.faults().lose_power_by(told, seed).expect("a drive in memory can be cut");
    }

    /// Flips the bits of `mask` in a byte that has been written.
    pub(crate) fn flip_bit(&self, at: u64, mask: u8) {
        let _ = self.0.faults().flip_bits(at, mask);
    }

    /// Reads of these bytes fail until they are written again.
    pub(crate) fn bad_sector(&self, at: u64, len: u64) {
        self.0.faults().media_error(at, len);
    }

    /// The drive with a survivor beside it.
    pub(crate) fn drive(&self, survivor: HeapSurvivor) -> Drive {
        Drive { device: Arc::new(self.0.clone()), survivor: Some(Arc::new(survivor)) }
    }
}
