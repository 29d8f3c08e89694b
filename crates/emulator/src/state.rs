//! Everything about a drive that changes, but its data: zone words, power epoch, write cache, counters.
//!
//! The same layout serves memory drives (a heap region) and images (a shared mapping of the file's front), see `docs/on-disk-format.md`:
//!
//! ```text
//! 0      4096        8192          zones_end        ring
//! ┌──────┬───────────┬─────────────┬────────────────┬──────────────────────┐
//! │header│state words│ zone table  │ counters       │ pre-images (images)  │
//! └──────┴───────────┴─────────────┴────────────────┴──────────────────────┘
//! ```
//!
//! Invariants: every word but the counters is *sealed* (48 bits of value, 16 of checksum over value and place), and is
//! changed by one atomic store. A zone's `flushed` counts only up to its `written`, so whichever of the two words a killed
//! process stored last, the zone is in a state that was true.

use crate::config::Config;
use crate::region::Region;
use imbrex_device::{Cause, ZoneState};

/// Bytes of the header, and of the page of state words after it.
pub(crate) const PAGE: usize = 4096;
const EPOCH: usize = PAGE;
const CACHE: usize = PAGE + 8;
const HOLDER: usize = PAGE + 16;
const RING_HEAD: usize = PAGE + 24;
const RING_TAIL: usize = PAGE + 32;
const HOST_SYNC: usize = PAGE + 40;
const BOOT: usize = PAGE + 48;
const ZONES: usize = 2 * PAGE;
const ZONE_BYTES: usize = 16;
/// Values of sealed words fit in this many bits.
const VALUE_BITS: u32 = 48;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
/// Counters of each cause, in words; more than are in use, so that new ones need no new format.
pub(crate) const COUNTERS_PER_CAUSE: usize = 32;
/// Causes that have room.
pub(crate) const CAUSES: usize = 64;
/// Counters that belong to no cause (rules), in words.
pub(crate) const GLOBAL_COUNTERS: usize = 64;

const _: () = assert!(Cause::ALL.len() <= CAUSES);

/// Puts a checksum over `value` and the place where it stands into its upper 16 bits.
pub(crate) fn seal(at: usize, value: u64) -> u64 {
    debug_assert!(value <= VALUE_MASK);
    let sum = crc32c::crc32c_append(at as u32, &value.to_le_bytes()[..6]) ^ 0x5eed;
    value | u64::from(sum & 0xffff) << VALUE_BITS
}

/// The value of a sealed word, `None` where the checksum is wrong.
pub(crate) fn unseal(at: usize, word: u64) -> Option<u64> {
    let value = word & VALUE_MASK;
    (seal(at, value) == word).then_some(value)
}

/// A hash of `text` that fits in a sealed word; never 0.
pub(crate) fn unsealed_hash(text: &str) -> u64 {
    let hash = crate::drive::hash16(&[text.as_bytes()]);
    let mut low = [0; 8];
    low[..6].copy_from_slice(&hash[..6]);
    u64::from_le_bytes(low) | 1
}

/// What the drive knows of a zone. Counts are blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneWord {
    pub(crate) state: ZoneState,
    /// Full because it was finished, not because it was written to its capacity.
    pub(crate) finished: bool,
    /// Blocks from its start that were written; what lies above reads as zeros.
    pub(crate) written: u64,
}

impl ZoneWord {
    pub(crate) const EMPTY: ZoneWord = ZoneWord { state: ZoneState::Empty, finished: false, written: 0 };

    fn encode(self) -> u64 {
        self.state as u64 | u64::from(self.finished) << 3 | self.written << 4
    }

    fn decode(value: u64) -> ZoneWord {
        // Three bits name eight states, so that every value is one.
        let state = ZoneState::ALL[(value & 7) as usize];
        ZoneWord { state, finished: value & 8 != 0, written: value >> 4 }
    }
}

/// What a power loss makes of a sequential zone of which `written` blocks are left.
pub(crate) fn cut(config: &Config, word: ZoneWord, written: u64) -> ZoneWord {
    let state = match word.state {
        ZoneState::ReadOnly | ZoneState::Offline => word.state,
        // A finished zone stays full whatever became of its bytes; the cut ones read as zeros.
        _ if word.finished || written == config.zone_capacity / u64::from(config.block) => ZoneState::Full,
        _ if written == 0 => ZoneState::Empty,
        _ => ZoneState::Closed,
    };
    ZoneWord { state, written, ..word }
}

