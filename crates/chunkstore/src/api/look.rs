//! Looks at the store: room, zones, and where a chunk stands.

use crate::api::store::ChunkStore;
use crate::core::{Core, fill_of};
use crate::error::{Error, Result};
use crate::format::entry::{LOST, ZoneState};
use crate::format::id::ChunkId;
use crate::format::{BLOCK, ZoneUse, data_blocks};
use crate::recover::{RESERVE, check_free};
use imbrex_device::{Drive, Error as DriveError, Zone, ZoneState as DriveState, report_all};
use imbrex_zones::log::LogZoneState;

/// Room, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What all datazones take of chunks that are appended in pieces of 1 MiB.
    pub total: u64,
    /// Of chunks.
    pub live: u64,
    /// What surely can be appended in such pieces, to one chunk after the other, before anything is cleaned.
    pub free: u64,
    /// What deleted chunks have left in zones that hold live ones, too, and what is left at the end of closed zones; cleaning makes room of it.
    pub dead: u64,
}

/// A zone of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Which.
    pub zone: u32,
    /// What it is for; `None`: journal and checkpoints.
    pub usage: Option<ZoneUse>,
    /// Its state.
    pub state: ZoneState,
    /// Bytes that it takes.
    pub capacity: u64,
    /// Bytes that are written, or will be.
    pub written: u64,
    /// Bytes of what is of use, framing included.
    pub live: u64,
    /// Chunks that have something there.
    pub chunks: u32,
}

/// Where a run of a chunk's bytes stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset in the chunk.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// The zone.
    pub zone: u32,
    /// Byte of the zone where its first record begins; `None`: it is lost.
    pub at: Option<u64>,
    /// How many records it is in.
    pub records: u32,
}

/// Fails where a drive is too small for a store, before anything is done to it. Returns how many sequential zones it would have.
pub(crate) fn check_size(drive: &Drive) -> Result<u32> {
    let device = drive.device.as_ref();
    let name = &device.identity().name;
    let zones = report_all(device)?;
    let conventional = zones.iter().filter(|zone| zone.state == DriveState::Conventional).count();
    if conventional == zones.len() {
        let sentence = "all its zones are conventional, and chunks need sequential ones; have them serve as such: run `imbrex drive \
                        create --banded 'NAME?conventional=as-sequential'`, and name it so from then on";
        return Err(DriveError::unusable(name, sentence).into());
    }
    // With fewer the label stands in two sequential ones.
    let label = if conventional >= 2 { 0 } else { 2 };
    let usable = zones.iter().filter(|zone| is_sequential(zone)).count() as u32;
    let usable = usable.saturating_sub(label);
    check_free(name, usable, device.geometry())?;
    Ok(usable)
}

fn is_sequential(zone: &Zone) -> bool {
    let taken = [DriveState::Conventional, DriveState::ReadOnly, DriveState::Offline];
    zone.capacity > 0 && !taken.contains(&zone.state)
}

impl ChunkStore {
    /// Figures of this store that do not keep it open.
    pub fn watch(&self) -> crate::api::engine::Watch {
        self.core.watch()
    }

    /// How much room there is.
    pub fn space(&self) -> Space {
        self.core.space()
    }

    /// All zones of the store, by number.
    pub fn zones(&self) -> Vec<ZoneInfo> {
        let block = |n: u32| u64::from(n) * BLOCK as u64;
        let mut all = Vec::new();
        all.extend(self.core.commits.lead().log().zones().into_iter().map(|z| ZoneInfo {
            zone: z.zone.0,
            usage: None,
            // As in Figure 12, but without a pool: no metazone is open before it is written.
            state: match z.state {
                LogZoneState::Empty => ZoneState::Free,
                LogZoneState::Dirty => ZoneState::Garbage,
                LogZoneState::Current => ZoneState::Activated,
                LogZoneState::Full => ZoneState::Closed,
            },
            capacity: z.capacity,
            written: z.written,
            live: z.written,
            chunks: 0,
        }));
        let state = self.core.state();
        all.extend(state.zones.all().iter().map(|(number, z)| ZoneInfo {
            zone: *number,
            usage: Some(z.usage),
            state: z.state(),
            capacity: block(z.capacity),
            written: block(z.tail),
            live: block(z.live_blocks),
            chunks: z.live.len() as u32,
        }));
        drop(state);
        all.sort_unstable_by_key(|zone| zone.zone);
        all
    }

