//! Merge operators: values that come of the one before and of operands.

use crate::core::Core;
use crate::space::split;
use imbrex_device::{Code, Result};

/// How a value comes of the one before and of operands that were [merged](crate::Kv::merge) into it, as a sum of what was added, or a list of what was appended.
///
/// Any thread may call it, also in the background, and with locks of the store: it must not use the store, nor panic. What it makes must depend on its arguments
/// alone. It must be the same however operands were [combined](MergeOperator::combine) before.
pub trait MergeOperator: Send + Sync {
    /// The value of a key; `value`: the one before, if there was one; `operands`: the oldest first, at least one.
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8>;

    /// One operand in place of several that come one behind the other, the oldest first. `None`: there is none; then all of them are kept until the value before is
    /// known.
    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}

/// What readers see of a key of the tree whose newest changes are `operands`, the newest first, behind this value.
///
/// # Errors
/// `InvalidArgument`: this opening has no operator for the key's space.
pub(crate) fn merged(core: &Core, key: &[u8], value: Option<&[u8]>, operands: &[Vec<u8>]) -> Result<Option<Vec<u8>>> {
    let Some((operator, user)) = split(key).and_then(|(space, user)| Some((core.spaces.operator(space)?, user))) else {
        return Err(core.refused(Code::InvalidArgument, MISSING));
    };
    let value = operator.merge(user, value, &oldest_first(operands));
    Ok(Some(value).filter(|value| !core.spaces.is_over(key, value)))
}

/// The operands as an operator takes them.
pub(crate) fn oldest_first(operands: &[Vec<u8>]) -> Vec<&[u8]> {
    operands.iter().rev().map(Vec::as_slice).collect()
}

/// Why values are not there.
pub(crate) const MISSING: &str =
    "values of the space come of operands, and it has no merge operator; give it one after each opening";
