//! An image's files together: a drive of more than 8 TiB has parts beside its first file, and any may have its clock and its trace.

use super::{
    check_lengths, host_error, lock, name_of, open_main, open_sibling, read_header, sibling, suffixed, time_path,
    trace_path, unusable,
};
use imbrex_device::{Error, Result};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, SeekFrom, copy_file_range, linkat, open, renameat_with, seek,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a link fails with where there are none.
const NO_LINKS: [Errno; 3] = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS];

/// Parts of an image at `path` that stand there, whether or not its first file does. A file that only has such a name is none.
pub(super) fn parts_beside(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory(path)).into_iter().flatten().flatten();
    let prefix = [path.file_name().unwrap_or_default().as_encoded_bytes(), b"."].concat();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        std::str::from_utf8(name.as_encoded_bytes().strip_prefix(prefix.as_slice())?).ok()?.parse::<u32>().ok()
    };
    let mut numbers: Vec<u32> = entries.filter_map(number).filter(|number| is_part(path, *number)).collect();
    numbers.sort_unstable();
    // `01` is part 1, too.
    numbers.dedup();
    numbers.into_iter().map(|number| sibling(path, number)).collect()
}

fn is_part(path: &Path, number: u32) -> bool {
    let part = sibling(path, number);
    // Not a device or a pipe, which may not come back.
    number > 0
        && fs::symlink_metadata(&part).is_ok_and(|meta| meta.is_file())
        && File::open(&part).is_ok_and(|file| read_header(&part, &file).is_ok_and(|header| header.index == number))
}

/// Why an image of so many files cannot be made at `path`; what stands at `path` itself is not looked at.
pub(super) fn check_room(path: &Path, files: u32) -> Result<()> {
    if let Some(part) = parts_beside(path).first() {
        return unusable(
            part,
            format!(
                "this part of an earlier drive image is in the way; name another path, or remove what is left of that drive with \
                 `imbrex drive rm {}`",
                path.display()
            ),
        );
    }
    (1..files).try_for_each(|number| foreign(path, number))
}

/// Refuses a file in the place of a part that is no part.
pub(super) fn foreign(path: &Path, number: u32) -> Result<()> {
    let part = sibling(path, number);
    if fs::symlink_metadata(&part).is_err() || is_part(path, number) {
        return Ok(());
    }
    let image = path.display();
    unusable(
        &part,
        format!(
            "this file is in the way: part {number} of {image} goes there; name another path, or move the file away"
        ),
    )
}

