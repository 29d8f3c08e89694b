//! Tables in memory, and the sorted lists that they are compared with.

use imbrex_device::Result;
use imbrex_kv::table::{
    Compression, Identity, Kind, Properties, Source, Table, TableBuilder, TableMeta, TableOptions, Uncached,
};
use imbrex_kv::{Bytewise, Order};
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes as a source.
pub struct Memory(pub Vec<u8>);

impl Source for Memory {
    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        Ok(self.0[at as usize..][..len].to_vec())
    }

    fn drive(&self) -> Arc<str> {
        "memory".into()
    }
}

/// The order of bytes, backwards.
pub struct Reverse;

impl Order for Reverse {
    fn name(&self) -> &str {
        "reverse"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub seq: u64,
    pub kind: Kind,
    pub value: Vec<u8>,
}

pub fn entry(key: &[u8], seq: u64, kind: Kind, value: &[u8]) -> Entry {
    let value = if kind == Kind::Delete { Vec::new() } else { value.to_vec() };
    Entry { key: key.to_vec(), seq, kind, value }
}

pub fn compare(order: &dyn Order, a: &Entry, b: &Entry) -> Ordering {
    order.compare(&a.key, &b.key).then(b.seq.cmp(&a.seq))
}

/// What goes into a table.
#[derive(Clone)]
pub struct Written {
    pub entries: Vec<Entry>,
    pub options: TableOptions,
    pub order: Arc<dyn Order>,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Entry { key, seq, kind, value } in &self.entries {
            writeln!(f, "{:?}*{} {seq} {kind:?} {}", &key[..key.len().min(20)], key.len(), value.len())?;
        }
        write!(f, "{:?} {}", self.options, self.order.name())
    }
}

impl Written {
    pub fn bytewise(entries: Vec<Entry>) -> Self {
        let options = TableOptions { block: 4096, ..TableOptions::default() };
        Written { entries, options, order: Arc::new(Bytewise) }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn sort(&mut self) {
        let order = self.order.clone();
        self.entries.sort_by(|a, b| compare(&*order, a, b));
        self.entries.dedup_by(|b, a| compare(&*order, a, b) == Ordering::Equal);
    }
}

pub fn identity() -> Identity {
    Identity { table: 7, life: 0x1234_5678_9abc_def0 }
}

/// Entries for images of some hundred bytes to a few KiB.
pub fn image(compression: Compression) -> Written {
    let mut written = Written::bytewise(Vec::new());
    written.options.compression = compression;
    for n in 0..40u64 {
        let kind = [Kind::Put, Kind::Put, Kind::Merge, Kind::Delete][n as usize % 4];
        let value = [noise(n, 20), vec![n as u8; 100]].concat();
        written.entries.push(entry(format!("key {:02}", n / 2).as_bytes(), 100 - n, kind, &value));
    }
    written.sort();
    written
}

/// Bytes that do not compress.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect()
}

/// Writes a table in pieces, and holds every estimate to what a table finished there would be.
pub fn write(written: &Written) -> (Vec<u8>, TableMeta) {
    let build = |upto: usize| {
        let mut builder = TableBuilder::new(written.options, written.order.clone(), identity()).unwrap();
        let mut bytes = Vec::new();
        for (n, entry) in written.entries[..upto].iter().enumerate() {
            let with = builder.estimated_len_with(entry.key.len(), entry.value.len());
            builder.add(&entry.key, entry.seq, entry.kind, &entry.value).unwrap();
            assert!(with >= builder.estimated_len());
            if n % 3 == 0 {
                bytes.extend(builder.take_ready());
            }
        }
        let estimate = builder.estimated_len();
        let (rest, meta) = builder.finish().unwrap();
        bytes.extend(rest);
        assert_eq!(bytes.len() as u64, meta.len);
        assert!(meta.len <= estimate, "{} > {estimate}", meta.len);
        (bytes, meta)
    };
    let n = written.entries.len();
    for upto in [1, 2, n / 3, n / 2, n.saturating_sub(1)].into_iter().filter(|upto| *upto > 0 && *upto < n) {
        build(upto);
    }
    build(n)
}

