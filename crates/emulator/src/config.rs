//! Configuration of one emulated drive: a [`Profile`] and what was overridden of it.

use crate::profile::{Kind, Profile};
use crate::time::{MOST_SCALE, Mechanics, Model};
use imbrex_device::{Error, Geometry, Result};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Longest command that a drive may take.
const MOST_IO: u32 = 64 << 20;
/// Largest drive in blocks: a zone word keeps 43 bits for a block count.
const MAX_BLOCKS: u64 = 1 << 43;
/// Bytes that a header has for the profile's name.
const MOST_NAME: usize = 64;
/// Smallest number of conventional zones that a scaled-down drive keeps of a profile that has any.
const MIN_SCALED_CONVENTIONAL: u32 = 8;

/// What may be overridden of a profile; `None` keeps the profile's value. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Size of the address space, rounded down to whole zones. Conventional zones shrink with it unless given too.
    pub capacity: Option<u64>,
    /// Distance between zone starts.
    pub zone_size: Option<u64>,
    /// Number of conventional zones.
    pub conventional: Option<u32>,
    /// Logical block, 512 or 4096.
    pub block: Option<u32>,
    /// Largest command; whole blocks, at most 64 MiB.
    pub max_io: Option<u32>,
    /// Whether the volatile write cache is on.
    pub write_cache: Option<bool>,
    /// 1 of so many parts of the profile's drive; 1 without it. Sizes given beside it are as they are.
    pub scale: Option<u32>,
    /// What shrinks with the scale beside the capacity.
    pub mechanics: Mechanics,
}

/// Everything that makes an emulated drive. Sizes in bytes. Start from [`Config::tiny`] or [`Config::new`] and change
/// fields; it is checked when a drive is made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What the drive calls itself in errors; images use their path instead.
    pub name: String,
    /// The profile it began with.
    pub profile: String,
    /// Size of the address space; a multiple of `zone_size`.
    pub capacity: u64,
    /// Distance between zone starts.
    pub zone_size: u64,
    /// Writable bytes of a sequential zone; at most `zone_size`.
    pub zone_capacity: u64,
    /// How many zones, from the first, are conventional.
    pub conventional: u32,
    /// Logical block, 512 or 4096.
    pub block: u32,
    /// Largest command; a multiple of `block`.
    pub max_io: u32,
    /// Open limit.
    pub max_open: Option<u32>,
    /// Active limit (ZNS).
    pub max_active: Option<u32>,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Whether one read may cross zones.
    pub reads_cross_zones: bool,
    /// Whether reads above the write pointer return zeros.
    pub reads_above_wp: bool,
    /// Whether the volatile write cache is on.
    pub write_cache: bool,
    /// Most bytes that a power loss can take; older ones are destaged.
    pub cache_bytes: u64,
    /// How it keeps time, if its profile says.
    pub model: Option<Model>,
    /// Identity of the medium. Memory drives of one configuration share it unless this is changed, so that a run can be
    /// repeated exactly; images get a random one.
    pub uuid: [u8; 16],
}

impl Config {
    /// The profile with overrides.
    pub fn new(profile: &Profile, overrides: &Overrides) -> Config {
        let block = overrides.block.unwrap_or(profile.block);
        let scale = overrides.scale.unwrap_or(1).max(1);
        // What shrinks in any case, and what only with the operations; whole blocks of it.
        let fewer = |bytes: u64| bytes / u64::from(scale);
        let smaller = |bytes: u64| match overrides.mechanics {
            Mechanics::Scaled if scale > 1 => {
                let block = u64::from(block.max(1));
                (bytes / u64::from(scale) / block * block).max(block)
            }
            _ => bytes,
        };
        let zone_size = overrides.zone_size.unwrap_or(smaller(profile.zone_size)).max(1);
        let capacity = overrides.capacity.unwrap_or(fewer(profile.capacity)) / zone_size * zone_size;
        let smr = profile.kind != Kind::Zns;
        let shrunk = || u32::try_from(smaller(u64::from(profile.max_io))).unwrap_or(profile.max_io);
        let max_io = overrides.max_io.unwrap_or_else(shrunk);
        let params = profile.time().ok().flatten();
        // Other zones keep the relation of capacity to size.
        let scaled = |bytes: u64| {
            let part = u128::from(bytes) * u128::from(zone_size) / u128::from(profile.zone_size.max(1));
            u64::try_from(part).unwrap_or(zone_size) / u64::from(block.max(1)) * u64::from(block)
        };
        Config {
            name: format!("mem:{}", profile.name),
            profile: profile.name.clone(),
            capacity,
            zone_size,
            zone_capacity: profile.zone_capacity.map_or(zone_size, scaled),
            conventional: overrides.conventional.unwrap_or_else(|| scaled_conventional(profile, capacity / zone_size)),
            block,
            max_io,
            max_open: profile.max_open,
            max_active: profile.max_active,
            rotational: profile.rotational,
            reads_cross_zones: smr,
            reads_above_wp: smr,
            write_cache: overrides.write_cache.unwrap_or(true),
            cache_bytes: smaller(profile.write_cache_bytes),
            model: params.map(|params| Model { params, scale, mechanics: overrides.mechanics }),
            uuid: *b"imbrex-memory-00",
        }
    }

