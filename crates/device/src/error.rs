//! What can go wrong on a drive, and what to do about it.

use crate::{Holder, ZoneId, holders_in_words};
use std::fmt;
use std::io;
use std::sync::Arc;

/// `Result` with the drive's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What happened.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The command breaks a rule of the contract (alignment, range, a zone of the wrong kind); the text says which.
    InvalidInput(Arc<str>),
    /// A write not at the write pointer; both as bytes from the zone's start.
    WritePointer {
        /// Where the write pointer is.
        expected: u64,
        /// Where the write was aimed.
        got: u64,
    },
    /// The zone has no room for the write.
    ZoneFull,
    /// The open limit is reached and the drive may close nothing by itself.
    TooManyOpen,
    /// The active limit is reached.
    TooManyActive,
    /// The zone (or the whole mount) can only be read.
    ReadOnly,
    /// The zone can neither be read nor written.
    Offline,
    /// A medium error, `len` bytes after the start of the command.
    Media {
        /// Bytes before the bad block.
        len: u64,
    },
    /// No empty space left.
    NoSpace,
    /// Bytes are there but are not what they must be; the text says which structure and where.
    Corrupt {
        /// What is damaged.
        what: Arc<str>,
        /// The command that looks for more, where whoever says this knows one.
        check: Option<&'static str>,
    },
    /// Another process has the drive.
    Busy {
        /// The living processes that hold its lock; none where the system does not tell.
        by: Arc<[Holder]>,
    },
    /// Not a drive, not formatted, another version: the text is a whole sentence.
    Unusable(Arc<str>),
    /// What was asked for makes no sense, whatever the drive is (an option that nobody knows): the text is a whole sentence.
    Misuse(Arc<str>),
    /// An engine says no: the kind, and a whole sentence. What it is about stands in place of the drive.
    Refused(Code, Arc<str>),
    /// The operating system's error.
    Io(Arc<io::Error>),
}

/// Kind of an error, the same for drives and all engines. The C API has these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Code {
    /// There is no such thing.
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
    /// The name is locked.
    Locked = 14,
    /// An earlier failure stopped all writes; open the drive again.
    Poisoned = 15,
    /// A child of `fork` used what its parent has open.
    ForkedChild = 16,
    /// A bug: a panic was caught at the C border.
    Panic = 17,
    /// A chunk takes no more appends.
    Sealed = 18,
    /// A chunk does not end where the append expects.
    WrongOffset = 19,
    /// A chunk has no room for the append.
    ChunkFull = 20,
    /// There is nothing at this offset.
    Range = 21,
    /// What was to be read is kept no longer.
    Expired = 22,
}

impl Code {
    /// What this means to whoever started the program, where nothing more is known.
    pub fn class(self) -> Class {
        match self {
            Code::Corruption => Class::Damage,
            Code::Busy | Code::Locked => Class::Busy,
            _ => Class::Failed,
        }
    }
}

/// What a failure means to whoever started the program. Each class has an exit code of its own in the `imbrex` command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It failed, for none of the reasons below.
    Failed,
    /// What was asked for makes no sense; nothing was tried.
    Usage,
    /// Bytes are not what was written, or cannot be read any more.
    Damage,
    /// Somebody else has it now; later it may work.
    Busy,
}

impl Fault {
    /// Its kind.
    pub fn code(&self) -> Code {
        match self {
            Fault::Refused(code, _) => *code,
            Fault::NoSpace => Code::NoSpace,
            Fault::Corrupt { .. } => Code::Corruption,
            Fault::Busy { .. } => Code::Busy,
            Fault::ReadOnly => Code::ReadOnly,
            Fault::Unusable(_) | Fault::Misuse(_) => Code::InvalidArgument,
            Fault::Io(error) => match error.kind() {
                io::ErrorKind::NotFound => Code::NotFound,
                io::ErrorKind::StorageFull => Code::NoSpace,
                io::ErrorKind::InvalidData => Code::Corruption,
                io::ErrorKind::ResourceBusy => Code::Busy,
                _ => Code::Io,
            },
            _ => Code::Io,
        }
    }

