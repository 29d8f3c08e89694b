//! Profiles: what is known of a drive model, as data files. Everything that the source does not say is marked "assumed"
//! in the file. The figures about time are carried as [`Fact`]s.

use crate::time::{Parameter, Params};
use imbrex_device::words::the_nearest;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What kind of drive it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Host-managed shingled disk: reads cross zones, reads above the write pointer return zeros.
    #[serde(rename = "HM-SMR")]
    HmSmr,
    /// Zoned flash by the NVMe ZNS command set.
    #[serde(rename = "ZNS")]
    Zns,
    /// Conventional disk: every zone of its image is a conventional one.
    #[serde(rename = "CMR")]
    Cmr,
    /// Drive-managed shingled disk: to the host like a conventional one.
    #[serde(rename = "DM-SMR")]
    DmSmr,
}

impl Kind {
    /// Whether its host sees no zones.
    pub fn is_plain(self) -> bool {
        matches!(self, Kind::Cmr | Kind::DmSmr)
    }
}

/// How a figure was measured, where its place and span are stated: then the model answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// Sequential commands of 1 MiB from the first sequential address.
    SequentialOuter,
    /// The same over the whole drive, bytes over time.
    SequentialAverage,
    /// The same in the conventional zones.
    SequentialConventional,
    /// Reads of 4 KiB at random places.
    RandomRead {
        /// In the first so many bytes.
        span: u64,
        /// So many at once.
        depth: u32,
    },
    /// One zone operation.
    ZoneOpen,
    /// Likewise.
    ZoneClose,
    /// Likewise.
    ZoneReset,
}

/// One measured figure of a drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What was measured, and where on the drive.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Who measured it, or "assumed".
    pub source: String,
    /// How, where that is stated.
    #[serde(default)]
    pub measure: Option<Measure>,
}

/// A drive model. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that `--profile` takes.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// Kind of drive.
    pub kind: Kind,
    /// Size of the address space.
    pub capacity: u64,
    /// Distance between zone starts.
    pub zone_size: u64,
    /// Bytes of a sequential zone that can be written, where that is not all of it.
    #[serde(default)]
    pub zone_capacity: Option<u64>,
    /// How many zones, from the first, are conventional.
    pub conventional_zones: u32,
    /// How many sequential zones may be open.
    pub max_open: Option<u32>,
    /// How many may be open or closed.
    #[serde(default)]
    pub max_active: Option<u32>,
    /// Logical block.
    pub block: u32,
    /// Largest command.
    pub max_io: u32,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Size of the volatile write cache.
    pub write_cache_bytes: u64,
    /// Measured figures.
    #[serde(default, rename = "fact")]
    pub facts: Vec<Fact>,
    /// The numbers of its time model; none: it keeps no time.
    #[serde(default, rename = "parameter")]
    pub parameters: Vec<Parameter>,
}

/// Largest drive: a petabyte is more than anybody sells.
const MOST_BYTES: u64 = 1 << 50;
/// A drive-managed drive's time model keeps a bit for each.
const MOST_BANDS: f64 = 67_108_864.0;

const BUILT_IN: [&str; 8] = [
    include_str!("../profiles/hgst-hsh721414al.toml"),
    include_str!("../profiles/hitachi-hua72303.toml"),
    include_str!("../profiles/seagate-st13125nm007.toml"),
    include_str!("../profiles/seagate-st16000nm001g.toml"),
    include_str!("../profiles/seagate-st20000nm001j.toml"),
    include_str!("../profiles/seagate-st8000as0022.toml"),
    include_str!("../profiles/tiny.toml"),
    include_str!("../profiles/zns-made-up.toml"),
];

impl Profile {
    /// Every built-in profile, sorted by name.
    pub fn all() -> Vec<Profile> {
        BUILT_IN.iter().map(|text| Self::parse(text).expect("a built-in profile parses, held by a test")).collect()
    }

    /// The built-in profile of this name.
    pub fn named(name: &str) -> Option<Profile> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// The built-in profile of this name, or the one in this file; the error is a sentence.
    pub fn find(text: &str) -> Result<Profile, String> {
        if let Some(profile) = Profile::named(text) {
            return Ok(profile);
        }
        let path = Path::new(text);
        if !path.is_file() {
            let known = Profile::all();
            let nearest = the_nearest(text, known.iter().map(|profile| profile.name.as_str()));
            return Err(format!(
                "there is no profile {text:?}, and no such file; {nearest}, `imbrex drive profiles` lists all"
            ));
        }
        // Profiles are a few KiB; what is much larger is something else.
        let large = std::fs::metadata(path).is_ok_and(|meta| meta.len() > 1 << 20);
        let read = if large {
            Err("it is larger than 1 MiB".into())
        } else {
            std::fs::read_to_string(path).map_err(|error| error.to_string())
        };
        read.and_then(|toml| Profile::parse(&toml)).map_err(|sentence| {
            format!("{text}: this is no profile of a drive: {sentence}; `docs/drive-model.md` says what one has")
        })
    }

