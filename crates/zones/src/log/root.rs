//! What the label says of a log: the zones of its rings (SMRSTORE §5.2, the superzone).

use crate::volume::{Tenant, Volume};
use imbrex_device::{Error, Result, ZoneState};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"IMBXmlog";
const VERSION: u32 = 3;
/// Of [`RawRoot::flags`].
const UNFINISHED: u8 = 1;
/// Most runs of neighbouring zones.
const MAX_RUNS: usize = 100;
/// Most bytes of the engine.
const MAX_ENGINE: usize = 64;
/// Most zones, so that no root asks for more memory than any log needs: SMRSTORE's drive has 400.
const MAX_ZONES: usize = 1 << 20;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawRoot {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    copies: u8,
    flags: u8,
    runs: U16,
}
const HEADER: usize = size_of::<RawRoot>();
const _: () = assert!(HEADER == 24 && HEADER + MAX_RUNS * 8 + MAX_ENGINE <= 1024);

/// The zones of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Copies of the log: one or two.
    pub copies: u8,
    /// Numbers of the zones, ascending. They are of the rings by turns: with two copies the first, third, … are the first ring.
    pub zones: Vec<u32>,
    /// The label was made anew of the zones' headers. The salvage that makes the log's contents has not come to its end, or zones of the log may be missing.
    /// No other opening may believe the log.
    pub unfinished: bool,
    /// What the engine wants to know before it reads the log: 64 bytes at most.
    pub engine: Vec<u8>,
}

impl Root {
    /// What the label says of the tenant's log; `None`: it has none yet.
    ///
    /// # Errors
    /// Where it is damaged, or no log can stand in the zones that it names. A root that names other zones is another drive's, or nobody's: nothing is read
    /// by it.
    pub fn of(tenant: &Tenant) -> Result<Option<Root>> {
        let (bytes, volume, name) = (tenant.root(), tenant.volume(), tenant.name());
        if bytes.is_empty() {
            return Ok(None);
        }
        let root = Root::decode(&bytes).map_err(|why| {
            let sentence = format!("the root of {name} is damaged: {why}; restore the drive from a copy");
            Error::damaged(&volume.name(), sentence)
        })?;
        root.check(volume).map_err(|what| {
            let advice = "open the drive with the settings it was made with, or restore it from a copy";
            Error::unusable(&volume.name(), format!("the root of {name} {what}; {advice}"))
        })?;
        Ok(Some(root))
    }

    /// The zones of a ring.
    pub fn ring(&self, copy: u8) -> impl Iterator<Item = u32> {
        self.zones.iter().copied().skip(usize::from(copy)).step_by(usize::from(self.copies.max(1)))
    }

    /// As the bytes of the tenant's root; `None`: the zones stand in too many places, or the engine wants to know too much.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for zone in &self.zones {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == *zone => *count += 1,
                _ => runs.push((*zone, 1)),
            }
        }
        if runs.len() > MAX_RUNS || self.engine.len() > MAX_ENGINE || self.zones.len() > MAX_ZONES {
            return None;
        }
        let raw = RawRoot {
            magic: MAGIC,
            version: VERSION.into(),
            length: ((HEADER + runs.len() * 8 + self.engine.len()) as u32).into(),
            crc: 0.into(),
            copies: self.copies,
            flags: if self.unfinished { UNFINISHED } else { 0 },
            runs: (runs.len() as u16).into(),
        };
        let mut bytes = raw.as_bytes().to_vec();
        for (first, count) in runs {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.extend_from_slice(&self.engine);
        let crc = crc32c::crc32c(&bytes);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        Some(bytes)
    }

    /// From them.
    ///
    /// # Errors
    /// A phrase that says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Root, &'static str> {
        let (raw, rest) = RawRoot::read_from_prefix(bytes).map_err(|_| "it is too short")?;
        if raw.magic != MAGIC {
            return Err("it is none of a metadata log");
        }
        let mut unsummed = bytes.to_vec();
        unsummed[16..20].fill(0);
        if raw.length.get() as usize != bytes.len() || crc32c::crc32c(&unsummed) != raw.crc.get() {
            return Err("its checksum is wrong");
        }
        if raw.version.get() != VERSION {
            return Err("another version of Imbrex wrote it; use that one");
        }
        if !(1..=2).contains(&raw.copies) || raw.flags & !UNFINISHED != 0 {
            return Err("its copies make no sense");
        }
        let runs = usize::from(raw.runs.get());
        let (runs, engine) = <[[U32; 2]]>::ref_from_prefix_with_elems(rest, runs)
            .ok()
            .filter(|(runs, engine)| runs.len() <= MAX_RUNS && engine.len() <= MAX_ENGINE)
            .ok_or("its length makes no sense")?;
        let mut zones: Vec<u32> = Vec::new();
        for [first, count] in runs {
            let (first, count) = (first.get(), count.get());
            let end = first
                .checked_add(count)
                .filter(|_| zones.len() + count as usize <= MAX_ZONES)
                .ok_or("its zones make no sense")?;
            if zones.last().is_some_and(|last| *last >= first) {
                return Err("its zones make no sense");
            }
            zones.extend(first..end);
        }
        Ok(Root { copies: raw.copies, zones, unfinished: raw.flags & UNFINISHED != 0, engine: engine.to_vec() })
    }

    /// Whether a log can stand in these zones of the volume; if not, a phrase that says what it names.
    fn check(&self, volume: &Volume) -> Result<(), String> {
        let report = volume.report_at_open();
        for number in &self.zones {
            let Some(zone) = report.get(*number as usize) else {
                return Err(format!("names zone {number}, which is not on the drive"));
            };
            if zone.state == ZoneState::Conventional || volume.label_zones().contains(&zone.id) {
                return Err(format!("names zone {number}, which takes no log"));
            }
        }
        let least = 2 * usize::from(self.copies);
        match self.zones.len() < least {
            true => Err(format!("names {} zones of a log, and there are {least} at least", self.zones.len())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_reads_back_and_a_damaged_one_does_not() {
        for (copies, unfinished, engine) in [(1, false, vec![7; MAX_ENGINE]), (2, false, vec![]), (2, true, vec![1])] {
            let root = Root { copies, zones: vec![4, 5, 6, 9, 10, 700], unfinished, engine };
            let bytes = root.encode().unwrap();
            assert_eq!(Root::decode(&bytes), Ok(root));
            for at in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] ^= 4;
                assert!(Root::decode(&bytes).is_err(), "byte {at}");
                assert!(Root::decode(&bytes[..at]).is_err());
            }
        }
        let of = |zones: Vec<u32>| Root { copies: 2, zones, ..Root::default() };
        let whole = of((0..MAX_ZONES as u32).collect());
        assert_eq!(Root::decode(&whole.encode().unwrap()), Ok(whole));
        let many = of((0..=MAX_ZONES as u32 + 1).filter(|n| *n != 9).collect());
        assert!(many.encode().is_none(), "one more than there may be, in two runs");
        assert!(of((0..300).map(|n| n * 2).collect()).encode().is_none());
        assert!(Root { engine: vec![0; MAX_ENGINE + 1], ..of(vec![4, 5]) }.encode().is_none());
        let rings = of(vec![4, 5, 6, 9, 10]);
        assert_eq!([0, 1].map(|copy| rings.ring(copy).collect::<Vec<_>>()), [vec![4, 6, 10], vec![5, 9]]);
    }
}
