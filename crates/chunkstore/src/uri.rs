//! Opening by name: `imbrex:///data/drive.img?open-zones=8`. A process has one store of a drive, which whoever asks gets.

use crate::core::fill_of;
use crate::error::{Error, Result};
use crate::format::BLOCK;
use crate::id::StreamType;
use crate::options::{FormatOptions, Options, StreamSettings};
use crate::policy::place::Placement;
use crate::policy::victim::CleaningPolicy;
use crate::recover::{self, OpenStep, Relabel, TENANT};
use crate::store::ChunkStore;
use crate::watch::Watched;
use imbrex_device::{Drive, Error as DriveError, Holder, ZoneState, ZonedDevice, report_all};
use imbrex_drives::counted::{Counters, count};
use imbrex_drives::{Locator, Uri, parse_size, parse_uri};
use imbrex_zones::Volume;
use imbrex_zones::registry::Registry;
use imbrex_zones::shared::SharedVolume;
use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Options of a URI that the chunk store understands, beside the drive's.
pub const URI_OPTIONS: &[&str] = &[
    "buffer",
    "checkpoint",
    "chunk-limit",
    "clean-below",
    "group-commit-delay",
    "format",
    "open-zones",
    "placement",
    "scrub",
    "segment",
    "max-slowdown",
    "streams",
    "survivor-size",
    "cleaning-policy",
    "zones-at-once",
];

/// A store that was opened by its name. Its watches end before its drive is let go of.
pub(crate) struct Opened {
    pub(crate) watched: Watched,
    pub(crate) store: ChunkStore,
    /// Where other engines of the process may have the volume, too; last, for when the store has ended.
    _shared: Option<SharedVolume>,
}

static OPEN: LazyLock<Registry<String, Opened>> = LazyLock::new(Registry::default);

impl ChunkStore {
    /// Opens the store of a drive that a URI names, or hands out the one that this process has open (then with the options of the
    /// first). Another engine of this process may have the same drive by its name, `imbrex_bluefs`' for one. The drive is let go of when
    /// the last clone of all is gone; a store that was closed before that can be opened again only then. With `read-only=on` the drive stays as it is, also where there
    /// is something to recover: changes are kept in memory, and forgotten. A drive in memory formats itself, and so does with
    /// `format=on` one that is not formatted.
    ///
    /// ```
    /// use imbrex_chunkstore::{ChunkId, ChunkStore, StreamType};
    /// let store = ChunkStore::open_uri("imbrex://mem:?profile=tiny&chunk-limit=512K")?;
    /// let id = ChunkId::random();
    /// store.create(id, StreamType::DATA)?;
    /// store.append(id, b"bytes")?;
    /// assert_eq!(store.list(None, 10).len(), 1);
    /// assert_eq!(store.space().live, 5);
    /// assert!(store.space().free > 20 << 20);
    /// # Ok::<(), imbrex_chunkstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Drive`]: `Unusable` with a whole sentence where the URI makes no sense for this drive, and those of
    /// [`ChunkStore::open`].
    pub fn open_uri(uri: &str) -> Result<ChunkStore> {
        Self::open_uri_with(uri, &[])
    }

    /// The same with options, as `("read-only", "on")`, that count where the URI does not give them; errors show the URI without.
    ///
    /// # Errors
    /// Those of [`ChunkStore::open_uri`].
    pub fn open_uri_with(uri: &str, more: &[(&str, &str)]) -> Result<ChunkStore> {
        Self::open_uri_watched(uri, more, |_, _, _| {})
    }

    /// Whether a URI and options make sense for its drive, before anything is done to that.
    ///
    /// # Errors
    /// [`Error::Drive`]: `Unusable` with a whole sentence.
    pub fn check_uri(uri: &str, more: &[(&str, &str)], drive: &Drive) -> Result<()> {
        let mut parsed = parse_uri(uri, URI_OPTIONS)?;
        parsed.options.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        OpenRequest::of_uri(&parsed, uri)?.check(drive.device.as_ref(), uri)
    }

