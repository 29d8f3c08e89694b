//! How a command reaches the images of a drive that another process serves: a socket, whose path follows from the drive's. One request is one connection: a line of JSON,
//! then frames. A frame is a letter, a length, and bytes: `d`, what the request gives; `e`, an error; `.`, the end. A client that has more to give than the line sends it so, too,
//! with `d` and `.`.
//!
//! The socket is its owner's alone, and a client looks who answers.

use crate::images::Images;
use crate::info::Info;
use crate::limits::LimitChange;
use imbrex_device::{Code, Error, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, shutdown};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest line of a request.
const LONGEST: u64 = 64 << 10;
/// Most bytes of a frame.
const FRAME: usize = 1 << 20;
/// Requests at once.
const AT_ONCE: usize = 32;
/// So long a client may take for its line, or to read a frame.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a server that waits for what a client gives looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// What may be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is a method of Images, with its arguments")]
pub enum Request {
    List,
    Info { name: String },
    Create { name: String, size: u64 },
    Remove { name: String },
    Rename { name: String, to: String },
    Resize { name: String, size: u64 },
    Snapshot { name: String, snapshot: String },
    RemoveSnapshot { name: String, snapshot: String },
    Rollback { name: String, snapshot: String },
    Clone { name: String, snapshot: String, to: String },
    Flatten { name: String },
    Stat { name: String },
    Limit { name: String, change: LimitChange },
    ExportDiff { name: String, from: Option<String>, to: Option<String> },
    Optimize { name: String, memory: u64 },
    ImportDiff { name: String },
}

impl Request {
    /// It wants more than its line.
    fn takes_input(&self) -> bool {
        matches!(self, Request::ImportDiff { .. })
    }
}

/// An error on its way.
#[derive(Serialize, Deserialize)]
struct Told {
    code: i32,
    sentence: String,
}

impl Images {
    /// Does what is asked for. `List` and `Info` give [`Info`] as JSON, in an array; `Stat` a [`Stat`](crate::Stat); `ExportDiff` its stream; `Optimize` how far it is; others nothing. `ImportDiff` reads one from `input`.
    ///
    /// # Errors
    /// Those of the method, of `input`, and of `out`.
    pub fn perform(&self, request: &Request, input: &mut dyn Read, out: &mut dyn Write) -> Result<()> {
        let infos = |names: Vec<String>, out: &mut dyn Write| {
            let info = |name: String| match self.info(&name) {
                // It was removed meanwhile.
                Err(error) if error.code() == Code::NotFound => None,
                info => Some(info),
            };
            let all: Vec<Info> = names.into_iter().filter_map(info).collect::<Result<_>>()?;
            serde_json::to_writer(out, &all).map_err(|error| Error::io(&"images".into(), error.into()))
        };
        match request {
            Request::List => infos(self.names()?, out),
            Request::Info { name } => {
                let info = self.info(name)?;
                serde_json::to_writer(out, &[info]).map_err(|error| Error::io(&"images".into(), error.into()))
            }
            Request::Create { name, size } => self.create(name, *size),
            Request::Remove { name } => self.remove(name),
            Request::Rename { name, to } => self.rename(name, to),
            Request::Resize { name, size } => self.resize(name, *size),
            Request::Snapshot { name, snapshot } => self.snapshot(name, snapshot),
            Request::RemoveSnapshot { name, snapshot } => self.remove_snapshot(name, snapshot),
            Request::Rollback { name, snapshot } => self.rollback(name, snapshot),
            Request::Clone { name, snapshot, to } => self.clone_image(name, snapshot, to),
            Request::Flatten { name } => self.flatten(name),
            Request::Stat { name } => {
                let stat = self.stat(name)?;
                serde_json::to_writer(out, &stat).map_err(|error| Error::io(&"images".into(), error.into()))
            }
            Request::Limit { name, change } => self.limit(name, *change),
            Request::ExportDiff { name, from, to } => self.export_diff(name, from.as_deref(), to.as_deref(), out),
            Request::Optimize { name, memory } => self.optimize(name, *memory, out),
            Request::ImportDiff { name } => self.import_diff(name, input),
        }
    }
}

