//! Profiles: what is known of a drive model, as data files. Everything that the source does not say is marked "assumed"
//! in the file. The figures about time are carried as [`Fact`]s.

use serde::{Deserialize, Serialize};

/// What kind of drive it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Host-managed shingled disk: reads cross zones, reads above the write pointer return zeros.
    #[serde(rename = "HM-SMR")]
    HmSmr,
    /// Zoned flash by the NVMe ZNS command set.
    #[serde(rename = "ZNS")]
    Zns,
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
}

const BUILT_IN: [&str; 5] = [
    include_str!("../profiles/hgst-hsh721414al.toml"),
    include_str!("../profiles/seagate-st13125nm007.toml"),
    include_str!("../profiles/seagate-st20000nm001j.toml"),
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

    /// Parses a profile file; the error is the parser's sentence.
    pub fn parse(text: &str) -> Result<Profile, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_parse_and_are_sorted() {
        let names: Vec<_> = Profile::all().into_iter().map(|profile| profile.name).collect();
        assert_eq!(names, ["hgst-hsh721414al", "seagate-st13125nm007", "seagate-st20000nm001j", "tiny", "zns-made-up"]);
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
        assert!(Profile::parse("name = \"x\"\nspeed = 3").is_err());
    }
}