    /// The same; `progress` hears what recovery is doing, and how many of how many zones are done.
    ///
    /// # Errors
    /// Those of [`ChunkStore::open_uri`].
    pub fn open_uri_watched(
        uri: &str,
        more: &[(&str, &str)],
        mut progress: impl FnMut(OpenStep, u64, u64),
    ) -> Result<ChunkStore> {
        Self::open_named(uri, more, None, &mut progress)
    }

    /// [`ChunkStore::salvage_as`] of a drive that a URI names and that this process does not have open.
    ///
    /// ```
    /// # use imbrex_chunkstore::{ChunkStore, Relabel};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("drive.img");
    /// # drop(imbrex_emulator::Emulator::create(&path, &imbrex_emulator::Config::tiny(), false)?);
    /// # let uri = format!("imbrex://{}?format=on", path.display());
    /// drop(ChunkStore::open_uri(&uri)?);
    /// let store = ChunkStore::salvage_uri(&uri, &[], Relabel::No, |_step, _done, _all| {})?;
    /// assert!(ChunkStore::salvage_uri(&uri, &[], Relabel::No, |_, _, _| {}).is_err(), "it is open");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ChunkStore::salvage_as`]; `Busy` where this process has the store open.
    pub fn salvage_uri(
        uri: &str,
        more: &[(&str, &str)],
        how: Relabel,
        mut progress: impl FnMut(OpenStep, u64, u64),
    ) -> Result<ChunkStore> {
        Self::open_named(uri, more, Some(how), &mut progress)
    }

