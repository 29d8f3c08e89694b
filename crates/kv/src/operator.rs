//! Merge operators: values that come of the one before and of operands.

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

/// Why values are not there.
pub(crate) const MISSING: &str =
    "values of the space come of operands, and it has no merge operator; give it one after each opening";