/// Where things stand in the region; follows from the configuration alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    counters: usize,
    /// Where the pre-images begin; the region of a memory drive ends here.
    pub(crate) ring: usize,
    /// Bytes of pre-images.
    pub(crate) ring_len: usize,
}

impl Layout {
    pub(crate) fn of(config: &Config) -> Layout {
        let counters = (ZONES + config.zones() as usize * ZONE_BYTES).next_multiple_of(64);
        let ring = (counters + 8 * (CAUSES * COUNTERS_PER_CAUSE + GLOBAL_COUNTERS)).next_multiple_of(PAGE);
        Layout { counters, ring, ring_len: crate::preimage::ring_len(config) }
    }

    /// Bytes of the region of an image.
    pub(crate) fn total(&self) -> usize {
        self.ring + self.ring_len
    }
}

/// Typed access to the region.
pub(crate) struct State {
    pub(crate) region: Region,
    pub(crate) layout: Layout,
}

impl State {
    /// The state of a new memory drive.
    pub(crate) fn in_memory(config: &Config) -> State {
        let layout = Layout::of(config);
        let state = State { region: Region::heap(layout.ring), layout };
        state.initialise(config);
        state
    }

    /// Puts a new drive's words into a zeroed region.
    pub(crate) fn initialise(&self, config: &Config) {
        for at in [EPOCH, CACHE, HOLDER, RING_HEAD, RING_TAIL, HOST_SYNC, BOOT] {
            self.set(at, 0);
        }
        self.set_write_cache(config.write_cache);
        for zone in 0..config.zones() {
            let state = if zone < config.conventional { ZoneState::Conventional } else { ZoneState::Empty };
            self.set_zone(zone, ZoneWord { state, finished: false, written: 0 });
            self.set_flushed(zone, 0);
        }
    }

    /// A heap copy without the pre-images.
    pub(crate) fn copy(&self) -> State {
        State { region: self.region.to_heap(self.layout.ring), layout: self.layout }
    }

    /// Checks every sealed word against its checksum and the configuration; the error names the damaged one.
    pub(crate) fn check(&self, config: &Config) -> Result<(), String> {
        for (at, what) in [
            (EPOCH, "the power epoch"),
            (CACHE, "the write cache's state"),
            (HOLDER, "the holder's process id"),
            (RING_HEAD, "the pre-images' head"),
            (RING_TAIL, "the pre-images' tail"),
            (HOST_SYNC, "the host-sync mark"),
            (BOOT, "the host's boot mark"),
        ] {
            if unseal(at, self.region.load(at)).is_none() {
                return Err(format!("{what} in the drive image"));
            }
        }
        let capacity = config.zone_capacity / u64::from(config.block);
        for zone in 0..config.zones() {
            let at = ZONES + zone as usize * ZONE_BYTES;
            let words = (unseal(at, self.region.load(at)), unseal(at + 8, self.region.load(at + 8)));
            let (Some(word), Some(_)) = words else {
                return Err(format!("the entry of zone {zone} in the drive image's zone table"));
            };
            let word = ZoneWord::decode(word);
            let dead = matches!(word.state, ZoneState::ReadOnly | ZoneState::Offline);
            let conventional = word.state == ZoneState::Conventional;
            if word.written > capacity || (!dead && conventional != (zone < config.conventional)) {
                return Err(format!("the state of zone {zone} in the drive image's zone table"));
            }
        }
        Ok(())
    }

    // A damaged word was found by `check` when the image was opened; if it is damaged later, the low bits still are what
    // was stored or nothing is, and no value of them is out of a Rust type's range.
    fn get(&self, at: usize) -> u64 {
        self.region.load(at) & VALUE_MASK
    }

    fn set(&self, at: usize, value: u64) {
        self.region.store(at, seal(at, value & VALUE_MASK));
    }

    pub(crate) fn zone(&self, zone: u32) -> ZoneWord {
        ZoneWord::decode(self.get(ZONES + zone as usize * ZONE_BYTES))
    }

    pub(crate) fn set_zone(&self, zone: u32, word: ZoneWord) {
        self.set(ZONES + zone as usize * ZONE_BYTES, word.encode());
    }

    /// Blocks of the zone that a power loss cannot take.
    pub(crate) fn flushed(&self, zone: u32) -> u64 {
        self.get(ZONES + zone as usize * ZONE_BYTES + 8).min(self.zone(zone).written)
    }

