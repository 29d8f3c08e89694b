//! What a banded drive stands on: a flat stretch of bytes that is read, overwritten and synced, and a small part of it
//! (*live*) that outlives the process and need not outlive the power.

use crate::Fault;
use std::sync::{Arc, Mutex, PoisonError};

/// The fixed facts of what is below a banded drive. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct BaseFacts {
    /// What a person calls it.
    pub name: Arc<str>,
    /// Bytes that there are.
    pub size: u64,
    /// The smallest unit of a read or write: 512 or 4096.
    pub block: u32,
    /// Largest read or write in one call.
    pub max_io: u32,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// The medium; a copy has another.
    pub medium: [u8; 16],
    /// Changes whenever the bytes may have lost power since: only under the same value is the live part believed.
    pub boot: [u8; 16],
}

/// A flat disk. Reads and writes are whole blocks in aligned memory, and callers keep them apart; whatever is not synced
/// may be lost or torn at a block boundary with the power.
pub trait Base: Send + Sync {
    /// Its facts; constant while it is open.
    fn facts(&self) -> &BaseFacts;
    /// Reads whole blocks. `Media { len }` says how many bytes before the bad block are good.
    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault>;
    /// Overwrites whole blocks.
    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault>;
    /// Makes everything durable that was written before the call.
    fn sync(&self) -> Result<(), Fault>;
    /// These bytes are not needed any more; what is read there afterwards is anything.
    fn discard(&self, at: u64, len: u64);
    /// The live part of this table, as the last process left it. `Media` where a part of it cannot be read, as after a power loss.
    fn live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<Vec<u8>, Fault>;
    /// Called once before the first [`put`](Base::put), when nothing in the live part is needed any more. Says whose it is.
    fn start_live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<(), Fault>;
    /// Changes bytes of the live part. They outlive the process as soon as this returns, and cost the disk nothing now. At
    /// most 16 bytes that do not cross a multiple of 16 are changed as a whole, whenever the process dies.
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault>;
}

/// A disk in memory, for tests: gone with its last owner.
pub struct MemoryBase {
    facts: BaseFacts,
    bytes: Mutex<Vec<u8>>,
}

impl MemoryBase {
    /// Over `bytes`, in blocks of `block` bytes.
    pub fn new(bytes: Vec<u8>, block: u32) -> MemoryBase {
        let size = bytes.len() as u64 / u64::from(block) * u64::from(block);
        let facts = BaseFacts {
            name: "memory".into(),
            size,
            block,
            max_io: 256 << 10,
            rotational: false,
            medium: [1; 16],
            boot: [1; 16],
        };
        MemoryBase { facts, bytes: Mutex::new(bytes) }
    }

    /// The same bytes after the power was away.
    pub fn rebooted(mut self, boot: u8) -> MemoryBase {
        self.facts.boot = [boot; 16];
        self
    }

    /// A copy of all bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn outside() -> Fault {
    Fault::InvalidInput("behind the end of the disk".into())
}

fn range(at: u64, len: usize) -> std::ops::Range<usize> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    at..at.saturating_add(len)
}

impl Base for MemoryBase {
    fn facts(&self) -> &BaseFacts {
        &self.facts
    }
    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault> {
        let bytes = self.lock();
        buf.copy_from_slice(bytes.get(range(at, buf.len())).ok_or_else(outside)?);
        Ok(())
    }
    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault> {
        let mut bytes = self.lock();
        bytes.get_mut(range(at, buf.len())).ok_or_else(outside)?.copy_from_slice(buf);
        Ok(())
    }
    fn sync(&self) -> Result<(), Fault> {
        Ok(())
    }
    fn discard(&self, at: u64, len: u64) {
        if let Some(bytes) = self.lock().get_mut(range(at, len as usize)) {
            bytes.fill(0xdd);
        }
    }
    fn live(&self, _: &[u8; 16], at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        self.lock().get(range(at, len)).map(<[u8]>::to_vec).ok_or_else(outside)
    }
    fn start_live(&self, _: &[u8; 16], _: u64, _: usize) -> Result<(), Fault> {
        Ok(())
    }
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        self.write(bytes, at)
    }
}

impl<B: Base + ?Sized> Base for Arc<B> {
    fn facts(&self) -> &BaseFacts {
        (**self).facts()
    }
    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault> {
        (**self).read(buf, at)
    }
    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault> {
        (**self).write(buf, at)
    }
    fn sync(&self) -> Result<(), Fault> {
        (**self).sync()
    }
    fn discard(&self, at: u64, len: u64) {
        (**self).discard(at, len);
    }
    fn live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        (**self).live(uuid, at, len)
    }
    fn start_live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<(), Fault> {
        (**self).start_live(uuid, at, len)
    }
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        (**self).put(bytes, at)
    }
}
