//! The queue of a device: requests come as answers to commands of an io_uring, and each answer to one fetches the next.
//!
//! The kernel wants all commands of a queue from one thread, so everything here runs in the thread that made it.

use crate::abi::{self, IoCmd, IoDesc};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What stands for the bell in an answer; tags are smaller.
const BELL: u64 = u64::MAX;

/// The kernel's table of requests, read only.
struct Descriptors {
    start: NonNull<IoDesc>,
    bytes: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &File, depth: u16) -> io::Result<Descriptors> {
        let bytes = (usize::from(depth) * size_of::<IoDesc>()).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing of ours.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, file.as_fd(), 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Descriptors { start, bytes, depth })
    }

    fn get(&self, tag: u16) -> Option<IoDesc> {
        if tag >= self.depth {
            return None;
        }
        // SAFETY: the mapping holds `depth` descriptors, and any bytes are one. The kernel wrote this one before it announced the request,
        // and leaves it alone until that is answered; volatile, since the kernel is no thread of ours.
        Some(unsafe { self.start.add(usize::from(tag)).read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped; nothing else points into it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// What came of the kernel.
pub(crate) enum Event {
    /// A request, and where it is described.
    Comes(u16, IoDesc),
    /// One tag brings no request any more.
    Over,
    /// Somebody rang the bell.
    Bell,
}

pub(crate) struct Queue {
    /// Before the file and the bell, so that it goes first: then the kernel uses neither any more.
    ring: IoUring,
    descriptors: Descriptors,
    file: Arc<File>,
    bell: Arc<OwnedFd>,
    depth: u16,
}

impl Queue {
    /// Fetches requests of the device: from then on it may be started.
    pub(crate) fn open(file: Arc<File>, bell: Arc<OwnedFd>, depth: u16) -> io::Result<Queue> {
        let descriptors = Descriptors::map(&file, depth)?;
        let ring = IoUring::builder().build(u32::from(depth) + 1)?;
        let mut queue = Queue { ring, descriptors, file, bell, depth };
        for tag in 0..depth {
            queue.push(&queue.entry(abi::IO_FETCH_REQ, IoCmd { tag, ..IoCmd::default() }))?;
        }
        queue.listen()?;
        queue.ring.submit()?;
        Ok(queue)
    }

    fn entry(&self, op: rustix::ioctl::Opcode, cmd: IoCmd) -> squeue::Entry {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(cmd.as_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        opcode::UringCmd16::new(file, op).cmd(bytes).build().user_data(cmd.tag.into())
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.ring.submit()?;
        }
        // SAFETY: the entry holds no pointer, and its file is open as long as this value, of which the ring is dropped first.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::from(Errno::BUSY))
    }

    /// Notices the next ring of the bell.
    fn listen(&mut self) -> io::Result<()> {
        let bell = types::Fd(self.bell.as_raw_fd());
        let readable = u32::from(rustix::event::PollFlags::IN.bits());
        self.push(&opcode::PollAdd::new(bell, readable).build().user_data(BELL))
    }

    /// Answers a request and fetches the next one of its tag. `written_at`: the sector of an append.
    pub(crate) fn answer(&mut self, tag: u16, result: i32, written_at: u64) -> io::Result<()> {
        let cmd = IoCmd { q_id: 0, tag, result, addr: written_at };
        self.push(&self.entry(abi::IO_COMMIT_AND_FETCH_REQ, cmd))
    }

    /// Waits for something to come, and hands out all that came.
    pub(crate) fn wait(&mut self) -> io::Result<Vec<Event>> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        let came: Vec<(u64, i32)> =
            self.ring.completion().map(|answer| (answer.user_data(), answer.result())).collect();
        let mut events = Vec::with_capacity(came.len());
        for (what, result) in came {
            let Some(tag) = u16::try_from(what).ok().filter(|tag| *tag < self.depth) else {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.bell, &mut count);
                self.listen()?;
                events.push(Event::Bell);
                continue;
            };
            events.push(match (result, self.descriptors.get(tag)) {
                (0, Some(desc)) => Event::Comes(tag, desc),
                _ => {
                    if result != abi::IO_RES_ABORT {
                        tracing::warn!(tag, result, "the kernel fetches no more requests");
                    }
                    Event::Over
                }
            });
        }
        Ok(events)
    }
}
