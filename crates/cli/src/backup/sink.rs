//! Where a backup goes. What is not complete has another name, or no list, and is taken away where that is possible.

use super::{BEGIN, FILES, LIST};
use crate::output::{Failure, Outcome};
use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Builder, EntryType, Header};

/// What a sink is told of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// Below `files`, without a slash in front.
    pub path: &'a str,
    pub size: u64,
    pub modified_ns: u64,
}

/// Where a backup to this name goes: a tar stream for `-`, a name that ends in `.tar`, and what is neither file nor directory; else a
/// directory.
pub(crate) fn sink(to: &str) -> Result<Box<dyn Sink>, Failure> {
    let special = fs::metadata(to).is_ok_and(|meta| !meta.is_dir() && !meta.is_file());
    match to == "-" || to.ends_with(".tar") || special {
        true => Ok(Box::new(TarSink::new(to)?)),
        false => Ok(Box::new(DirSink::new(Path::new(to))?)),
    }
}

/// Takes a backup, in the order of the calls.
pub(crate) trait Sink {
    /// What is to come.
    fn begin(&mut self, json: &[u8]) -> Outcome;
    fn directory(&mut self, item: Item<'_>) -> Outcome;
    fn file(&mut self, item: Item<'_>, contents: &mut dyn Read) -> Outcome;
    fn link(&mut self, item: Item<'_>, to: &str) -> Outcome;
    /// The list, which is last.
    fn list(&mut self, json: &[u8]) -> Outcome;
    /// Makes it durable and gives it its name.
    fn complete(&mut self) -> Outcome;
    /// Whether it can be taken away before it is complete.
    fn can_be_discarded(&self) -> bool;
    /// Takes away what is there of it.
    fn discard(&mut self);
}

fn failed(to: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Failure::failed("who read the backup went away; it is not complete, make it again")
        }
        _ => Failure::failed(format!(
            "writing the backup to {} failed ({error}), and what was there of it is not kept; make room or choose another place",
            to.display()
        )),
    }
}

fn taken(to: &Path) -> Failure {
    Failure::failed(format!("{} is there already; choose another name, or remove it first", to.display()))
}

/// The name of what is not complete.
fn part_of(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// A tree in a directory.
struct DirSink {
    to: PathBuf,
    part: PathBuf,
    /// Times are set last: every entry changes its directory's.
    times: Vec<(PathBuf, u64)>,
}

impl DirSink {
    fn new(to: &Path) -> Result<DirSink, Failure> {
        let to = std::path::absolute(to).map_err(failed(to))?;
        match fs::read_dir(&to).map(|mut names| names.next().is_some()) {
            Ok(false) => {}
            Ok(true) => return Err(taken(&to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&to)(error)),
        }
        let part = part_of(&to);
        fs::create_dir(&part).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(&part),
            _ => failed(&part)(error),
        })?;
        let sink = DirSink { to, part, times: Vec::new() };
        fs::create_dir(sink.part.join(FILES)).map_err(failed(&sink.to))?;
        Ok(sink)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.part.join(FILES).join(path)
    }
}

impl Sink for DirSink {
    fn begin(&mut self, _json: &[u8]) -> Outcome {
        Ok(())
    }
    fn directory(&mut self, item: Item<'_>) -> Outcome {
        let path = self.path(item.path);
        fs::create_dir(&path).map_err(failed(&self.to))?;
        self.times.push((path, item.modified_ns));
        Ok(())
    }
    fn file(&mut self, item: Item<'_>, contents: &mut dyn Read) -> Outcome {
        let path = self.path(item.path);
        let mut file = File::create_new(&path).map_err(failed(&self.to))?;
        copy(contents, &mut file).map_err(failed(&self.to))?;
        self.times.push((path, item.modified_ns));
        Ok(())
    }
    fn link(&mut self, item: Item<'_>, to: &str) -> Outcome {
        let original = self.path(to);
        fs::hard_link(original, self.path(item.path)).map_err(failed(&self.to))
    }
    fn list(&mut self, json: &[u8]) -> Outcome {
        for (path, modified_ns) in self.times.iter().rev() {
            let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(*modified_ns);
            let set = File::open(path).and_then(|file| file.set_times(FileTimes::new().set_modified(time)));
            set.map_err(failed(&self.to))?;
        }
        fs::write(self.part.join(LIST), json).map_err(failed(&self.to))
    }
    fn complete(&mut self) -> Outcome {
        let durable = File::open(&self.part).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
        let named = durable.and_then(|()| fs::rename(&self.part, &self.to));
        if named.is_err() {
            self.discard();
        }
        named.map_err(failed(&self.to))
    }
    fn can_be_discarded(&self) -> bool {
        true
    }
    fn discard(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.part) {
            tracing::warn!(%error, "{} is not complete; remove it yourself", self.part.display());
        }
    }
}

