//! What the engines are compared with: bluefs with one of its ideas switched off, the chunk store with other ways of placing chunks, and
//! commands that are as small as a drive that is scaled down.
//!
//! The engines know nothing of it: it is a [policy](imbrex_bluefs::Policy) and a [placement](imbrex_chunkstore::Placement) that they are
//! opened with. For bluefs, [`open`] understands options of a URI for it. So does the C API in `libimbrex_ablation.so`
//! (`crates/bench/ablation`), which stands in for `libimbrex.so` where RocksDB and LevelDB are measured.

mod fifo;
pub mod place;

use fifo::Fifo;
use imbrex_bluefs::kind::{Purpose, purpose};
use imbrex_bluefs::{BlueFs, Error, FileKind, Options, Policy, Result, Usual};
use imbrex_zones::cache::BlockCache;
use std::sync::Arc;

/// What of bluefs is switched off. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// `wal=conventional`: write-ahead logs stand in conventional zones instead of sequential ones.
    pub conventional: bool,
    /// `wal=unbuffered`: every append to one is one write to the drive, as with `zbc_pwrite`, instead of full buffers. With
    /// `conventional` it is the paper's first version (§5.3), `wal=first`.
    pub unbuffered: bool,
    /// `wal=unprepared`: zones for them are not prepared. In the paper a log's length stands only in the journal until zones of old
    /// logs are written again (§5.7, "recycle").
    pub unprepared: bool,
    /// `share=off`: every file has zones of its own.
    pub apart: bool,
    /// `cache-policy=fifo`: the paper's cache (§4, §5.5), from which whole files leave.
    pub fifo: bool,
}

impl Policy for Switches {
    fn kind(&self, name: &str, expected: u64) -> FileKind {
        match purpose(name) {
            Purpose::Wal if self.conventional => FileKind::Random,
            _ => Usual.kind(name, expected),
        }
    }

    fn writes_at_once(&self, purpose: Purpose) -> bool {
        self.unbuffered && purpose == Purpose::Wal
    }

    fn tells_length(&self, purpose: Purpose) -> bool {
        self.unprepared && purpose == Purpose::Wal
    }

    fn shares(&self) -> bool {
        !self.apart
    }

    fn cache(&self, capacity: u64, page: u32) -> BlockCache {
        match self.fifo {
            true => BlockCache::by(capacity, page, |weight| Box::new(Fifo::new(capacity, weight))),
            false => Usual.cache(capacity, page),
        }
    }
}

/// What a URI asks for beside what bluefs understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    switches: Switches,
    /// `io-scale`: by what commands are divided.
    scale: u32,
}

impl Asked {
    /// Takes it out of the URI, of which the rest is returned.
    fn of_uri(uri: &str) -> std::result::Result<(String, Asked), String> {
        let mut asked = Asked { switches: Switches::default(), scale: 1 };
        let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut rest = Vec::new();
        for part in query.split('&') {
            match part.split_once('=') {
                Some((name @ ("wal" | "share" | "cache-policy" | "io-scale"), value)) => {
                    asked.set(name, value).ok_or_else(|| format!("there is no {part} to compare with"))?;
                }
                _ => rest.push(part),
            }
        }
        Ok((format!("{place}?{}", rest.join("&")), asked))
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let of = &mut self.switches;
        match (name, value) {
            ("wal", "sequential") | ("share", "on") | ("cache-policy", "block") => {}
            ("wal", "conventional") => of.conventional = true,
            ("wal", "unbuffered") => of.unbuffered = true,
            ("wal", "unprepared") => of.unprepared = true,
            ("wal", "first") => (of.conventional, of.unbuffered) = (true, true),
            ("share", "off") => of.apart = true,
            ("cache-policy", "fifo") => of.fifo = true,
            ("io-scale", scale) => self.scale = scale.parse().ok().filter(|scale| (1..=65_536).contains(scale))?,
            _ => return None,
        }
        Some(())
    }

    fn tune(self, options: &mut Options) {
        options.policy = Arc::new(self.switches);
        shrink(options, self.scale);
    }
}

/// For a drive that is scaled down: how much goes into one command, one turn and one piece of memory is divided by `scale`, but is a
/// block at least. A piece of memory, and so what a log writes in one go, is four blocks at least. The header of a zone and that of a
/// frame go with the first.
fn shrink(options: &mut Options, scale: u32) {
    let smaller = |bytes: u64| (bytes / u64::from(scale)).max(4096).next_multiple_of(4096);
    options.segment_bytes = smaller(options.segment_bytes as u64) as usize;
    options.readahead_bytes = smaller(options.readahead_bytes);
    options.around_bytes = smaller(options.around_bytes);
    options.page_bytes = smaller(u64::from(options.page_bytes)).next_power_of_two() as u32;
    options.volume.unit_bytes = smaller(options.volume.unit_bytes as u64).max(16 << 10) as usize;
    options.volume.turn_bytes = smaller(options.volume.turn_bytes);
}

/// Mounts what a URI names, as [`BlueFs::open_uri`]. The URI may have `wal=conventional|unbuffered|unprepared|first`, `share=off`,
/// `cache-policy=fifo` (see [`Switches`]) and `io-scale=N`, which divides the sizes of commands.
///
/// # Errors
/// Those of the file system; `Misuse` for a value that these options do not have.
pub fn open(uri: &str) -> Result<BlueFs> {
    let (rest, asked) = Asked::of_uri(uri).map_err(|why| Error::misuse(&uri.into(), why))?;
    BlueFs::open_uri_tuned(&rest, |options| asked.tune(options))
}

#[cfg(test)]
mod tests;
