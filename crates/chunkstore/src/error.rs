//! What can go wrong with chunks.

use crate::format::id::ChunkId;
use imbrex_device::{Class, Code, Fault};

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the chunk store. Whatever was asked for has then changed nothing, except where [`Error::Drive`] says that the
/// drive failed in the middle of it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No chunk has this id.
    #[error("there is no chunk {0}; `imbrex chunk ls` lists those that are there")]
    NotFound(ChunkId),
    /// There is one of this id.
    #[error("chunk {0} exists already; use another id, or delete that chunk first")]
    Exists(ChunkId),
    /// The chunk takes no more appends.
    #[error("chunk {id} is sealed at {len} bytes; append to another one")]
    Sealed {
        /// The chunk.
        id: ChunkId,
        /// Its length in bytes.
        len: u32,
    },
    /// The chunk does not end where the caller expected.
    #[error(
        "chunk {id} ends at {len}, not at {expected}; if the bytes from {expected} on are yours already, go on at {len}"
    )]
    Offset {
        /// The chunk.
        id: ChunkId,
        /// Where it was expected to end.
        expected: u64,
        /// Where it ends.
        len: u32,
    },
    /// When the store was opened something could not be read that the chunk may have had behind its end.
    #[error(
        "chunk {id} ends at {len}, and may have gone on there with bytes that could not be read when the store was opened; if you know that it ended \
         there, append at offset {len}, else seal it and go on in another one"
    )]
    EndLost {
        /// The chunk.
        id: ChunkId,
        /// Where it ends.
        len: u32,
    },
    /// The chunk would become too long.
    #[error("{}", over(*id, *len, *more, *limit))]
    Limit {
        /// The chunk.
        id: ChunkId,
        /// Its length in bytes.
        len: u32,
        /// Bytes of the append.
        more: u64,
        /// Most bytes of a chunk of its stream.
        limit: u32,
    },
    /// The chunk has had too many appends.
    #[error(
        "chunk {id} has had {records} appends, which is the limit; seal it and go on in another one, with larger appends"
    )]
    TooManyRecords {
        /// The chunk.
        id: ChunkId,
        /// How many it has had.
        records: usize,
    },
    /// More bytes than one append may have.
    #[error("an append of {len} bytes is too long; append at most {most} at a time")]
    TooLong {
        /// Bytes of the append.
        len: usize,
        /// Most bytes of one.
        most: u32,
    },
    /// An append of nothing.
    #[error("an append needs at least one byte")]
    Empty,
    /// A read from behind the end.
    #[error("chunk {id} has {len} bytes; nothing can be read from {offset} on")]
    Range {
        /// The chunk.
        id: ChunkId,
        /// Where the read began.
        offset: u64,
        /// Its length in bytes.
        len: u32,
    },
    /// The kind of stream has no settings.
    #[error("there is no stream type {0}; the store was opened with settings for fewer")]
    NoSuchStream(u8),
    /// Bytes are not what was written.
    #[error(
        "chunk {id} is damaged at {offset} (zone {zone}); restore it from a copy, or ask for the bytes as they are with a rescue read"
    )]
    Damaged {
        /// The chunk.
        id: ChunkId,
        /// Offset in the chunk of the first bad slice.
        offset: u32,
        /// The zone where it stands.
        zone: u32,
    },
    /// There are so many chunks and records that a checkpoint of them would not fit the metazones.
    #[error("the metazones are full of {bytes} bytes of index; delete chunks, or use larger appends")]
    IndexFull {
        /// Bytes that a checkpoint takes.
        bytes: u64,
    },
    /// A text that no chunk can be named.
    #[error("{name:?} cannot be a chunk's name: {why}")]
    BadName {
        /// The text.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No chunk has this name.
    #[error("no chunk is named {0:?}; `imbrex chunk ls --names` lists the names")]
    NoSuchName(String),
    /// Another chunk has this name.
    #[error("a chunk is named {0:?} already; replace it, or use another name")]
    NameTaken(String),
    /// A name for no chunk at all, or for one twice.
    #[error("the name {0:?} is for no chunk, or for one chunk twice; give each of its chunks once")]
    NameForNothing(String),
    /// A naming of some of the chunks of another name: these would be left without one.
    #[error("chunk {id} would lose its name, since {name:?} stands for it and others; name all of them")]
    NameSplit {
        /// A chunk that is not among those to be named.
        id: ChunkId,
        /// The name that it has.
        name: String,
    },
    /// A name for more chunks than its entry in the journal can hold.
    #[error("a name stands for {most} chunks at most, and {name:?} would for {chunks}; give the chunks several names")]
    NameForTooMany {
        /// The name.
        name: String,
        /// For how many.
        chunks: usize,
        /// And for how many at most.
        most: usize,
    },
    /// The drive failed, is full, or cannot be used; says what to do.
    #[error("{0}")]
    Drive(imbrex_device::Error),
}

