//! Why a metadata operation or a record was refused, in plain sentences.

use imbrex_device::{Code, Error};

/// Why an operation on the metadata was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// No such file, directory or serial.
    #[error("there is no such file or directory; check the path")]
    NotFound,
    /// The name, or the serial, is taken.
    #[error("the name is taken; delete what has it first or choose another")]
    Exists,
    /// A directory is needed here.
    #[error("this is not a directory; give the path of one")]
    NotADirectory,
    /// A file is needed here.
    #[error("this is a directory; give the path of a file")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty; delete what is in it first")]
    NotEmpty,
    /// A name over [`MAX_NAME`](super::MAX_NAME) bytes or a path over [`MAX_PATH`](super::MAX_PATH) bytes.
    #[error("the name is too long; a name may have 255 bytes, a path 4096")]
    NameTooLong,
    /// A name that no file may have.
    #[error("no file can have this name; it must not be empty, `.` or `..`, nor contain `/` or a NUL")]
    InvalidName,
    /// [`MAX_LINKS`](super::MAX_LINKS) names are enough.
    #[error("the file has too many hard links; copy it instead")]
    TooManyLinks,
    /// A directory would end up inside itself.
    #[error("a directory cannot be moved into itself or below; choose another target")]
    Loop,
    /// The operation makes no sense in the present state; the text is a sentence.
    #[error("{0}")]
    Invalid(&'static str),
    /// Two parts of the metadata contradict each other; the text is a sentence.
    #[error("the metadata is damaged ({0}); run `imbrex fs check` on the drive")]
    Corrupt(String),
}

impl MetaError {
    /// The same about a path.
    pub(crate) fn at(self, path: &str) -> Error {
        let code = match self {
            MetaError::NotFound => Code::NotFound,
            MetaError::Exists => Code::Exists,
            MetaError::NotADirectory => Code::NotADirectory,
            MetaError::IsADirectory => Code::IsADirectory,
            MetaError::NotEmpty => Code::NotEmpty,
            MetaError::NameTooLong => Code::NameTooLong,
            MetaError::Corrupt(_) => Code::Corruption,
            _ => Code::InvalidArgument,
        };
        Error::refused(code, path, self.to_string())
    }
}