/// Copies in large pieces: `io::copy` takes 8 KiB at a time.
fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut buf = vec![0; 1 << 20];
    loop {
        match from.read(&mut buf)? {
            0 => return Ok(()),
            n => to.write_all(&buf[..n])?,
        }
    }
}

/// A tar stream, in a file or to stdout.
struct TarSink {
    to: PathBuf,
    /// The file while it is not complete; `None`: it has its name already (stdout, pipes, devices).
    part: Option<PathBuf>,
    tar: Builder<Box<dyn Write>>,
}

impl TarSink {
    fn new(to: &str) -> Result<TarSink, Failure> {
        let path = PathBuf::from(to);
        let special = fs::metadata(&path).is_ok_and(|meta| !meta.is_file());
        let (part, out): (_, Box<dyn Write>) = if to == "-" {
            (None, Box::new(io::stdout()))
        } else if special {
            let file = File::options().write(true).open(&path).map_err(failed(&path))?;
            (None, Box::new(file))
        } else if path.exists() {
            return Err(taken(&path));
        } else {
            let part = part_of(&path);
            let file = File::create(&part).map_err(failed(&path))?;
            (Some(part), Box::new(file))
        };
        let tar = Builder::new(Box::new(io::BufWriter::with_capacity(1 << 20, out)) as Box<dyn Write>);
        Ok(TarSink { to: path, part, tar })
    }

    fn header(kind: EntryType, size: u64, modified_ns: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mtime(modified_ns / 1_000_000_000);
        header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
        header
    }

    fn add(&mut self, kind: EntryType, path: &str, size: u64, modified_ns: u64, contents: &mut dyn Read) -> Outcome {
        let mut header = Self::header(kind, size, modified_ns);
        self.tar.append_data(&mut header, path, contents).map_err(failed(&self.to))
    }
}

impl Sink for TarSink {
    fn begin(&mut self, json: &[u8]) -> Outcome {
        self.add(EntryType::Regular, BEGIN, json.len() as u64, 0, &mut &json[..])
    }
    fn directory(&mut self, item: Item<'_>) -> Outcome {
        let path = format!("{FILES}/{}/", item.path);
        self.add(EntryType::Directory, &path, 0, item.modified_ns, &mut io::empty())
    }
    fn file(&mut self, item: Item<'_>, contents: &mut dyn Read) -> Outcome {
        // The header has told the size: not a byte more, and zeros for bytes that are missing, which is a failure above.
        let mut exact = contents.chain(io::repeat(0)).take(item.size);
        let path = format!("{FILES}/{}", item.path);
        self.add(EntryType::Regular, &path, item.size, item.modified_ns, &mut exact)
    }
    fn link(&mut self, item: Item<'_>, to: &str) -> Outcome {
        let mut header = Self::header(EntryType::Link, 0, item.modified_ns);
        let original = format!("{FILES}/{to}");
        self.tar.append_link(&mut header, format!("{FILES}/{}", item.path), original).map_err(failed(&self.to))
    }
    fn list(&mut self, json: &[u8]) -> Outcome {
        self.add(EntryType::Regular, LIST, json.len() as u64, 0, &mut &json[..])
    }
    fn complete(&mut self) -> Outcome {
        let written = self.tar.finish().and_then(|()| self.tar.get_mut().flush());
        let named = written.and_then(|()| match &self.part {
            Some(part) => File::open(part)?.sync_all().and_then(|()| fs::rename(part, &self.to)),
            None => Ok(()),
        });
        if named.is_err() {
            self.discard();
        }
        named.map_err(failed(&self.to))
    }
    fn can_be_discarded(&self) -> bool {
        self.part.is_some()
    }
    fn discard(&mut self) {
        if let Some(part) = &self.part
            && let Err(error) = fs::remove_file(part)
        {
            tracing::warn!(%error, "{} is not complete; remove it yourself", part.display());
        }
    }
}
