//! What a put leaves that was killed, or whose machine lost power, and how the next one finds it.
//!
//! Before a put makes its first chunk it makes an empty one, named [`FOLDER`] and 32 digits of its own. These digits end the id of each chunk
//! that it makes. When everything is stored and named, the empty one is deleted, durably: from then on the put has happened. So where a
//! name in [`FOLDER`] is left, every chunk whose id ends so and that has no name is half of something. Nobody else can be in the middle of a put:
//! whoever puts has the drive to itself.

use crate::output::Failure;
use imbrex_chunkstore::{ChunkId, ChunkStore, Durability, Error, StreamType};

/// What names of puts begin with that are under way.
pub(super) const FOLDER: &str = ".unfinished/";
/// Chunks that are listed at a time.
const PAGE: usize = 4096;

/// The last 16 bytes of the ids of a put.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark([u8; 16]);

impl Mark {
    /// A new one: of a random id.
    fn new() -> Mark {
        let mut mark = [0; 16];
        mark.copy_from_slice(&ChunkId::random().0[..16]);
        Mark(mark)
    }

    fn of(id: ChunkId) -> Mark {
        let mut mark = [0; 16];
        mark.copy_from_slice(&id.0[8..]);
        Mark(mark)
    }

    /// The id that begins with these bytes.
    fn id(self, begins: [u8; 8]) -> ChunkId {
        let mut id = [0; 24];
        id[..8].copy_from_slice(&begins);
        id[8..].copy_from_slice(&self.0);
        ChunkId(id)
    }

    fn random_id(self) -> ChunkId {
        let mut begins = [0; 8];
        begins.copy_from_slice(&ChunkId::random().0[..8]);
        self.id(begins)
    }
}

/// A put that is under way.
pub(super) struct Unfinished {
    mark: Mark,
    /// The empty chunk.
    pub(super) chunk: ChunkId,
}

impl Unfinished {
    /// Begins one, durably; `kind` is what its first chunk will be.
    pub(super) fn begin(store: &ChunkStore, kind: StreamType) -> Result<Unfinished, Error> {
        let mark = Mark::new();
        let chunk = mark.random_id();
        store.create_with(chunk, kind, Durability::Buffered)?;
        let digits: String = mark.0.iter().map(|byte| format!("{byte:02x}")).collect();
        store.name(&[(&format!("{FOLDER}{digits}"), &[chunk])], false)?;
        Ok(Unfinished { mark, chunk })
    }

    /// The id of a chunk of it.
    pub(super) fn id(&self) -> ChunkId {
        self.mark.random_id()
    }

    /// Everything is stored and named.
    pub(super) fn end(&self, store: &ChunkStore) -> Result<(), Error> {
        store.delete_with(self.chunk, Durability::Durable)
    }
}

/// Deletes what puts have left that did not end; returns how many chunks that were, without the empty ones.
pub(super) fn remove(store: &ChunkStore) -> Result<u64, Failure> {
    let mut removed = 0;
    loop {
        let left = store.names(None, FOLDER, 1);
        let Some(left) = left.first() else { return Ok(removed) };
        let ids = store.named(&left.name)?;
        for mark in ids.iter().copied().map(Mark::of) {
            removed += remove_of(store, mark)?;
        }
        // Last, so that whoever is killed here leaves it to the next one.
        store.sync()?;
        for id in ids {
            store.delete_with(id, Durability::Durable)?;
        }
    }
}

fn remove_of(store: &ChunkStore, mark: Mark) -> Result<u64, Failure> {
    let (mut after, mut removed) = (None, 0);
    loop {
        let page = store.list(after, PAGE);
        let Some(last) = page.last() else { return Ok(removed) };
        after = Some(last.id);
        for info in page.iter().filter(|info| Mark::of(info.id) == mark && store.name_of(info.id).is_none()) {
            store.delete_with(info.id, Durability::Buffered)?;
            removed += 1;
        }
    }
}
