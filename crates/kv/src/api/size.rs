//! How much a range of keys has.

use crate::core::Core;
use crate::core::file::TableFile;
use imbrex_device::Result;

/// Bytes of tables that the keys from `from` on have which are before `to`, about. Both are keys of the tree.
pub(super) fn approximate_bytes(core: &Core, from: &[u8], to: &[u8]) -> Result<u64> {
    let (order, view) = (core.order(), core.view());
    if order.compare(from, to).is_ge() {
        return Ok(0);
    }
    let bytes = |file: &TableFile| Ok(file.bytes_from(from)?.saturating_sub(file.bytes_from(to)?));
    view.tables.within(order, from, to).map(|file| bytes(file)).sum()
}
