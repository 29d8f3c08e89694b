//! Streams of changes, as somebody else has made them: the first version of the format of RBD's `export-diff`, which `diff` writes. Nothing of one is believed before it was looked at.
//!
//! In front stand the snapshots' names and the size, in any order and each once. Changes follow, in any order, and an end. Behind it nothing stands.

use crate::names::{MAX_IMAGE, MAX_IMAGE_NAME, check};
use imbrex_device::{Code, Error, Result};
use std::io::{ErrorKind, Read};
use std::sync::Arc;

/// The first line of a stream.
pub const DIFF_MAGIC: &[u8] = b"rbd diff v1\n";

/// What stands in front of the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    /// The snapshot since which it has changed; `None`: all that is not zeros is there.
    pub from: Option<String>,
    /// The snapshot that it is then; `None`: it was none.
    pub to: Option<String>,
    /// The image's size in bytes.
    pub size: u64,
}

/// A change. All of it is within the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// So many bytes from there on are those that [`Stream::bytes`] gives.
    Bytes { at: u64, len: u64 },
    /// So many are zeros.
    Zeros { at: u64, len: u64 },
}

/// A stream that is being read.
pub(crate) struct Stream<'a> {
    from: &'a mut dyn Read,
    /// What stood behind the front.
    next: Option<u8>,
    size: u64,
    about: Arc<str>,
}

impl Stream<'_> {
    /// Of this image's name, for errors.
    pub fn new<'a>(from: &'a mut dyn Read, name: &str) -> Result<(Stream<'a>, Front)> {
        let mut stream = Stream { from, next: None, size: 0, about: name.into() };
        let front = stream.front()?;
        stream.size = front.size;
        Ok((stream, front))
    }

    fn broken(&self, what: &str) -> Error {
        Error::refused(Code::Corruption, &self.about, format!("this is no stream of changes of an image: {what}"))
    }

    fn exact(&mut self, to: &mut [u8]) -> Result<()> {
        match self.from.read_exact(to) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.broken("it ends in the middle")),
            Err(error) => Err(Error::io(&self.about, error)),
            Ok(()) => Ok(()),
        }
    }

    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.exact(&mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn name(&mut self) -> Result<String> {
        let mut len = [0; 4];
        self.exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > MAX_IMAGE_NAME {
            return Err(self.broken("the name of a snapshot is too long"));
        }
        let mut name = vec![0; len];
        self.exact(&mut name)?;
        let name = String::from_utf8(name).map_err(|_| self.broken("the name of a snapshot is no text"))?;
        check(&name)?;
        Ok(name)
    }

    fn front(&mut self) -> Result<Front> {
        let mut magic = [0; DIFF_MAGIC.len()];
        self.exact(&mut magic)?;
        if magic != *DIFF_MAGIC {
            return Err(self.broken("its first line is not that of version 1 of `rbd export-diff`"));
        }
        let (mut front, mut size) = (Front::default(), None);
        loop {
            match self.byte()? {
                b'f' if front.from.is_none() => front.from = Some(self.name()?),
                b't' if front.to.is_none() => front.to = Some(self.name()?),
                b's' if size.is_none() => size = Some(self.number()?),
                b'f' | b't' | b's' => return Err(self.broken("something stands twice in front")),
                other => {
                    self.next = Some(other);
                    break;
                }
            }
        }
        front.size = size.ok_or_else(|| self.broken("the size of the image is not in front of the changes"))?;
        if front.size > MAX_IMAGE {
            return Err(self.broken("its image is larger than one can be"));
        }
        Ok(front)
    }

    /// The next change. `None`: it has ended, and nothing stands behind its end.
    pub fn record(&mut self) -> Result<Option<Record>> {
        let tag = match self.next.take() {
            Some(tag) => tag,
            None => self.byte()?,
        };
        match tag {
            b'e' => {
                let mut more = [0];
                // Else another stream might be lost.
                match self.from.read(&mut more) {
                    Ok(0) => Ok(None),
                    Ok(_) => Err(self.broken("something stands behind its end")),
                    Err(error) => Err(Error::io(&self.about, error)),
                }
            }
            b'w' | b'z' => {
                let (at, len) = (self.number()?, self.number()?);
                if at.checked_add(len).is_none_or(|end| end > self.size) {
                    return Err(self.broken(&format!("{len} bytes from {at} on are not in an image of {}", self.size)));
                }
                Ok(Some(if tag == b'w' { Record::Bytes { at, len } } else { Record::Zeros { at, len } }))
            }
            other => Err(self.broken(&format!("a part of it begins with {:?}", char::from(other)))),
        }
    }

    /// Bytes of a change.
    pub fn bytes(&mut self, to: &mut [u8]) -> Result<()> {
        self.exact(to)
    }
}