    pub(crate) fn set_flushed(&self, zone: u32, blocks: u64) {
        self.set(ZONES + zone as usize * ZONE_BYTES + 8, blocks);
    }

    /// Every sequential zone falls back to what was flushed.
    pub(crate) fn cut_to_flushed(&self, config: &Config) {
        self.bump_epoch();
        for zone in config.conventional..config.zones() {
            let word = cut(config, self.zone(zone), self.flushed(zone));
            self.set_zone(zone, word);
            self.set_flushed(zone, word.written);
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.get(EPOCH)
    }

    pub(crate) fn bump_epoch(&self) {
        self.set(EPOCH, self.epoch() + 1);
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.get(CACHE) != 0
    }

    pub(crate) fn set_write_cache(&self, on: bool) {
        self.set(CACHE, u64::from(on));
    }

    /// Process that has the image open for writing, 0 for nobody.
    pub(crate) fn holder(&self) -> u64 {
        self.get(HOLDER)
    }

    pub(crate) fn set_holder(&self, pid: u64) {
        self.set(HOLDER, pid);
    }

    pub(crate) fn ring_head(&self) -> u64 {
        self.get(RING_HEAD)
    }

    pub(crate) fn set_ring_head(&self, at: u64) {
        self.set(RING_HEAD, at);
    }

    pub(crate) fn ring_tail(&self) -> u64 {
        self.get(RING_TAIL)
    }

    pub(crate) fn set_ring_tail(&self, at: u64) {
        self.set(RING_TAIL, at);
    }

    /// Whether the last opener asked for flushes to reach the host's disk.
    pub(crate) fn host_sync(&self) -> bool {
        self.get(HOST_SYNC) != 0
    }

    pub(crate) fn set_host_sync(&self, on: bool) {
        self.set(HOST_SYNC, u64::from(on));
    }

    /// 48 bits of a hash of the host's boot id when the image was last opened for writing.
    pub(crate) fn boot(&self) -> u64 {
        self.get(BOOT)
    }

    pub(crate) fn set_boot(&self, mark: u64) {
        self.set(BOOT, mark);
    }

    fn counter_at(&self, cause: usize, counter: usize) -> usize {
        debug_assert!(cause < CAUSES && counter < COUNTERS_PER_CAUSE);
        self.layout.counters + 8 * (cause * COUNTERS_PER_CAUSE + counter)
    }

    fn global_at(&self, counter: usize) -> usize {
        debug_assert!(counter < GLOBAL_COUNTERS);
        self.layout.counters + 8 * (CAUSES * COUNTERS_PER_CAUSE + counter)
    }

    pub(crate) fn count(&self, cause: Cause, counter: usize, n: u64) {
        if self.region.writable() {
            self.region.add(self.counter_at(cause as usize, counter), n);
        }
    }

    pub(crate) fn counted(&self, cause: Cause, counter: usize) -> u64 {
        self.region.load(self.counter_at(cause as usize, counter))
    }

    pub(crate) fn count_global(&self, counter: usize, n: u64) {
        if self.region.writable() {
            self.region.add(self.global_at(counter), n);
        }
    }

    pub(crate) fn counted_global(&self, counter: usize) -> u64 {
        self.region.load(self.global_at(counter))
    }

    pub(crate) fn reset_counters(&self) {
        for word in 0..CAUSES * COUNTERS_PER_CAUSE + GLOBAL_COUNTERS {
            self.region.store(self.layout.counters + 8 * word, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_breaks_the_seal() {
        let word = seal(8192, 0x1234_5678_9abc);
        assert_eq!(unseal(8192, word), Some(0x1234_5678_9abc));
        assert_eq!(unseal(8200, word), None, "a word at the wrong place");
        for bit in 0..64 {
            assert_eq!(unseal(8192, word ^ (1 << bit)), None, "bit {bit}");
        }
    }

    #[test]
    fn zone_words_round_trip() {
        for state in ZoneState::ALL {
            let word = ZoneWord { state, finished: true, written: (1 << 43) - 1 };
            assert_eq!(ZoneWord::decode(word.encode()), word);
        }
    }

    #[test]
    fn check_finds_damage() {
        let config = Config::tiny();
        let state = State::in_memory(&config);
        assert_eq!(state.check(&config), Ok(()));
        let at = ZONES + 9 * ZONE_BYTES;
        state.region.store(at, state.region.load(at) ^ 0x40);
        assert!(state.check(&config).unwrap_err().contains("zone 9"));
    }
}
