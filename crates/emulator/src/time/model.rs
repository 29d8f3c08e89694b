//! The time model that a drive carries with it: its profile's numbers, and by how much an experiment shrank it.
//!
//! Source: the shared design's rule of scaling. At 1/S everything of the drive that has a size is divided by S, *and all mechanical
//! times*; bandwidth, block and seek as a function of the stroke's fraction stay. Where the operation itself keeps its size, mechanics
//! stay real: then only how much there is of everything shrinks.

use super::params::Params;
use std::fmt;

/// What shrinks beside the capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanics {
    /// Zones, bands, caches, the largest command and all mechanical times: for experiments whose operations shrink, too.
    #[default]
    Scaled,
    /// Only the number of zones and the persistent cache: for operations that keep their size.
    Real,
}

impl Mechanics {
    /// Both.
    pub const ALL: [Mechanics; 2] = [Mechanics::Scaled, Mechanics::Real];

    /// The name that options take.
    pub fn name(self) -> &'static str {
        ["scaled", "real"][self as usize]
    }

    /// The one of this name; the error is a sentence.
    pub fn parse(text: &str) -> Result<Mechanics, String> {
        let found = Self::ALL.into_iter().find(|mechanics| mechanics.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither scaled nor real"))
    }
}

impl fmt::Display for Mechanics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Most that a drive can be scaled down.
pub const MOST_SCALE: u32 = 65_536;

/// A factor to scale a drive down by: `64`, or as people write it `1/64`. The error is a sentence.
pub fn parse_scale(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").unwrap_or(text);
    let scale = number.parse::<u32>().ok().filter(|scale| (1..=MOST_SCALE).contains(scale));
    scale.ok_or_else(|| format!("{text:?} is no scale; write 64 or 1/64, at most {MOST_SCALE}"))
}

/// The numbers of a profile, and the scale of a drive that was made of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// As the profile says.
    pub params: Params,
    /// The drive is 1/scale of the profile's.
    pub scale: u32,
    /// What shrank.
    pub mechanics: Mechanics,
}

impl Model {
    /// The numbers that the drive works with.
    pub fn effective(&self) -> Params {
        match self.mechanics {
            Mechanics::Scaled => self.params.scaled(f64::from(self.scale)),
            Mechanics::Real => self.params.fewer(f64::from(self.scale)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_parts() {
        assert_eq!((parse_scale("1/64"), parse_scale("32"), parse_scale("1/1")), (Ok(64), Ok(32), Ok(1)));
        for nonsense in ["0", "1/0", "2/64", "1/", "", "-1", "1/70000", "x"] {
            assert!(parse_scale(nonsense).is_err(), "{nonsense}");
        }
    }
}
