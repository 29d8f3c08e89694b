//! What can go wrong in a file system.

use crate::meta::MetaError;
use imbrex_device::{Class, Fault};
use std::fmt;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error, as the C API numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Code {
    /// No such file or directory.
    NotFound = 1,
    /// It exists already.
    Exists = 2,
    /// A component of the path, or the thing itself, is no directory.
    NotADirectory = 3,
    /// It is a directory.
    IsADirectory = 4,
    /// The directory has entries.
    NotEmpty = 5,
    /// A name of more than 255 bytes, or a path that is too long or too deep.
    NameTooLong = 6,
    /// The call makes no sense; the message says why.
    InvalidArgument = 7,
    /// The drive is full.
    NoSpace = 8,
    /// Bytes are not what they were.
    Corruption = 9,
    /// The drive or the system failed.
    Io = 10,
    /// Another process has the drive.
    Busy = 11,
    /// Only reads are possible.
    ReadOnly = 12,
    /// Deliberately not supported.
    NotSupported = 13,
    /// The file is locked.
    Locked = 14,
    /// An earlier failure stopped all writes; mount again.
    Poisoned = 15,
    /// A child of `fork` used its parent's file system.
    ForkedChild = 16,
    /// A bug: a panic was caught at the C border.
    Panic = 17,
}

/// An error of the file system: its kind, and one sentence that says what to do.
#[derive(Clone, Debug)]
pub struct Error {
    code: Code,
    class: Class,
    host_full: bool,
    message: String,
}

impl Error {
    /// An error of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let class = match code {
            Code::Corruption => Class::Damage,
            Code::Busy | Code::Locked => Class::Busy,
            _ => Class::Failed,
        };
        Error { code, class, host_full: false, message: message.into() }
    }
    /// Its kind.
    pub fn code(&self) -> Code {
        self.code
    }
    /// What it means to whoever started the program.
    pub fn class(&self) -> Class {
        self.class
    }
    /// Whether it is the host under an emulated drive that has no room, and not the drive.
    pub fn is_host_full(&self) -> bool {
        self.host_full
    }
    /// What the metadata said, about this path.
    pub(crate) fn meta(path: &str, error: MetaError) -> Self {
        use MetaError as M;
        let code = match error {
            M::NotFound => Code::NotFound,
            M::Exists => Code::Exists,
            M::NotADirectory => Code::NotADirectory,
            M::IsADirectory => Code::IsADirectory,
            M::NotEmpty => Code::NotEmpty,
            M::NameTooLong => Code::NameTooLong,
            M::Corrupt(_) => Code::Corruption,
            _ => Code::InvalidArgument,
        };
        Error::new(code, format!("{path}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<imbrex_device::Error> for Error {
    fn from(error: imbrex_device::Error) -> Self {
        let code = match &error.fault {
            Fault::NoSpace => Code::NoSpace,
            Fault::Corrupt { .. } => Code::Corruption,
            Fault::Busy { .. } => Code::Busy,
            Fault::ReadOnly => Code::ReadOnly,
            Fault::Unusable(_) | Fault::Misuse(_) => Code::InvalidArgument,
            Fault::Io(io) => match io.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                std::io::ErrorKind::StorageFull => Code::NoSpace,
                std::io::ErrorKind::InvalidData => Code::Corruption,
                std::io::ErrorKind::ResourceBusy => Code::Busy,
                _ => Code::Io,
            },
            _ => Code::Io,
        };
        let host_full = code == Code::NoSpace && matches!(error.fault, Fault::Io(_));
        Error { code, class: error.class(), host_full, message: error.to_string() }
    }
}
