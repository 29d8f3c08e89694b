//! How a chunk store is formatted and opened.

use crate::id::StreamType;
use crate::policy::place::Placement;
use crate::policy::victim::Victims;
use imbrex_zones::VolumeOptions;
use std::fmt;
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
    pub placement: Placement,
    /// How zones are chosen for cleaning.
    pub victims: Victims,
    /// Most zones open for writing at once; the drive's limit counts, too. The paper's 55 by default.
    pub open_zones: u32,
    /// Bytes that may wait in memory; whoever appends more writes some of them.
    pub buffer_bytes: u64,
    /// Small records gather in pieces of this many bytes.
    pub segment_bytes: usize,
    /// How long a commit waits for others that could share its turns and its flush; only with background threads.
    pub commit_wait: Duration,
    /// Bytes that are appended between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Bytes that are appended, at most, before the journal is told where they stand: about as many are scanned after a crash.
    pub tell_bytes: u64,
    /// Cleaning begins when fewer zones are free than this many; `None`: a sixty-fourth of all, 4 at least.
    pub clean_below: Option<u32>,
    /// Cleaning is done in the background, by a thread or (inline) by [`ChunkStore::step`](crate::ChunkStore::step), and at a pace that what
    /// users do takes no more than so many times longer, above 1; only while fewer than half of `clean_below` zones are free those
    /// who take one clean, too. `None`: nobody but they cleans.
    pub slowdown: Option<f64>,
    /// For placement at random.
    pub seed: u64,
    /// Where times come from.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            volume: VolumeOptions::default(),
            streams: StreamSettings::defaults(),
            placement: Placement::default(),
            victims: Victims::Lifetime,
            open_zones: 55,
            buffer_bytes: 256 << 20,
            segment_bytes: 1 << 20,
            commit_wait: Duration::ZERO,
            checkpoint_bytes: 32 << 30,
            tell_bytes: 512 << 20,
            clean_below: None,
            slowdown: Some(1.5),
            seed: 1,
            clock: Arc::new(now),
        }
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("streams", &self.streams)
            .field("placement", &self.placement)
            .field("victims", &self.victims)
            .field("open_zones", &self.open_zones)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("commit_wait", &self.commit_wait)
            .field("checkpoint_bytes", &self.checkpoint_bytes)
            .field("slowdown", &self.slowdown)
            .field("tell_bytes", &self.tell_bytes)
            .finish_non_exhaustive()
    }
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
    /// When it is durable: written to the drive, with one flush for everybody who waits.
    #[default]
    Durable,
    /// At once: it is in this process' memory, and durable after the next [`ChunkStore::sync`](crate::ChunkStore::sync) or
    /// durable call of anybody. A process that dies before takes it along.
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
    /// Its name.
    pub id: crate::ChunkId,
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