pub fn open_as(bytes: &[u8], order: &Arc<dyn Order>, identity: Identity) -> Result<Arc<Table>> {
    let source = Arc::new(Memory(bytes.to_vec()));
    Table::open(source, bytes.len() as u64, order.clone(), identity, Arc::new(Uncached)).map(Arc::new)
}

pub fn open(bytes: &[u8], order: &Arc<dyn Order>) -> Result<Arc<Table>> {
    open_as(bytes, order, identity())
}

pub fn same_properties(written: &Written, properties: &Properties) {
    let order = &*written.order;
    let sum = |of: fn(&Entry) -> u64| written.entries.iter().map(of).sum::<u64>();
    assert_eq!(properties.entries, written.entries.len() as u64);
    assert_eq!(properties.deletions, sum(|entry| (entry.kind == Kind::Delete).into()));
    assert_eq!(properties.merges, sum(|entry| (entry.kind == Kind::Merge).into()));
    assert_eq!(properties.key_bytes, sum(|entry| entry.key.len() as u64));
    assert_eq!(properties.value_bytes, sum(|entry| entry.value.len() as u64));
    let seqs = written.entries.iter().map(|entry| entry.seq);
    assert_eq!(Some(properties.smallest_seq), seqs.clone().min());
    assert_eq!(Some(properties.largest_seq), seqs.max());
    let keys = || written.entries.iter().map(|entry| &entry.key);
    assert_eq!(Some(&properties.smallest), keys().min_by(|a, b| order.compare(a, b)));
    assert_eq!(Some(&properties.largest), keys().max_by(|a, b| order.compare(a, b)));
}

fn current(iter: &imbrex_kv::table::Iter) -> Option<Entry> {
    iter.valid().then(|| {
        assert_eq!(&iter.shared_value().unwrap()[..], iter.value());
        entry(iter.key(), iter.seq(), iter.kind(), iter.value())
    })
}

pub fn same_forward_and_back(written: &Written, table: &Arc<Table>) {
    let mut iter = table.iter();
    assert_eq!(current(&iter), None);
    iter.seek_to_first().unwrap();
    for entry in &written.entries {
        assert_eq!(current(&iter).as_ref(), Some(entry));
        iter.next().unwrap();
    }
    assert_eq!(current(&iter), None);
    iter.next().unwrap();
    assert_eq!(current(&iter), None);
    iter.seek_to_last().unwrap();
    for entry in written.entries.iter().rev() {
        assert_eq!(current(&iter).as_ref(), Some(entry));
        iter.prev().unwrap();
    }
    assert_eq!(current(&iter), None);
}

/// A seek, and a walk from there to and fro.
pub fn same_seek(written: &Written, table: &Arc<Table>, key: &[u8], seq: u64) {
    let probe = entry(key, seq, Kind::Delete, b"");
    let at = written.entries.partition_point(|entry| compare(&*written.order, entry, &probe) == Ordering::Less);
    let mut iter = table.iter();
    iter.seek(key, seq).unwrap();
    assert_eq!(current(&iter).as_ref(), written.entries.get(at));
    for (step, back) in [false, true, true, true, false, false].into_iter().enumerate() {
        let Some(at) = [at + 1, at, at.wrapping_sub(1), at.wrapping_sub(2), at.wrapping_sub(1), at].get(step).copied()
        else {
            break;
        };
        if back {
            iter.prev().unwrap()
        } else {
            iter.next().unwrap()
        }
        assert_eq!(current(&iter).as_ref(), written.entries.get(at));
        if !iter.valid() {
            break;
        }
    }
}

pub fn same_get(written: &Written, table: &Arc<Table>, key: &[u8], seq: u64) {
    let versions = written.entries.iter().filter(|entry| entry.key == key && entry.seq <= seq);
    let want = versions.max_by_key(|entry| entry.seq);
    let found = table.get(key, seq).unwrap();
    let got = found.map(|version| entry(key, version.seq, version.kind, &version.value));
    assert_eq!(got.as_ref(), want);
}

pub fn offsets_rise(written: &Written, table: &Arc<Table>) {
    let mut before = 0;
    for entry in &written.entries {
        let at = table.approximate_offset(&entry.key).unwrap();
        assert!(at >= before);
        before = at;
    }
}
