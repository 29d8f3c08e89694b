//! Floor 2: a drive of user space as a zoned block device of the Linux kernel, by the kernel's ublk driver (`linux/ublk_cmd.h`).
//!
//! The kernel sends each request for `/dev/ublkbN` to this process and waits for its answer. Three parts keep apart what can be tested without
//! a kernel and what cannot:
//!
//! - [`Request`] and [`Served`]: what a request asks for, and the commands of a drive that answer it. Pure translation, on any [`ZonedDevice`].
//! - `Turns`: the order in which requests run. What touches the same bytes goes one after the other, as it came.
//! - [`Control`] and [`Server`]: the kernel's protocol, by io_uring. The only `unsafe` of this crate is there.
//!
//! Nothing that the kernel says is believed: places, lengths and tags are checked, and memory is bounded by the depth of the queue and the
//! largest command.
//!
//! [`ZonedDevice`]: imbrex_device::ZonedDevice

#![warn(missing_docs)]

mod abi;
mod control;
mod queue;
mod request;
mod server;
mod turns;

pub use control::{Control, Device, Trouble, existing};
pub use request::{Answer, Data, Op, Request, Served, Unfit};
pub use server::Server;
