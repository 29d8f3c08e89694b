//! `imbrex kv scan`, and how a pair is told in JSON. Memory holds one pair at a time.

use super::Scan;
use super::form::{Form, write_key, write_pair};
use crate::output::{Failure, Outcome, hexadecimal, written};
use imbrex_kv::Iter;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

/// The object of a key and, where it is wanted, its value. Bytes that are not UTF-8 stand in `key_hex` and `value_hex`.
pub(super) fn object(key: &[u8], value: Option<&[u8]>) -> Value {
    let field = |name: &str, bytes| match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), text.into()),
        Err(_) => (format!("{name}_hex"), hexadecimal(bytes).into()),
    };
    let fields = [Some(field("key", key)), value.map(|value| field("value", value))];
    Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())
}

/// The first key that begins with none of what begins with the prefix and is not before it; `None`: there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

fn begin(iter: &mut Iter, args: &Scan) -> imbrex_device::Result<()> {
    let from = args.from.as_deref().map(OsStr::as_bytes);
    let prefix = args.prefix.as_bytes();
    if !args.reverse {
        return iter.seek(from.unwrap_or_default().max(prefix));
    }
    let end = behind(prefix);
    match (from, end) {
        (Some(from), end) if end.as_deref().is_none_or(|end| from < end) => iter.seek_for_prev(from),
        (_, Some(end)) => {
            iter.seek_for_prev(&end)?;
            // The end itself does not begin so.
            if iter.get().is_some_and(|(key, _)| key == end) { iter.retreat() } else { Ok(()) }
        }
        (_, None) => iter.seek_to_last(),
    }
}

fn one(out: &mut impl Write, args: &Scan, key: &[u8], value: &[u8]) -> io::Result<()> {
    if args.store.json() {
        return writeln!(out, "{}", object(key, (!args.keys).then_some(value)));
    }
    if args.keys { write_key(out, key) } else { write_pair(out, args.format, key, value) }
}

pub(super) fn scan(args: &Scan) -> Outcome {
    if args.keys && args.format == Form::Binary {
        return Err(Failure::usage("--keys prints lines, and --format binary has none; leave one of them out"));
    }
    let (store, at) = args.store.look()?;
    let mut iter = store.iter_at(&at)?;
    begin(&mut iter, args)?;
    let (mut left, mut out) = (args.limit.unwrap_or(u64::MAX), BufWriter::new(io::stdout().lock()));
    let to = args.to.as_deref().map(OsStr::as_bytes);
    let within = |key: &[u8]| {
        let before = to.is_none_or(|to| if args.reverse { key > to } else { key < to });
        before && key.starts_with(args.prefix.as_bytes())
    };
    while let Some((key, value)) = iter.get().filter(|(key, _)| left > 0 && within(key)) {
        let value = if args.keys { value } else { args.store.timed.value(key, value)? };
        written(one(&mut out, args, key, value))?;
        left -= 1;
        if args.reverse { iter.retreat()? } else { iter.advance()? }
    }
    written(out.flush())
}