    /// Where a chunk stands, by offset.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn places(&self, id: ChunkId) -> Result<Vec<Place>> {
        let state = self.core.state();
        let chunk = state.index.find(&id).and_then(|slot| state.index.chunk(slot)).ok_or(Error::NotFound(id))?;
        let place = |group: &crate::index::Group| Place {
            offset: group.start,
            len: group.end() - group.start,
            zone: group.zone,
            at: group.records().first().filter(|r| r.at != LOST).map(|r| u64::from(r.at) * BLOCK as u64),
            records: group.records().len() as u32,
        };
        Ok(chunk.groups().iter().map(place).collect())
    }

    /// What people call a kind of stream: its name, or its number where the store was opened without settings for it.
    pub fn stream_name(&self, stream: crate::format::id::StreamType) -> String {
        self.core.stream_name(stream)
    }

    /// The kind of stream of this name or number, where there are settings for it.
    pub fn stream_of(&self, name: &str) -> Option<crate::format::id::StreamType> {
        let streams = &self.core.options.streams;
        let number = name.parse().ok().or_else(|| streams.iter().position(|s| s.name == name))?;
        u8::try_from(number)
            .ok()
            .filter(|n| usize::from(*n) < streams.len())
            .and_then(crate::format::id::StreamType::new)
    }

    /// The names of all kinds of streams, by number.
    pub fn stream_names(&self) -> Vec<String> {
        self.core.options.streams.iter().map(|s| s.name.clone()).collect()
    }
}

impl Core {
    /// How much room there is.
    pub(crate) fn space(&self) -> Space {
        let fill = |blocks: u64| fill_of(u32::try_from(blocks).unwrap_or(u32::MAX), 1 << 20);
        let whole = fill(self.volume.least_capacity() / BLOCK as u64);
        let free = u64::from(self.tenant.counts().free);
        let state = self.state();
        let mut space = Space { total: (free + state.zones.all().len() as u64) * whole, ..Space::default() };
        space.live = state.index.range(None).map(|chunk| u64::from(chunk.len)).sum();
        space.free = free.saturating_sub(u64::from(RESERVE)) * whole;
        let crumbs = data_blocks(self.limits.most_append);
        for zone in state.zones.all().values() {
            let worth = match zone.state() {
                // It comes back neither way.
                _ if zone.dead => 0,
                ZoneState::Garbage => {
                    space.free += whole;
                    0
                }
                ZoneState::Closed => zone.worth(crumbs),
                _ => zone.tail.saturating_sub(1),
            };
            space.dead += u64::from(worth.saturating_sub(zone.live_blocks)) * BLOCK as u64;
        }
        space
    }

    /// The kind of stream and state of each datazone that is not free.
    pub(crate) fn datazones(&self) -> Vec<(crate::format::id::StreamType, ZoneState)> {
        let state = self.state();
        state.zones.all().values().map(|zone| (zone.usage.stream(), zone.state())).collect()
    }

    /// See [`ChunkStore::stream_name`].
    pub(crate) fn stream_name(&self, stream: crate::format::id::StreamType) -> String {
        let settings = self.options.streams.get(usize::from(stream.number()));
        settings.map_or_else(|| stream.number().to_string(), |settings| settings.name.clone())
    }
}

impl ChunkStore {
    /// What is lost, by zone and chunk: because the zone where it stood is offline, or because it could not be read when the store was opened or its
    /// record was moved.
    /// Other bytes of the same chunks are there. It is listed until the chunk is deleted.
    pub fn lost(&self) -> Vec<crate::index::scrub::Lost> {
        self.core.lost()
    }
}
