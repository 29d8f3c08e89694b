//! How a chunk store is formatted and opened.

use crate::format::entry::notes::{MOST_NAME, StreamEntry};
use crate::format::id::StreamType;
use crate::policy::place::{Fit, Placement};
use crate::policy::victim::CleaningPolicy;
use imbrex_zones::VolumeOptions;
use std::sync::Arc;
use std::time::Duration;

/// Source of times: nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What the store expects of a kind of stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// What people call it.
    pub name: String,
    /// How long its chunks are expected to live.
    pub lifetime: Duration,
    /// How many zones may be open for it at once, in proportion to the other kinds.
    pub pool: u32,
    /// Most bytes of a chunk; `None`: what a zone takes.
    pub limit: Option<u32>,
}

const DAY: Duration = Duration::from_secs(86_400);

impl StreamSettings {
    /// The paper's three kinds, by number: data, metadata and GC (SMRSTORE, Table 1 and §5.4).
    pub fn defaults() -> Vec<StreamSettings> {
        let of =
            |name: &str, days, pool, limit| StreamSettings { name: name.into(), lifetime: DAY * days, pool, limit };
        vec![of("data", 7, 10, None), of("metadata", 60, 5, Some(64 << 20)), of("gc", 90, 40, None)]
    }
}

/// How to open a store.
#[derive(Clone)]
pub struct Options {
    /// How the volume is opened.
    pub volume: VolumeOptions,
    /// Settings by [`StreamType`] number.
    pub streams: Vec<StreamSettings>,
    /// How chunks are placed.
    pub placement: Arc<dyn Placement>,
    /// How zones are chosen for cleaning.
    pub cleaning_policy: CleaningPolicy,
    /// Most zones open for writing at once; the drive's limit counts, too. The paper's 55 by default.
    pub open_zones: u32,
    /// Most zones that are written at once where the write cache is off and active zones are not limited, up to 32; `None`: [as many as pay](imbrex_zones::write::turns::at_once).
    pub zones_at_once: Option<u32>,
    /// Bytes that may wait in memory; whoever appends more writes some of them.
    pub buffer_bytes: u64,
    /// Small records gather in pieces of this many bytes.
    pub segment_bytes: usize,
    /// How long a commit waits for others that could share its turns and its flush; only with background threads.
    pub group_commit_delay: Duration,
    /// Bytes that are appended between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Bytes that are appended, at most, before the journal is told where they stand: about as many are scanned after a crash.
    pub tell_bytes: u64,
    /// Cleaning begins when fewer zones are free than this many; `None`: a sixty-fourth of all, 4 at least.
    pub clean_below: Option<u32>,
    /// Cleaning is done in the background, by a thread or (inline) by [`ChunkStore::step`](crate::ChunkStore::step), and at a pace that what
    /// users do takes no more than so many times longer, above 1; only while fewer than half of `clean_below` zones are free those
    /// who take one clean, too. `None`: nobody but they cleans.
    pub max_slowdown: Option<f64>,
    /// In about so long every chunk is verified once, over and over, in the background, by the thread of `max_slowdown` and within it; what is
    /// damaged is [marked](crate::ChunkStore::scrubbed). `None`: nothing is.
    pub scrub: Option<Duration>,
    /// Where times come from.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            volume: VolumeOptions::default(),
            streams: StreamSettings::defaults(),
            placement: Arc::new(Fit),
            cleaning_policy: CleaningPolicy::Lifetime,
            open_zones: 55,
            zones_at_once: None,
            buffer_bytes: 256 << 20,
            segment_bytes: 1 << 20,
            group_commit_delay: Duration::ZERO,
            checkpoint_bytes: 32 << 30,
            tell_bytes: 512 << 20,
            clean_below: None,
            max_slowdown: Some(1.5),
            scrub: Some(DAY * 30),
            clock: Arc::new(now),
        }
    }
}

impl Options {
    /// The kinds of streams beyond the usual three, as they stand in checkpoints.
    pub(crate) fn own_streams(&self) -> Vec<StreamEntry> {
        let entry = |(number, settings): (usize, &StreamSettings)| StreamEntry {
            number: number as u8,
            pool: settings.pool.max(1),
            lifetime: settings.lifetime.as_secs(),
            limit: settings.limit.unwrap_or(0),
            name: settings.name.clone(),
        };
        let own = self.streams.iter().enumerate().skip(USUAL).take(StreamType::MOST - USUAL);
        own.filter(|(_, s)| !s.name.is_empty() && s.name.len() <= MOST_NAME).map(entry).collect()
    }