    /// Opens a store by its name, or salvages it.
    fn open_named(
        uri: &str,
        more: &[(&str, &str)],
        salvage: Option<Relabel>,
        progress: &mut dyn FnMut(OpenStep, u64, u64),
    ) -> Result<ChunkStore> {
        let mut parsed = parse_uri(uri, URI_OPTIONS)?;
        for (name, value) in more {
            parsed.options.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        let request = OpenRequest::of_uri(&parsed, uri)?;
        let open = parsed.open_options()?;
        let memory = Locator::is_memory(&parsed.locator);
        let mut key = imbrex_drives::key(&parsed.locator);
        let busy = || Error::from(DriveError::busy(&uri.into(), vec![Holder::of(std::process::id())]));
        if open.read_only {
            // Who only looks sees what this process is doing.
            match OPEN.get(&key) {
                Some(_) if salvage.is_some() => return Err(busy()),
                Some(shared) => return Ok(Self::sharing(shared)),
                None => key.push_str(" read-only"),
            }
        }
        let mut here = false;
        let opened = OPEN.get_or_open(key.clone(), || {
            here = true;
            let mut relabelled = None;
            let looks = open.read_only && !memory;
            let mut refused = None;
            let mut volume = || -> Result<(Volume, Arc<Counters>)> {
                let drive = imbrex_drives::open(&parsed.locator, &open)?;
                // From the first command on.
                let (device, counters) = count(drive.device);
                let drive = Drive { device, survivor: drive.survivor };
                request.check(drive.device.as_ref(), uri)?;
                let drive = if looks { imbrex_drives::overlay::cover(drive)? } else { drive };
                if let Some(how) = salvage {
                    relabelled = recover::relabel(&drive, how, &request.options.clock, progress)?;
                }
                refused = match memory || (request.format && !looks) {
                    true => Self::format(&drive, &FormatOptions::default()).err(),
                    false => None,
                };
                let open = if looks { Volume::look } else { Volume::open };
                Ok((open(drive, request.options.volume.clone())?, counters))
            };
            // A drive in memory is nobody else's, and a look is at what is under a cover of its own.
            let opened = match memory || looks {
                true => volume().map(|(volume, counters)| (volume, counters, None)),
                false => Self::share(&key, volume),
            };
            // Who only looks has nothing to gain from zones that are free.
            let options =
                Options { max_slowdown: request.options.max_slowdown.filter(|_| !looks), ..request.options.clone() };
            let opened = opened.and_then(|(volume, counters, shared)| {
                request.check(volume.device().as_ref(), uri)?;
                let tenant = volume.tenant(TENANT)?;
                let core = match salvage {
                    None => recover::open_whole(tenant, options, progress)?,
                    Some(_) => recover::salvage_whole(tenant, options, relabelled, progress)?,
                };
                let store = Self::of(core);
                Ok(Opened { watched: Watched::new(store.clone(), counters), store, _shared: shared })
            });
            match (refused, opened) {
                // Of what was not made one, it is of interest why.
                (Some(why), Err(_)) if memory => Err(why),
                (_, opened) => opened,
            }
        })?;
        if salvage.is_some() && !here {
            return Err(busy());
        }
        Ok(Self::sharing(opened))
    }

    /// A volume that other engines of the process may have, too; `open` opens it, if nobody has.
    fn share(
        key: &str,
        open: impl FnOnce() -> Result<(Volume, Arc<Counters>)>,
    ) -> Result<(Volume, Arc<Counters>, Option<SharedVolume>)> {
        let shared = SharedVolume::open(key, TENANT, || -> Result<_> {
            let (volume, counters) = open()?;
            Ok((volume, counters as Arc<dyn Any + Send + Sync>))
        })?;
        let volume = shared.volume().clone();
        let counters = shared.along().ok_or_else(|| DriveError::unusable(&volume.name(), "is not counted"))?;
        Ok((volume, counters, Some(shared)))
    }
}

/// What a URI asks for.
struct OpenRequest {
    options: Options,
    format: bool,
    /// What was asked for in so many words, and is refused where the drive cannot do it.
    chunk_limit: Option<u32>,
    open_zones: Option<u32>,
}

impl OpenRequest {
    fn of_uri(parsed: &Uri, name: &str) -> Result<OpenRequest> {
        let mut options = Options::default();
        let refuse = |sentence: String| Error::from(DriveError::misuse(&name.into(), sentence));
        let number = |option: &str, least: u32, most: u32| -> Result<Option<u32>> {
            let Some(text) = parsed.options.get(option) else { return Ok(None) };
            let fits = text.parse().ok().filter(|n| (least..=most).contains(n));
            fits.map(Some).ok_or_else(|| refuse(format!("{option}={text} is not a number from {least} to {most}")))
        };
        let size = |option: &str, least: u64, most: u64| -> Result<Option<u64>> {
            match parsed.size(option)? {
                Some(n) if !(least..=most).contains(&n) => {
                    Err(refuse(format!("{option}={n} is not between {least} and {most} bytes")))
                }
                given => Ok(given),
            }
        };
        options.buffer_bytes = size("buffer", 1 << 20, 64 << 30)?.unwrap_or(options.buffer_bytes);
        options.checkpoint_bytes = size("checkpoint", 1 << 20, 1 << 50)?.unwrap_or(options.checkpoint_bytes);
        if let Some(bytes) = size("segment", 4096, 64 << 20)? {
            options.segment_bytes = bytes.next_multiple_of(4096) as usize;
        }
        if let Some(bytes) = size("survivor-size", 1 << 20, 4 << 30)? {
            options.volume.survivor_bytes = bytes as usize;
        }
        options.clean_below = number("clean-below", 0, 1 << 24)?;
        if let Some(milliseconds) = number("group-commit-delay", 0, 60_000)? {
            options.group_commit_delay = Duration::from_millis(u64::from(milliseconds));
        }
        let open_zones = number("open-zones", 1, 4096)?;
        options.open_zones = open_zones.unwrap_or(options.open_zones);
        options.zones_at_once = number("zones-at-once", 1, 32)?;
        options.placement = match parsed.options.get("placement").map(String::as_str) {
            None | Some("fit") => Placement::default(),
            Some("streams") => Placement::STREAMS,
            Some("random") => Placement::RANDOM,
            Some("one-zone") => Placement::ONE_ZONE,
            Some(other) => {
                return Err(refuse(format!("placement={other} is none of fit, streams, random and one-zone")));
            }
        };
        options.cleaning_policy = match parsed.options.get("cleaning-policy").map(String::as_str) {
            None => options.cleaning_policy,
            Some("greedy") => CleaningPolicy::Greedy,
            Some("cost-benefit") => CleaningPolicy::CostBenefit,
            Some("lifetime") => CleaningPolicy::Lifetime,
            Some(other) => {
                return Err(refuse(format!("cleaning-policy={other} is none of greedy, cost-benefit and lifetime")));
            }
        };
        if let Some(text) = parsed.options.get("streams") {
            for one in text.split(',') {
                let more = stream(one).map_err(|why| refuse(format!("streams={text}: {why}")))?;
                if options.streams.iter().any(|there| there.name == more.name) {
                    return Err(refuse(format!("streams={text}: there is a stream {:?} already", more.name)));
                }
                options.streams.push(more);
            }
            if options.streams.len() > StreamType::MOST {
                return Err(refuse(format!("streams={text}: there can be {} kinds at most", StreamType::MOST)));
            }
        }
        options.max_slowdown = match parsed.options.get("max-slowdown").map(String::as_str) {
            None => options.max_slowdown,
            Some("off") => None,
            Some(text) => match text.parse().ok().filter(|factor| (1.05..=100.0).contains(factor)) {
                Some(factor) => Some(factor),
                None => {
                    return Err(refuse(format!("max-slowdown={text} is neither a number from 1.05 to 100 nor off")));
                }
            },
        };
        options.scrub = match parsed.options.get("scrub").map(String::as_str) {
            None => options.scrub,
            Some("off") => None,
            Some(_) => number("scrub", 1, 36_500)?.map(|days| Duration::from_secs(86_400 * u64::from(days))),
        };
        let chunk_limit = size("chunk-limit", 1, u64::from(u32::MAX))?.map(|bytes| bytes as u32);
        if let Some(limit) = chunk_limit {
            for stream in &mut options.streams {
                stream.limit = Some(stream.limit.map_or(limit, |own| own.min(limit)));
            }
        }
        let format = match parsed.options.get("format") {
            None => false,
            Some(value) => imbrex_drives::parse_bool(value).map_err(|why| refuse(format!("format={value}: {why}")))?,
        };
        Ok(OpenRequest { options, format, chunk_limit, open_zones })
    }