    /// The numbers of its time model, if it has one; the error is a sentence.
    pub fn time(&self) -> Result<Option<Params>, String> {
        if self.parameters.is_empty() { Ok(None) } else { Params::parse(&self.parameters).map(Some) }
    }

    /// Refuses what no drive is, so that nobody who computes with a profile has to ask again; the error is a sentence.
    fn check(&self) -> Result<(), String> {
        let Profile { capacity, zone_size, conventional_zones, .. } = self;
        if *zone_size == 0 || capacity < zone_size || *capacity > MOST_BYTES {
            return Err(format!(
                "{capacity} bytes in zones of {zone_size} make no drive; use at least one zone, and at most {MOST_BYTES} bytes"
            ));
        }
        if u64::from(*conventional_zones) > capacity / zone_size {
            return Err(format!(
                "{conventional_zones} conventional zones are more than all {} zones",
                capacity / zone_size
            ));
        }
        if let Some(params) = self.time()?.filter(Params::translates)
            && *capacity as f64 / (params.band_mib * 1_048_576.0) > MOST_BANDS
        {
            return Err(format!("band_mib is {}; the drive would have more than {MOST_BANDS} bands", params.band_mib));
        }
        Ok(())
    }

    /// Parses a profile file; the error is a sentence of the parser, or of what makes no drive.
    pub fn parse(text: &str) -> Result<Profile, String> {
        let profile: Profile = toml::from_str(text).map_err(|error| told(text, &error))?;
        profile.check()?;
        Ok(profile)
    }
}

/// What is wrong with the text of a profile, in one line: where, and of a name that nobody knows the two that it may be.
fn told(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().and_then(|span| text.get(..span.start)).map(|before| 1 + before.matches('\n').count());
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    let said = match message.split_once(", expected") {
        Some((unknown, known)) if unknown.starts_with("unknown ") => {
            let word = unknown.split('`').nth(1).unwrap_or_default();
            format!("{unknown}; {}", the_nearest(word, known.split('`').skip(1).step_by(2)))
        }
        _ => message,
    };
    line.map_or(said.clone(), |line| format!("line {line}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_parse_and_are_sorted() {
        let names: Vec<_> = Profile::all().into_iter().map(|profile| profile.name).collect();
        assert_eq!(
            names,
            [
                "hgst-hsh721414al",
                "hitachi-hua72303",
                "seagate-st13125nm007",
                "seagate-st16000nm001g",
                "seagate-st20000nm001j",
                "seagate-st8000as0022",
                "tiny",
                "zns-made-up",
            ]
        );
    }

    #[test]
    fn profiles_carry_the_papers_figures() {
        let hgst = Profile::named("hgst-hsh721414al").unwrap();
        assert_eq!((hgst.capacity / hgst.zone_size, hgst.capacity % hgst.zone_size), (52_156, 0));
        assert_eq!(hgst.facts.iter().find(|f| f.what.ends_with("outer")).unwrap().value, 237.0);
        let seagate = Profile::named("seagate-st20000nm001j").unwrap();
        assert_eq!((seagate.capacity / seagate.zone_size, seagate.conventional_zones), (74_508, 800));
        assert!(Profile::all().iter().flat_map(|p| &p.facts).all(|fact| !fact.source.is_empty()));
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let sentence = Profile::parse("name = \"x\"\nzonesize = 3").unwrap_err();
        assert_eq!(sentence, "line 2: unknown field `zonesize`; the nearest are zone_size and zone_capacity");
        for wrong in ["name = ", "name = \"x\"", "name = 3", "[[fact]]\nwhat = 1", "= 5"] {
            let sentence = Profile::parse(wrong).unwrap_err();
            assert!(sentence.lines().count() == 1 && !sentence.contains('|'), "{sentence}");
        }
    }

    #[test]
    fn what_makes_no_drive_is_refused_with_a_sentence() {
        let with = |key: &str, value: &str| {
            let text = include_str!("../profiles/seagate-st8000as0022.toml");
            let lines = text.lines().map(|line| {
                if line.starts_with(&format!("{key} = ")) { format!("{key} = {value}") } else { line.to_owned() }
            });
            Profile::parse(&lines.collect::<Vec<_>>().join("\n"))
        };
        assert!(with("zone_size", "268_435_456").is_ok());
        for (key, value, says) in [
            ("zone_size", "0", "make no drive"),
            ("capacity", "0", "make no drive"),
            ("capacity", "9_000_000_000_000_000_000", "make no drive"),
            ("conventional_zones", "4_000_000_000", "more than all"),
        ] {
            let sentence = with(key, value).unwrap_err();
            assert!(sentence.contains(says), "{key} = {value}: {sentence:?} lacks {says:?}");
        }
        let bands = include_str!("../profiles/seagate-st8000as0022.toml").replace("value = 30.0", "value = 0.001");
        assert!(Profile::parse(&bands).unwrap_err().contains("bands"));
    }
}
