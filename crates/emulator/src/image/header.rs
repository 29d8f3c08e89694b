//! The first page of every file of an image: who it is and what the drive is made of. Written once.

use super::DATA_ALIGN;
use crate::config::Config;
use crate::state::PAGE;
use crate::time::{Mechanics, Model, NAMES, Params};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBRXDRV";
/// Format that this program writes, and the newest it reads.
const VERSION: u32 = 1;
const ROTATIONAL: u32 = 1;
const READS_CROSS_ZONES: u32 = 2;
const READS_ABOVE_WP: u32 = 4;
const WRITE_CACHE: u32 = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: u32,
    /// Bytes of this structure.
    len: u32,
    /// CRC-32C of the structure with this field 0.
    crc: u32,
    index: u32,
    uuid: [u8; 16],
    capacity: u64,
    zone_size: u64,
    zone_capacity: u64,
    cache_bytes: u64,
    data_at: u64,
    ring_len: u64,
    conventional: u32,
    block: u32,
    max_io: u32,
    /// 0: no limit.
    max_open: u32,
    /// 0: no limit.
    max_active: u32,
    flags: u32,
    files: u32,
    zones_per_file: u32,
    profile: [u8; 64],
    /// 0: no numbers of a time model follow; [`TIME`]: as here.
    time: u32,
    scale: u32,
    /// Number of a [`Mechanics`].
    mechanics: u32,
    parameters: u32,
    parameter: [RawParameter; PARAMETERS],
    reserved: [u8; 1336],
}

const _: () = assert!(size_of::<Raw>() == PAGE);

/// A number of the time model: its name, padded with zeros, and its value.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawParameter {
    name: [u8; 32],
    /// The bits of a double.
    value: u64,
}

/// Room for this many.
const PARAMETERS: usize = 64;
/// Format of the numbers, and the newest that is read.
const TIME: u32 = 1;
const _: () = assert!(NAMES.len() <= PARAMETERS);

/// What the first page of a file of an image says.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The drive.
    pub config: Config,
    /// Which of the image's files this is.
    pub index: u32,
    /// How many there are.
    pub files: u32,
    /// How many zones stand in each but the last.
    pub zones_per_file: u32,
    /// Where data begins in the first file, in bytes.
    pub data_at: u64,
    /// Bytes of the ring of pre-images.
    pub ring_len: u64,
}

impl Header {
    /// Where data begins in file `index`.
    pub(crate) fn data_at(&self, index: u32) -> u64 {
        if index == 0 { self.data_at } else { DATA_ALIGN }
    }

    /// Length of file `index`.
    pub(crate) fn file_len(&self, index: u32) -> u64 {
        let before = u64::from(index) * u64::from(self.zones_per_file);
        let zones = u64::from(self.config.zones()).saturating_sub(before).min(u64::from(self.zones_per_file));
        self.data_at(index) + zones * self.config.zone_size
    }

    pub(crate) fn encode(&self) -> [u8; PAGE] {
        let config = &self.config;
        let flag = |on, bit| if on { bit } else { 0 };
        let mut profile = [0; 64];
        let n = config.profile.len().min(profile.len());
        profile[..n].copy_from_slice(&config.profile.as_bytes()[..n]);
        let mut parameter = [RawParameter { name: [0; 32], value: 0 }; PARAMETERS];
        let values = config.model.map_or(Vec::new(), |model| model.params.values());
        for (raw, (name, value)) in parameter.iter_mut().zip(&values) {
            let n = name.len().min(raw.name.len());
            raw.name[..n].copy_from_slice(&name.as_bytes()[..n]);
            raw.value = value.to_bits();
        }
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION,
            len: PAGE as u32,
            crc: 0,
            index: self.index,
            uuid: config.uuid,
            capacity: config.capacity,
            zone_size: config.zone_size,
            zone_capacity: config.zone_capacity,
            cache_bytes: config.cache_bytes,
            data_at: self.data_at,
            ring_len: self.ring_len,
            conventional: config.conventional,
            block: config.block,
            max_io: config.max_io,
            max_open: config.max_open.unwrap_or(0),
            max_active: config.max_active.unwrap_or(0),
            flags: flag(config.rotational, ROTATIONAL)
                | flag(config.reads_cross_zones, READS_CROSS_ZONES)
                | flag(config.reads_above_wp, READS_ABOVE_WP)
                | flag(config.write_cache, WRITE_CACHE),
            files: self.files,
            zones_per_file: self.zones_per_file,
            profile,
            time: if config.model.is_some() { TIME } else { 0 },
            scale: config.model.map_or(0, |model| model.scale),
            mechanics: config.model.map_or(0, |model| model.mechanics as u32),
            parameters: values.len() as u32,
            parameter,
            reserved: [0; 1336],
        };
        raw.crc = crc32c::crc32c(raw.as_bytes());
        zerocopy::transmute!(raw)
    }
}