    /// The profile `tiny`: 64 zones of 1 MiB, 4 of them conventional, 8 may be open.
    pub fn tiny() -> Config {
        let tiny = Profile::named("tiny").expect("a built-in profile");
        Config::new(&tiny, &Overrides::default())
    }

    /// The built-in profile of this name, or that of the file of this name, or an error that names the built-in ones.
    pub fn named(name: &str, overrides: &Overrides) -> Result<Config> {
        let profile = Profile::find(name).map_err(|text| Error::misuse(&"emulated drive".into(), text))?;
        if profile.name.len() > MOST_NAME {
            let text = format!("{name}: the profile's name is longer than {MOST_NAME} bytes");
            return Err(Error::misuse(&"emulated drive".into(), text));
        }
        let config = Config::new(&profile, overrides);
        // What the user gave, not what whole zones leave of it.
        if let Some(capacity) = overrides.capacity.filter(|capacity| capacity / 2 < config.zone_size) {
            let text = format!(
                "a capacity of {capacity} bytes is less than two zones of {}; use a larger capacity or a smaller zone size",
                config.zone_size
            );
            return Err(Error::misuse(&"emulated drive".into(), text));
        }
        Config { name: "emulated drive".into(), ..config.clone() }.check()?;
        Ok(config)
    }

    /// Number of zones.
    pub fn zones(&self) -> u32 {
        u32::try_from(self.capacity / self.zone_size.max(1)).unwrap_or(u32::MAX)
    }

    /// The geometry that the drive reports.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            block: self.block,
            mem_align: self.block,
            max_io: self.max_io,
            zones: self.zones(),
            zone_size: self.zone_size,
            max_open: self.max_open.and_then(NonZeroU32::new),
            max_active: self.max_active.and_then(NonZeroU32::new),
            rotational: self.rotational,
            reads_cross_zones: self.reads_cross_zones,
            reads_above_wp: self.reads_above_wp,
        }
    }

    /// Checks that a drive can be made of it; the error says what to change.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            None => Ok(()),
            Some(sentence) => {
                let name: Arc<str> =
                    if self.name.is_empty() { "emulated drive".into() } else { self.name.as_str().into() };
                Err(Error::misuse(&name, sentence))
            }
        }
    }

    fn problem(&self) -> Option<String> {
        let block = u64::from(self.block);
        if self.block != 512 && self.block != 4096 {
            return Some(format!("the block size is {}; use 512 or 4096", self.block));
        }
        if self.zone_size == 0 || !self.zone_size.is_multiple_of(block) {
            return Some(format!(
                "the zone size {} is not a positive multiple of the block size {block}",
                self.zone_size
            ));
        }
        if self.zone_capacity == 0 || self.zone_capacity > self.zone_size || !self.zone_capacity.is_multiple_of(block) {
            return Some(format!(
                "the zone capacity {} must be whole blocks and at most the zone size",
                self.zone_capacity
            ));
        }
        if self.capacity / block >= MAX_BLOCKS || self.capacity / self.zone_size >= u64::from(u32::MAX) {
            return Some("the drive has too many blocks or zones; use a smaller capacity or larger zones".into());
        }
        if !self.capacity.is_multiple_of(self.zone_size) || self.capacity / 2 < self.zone_size {
            return Some(format!(
                "the capacity {} must be at least two whole zones of {}; use a larger capacity or a smaller zone size",
                self.capacity, self.zone_size
            ));
        }
        if self.conventional > self.zones() {
            return Some(format!("{} conventional zones are more than all {} zones", self.conventional, self.zones()));
        }
        if self.max_io == 0 || !self.max_io.is_multiple_of(self.block) || self.max_io > MOST_IO {
            return Some(format!("the largest command {} must be whole blocks and at most 64 MiB", self.max_io));
        }
        if self.max_open == Some(0) || self.max_active == Some(0) {
            return Some("an open or active limit of 0 allows no write; leave it out for no limit".into());
        }
        if self.profile.len() > MOST_NAME {
            return Some(format!("the profile's name is longer than {MOST_NAME} bytes"));
        }
        if self.model.is_some_and(|model| !(1..=MOST_SCALE).contains(&model.scale)) {
            return Some(format!("the scale must be between 1 and {MOST_SCALE}"));
        }
        None
    }
}

