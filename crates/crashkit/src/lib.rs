//! Crash explorer: every state that a process crash or a power loss may leave (DESIGN §7).
//!
//! An engine under test is a [`Subject`]: it formats a drive, runs a workload that writes down in a [`Log`] what it was
//! promised, recovers, and checks. [`explore`] runs the workload on an emulated drive in memory behind a recorder, and at
//! each *crash point* copies drive and survivor, lets the process or the power die, and has the subject check what is left
//! against its [`History`]: what must be there, what may be there, and nothing else. [`fault_sweep`] makes one command
//! after the other fail instead.
//!
//! **What a crash point is**: the moment before each command that changes the drive; block boundaries inside each write;
//! after each acknowledgement and sync that the workload logs; around each change of the survivor; the end.
//!
//! **What is built there** (see [`Variant`]): process crash (survivor kept); power loss with everything acknowledged kept,
//! with nothing unflushed kept, and with random outcomes; process crash, then power loss during or after recovery; and
//! crashes of recovery in all other orders; and, after process crash and recovery, a copy of the drive that is restored in place after
//! a later process was killed: of that one's memory nothing may be there. After a power loss the survivor is empty or, to catch who believes it, still
//! holds what an earlier power epoch left.
//!
//! **Determinism**: one seed gives the same commands, states and outcomes, on any number of threads; commands are hashed
//! and compared between the two passes. The subject has to keep its side: one thread, no clocks, no other randomness.
//!
//! A test of an engine, here one that keeps a number in the first block of the drive:
//!
//! ```
//! use imbrex_crashkit::{Config, Crash, History, Log, Plan, Subject, explore};
//! use imbrex_device::{AlignedBuf, Cause, Drive, Tag};
//! use std::sync::Arc;
//!
//! const TAG: Tag = Tag::new(Cause::Label);
//! struct Number;
//!
//! fn store(drive: &Drive, number: u8) -> Result<(), String> {
//!     let mut block = AlignedBuf::zeroed(4096);
//!     block[0] = number;
//!     drive.device.write_at(&block, 0, TAG).map_err(|e| e.to_string())?;
//!     drive.device.flush(TAG).map_err(|e| e.to_string())
//! }
//!
//! impl Subject for Number {
//!     type Op = u8;
//!     fn format(&self, drive: &Drive) -> Result<(), String> {
//!         store(drive, 0)
//!     }
//!     fn workload(&self, drive: Drive, _seed: u64, log: &Log<u8>) -> Result<(), String> {
//!         for number in 1..4 {
//!             let id = log.begun(number);
//!             store(&drive, number)?;
//!             log.synced(id);
//!         }
//!         Ok(())
//!     }
//!     fn recover(&self, _drive: Drive) -> Result<(), String> {
//!         Ok(())
//!     }
//!     fn check(&self, drive: Drive, _crash: Crash, history: &History<u8>) -> Result<(), String> {
//!         let mut block = AlignedBuf::zeroed(4096);
//!         drive.device.read_at(&mut block, 0, TAG).map_err(|e| e.to_string())?;
//!         let allowed = history.must_prefix()..=history.entries().len();
//!         if allowed.contains(&usize::from(block[0])) { Ok(()) } else { Err(format!("{} is there", block[0])) }
//!     }
//! }
//!
//! let report = explore(&Arc::new(Number), &Config::tiny(), &Plan::new(1)).unwrap();
//! assert_eq!(report.states, report.possible);
//! ```

#![warn(missing_docs)]

mod drive;
mod examine;
mod explore;
mod faults;
mod log;
mod plan;
mod pool;
mod recorder;
mod run;

use imbrex_device::Drive;
use std::fmt::Debug;

pub use explore::{Failure, REPLAY_VARIABLE, Report, explore, replay};
pub use faults::{FAULT_REPLAY_VARIABLE, FaultKind, FaultPlan, FaultReport, fault_sweep};
pub use imbrex_emulator::Config;
pub use log::{Entry, History, Injected, Log, OpId, Status};
pub use plan::{Crash, Plan, ROUNDS_VARIABLE, StateId, Variant, seeds};

/// What is explored. Errors are sentences for people. A panic anywhere is a failure.
///
/// `'static` and shared, because a check that hangs has to be left behind on its thread.
pub trait Subject: Send + Sync + 'static {
    /// One thing the workload does: enough to know whether it is there.
    type Op: Clone + Send + Sync + Debug + 'static;

    /// Prepares a new drive. Not crashed; a workload may format again if that is to be explored. Deterministic.
    fn format(&self, drive: &Drive) -> Result<(), String>;

    /// Opens the drive, does things, and logs them: `begun` before a call, `acked` after it returned success, `synced…`
    /// after a sync did. Deterministic in `seed`. An error is a failure in [`explore`], and an accepted refusal in
    /// [`fault_sweep`]: a wrong byte must be a panic.
    fn workload(&self, drive: Drive, seed: u64, log: &Log<Self::Op>) -> Result<(), String>;

    /// Mounts as after a crash, until everything that was recovered is durable, and closes again; adds nothing of its own.
    /// It is crashed too.
    fn recover(&self, drive: Drive) -> Result<(), String>;

    /// Mounts, runs the engine's own full check, compares with the history (what must be there, what may be there, and
    /// nothing else), and shows that the drive still works: writes, syncs, reopens.
    fn check(&self, drive: Drive, crash: Crash, history: &History<Self::Op>) -> Result<(), String>;
}