/// Where the socket of a drive's images is: in a directory of this user beside what survives a process, in `IMBREX_SHM_DIR` or `/dev/shm`. `drive`: its path. `None`: nothing can be there.
pub fn socket_of(drive: &Path) -> Option<PathBuf> {
    // No two files of a machine share these.
    let about = fs::metadata(drive).ok()?;
    let dir = std::env::var_os("IMBREX_SHM_DIR").filter(|dir| !dir.is_empty());
    let dir = dir.map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let own = dir.join(format!("imbrex-images-{}", rustix::process::geteuid().as_raw()));
    Some(own.join(format!("{:x}-{:x}", about.dev(), about.ino())))
}

/// Answers until it is dropped, which waits for requests that are under way.
pub struct Control {
    path: PathBuf,
    /// Which socket it is: another one may have taken its place.
    inode: u64,
    over: Arc<AtomicBool>,
    listener: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if inode_of(&self.path) == Some(self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "the control socket stays");
        }
        // Who waits for a client gets an error.
        if let Err(error) = shutdown(&self.listener, Shutdown::Both) {
            tracing::warn!(%error, "the control socket cannot be closed before this process ends");
            return;
        }
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("a bug in imbrex was caught in the control socket; please report it");
        }
    }
}

fn inode_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|about| about.ino())
}

/// Makes the directory of a socket, for this user alone.
fn own_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(dir)?;
    let own = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw();
    if own {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::PermissionDenied, "the directory is another user's; remove it"))
    }
}

impl Control {
    /// Answers at this path from now on. What is there is replaced: a drive is one process's, so it is of one that has ended.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(images: Images, path: &Path) -> Result<Control> {
        let about: Arc<str> = path.display().to_string().into();
        let cannot = |error| Error::io(&about, error);
        path.parent().map_or(Ok(()), own_dir).map_err(cannot)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(cannot)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        let own = listener.try_clone().map_err(cannot)?;
        let inode = inode_of(path).ok_or_else(|| cannot(ErrorKind::NotFound.into()))?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let listen = move || {
            let mut running: Vec<JoinHandle<()>> = Vec::new();
            while let Ok((client, _)) = listener.accept() {
                if seen.load(Ordering::Acquire) {
                    break;
                }
                if !is_ours(&client) {
                    continue;
                }
                // Others wait until one of these has ended.
                while {
                    running.retain(|request| !request.is_finished());
                    running.len() >= AT_ONCE && !seen.load(Ordering::Acquire)
                } {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let (images, over) = (images.clone(), seen.clone());
                let answered = std::thread::Builder::new().name("imbrex-control".into()).spawn(move || {
                    if let Err(error) = answer(&images, client, over) {
                        tracing::debug!(%error, "a client of the control socket went away");
                    }
                });
                running.extend(answered.ok());
            }
            for request in running {
                if request.join().is_err() {
                    tracing::error!("a bug in imbrex was caught in a request; please report it");
                }
            }
        };
        let thread = std::thread::Builder::new().name("imbrex-control".into()).spawn(listen).map_err(cannot)?;
        Ok(Control { path: path.to_owned(), inode, over, listener: own, thread: Some(thread) })
    }
}

/// The other end is this user's, or root's.
fn is_ours(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|other| other.uid == me || other.uid.is_root())
}

fn frame(to: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&[kind])?;
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(bytes)
}

/// What is written becomes frames, until the server is to end.
struct Frames<W>(W, Arc<AtomicBool>);

impl<W: Write> Write for Frames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.load(Ordering::Acquire) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the server ends"));
        }
        let len = bytes.len().min(FRAME);
        frame(&mut self.0, b'd', &bytes[..len]).map(|()| len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What frames of a client give, until their end. He may take his time for them, as whoever gives him the bytes does.
struct Given<R> {
    from: R,
    /// Of the frame that is being read.
    left: usize,
    ended: bool,
    over: Arc<AtomicBool>,
}

impl<R: Read> Given<R> {
    /// Some bytes of the connection.
    fn some(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.from.read(to) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                read => return read,
            }
            if self.over.load(Ordering::Acquire) {
                return Err(io::Error::new(ErrorKind::ConnectionAborted, "the server ends"));
            }
        }
    }

    fn next_frame(&mut self) -> io::Result<()> {
        let (mut head, mut there) = ([0; 5], 0);
        while there < head.len() {
            there += self.some(&mut head[there..])?;
        }
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        match (head[0], len) {
            (b'd', 1..=FRAME) => self.left = len,
            (b'.', 0) => self.ended = true,
            _ => return Err(ErrorKind::InvalidData.into()),
        }
        Ok(())
    }
}

