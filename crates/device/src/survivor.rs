//! Memory that outlives the process, not the power.
//!
//! What was appended and not yet written stands in a survivor's [`Region`], so that a killed process loses nothing it had
//! written, like pages of a kernel's page cache. In production the region is a preallocated shared-memory file (crate
//! `drives`), in tests a byte vector that the crash explorer keeps or drops ([`HeapSurvivor`]).

use crate::{AlignedBuf, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Whose memory: only the same volume, on the same medium, in the same mount and power epoch may replay it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SurvivorKey {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// The medium's identity; a copied image has another.
    pub medium: [u8; 16],
    /// The drive's power epoch.
    pub power_epoch: [u8; 16],
    /// The volume's mount generation when the region was made.
    pub mount: u64,
}

/// Fills a new region before anybody can find it.
pub type Fill<'a> = dyn FnMut(&Arc<dyn Region>) -> Result<()> + 'a;

/// Keeps at most one region per volume.
pub trait Survivor: Send + Sync {
    /// A copy of what an earlier process left behind under exactly this key; `None` where there is nothing, or only
    /// something of another mount, medium or power epoch.
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>>;
    /// Makes a zeroed region of `capacity` bytes under `key`; only once it is complete does it replace (atomically) whatever
    /// the volume had before. Every byte is backed now: later writes to it cannot fail.
    fn create(&self, key: &SurvivorKey, capacity: usize) -> Result<Arc<dyn Region>> {
        self.create_filled(key, capacity, &mut |_| Ok(()))
    }
    /// The same; `fill` puts bytes into the region before it replaces the old one, which stays where that fails.
    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>>;
    /// Forgets the volume's region: its bytes are on the drive.
    fn discard(&self, volume: &[u8; 16]) -> Result<()>;
    /// Whether regions that are made now outlive the process.
    fn keeps(&self) -> bool {
        true
    }
}

/// A fixed piece of memory, aligned to [`crate::MEM_ALIGN`], zeroed when made. Valid as long as the value lives.
///
/// Its bytes are shared between threads by whoever lays structures into it; the region itself only promises that they stay
/// where they are and that other processes see them in program order after this one dies.
pub trait Region: Send + Sync {
    /// First byte.
    fn base(&self) -> std::ptr::NonNull<u8>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct HeapRegion {
    base: std::ptr::NonNull<u8>,
    len: usize,
    _owner: AlignedBuf,
}

// SAFETY: `base` points into `_owner`, which lives as long and is never touched through any other path.
unsafe impl Send for HeapRegion {}
// SAFETY: as above; concurrent access is ordered by the user of the region.
unsafe impl Sync for HeapRegion {}

impl Region for HeapRegion {
    fn base(&self) -> std::ptr::NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// A survivor in the heap: outlives the volume that uses it as long as somebody holds the value. Tests hold it across a
/// simulated death of the process; [`HeapSurvivor::snapshot`] copies it for the crash explorer. It keeps one region a volume.
#[derive(Default)]
pub struct HeapSurvivor {
    kept: Mutex<BTreeMap<[u8; 16], Kept>>,
}

/// Whose memory it is, and the memory.
type Kept = (SurvivorKey, Arc<dyn Region>);

impl HeapSurvivor {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy with its own memory, as the next process would find it. The caller makes sure that no other thread is
    /// writing to the region meanwhile, or compares it with a second copy.
    pub fn snapshot(&self) -> HeapSurvivor {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let copy =
            |(volume, (key, region)): (&[u8; 16], &Kept)| (*volume, (*key, heap_region(&copy_of(region.as_ref()))));
        HeapSurvivor { kept: Mutex::new(kept.iter().map(copy).collect()) }
    }
}

/// With equal bytes for equal keys.
impl PartialEq for HeapSurvivor {
    fn eq(&self, other: &HeapSurvivor) -> bool {
        let kept = |survivor: &HeapSurvivor| {
            let kept = survivor.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.values().map(|(key, region)| (*key, copy_of(region.as_ref()))).collect::<Vec<_>>()
        };
        kept(self) == kept(other)
    }
}

/// Plain heap memory as a region: for volumes without a survivor, and for tests.
pub fn heap_region(bytes: &[u8]) -> Arc<dyn Region> {
    let mut owner = AlignedBuf::zeroed(bytes.len());
    owner.copy_from_slice(bytes);
    let base = std::ptr::NonNull::new(owner.as_mut_ptr()).unwrap_or(std::ptr::NonNull::dangling());
    Arc::new(HeapRegion { base, len: owner.len(), _owner: owner })
}

/// Pages of its own, which the kernel gives zeroed when they are first touched.
struct MappedRegion {
    base: std::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for MappedRegion {}
// SAFETY: as above; concurrent access is ordered by the user of the region.
unsafe impl Sync for MappedRegion {}

impl Region for MappedRegion {
    fn base(&self) -> std::ptr::NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: mapped with this length when the value was made, and unmapped once.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl MappedRegion {
    /// `None` where the kernel has no room for it.
    fn new(len: usize) -> Option<MappedRegion> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let raw = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }.ok()?;
        Some(MappedRegion { base: std::ptr::NonNull::new(raw.cast())?, len })
    }
}

/// Zeroed memory as a region; pages that are never touched cost nothing. A look at a drive needs very few of them.
pub fn zeroed_region(len: usize) -> Arc<dyn Region> {
    if len > 0
        && let Some(region) = MappedRegion::new(len)
    {
        return Arc::new(region);
    }
    let mut owner = AlignedBuf::zeroed(len);
    let base = std::ptr::NonNull::new(owner.as_mut_ptr()).unwrap_or(std::ptr::NonNull::dangling());
    Arc::new(HeapRegion { base, len: owner.len(), _owner: owner })
}

fn copy_of(region: &dyn Region) -> Vec<u8> {
    // SAFETY: the region is valid for `len` bytes while borrowed; the caller keeps writers out.
    unsafe { std::slice::from_raw_parts(region.base().as_ptr(), region.len()) }.to_vec()
}

impl Survivor for HeapSurvivor {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.get(&key.volume).filter(|(k, _)| k == key).map(|(_, region)| copy_of(region.as_ref())))
    }

    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        let region = zeroed_region(capacity);
        fill(&region)?;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(key.volume, (*key, region.clone()));
        Ok(region)
    }

    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(volume);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SurvivorKey = SurvivorKey { volume: [1; 16], medium: [2; 16], power_epoch: [3; 16], mount: 4 };

    #[test]
    fn keeps_bytes_for_the_same_key_only() {
        let survivor = HeapSurvivor::new();
        let region = survivor.create(&KEY, 4096).unwrap();
        // SAFETY: the region has 4096 bytes and no other user.
        unsafe { region.base().as_ptr().add(9).write(7) };
        drop(region);
        assert_eq!(survivor.left_behind(&KEY).unwrap().unwrap()[9], 7);
        for other in [
            SurvivorKey { volume: [0; 16], ..KEY },
            SurvivorKey { medium: [0; 16], ..KEY },
            SurvivorKey { power_epoch: [0; 16], ..KEY },
            SurvivorKey { mount: 5, ..KEY },
        ] {
            assert!(survivor.left_behind(&other).unwrap().is_none());
        }
        let other = SurvivorKey { volume: [9; 16], ..KEY };
        survivor.create(&other, 64).unwrap();
        assert_eq!(survivor.left_behind(&KEY).unwrap().unwrap()[9], 7, "each volume has its own");
        let copy = survivor.snapshot();
        survivor.discard(&KEY.volume).unwrap();
        assert!(survivor.left_behind(&KEY).unwrap().is_none());
        assert_eq!(survivor.left_behind(&other).unwrap().unwrap().len(), 64);
        assert_eq!(copy.left_behind(&KEY).unwrap().unwrap()[9], 7);
    }

    #[test]
    fn a_region_takes_memory_only_where_it_is_touched() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        let before = resident();
        let region = zeroed_region(512 << 20);
        let last = region.len() - 1;
        assert!((region.base().as_ptr() as usize).is_multiple_of(crate::MEM_ALIGN));
        // SAFETY: within the region, which has no other user.
        unsafe {
            assert_eq!(region.base().as_ptr().add(last).read(), 0);
            region.base().as_ptr().add(last).write(7);
            assert_eq!(region.base().as_ptr().add(last).read(), 7);
        }
        // Other tests of this program run beside it.
        assert!(resident() < before + (200 << 20), "{} bytes more", resident() - before);
    }
}
