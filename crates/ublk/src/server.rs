//! The server of a device: one thread speaks with the kernel, and as many as the queue is deep run the commands of the drive.

use crate::abi::{self, ParamBasic, ParamZoned, Params, SECTOR};
use crate::control::{Control, Device, Trouble};
use crate::queue::{Event, Queue};
use crate::request::{Answer, Data, Request, Served};
use crate::turns::Turns;
use imbrex_device::AlignedBuf;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the device's node may take to appear.
const PATIENCE: Duration = Duration::from_secs(5);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of one request.
struct Bytes<'a> {
    file: &'a File,
    tag: u16,
}

impl Data for Bytes<'_> {
    fn take(&self, from: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, abi::data_place(self.tag) + from)
    }

    fn give(&self, from: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut given = 0;
        while let Some(rest) = bytes.get(given..).filter(|rest| !rest.is_empty()) {
            match self.file.write_at(rest, abi::data_place(self.tag) + from + given as u64) {
                Ok(0) => break,
                Ok(n) => given += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Behind the end of the request.
                Err(_) if given > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(given)
    }
}

type Outcome = Result<Answer, Errno>;

/// What the threads share.
struct Shared {
    served: Served,
    file: Arc<File>,
    done: Mutex<Vec<(u16, Outcome)>>,
    bell: Arc<OwnedFd>,
    /// The device was never started, so nothing comes any more.
    given_up: AtomicBool,
}

impl Shared {
    fn ring(&self) {
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

fn work(shared: &Shared, jobs: &Mutex<Receiver<(u16, Request)>>) {
    let mut buffer = None;
    loop {
        let Ok((tag, request)) = lock(jobs).recv() else { return };
        let buffer = buffer.get_or_insert_with(|| AlignedBuf::zeroed(shared.served.command() as usize));
        // Who asked would wait for ever where a defect of the drive ended this thread.
        let run = AssertUnwindSafe(|| shared.served.run(&request, &Bytes { file: &shared.file, tag }, buffer));
        let outcome = catch_unwind(run).unwrap_or(Err(Errno::IO));
        lock(&shared.done).push((tag, outcome));
        shared.ring();
    }
}

/// What the thread that speaks with the kernel knows.
struct Speaker {
    queue: Queue,
    shared: Arc<Shared>,
    turns: Turns,
    /// Requests that came and are not done, by tag.
    open: HashMap<u16, Request>,
    jobs: Sender<(u16, Request)>,
}

impl Speaker {
    fn go(&self, tag: u16) {
        // The workers live as long as this end of the channel.
        if let Some(request) = self.open.get(&tag) {
            let _ = self.jobs.send((tag, *request));
        }
    }

    fn comes(&mut self, tag: u16, desc: &abi::IoDesc) -> io::Result<()> {
        if self.turns.has(tag) {
            tracing::error!(tag, "the kernel sent a second request before the first was answered; ignored");
            return Ok(());
        }
        let request = match Request::parse(desc) {
            Ok(request) => request,
            Err(errno) => return self.queue.answer(tag, -errno.raw_os_error(), 0),
        };
        self.open.insert(tag, request);
        if self.turns.comes(tag, self.shared.served.claims(&request)) {
            self.go(tag);
        }
        Ok(())
    }

    fn answer_all(&mut self) -> io::Result<()> {
        let done = std::mem::take(&mut *lock(&self.shared.done));
        for (tag, outcome) in done {
            self.open.remove(&tag);
            // Who waits for it goes first: its answer needs no processor of the drive.
            for next in self.turns.is_done(tag) {
                self.go(next);
            }
            let (result, at) = match outcome {
                Ok(answer) => (i32::try_from(answer.bytes).unwrap_or(i32::MAX), answer.written_at / SECTOR),
                Err(errno) => (-errno.raw_os_error(), 0),
            };
            self.queue.answer(tag, result, at)?;
        }
        Ok(())
    }

    /// Serves until the device has ended.
    fn run(mut self, depth: u16) -> io::Result<()> {
        let mut over = 0;
        while over < depth {
            for event in self.queue.wait()? {
                match event {
                    Event::Comes(tag, desc) => self.comes(tag, &desc)?,
                    Event::Over => over += 1,
                    Event::Bell if self.shared.given_up.load(Ordering::Acquire) => return Ok(()),
                    Event::Bell => self.answer_all()?,
                }
            }
        }
        Ok(())
    }
}

/// A drive that is served as `/dev/ublkbN`. Dropped without [`Server::end`], the device stays until the process ends.
pub struct Server {
    device: Device,
    shared: Arc<Shared>,
    speaker: JoinHandle<io::Result<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Makes a device, serves it, and starts it. `depth`: requests at once.
    pub fn start(control: &mut Control, served: Served, depth: u16) -> Result<Server, Trouble> {
        let depth = depth.clamp(1, abi::MAX_QUEUE_DEPTH);
        let params = params(&served)?;
        let id = control.add(depth, served.limit())?;
        let server = match Server::serve(id, served, depth) {
            Ok(server) => server,
            Err(error) => {
                let _ = control.remove(id, false);
                return Err(Trouble::Failed("the device cannot be served", error));
            }
        };
        match control.set_params(id, params).and_then(|()| control.start(id)) {
            Ok(()) => {
                server.as_long_as_the_drives();
                Ok(server)
            }
            Err(trouble) => {
                server.shared.given_up.store(true, Ordering::Release);
                server.shared.ring();
                let _ = server.joined();
                let _ = control.remove(id, false);
                Err(trouble)
            }
        }
    }

    fn serve(id: u32, served: Served, depth: u16) -> io::Result<Server> {
        let device = Device { id, live: true, ours: true };
        let file = Arc::new(open_patiently(device.server_path())?);
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let shared = Arc::new(Shared { served, file, done: Mutex::default(), bell, given_up: AtomicBool::new(false) });
        let (jobs, taken) = channel();
        let taken = Arc::new(Mutex::new(taken));
        let workers: io::Result<Vec<_>> = (0..depth)
            .map(|_| {
                let (shared, taken) = (shared.clone(), taken.clone());
                std::thread::Builder::new().name("ublk-drive".into()).spawn(move || work(&shared, &taken))
            })
            .collect();
        let workers = workers?;
        let (ready, is_ready) = channel();
        let theirs = shared.clone();
        let speaker = std::thread::Builder::new().name("ublk-queue".into()).spawn(move || {
            let queue = match Queue::open(theirs.file.clone(), theirs.bell.clone(), depth) {
                Ok(queue) => queue,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            let _ = ready.send(Ok(()));
            Speaker { queue, shared: theirs, turns: Turns::default(), open: HashMap::new(), jobs }.run(depth)
        })?;
        let server = Server { device, shared, speaker, workers };
        match is_ready.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(error)) => {
                let _ = server.joined();
                Err(error)
            }
            Err(_) => Err(server.joined().err().unwrap_or_else(|| io::Error::other("its thread ended"))),
        }
    }

    /// Requests that are one command of the drive each. The device's limit may be higher, for reports of its zones; what is longer is cut.
    fn as_long_as_the_drives(&self) {
        let queue = format!("/sys/block/ublkb{}/queue/max_sectors_kb", self.device.id);
        if let Err(error) = std::fs::write(&queue, (self.shared.served.command() >> 10).to_string()) {
            tracing::warn!(%error, queue, "requests may be longer than the drive's commands");
        }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.device.path()
    }

    /// Whether the device has ended: somebody else took it away.
    pub fn is_over(&self) -> bool {
        self.speaker.is_finished()
    }

    /// Takes the device away, whoever uses it; whether all of it is gone. `in_use`: somebody has it, so nothing waits for that.
    pub fn end(self, control: &mut Control, in_use: bool) -> Result<bool, Trouble> {
        let id = self.device.id;
        if !self.is_over() {
            // Where this fails, requests may still come; they end with this process.
            control.stop(id)?;
        }
        let joined = self.joined();
        let gone = control.remove(id, in_use)?;
        joined.map(|()| gone).map_err(|error| Trouble::Failed("serving the device failed", error))
    }

    /// Waits for the threads, and closes the device.
    fn joined(self) -> io::Result<()> {
        let ended = self.speaker.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")));
        for worker in self.workers {
            let _ = worker.join();
        }
        ended
    }
}

fn open_patiently(path: PathBuf) -> io::Result<File> {
    let end = Instant::now() + PATIENCE;
    loop {
        match File::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
}

/// The drive's geometry in the kernel's words.
fn params(served: &Served) -> Result<Params, Trouble> {
    let drive = served.drive();
    let geometry = drive.geometry();
    let cached = drive
        .write_cache()
        .map_err(|error| Trouble::Failed("the drive does not say how it caches", io::Error::other(error)))?;
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
    let shift = geometry.block.trailing_zeros() as u8;
    let limit = |limit: Option<std::num::NonZeroU32>| limit.map_or(0, |n| n.get().min(geometry.zones));
    let max_active = limit(geometry.max_active);
    let max_open = match (limit(geometry.max_open), max_active) {
        (open, 0) => open,
        (open, active) => open.min(active),
    };
    Ok(Params {
        len: size_of::<Params>() as u32,
        types: abi::PARAM_TYPE_BASIC | abi::PARAM_TYPE_ZONED,
        basic: ParamBasic {
            attrs: if geometry.rotational { abi::ATTR_ROTATIONAL } else { 0 }
                | if cached { abi::ATTR_VOLATILE_CACHE } else { 0 },
            logical_bs_shift: shift,
            physical_bs_shift: shift,
            io_opt_shift: shift,
            io_min_shift: shift,
            max_sectors: sectors(served.limit().into()),
            chunk_sectors: sectors(geometry.zone_size),
            dev_sectors: geometry.size() / SECTOR,
            virt_boundary_mask: 0,
        },
        zoned: ParamZoned {
            max_open_zones: max_open,
            max_active_zones: max_active,
            max_zone_append_sectors: sectors(served.command().into()),
            reserved: [0; 20],
        },
        ..Params::default()
    })
}
