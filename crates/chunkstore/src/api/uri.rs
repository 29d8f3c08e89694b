//! Options of a URI: `imbrex:///data/drive.img?open-zones=8`.

use crate::core::fill_of;
use crate::format::BLOCK;
use crate::format::id::StreamType;
use crate::options::{Options, StreamSettings};
use crate::policy::victim::CleaningPolicy;
use imbrex_device::{ZoneState, ZonedDevice, report_all};
use imbrex_drives::parse_size;
use imbrex_zones::shell::{Given, UriOption};
use std::time::Duration;

/// What is asked for.
#[derive(Default)]
pub(crate) struct OpenRequest {
    pub(crate) options: Options,
    /// What was asked for in so many words, and is refused where the drive cannot do it.
    chunk_limit: Option<u32>,
    open_zones: Option<u32>,
}

impl From<Options> for OpenRequest {
    fn from(options: Options) -> OpenRequest {
        OpenRequest { options, ..OpenRequest::default() }
    }
}

/// Options of a URI. A limit of chunks follows the streams that it is for.
pub(crate) const OF_URI: &[UriOption<OpenRequest>] = &[
    ("buffer", |o, given| given.size(1 << 20..=64 << 30).map(|bytes| o.options.buffer_bytes = bytes)),
    ("checkpoint", |o, given| given.size(1 << 20..=1 << 50).map(|bytes| o.options.checkpoint_bytes = bytes)),
    ("segment", |o, given| {
        let bytes = given.size(4096..=64 << 20)?;
        o.options.segment_bytes = bytes.next_multiple_of(4096) as usize;
        Ok(())
    }),
    ("clean-below", |o, given| given.number(0..=1 << 24).map(|zones| o.options.clean_below = Some(zones))),
    ("group-commit-delay", |o, given| {
        given.number(0..=60_000).map(|ms| o.options.group_commit_delay = Duration::from_millis(ms))
    }),
    ("open-zones", |o, given| {
        let zones = given.number(1..=4096)?;
        (o.options.open_zones, o.open_zones) = (zones, Some(zones));
        Ok(())
    }),
    ("zones-at-once", |o, given| given.number(1..=32).map(|zones| o.options.zones_at_once = Some(zones))),
    ("cleaning-policy", |o, given| {
        let known = [
            ("greedy", CleaningPolicy::Greedy),
            ("cost-benefit", CleaningPolicy::CostBenefit),
            ("lifetime", CleaningPolicy::Lifetime),
        ];
        given.one_of(&known).map(|policy| o.options.cleaning_policy = policy)
    }),
    ("streams", |o, given| streams(&mut o.options.streams, given).map_err(|why| format!("{given}: {why}"))),
    ("max-slowdown", |o, given| {
        let factor = match given.value {
            "off" => Ok(None),
            _ => given.number(1.05..=100.0).map(Some),
        };
        let factor = factor.map_err(|_| format!("{given} is neither a number from 1.05 to 100 nor off"))?;
        o.options.max_slowdown = factor;
        Ok(())
    }),
    ("scrub", |o, given| {
        let days = match given.value {
            "off" => None,
            _ => Some(given.number(1..=36_500)?),
        };
        o.options.scrub = days.map(|days: u64| Duration::from_secs(86_400 * days));
        Ok(())
    }),
    ("chunk-limit", |o, given| {
        let limit = given.size(1..=u64::from(u32::MAX))? as u32;
        o.chunk_limit = Some(limit);
        for stream in &mut o.options.streams {
            stream.limit = Some(stream.limit.map_or(limit, |own| own.min(limit)));
        }
        Ok(())
    }),
];

impl OpenRequest {
    /// Whether the drive can do what was asked for.
    pub(crate) fn check(&self, device: &dyn ZonedDevice) -> Result<(), String> {
        let geometry = device.geometry();
        let limits = [geometry.max_open, geometry.max_active].into_iter().flatten().map(|limit| limit.get());
        if let (Some(request), Some(limit)) = (self.open_zones, limits.min())
            && request > limit
        {
            return Err(format!(
                "open-zones={request} is more than the {limit} zones that the drive can have open; ask for {limit} at most, or leave \
                 it out"
            ));
        }
        let own = self.options.streams.iter().skip(StreamSettings::defaults().len());
        let own = own.filter_map(|of| Some((format!("the limit of stream {}: ", of.name), of.limit?)));
        let all = self.chunk_limit.map(|limit| ("chunk-limit=".to_owned(), limit));
        for (what, request) in all.into_iter().chain(own) {
            let zones = report_all(device).map_err(|error| error.to_string())?;
            let sequential = zones.iter().filter(|zone| zone.state != ZoneState::Conventional && zone.capacity > 0);
            let least = sequential.map(|zone| zone.capacity).min().unwrap_or(0);
            let fill = fill_of(u32::try_from(least / BLOCK as u64).unwrap_or(u32::MAX), 1 << 20);
            if u64::from(request) > fill {
                return Err(format!(
                    "{what}{request} is more than fits one of the drive's zones with its framing; ask for {fill} at most, or leave \
                     it out"
                ));
            }
        }
        Ok(())
    }
}

/// Adds kinds of streams, as `NAME:DAYS:POOL,NAME:DAYS:POOL:LIMIT`.
fn streams(all: &mut Vec<StreamSettings>, given: Given<'_>) -> Result<(), String> {
    for one in given.value.split(',') {
        let more = stream(one)?;
        if all.iter().any(|there| there.name == more.name) {
            return Err(format!("there is a stream {:?} already", more.name));
        }
        all.push(more);
    }
    match all.len() > StreamType::MOST {
        true => Err(format!("there can be {} kinds at most", StreamType::MOST)),
        false => Ok(()),
    }
}

/// `NAME:DAYS:POOL`, and perhaps `:LIMIT`.
fn stream(text: &str) -> Result<StreamSettings, String> {
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

    use crate::core::Core;
    use imbrex_device::Error;
    use imbrex_zones::shell::options_of;

    fn request(query: &str) -> Result<OpenRequest, Error> {
        options_of::<Core>(&format!("imbrex:///x.img?{query}"))
    }

    #[test]
    fn options_are_understood() {
        let all = "buffer=4M&checkpoint=1G&chunk-limit=32M&clean-below=9&group-commit-delay=5&open-zones=7&segment=64K&max-slowdown=2.5&scrub=7&\
                   streams=logs:30:8,cold:365:4:16M&survivor-size=1M&cleaning-policy=lifetime&zones-at-once=3";
        let OpenRequest { options, chunk_limit, open_zones } = request(all).unwrap();
        assert_eq!(
            (options.buffer_bytes, options.checkpoint_bytes, options.segment_bytes),
            (4 << 20, 1 << 30, 64 << 10)
        );
        assert_eq!((options.clean_below, options.group_commit_delay), (Some(9), Duration::from_millis(5)));
        assert_eq!((options.max_slowdown, options.scrub), (Some(2.5), Some(Duration::from_secs(7 * 86_400))));
        assert_eq!(request("scrub=off").unwrap().options.scrub, None);
        assert_eq!(request("max-slowdown=off").unwrap().options.max_slowdown, None);
        assert_eq!(options.cleaning_policy, CleaningPolicy::Lifetime);
        assert_eq!((chunk_limit, open_zones, options.open_zones), (Some(32 << 20), Some(7), 7));
        assert_eq!(options.volume.survivor_bytes, 1 << 20);
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
            ("placement=one-zone", "there is no option \"placement\""),
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