    /// Settings of the kinds of streams that the store has: those of here, and those that were given when it was opened before. A name keeps the
    /// number that it has there; what is said of it here counts. `None`: together they are too many.
    pub(crate) fn merge_streams(&mut self, stored: &[StreamEntry]) -> Option<()> {
        if stored.is_empty() {
            return Some(());
        }
        let own = self.streams.split_off(self.streams.len().min(USUAL));
        let mut usual = StreamSettings::defaults().into_iter().skip(self.streams.len());
        self.streams.extend(usual.by_ref());
        let mut own: Vec<Option<StreamSettings>> = own.into_iter().map(Some).collect();
        for entry in stored {
            let given = own.iter_mut().find(|one| one.as_ref().is_some_and(|s| s.name == entry.name));
            let settings = given.and_then(Option::take).unwrap_or_else(|| StreamSettings {
                name: entry.name.clone(),
                lifetime: Duration::from_secs(entry.lifetime),
                pool: entry.pool,
                limit: (entry.limit > 0).then_some(entry.limit),
            });
            // A number that nothing is known of.
            while self.streams.len() < usize::from(entry.number) {
                let name = self.streams.len().to_string();
                self.streams.push(StreamSettings { name, lifetime: DAY, pool: 1, limit: None });
            }
            self.streams.push(settings);
        }
        self.streams.extend(own.into_iter().flatten());
        (self.streams.len() <= StreamType::MOST).then_some(())
    }
}

/// Data, metadata and GC.
const USUAL: usize = 3;

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// How to format a drive.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// UUID of the new volume; `None`: a random one.
    pub uuid: Option<[u8; 16]>,
    /// Whether to destroy what is on the drive.
    pub force: bool,
}

/// When an append, and whatever else changes something, has happened for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When it is durable: written to the drive, with one flush for everybody who waits; with the drive's write cache off an append waits for
    /// nobody else.
    #[default]
    Durable,
    /// At once: it is in this process' memory, and durable after the next [`ChunkStore::sync`](crate::ChunkStore::sync), durable create, seal
    /// or delete of anybody, or durable append to the same chunk. A process that dies before takes it along.
    Buffered,
}

/// How to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Append {
    /// Where the chunk must end, so that repeating an append whose answer was lost is safe.
    pub offset: Option<u64>,
    /// When it returns.
    pub durability: Durability,
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Its id.
    pub id: crate::format::id::ChunkId,
    /// Its kind of stream.
    pub stream: StreamType,
    /// Bytes.
    pub len: u32,
    /// Whether it takes no more appends.
    pub sealed: bool,
    /// How many records it has.
    pub records: u32,
    /// In how many zones it stands.
    pub zones: u32,
}

/// Shares a pool out: one zone for each kind of stream, and the rest by share. What rounding down leaves is the largest share's.
pub(crate) fn share_out(pool: usize, shares: &[u32]) -> Vec<usize> {
    let rest = pool.saturating_sub(shares.len());
    let all: usize = shares.iter().map(|share| *share as usize).sum();
    let mut pools: Vec<usize> = shares.iter().map(|share| 1 + rest * *share as usize / all.max(1)).collect();
    let left = pool.saturating_sub(pools.iter().sum());
    if let Some((_, largest)) = shares.iter().zip(&mut pools).max_by_key(|(share, _)| **share) {
        *largest += left;
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str, days: u32) -> StreamSettings {
        StreamSettings { name: name.into(), lifetime: DAY * days, pool: 4, limit: None }
    }

    #[test]
    fn names_of_streams_keep_their_numbers() {
        let with = |names: &[(&str, u32)]| {
            let mut options = Options::default();
            options.streams.extend(names.iter().map(|(name, days)| own(name, *days)));
            options
        };
        let stored = with(&[("logs", 30), ("cold", 365)]).own_streams();
        assert_eq!(stored.iter().map(|s| (s.number, s.name.as_str())).collect::<Vec<_>>(), [(3, "logs"), (4, "cold")]);
        let merged = |names: &[(&str, u32)]| {
            let mut options = with(names);
            options.merge_streams(&stored).map(|()| {
                let own = options.streams.iter().skip(3);
                own.map(|s| format!("{} {}", s.name, s.lifetime.as_secs() / 86_400)).collect::<Vec<_>>()
            })
        };
        assert_eq!(merged(&[]).unwrap(), ["logs 30", "cold 365"]);
        assert_eq!(merged(&[("new", 1), ("cold", 7)]).unwrap(), ["logs 30", "cold 7", "new 1"]);
        let many: Vec<String> = (0..12).map(|i| format!("s{i}")).collect();
        let many: Vec<(&str, u32)> = many.iter().map(|name| (name.as_str(), 1)).collect();
        assert_eq!(merged(&many), None);
        assert_eq!(merged(&many[..11]).unwrap().len(), 13);
    }

    #[test]
    fn a_pool_is_shared_out_whole() {
        assert_eq!(share_out(55, &[10, 5, 40]), [10, 5, 40], "the paper's");
        assert_eq!(share_out(7, &[10, 5, 40]), [1, 1, 5]);
        for pool in 3..200 {
            let pools = share_out(pool, &[10, 5, 40]);
            assert_eq!(pools.iter().sum::<usize>(), pool);
            assert!(pools.iter().all(|zones| *zones > 0), "{pools:?}");
        }
        // Kinds share zones where there are fewer than kinds.
        assert_eq!(share_out(2, &[10, 5, 40]), [1, 1, 1]);
        assert_eq!(share_out(5, &[0, 0]), [1, 4]);
        assert_eq!(share_out(5, &[]), [0; 0]);
    }
}
