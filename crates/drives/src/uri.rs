//! `imbrex://` + locator + options, and the values that options have.

use crate::banded::{BANDED, BANDED_OPTIONS};
use crate::locator::{Locator, MEMORY_OPTIONS, OpenOptions, ZONED_OPTIONS};
use imbrex_device::words::the_nearest;
use imbrex_device::{Error, Result};
use std::collections::BTreeMap;

/// What every URI begins with.
pub const SCHEME: &str = "imbrex://";

/// Options of a URI that say how the drive is opened; [`Uri::open_options`] understands them.
pub const DRIVE_OPTIONS: &[&str] = &["host-sync", "read-only", "survivor", "max-io"];

/// A URI taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// What [`crate::open`] takes. The options of a drive in memory, or of a banded disk, are part of it.
    pub locator: String,
    /// The options, of which every name is known.
    pub options: BTreeMap<String, String>,
}

impl Uri {
    /// How the drive is opened, by the [`DRIVE_OPTIONS`].
    pub fn open_options(&self) -> Result<OpenOptions> {
        let is_on = |name: &str, default| match self.options.get(name) {
            None => Ok(default),
            Some(value) => parse_bool(value).map_err(|sentence| self.refuse(&format!("{name}={value}: {sentence}"))),
        };
        Ok(OpenOptions {
            host_sync: is_on("host-sync", false)?,
            read_only: is_on("read-only", false)?,
            survivor: is_on("survivor", true)?,
            as_it_is: false,
            max_io: self.size("max-io")?,
        })
    }

    /// The option `name` as a size in bytes, where it is given.
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        let parse =
            |value: &String| parse_size(value).map_err(|sentence| self.refuse(&format!("{name}={value}: {sentence}")));
        self.options.get(name).map(parse).transpose()
    }

    fn refuse(&self, sentence: &str) -> Error {
        Error::misuse(&self.locator.as_str().into(), sentence)
    }
}

/// Takes a URI apart. `known` are the options of the caller beside [`DRIVE_OPTIONS`]; an option that nobody knows is an
/// error that names them all. An option without `=` is on.
pub fn parse_uri(uri: &str, known: &[&str]) -> Result<Uri> {
    let refuse = |sentence: String| Error::misuse(&uri.into(), sentence);
    let Some(rest) = uri.strip_prefix(SCHEME) else {
        return Err(refuse(format!("a drive's URI begins with {SCHEME}, as {SCHEME}/data/drive.img?cache=2G")));
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    if place.is_empty() {
        return Err(refuse(format!("the URI names no drive; write {SCHEME}/path/to/drive.img or {SCHEME}mem:")));
    }
    let of_locator: &[&str] = match place {
        _ if Locator::is_memory(place) => MEMORY_OPTIONS,
        _ if place.starts_with(BANDED) => BANDED_OPTIONS,
        _ => ZONED_OPTIONS,
    };
    let mut options = BTreeMap::new();
    let mut locator_query = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, "on"));
        if of_locator.contains(&name) {
            locator_query.push(part);
        } else if !known.contains(&name) && !DRIVE_OPTIONS.contains(&name) {
            let all = [known, DRIVE_OPTIONS, of_locator].concat();
            return Err(refuse(format!("there is no option {name:?}; {}", the_nearest(name, all))));
        } else if options.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(refuse(format!("the option {name:?} is there twice; leave one out")));
        }
    }
    let mut locator = place.to_owned();
    if !locator_query.is_empty() {
        locator = format!("{place}?{}", locator_query.join("&"));
    }
    Ok(Uri { locator, options })
}

/// A size in bytes: a whole number with K, M, G or T behind it for powers of 1024 (`256M`, `2G`, `1T`; also `2GiB`).
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let sentence = || format!("{text:?} is not a size; write it as 4096, 256M, 64G or 14T");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| sentence())?;
    let shift = match text[digits..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(sentence()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is more bytes than 64 bits can count"))
}

/// `on`, `off` and their like.
pub fn parse_bool(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" | "1" | "true" | "yes" => Ok(true),
        "off" | "0" | "false" | "no" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_uri_apart() {
        let uri = parse_uri("imbrex:///data/x.img?cache=2G&survivor=off&host-sync", &["cache"]).unwrap();
        assert_eq!(uri.locator, "/data/x.img");
        assert_eq!(uri.size("cache").unwrap(), Some(2 << 30));
        assert_eq!(uri.size("none").unwrap(), None);
        let options = uri.open_options().unwrap();
        assert_eq!(
            options,
            OpenOptions { host_sync: true, read_only: false, survivor: false, as_it_is: false, max_io: None }
        );
        let memory = parse_uri("imbrex://mem:?profile=tiny&cache=4M&size=1G", &["cache"]).unwrap();
        assert_eq!(memory.locator, "mem:?profile=tiny&size=1G");
        assert_eq!(memory.size("cache").unwrap(), Some(4 << 20));
        assert_eq!(parse_uri("imbrex://x.img", &[]).unwrap().locator, "x.img");
        let timed = parse_uri("imbrex:///d/x.img?time=pace&cache=4M&speed=2", &["cache"]).unwrap();
        assert_eq!(timed.locator, "/d/x.img?time=pace&speed=2");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (uri, says) in [
            ("/data/x.img", "begins with imbrex://"),
            ("imbrex://", "names no drive"),
            ("imbrex://?cache=1", "names no drive"),
            ("imbrex://x.img?hostsync=1", "the nearest are host-sync and "),
            ("imbrex://x.img?profile=tiny", "no option \"profile\""),
            ("imbrex://mem:?profil=1", "profile"),
            ("imbrex://x.img?cache=1&cache=2", "twice"),
        ] {
            let text = parse_uri(uri, &["cache"]).unwrap_err().to_string();
            assert!(text.contains(says) && text.contains(uri), "{text:?} lacks {says:?}");
        }
        let uri = parse_uri("imbrex://x.img?cache=lots&survivor=maybe", &["cache"]).unwrap();
        assert!(uri.size("cache").unwrap_err().to_string().contains("256M"));
        assert!(uri.open_options().unwrap_err().to_string().contains("neither on nor off"));
    }

    #[test]
    fn sizes() {
        for (text, size) in [("0", 0), ("4096", 4096), ("3k", 3 << 10), ("256M", 256 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(parse_size(text), Ok(size));
        }
        for text in ["", "M", "1.5G", "-1", "1Q", "99999999999999999999", "18446744073709551615T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
