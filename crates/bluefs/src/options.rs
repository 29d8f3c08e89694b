//! How a bluefs is mounted.

use imbrex_zones::VolumeOptions;
use imbrex_zones::cache::CachePolicy;
use imbrex_zones::shell::{Given, UriOption};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Where the write-ahead log goes and how; the defaults are the paper's last version, the others earlier ones (§5.3, §5.7), kept
/// for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalPlacement {
    /// In conventional zones instead of sequential ones.
    pub conventional: bool,
    /// Every append is one write to the drive, as with `zbc_pwrite`, instead of full buffers.
    pub unbuffered: bool,
    /// Zones for logs are not prepared: a sync that made a log longer says so in the journal, too, which is a second write and a
    /// second flush. In the paper a log's length stands only there until zones of old logs are written again (§5.7, "recycle").
    pub unprepared: bool,
}

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
    /// By block, or the paper's FIFO by file.
    pub cache_policy: CachePolicy,
    /// The journal is compacted when it has grown by this many bytes since the last time.
    pub journal_bytes: u64,
    /// See [`WalPlacement`].
    pub wal: WalPlacement,
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
    /// Searches the zones as after a damaged journal, whatever the journal says: for [salvage](crate::api::salvage).
    pub rescue: bool,
    /// Files smaller than a zone share zones, and zones are cleaned when there are no empty ones; else every file has zones of
    /// its own.
    pub share: bool,
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
            cache_policy: CachePolicy::ByBlock,
            journal_bytes: 16 << 20,
            wal: WalPlacement::default(),
            volume: VolumeOptions::default(),
            segment_bytes: 2 << 20,
            readahead_bytes: WINDOW,
            around_bytes: AROUND,
            page_bytes: imbrex_zones::cache::DEFAULT_PAGE,
            read_only: false,
            rescue: false,
            share: true,
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

impl Options {
    /// For an experiment on a drive that is scaled down: how much goes into one command, one turn and one piece of memory is
    /// divided by `scale`, but is a block at least; a piece of memory, and so what a log writes in one go, is four at least, since
    /// the header of a zone and that of a frame go with the first.
    fn shrink(&mut self, scale: u32) {
        let smaller = |bytes: u64| (bytes / u64::from(scale)).max(4096).next_multiple_of(4096);
        self.segment_bytes = smaller(self.segment_bytes as u64) as usize;
        self.readahead_bytes = smaller(self.readahead_bytes);
        self.around_bytes = smaller(self.around_bytes);
        self.page_bytes = smaller(u64::from(self.page_bytes)).next_power_of_two() as u32;
        self.volume.unit_bytes = smaller(self.volume.unit_bytes as u64).max(16 << 10) as usize;
        self.volume.turn_bytes = smaller(self.volume.turn_bytes);
    }
}

const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// Options of a URI.
pub(crate) const OF_URI: &[UriOption<Options>] = &[
    ("cache", |o, given| given.size(ANY).map(|bytes| o.cache_bytes = bytes)),
    ("journal", |o, given| given.size(ANY).map(|bytes| o.journal_bytes = bytes)),
    ("io-scale", |o, given| given.number(1..=65_536).map(|scale| o.shrink(scale))),
    ("cache-policy", |o, given| {
        let known = [("block", CachePolicy::ByBlock), ("fifo", CachePolicy::FifoByFile)];
        given.one_of(&known).map(|policy| o.cache_policy = policy)
    }),
    ("wal", |o, given| {
        let usual = WalPlacement::default();
        let known = [
            ("sequential", usual),
            ("conventional", WalPlacement { conventional: true, ..usual }),
            ("unbuffered", WalPlacement { unbuffered: true, ..usual }),
            ("unprepared", WalPlacement { unprepared: true, ..usual }),
            ("first", WalPlacement { conventional: true, unbuffered: true, unprepared: false }),
        ];
        given.one_of(&known).map(|wal| o.wal = wal)
    }),
    ("share", |o, given| given.on().map(|share| o.share = share)),
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
    fn an_experiment_shrinks_what_goes_into_a_command_and_no_less_than_a_block() {
        let whole = of("imbrex://x.img?io-scale=1").unwrap();
        assert_eq!((whole.segment_bytes, whole.page_bytes), (2 << 20, 16 << 10));
        let scaled = of("imbrex://x.img?io-scale=64").unwrap();
        assert_eq!((scaled.segment_bytes, scaled.readahead_bytes), (32 << 10, 128 << 10));
        assert_eq!(
            (scaled.page_bytes, scaled.volume.unit_bytes, scaled.volume.turn_bytes),
            (4096, 16 << 10, 256 << 10)
        );
        assert_eq!(of("imbrex://x.img?idle-pack=off").unwrap().idle_pack, None);
        assert_eq!(of("imbrex://x.img?idle-pack=0.5").unwrap().idle_pack, Some(Duration::from_millis(500)));
        assert_eq!(of("imbrex://x.img?idle-pack=on").unwrap().idle_pack, whole.idle_pack);
        for nonsense in ["0", "-3", "NaN", "1e9", "soon", "inf"] {
            let sentence = of(&format!("imbrex://x.img?idle-pack={nonsense}")).err().unwrap().to_string();
            assert!(sentence.contains("seconds"), "{nonsense}: {sentence}");
        }
        for nonsense in ["0", "1/64", "", "-1", "65537"] {
            let sentence = of(&format!("imbrex://x.img?io-scale={nonsense}")).err().unwrap().to_string();
            assert!(sentence.contains("from 1 to 65536"), "{sentence}");
        }
    }
}
