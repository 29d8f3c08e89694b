//! `imbrex fs mount`: the files of a drive as a read-only directory of the host, by FUSE, for `ls`, `find` and `cp`.
//!
//! The drive is mounted for a look, so nothing on it changes while the directory is there, and the tree of names is read once.
//! The directory goes away with Ctrl-C, with SIGTERM, when the command ends for any reason that lets it, and by `umount`.

use super::{FuseArgs, join};
use crate::mountpoint;
use crate::output::{Failure, Outcome, number_of, print};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, Request,
};
use imbrex_bluefs::{Attributes, BlueFs, FileKind, Reader};
use imbrex_device::words::not_permitted;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel may believe what it was told: nothing changes.
const TTL: Duration = Duration::from_secs(3600);

struct Node {
    path: String,
    attributes: Attributes,
    parent: u64,
    /// Of a directory, by name.
    children: BTreeMap<String, u64>,
}

struct View {
    fs: BlueFs,
    /// By number, from 1, which is the root.
    nodes: Vec<Node>,
    open: Mutex<HashMap<u64, Arc<Reader>>>,
    next: AtomicU64,
    uid: u32,
    gid: u32,
}

impl View {
    fn new(fs: BlueFs) -> Result<View, Failure> {
        let root = Node { path: "/".into(), attributes: fs.stat("/")?, parent: 1, children: BTreeMap::new() };
        let mut nodes = vec![root];
        let mut by_serial = HashMap::new();
        let mut here = 0;
        while let Some(node) = nodes.get(here) {
            let number = here as u64 + 1;
            if node.attributes.kind == FileKind::Directory {
                let path = node.path.clone();
                for entry in fs.list(&path)? {
                    let new = nodes.len() as u64 + 1;
                    // A file with several names is one file.
                    let child = *by_serial.entry(entry.attributes.serial).or_insert(new);
                    if child == new {
                        let path = join(&path, &entry.name);
                        let children = BTreeMap::new();
                        nodes.push(Node { path, attributes: entry.attributes, parent: number, children });
                    }
                    if let Some(node) = nodes.get_mut(here) {
                        node.children.insert(entry.name, child);
                    }
                }
            }
            here += 1;
        }
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Ok(View { fs, nodes, open: Mutex::default(), next: AtomicU64::new(1), uid, gid })
    }

    fn node(&self, ino: INodeNo) -> Option<&Node> {
        usize::try_from(u64::from(ino).checked_sub(1)?).ok().and_then(|n| self.nodes.get(n))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Reader>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, ino: u64, node: &Node) -> FileAttr {
        let a = &node.attributes;
        let directory = a.kind == FileKind::Directory;
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(a.modified);
        FileAttr {
            ino: INodeNo(ino),
            size: a.size,
            blocks: a.allocated / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o555 } else { 0o444 },
            nlink: if directory { 2 } else { a.links },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 1 << 20,
            flags: 0,
        }
    }
}

impl Filesystem for View {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let child = self.node(parent).zip(name.to_str()).and_then(|(node, name)| node.children.get(name));
        match child.and_then(|ino| Some((*ino, self.node(INodeNo(*ino))?))) {
            Some((ino, node)) => reply.entry(&TTL, &self.attributes(ino, node), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Some(node) => reply.attr(&TTL, &self.attributes(ino.into(), node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let Some(node) = self.node(ino) else { return reply.error(Errno::ENOENT) };
        match self.fs.open_read(&node.path) {
            Ok(reader) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                self.open().insert(handle, Arc::new(reader));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => {
                tracing::warn!(%error, "a file cannot be opened");
                reply.error(Errno::EIO);
            }
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let reader = self.open().get(&fh.into()).cloned();
        let Some(reader) = reader else { return reply.error(Errno::EBADF) };
        let mut buf = vec![0; size as usize];
        match reader.read_at(offset, &mut buf) {
            Ok(n) => reply.data(buf.get(..n).unwrap_or_default()),
            Err(error) => {
                tracing::warn!(%error, "a file cannot be read");
                reply.error(Errno::EIO);
            }
        }
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.open().remove(&fh.into());
        reply.ok();
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(node) = self.node(ino) else { return reply.error(Errno::ENOENT) };
        let own = [(".", u64::from(ino)), ("..", node.parent)];
        let children = node.children.iter().map(|(name, child)| (name.as_str(), *child));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (i, (name, child)) in own.into_iter().chain(children).enumerate().skip(from) {
            let kind = match self.node(INodeNo(child)).map(|node| node.attributes.kind) {
                Some(FileKind::Directory) => FileType::Directory,
                _ => FileType::RegularFile,
            };
            if reply.add(INodeNo(child), i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (space, files) = (self.fs.space(), self.nodes.len() as u64);
        let blocks = |bytes: u64| bytes / 4096;
        reply.statfs(blocks(space.total), blocks(space.free), blocks(space.free), files, 0, 4096, 255, 4096);
    }
}

fn refused(args: &FuseArgs, error: &std::io::Error) -> Failure {
    let next = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "load the kernel's fuse module, install fuse3, and give a directory that is there"
        }
        std::io::ErrorKind::PermissionDenied => {
            not_permitted("run it as root, or install fuse3 so that users may mount")
        }
        _ => "give an empty directory, and as a user install fuse3; `imbrex fs cp` needs neither",
    };
    Failure::failed(format!("{} cannot be mounted at {} ({error}); {next}", args.mount.drive, args.dir))
}

pub(super) fn mount(args: FuseArgs) -> Outcome {
    let claim = mountpoint::claim(Path::new(&args.dir))?;
    let view = View::new(args.mount.look()?)?;
    let files = view.nodes.len();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::FSName(args.mount.drive.clone()),
        MountOption::Subtype("imbrex".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| Failure::failed(format!("signals cannot be caught ({e}); nothing is mounted")))?;
    }
    let session: BackgroundSession = fuser::spawn_mount(view, &claim.dir, &config).map_err(|e| refused(&args, &e))?;
    let names = number_of(files as u64, "name");
    print(format_args!("{}: {names} at {}; Ctrl-C unmounts", args.mount.drive, args.dir))?;
    // Somebody else may unmount it, too; then the session is over.
    while !stop.load(Ordering::Relaxed) && !session.guard.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
    }
    if session.guard.is_finished() {
        return session.join().map_err(|e| Failure::failed(format!("the mount at {} ended ({e})", args.dir)));
    }
    session.umount_and_join().map_err(|e| {
        Failure::busy(format!("{} is still in use ({e}); leave it, then run `umount {}`", args.dir, args.dir))
    })
}