/// Whether bytes that [`decode_header`] refused are what is left of an image of ours, rather than something else or newer.
pub(crate) fn was_ours(bytes: &[u8]) -> bool {
    let version = bytes.get(8..12).and_then(|v| v.try_into().ok()).map(u32::from_le_bytes);
    bytes.starts_with(&MAGIC) && version.is_some_and(|version| version <= VERSION)
}

/// Decodes the first page of a file of an image; the error is a sentence. Never panics.
pub fn decode_header(bytes: &[u8]) -> Result<Header, String> {
    let not_ours = "this is not a drive image; make one with `imbrex drive create PATH --profile NAME`";
    if bytes.len() < 16 || bytes[..8] != MAGIC {
        return Err(not_ours.into());
    }
    let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if version > VERSION {
        return Err(format!(
            "the drive image was made by a newer version (format {version}, this program knows {VERSION}); use that version"
        ));
    }
    let damaged = || "the header of the drive image is damaged; restore it from a copy or create it anew".to_owned();
    let Ok((raw, _)) = Raw::read_from_prefix(bytes) else {
        return Err("the drive image is truncated inside its header; restore it from a copy".into());
    };
    let crc = crc32c::crc32c(Raw { crc: 0, ..raw }.as_bytes());
    if version == 0 || raw.len as usize != PAGE || raw.crc != crc {
        return Err(damaged());
    }
    if raw.time > TIME {
        return Err(format!(
            "the drive image's time model was made by a newer version (format {}, this program knows {TIME}); use that version",
            raw.time
        ));
    }
    let header = Header {
        config: config(&raw).ok_or_else(damaged)?,
        index: raw.index,
        files: raw.files,
        zones_per_file: raw.zones_per_file,
        data_at: raw.data_at,
        ring_len: raw.ring_len,
    };
    if consistent(&header) { Ok(header) } else { Err(damaged()) }
}

/// The time model, if it has one. `None`: damaged.
#[allow(clippy::option_option)]
fn model(raw: &Raw) -> Option<Option<Model>> {
    if raw.time == 0 {
        return Some(None);
    }
    let mut values = Vec::new();
    for parameter in raw.parameter.get(..raw.parameters as usize)? {
        let name = std::str::from_utf8(parameter.name.split(|byte| *byte == 0).next()?).ok()?;
        values.push((name.to_owned(), f64::from_bits(parameter.value)));
    }
    let params = Params::from_values(&values).ok()?;
    Some(Some(Model { params, scale: raw.scale, mechanics: *Mechanics::ALL.get(raw.mechanics as usize)? }))
}