/// What to do where a part is left of an image without its first file.
pub(super) fn first_is_gone(path: &Path, part: &Path) -> String {
    format!(
        "there is no such file, but {}, a part of such a drive; put the first file back, or, if a command was ended while it made, moved or \
         removed the drive, remove what is left with `imbrex drive rm {}`",
        part.display(),
        path.display()
    )
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refused(path: &Path, error: lock::Refused) -> Error {
    match error {
        lock::Refused::Busy(by) => Error::busy(&name_of(path), by),
        lock::Refused::Io(error) => Error::io(&name_of(path), error),
    }
}

/// Locks an image that is whole; returns the lock and the names of its files, in order.
fn hold(path: &Path, shared: bool) -> Result<(lock::Lock, Vec<PathBuf>)> {
    let (main, meta) = open_main(path, !shared)?;
    let held = lock::take(&main, &meta, shared).map_err(|error| refused(path, error))?;
    let header = read_header(path, &main)?;
    let mut files = vec![main];
    for index in 1..header.files {
        files.push(open_sibling(path, index, &header, false)?);
    }
    check_lengths(path, &header, &files)?;
    Ok((held, (0..header.files).map(|index| sibling(path, index)).collect()))
}

/// Removes an image with all that belongs to it, or the parts that one without a first file left; returns their names.
/// Refused while a process has it.
pub fn remove_image(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let held = match open_main(path, true) {
        // The first file of it is gone already.
        Err(_) if fs::symlink_metadata(path).is_err() && !parts_beside(path).is_empty() => None,
        Err(error) => return Err(error),
        Ok((main, meta)) => {
            let held = lock::take(&main, &meta, false).map_err(|error| refused(path, error))?;
            read_header(path, &main)?;
            // Without it the rest is no drive any more.
            files.push(path.to_owned());
            Some(held)
        }
    };
    files.extend(parts_beside(path));
    files.extend([time_path(path), trace_path(path)].into_iter().filter(|file| file.is_file()));
    for file in &files {
        fs::remove_file(file).map_err(|error| host_error(file, "remove", error))?;
    }
    drop(held);
    Ok(files)
}

/// Gives an image another name on the same file system, with all that belongs to it; returns the new names. Whatever ends it in the
/// middle, the drive is whole under one name or under both.
pub fn rename_image(from: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    let (held, files) = hold(from, false)?;
    check_free(from, to, files.len())?;
    let mut steps = pairs(from, to, &files);
    steps.reverse();
    let mut made = Made::default();
    for (old, new) in &steps {
        fs::hard_link(old, new).map_err(|error| match error.kind() {
            ErrorKind::CrossesDevices => Error::unusable(
                &name_of(to),
                format!(
                    "this is on another file system; run `imbrex drive cp {} {}`, then remove the old one",
                    from.display(),
                    to.display()
                ),
            ),
            _ => host_error(new, "make", error),
        })?;
        made.push(new);
    }
    let new = made.keep();
    // The first file goes first: then the rest is no drive.
    for (old, _) in steps.iter().rev() {
        fs::remove_file(old).map_err(|error| host_error(old, "remove", error))?;
    }
    drop(held);
    Ok(new)
}

/// Copies an image that nobody writes to, with its clock and without its trace; holes stay holes. Returns the new names. They appear when
/// all bytes are there and durable, the first file last: whatever ends it in the middle leaves no drive.
pub fn copy_image(from: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    let (held, files) = hold(from, true)?;
    check_free(from, to, files.len())?;
    let mut whole = Vec::new();
    for (old, new) in pairs(from, to, &files).into_iter().filter(|(old, _)| *old != trace_path(from)) {
        let source = File::open(&old).map_err(|error| host_error(&old, "read", error))?;
        let copy = Unnamed::beside(&new)?;
        copy_sparse(&source, copy.file()).map_err(|error| host_error(&new, "write", error))?;
        whole.push((copy, new));
    }
    let mut made = Made::default();
    for (copy, new) in whole.iter().rev() {
        copy.name(new, &mut made)?;
    }
    let _ = File::open(directory(to)).and_then(|directory| directory.sync_all());
    drop(held);
    Ok(made.keep())
}

/// Names that go again unless they are kept.
#[derive(Default)]
pub(super) struct Made(Vec<PathBuf>);

impl Made {
    pub(super) fn push(&mut self, path: &Path) {
        self.0.push(path.to_owned());
    }

    pub(super) fn keep(mut self) -> Vec<PathBuf> {
        let mut all = std::mem::take(&mut self.0);
        all.reverse();
        all
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(|file| drop(fs::remove_file(file)));
    }
}

/// Every file of an image with its name elsewhere, the first file first.
fn pairs(from: &Path, to: &Path, files: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let parts = files.iter().enumerate().map(|(index, file)| (file.clone(), sibling(to, index as u32)));
    let more = [(time_path(from), time_path(to)), (trace_path(from), trace_path(to))];
    parts.chain(more.into_iter().filter(|(file, _)| file.is_file())).collect()
}

fn check_free(from: &Path, to: &Path, files: usize) -> Result<()> {
    check_other(from, to)?;
    check_room(to, files as u32)?;
    for file in [to.to_owned(), time_path(to), trace_path(to)] {
        if fs::symlink_metadata(&file).is_ok() {
            return unusable(&file, "this exists; name another path, or move it away");
        }
    }
    Ok(())
}

/// Refuses to make an image of itself, or of another name of it.
fn check_other(from: &Path, to: &Path) -> Result<()> {
    let (Ok(old), Ok(new)) = (fs::symlink_metadata(from), fs::symlink_metadata(to)) else { return Ok(()) };
    if (old.dev(), old.ino()) != (new.dev(), new.ino()) {
        return Ok(());
    }
    let entry =
        |path: &Path| fs::canonicalize(directory(path)).ok().map(|dir| dir.join(path.file_name().unwrap_or_default()));
    // A file with one name may be reached in two ways.
    if old.nlink() == 1 || entry(from) == entry(to) {
        return unusable(to, "this is the drive itself; name another path");
    }
    unusable(
        to,
        format!(
            "this is {} under another name, as a move leaves it that is ended in the middle; `imbrex drive rm` of one name keeps the other",
            from.display()
        ),
    )
}

/// A file without a name, which nothing is left of when its process is killed; or where the file system has no such files, with one that goes again.
pub(super) struct Unnamed {
    file: File,
    temporary: Option<PathBuf>,
}

impl Unnamed {
    /// In the directory of `path`.
    pub(super) fn beside(path: &Path) -> Result<Unnamed> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match open(directory(path), flags, Mode::from_raw_mode(0o666)) {
            Ok(file) if Path::new("/proc/self/fd").exists() => Ok(Unnamed { file: file.into(), temporary: None }),
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Self::unfinished(path),
            Err(error) => Err(host_error(path, "create", error.into())),
        }
    }

    /// With a name that says what it is. One that another process left stays.
    fn unfinished(path: &Path) -> Result<Unnamed> {
        let name = suffixed(path, "unfinished");
        match File::options().read(true).write(true).create_new(true).open(&name) {
            Ok(file) => Ok(Unnamed { file, temporary: Some(name) }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => unusable(
                &name,
                "this is a part of a drive that another command is making, or was when it was ended; wait for that command, or remove this file",
            ),
            Err(error) => Err(host_error(path, "create", error)),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, which nothing has.
    pub(super) fn name(&self, path: &Path, made: &mut Made) -> Result<()> {
        let done = match &self.temporary {
            Some(temporary) => fs::hard_link(temporary, path).or_else(|error| match error.raw_os_error() {
                // A file system on which a file has one name.
                Some(number) if NO_LINKS.contains(&Errno::from_raw_os_error(number)) => {
                    renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE).map_err(io::Error::from)
                }
                _ => Err(error),
            }),
            None => {
                let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, file, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
            }
        };
        done.map_err(|error| host_error(path, "make", error))?;
        made.push(path);
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        self.temporary.iter().for_each(|name| drop(fs::remove_file(name)));
    }
}

/// Copies what stands between holes, and makes it durable.
fn copy_sparse(from: &File, to: &File) -> io::Result<()> {
    let meta = from.metadata()?;
    to.set_len(meta.len())?;
    to.set_permissions(meta.permissions())?;
    let mut at = 0;
    loop {
        at = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(from, SeekFrom::Hole(at))?;
        copy_range(from, to, at, end)?;
        at = end;
    }
    to.sync_all()
}

fn copy_range(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    let mut buffer = Vec::new();
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 30);
        let (mut read, mut written) = (at, at);
        // The file system may share the bytes instead.
        at += match copy_file_range(from, Some(&mut read), to, Some(&mut written), len) {
            Ok(n) if n > 0 => n as u64,
            Ok(_) | Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                buffer.resize(len.min(1 << 20), 0);
                from.read_exact_at(&mut buffer, at)?;
                to.write_all_at(&buffer, at)?;
                buffer.len() as u64
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_file_is_without_a_name_an_unfinished_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.img");
        let entries = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let file = Unnamed::unfinished(&path).unwrap();
        assert_eq!(entries(), ["x.img.unfinished"]);
        let why = Unnamed::unfinished(&path).err().unwrap().to_string();
        assert!(why.contains("x.img.unfinished") && why.contains("remove this file"), "{why}");
        let mut made = Made::default();
        file.name(&path, &mut made).unwrap();
        made.keep();
        drop(file);
        assert_eq!(entries(), ["x.img"]);
        drop(Unnamed::unfinished(&path).unwrap());
        assert_eq!(entries(), ["x.img"]);
    }
}
