//! How much a range of keys has.

use crate::core::Core;
use imbrex_device::Result;

/// Bytes of tables that the keys from `from` on have which are before `to`, about. Both are keys of the tree.
pub(super) fn approximate_bytes(core: &Core, from: &[u8], to: &[u8]) -> Result<u64> {
    let (order, view) = (core.order(), core.view());
    if order.compare(from, to).is_ge() {
        return Ok(0);
    }
    let mut bytes = 0;
    for run in view.tables.runs() {
        let begin = run.partition_point(|table| order.compare(&table.info.largest, from).is_lt());
        for table in run[begin..].iter().take_while(|table| order.compare(table.info.first(), to).is_lt()) {
            bytes += table.bytes_from(from)?.saturating_sub(table.bytes_from(to)?);
        }
    }
    Ok(bytes)
}
