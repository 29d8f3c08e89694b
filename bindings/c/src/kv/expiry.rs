//! Pairs that are over, as a program says.

use super::order::NoWayOut;
use ::imbrex_kv::Expiry;
use std::ffi::c_void;

pub(super) type IsOver = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize, *const c_void, usize) -> bool;

/// A function of a program.
pub(super) struct Foreign {
    pub(super) is_over: IsOver,
    pub(super) state: *mut c_void,
}

// SAFETY: the contract of `imbrex_kv_expire`: any thread may call `is_over` with the state, several at once.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Expiry for Foreign {
    fn is_over(&self, key: &[u8], value: &[u8]) -> bool {
        let bomb = NoWayOut(|| "the function that says which pairs are over".to_owned());
        // SAFETY: the contract of `imbrex_kv_expire`.
        let over =
            unsafe { (self.is_over)(self.state, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len()) };
        std::mem::forget(bomb);
        over
    }
}
