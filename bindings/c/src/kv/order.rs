//! Orders of keys that a program brings.
//!
//! A program may let go of an order when it has no handle of any store any more. Then no store that is opened later may find it: so handles are counted,
//! and with the last one the orders are forgotten.

use super::imbrex_kv_order;
use crate::error::{invalid, text};
use ::imbrex_kv::{Order, forget_order, register_order};
use imbrex_bluefs::Result;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Compare = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize, *const c_void, usize) -> c_int;

struct Foreign {
    name: String,
    compare: Compare,
    state: *mut c_void,
}

// SAFETY: the contract of `imbrex_kv_order`: any thread may call `compare` with the state, several at once.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

/// Ends the process where an exception passes: it would leave trees half changed behind, and locks. What it holds names the function.
pub(super) struct NoWayOut<F: Fn() -> String>(pub(super) F);

impl<F: Fn() -> String> Drop for NoWayOut<F> {
    fn drop(&mut self) {
        eprintln!("imbrex: an exception left {}; this process ends", (self.0)());
        std::process::abort();
    }
}

impl Order for Foreign {
    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let bomb = NoWayOut(|| format!("the function that compares keys in the order {:?}", self.name));
        // SAFETY: the contract of `imbrex_kv_order`.
        let found = unsafe { (self.compare)(self.state, a.as_ptr().cast(), a.len(), b.as_ptr().cast(), b.len()) };
        std::mem::forget(bomb);
        found.cmp(&0)
    }
}

#[derive(Default)]
struct Lent {
    handles: usize,
    /// Names of orders that are valid as long as there are handles.
    names: BTreeSet<String>,
    /// Orders that are always valid.
    kept: BTreeMap<String, Arc<dyn Order>>,
}

static LENT: Mutex<Lent> = Mutex::new(Lent { handles: 0, names: BTreeSet::new(), kept: BTreeMap::new() });

fn lent() -> MutexGuard<'static, Lent> {
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a handle as long as it is there. It is dropped behind what it counts.
pub(super) struct Held(());

/// One more handle.
pub(super) fn hold() -> Held {
    lent().handles += 1;
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut lent = lent();
        lent.handles -= 1;
        if lent.handles > 0 {
            return;
        }
        for name in std::mem::take(&mut lent.names) {
            match lent.kept.get(&name) {
                Some(order) => register_order(order.clone()),
                None => forget_order(&name),
            }
        }
    }
}

/// # Safety
/// The contract of `imbrex_kv_order`.
unsafe fn foreign(order: &imbrex_kv_order) -> Result<Arc<dyn Order>> {
    // SAFETY: as required of the caller.
    let name = unsafe { text(order.name)? }.to_owned();
    if name.is_empty() {
        return Err(invalid("an order of keys has no name"));
    }
    let compare = order.compare.ok_or_else(|| invalid("an order of keys has no function that compares"))?;
    Ok(Arc::new(Foreign { name, compare, state: order.state }))
}

/// The name of an order, which stores that are opened from now on find as long as there are handles: one is given as proof.
///
/// # Safety
/// The contract of `imbrex_kv_order`.
pub(super) unsafe fn known_by(order: &imbrex_kv_order, _: &Held) -> Result<String> {
    // SAFETY: as required of the caller.
    let order = unsafe { foreign(order)? };
    let name = order.name().to_owned();
    let mut lent = lent();
    lent.names.insert(name.clone());
    register_order(order);
    Ok(name)
}

/// Makes an order known for good.
///
/// # Safety
/// The contract of `imbrex_kv_order`, and it stays valid until the process ends.
pub(super) unsafe fn know(order: &imbrex_kv_order) -> Result<()> {
    // SAFETY: as required of the caller.
    let order = unsafe { foreign(order)? };
    let mut lent = lent();
    lent.names.remove(order.name());
    lent.kept.insert(order.name().to_owned(), order.clone());
    register_order(order);
    Ok(())
}
