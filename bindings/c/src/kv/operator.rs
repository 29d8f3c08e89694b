//! Values that come of operands, as a program says.

use super::order::NoWayOut;
use super::{imbrex_kv_bytes, imbrex_kv_merge_operator, imbrex_kv_value};
use crate::error::invalid;
use ::imbrex_kv::MergeOperator;
use imbrex_bluefs::Result;
use std::ffi::c_void;
use std::ptr::null;

pub(super) type Merge = unsafe extern "C-unwind" fn(
    state: *mut c_void,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    operands: *const imbrex_kv_bytes,
    count: usize,
    result: *mut imbrex_kv_value,
);
pub(super) type Combine = unsafe extern "C-unwind" fn(
    state: *mut c_void,
    key: *const c_void,
    key_len: usize,
    operands: *const imbrex_kv_bytes,
    count: usize,
    result: *mut imbrex_kv_value,
) -> bool;

/// Functions of a program.
pub(super) struct Foreign {
    merge: Merge,
    combine: Option<Combine>,
    state: *mut c_void,
}

impl Foreign {
    pub(super) fn of(operator: &imbrex_kv_merge_operator) -> Result<Foreign> {
        let merge = operator.merge.ok_or_else(|| invalid("a merge operator has no function that merges"))?;
        Ok(Foreign { merge, combine: operator.combine, state: operator.state })
    }
}

// SAFETY: the contract of `imbrex_kv_merge_operator`: any thread may call the functions with the state, several at once.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

fn all(operands: &[&[u8]]) -> Vec<imbrex_kv_bytes> {
    operands.iter().map(|operand| imbrex_kv_bytes { data: operand.as_ptr().cast(), len: operand.len() }).collect()
}

impl MergeOperator for Foreign {
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        let mut result = imbrex_kv_value { bytes: Vec::new() };
        let (data, len) = value.map_or((null(), 0), |value| (value.as_ptr().cast(), value.len()));
        let operands = all(operands);
        let bomb = NoWayOut(|| "the function that merges operands into a value".to_owned());
        // SAFETY: the contract of `imbrex_kv_merge_operator`.
        unsafe {
            let (key, key_len) = (key.as_ptr().cast(), key.len());
            (self.merge)(self.state, key, key_len, data, len, operands.as_ptr(), operands.len(), &mut result);
        }
        std::mem::forget(bomb);
        result.bytes
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let combine = self.combine?;
        let mut result = imbrex_kv_value { bytes: Vec::new() };
        let operands = all(operands);
        let bomb = NoWayOut(|| "the function that combines operands".to_owned());
        // SAFETY: the contract of `imbrex_kv_merge_operator`.
        let combined = unsafe {
            let (key, key_len) = (key.as_ptr().cast(), key.len());
            combine(self.state, key, key_len, operands.as_ptr(), operands.len(), &mut result)
        };
        std::mem::forget(bomb);
        combined.then_some(result.bytes)
    }
}
