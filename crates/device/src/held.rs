//! Memory that many readers use where it stands, found by number.
//!
//! Each slot is filled once, and what fills it stays until the whole table goes: so a pointer into it needs no count and no
//! lock, and finding it is one load from a small array. The block cache gives such pointers to programs that would map a file.

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Not a `Box`, which claims what it points to as its own each time it moves.
type Owner = Arc<dyn Deref<Target = [u8]> + Send + Sync>;

/// Slots for bytes that stay where they are.
#[derive(Default)]
pub struct Held {
    slots: Box<[Slot]>,
    /// What the slots point into, in the order in which they were filled.
    owners: Mutex<Vec<Owner>>,
}

/// Empty while `start` is null; the rest is stored before it.
#[derive(Default)]
struct Slot {
    start: AtomicPtr<u8>,
    len: AtomicU32,
    tag: AtomicU32,
}

impl Held {
    /// Bytes that a slot takes, empty or not, and its owner's place in the list.
    pub const SLOT_COST: usize = size_of::<Slot>() + 2 * size_of::<Owner>();

    /// So many empty slots.
    pub fn new(slots: usize) -> Held {
        Held { slots: std::iter::repeat_with(Slot::default).take(slots).collect(), owners: Mutex::default() }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The bytes of a slot and the number that came with them; `None`: it is empty, or there is none of this number.
    pub fn get(&self, slot: usize) -> Option<(&[u8], u32)> {
        let slot = self.slots.get(slot)?;
        let start = slot.start.load(Ordering::Acquire);
        if start.is_null() {
            return None;
        }
        let (len, tag) = (slot.len.load(Ordering::Relaxed) as usize, slot.tag.load(Ordering::Relaxed));
        // SAFETY: `start` and `len` are those of the slice that an owner gave by a shared borrow of itself. The owner stands in
        // `owners`, in memory of its own, where nothing touches it but its drop, with `self`: so that borrow lasts as long as `&self`. The
        // load of `start` acquires the store in `set`, before which both numbers were stored, once.
        Some((unsafe { std::slice::from_raw_parts(start, len) }, tag))
    }

    /// Fills a slot. False, and `owner` is dropped, when it was full already, there is none of this number, or the bytes are
    /// none or more than 4 GiB.
    pub fn set(&self, slot: usize, tag: u32, owner: impl Deref<Target = [u8]> + Send + Sync + 'static) -> bool {
        let Some(slot) = self.slots.get(slot) else { return false };
        let owner: Owner = Arc::new(owner);
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: &[u8] = &owner;
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        if len == 0 || !slot.start.load(Ordering::Relaxed).is_null() {
            return false;
        }
        let start = bytes.as_ptr().cast_mut();
        slot.len.store(len, Ordering::Relaxed);
        slot.tag.store(tag, Ordering::Relaxed);
        owners.push(owner);
        slot.start.store(start, Ordering::Release);
        true
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({} slots)", self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(Vec<u8>, #[expect(dead_code, reason = "it counts who lives")] Arc<()>);
    impl Deref for Counted {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn a_slot_is_filled_once_and_stays() {
        let alive = Arc::new(());
        let held = Held::new(3);
        assert!(held.get(0).is_none() && held.get(3).is_none() && held.slots() == 3);
        assert!(held.set(1, 7, Counted(vec![1, 2, 3], alive.clone())));
        let first = held.get(1);
        assert_eq!(first, Some((&[1, 2, 3][..], 7)));
        assert!(!held.set(1, 8, Counted(vec![9], alive.clone())), "it is full");
        assert!(!held.set(3, 8, Counted(vec![9], alive.clone())), "there is none");
        assert!(!held.set(2, 8, Counted(vec![], alive.clone())), "nothing to hold");
        for slot in [0, 2] {
            assert!(held.set(slot, 0, Counted(vec![5; 100], alive.clone())));
        }
        assert_eq!(first, Some((&[1, 2, 3][..], 7)));
        assert_eq!(Arc::strong_count(&alive), 4);
        drop(held);
        assert_eq!(Arc::strong_count(&alive), 1, "all is given back");
    }

    #[test]
    fn threads_that_fill_and_read_see_whole_slots() {
        let held = Held::new(64);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let held = &held;
                scope.spawn(move || {
                    for slot in 0..64 {
                        let fill = thread * 64 + slot as u8;
                        held.set(slot, u32::from(fill), vec![fill; 10 + usize::from(thread)]);
                        let (bytes, tag) = held.get(slot).unwrap();
                        assert_eq!(bytes.len(), 10 + tag as usize / 64);
                        assert!(bytes.iter().all(|b| u32::from(*b) == tag));
                    }
                });
            }
        });
    }
}