    /// Whether the drive can do what was asked for.
    fn check(&self, device: &dyn ZonedDevice, name: &str) -> Result<()> {
        let refuse = |sentence: String| Err(Error::from(DriveError::misuse(&name.into(), sentence)));
        let geometry = device.geometry();
        let limits = [geometry.max_open, geometry.max_active].into_iter().flatten().map(|limit| limit.get());
        if let (Some(request), Some(limit)) = (self.open_zones, limits.min())
            && request > limit
        {
            return refuse(format!(
                "open-zones={request} is more than the {limit} zones that the drive can have open; ask for {limit} at most, or leave \
                 it out"
            ));
        }
        let own = self.options.streams.iter().skip(StreamSettings::defaults().len());
        let own = own.filter_map(|of| Some((format!("the limit of stream {}: ", of.name), of.limit?)));
        let all = self.chunk_limit.map(|limit| ("chunk-limit=".to_owned(), limit));
        for (what, request) in all.into_iter().chain(own) {
            let zones = report_all(device)?;
            let sequential = zones.iter().filter(|zone| zone.state != ZoneState::Conventional && zone.capacity > 0);
            let least = sequential.map(|zone| zone.capacity).min().unwrap_or(0);
            let fill = fill_of(u32::try_from(least / BLOCK as u64).unwrap_or(u32::MAX), 1 << 20);
            if u64::from(request) > fill {
                return refuse(format!(
                    "{what}{request} is more than fits one of the drive's zones with its framing; ask for {fill} at most, or leave \
                     it out"
                ));
            }
        }
        Ok(())
    }
}

/// `NAME:DAYS:POOL`, and perhaps `:LIMIT`.
fn stream(text: &str) -> std::result::Result<StreamSettings, String> {
    let wrong =
        || format!("{text:?} is no kind of stream; write NAME:DAYS:POOL or NAME:DAYS:POOL:LIMIT, as logs:30:8:64M");
    let parts: Vec<&str> = text.split(':').collect();
    let (name, days, pool, limit) = match parts[..] {
        [name, days, pool] => (name, days, pool, None),
        [name, days, pool, limit] => (name, days, pool, Some(limit)),
        _ => return Err(wrong()),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(is_name) || name.parse::<u64>().is_ok() {
        return Err(wrong());
    }
    let days: u64 = days.parse().ok().filter(|days| (1..=100_000).contains(days)).ok_or_else(wrong)?;
    let pool: u32 = pool.parse().ok().filter(|pool| (1..=4096).contains(pool)).ok_or_else(wrong)?;
    let limit = match limit {
        None => None,
        Some(text) => Some(u32::try_from(parse_size(text)?).ok().filter(|limit| *limit > 0).ok_or_else(wrong)?),
    };
    Ok(StreamSettings { name: name.to_owned(), lifetime: Duration::from_secs(86_400 * days), pool, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &str) -> Result<OpenRequest> {
        let uri = format!("imbrex:///x.img?{query}");
        OpenRequest::of_uri(&parse_uri(&uri, URI_OPTIONS)?, &uri)
    }

    #[test]
    fn options_are_understood() {
        let all = "buffer=4M&checkpoint=1G&chunk-limit=32M&clean-below=9&group-commit-delay=5&open-zones=7&placement=one-zone&segment=64K&max-slowdown=2.5&scrub=7&\
                   streams=logs:30:8,cold:365:4:16M&survivor-size=1M&cleaning-policy=lifetime&zones-at-once=3&format";
        let OpenRequest { options, format, chunk_limit, open_zones } = request(all).unwrap();
        assert_eq!(
            (options.buffer_bytes, options.checkpoint_bytes, options.segment_bytes),
            (4 << 20, 1 << 30, 64 << 10)
        );
        assert_eq!((options.clean_below, options.group_commit_delay), (Some(9), Duration::from_millis(5)));
        assert_eq!((options.max_slowdown, options.scrub), (Some(2.5), Some(Duration::from_secs(7 * 86_400))));
        assert_eq!(request("scrub=off").unwrap().options.scrub, None);
        assert_eq!(request("max-slowdown=off").unwrap().options.max_slowdown, None);
        assert_eq!((options.placement, options.cleaning_policy), (Placement::ONE_ZONE, CleaningPolicy::Lifetime));
        assert_eq!((format, chunk_limit, open_zones, options.open_zones), (true, Some(32 << 20), Some(7), 7));
        assert_eq!((options.zones_at_once, request("").unwrap().options.zones_at_once), (Some(3), None));
        let names: Vec<&str> = options.streams.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["data", "metadata", "gc", "logs", "cold"]);
        assert_eq!(options.streams[1].limit, Some(32 << 20), "64M of its own is more");
        assert_eq!((options.streams[4].limit, options.streams[4].pool), (Some(16 << 20), 4));
        assert_eq!(options.streams[3].lifetime, Duration::from_secs(30 * 86_400));
        let default = request("").unwrap();
        assert_eq!((default.chunk_limit, default.open_zones, default.options.open_zones), (None, None, 55));
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        let cases = [
            ("buffer=1", "between"),
            ("open-zones=0", "from 1 to"),
            ("open-zones=many", "from 1 to"),
            ("zones-at-once=33", "from 1 to 32"),
            ("placement=best", "one-zone"),
            ("cleaning-policy=old", "greedy"),
            ("max-slowdown=1", "from 1.05"),
            ("scrub=0", "from 1 to"),
            ("max-slowdown=NaN", "from 1.05"),
            ("max-slowdown=on", "off"),
            ("streams=logs", "NAME:DAYS:POOL"),
            ("streams=7:1:1", "NAME:DAYS:POOL"),
            ("streams=gc:1:1", "already"),
            ("streams=a:0:1", "NAME:DAYS:POOL"),
            ("chunk-limit=5G", "between"),
            ("cache=1G", "there is no option"),
        ];
        for (query, part) in cases {
            let sentence = request(query).err().unwrap().to_string();
            assert!(sentence.contains(part), "{query}: {sentence}");
        }
        let many: Vec<String> = (0..14).map(|i| format!("s{i}:1:1")).collect();
        assert!(request(&format!("streams={}", many.join(","))).is_err());
    }
}
