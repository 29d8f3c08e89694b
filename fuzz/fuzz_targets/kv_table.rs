//! Tables of the key-value store: arbitrary bytes as a table. Nothing panics, and of a table without a finding every look-up gives what the
//! iterator gives.
//!
//! Input: one byte of choices, then the table. If the choices say so, everything gets the checksums, the identity and the total length that no
//! fuzzer guesses. So decoders behind the checksums are reached.

#![no_main]

use imbrex_kv::Bytewise;
use imbrex_kv::table::{Identity, Iter, Source, Table, Uncached};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const FOOTER: usize = 80;
const TRAILER: usize = 12;
const IDENTITY: Identity = Identity { table: 7, life: 0x1234_5678_9abc_def0 };

/// Makes the trailer of a block right that stands at `at`.
fn seal(block: &mut [u8], what: u8, at: u64) {
    let Some(end) = block.len().checked_sub(TRAILER) else { return };
    block[end + 4] = what;
    block[end + 6..end + 8].fill(0);
    let sum = crc32c::crc32c(&block[..end + 8]);
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &IDENTITY.life.to_le_bytes()), &at.to_le_bytes());
    block[end + 8..].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the footer right, and the blocks before it that it leads to. Returns where the data and where the index ends.
fn seal_end(table: &mut [u8]) -> Option<(u64, u64)> {
    let end = table.len().checked_sub(FOOTER)?;
    let (rest, footer) = table.split_at_mut(end);
    footer[..24].copy_from_slice(b"IMBXtabl\x02\0\0\0\x50\0\0\0\0\0\0\0\0\0\0\0");
    for (n, number) in [IDENTITY.table, IDENTITY.life].into_iter().enumerate() {
        footer[24 + 8 * n..][..8].copy_from_slice(&number.to_le_bytes());
    }
    let mut end = end;
    for (n, what) in [(1, 0), (2, 3), (3, 4), (4, 5)].into_iter().rev() {
        let field: &mut [u8; 8] = footer[40 + 8 * n..].first_chunk_mut()?;
        let len = u64::from_le_bytes(*field).min(end as u64);
        *field = len.to_le_bytes();
        let at = end - len as usize;
        if what != 0 {
            seal(&mut rest[at..end], what, at as u64);
            end = at;
        } else {
            footer[40..48].copy_from_slice(&(at as u64).to_le_bytes());
            let sum = crc32c::crc32c(footer);
            footer[16..20].copy_from_slice(&sum.to_le_bytes());
            return Some((at as u64, end as u64));
        }
    }
    None
}

struct Bytes {
    table: Vec<u8>,
    /// Where data and index end, if blocks of them shall be sealed as they are read.
    ends: Option<(u64, u64)>,
}

impl Source for Bytes {
    fn read(&self, at: u64, len: usize) -> imbrex_device::Result<Vec<u8>> {
        let mut bytes = self.table[at as usize..][..len].to_vec();
        match self.ends {
            Some((data, _)) if at + len as u64 <= data => seal(&mut bytes, 1, at),
            Some((data, index)) if at >= data && at + len as u64 <= index => seal(&mut bytes, 2, at),
            _ => {}
        }
        Ok(bytes)
    }

    fn drive(&self) -> Arc<str> {
        "fuzz".into()
    }
}

/// Steps to the end. Returns how many entries there were, if all could be read.
fn walk(mut iter: Iter, forward: bool, each: &mut dyn FnMut(&Iter)) -> Option<u64> {
    let mut n = 0;
    let begun = if forward { iter.seek_to_first() } else { iter.seek_to_last() };
    begun.ok()?;
    while iter.valid() {
        each(&iter);
        n += 1;
        let moved = if forward { iter.next() } else { iter.prev() };
        moved.ok()?;
    }
    Some(n)
}

fuzz_target!(|data: &[u8]| {
    let Some((choices, table)) = data.split_first() else { return };
    if table.len() > 1 << 16 {
        return;
    }
    let mut table = table.to_vec();
    let ends = if choices & 1 == 1 { seal_end(&mut table) } else { None };
    let len = table.len() as u64;
    let source = Arc::new(Bytes { table, ends });
    let Ok(table) = Table::open(source, len, Arc::new(Bytewise), IDENTITY, Arc::new(Uncached)) else { return };
    let table = Arc::new(table);
    let sound = table.check().is_empty();
    let entries = table.properties().entries;
    for key in [&b""[..], b"key 07", b"z", &data[..data.len().min(9)]] {
        for seq in [0, 90, u64::MAX] {
            let found = table.get(key, seq);
            let mut iter = table.iter();
            let sought = iter.seek(key, seq);
            table.approximate_offset(key).ok();
            if sound {
                let version = found.unwrap().map(|version| version.seq);
                sought.unwrap();
                assert_eq!(version, (iter.valid() && iter.key() == key).then(|| iter.seq()));
            }
        }
    }
    let mut keys = Vec::new();
    let forward = walk(table.iter(), true, &mut |iter| {
        if sound && keys.len() < 50 {
            keys.push((iter.key().to_vec(), iter.seq(), iter.value().to_vec()));
        }
    });
    let back = walk(table.iter(), false, &mut |_| {});
    if sound {
        assert_eq!((forward, back), (Some(entries), Some(entries)));
        for (key, seq, value) in keys {
            let version = table.get(&key, seq).unwrap().unwrap();
            assert_eq!((version.seq, &version.value[..]), (seq, &value[..]));
        }
    }
});
