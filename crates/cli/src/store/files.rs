//! Objects as files of a directory: their names are escaped, no file is replaced, and none is outside of the directory.

use super::transfer::is_plain;
use crate::output::hexadecimal;
use imbrex_device::{Code, Error, Result};
use imbrex_store::{CollectionId, Head, ObjectId, Pair, Taker};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest name of a file, without what is added to it.
const NAME: usize = 200;
/// Files of one name at most, by numbers behind it.
const MOST: u32 = 100_000;
/// Says what each file is.
const LIST: &str = "objects.jsonl";

/// See the module.
pub(super) struct Files {
    to: PathBuf,
    list: BufWriter<File>,
    under: Option<Under>,
}

struct Under {
    head: Head,
    name: String,
    file: File,
    omap: Option<BufWriter<File>>,
    pairs: u64,
    omap_header: Option<String>,
    doubts: Vec<String>,
}

/// Letters, digits and a few signs stay; any other byte is a percent sign and two digits. A name that is too long is cut.
fn escaped(bytes: &[u8], most: usize) -> String {
    let mut out = String::new();
    for (n, byte) in bytes.iter().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"_-".contains(byte) || *byte == b'.' && n > 0;
        if plain {
            out.push((*byte).into())
        } else {
            out.push_str(&format!("%{}", hexadecimal(&[*byte])))
        }
        if out.len() > most {
            out.truncate(most);
            out.push('~');
            break;
        }
    }
    out
}

/// What the file of an object is called, unless there is one already.
fn name_of(id: &ObjectId) -> String {
    if is_plain(id) && !id.name.is_empty() && ObjectId::new(id.pool, b"", &id.name).hash == id.hash {
        return escaped(&id.name, NAME);
    }
    let (namespace, name) = (escaped(&id.namespace, NAME / 3), escaped(&id.name, NAME / 3));
    format!("{}_{:08x}_{namespace}_{name}_{:x}_{:x}", id.pool, id.hash, id.snap, id.generation)
}

fn host(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |error| Error::refused(Code::Io, &path.display().to_string(), error.to_string())
}

impl Files {
    /// Into a directory, which is made; one that is there must be empty but for `beside`.
    pub fn new(to: &Path, beside: &str) -> Result<Files> {
        match fs::create_dir(to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(host(to))?,
        }
        for entry in fs::read_dir(to).map_err(host(to))? {
            if entry.map_err(host(to))?.file_name() != beside {
                let sentence = "is not an empty directory; give a new one";
                return Err(Error::refused(Code::NotEmpty, &to.display().to_string(), sentence));
            }
        }
        let list = to.join(LIST);
        let file = File::create_new(&list).map_err(host(&list))?;
        Ok(Files { to: to.to_owned(), list: BufWriter::new(file), under: None })
    }

    /// Nothing came: the directory is as it was.
    pub fn discard(self) {
        let _ = fs::remove_file(self.to.join(LIST));
        let _ = fs::remove_dir(&self.to);
    }

    /// All came.
    pub fn finish(mut self) -> Result<()> {
        self.again()?;
        self.list.flush().map_err(host(&self.to))
    }

    /// A file that was not there.
    fn create(&self, name: &str, behind: &str) -> Result<(String, File)> {
        for n in 0..MOST {
            let name = if n == 0 { format!("{name}{behind}") } else { format!("{name}~{n}{behind}") };
            let path = self.to.join(&name);
            match File::options().read(true).write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|file| (name, file)).map_err(host(&path)),
            }
        }
        Err(Error::refused(Code::Exists, name, "too many objects have this name; give another directory"))
    }

    fn under(&mut self) -> Result<&mut Under> {
        self.under.as_mut().ok_or_else(|| Error::refused(Code::InvalidArgument, "", "no object is under way"))
    }
}

impl Taker for Files {
    fn collection(&mut self, _: CollectionId, _: u8) -> Result<()> {
        Ok(())
    }

    fn begin(&mut self, head: &Head) -> Result<()> {
        let (name, file) = self.create(&name_of(&head.id), "")?;
        let head = head.clone();
        self.under = Some(Under { head, name, file, omap: None, pairs: 0, omap_header: None, doubts: Vec::new() });
        Ok(())
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let to = self.to.clone();
        self.under()?.file.write_all_at(bytes, at).map_err(host(&to))
    }

