//! The operations on the metadata: what the journal is made of. How they stand in it is the [codec](super::codec)'s business.

use super::{Extent, Name, Place, Serial};
use crate::kind::FileKind;

/// Who loses a name by an operation. It follows from the name, but is recorded: after damage to the journal a name may
/// seem to be another file's, which must not pay for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The file or directory.
    pub serial: Serial,
    /// Whether this was its last name, so that it goes.
    pub last: bool,
}

/// One operation on the metadata. [`Meta`](super::Meta) helps to make those that need to know what is there:
/// [`unlink_record`](super::Meta::unlink_record), [`rmdir_record`](super::Meta::rmdir_record),
/// [`rename_record`](super::Meta::rename_record). Times are nanoseconds since 1970, sizes and offsets bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A new directory.
    Mkdir {
        /// The directory that gets the entry.
        parent: Serial,
        /// Its name there.
        name: Name,
        /// Its number, from [`Meta::next_serial`](super::Meta::next_serial).
        serial: Serial,
        /// When.
        time: u64,
    },
    /// A new, empty, open file.
    Create {
        /// The directory that gets the entry.
        parent: Serial,
        /// Its name there.
        name: Name,
        /// Its number, from [`Meta::next_serial`](super::Meta::next_serial).
        serial: Serial,
        /// How its bytes are placed; not [`FileKind::Directory`].
        kind: FileKind,
        /// When.
        time: u64,
    },
    /// One more name for a file.
    Link {
        /// The file.
        serial: Serial,
        /// The directory that gets the entry.
        parent: Serial,
        /// The name there.
        name: Name,
    },
    /// A file's name goes; with its last name the file.
    Unlink {
        /// The directory.
        parent: Serial,
        /// The name.
        name: Name,
        /// Whose name it is.
        victim: Victim,
    },
    /// An empty directory goes.
    Rmdir {
        /// The directory it is in.
        parent: Serial,
        /// Its name.
        name: Name,
        /// Its number.
        serial: Serial,
    },
    /// A file or directory gets another name; a file or an empty directory of that name is replaced.
    Rename {
        /// Directory of the old name.
        from_parent: Serial,
        /// The old name.
        from: Name,
        /// Directory of the new name.
        to_parent: Serial,
        /// The new name.
        to: Name,
        /// What is renamed.
        serial: Serial,
        /// What had the new name before.
        victim: Option<Victim>,
        /// When.
        time: u64,
    },
    /// An open file gets an extent behind all others; an open one before it ends where this begins.
    Extend {
        /// The file.
        serial: Serial,
        /// The extent.
        extent: Extent,
    },
    /// An open file has grown.
    Size {
        /// The file.
        serial: Serial,
        /// Its size, not below what it was.
        size: u64,
        /// When.
        time: u64,
        /// Whether the size counts only as long as the drive does not lose power.
        volatile: bool,
    },
    /// The exact size of a file that is written no more for now; its last extent ends there.
    Seal {
        /// The file.
        serial: Serial,
        /// Its size.
        size: u64,
        /// When.
        time: u64,
    },
    /// A closed file is appended to again. Its extents keep their lengths: what comes goes to new ones.
    Reopen {
        /// The file.
        serial: Serial,
    },
    /// The bytes `logical..logical + len` live elsewhere now.
    Remap {
        /// The file.
        serial: Serial,
        /// Offset in the file.
        logical: u64,
        /// Bytes.
        len: u64,
        /// Where they are.
        place: Place,
    },
    /// The file ends at `size`, not beyond what it was. The bytes below must be durable before this record is.
    Truncate {
        /// The file.
        serial: Serial,
        /// Its size.
        size: u64,
        /// When.
        time: u64,
    },
    /// A file or directory has another time.
    Times {
        /// The file or directory.
        serial: Serial,
        /// When it was changed.
        modified: u64,
    },
    /// Of a snapshot, or of a file that is to [replace](Record::Replace) another: a file or directory that has no entry yet. For the
    /// root: its times.
    Inode {
        /// Its number.
        serial: Serial,
        /// How its bytes are placed.
        kind: FileKind,
        /// When it was created.
        created: u64,
        /// When it was changed.
        modified: u64,
        /// Its size.
        size: u64,
        /// Its volatile size.
        volatile_size: Option<u64>,
        /// Whether its size is final.
        closed: bool,
        /// Bytes announced.
        allocated: u64,
    },
    /// The next extent of a file that has no entry yet.
    Extent {
        /// The file.
        serial: Serial,
        /// The extent.
        extent: Extent,
    },
    /// Of a snapshot: a name.
    Entry {
        /// The directory.
        parent: Serial,
        /// The name.
        name: Name,
        /// What it names.
        serial: Serial,
    },
    /// A file that has no name yet takes all names of another one, which goes.
    Replace {
        /// Whose names they were.
        old: Serial,
        /// Whose they are.
        new: Serial,
    },
    /// Serials below this are not given out any more.
    NextSerial {
        /// The next one to give out.
        serial: Serial,
    },
    /// What a zone holds in this life counts no more, though it may not be reset yet: its header must not bring it back after
    /// damage. Recorded in snapshots, where the record that freed the zone is gone, and for a zone that an open file without
    /// a name took.
    FreedZone {
        /// The zone; no file has it.
        zone: u32,
        /// Its life when it was freed.
        life: u64,
    },
    /// All bytes of the files that are closed here are durable: recorded by an unmount, after a flush.
    Settled,
    /// The application announced how large the file will be.
    Allocate {
        /// The file.
        serial: Serial,
        /// Bytes in all, 0 to take it back.
        bytes: u64,
    },
    /// Bytes of conventional space that stands in the journal itself; see [`inline`](super::inline).
    Inline {
        /// Address in that space.
        addr: u64,
        /// At most [`MAX_INLINE`](super::inline::MAX_INLINE) of them, and not none.
        bytes: Vec<u8>,
    },
}