impl<R: Read> Read for Given<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        if self.left == 0 && !self.ended {
            self.next_frame()?;
        }
        if self.ended {
            return Ok(0);
        }
        let most = self.left.min(to.len());
        let read = self.some(&mut to[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// Sends what a request takes. False: the server has stopped to listen, and says why.
fn send(input: &mut dyn Read, mut to: impl Write) -> io::Result<bool> {
    let mut bytes = vec![0; FRAME];
    loop {
        let len = match input.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let sent = match len {
            0 => frame(&mut to, b'.', &[]).and_then(|()| to.flush()),
            _ => frame(&mut to, b'd', &bytes[..len]),
        };
        if sent.is_err() || len == 0 {
            return Ok(sent.is_ok());
        }
    }
}

fn tell(to: &mut impl Write, error: &Error) -> io::Result<()> {
    let told = Told { code: error.code() as i32, sentence: error.to_string() };
    frame(to, b'e', &serde_json::to_vec(&told)?)
}

fn answer(images: &Images, client: UnixStream, over: Arc<AtomicBool>) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let (mut line, mut from) = (String::new(), BufReader::new(&client));
    (&mut from).take(LONGEST).read_line(&mut line)?;
    client.set_read_timeout(Some(LOOK))?;
    let mut input = Given { from, left: 0, ended: false, over: over.clone() };
    let mut to = Frames(io::BufWriter::new(&client), over);
    let done = match serde_json::from_str::<Request>(&line) {
        Ok(request) => images.perform(&request, &mut input, &mut to),
        Err(error) => Err(Error::refused(
            Code::InvalidArgument,
            "",
            format!("no request: {error}; use the same version of imbrex"),
        )),
    };
    match done {
        Ok(()) => frame(&mut to.0, b'.', &[])?,
        Err(error) => tell(&mut to.0, &error)?,
    }
    to.0.flush()
}

/// Whoever serves the images of a drive.
pub struct Server(UnixStream);

impl Server {
    /// `None`: nobody serves them.
    ///
    /// # Errors
    /// Somebody else than this user or root answers.
    pub fn at(path: &Path) -> Result<Option<Server>> {
        let Ok(stream) = UnixStream::connect(path) else { return Ok(None) };
        if !is_ours(&stream) {
            let sentence = "another user answers there; remove it if no server of yours is running";
            return Err(Error::refused(Code::Busy, &path.display().to_string(), sentence));
        }
        Ok(Some(Server(stream)))
    }

    /// Has the server do what is asked for.
    ///
    /// # Errors
    /// Those of [`Images::perform`], there.
    pub fn perform(self, request: &Request, input: &mut dyn Read, out: &mut dyn Write) -> Result<()> {
        let about: Arc<str> = "the server of the images".into();
        let lost = |error| Error::io(&about, error);
        let mut line = serde_json::to_vec(request).map_err(|error| lost(error.into()))?;
        line.push(b'\n');
        (&self.0).write_all(&line).map_err(lost)?;
        if request.takes_input() {
            send(input, &self.0).map_err(|error| Error::io(&"the input".into(), error))?;
        }
        let mut from = BufReader::new(&self.0);
        loop {
            let mut head = [0; 5];
            from.read_exact(&mut head).map_err(lost)?;
            let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if len > FRAME {
                return Err(lost(ErrorKind::InvalidData.into()));
            }
            let mut bytes = vec![0; len];
            from.read_exact(&mut bytes).map_err(lost)?;
            match head[0] {
                b'd' => out.write_all(&bytes).map_err(|error| Error::io(&"the output".into(), error))?,
                b'.' => return Ok(()),
                b'e' => {
                    let told: Told = serde_json::from_slice(&bytes).map_err(|error| lost(error.into()))?;
                    return Err(of_code(told));
                }
                _ => return Err(lost(ErrorKind::InvalidData.into())),
            }
        }
    }
}

/// The error as the server had it, as far as its number says.
fn of_code(told: Told) -> Error {
    let all = [
        Code::NotFound,
        Code::Exists,
        Code::NotEmpty,
        Code::NameTooLong,
        Code::InvalidArgument,
        Code::NoSpace,
        Code::Corruption,
        Code::Busy,
        Code::ReadOnly,
        Code::Poisoned,
        Code::Range,
    ];
    let code = all.into_iter().find(|code| *code as i32 == told.code).unwrap_or(Code::Io);
    Error::refused(code, "", told.sentence)
}