    fn omap_header(&mut self, header: &[u8]) -> Result<()> {
        self.under()?.omap_header = Some(hexadecimal(header));
        Ok(())
    }

    fn omap(&mut self, pairs: Vec<Pair>) -> Result<()> {
        let to = self.to.clone();
        if self.under()?.omap.is_none() {
            let (_, file) =
                self.create(&self.under.as_ref().map_or(String::new(), |under| under.name.clone()), ".omap")?;
            self.under()?.omap = Some(BufWriter::new(file));
        }
        let under = self.under()?;
        under.pairs += pairs.len() as u64;
        for (key, value) in pairs {
            let Some(out) = &mut under.omap else { break };
            let line = json!({ "key": hexadecimal(&key), "value": hexadecimal(&value) });
            writeln!(out, "{line}").map_err(host(&to))?;
        }
        Ok(())
    }

    fn doubt(&mut self, sentence: &str) -> Result<()> {
        self.under()?.doubts.push(sentence.to_owned());
        Ok(())
    }

    fn again(&mut self) -> Result<()> {
        if let Some(under) = self.under.take() {
            let path = self.to.join(under.name);
            fs::remove_file(&path).map_err(host(&path))?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(Under { head, name, file, omap, pairs, omap_header, doubts }) = self.under.take() else {
            return Ok(());
        };
        let path = self.to.join(&name);
        file.set_len(head.size).map_err(host(&path))?;
        if let Some(mut omap) = omap {
            omap.flush().map_err(host(&path))?;
        }
        let Head { id, size, attributes, .. } = head;
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(name, value)| json!({ "name": hexadecimal(name), "value": hexadecimal(value) }))
            .collect();
        let line = json!({
            "file": name, "pool": id.pool, "hash": id.hash, "namespace": hexadecimal(&id.namespace), "name": hexadecimal(&id.name),
            "text": String::from_utf8_lossy(&id.name), "snap": id.snap, "generation": id.generation, "bytes": size,
            "attributes": attributes, "omap_header": omap_header, "omap_pairs": pairs, "doubts": doubts,
        });
        writeln!(self.list, "{line}").map_err(host(&self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn head(pool: i64, namespace: &[u8], name: &[u8]) -> Head {
        let (size, hint, attributes) = (3, imbrex_store::Hint::default(), BTreeMap::new());
        Head { id: ObjectId::new(pool, namespace, name), size, hint, attributes }
    }

    #[test]
    fn no_name_leaves_the_directory_or_replaces_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let mut files = Files::new(&to, "").unwrap();
        let names: [&[u8]; 12] = [
            b"plain-1.txt",
            b"..",
            b".",
            b"/etc/passwd",
            b"../../x",
            b"a/b",
            b"objects.jsonl",
            b"\0",
            b"a\nb",
            b"",
            &[b'x'; 4096],
            "ä".as_bytes(),
        ];
        for name in names.into_iter().chain([&b"plain-1.txt"[..]]) {
            files.begin(&head(0, b"", name)).unwrap();
            files.bytes(0, b"abc").unwrap();
            files.end().unwrap();
        }
        files.begin(&head(3, b"../n", b"../n")).unwrap();
        files.omap(vec![(b"k".to_vec(), b"v".to_vec())]).unwrap();
        files.end().unwrap();
        files.begin(&head(0, b"", b"void")).unwrap();
        files.finish().unwrap();
        let found: BTreeSet<String> =
            fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // Each has a file, the list aside, and one has an omap.
        assert_eq!(found.len(), 14 + 2, "{found:?}");
        for name in [
            "plain-1.txt",
            "plain-1.txt~1",
            "%2e.",
            "%2e",
            "%2fetc%2fpasswd",
            "objects.jsonl~1",
            "%00",
            "a%0ab",
            "%c3%a4",
        ] {
            assert_eq!(fs::read(to.join(name)).unwrap(), b"abc", "{name} of {found:?}");
        }
        assert!(found.iter().all(|name| name.len() < 255 && !name.starts_with('.')));
        assert_eq!(fs::read_to_string(to.join(LIST)).unwrap().lines().count(), 14);
        assert!(Files::new(&to, "").is_err(), "it is not empty");
    }
}