    /// What this means to whoever started the program.
    pub fn class(&self) -> Class {
        match self {
            Fault::Misuse(_) => Class::Usage,
            Fault::Refused(code, _) => code.class(),
            Fault::Offline | Fault::Media { .. } | Fault::Corrupt { .. } => Class::Damage,
            Fault::Io(error) if error.kind() == io::ErrorKind::InvalidData => Class::Damage,
            Fault::Busy { .. } => Class::Busy,
            Fault::Io(error) if error.kind() == io::ErrorKind::ResourceBusy => Class::Busy,
            Fault::InvalidInput(_)
            | Fault::WritePointer { .. }
            | Fault::ZoneFull
            | Fault::TooManyOpen
            | Fault::TooManyActive
            | Fault::ReadOnly
            | Fault::NoSpace
            | Fault::Unusable(_)
            | Fault::Io(_) => Class::Failed,
        }
    }
}

/// An error: what, on which drive, where. It is that of drives, volumes and engines, so an engine needs none of its own.
#[derive(Debug, Clone)]
pub struct Error {
    /// What happened.
    pub fault: Fault,
    /// The drive's name; of what an engine refuses, what that is about, or nothing.
    pub drive: Arc<str>,
    /// The zone, where one is concerned.
    pub zone: Option<ZoneId>,
    /// Byte address of the command, or 0.
    pub offset: u64,
}