fn config(raw: &Raw) -> Option<Config> {
    let profile = raw.profile.split(|byte| *byte == 0).next()?;
    let profile = std::str::from_utf8(profile).ok()?;
    let config = Config {
        name: String::new(),
        profile: profile.to_owned(),
        capacity: raw.capacity,
        zone_size: raw.zone_size,
        zone_capacity: raw.zone_capacity,
        conventional: raw.conventional,
        block: raw.block,
        max_io: raw.max_io,
        max_open: Some(raw.max_open).filter(|n| *n > 0),
        max_active: Some(raw.max_active).filter(|n| *n > 0),
        rotational: raw.flags & ROTATIONAL != 0,
        reads_cross_zones: raw.flags & READS_CROSS_ZONES != 0,
        reads_above_wp: raw.flags & READS_ABOVE_WP != 0,
        write_cache: raw.flags & WRITE_CACHE != 0,
        cache_bytes: raw.cache_bytes,
        model: model(raw)?,
        uuid: raw.uuid,
    };
    config.check().is_ok().then_some(config)
}

/// Whether the numbers of a header with a right checksum belong together.
fn consistent(header: &Header) -> bool {
    let layout = crate::state::Layout::of(&header.config);
    header.zones_per_file > 0
        && header.files == header.config.zones().div_ceil(header.zones_per_file)
        && header.index < header.files
        && header.ring_len == layout.ring_len as u64
        && header.data_at == (layout.total() as u64).next_multiple_of(DATA_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let config = Config { name: String::new(), ..Config::tiny() };
        let layout = crate::state::Layout::of(&config);
        Header {
            config,
            index: 1,
            files: 7,
            zones_per_file: 10,
            data_at: (layout.total() as u64).next_multiple_of(DATA_ALIGN),
            ring_len: layout.ring_len as u64,
        }
    }

    #[test]
    fn round_trips() {
        assert_eq!(decode_header(&header().encode()), Ok(header()));
    }

    /// The header of a drive that keeps time.
    fn timed() -> Header {
        let over = crate::Overrides {
            scale: Some(64),
            mechanics: Mechanics::Real,
            capacity: Some(64 << 30),
            ..Default::default()
        };
        let named = Config::named("seagate-st8000as0022", &over).unwrap();
        let config = Config { name: String::new(), ..named };
        let layout = crate::state::Layout::of(&config);
        let data_at = (layout.total() as u64).next_multiple_of(DATA_ALIGN);
        Header { config, index: 0, files: 1, zones_per_file: 256, data_at, ring_len: layout.ring_len as u64 }
    }

    #[test]
    fn the_time_model_round_trips() {
        assert!(timed().config.model.is_some());
        assert_eq!(decode_header(&timed().encode()), Ok(timed()));
    }

    /// The encoded header with its model changed, and a right checksum.
    fn changed(change: impl Fn(&mut Raw)) -> Result<Header, String> {
        let (mut raw, _) = Raw::read_from_prefix(&timed().encode()).unwrap();
        change(&mut raw);
        raw.crc = 0;
        raw.crc = crc32c::crc32c(raw.as_bytes());
        decode_header(raw.as_bytes())
    }

    #[test]
    fn a_model_that_is_none_is_refused() {
        assert!(changed(|raw| raw.parameters = 65).is_err());
        assert!(changed(|raw| raw.parameters = 3).is_err());
        assert!(changed(|raw| raw.mechanics = 2).is_err());
        assert!(changed(|raw| raw.scale = 0).is_err());
        assert!(changed(|raw| raw.parameter[2].value = f64::NAN.to_bits()).is_err());
        assert!(changed(|raw| raw.parameter[2].name[0] = 0xff).is_err());
        assert!(changed(|raw| raw.time = 2).unwrap_err().contains("newer version"));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = header().encode();
        for bit in 0..PAGE * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_length_and_a_newer_version_have_their_sentence() {
        let good = header().encode();
        for len in 0..PAGE {
            assert!(decode_header(&good[..len]).is_err());
        }
        let mut newer = good;
        newer[8] = 9;
        assert!(decode_header(&newer).unwrap_err().contains("newer version"));
        assert!(decode_header(b"#!/bin/sh\necho this is not one\n").unwrap_err().contains("not a drive image"));
    }
}
