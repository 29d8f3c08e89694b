//! Bytes by which it is told when a commit or a checkpoint is due, and how large a checkpoint is.

/// See the module.
#[derive(Default)]
pub(crate) struct Work {
    /// Bytes that were ever appended or moved, records included.
    appended: u64,
    /// As many at the last checkpoint's start, and at the last commit.
    checkpointed: u64,
    committed: u64,
    /// Bytes that a checkpoint of the index takes.
    index: u64,
}

impl Work {
    /// So many bytes were appended or moved.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.appended += bytes;
    }

    /// Bytes that were ever appended or moved.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Of these, how many since the last checkpoint began.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        self.appended - self.checkpointed
    }

    /// Of these, how many since the last commit.
    pub(crate) fn since_commit(&self) -> u64 {
        self.appended - self.committed
    }

    /// A checkpoint is whole that began after so many bytes.
    pub(crate) fn checkpointed(&mut self, appended: u64) {
        self.checkpointed = appended;
    }

    /// A commit begins.
    pub(crate) fn commits(&mut self) {
        self.committed = self.appended;
    }

    /// Bytes that a checkpoint of the index takes.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// A part of the index took `before` bytes and takes `after` now.
    pub(crate) fn index_changed(&mut self, before: u64, after: u64) {
        self.index = (self.index + after).saturating_sub(before);
    }
}