/// Bytes that do not fit a chunk: because of those that it has, or because no chunk takes so many.
fn over(id: ChunkId, len: u32, more: u64, limit: u32) -> String {
    if more > u64::from(limit) {
        return format!(
            "a chunk takes {limit} bytes at most, and these are {more}; `imbrex chunk put` makes as many chunks of them as it needs"
        );
    }
    format!("chunk {id} has {len} bytes and takes {limit} at most; seal it and put these {more} into another one")
}

impl From<imbrex_device::Error> for Error {
    /// The volume serves several engines, and its sentences name the commands of the first, `imbrex fs`; here the chunk store's are
    /// meant.
    fn from(mut error: imbrex_device::Error) -> Error {
        if let Fault::Unusable(sentence) = &error.fault
            && sentence.contains("`imbrex fs ")
        {
            let ours = sentence
                .replace("`imbrex fs format", "`imbrex chunk format")
                .replace("`imbrex fs cp", "`imbrex chunk get");
            error.fault = Fault::Unusable(ours.into());
        }
        Error::Drive(error)
    }
}

impl Error {
    /// Its kind.
    pub fn code(&self) -> Code {
        match self {
            Error::NotFound(_) | Error::NoSuchName(_) => Code::NotFound,
            Error::Exists(_) | Error::NameTaken(_) => Code::Exists,
            Error::Sealed { .. } => Code::Sealed,
            Error::Offset { .. } => Code::WrongOffset,
            Error::Limit { .. } | Error::TooManyRecords { .. } => Code::ChunkFull,
            Error::TooLong { .. }
            | Error::Empty
            | Error::NoSuchStream(_)
            | Error::BadName { .. }
            | Error::NameForNothing(_)
            | Error::NameForTooMany { .. }
            | Error::NameSplit { .. } => Code::InvalidArgument,
            Error::Range { .. } => Code::Range,
            Error::Damaged { .. } | Error::EndLost { .. } => Code::Corruption,
            Error::IndexFull { .. } => Code::NoSpace,
            Error::Drive(error) => error.code(),
        }
    }

    /// What this means to whoever started the program.
    pub fn class(&self) -> Class {
        match self {
            Error::Drive(error) => error.class(),
            _ => self.code().class(),
        }
    }

    /// Whether there is no room: then deleting something helps.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::IndexFull { .. } | Error::Drive(imbrex_device::Error { fault: Fault::NoSpace, .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_any_chunk_takes_is_told_with_the_limit() {
        let said = |len, more| Error::Limit { id: ChunkId::default(), len, more, limit: 1000 }.to_string();
        assert!(said(400, 601).contains("has 400 bytes and takes 1000 at most; seal it and put these 601 into"));
        assert!(
            said(0, 5_368_709_120).contains("takes 1000 bytes at most, and these are 5368709120; `imbrex chunk put`")
        );
    }

    #[test]
    fn sentences_of_the_volume_name_this_engine_s_commands() {
        let said = |sentence: &str| Error::from(imbrex_device::Error::unusable(&"x.img".into(), sentence)).to_string();
        assert_eq!(
            said("no label; use `imbrex fs format --force`"),
            "x.img: no label; use `imbrex chunk format --force`"
        );
        assert_eq!(said("`imbrex fs cp` still reads it"), "x.img: `imbrex chunk get` still reads it");
        assert_eq!(said("formatted for bluefs"), "x.img: formatted for bluefs");
    }
}