impl Error {
    /// An error that concerns a whole drive.
    pub fn new(drive: &Arc<str>, fault: Fault) -> Self {
        Error { fault, drive: drive.clone(), zone: None, offset: 0 }
    }
    /// The same error at a zone and byte address.
    pub fn at(mut self, zone: ZoneId, offset: u64) -> Self {
        self.zone = Some(zone);
        self.offset = offset;
        self
    }
    /// Wraps an error of the operating system.
    pub fn io(drive: &Arc<str>, error: io::Error) -> Self {
        Self::new(drive, Fault::Io(Arc::new(error)))
    }
    /// A damaged structure.
    pub fn corrupt(drive: &Arc<str>, what: impl Into<Arc<str>>) -> Self {
        Self::new(drive, Fault::Corrupt { what: what.into(), check: None })
    }
    /// The same error, with the command that looks for more damage, if it is one of damage.
    pub fn checked_by(mut self, command: &'static str) -> Self {
        if let Fault::Corrupt { check, .. } = &mut self.fault {
            *check = Some(command);
        }
        self
    }
    /// A call that breaks the contract.
    pub fn invalid(drive: &Arc<str>, what: impl Into<Arc<str>>) -> Self {
        Self::new(drive, Fault::InvalidInput(what.into()))
    }
    /// A drive that cannot be used, told in a whole sentence.
    pub fn unusable(drive: &Arc<str>, sentence: impl Into<Arc<str>>) -> Self {
        Self::new(drive, Fault::Unusable(sentence.into()))
    }
    /// A wish that makes no sense, told in a whole sentence.
    pub fn misuse(drive: &Arc<str>, sentence: impl Into<Arc<str>>) -> Self {
        Self::new(drive, Fault::Misuse(sentence.into()))
    }
    /// Bytes that are missing or not what they were, told in a whole sentence.
    pub fn damaged(drive: &Arc<str>, sentence: impl Into<String>) -> Self {
        Self::io(drive, io::Error::new(io::ErrorKind::InvalidData, sentence.into()))
    }
    /// These processes have the drive.
    pub fn busy(drive: &Arc<str>, by: Vec<Holder>) -> Self {
        Self::new(drive, Fault::Busy { by: by.into() })
    }
    /// Somebody who is no process of ours has it, told in a whole sentence.
    pub fn taken(drive: &Arc<str>, sentence: impl Into<String>) -> Self {
        Self::io(drive, io::Error::new(io::ErrorKind::ResourceBusy, sentence.into()))
    }
    /// An engine says no, in a whole sentence about a path or a drive; about nothing where that is empty.
    pub fn refused(code: Code, about: &str, sentence: impl Into<Arc<str>>) -> Self {
        Self::new(&about.into(), Fault::Refused(code, sentence.into()))
    }
    /// Its kind.
    pub fn code(&self) -> Code {
        self.fault.code()
    }
    /// What this means to whoever started the program.
    pub fn class(&self) -> Class {
        self.fault.class()
    }
    /// Whether it is the host under an emulated drive that has no room, and not the drive.
    pub fn is_host_full(&self) -> bool {
        matches!(&self.fault, Fault::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.drive)?;
        if let Some(zone) = self.zone {
            write!(f, ", zone {zone}, offset {}", self.offset)?;
        }
        if !self.drive.is_empty() {
            write!(f, ": ")?;
        }
        match &self.fault {
            Fault::InvalidInput(what) => write!(f, "invalid command ({what}); this is a bug in the caller, report it"),
            Fault::WritePointer { expected, got } => write!(
                f,
                "write at {got} but the write pointer is at {expected}; report the zone and write at its write pointer"
            ),
            Fault::ZoneFull => write!(f, "the zone is full; write to another zone or reset this one"),
            Fault::TooManyOpen => write!(f, "too many open zones; close or finish one"),
            Fault::TooManyActive => write!(f, "too many active zones; finish or reset one"),
            Fault::ReadOnly => {
                write!(f, "read-only; write elsewhere, and plan to replace the drive if it is the zone's state")
            }
            Fault::Offline => {
                write!(f, "the zone is offline, its data is gone; restore it from a copy and replace the drive")
            }
            Fault::Media { len } => {
                write!(f, "medium error {len} bytes in; restore what stood there from a copy and replace the drive")
            }
            Fault::NoSpace => write!(f, "no space left; delete something or use a larger drive"),
            Fault::Corrupt { what, check: Some(command) } => {
                write!(f, "{what} is damaged; run `{command}` on the drive")
            }
            Fault::Corrupt { what, check: None } => write!(f, "{what} is damaged; check the drive"),
            Fault::Busy { by } => {
                write!(f, "in use by {}; stop {} first", holders_in_words(by), if by.len() > 1 { "them" } else { "it" })
            }
            Fault::Unusable(sentence) | Fault::Misuse(sentence) | Fault::Refused(_, sentence) => {
                write!(f, "{sentence}")
            }
            Fault::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Io(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_drive_zone_offset_and_what_to_do() {
        let e = Error::new(&"x.img".into(), Fault::WritePointer { expected: 4096, got: 0 }).at(ZoneId(7), 1 << 20);
        let text = e.to_string();
        for part in ["x.img", "zone 7", "1048576", "4096", "write at its write pointer"] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }

    #[test]
    fn damage_names_the_command_of_whoever_found_it_and_no_other() {
        let found = Error::corrupt(&"x.img".into(), "block 3");
        assert_eq!(found.to_string(), "x.img: block 3 is damaged; check the drive");
        let found = found.checked_by("imbrex store check");
        assert_eq!(found.to_string(), "x.img: block 3 is damaged; run `imbrex store check` on the drive");
        assert_eq!((found.code(), found.class()), (Code::Corruption, Class::Damage));
        let other = Error::new(&"x.img".into(), Fault::NoSpace).checked_by("imbrex store check");
        assert!(!other.to_string().contains("check"), "{other}");
    }

    #[test]
    fn what_an_engine_refuses_is_told_with_what_it_is_about() {
        let e = Error::refused(Code::NotFound, "/db/CURRENT", "there is no such file or directory; check the path");
        assert_eq!(e.to_string(), "/db/CURRENT: there is no such file or directory; check the path");
        assert_eq!((e.code(), e.class()), (Code::NotFound, Class::Failed));
        assert_eq!(Error::refused(Code::InvalidArgument, "", "a handle is NULL").to_string(), "a handle is NULL");
        assert_eq!(Error::refused(Code::Locked, "/db/LOCK", "it is locked").class(), Class::Busy);
        let full = Error::io(&"x.img".into(), io::ErrorKind::StorageFull.into());
        assert_eq!((full.code(), full.is_host_full()), (Code::NoSpace, true));
        let full = Error::new(&"x.img".into(), Fault::NoSpace);
        assert_eq!((full.code(), full.is_host_full()), (Code::NoSpace, false));
    }
}
