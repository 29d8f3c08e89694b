//! How keys and values stand in a stream: `imbrex kv scan` writes them so, and `imbrex kv load` reads them.
//!
//! Any bytes come through both forms as they are. What is read may be anything: memory is taken for bytes that are there, never for
//! a length that a stream claims, and only up to what a pair may have.

use crate::output::count;
use imbrex_kv::{MAX_KEY, MAX_VALUE};
use std::io::{self, BufRead, Read, Write};

/// The form of a stream of pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// A line for each pair, with a tab between key and value. Tabs, line ends, carriage returns and backslashes are \t, \n, \r and \\.
    #[default]
    Tsv,
    /// For each pair the length of the key and that of the value, 32 bits each and little-endian, then the key and the value.
    Binary,
}

/// What stands behind a backslash for a byte that a line cannot have as it is.
fn letter(byte: u8) -> Option<u8> {
    match byte {
        b'\t' => Some(b't'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\\' => Some(b'\\'),
        _ => None,
    }
}

/// The byte that a letter behind a backslash stands for.
fn meant(behind: u8) -> Option<u8> {
    [b'\t', b'\n', b'\r', b'\\'].into_iter().find(|byte| letter(*byte) == Some(behind))
}

fn escaped(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for run in bytes.split_inclusive(|byte| letter(*byte).is_some()) {
        match run.split_last().and_then(|(last, before)| Some((before, letter(*last)?))) {
            Some((before, letter)) => out.write_all(before).and_then(|()| out.write_all(&[b'\\', letter]))?,
            None => out.write_all(run)?,
        }
    }
    Ok(())
}

/// Writes a key alone, as a line.
pub(super) fn write_key(out: &mut impl Write, key: &[u8]) -> io::Result<()> {
    escaped(out, key)?;
    out.write_all(b"\n")
}

/// Writes a pair.
pub(super) fn write_pair(out: &mut impl Write, form: Form, key: &[u8], value: &[u8]) -> io::Result<()> {
    match form {
        Form::Tsv => {
            escaped(out, key)?;
            out.write_all(b"\t")?;
            escaped(out, value)?;
            out.write_all(b"\n")
        }
        Form::Binary => {
            for part in [key, value] {
                let len =
                    u32::try_from(part.len()).map_err(|_| io::Error::other("it is longer than its form can say"))?;
                out.write_all(&len.to_le_bytes())?;
            }
            out.write_all(key)?;
            out.write_all(value)
        }
    }
}

/// A key and a value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// Why there is no next pair.
#[derive(Debug)]
pub(super) enum Bad {
    /// The bytes cannot be had.
    Input(io::Error),
    /// They are no pair. The sentence names the line or the record.
    Pair(String),
}

impl From<io::Error> for Bad {
    fn from(error: io::Error) -> Bad {
        Bad::Input(error)
    }
}

/// The pairs of a stream.
pub(super) struct Pairs<R> {
    input: R,
    form: Form,
    /// Bytes of a value at most.
    most: usize,
    /// A key was empty, as one of a program may be.
    had_empty: bool,
    /// Number of the pair that is read, from 1 on.
    number: u64,
    /// Bytes of the stream so far.
    pub(super) bytes: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: BufRead> Pairs<R> {
    /// Those of a stream, whose values have at most `most` bytes.
    pub(super) fn new(input: R, form: Form, most: u64) -> Pairs<R> {
        let most = usize::try_from(most).unwrap_or(MAX_VALUE).min(MAX_VALUE);
        Pairs { input, form, most, had_empty: false, number: 0, bytes: 0, key: Vec::new(), value: Vec::new() }
    }

    /// The next pair; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Pair<'_>>, Bad> {
        self.number += 1;
        self.key.clear();
        self.value.clear();
        let found = match self.form {
            Form::Tsv => self.line()?,
            Form::Binary => self.record()?,
        };
        if found && self.key.is_empty() {
            // A line without a key is a slip, and so are records of nothing but zeros.
            if self.form == Form::Tsv {
                return Err(self.bad("has an empty key; a key needs at least one byte"));
            }
            if std::mem::replace(&mut self.had_empty, true) {
                return Err(self.bad("has an empty key, and so had one before it; look whether the stream is damaged"));
            }
        }
        Ok(found.then_some((&self.key[..], &self.value[..])))
    }

    /// What a pair is called that is none.
    pub(super) fn unit(&self) -> &'static str {
        match self.form {
            Form::Tsv => "line",
            Form::Binary => "record",
        }
    }

    fn bad(&self, what: &str) -> Bad {
        Bad::Pair(format!("{} {} {what}", self.unit(), count(self.number)))
    }

    /// A line that goes on when the key or the value is as long as may be.
    fn too_long(&self) -> Option<Bad> {
        let of = |what: &str, most: usize| {
            let most = count(most as u64);
            self.bad(&format!("has a {what} of more than {most} bytes, and a {what} has {most} at most"))
        };
        let (key, value) = (self.key.len() > MAX_KEY, self.value.len() > self.most);
        if key { Some(of("key", MAX_KEY)) } else { value.then(|| of("value", self.most)) }
    }

    /// Reads a line. False: there is none.
    fn line(&mut self) -> Result<bool, Bad> {
        let (mut any, mut behind_tab, mut behind_backslash) = (false, false, false);
        loop {
            let buf = self.input.fill_buf()?;
            let Some(first) = buf.first().copied() else { break };
            let target = if behind_tab { &mut self.value } else { &mut self.key };
            let mut used = 1;
            if behind_backslash {
                let Some(byte) = meant(first) else { return Err(self.no_escape(first)) };
                target.push(byte);
                behind_backslash = false;
            } else {
                match first {
                    b'\n' => {}
                    b'\\' => behind_backslash = true,
                    b'\t' if !behind_tab => behind_tab = true,
                    _ => {
                        let has_meaning = |byte: &u8| matches!(byte, b'\n' | b'\\') || (*byte == b'\t' && !behind_tab);
                        used = buf.iter().position(has_meaning).unwrap_or(buf.len());
                        target.extend_from_slice(&buf[..used]);
                    }
                }
            }
            any = true;
            let ends = first == b'\n';
            self.input.consume(used);
            self.bytes += used as u64;
            if let Some(bad) = self.too_long() {
                return Err(bad);
            }
            if ends {
                break;
            }
        }
        match (any, behind_tab) {
            _ if behind_backslash => Err(self.no_escape(b'\n')),
            (true, false) => Err(self.bad("has no tab between a key and a value")),
            (any, _) => Ok(any),
        }
    }

    fn no_escape(&self, behind: u8) -> Bad {
        let what = match behind {
            b'\n' => "has a backslash at its end, which is no escape".to_owned(),
            byte => format!("has \\{}, which is no escape", byte.escape_ascii()),
        };
        self.bad(&format!("{what}; a backslash of a key or a value is \\\\"))
    }

    /// Reads a record. False: there is none.
    fn record(&mut self) -> Result<bool, Bad> {
        let mut head = Vec::with_capacity(8);
        self.input.by_ref().take(8).read_to_end(&mut head)?;
        let cut = "is cut off; its stream ended too soon";
        let [a, b, c, d, e, f, g, h] = head[..] else {
            return if head.is_empty() { Ok(false) } else { Err(self.bad(cut)) };
        };
        let key = (u32::from_le_bytes([a, b, c, d]), MAX_KEY, "key");
        let value = (u32::from_le_bytes([e, f, g, h]), self.most, "value");
        for (len, most, what) in [key, value] {
            if len as usize > most {
                return Err(self.bad(&format!(
                    "has a {what} of {} bytes, and a {what} has {} at most; see that --format is right",
                    count(len.into()),
                    count(most as u64)
                )));
            }
        }
        let input = self.input.by_ref();
        // These grow with the bytes that come.
        input.take(key.0.into()).read_to_end(&mut self.key)?;
        input.take(value.0.into()).read_to_end(&mut self.value)?;
        self.bytes += (head.len() + self.key.len() + self.value.len()) as u64;
        let whole = self.key.len() == key.0 as usize && self.value.len() == value.0 as usize;
        if whole { Ok(true) } else { Err(self.bad(cut)) }
    }
}

