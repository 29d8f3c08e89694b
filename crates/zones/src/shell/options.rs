//! Options of an engine in a URI: a table of names, each with what its value sets.
//!
//! The drive's options ([`imbrex_drives::DRIVE_OPTIONS`], and those of its locator) and the shell's are taken out before. A name that
//! nobody knows is refused with the nearest ones of all. A value that makes no sense is refused in a sentence that repeats it.

use super::Engine;
use imbrex_device::{Error, Result};
use imbrex_drives::{OpenOptions, parse_bool, parse_size, parse_uri};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// An option of an engine's URI: its name, and what sets it in the engine's options. What it returns on failure is a whole sentence.
pub type UriOption<O> = (&'static str, fn(&mut O, Given<'_>) -> Result<(), String>);

/// The shell's own: whether to format what is not formatted, and bytes of the survivor's region.
const OF_SHELL: [&str; 2] = ["format", "survivor-size"];

/// The names of all options of an engine's URI, beside [those of the drive](imbrex_drives::DRIVE_OPTIONS).
pub fn names<E: Engine>() -> Vec<&'static str> {
    E::OPTIONS.iter().map(|(name, _)| *name).chain(OF_SHELL).collect()
}

/// An option as it is given in a URI.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    name: &'a str,
    /// The text behind the `=`; `on` where there is none.
    pub value: &'a str,
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl Given<'_> {
    /// A size in bytes, as `64M`.
    ///
    /// # Errors
    /// A sentence where it is none, or not within `range`.
    pub fn size(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let bytes = parse_size(self.value).map_err(|why| format!("{self}: {why}"))?;
        if range.contains(&bytes) {
            return Ok(bytes);
        }
        Err(format!("{self} is not between {} and {}", short(*range.start()), short(*range.end())))
    }

    /// A number within `range`.
    ///
    /// # Errors
    /// A sentence where it is none.
    pub fn number<N: FromStr + PartialOrd + fmt::Display>(&self, range: RangeInclusive<N>) -> Result<N, String> {
        let number = self.value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("{self} is not a number from {} to {}", range.start(), range.end()))
    }

    /// `on`, `off` and their like.
    ///
    /// # Errors
    /// A sentence where it is neither.
    pub fn on(&self) -> Result<bool, String> {
        parse_bool(self.value).map_err(|why| format!("{self}: {why}"))
    }

    /// What the word stands for.
    ///
    /// # Errors
    /// A sentence that names all `words`, where it is none of them.
    pub fn one_of<T: Clone>(&self, words: &[(&str, T)]) -> Result<T, String> {
        let found = words.iter().find(|(word, _)| *word == self.value);
        found.map(|(_, meaning)| meaning.clone()).ok_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            match all[..] {
                [one, other] => format!("{self} is neither {one} nor {other}"),
                _ => format!("{self} is not one of {}", all.join(", ")),
            }
        })
    }
}

/// Bytes as they are written in a URI.
fn short(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, letter)| format!("{}{letter}", bytes >> shift))
}

/// What a URI asks for.
pub(super) struct Asked<E: Engine> {
    /// The drive.
    pub(super) locator: String,
    /// How the drive is opened.
    pub(super) open: OpenOptions,
    /// How the engine is.
    pub(super) options: E::Options,
    /// The drive is formatted where it is not.
    pub(super) format: bool,
}

/// Takes a URI apart; `more` options count where the URI does not give them.
pub(super) fn ask<E: Engine>(uri: &str, more: &[(&str, &str)]) -> Result<Asked<E>> {
    let mut parsed = parse_uri(uri, &names::<E>())?;
    for (name, value) in more {
        parsed.options.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
    }
    let given = |name: &'static str| parsed.options.get(name).map(|value| Given { name, value });
    let refuse = |sentence: String| Error::misuse(&uri.into(), sentence);
    let mut options = E::Options::default();
    for (name, set) in E::OPTIONS {
        given(name).map_or(Ok(()), |given| set(&mut options, given)).map_err(refuse)?;
    }
    if let Some(given) = given("survivor-size") {
        E::volume_options(&mut options).survivor_bytes = given.size(1 << 20..=4 << 30).map_err(refuse)? as usize;
    }
    let format = given("format").map_or(Ok(false), |given| given.on()).map_err(refuse)?;
    Ok(Asked { open: parsed.open_options()?, locator: parsed.locator, options, format })
}

/// The engine's options that a URI asks for.
///
/// # Errors
/// `Misuse` with a whole sentence.
pub fn options_of<E: Engine>(uri: &str) -> Result<E::Options> {
    ask::<E>(uri, &[]).map(|asked| asked.options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_understood_or_refused_in_a_sentence_that_repeats_them() {
        let given = |value| Given { name: "x", value };
        assert_eq!(given("64M").size(1..=1 << 30), Ok(64 << 20));
        assert_eq!(given("2G").size(1..=1 << 30).unwrap_err(), "x=2G is not between 1 and 1G");
        assert!(given("lots").size(0..=1).unwrap_err().starts_with("x=lots: \"lots\" is not a size"));
        assert_eq!(given("7").number(1..=8), Ok(7));
        assert_eq!(given("1.5").number(1.05..=100.0), Ok(1.5));
        for nonsense in ["0", "9", "-1", "many", ""] {
            assert_eq!(given(nonsense).number(1..=8).unwrap_err(), format!("x={nonsense} is not a number from 1 to 8"));
        }
        assert!(given("NaN").number(1.05..=100.0).is_err());
        assert_eq!((given("on").on(), given("off").on()), (Ok(true), Ok(false)));
        assert!(given("maybe").on().unwrap_err().contains("neither on nor off"));
        let words = [("first", 1), ("last", 2)];
        assert_eq!(given("last").one_of(&words), Ok(2));
        assert_eq!(given("best").one_of(&words).unwrap_err(), "x=best is neither first nor last");
        let three = [("a", 1), ("b", 2), ("c", 3)];
        assert_eq!(given("d").one_of(&three).unwrap_err(), "x=d is not one of a, b, c");
        assert_eq!([0, 1000, 1024, 3 << 20, 4 << 30, 1 << 41].map(short), ["0", "1000", "1K", "3M", "4G", "2T"]);
    }
}
