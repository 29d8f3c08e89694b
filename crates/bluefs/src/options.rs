//! How a bluefs is mounted.

use crate::kind::{FileKind, Purpose};
use imbrex_zones::VolumeOptions;
use imbrex_zones::cache::BlockCache;
use imbrex_zones::shell::{Given, UriOption};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// How files are placed, written and cached. What stands here is the file system's own way; who compares it with another one
/// brings that. Whatever is answered, files keep their bytes, syncs keep their promises, and any mount reads what any other wrote.
pub trait Policy: Send + Sync {
    /// The kind of a new file of this name that is expected to become so many bytes long; no directory. Nothing orders a
    /// write-ahead log that is no [`FileKind::Log`] among the logs of its directory: after a power loss a later one may have more.
    fn kind(&self, name: &str, expected: u64) -> FileKind {
        match FileKind::of_name(name) {
            FileKind::Random if expected >= LARGE => FileKind::Table,
            kind => kind,
        }
    }

    /// Whether each append to a log is written to the drive before it returns.
    fn writes_at_once(&self, _: Purpose) -> bool {
        false
    }

    /// Whether a sync that made a log longer says so in the journal, too, which is a second write and a second flush.
    fn tells_length(&self, _: Purpose) -> bool {
        false
    }

    /// Whether files smaller than a zone share zones, and zones are cleaned when there are no empty ones; else every file has
    /// zones of its own.
    fn shares(&self) -> bool {
        true
    }

    /// The cache for file contents, of so many bytes in pages of so many.
    fn cache(&self, capacity: u64, page: u32) -> BlockCache {
        BlockCache::new(capacity, page)
    }
}

/// The file system's own way.
pub struct Usual;
impl Policy for Usual {}

/// Files of unknown names from this size on are tables.
const LARGE: u64 = 1 << 20;
/// What is read around a miss at random, in bytes: a drive of 7,200 turns a minute needs 8 ms to get there and 1 ms for this.
pub(crate) const AROUND: u64 = 256 << 10;
/// The longest window that is read ahead, in bytes: reading it takes four to five times as long as getting there.
pub(crate) const WINDOW: u64 = 8 << 20;

/// Source of times: nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How to mount.
#[derive(Clone)]
pub struct Options {
    /// Bytes of the cache for file contents; 0: none.
    pub cache_bytes: u64,
    /// The journal is compacted when it has grown by this many bytes since the last time.
    pub journal_bytes: u64,
    /// See [`Policy`].
    pub policy: Arc<dyn Policy>,
    /// How the volume is opened.
    pub volume: VolumeOptions,
    /// Bytes of one device write of a table; others are scaled from it.
    pub segment_bytes: usize,
    /// Most that is read ahead in one go, in bytes.
    pub readahead_bytes: u64,
    /// What is read around a miss at random while the cache has room, on a drive that rotates, in bytes; a page or less: nothing.
    pub around_bytes: u64,
    /// Page of the cache, in bytes; a power of two.
    pub page_bytes: u32,
    /// Only to look: what a mount repairs is repaired in memory, over the drive, every change is refused (`ReadOnly`), and
    /// drive and survivor stay as they are.
    pub read_only: bool,
    /// After so long without a command from anybody the zones of short tables are packed together, where files share zones and the
    /// volume has threads; `None`: never.
    pub idle_pack: Option<Duration>,
    /// Where times come from.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes: default_cache_bytes(),
            journal_bytes: 16 << 20,
            policy: Arc::new(Usual),
            volume: VolumeOptions::default(),
            segment_bytes: 2 << 20,
            readahead_bytes: WINDOW,
            around_bytes: AROUND,
            page_bytes: imbrex_zones::cache::DEFAULT_PAGE,
            read_only: false,
            idle_pack: Some(Duration::from_secs(2)),
            clock: Arc::new(now),
        }
    }
}

/// `on`, `off`, or how many seconds.
fn idle_pack(given: Given<'_>, default: Option<Duration>) -> Result<Option<Duration>, String> {
    if let Ok(seconds) = given.value.parse::<f64>() {
        let most = 86_400.0;
        let fits = (0.01..=most).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
        return fits.map(Some).ok_or_else(|| format!("{given} is not between 0.01 and {most} seconds"));
    }
    let on = given.on().map_err(|_| format!("{given} is neither on, off nor a number of seconds"))?;
    Ok(default.filter(|_| on))
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// The smaller of 2 GiB and a quarter of memory.
pub fn default_cache_bytes() -> u64 {
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    });
    memory.map_or(1 << 30, |bytes| bytes / 4).min(2 << 30)
}

const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// Options of a URI.
pub(crate) const OF_URI: &[UriOption<Options>] = &[
    ("cache", |o, given| given.size(ANY).map(|bytes| o.cache_bytes = bytes)),
    ("journal", |o, given| given.size(ANY).map(|bytes| o.journal_bytes = bytes)),
    ("idle-pack", |o, given| idle_pack(given, o.idle_pack).map(|rest| o.idle_pack = rest)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::engine::Mounted;
    use imbrex_device::Error;
    use imbrex_zones::shell::options_of;

    fn of(uri: &str) -> Result<Options, Error> {
        options_of::<Mounted>(uri)
    }

    #[test]
    fn how_long_a_drive_rests_before_it_is_packed_is_understood() {
        assert_eq!(of("imbrex://x.img?idle-pack=off").unwrap().idle_pack, None);
        assert_eq!(of("imbrex://x.img?idle-pack=0.5").unwrap().idle_pack, Some(Duration::from_millis(500)));
        let whole = Options::default();
        assert_eq!(of("imbrex://x.img?idle-pack=on").unwrap().idle_pack, whole.idle_pack);
        for nonsense in ["0", "-3", "NaN", "1e9", "soon", "inf"] {
            let sentence = of(&format!("imbrex://x.img?idle-pack={nonsense}")).err().unwrap().to_string();
            assert!(sentence.contains("seconds"), "{nonsense}: {sentence}");
        }
    }

    #[test]
    fn what_only_a_comparison_has_is_no_option() {
        for option in ["wal=first", "share=off", "cache-policy=fifo", "io-scale=64"] {
            let sentence = of(&format!("imbrex://x.img?{option}")).err().unwrap().to_string();
            let name = option.split('=').next().unwrap();
            assert!(sentence.contains(&format!("there is no option \"{name}\"")), "{sentence}");
        }
    }
}