/// A drive scaled down keeps the profile's share of conventional zones, but enough of them to be of use.
fn scaled_conventional(profile: &Profile, zones: u64) -> u32 {
    let of = (profile.capacity / profile.zone_size.max(1)).max(1);
    if profile.kind.is_plain() {
        return u32::try_from(zones).unwrap_or(u32::MAX);
    }
    let share = u64::from(profile.conventional_zones) * zones / of;
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    share.max(profile.conventional_zones.min(MIN_SCALED_CONVENTIONAL)).min(u32::try_from(zones / 2).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_scales_conventional_zones() {
        let of = |capacity| {
            let over = Overrides { capacity: Some(capacity), ..Overrides::default() };
            Config::named("hgst-hsh721414al", &over).unwrap()
        };
        assert_eq!((of(64 << 30).zones(), of(64 << 30).conventional), (256, 8));
        assert_eq!(of(1 << 30).conventional, 2);
        assert_eq!(Config::named("hgst-hsh721414al", &Overrides::default()).unwrap().conventional, 524);
        assert!(of(64 << 30).check().is_ok());
    }

    #[test]
    fn a_scaled_drive_has_as_many_zones_and_a_drive_of_real_mechanics_fewer() {
        let whole = Config::named("hgst-hsh721414al", &Overrides::default()).unwrap();
        let of = |mechanics| {
            let over = Overrides { scale: Some(64), mechanics, ..Overrides::default() };
            Config::named("hgst-hsh721414al", &over).unwrap()
        };
        let scaled = of(Mechanics::Scaled);
        assert_eq!((scaled.zones(), scaled.conventional, scaled.zone_size), (whole.zones(), 524, 4 << 20));
        assert_eq!((scaled.max_io, scaled.cache_bytes, scaled.block), (20 << 10, 4 << 20, 4096));
        let params = scaled.model.unwrap().effective();
        assert_eq!((params.rotation_rpm, params.bandwidth_outer_mib_s), (7200.0 * 64.0, 237.0));
        let real = of(Mechanics::Real);
        assert_eq!((real.zones(), real.zone_size, real.max_io), (whole.zones() / 64, 256 << 20, 1280 << 10));
        let other = Overrides { max_io: Some(4 << 20), scale: Some(64), ..Overrides::default() };
        assert_eq!(Config::named("hgst-hsh721414al", &other).unwrap().max_io, 4 << 20, "it is as it is said");
        assert_eq!(real.model.unwrap().effective(), whole.model.unwrap().params);
        assert!(scaled.check().is_ok() && real.check().is_ok());
        // Of a drive-managed drive, what fills with the number of operations shrinks in any case.
        let over = Overrides { scale: Some(64), mechanics: Mechanics::Real, ..Overrides::default() };
        let params = Config::named("seagate-st8000as0022", &over).unwrap().model.unwrap().effective();
        assert_eq!((params.persistent_cache_mib, params.persistent_cache_extents), (320.0, 3125.0));
        assert_eq!((params.band_mib, params.rotation_rpm), (30.0, 5980.0));
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        let tiny = Config::tiny();
        assert!(tiny.check().is_ok());
        for (broken, says) in [
            (Config { block: 1024, ..tiny.clone() }, "512 or 4096"),
            (Config { zone_size: 0, ..tiny.clone() }, "zone size"),
            (Config { zone_capacity: 100, ..tiny.clone() }, "zone capacity"),
            (Config { capacity: 1 << 20, ..tiny.clone() }, "two whole zones"),
            (Config { conventional: 65, ..tiny.clone() }, "conventional"),
            (Config { max_io: 5000, ..tiny.clone() }, "largest command"),
            (Config { max_open: Some(0), ..tiny.clone() }, "limit of 0"),
            (Config { capacity: 1 << 62, ..tiny.clone() }, "too many"),
        ] {
            let text = broken.check().unwrap_err().to_string();
            assert!(text.contains(says), "{text:?} lacks {says:?}");
        }
        assert!(
            Config::named("tinny", &Overrides::default()).unwrap_err().to_string().contains("nearest are tiny and ")
        );
    }
}