/// What is accepted is in its bounds, and no longer than what was read.
pub(crate) fn fuzz(mut data: &[u8]) {
    let all = data.len() as u64;
    let Ok((mut stream, front)) = Stream::new(&mut data, "") else { return };
    assert!(front.size <= MAX_IMAGE);
    assert!([&front.from, &front.to].into_iter().flatten().all(|name| check(name).is_ok()));
    let mut buffer = [0; 4096];
    while let Ok(Some(record)) = stream.record() {
        let (Record::Bytes { at, len } | Record::Zeros { at, len }) = record;
        assert!(at + len <= front.size);
        let mut left = if matches!(record, Record::Bytes { .. }) { len } else { 0 };
        let there = left <= all;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            if stream.bytes(&mut buffer[..part]).is_err() {
                return;
            }
            left -= part as u64;
        }
        assert!(there, "bytes came from nowhere");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(parts: &[&[u8]]) -> Vec<u8> {
        [DIFF_MAGIC, &parts.concat()].concat()
    }

    fn change(tag: &[u8], at: u64, len: u64, bytes: &[u8]) -> Vec<u8> {
        [tag, &at.to_le_bytes(), &len.to_le_bytes(), bytes].concat()
    }

    fn size(size: u64) -> Vec<u8> {
        [b"s", &size.to_le_bytes()[..]].concat()
    }

    type Parsed = (Front, Vec<(Record, Vec<u8>)>);

    /// The front and the changes, with their bytes; else the sentence.
    fn read(mut bytes: &[u8]) -> Result<Parsed, String> {
        let text = |error: Error| error.to_string();
        let (mut stream, front) = Stream::new(&mut bytes, "a").map_err(text)?;
        let mut all = Vec::new();
        while let Some(record) = stream.record().map_err(text)? {
            let mut bytes = match record {
                Record::Bytes { len, .. } if len > 100 => return Err("long".into()),
                Record::Bytes { len, .. } => vec![0; len as usize],
                Record::Zeros { .. } => Vec::new(),
            };
            stream.bytes(&mut bytes).map_err(text)?;
            all.push((record, bytes));
        }
        Ok((front, all))
    }

    #[test]
    fn a_stream_is_read_as_it_was_written() {
        let whole = stream(&[
            b"f\x01\0\0\0xt\x02\0\0\0yz",
            &size(10),
            &change(b"w", 3, 2, b"hi"),
            &change(b"z", 0, 10, b""),
            &change(b"w", 10, 0, b""),
            b"e",
        ]);
        let (front, all) = read(&whole).unwrap();
        assert_eq!(front, Front { from: Some("x".into()), to: Some("yz".into()), size: 10 });
        assert_eq!(all[0], (Record::Bytes { at: 3, len: 2 }, b"hi".to_vec()));
        assert_eq!((all[1].0, all.len()), (Record::Zeros { at: 0, len: 10 }, 3));
        assert_eq!(read(&stream(&[&size(0), b"t\x01\0\0\0ye"])).unwrap().0.to.as_deref(), Some("y"));
        // Whatever is missing at the end is told.
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err_and(|why| why.contains("ends in the middle")), "{len}");
            fuzz(&whole[..len]);
        }
    }

    #[test]
    fn changed_streams_are_refused_or_in_their_bounds() {
        use rand::{Rng, SeedableRng};
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let parts = [&size(10)[..], b"t\x01\0\0\0x", &change(b"w", 3, 2, b"hi"), &change(b"z", 0, 10, b""), b"e"];
        for _ in 0..50_000 {
            let mut bytes = stream(&[&parts[..2].concat(), parts[rng.random_range(0..5)], &parts[2..].concat()]);
            for _ in 0..rng.random_range(0..4) {
                let at = rng.random_range(DIFF_MAGIC.len()..bytes.len());
                bytes[at] = if rng.random() { rng.random() } else { b"ftswze\0\xff"[rng.random_range(0..8)] };
            }
            fuzz(&bytes);
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        let far = u64::MAX;
        for (bytes, why) in [
            (b"rbd diff v2\n".to_vec(), "not that of version 1"),
            (stream(&[b"e"]), "the size of the image is not in front"),
            (stream(&[&change(b"w", 0, 1, b"x")]), "the size of the image is not in front"),
            (stream(&[&size(1), &size(1)]), "twice"),
            (stream(&[b"t\x01\0\0\0xt\x01\0\0\0y"]), "twice"),
            (stream(&[&size(MAX_IMAGE + 1), b"e"]), "larger than one can be"),
            (stream(&[b"f\xff\xff\xff\xff"]), "too long"),
            (stream(&[b"t\0\0\0\0"]), "no name"),
            (stream(&[b"t\x03\0\0\0a@b"]), "no name"),
            (stream(&[b"t\x01\0\0\0\xff"]), "no text"),
            (stream(&[&size(10), &change(b"w", 9, 2, b"hi")]), "2 bytes from 9 on are not in an image of 10"),
            (stream(&[&size(10), &change(b"z", far, 2, b"")]), "are not in an image of 10"),
            (stream(&[&size(10), &change(b"z", 2, far, b"")]), "are not in an image of 10"),
            (stream(&[&size(10), &change(b"w", 0, 1, b"x"), &size(20)]), "begins with 's'"),
            (stream(&[&size(10), b"q"]), "begins with 'q'"),
            (stream(&[&size(10), b"e", DIFF_MAGIC]), "behind its end"),
        ] {
            let said = read(&bytes).expect_err(why);
            assert!(said.contains(why), "{said} lacks {why}");
            fuzz(&bytes);
        }
    }
}
