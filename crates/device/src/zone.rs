//! Zones, their states and what may be done to them.

use std::fmt;

/// Number of a zone, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u32);

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// State of a zone (ZBC's zone conditions, ZNS's zone states).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneState {
    /// No write pointer: written anywhere.
    Conventional = 0,
    /// Nothing written since the last reset.
    Empty = 1,
    /// Opened by a write; the drive may close it by itself.
    ImplicitlyOpen = 2,
    /// Opened by the host; only the host closes it.
    ExplicitlyOpen = 3,
    /// Partly written, holds no open resource.
    Closed = 4,
    /// Written to its capacity, or finished.
    Full = 5,
    /// Readable, never writable again.
    ReadOnly = 6,
    /// Neither readable nor writable.
    Offline = 7,
}

impl ZoneState {
    /// Every state, in the order of their numbers.
    pub const ALL: [ZoneState; 8] = [
        ZoneState::Conventional,
        ZoneState::Empty,
        ZoneState::ImplicitlyOpen,
        ZoneState::ExplicitlyOpen,
        ZoneState::Closed,
        ZoneState::Full,
        ZoneState::ReadOnly,
        ZoneState::Offline,
    ];
    /// Whether a sequential zone takes writes in this state (an open resource may have to be found first).
    pub fn writable(self) -> bool {
        use ZoneState::*;
        matches!(self, Conventional | Empty | ImplicitlyOpen | ExplicitlyOpen | Closed)
    }
    /// Whether it holds an open resource of the drive.
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
    }
    /// The name that reports print.
    pub fn name(self) -> &'static str {
        use ZoneState::*;
        match self {
            Conventional => "conventional",
            Empty => "empty",
            ImplicitlyOpen => "implicitly-open",
            ExplicitlyOpen => "explicitly-open",
            Closed => "closed",
            Full => "full",
            ReadOnly => "read-only",
            Offline => "offline",
        }
    }
}

/// One zone as a drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Which.
    pub id: ZoneId,
    /// Its state.
    pub state: ZoneState,
    /// Bytes that can be written from its start; at most the zone size.
    pub capacity: u64,
    /// Write pointer as bytes from the zone's start (`capacity` when full); `None` where there is no valid one
    /// (conventional, read-only, offline).
    pub wp: Option<u64>,
}

/// How far a sequential zone holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// To here, in bytes from its start.
    To(u64),
    /// To nobody knows where: drives do not say how far a read-only zone was written.
    Untold,
    /// Nothing of it can be read any more.
    Gone,
}

impl Zone {
    /// How far it holds bytes, as far as the drive tells.
    pub fn written(&self) -> Written {
        match (self.state, self.wp) {
            (ZoneState::Offline, _) => Written::Gone,
            (ZoneState::Full, _) => Written::To(self.capacity),
            (_, Some(wp)) => Written::To(wp.min(self.capacity)),
            (_, None) => Written::Untold,
        }
    }

    /// A placeholder for report buffers.
    pub const EMPTY: Zone = Zone { id: ZoneId(0), state: ZoneState::Empty, capacity: 0, wp: Some(0) };
}

/// An operation on a sequential zone. Durable when it returns; cut by a crash it has happened or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneOp {
    /// Open explicitly.
    Open,
    /// Give the open resource back.
    Close,
    /// Make it full; the write pointer goes to the end.
    Finish,
    /// Make it empty.
    Reset,
}

impl ZoneOp {
    /// The name that traces and messages print.
    pub fn name(self) -> &'static str {
        match self {
            ZoneOp::Open => "open",
            ZoneOp::Close => "close",
            ZoneOp::Finish => "finish",
            ZoneOp::Reset => "reset",
        }
    }
}