/// What a fuzzer makes of these: any bytes, in both forms, with buffers of several sizes. The pairs that are understood are written again, and read as they were.
#[doc(hidden)]
pub fn fuzz_pairs(data: &[u8]) {
    const MOST: u64 = 4096;
    for form in [Form::Tsv, Form::Binary] {
        let mut before: Option<(Vec<u8>, u64)> = None;
        for buffer in [1, 7, 4096] {
            let (mut written, mut read) = (Vec::new(), 0);
            let mut pairs = Pairs::new(io::BufReader::with_capacity(buffer, data), form, MOST);
            while let Ok(Some((key, value))) = pairs.next() {
                assert!(key.len() <= MAX_KEY && value.len() as u64 <= MOST, "a pair is longer than it may be");
                assert!(write_pair(&mut written, form, key, value).is_ok(), "what was read can be written");
                read += 1;
            }
            assert!(pairs.bytes <= data.len() as u64 && pairs.value.capacity() as u64 <= 2 * data.len() as u64 + 64);
            let (mut again, mut second, mut more) = (Pairs::new(&written[..], form, MOST), Vec::new(), 0);
            while let Ok(Some((key, value))) = again.next() {
                assert!(write_pair(&mut second, form, key, value).is_ok());
                more += 1;
            }
            assert!(more == read && second == written, "what was written is read as it was");
            if let Some(before) = before.replace((written.clone(), read)) {
                assert_eq!(before, (written, read), "how much comes at once changes nothing");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    type Owned = (Vec<u8>, Vec<u8>);

    /// All pairs, and what is told of the first that is none; with a buffer of so many bytes.
    fn read(bytes: &[u8], form: Form, buffer: usize) -> (Vec<Owned>, Option<String>) {
        let mut pairs = Pairs::new(BufReader::with_capacity(buffer, bytes), form, 1000);
        let mut all = Vec::new();
        loop {
            match pairs.next() {
                Ok(Some((key, value))) => all.push((key.to_vec(), value.to_vec())),
                Ok(None) => {
                    assert_eq!(pairs.bytes, bytes.len() as u64);
                    return (all, None);
                }
                Err(Bad::Pair(sentence)) => return (all, Some(sentence)),
                Err(Bad::Input(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn any_bytes_come_through_both_forms() {
        let all: Vec<u8> = (0..=255).collect();
        let mut pairs: Vec<_> = all.iter().map(|a| (vec![*a], vec![*a, b'\\', *a])).collect();
        // Each pair of bytes, so that no two are taken for something else.
        pairs.extend(all.iter().map(|a| (all.iter().flat_map(|b| [*a, *b]).collect(), Vec::new())));
        for form in [Form::Tsv, Form::Binary] {
            let mut stream = Vec::new();
            pairs.iter().for_each(|(key, value)| write_pair(&mut stream, form, key, value).unwrap());
            for buffer in [1, 2, 7, 8192] {
                assert_eq!(read(&stream, form, buffer), (pairs.clone(), None), "{form:?} {buffer}");
            }
        }
    }

    /// Wherever a stream ends or a byte is another one, what comes is a pair, an end or a sentence.
    #[test]
    fn no_bytes_are_too_much() {
        let pairs = [(&b"key"[..], &b"va\tlue"[..]), (b"b\\", b""), (b"c", b"\n")];
        for form in [Form::Tsv, Form::Binary] {
            let mut stream = Vec::new();
            pairs.iter().for_each(|(key, value)| write_pair(&mut stream, form, key, value).unwrap());
            for at in 0..stream.len() {
                let (found, _) = read(&stream[..at], form, 3);
                assert!(found.len() <= pairs.len());
                for byte in 0..=255 {
                    let mut bad = stream.clone();
                    bad[at] = byte;
                    if let (_, Some(sentence)) = read(&bad, form, 8192) {
                        assert!(sentence.starts_with("line ") || sentence.starts_with("record "), "{sentence}");
                    }
                }
            }
        }
    }

    #[test]
    fn limits_hold_to_the_byte() {
        let (key, value) = (vec![b'k'; MAX_KEY], vec![b'\\'; 1000]);
        for form in [Form::Tsv, Form::Binary] {
            let told = |key: &[u8], value: &[u8]| {
                let mut stream = Vec::new();
                write_pair(&mut stream, form, key, value).unwrap();
                read(&stream, form, 100).1
            };
            assert_eq!(told(&key, &value), None);
            let longer = told(&[&key[..], b"k"].concat(), &value).unwrap();
            assert!(longer.contains("1 has a key of") && longer.contains("65,536 at most"), "{longer}");
            let longer = told(b"k", &[&value[..], b"v"].concat()).unwrap();
            assert!(longer.contains("1 has a value of") && longer.contains("1,000 at most"), "{longer}");
        }
    }
}
